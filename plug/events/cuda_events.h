/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells all open heaps of the events that this process records and waits for by the CUDA runtime (include/terrazzo.h,
 * "known order"): it redirects the imports of these calls here, and calls the runtime from here.
 */
#ifndef TRZ_CUDA_EVENTS_H
#define TRZ_CUDA_EVENTS_H

#include <stdbool.h>
#include <stddef.h>

/* Replaces the imports of all loaded objects, those loaded since the last call included, and returns how many lead
 * here. 0: the runtime is not loaded, or something about the process is not understood, and the heaps do without.
 * `report`: from now on heaps are told. Any thread may call this at any time. */
size_t cuda_events_follow(bool report);

#endif
