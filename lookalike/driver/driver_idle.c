/* SPDX-License-Identifier: Apache-2.0
 *
 * Completes late work when the program has made no call for a while: it may be waiting for a callback, or watching the
 * memory that a copy writes. A real device would have finished long ago.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

/* The number of calls so far, by all threads. */
static uint64_t activity(void)
{
	uint64_t calls = 0;
	for (size_t i = 0; i < LOOK_CALLS; i++)
		calls += __atomic_load_n(&look_live.calls[i], __ATOMIC_RELAXED);
	return calls;
}

/* Waits for a second without a call, long enough that work stays late in a program that still makes calls. */
static void *watch(void *unused)
{
	enum { QUIET = 4 };
	const struct timespec quarter = {.tv_nsec = 250000000};
	uint64_t last = 0;
	int quiet = 0;
	(void)unused;
	for (;;) {
		nanosleep(&quarter, NULL);
		uint64_t now = activity();
		quiet = now == last ? quiet + 1 : 0;
		last = now;
		if (quiet < QUIET || sim_unfinished(look.sim) == 0)
			continue;
		sim_wake(look.sim);
		sim_nudge(look.sim, UINT64_MAX);
	}
	return NULL;
}

/* Blocks signals in the thread: they are for the program's own threads. */
static void open_watch(void)
{
	pthread_t thread;
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, watch, NULL) == 0)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static pthread_once_t watched = PTHREAD_ONCE_INIT;

void look_idle_open(void)
{
	if (look_is_late())
		pthread_once(&watched, open_watch);
}

void look_sleeps(void)
{
	__atomic_store_n(&look.has_slept, true, __ATOMIC_RELAXED);
	if (look.work != LOOK_BLOCKED)
		look_idle_open();
}

bool look_is_late(void)
{
	return look.work == LOOK_LATE || __atomic_load_n(&look.has_slept, __ATOMIC_RELAXED);
}
