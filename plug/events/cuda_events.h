/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells all open heaps of the events that this process records and waits for by the CUDA runtime
 * (include/terrazzo.h, "known order"): the imports of these calls lead here, and from here to the runtime.
 */
#ifndef TRZ_CUDA_EVENTS_H
#define TRZ_CUDA_EVENTS_H

#include <stdbool.h>
#include <stddef.h>

/* Replaces the imports of all loaded objects, those loaded since the last call included, and returns how many lead
 * here. 0: the runtime is not loaded, or there is something about the process that is not understood; the heaps then
 * do without. `report`: from now on heaps are told. Any thread, at any time. */
size_t cuda_events_follow(bool report);

#endif
