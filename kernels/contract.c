#include "kernels/contract.h"

enum {
	MXCSR_FTZ = 1 << 15,
	MXCSR_ROUNDING = 3 << 13,
	MXCSR_MASKS = 0x1f80, /* no exception traps */
	MXCSR_DAZ = 1 << 6,
};

/* In a file of its own and not inline, so that no compiler moves arithmetic across the change. */
uint32_t contract_enter(void)
{
	uint32_t state = __builtin_ia32_stmxcsr();
	uint32_t wanted = (state & ~(uint32_t)MXCSR_ROUNDING) | MXCSR_FTZ | MXCSR_DAZ | MXCSR_MASKS;

	__builtin_ia32_ldmxcsr(wanted);
	return state;
}

void contract_leave(uint32_t state)
{
	__builtin_ia32_ldmxcsr(state);
}
