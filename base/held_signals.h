/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds back the signals that a write can send to its own thread, and that end a process which does not expect them:
 * SIGPIPE, if nobody reads a pipe, and SIGXFSZ, if a file reaches its size limit. The write then fails like any other.
 * The thread is not cancelled meanwhile, either.
 */
#ifndef TRZ_BASE_HELD_SIGNALS_H
#define TRZ_BASE_HELD_SIGNALS_H

#include <signal.h>
#include <stddef.h>
#include <time.h>

#include "uncancelled.h"

struct held_signals {
	sigset_t mask, pending;  /* the thread's, from before */
	int cancel;
};

static inline void held_signals_begin(struct held_signals *h)
{
	sigset_t both;
	h->cancel = uncancelled_begin();
	sigemptyset(&both);
	sigaddset(&both, SIGPIPE);
	sigaddset(&both, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &both, &h->mask);
	sigpending(&h->pending);
}

/* Drops signals that the writes have sent. One that was pending before is the program's, and stays. */
static inline void held_signals_end(const struct held_signals *h)
{
	static const int numbers[] = {SIGPIPE, SIGXFSZ};
	const struct timespec now = {0};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		sigset_t one;
		sigemptyset(&one);
		sigaddset(&one, numbers[i]);
		if (!sigismember(&h->pending, numbers[i]))
			while (sigtimedwait(&one, NULL, &now) == numbers[i]) {}
	}
	pthread_sigmask(SIG_SETMASK, &h->mask, NULL);
	uncancelled_end(h->cancel);
}

#endif
