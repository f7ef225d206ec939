/* tokenring doctor: asks the host and the daemon, and prints the findings. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cli/connect.h"
#include "tools/cli/doctor.h"
#include "tools/cli/json.h"

enum { ANSWER_TIMEOUT_MS = 3000, ITEM_WIDTH = 17 };

struct doctor_options {
	struct common common;
	bool json;
	const char *root;
};

static const char *state_name(enum finding_state state)
{
	static const char *const names[] = {"ok", "note", "unknown", "costs", "wrong"};
	return names[state];
}

static void print_json(const struct finding *f)
{
	const struct {
		const char *key, *text;
	} members[] = {{"item", f->item},
		       {"state", state_name(f->state)},
		       {"found", f->found},
		       {"cost", f->cost},
		       {"fix", f->fix}};
	for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
		printf("%s\"%s\":", i ? "," : "{", members[i].key);
		json_print_text(stdout, members[i].text);
	}
	puts("}");
}

static void print_lines(const struct finding *f)
{
	printf("%-8s %-*s %s\n", state_name(f->state), ITEM_WIDTH, f->item, f->found);
	if (*f->cost)
		printf("%-8s %-*s costs: %s\n", "", ITEM_WIDTH, "", f->cost);
	if (*f->fix)
		printf("%-8s %-*s fix:   %s\n", "", ITEM_WIDTH, "", f->fix);
}

/* Prints all and returns 1 if any costs latency or is wrong. */
static enum exit_code report(const struct findings *findings, bool json)
{
	size_t n[FINDING_WRONG + 1] = {0};
	for (size_t i = 0; i < findings->n; i++) {
		const struct finding *f = &findings->finding[i];
		n[f->state]++;
		if (json)
			print_json(f);
		else
			print_lines(f);
	}
	if (!json)
		printf("%zu ok, %zu note%s, %zu unknown, %zu cost%s latency, %zu wrong\n", n[FINDING_OK],
		       n[FINDING_NOTE], n[FINDING_NOTE] == 1 ? "" : "s", n[FINDING_UNKNOWN], n[FINDING_COSTS],
		       n[FINDING_COSTS] == 1 ? "s" : "", n[FINDING_WRONG]);
	return n[FINDING_COSTS] + n[FINDING_WRONG] ? EXIT_FAILED : EXIT_DONE;
}

static int read_status(struct tr_client *client, struct doctor_daemon *daemon)
{
	int error;
	double pid = 0;
	char *json = connect_status(client, &error);
	if (!json)
		return error;
	json_number(json, "pid", &pid);
	daemon->pid = (int)pid;
	json_text(json, "version", daemon->version, sizeof daemon->version - 1);
	json_text(json, "state", daemon->state, sizeof daemon->state - 1);
	free(json);
	return 0;
}

static void ask_daemon(const char *socket, struct doctor_daemon *daemon)
{
	struct tr_open_options options = {.size = sizeof options, .timeout_ms = ANSWER_TIMEOUT_MS};
	struct tr_client *client;
	daemon->asked = true;
	daemon->error = tr_open(&client, socket, &options);
	if (daemon->error)
		return;
	daemon->error = read_status(client, daemon);
	tr_close(client);
}

/* Where tr_open looks for it, without --socket and without TOKENRING_SOCKET. */
static const char *default_socket(char *text, size_t bytes)
{
	const char *folder = getenv("XDG_RUNTIME_DIR");
	if (!access("/run/tokenring/socket", F_OK) || !folder || !*folder)
		return "/run/tokenring/socket";
	snprintf(text, bytes, "%s/tokenring/socket", folder);
	return text;
}

static enum exit_code run_doctor(const void *options, const struct positionals *arguments)
{
	const struct doctor_options *o = options;
	static struct findings findings;
	char process[16] = "self", socket[256];
	const char *named = getenv("TOKENRING_SOCKET");
	struct doctor_host host = {.root = o->root, .process = process, .version = tr_version()};
	host.socket = o->common.socket  ? o->common.socket
		      : *o->root        ? "/run/tokenring/socket"
		      : named && *named ? named
					: default_socket(socket, sizeof socket);
	if (*o->root && access(o->root, R_OK | X_OK))
		return complain("cannot read %s: %s", o->root, strerror(errno));
	if (!*o->root) {
		doctor_spin_measure(&host.spin);
		ask_daemon(host.socket, &host.daemon);
		if (host.daemon.pid > 0)
			snprintf(process, sizeof process, "%d", host.daemon.pid);
	}
	doctor_examine(&host, &findings);
	return report(&findings, o->json);
}

static const struct option_row rows[] = {
    {"json", 0, OPTION_FLAG, offsetof(struct doctor_options, json), NULL, 0, 0,
     "one JSON object a line for each item"},
    {"root", 0, OPTION_TEXT, offsetof(struct doctor_options, root), "DIR", 0, 0,
     "examine a copy of another host's /proc, /sys and /dev; measures nothing, asks no daemon"},
    COMMON_OPTIONS,
};

const struct verb verb_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "check what of this host costs latency, and how to change it",
    .notes =
	"exit codes: 0 nothing costs latency; 1 something does, or does not work; 2 wrong command line\n",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct doctor_options){.root = ""},
    .bytes = sizeof(struct doctor_options),
    .handler = run_doctor,
};
