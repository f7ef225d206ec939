/* Philox4x32-10, the counter-based generator behind every draw.
 *
 * Thread rule: a pure function.
 * Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11. */
#ifndef TOKENRING_DAEMON_ENGINE_PHILOX_H
#define TOKENRING_DAEMON_ENGINE_PHILOX_H

#include <stdint.h>

static inline void philox4x32_10(const uint32_t counter[4], const uint32_t key[2], uint32_t ret[4])
{
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
	uint32_t k0 = key[0], k1 = key[1];

	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;

		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
		c1 = (uint32_t)b;
		c3 = (uint32_t)a;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	ret[0] = c0;
	ret[1] = c1;
	ret[2] = c2;
	ret[3] = c3;
}

/* Uniform in [0, 1) with 53 bits for the token at `position`: key = seed, counter = position, the low words
 * first; the draw is the first two output words, low first. */
static inline double philox_uniform(uint64_t seed, uint64_t position)
{
	uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
	uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];

	philox4x32_10(counter, key, out);
	return (double)(((uint64_t)out[1] << 32 | out[0]) >> 11) * 0x1p-53;
}

#endif
