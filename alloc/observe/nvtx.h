/* SPDX-License-Identifier: Apache-2.0
 *
 * Reporting allocations to a tool that the environment injects (compute-sanitizer), by NVTX's memory extension: each
 * window is a heap of the tool's, each allocation a region in it. Option nvtx. The tool is called under a lock of its
 * own, so that it gets all calls in order.
 */
#ifndef TRZ_ALLOC_NVTX_H
#define TRZ_ALLOC_NVTX_H

#include "heap/heap.h"

/* Loads the tool, if the environment names one and TERRAZZO_CONF says so, before a heap is opened under a lock. */
void nvtx_load(void);

/* Loads the tool, if the environment names one and the option is on, and sets h->annotates. NOT_SUPPORTED: the tool
 * cannot be used. */
trz_status nvtx_open(trz_heap *h);

/* A new allocation, or one with another size. No lock held. */
void nvtx_allocated(trz_heap *h, trz_addr address);

/* A live allocation is about to be freed; other addresses, and those of imports, are ignored. No lock held. */
void nvtx_freeing(trz_heap *h, trz_addr address);

/* A window is about to be closed. */
void nvtx_window_closing(trz_heap *h, struct window *w);

#endif
