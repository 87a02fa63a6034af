/* SPDX-License-Identifier: Apache-2.0
 *
 * Common to all stand-ins: call counts, refusals, handles.
 */
#include "standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin_driver.h"

/* All handles are here, so that we can tell of any pointer whether it is one. */
enum { HANDLES = 1024, REFUSALS = 256 };

static struct handle {
	void *stream;
	int used;
} handles[HANDLES];

static const char *refused[REFUSALS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int is_handle(const void *pointer)
{
	uintptr_t at = (uintptr_t)pointer, first = (uintptr_t)handles;
	return at >= first && at < first + sizeof handles && (at - first) % sizeof handles[0] == 0;
}

int standin_work(const char *name, void *stream, const uint64_t *words, size_t count)
{
	return trz_lookalike_library_call ? trz_lookalike_library_call(stream, name, words, count) : 0;
}

int standin_call(const char *name, const void *handle)
{
	return standin_work(name, standin_stream(handle), NULL, 0);
}

int standin_refuse(const char *name, const char *why, int status)
{
	pthread_mutex_lock(&lock);
	int i = 0;
	while (i < REFUSALS && refused[i] && strcmp(refused[i], name) != 0)
		i++;
	int first = i < REFUSALS && !refused[i];
	if (first)
		refused[i] = name;
	pthread_mutex_unlock(&lock);
	if (first)
		fprintf(stderr, "terrazzo: %s is not simulated: %s\n", name, why);
	return status;
}

void *standin_descriptor(size_t bytes)
{
	void *made = calloc(1, bytes);
	if (!made) {
		fputs("terrazzo: no host memory for a library's descriptor\n", stderr);
		abort();
	}
	return made;
}

void *standin_handle(void)
{
	struct handle *found = NULL;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < HANDLES && !found; i++)
		if (!handles[i].used)
			found = &handles[i];
	if (found)
		*found = (struct handle){ .used = 1 };
	pthread_mutex_unlock(&lock);
	return found ? (void *)found : standin_descriptor(sizeof *found);
}

void standin_drop(void *handle)
{
	if (!is_handle(handle)) {
		free(handle);
		return;
	}
	pthread_mutex_lock(&lock);
	((struct handle *)handle)->used = 0;
	pthread_mutex_unlock(&lock);
}

void standin_set_stream(void *handle, void *stream)
{
	if (is_handle(handle))
		((struct handle *)handle)->stream = stream;
}

void *standin_stream(const void *handle)
{
	return is_handle(handle) ? ((const struct handle *)handle)->stream : NULL;
}
