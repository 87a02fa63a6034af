/* SPDX-License-Identifier: Apache-2.0
 *
 * A tool such as NVTX injects: it keeps track of heaps and regions, and of mistakes in the calls.
 */
#ifndef TRZ_TESTS_FAKE_TOOL_H
#define TRZ_TESTS_FAKE_TOOL_H

#include <stddef.h>
#include <stdint.h>

enum { FAKE_TOOL_MAX = 4096 };

struct fake_region {
	uint64_t address, size;
	void *heap;
};

struct fake_tool {
	struct fake_region heaps[FAKE_TOOL_MAX], regions[FAKE_TOOL_MAX];  /* of a heap: `heap` is its handle */
	size_t heap_count, region_count;
	uint64_t calls;
	uint64_t initialized;
	char wrong[160];             /* "": nothing */
	char name[64];               /* of the newest heap */
	int waits;                   /* not 0: its functions are cancellation points */
};

/* Exported by the library. */
extern struct fake_tool fake_tool;

#endif
