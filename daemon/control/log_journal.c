/* Log lines with structured fields: PRIORITY and TOKENRING_EVENT can be searched for with journalctl. */
#include "daemon/control/log_journal.h"

#include <errno.h>
#include <unistd.h>

/* The place of this file is the same for every line: of no use to a reader. */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

int log_journal_probe(void)
{
	return access("/run/systemd/journal/socket", W_OK) == 0 ? 0 : -ENOENT;
}

int log_journal_send(int priority, const char *event, const char *message)
{
	return sd_journal_send("MESSAGE=%s", message, "PRIORITY=%i", priority, "SYSLOG_IDENTIFIER=tokenringd",
			       "TOKENRING_EVENT=%s", event, NULL);
}
