#include <errno.h>

#include "libclient/client.h"

struct reason {
	uint32_t number;
	int error;
	const char *sentence;
};

static const struct reason reasons[] = {
#define X(number, name, error, sentence) {number, error, sentence},
    WIRE_REASONS(X)
#undef X
};

static const struct reason *find(uint32_t number)
{
	for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
		if (reasons[i].number == number)
			return &reasons[i];
	return NULL;
}

const char *tr_strreason(uint32_t number)
{
	const struct reason *reason = find(number);

	return reason ? reason->sentence : "a reason that this version of the library does not know";
}

int tr_reason_errno(uint32_t number)
{
	const struct reason *reason = find(number);

	return reason ? reason->error : 0;
}

/* What calls return after the daemon ended a channel: a breach of the protocol is told from all other ends.
 */
int reason_to_error(uint32_t number)
{
	return tr_reason_errno(number) == EPROTO ? -ECONNABORTED : -ECONNRESET;
}

const char *tr_version(void)
{
	return TOKENRING_VERSION;
}
