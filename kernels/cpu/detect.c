#include "kernels/cpu/detect.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* __builtin_cpu_supports of gcc and clang reads CPUID and, for AVX and AVX-512, XCR0: a feature counts only
 * if the operating system saves its registers. */
static bool always(void)
{
	return true;
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       __builtin_cpu_supports("f16c");
}

static bool has_avx512vnni(void)
{
	return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vnni");
}

static const struct {
	const struct cpu_isa *isa;
	bool (*here)(void);
	const char *needs;
} known[] = {
    /* the best first */
    {&cpu_isa_avx512vnni, has_avx512vnni, "AVX-512 F, BW, VL, DQ and VNNI"},
    {&cpu_isa_avx2, has_avx2, "AVX2, FMA and F16C"},
    {&cpu_isa_generic, always, "nothing"},
};

enum { KNOWN = sizeof known / sizeof known[0] };

int detect_isa(const char *name, const struct cpu_isa **ret, char *why, size_t why_bytes)
{
	bool best = !name || !strcmp(name, "auto");

	__builtin_cpu_init();
	for (int i = 0; i < KNOWN; i++) {
		if (!best && strcmp(name, known[i].isa->name))
			continue;
		if (known[i].here()) {
			*ret = known[i].isa;
			return 0;
		}
		if (best)
			continue;
		snprintf(why, why_bytes,
			 "Instruction set %s needs %s, which this CPU or its operating system lacks: use isa "
			 "= auto.",
			 name, known[i].needs);
		return -ENODEV;
	}
	snprintf(why, why_bytes, "There is no instruction set '%s': use auto, generic, avx2 or avx512vnni.",
		 name);
	return -EINVAL;
}
