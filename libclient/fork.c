/* The memory of a client: its first page is zeroed in a forked child, which is how a call knows that the
 * channel is not its process's. */
#include <sys/mman.h>

#include "libclient/client.h"

struct tr_client *client_allocate(void)
{
	struct tr_client *client =
	    mmap(NULL, sizeof *client, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (client == MAP_FAILED)
		return NULL;
	if (madvise(client, sizeof client->gate, MADV_WIPEONFORK) < 0) {
		client_free(client);
		return NULL;
	}
	client->gate.present = 1;
	return client;
}

void client_free(struct tr_client *client)
{
	munmap(client, sizeof *client);
}
