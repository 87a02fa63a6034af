/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's one wait: for a free whose memory must go back to the driver before more can be made.
 */
#ifndef TRZ_ALLOC_AWAIT_H
#define TRZ_ALLOC_AWAIT_H

#include "heap/heap.h"

/* Waits, with no lock held, for the work before the oldest free that the lane's stream has yet to pass; if it has none,
 * another stream's. Growth lock held; it is given back meanwhile. Driver: one wait for an event. false: there is
 * nothing to wait for, the stream is being captured, or the wait failed. */
bool await_free(trz_heap *h, const struct lane *l);

#endif
