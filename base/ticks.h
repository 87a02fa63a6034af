/* SPDX-License-Identifier: Apache-2.0
 *
 * Time for short, frequent operations: the processor's counter if it runs at one rate, else the system's clock. Reading
 * the counter takes a third of the time, and touches no memory.
 */
#ifndef TRZ_BASE_TICKS_H
#define TRZ_BASE_TICKS_H

#include <stdbool.h>
#include <stdint.h>

#include "bits.h"

/* The monotonic clock. */
uint64_t monotonic_ns(void);

struct ticks {
	bool counter;          /* a tick is one of the processor's counter; else a nanosecond */
	double ns;             /* nanoseconds a tick, once calibrated */
};

/* Chooses the clock. */
void ticks_init(struct ticks *t);

/* Measures how long a tick is, to 0.01 %; takes two milliseconds. */
void ticks_calibrate(struct ticks *t);

/* How many ticks are about a microsecond; needs no calibration. */
uint64_t ticks_microsecond(const struct ticks *t);

/* Reads the clock. Counters of two processors may differ a little. */
static inline uint64_t ticks_read(const struct ticks *t)
{
#if defined(__x86_64__)
	if (LIKELY(t->counter))
		return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t value;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
	if (LIKELY(t->counter))
		return value;
#endif
	(void)t;
	return monotonic_ns();
}

/* Reads the clock after all earlier instructions have completed; otherwise a processor reads its counter as soon as it
 * can. For spans that must include all of their own work and no other. */
static inline uint64_t ticks_read_in_order(const struct ticks *t)
{
#if defined(__x86_64__)
	__builtin_ia32_lfence();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
	return ticks_read(t);
}

/* The length of a span; the ticks have been calibrated. */
static inline uint64_t ticks_to_ns(const struct ticks *t, uint64_t span)
{
	return (uint64_t)((double)span * t->ns);
}

#endif
