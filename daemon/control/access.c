/* Who may connect, and for whom it may speak. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/control/server_internal.h"

static bool listed(const struct config_uids *list, uint32_t number)
{
	for (uint32_t i = 0; i < list->n; i++)
		if (list->uid[i] == number)
			return true;
	return false;
}

/* Whether the group lets its members in. The socket's is asked each time: an operator may have changed it. */
static bool group_allowed(const struct server *server, gid_t gid)
{
	struct stat socket;

	if (listed(&server->config.allowed_gids, gid))
		return true;
	return server->config.access == SERVER_ACCESS_GROUP && stat(server->listener.path, &socket) == 0 &&
	       socket.st_gid == gid;
}

/* The groups that the peer had when it connected; free() them. NULL: none. */
static gid_t *peer_groups(int fd, size_t *ret_n)
{
	socklen_t bytes = 0;
	gid_t *groups;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes) == 0 || errno != ERANGE)
		return NULL;
	groups = malloc(bytes);
	if (groups && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) == 0) {
		*ret_n = bytes / sizeof *groups;
		return groups;
	}
	free(groups);
	return NULL;
}

static bool by_group(const struct server *server, int fd, gid_t first)
{
	size_t n = 0;
	bool allowed = group_allowed(server, first);
	gid_t *groups = allowed ? NULL : peer_groups(fd, &n);

	for (size_t i = 0; i < n && !allowed; i++)
		allowed = group_allowed(server, groups[i]);
	free(groups);
	return allowed;
}

bool access_allowed(const struct server *server, int fd, const struct ucred *peer)
{
	const struct server_config *config = &server->config;

	return peer->uid == geteuid() || peer->uid == 0 || config->access == SERVER_ACCESS_EVERYONE ||
	       listed(&config->allowed_uids, peer->uid) || by_group(server, fd, peer->gid);
}

bool access_may_name_tenants(const struct server *server, uint32_t uid)
{
	return listed(&server->config.tenant_uids, uid);
}
