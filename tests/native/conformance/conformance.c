/* SPDX-License-Identifier: Apache-2.0
 *
 * `conformance` lists the groups of checks, `conformance GROUP` runs one. Each line is an answer: "ok NAME",
 * "says NAME VALUE" if CUDA documents nothing, or "NOT NAME: GOT, documented WANTED". Exit status 1: there was a NOT
 * line.
 */
#include "conformance.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct group {
	const char *name;
	void (*run)(void);
} groups[] = {
	{"malloc", check_malloc}, {"free", check_free}, {"pitch", check_pitch}, {"pointers", check_pointers},
	{"async", check_async}, {"order", check_order}, {"pools", check_pools}, {"ended", check_ended},
	{"capture", check_capture}, {"driver", check_driver}, {"driver_pointers", check_driver_pointers},
	{"callback", check_callback}, {"early", check_early},
	{"contexts", check_contexts}, {"virtual", check_virtual}, {"host", check_host}, {"managed", check_managed},
	{"threads", check_threads}, {"devices", check_devices}, {"reset", check_reset}, {"fork", check_fork},
	{"fork_before", check_fork_before}, {"ipc", check_ipc},
};

static int failures;

void is(const char *name, long long got, long long documented)
{
	if (got == documented)
		printf("ok %s\n", name);
	else
		printf("NOT %s: %lld, documented %lld\n", name, got, documented);
	failures += got != documented;
	fflush(stdout);
}

void holds(const char *name, bool got)
{
	is(name, got, true);
}

void says(const char *name, long long got)
{
	printf("says %s %lld\n", name, got);
	fflush(stdout);
}

void must(const char *what, status result)
{
	if (result == SUCCESS)
		return;
	printf("NOT %s: %d, and what follows rests on it\n", what, result);
	exit(1);
}

struct call {
	void (*function)(void *);
	void *argument;
};

static void *call_it(void *argument)
{
	struct call *call = argument;
	call->function(call->argument);
	return NULL;
}

void in_thread(void (*function)(void *), void *argument)
{
	struct call call = {function, argument};
	pthread_t thread;
	if (pthread_create(&thread, NULL, call_it, &call))
		must("a thread", INVALID_VALUE);
	pthread_join(thread, NULL);
}

size_t free_bytes(void)
{
	size_t unused, total;
	must("cudaMemGetInfo", cudaMemGetInfo(&unused, &total));
	return unused;
}

int main(int count, char **arguments)
{
	for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
		if (count < 2)
			printf("%s\n", groups[i].name);
		else if (strcmp(arguments[1], groups[i].name) == 0)
			groups[i].run();
	}
	return failures != 0;
}
