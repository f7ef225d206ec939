/* The floor of prefill: how many 8-bit multiplications the execution ports can do. Twelve independent
 * accumulators hide the latency of the instruction (4 to 5 cycles, two a cycle). */
#include "tools/bench_floor.h"

#include <errno.h>
#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "tools/bench_floor_team.h"

enum { ACCUMULATORS = 12, REPEAT = 20000 };

/* Named variables: an array of accumulators would be kept in memory, at half the speed. */
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

/* The empty statement keeps the compiler from seeing that the values never change. */
#define OPAQUE(x) __asm__ volatile("" : "+v"(x))

__attribute__((target("avx512f,avx512bw,avx512vnni"))) static double
multiply_avx512vnni(void *context, unsigned thread, unsigned threads)
{
	__m512i a = _mm512_set1_epi8(1);
#define DECLARE(i) __m512i sum##i = _mm512_setzero_si512();
#define MULTIPLY(i)                                 \
	sum##i = _mm512_dpbusd_epi32(sum##i, a, a); \
	OPAQUE(sum##i);
	EACH(DECLARE)
	for (int n = 0; n < REPEAT; n++) {
		EACH(MULTIPLY)
	}
#undef DECLARE
#undef MULTIPLY
	return 64.0 * ACCUMULATORS * REPEAT;
}

__attribute__((target("avx2"))) static double multiply_avx2(void *context, unsigned thread, unsigned threads)
{
	__m256i a = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
#define DECLARE(i) __m256i sum##i = _mm256_setzero_si256();
#define MULTIPLY(i)                                                                \
	{                                                                          \
		__m256i pairs = _mm256_maddubs_epi16(a, a);                        \
		OPAQUE(pairs);                                                     \
		sum##i = _mm256_add_epi32(sum##i, _mm256_madd_epi16(pairs, ones)); \
		OPAQUE(sum##i);                                                    \
	}
	EACH(DECLARE)
	for (int n = 0; n < REPEAT; n++) {
		EACH(MULTIPLY)
	}
#undef DECLARE
#undef MULTIPLY
	return 32.0 * ACCUMULATORS * REPEAT;
}

static double multiply_baseline(void *context, unsigned thread, unsigned threads)
{
	__m128i a = _mm_set1_epi16(1);
#define DECLARE(i) __m128i sum##i = _mm_setzero_si128();
#define MULTIPLY(i)                                    \
	{                                              \
		__m128i pairs = _mm_madd_epi16(a, a);  \
		__asm__ volatile("" : "+x"(pairs));    \
		sum##i = _mm_add_epi32(sum##i, pairs); \
		__asm__ volatile("" : "+x"(sum##i));   \
	}
	EACH(DECLARE)
	for (int n = 0; n < REPEAT; n++) {
		EACH(MULTIPLY)
	}
#undef DECLARE
#undef MULTIPLY
	return 8.0 * ACCUMULATORS * REPEAT;
}

double floor_multiply(const char *isa, unsigned threads, double seconds)
{
	if (!strcmp(isa, "avx512vnni")) {
		bool has = __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw");
		return has ? team_rate(multiply_avx512vnni, NULL, threads, seconds) : -ENOTSUP;
	}
	if (!strcmp(isa, "avx2"))
		return __builtin_cpu_supports("avx2") ? team_rate(multiply_avx2, NULL, threads, seconds)
						      : -ENOTSUP;
	return team_rate(multiply_baseline, NULL, threads, seconds);
}
