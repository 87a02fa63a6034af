/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing the clock, and the length of a tick.
 */
#include "ticks.h"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { CALIBRATION_NS = 2000000 };

uint64_t monotonic_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#if defined(__x86_64__)

static bool counter_usable(void)
{
	unsigned a, b, c, d;
	return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));  /* "invariant TSC" */
}

uint64_t ticks_microsecond(const struct ticks *t)
{
	return t->counter ? 2048 : 1000;
}

#elif defined(__aarch64__)

static bool counter_usable(void)
{
	return true;
}

uint64_t ticks_microsecond(const struct ticks *t)
{
	uint64_t hertz;
	__asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hertz));
	return t->counter ? hertz / 1000000 + 1 : 1000;
}

#else

static bool counter_usable(void)
{
	return false;
}

uint64_t ticks_microsecond(const struct ticks *t)
{
	(void)t;
	return 1000;
}

#endif

void ticks_init(struct ticks *t)
{
	*t = (struct ticks){.counter = counter_usable()};
}

struct moment {
	uint64_t tick, ns;
};

/* Reads both clocks at one moment: takes the closest of several pairs, since the host interrupts. */
static struct moment read_both(const struct ticks *t)
{
	enum { PAIRS = 16 };
	uint64_t closest = UINT64_MAX;
	struct moment found = {0};
	for (int i = 0; i < PAIRS; i++) {
		uint64_t before = ticks_read_in_order(t), now = monotonic_ns(), apart = ticks_read_in_order(t) - before;
		if (apart >= closest)
			continue;
		closest = apart;
		found = (struct moment){before + apart / 2, now};
	}
	return found;
}

void ticks_calibrate(struct ticks *t)
{
	struct moment first = read_both(t);
	while (monotonic_ns() - first.ns < CALIBRATION_NS)
		;
	struct moment last = read_both(t);
	t->ns = (double)(last.ns - first.ns) / (double)(last.tick - first.tick);
}
