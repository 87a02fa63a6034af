/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap with a block in each state, and a place for gdb to stop at.
 */
#include "heap/heap.h"
#include "rig.h"

void target_is_ready(void);

NOINLINE void target_is_ready(void)
{
	__asm__ volatile("" ::: "memory");
}

int main(void)
{
	struct rig r = rig_open(MIB(256), NULL);
	trz_heap *volatile heap = r.heap;
	trz_stream other = rig_stream(&r);
	void *volatile slot = rig_alloc(&r, 1000, NULL), *volatile large = rig_alloc(&r, MIB(5), NULL);
	void *pending = rig_alloc(&r, MIB(3), NULL), *last = rig_alloc(&r, MIB(6), NULL);
	void *middle = rig_alloc(&r, MIB(2), NULL);
	assert_ok(trz_record_stream(heap, large, other));
	assert_ok(trz_record_stream(heap, pending, other));
	assert_ok(sim_stamp(r.s, r.c, other, (trz_addr)pending, 8, 1));
	rig_free(&r, pending);
	target_is_ready();
	for (void *p[] = {slot, large, last, middle}, **i = p; i < p + LENGTH(p); i++)
		rig_free(&r, *i);
	rig_sync(&r);
	rig_close(&r);
	return 0;
}
