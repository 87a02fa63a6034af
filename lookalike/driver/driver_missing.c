/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that the look-alike lacks, by name. One form serves them all, since the caller removes arguments from the
 * stack.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_NAMES = 512 };

static struct {
	pthread_mutex_t lock;
	const char *name[MOST_NAMES];
	size_t count;
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

int trz_lookalike_missing(const char *name)
{
	pthread_mutex_lock(&said.lock);
	size_t i = 0;
	while (i < said.count && strcmp(said.name[i], name) != 0)
		i++;
	bool first = i == said.count && i < MOST_NAMES;
	char *kept = first ? strdup(name) : NULL;
	if (kept)
		said.name[said.count++] = kept;
	pthread_mutex_unlock(&said.lock);
	if (first)
		fprintf(stderr, "terrazzo: the simulated device lacks %s: the call fails as not supported\n", name);
	return TRZ_CUDA_ERROR_NOT_SUPPORTED;
}

#define X(name, exported)                      \
	cuda_result exported(void)                 \
	{                                          \
		return trz_lookalike_missing(#name);   \
	}
#include "driver_missing.def"
#undef X
