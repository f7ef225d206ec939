#include "daemon/engine/logits.h"

const struct logits_ops *logits_pick(void)
{
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &logits_avx2;
	return &logits_generic;
}
