/* SPDX-License-Identifier: Apache-2.0
 *
 * Deterministic pseudo-random numbers for tests, the simulated device and tree priorities: SplitMix64
 * (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). Not for secrets.
 */
#ifndef TRZ_BASE_PRNG_H
#define TRZ_BASE_PRNG_H

#include <stdint.h>

/* A bijective mix of 64 bits: nearby inputs give unrelated outputs. */
static inline uint64_t prng_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* The next number of the sequence that *state stands in. */
static inline uint64_t prng_next(uint64_t *state)
{
	uint64_t x = prng_mix(*state);
	*state += 0x9e3779b97f4a7c15u;
	return x;
}

/* Uniform in [0, bound), bound > 0, by widening multiplication (Lemire 2019); the bias is under 2^-32 for
 * the bounds used here. */
static inline uint64_t prng_below(uint64_t *state, uint64_t bound)
{
	return (uint64_t)(((unsigned __int128)prng_next(state) * bound) >> 64);
}

#endif
