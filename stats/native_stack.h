/* SPDX-License-Identifier: Apache-2.0
 *
 * Native call stacks by number, as trz_native_frames has them, and the text of one address.
 */
#ifndef TRZ_STATS_NATIVE_STACK_H
#define TRZ_STATS_NATIVE_STACK_H

#include "terrazzo.h"

/* The number of the calling thread's stack, from the level that returns to `caller` on; the whole stack if `caller` is
 * NULL or no level returns there. */
uint64_t native_frames_from(const void *caller);

/* Where the program itself called the thread's current call of CUDA: the innermost level, from the one that returns to
 * `caller` outwards, that is neither in CUDA's runtime nor in its driver. A runtime that is linked into the program is
 * known by the names of its functions, so not if the program has been stripped. `caller` if it is the program's own, or
 * nothing better is found. Unwinds and reads files' symbols: for failures. */
const void *native_asker(const void *caller);

/* Describes the level of a return address; returns how many levels it has written. The text lives until the thread's
 * next call. */
size_t native_frame_of_address(const void *address, trz_frame *frame, size_t capacity);

#endif
