/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap on a simulated machine: most tests begin with one.
 */
#ifndef TRZ_TESTS_RIG_H
#define TRZ_TESTS_RIG_H

#include "bits.h"
#include "sim.h"
#include "testing.h"

struct rig {
	sim *s;
	const trz_driver *d;
	trz_context c;       /* device 0's primary context */
	trz_heap *heap;      /* NULL: none is open */
};

/* A machine without a heap. Violations are counted, not fatal: rig_close fails the test for them. */
struct rig rig_machine(sim_config config);

/* Opens the rig's heap on device 0. */
void rig_open_heap(struct rig *r, const char *conf);

/* Both; calls that may wait for the device never do, so queued work runs only when the test lets it. */
struct rig rig_open(uint64_t capacity, const char *conf);

/* Closes the heap, if any, and the machine. Fails if anything is left with the driver, or a rule was broken. */
void rig_close(struct rig *r);

trz_stream rig_stream(struct rig *r);
void *rig_alloc(struct rig *r, size_t size, trz_stream stream);
void rig_free(struct rig *r, void *p);

/* Lets all work of device 0 run. */
void rig_sync(struct rig *r);

/* Asserts that the heap's invariants hold and no rule of the driver has been broken. */
void rig_check(struct rig *r);

/* Another heap on the machine, which the test closes. To the driver it might be another process's. */
trz_heap *rig_second_heap(struct rig *r);

uint64_t rig_stat(const struct rig *r, const char *name);
uint64_t rig_stat_of(trz_heap *heap, const char *name);

/* How many calls of the driver there have been, over all slots. */
uint64_t rig_calls(const struct rig *r);

/* Makes the work that `to` gets from now on wait for the work that `from` has so far. */
void rig_order(struct rig *r, trz_stream from, trz_stream to);

#endif
