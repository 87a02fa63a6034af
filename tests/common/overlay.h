/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap over a copy of the simulated device's table; tests replace slots in it.
 */
#ifndef TRZ_TESTS_OVERLAY_H
#define TRZ_TESTS_OVERLAY_H

#include "rig.h"

struct overlay {
	struct rig rig;
	trz_driver table;            /* what the heap sees; replaced slots call rig.d's */
};

/* Makes the machine; slots can be replaced before and after the heap is opened. */
void overlay_machine(struct overlay *o, uint64_t capacity);
void overlay_open_heap(struct overlay *o, const char *conf);

/* Both, over a driver that cannot record events for whole contexts. */
void overlay_open_on_old_driver(struct overlay *o, uint64_t capacity);

#endif
