/* tokenring status: what the daemon says of itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/connect.h"
#include "tools/cli/json.h"
#include "tools/cli/topology.h"

struct status_options {
	struct common common;
	bool json, wait, topology;
};

static enum exit_code print_status(struct tr_client *client, bool json, bool topology)
{
	int error;
	char *text = connect_json(client, topology ? tr_topology : tr_status, &error);
	if (!text)
		return complain_call(client, "cannot ask for the status", error);
	enum exit_code code = EXIT_DONE;
	if (json)
		puts(text);
	else if (!(topology ? topology_print(stdout, text) : json_print_lines(stdout, text)))
		code = complain("the daemon's status is not JSON; are daemon and client of one version?");
	free(text);
	return code;
}

static enum exit_code run_status(const void *options, const struct positionals *arguments)
{
	const struct status_options *o = options;
	struct tr_client *client;
	struct tr_model_info info;
	enum exit_code code = o->wait ? connect_started(o->common.socket, &client, &info)
				      : connect_daemon(o->common.socket, &client);
	if (code)
		return code;
	code = print_status(client, o->json, o->topology);
	tr_close(client);
	return code;
}

static const struct option_row rows[] = {
    {"json", 0, OPTION_FLAG, offsetof(struct status_options, json), NULL, 0, 0,
     "one JSON object on one line"},
    {"topology", 't', OPTION_FLAG, offsetof(struct status_options, topology), NULL, 0, 0,
     "the plan of threads and memory, and where they are"},
    {"wait", 'w', OPTION_FLAG, offsetof(struct status_options, wait), NULL, 0, 0,
     "until the model is loaded; at most 10 s for a daemon that does not listen yet"},
    COMMON_OPTIONS,
};

const struct verb verb_status = {
    .name = "status",
    .arguments = "",
    .summary = "show the state of the daemon",
    .options = {rows, sizeof rows / sizeof *rows},
    .defaults = &(const struct status_options){.json = false},
    .bytes = sizeof(struct status_options),
    .handler = run_status,
};
