/* SPDX-License-Identifier: Apache-2.0
 *
 * Arithmetic on sizes and alignments. `align` is always a power of two.
 */
#ifndef TRZ_BASE_BITS_H
#define TRZ_BASE_BITS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

/* Marks code that rarely runs, so that hot paths stay short and straight. */
#define COLD __attribute__((noinline, cold))
#define NOINLINE __attribute__((noinline))
/* Marks a function into which everything that it calls is inlined, except NOINLINE functions: a hot path without
 * calls. */
#define FLAT __attribute__((flatten))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

static inline bool is_power_of_two(uint64_t x)
{
	return x != 0 && (x & (x - 1)) == 0;
}

static inline uint64_t align_up(uint64_t x, uint64_t align)
{
	assert(is_power_of_two(align));
	return (x + align - 1) & ~(align - 1);
}

static inline uint64_t align_down(uint64_t x, uint64_t align)
{
	assert(is_power_of_two(align));
	return x & ~(align - 1);
}

/* Index of the highest set bit; x > 0. */
static inline unsigned log2_floor(uint64_t x)
{
	return 63u - (unsigned)__builtin_clzll(x);
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

#endif
