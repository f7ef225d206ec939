/* A page that the kernel zeroes in a forked child: how a call knows that the channel is not its process's. */
#include <sys/mman.h>

#include "libclient/client.h"

enum { GATE_BYTES = 4096 };

struct gate *gate_create(void)
{
	struct gate *gate =
	    mmap(NULL, GATE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (gate == MAP_FAILED)
		return NULL;
	if (madvise(gate, GATE_BYTES, MADV_WIPEONFORK) < 0) {
		munmap(gate, GATE_BYTES);
		return NULL;
	}
	gate->present = 1;
	return gate;
}

void gate_destroy(struct gate *gate)
{
	if (gate)
		munmap(gate, GATE_BYTES);
}

bool gate_forked(const struct gate *gate)
{
	return !gate->present;
}
