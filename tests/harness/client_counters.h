/* The private counters of a real client, for tests that also know the daemon's structures: names of both ends
 * clash.
 *
 * Thread rule: the client's thread. */
#ifndef TOKENRING_TESTS_HARNESS_CLIENT_COUNTERS_H
#define TOKENRING_TESTS_HARNESS_CLIENT_COUNTERS_H

#include <stdint.h>

struct tr_client;

void client_set_sleep_value(struct tr_client *client, uint32_t value);
uint32_t client_sleep_value(const struct tr_client *client);
/* What its next tr_wait would spin. */
uint32_t client_spin_ns(const struct tr_client *client);
uint64_t client_completion_index(const struct tr_client *client);

#endif
