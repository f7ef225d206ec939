#include "daemon/engine/guard.h"

#include <dlfcn.h>
#include <stddef.h>

static void (*guard)(int forbidden);

void guard_init(void)
{
	void *found = dlsym(RTLD_DEFAULT, "tokenring_allocation_guard");

	/* ISO C has no conversion from void * to a function; POSIX says to write it like this. */
	*(void **)&guard = found;
}

void guard_enter(void)
{
	if (guard)
		guard(1);
}

void guard_leave(void)
{
	if (guard)
		guard(0);
}
