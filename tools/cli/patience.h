/* How long a daemon whose heartbeat is stale is still waited for. A machine that is short of CPUs holds a
 * heartbeat back for a second or two; a daemon that hangs does so for ever. */
#ifndef TOKENRING_TOOLS_CLI_PATIENCE_H
#define TOKENRING_TOOLS_CLI_PATIENCE_H

#include <tokenring/tokenring.h>

struct patience { /* all zero at the start */
	uint64_t stale_since_ns;
};

/* tr_poll and tr_wait, which return 0 instead of -EHOSTDOWN during the first ten seconds of it. */
int patient_poll(struct patience *patience, struct tr_client *client, struct tr_event *events, unsigned max);
int patient_wait(struct patience *patience, struct tr_client *client, struct tr_event *events, unsigned max,
		 int64_t timeout_ns);

#endif
