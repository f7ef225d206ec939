#include "tools/cli/patience.h"

#include <errno.h>
#include <unistd.h>

#include "tools/cli/answer.h"

static const uint64_t limit_ns = 10000000000u;

static int judge(struct patience *p, int result)
{
	if (result != -EHOSTDOWN) {
		p->stale_since_ns = 0;
		return result;
	}
	uint64_t now = answer_now_ns();
	if (!p->stale_since_ns)
		p->stale_since_ns = now;
	if (now - p->stale_since_ns > limit_ns)
		return result;
	usleep(1000); /* whoever keeps the daemon from running may have this CPU */
	return 0;
}

int patient_poll(struct patience *p, struct tr_client *client, struct tr_event *events, unsigned max)
{
	int result = tr_poll(client, events, max);
	return result >= 0 ? result : judge(p, result);
}

int patient_wait(struct patience *p, struct tr_client *client, struct tr_event *events, unsigned max,
		 int64_t timeout_ns)
{
	return judge(p, tr_wait(client, events, max, timeout_ns));
}
