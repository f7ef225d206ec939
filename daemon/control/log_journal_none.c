/* Built without libsystemd. */
#include "daemon/control/log_journal.h"

#include <errno.h>

int log_journal_probe(void)
{
	return -ENOTSUP;
}

int log_journal_send(int priority, const char *event, const char *message)
{
	(void)priority;
	(void)event;
	(void)message;
	return -ENOTSUP;
}
