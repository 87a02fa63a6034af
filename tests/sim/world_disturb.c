/* SPDX-License-Identifier: Apache-2.0
 *
 * Stops the threads of a world that runs freely at any instruction, now and then, for longer than a call of the heap
 * takes. Else a thread on few processors is hardly ever stopped between two steps that belong together.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "world_parts.h"

enum { SIGNAL = SIGUSR2, PAUSE_NS = 400000, STOP_NS = 300000 };

/* ThreadSanitizer puts signals off until the thread makes a system call, and then takes very long. */
#ifdef __SANITIZE_THREAD__
static const bool possible = false;
#else
static const bool possible = true;
#endif

static atomic_uint_fast64_t stops;

static void sleep_below(uint64_t random, uint64_t ns)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)(random % ns)}, NULL);
}

static void stop(int signal)
{
	int before = errno;
	(void)signal;
	sleep_below(prng_mix(atomic_fetch_add(&stops, 1)), STOP_NS);
	errno = before;
}

static void *disturb(void *arg)
{
	struct world *w = arg;
	uint64_t random = prng_mix(w->seed);
	while (!atomic_load(&w->calm)) {
		sleep_below(prng_next(&random), PAUSE_NS);
		pthread_kill(w->actors[prng_below(&random, w->actor_count)].thread, SIGNAL);
	}
	return NULL;
}

bool world_is_disturbed(const struct world *w)
{
	return possible && w->seed % 2 == 1;
}

void world_disturb(struct world *w)
{
	const struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
	atomic_store(&w->calm, false);
	if (sigaction(SIGNAL, &action, NULL) != 0 || pthread_create(&w->disturber, NULL, disturb, w) != 0)
		abort();
}

void world_calm(struct world *w)
{
	atomic_store(&w->calm, true);
	pthread_join(w->disturber, NULL);
}
