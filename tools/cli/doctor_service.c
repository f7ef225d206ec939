/* tokenring doctor: the socket, its folder, and the daemon behind it. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cli/doctor_tree.h"

/* The name of a group, or its number. */
static void group_name(gid_t gid, char *ret, size_t bytes)
{
	const struct group *group = getgrgid(gid);
	if (group)
		snprintf(ret, bytes, "%s", group->gr_name);
	else
		snprintf(ret, bytes, "%u", (unsigned)gid);
}

/* In a folder that others may write, without the sticky bit, anybody can put another socket there. */
static bool folder_is_open(const char *path, const struct stat *socket)
{
	char folder[PATH_MAX];
	struct stat at;
	snprintf(folder, sizeof folder, "%s", path);
	char *slash = strrchr(folder, '/');
	if (!slash)
		return false;
	*slash = 0;
	return !stat(*folder ? folder : "/", &at) && at.st_mode & S_IWOTH && !(at.st_mode & S_ISVTX);
}

static void examine_socket(const struct doctor_host *host, struct findings *findings)
{
	char path[PATH_MAX], group[64];
	struct stat at;
	snprintf(path, sizeof path, "%s%s", host->root, host->socket);
	if (stat(path, &at)) {
		struct finding *f =
		    finding_add(findings, "socket", errno == EACCES ? FINDING_WRONG : FINDING_NOTE,
				"%.120s: %s", host->socket, strerror(errno));
		if (errno == EACCES)
			finding_fix(f, "join the group that owns its folder");
		return;
	}
	group_name(at.st_gid, group, sizeof group);
	if (folder_is_open(path, &at)) {
		struct finding *f =
		    finding_add(findings, "socket", FINDING_WRONG,
				"%.120s: every user may replace it in its folder", host->socket);
		finding_fix(f, "chmod o-w on the folder, or socket = /run/tokenring/socket");
	} else if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS)) {
		struct finding *f = finding_add(findings, "socket", FINDING_WRONG,
						"%.120s, mode %04o, group %s: this user may not connect",
						host->socket, at.st_mode & 07777, group);
		finding_fix(f, "usermod -aG %s USER, and log in again", group);
	} else {
		finding_add(findings, "socket", FINDING_OK, "%.120s, mode %04o, group %s", host->socket,
			    at.st_mode & 07777, group);
	}
}

static void examine_daemon(const struct doctor_host *host, struct findings *findings)
{
	const struct doctor_daemon *daemon = &host->daemon;
	struct finding *f;
	if (!daemon->asked) {
		finding_add(findings, "daemon", FINDING_UNKNOWN, "not asked");
	} else if (daemon->error == -ENOENT) {
		f = finding_add(findings, "daemon", FINDING_NOTE, "none runs behind this socket");
		finding_fix(
		    f, "systemctl start tokenringd, or name its socket with --socket or TOKENRING_SOCKET");
	} else if (daemon->error) {
		f = finding_add(findings, "daemon", FINDING_WRONG, "no answer: %s",
				daemon->error == -EPROTONOSUPPORT ? "it speaks another version of the channel"
								  : strerror(-daemon->error));
		finding_fix(f, "systemctl restart tokenringd; journalctl -u tokenringd says what happened");
	} else if (strcmp(daemon->version, host->version) != 0) {
		f = finding_add(findings, "daemon", FINDING_WRONG, "it is of version %s, but this is %s",
				*daemon->version ? daemon->version : "unknown", host->version);
		finding_fix(f, "install both from one version; systemctl restart tokenringd");
	} else {
		finding_add(findings, "daemon", FINDING_OK, "version %s, process %d, model %s",
			    daemon->version, daemon->pid, daemon->state);
	}
}

void doctor_service(const struct doctor_host *host, struct findings *findings)
{
	examine_socket(host, findings);
	examine_daemon(host, findings);
}
