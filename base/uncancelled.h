/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps a thread that has been cancelled (pthread_cancel) alive until it has given back what it holds: a lock, a flag,
 * a block that it works on. The system's calls that wait or write are cancellation points, and so may be the driver's.
 */
#ifndef TRZ_BASE_UNCANCELLED_H
#define TRZ_BASE_UNCANCELLED_H

#include <pthread.h>

/* Returns what uncancelled_end needs. */
static inline int uncancelled_begin(void)
{
	int before = PTHREAD_CANCEL_DISABLE;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void uncancelled_end(int before)
{
	pthread_setcancelstate(before, &before);
}

#endif
