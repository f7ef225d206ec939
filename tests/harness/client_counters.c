#include "tests/harness/client_counters.h"

#include "libclient/client.h"

void client_set_sleep_value(struct tr_client *client, uint32_t value)
{
	client->sleeper.value = value;
}

uint32_t client_sleep_value(const struct tr_client *client)
{
	return client->sleeper.value;
}

uint64_t client_completion_index(const struct tr_client *client)
{
	return client->completions.index;
}

uint32_t client_spin_ns(const struct tr_client *client)
{
	return client->spin_now_ns;
}
