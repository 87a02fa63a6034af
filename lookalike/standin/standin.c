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

enum { HANDLES = 256, REFUSALS = 256 };

/* All handles are here, so that we can tell of any pointer whether it is one. */
struct handle {
	void *stream;
	uint64_t memory;
	int mode[STANDIN_MODES];
	int used;
};

static struct chunk {
	struct handle handle[HANDLES];
	struct chunk *next;
} first;

static const char *refused[REFUSALS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct chunk *next_of(struct chunk *c)
{
	return __atomic_load_n(&c->next, __ATOMIC_ACQUIRE);
}

/* Whether `pointer` is, or has been, a handle. */
static int was_handle(const void *pointer)
{
	for (struct chunk *c = &first; c; c = next_of(c)) {
		uintptr_t offset = (uintptr_t)pointer - (uintptr_t)c->handle;
		if (offset < sizeof c->handle)
			return offset % sizeof c->handle[0] == 0;
	}
	return 0;
}

int standin_is_handle(const void *pointer)
{
	return was_handle(pointer) && __atomic_load_n(&((const struct handle *)pointer)->used, __ATOMIC_RELAXED);
}

int standin_work(const char *name, void *stream, const uint64_t *words, size_t count)
{
	if (!trz_lookalike_library_call || trz_lookalike_library_call(stream, name, words, count) == 0)
		return 0;
	return STANDIN_EXECUTION_FAILED;
}

int standin_handle_work(const char *name, const void *handle, const uint64_t *words, size_t count)
{
	if (!standin_is_handle(handle))
		return STANDIN_NOT_INITIALIZED;
	return standin_work(name, standin_stream(handle), words, count);
}

int standin_call(const char *name, const void *first_argument)
{
	if (was_handle(first_argument))
		return standin_handle_work(name, first_argument, NULL, 0);
	return standin_work(name, NULL, NULL, 0);
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

static struct handle *unused_in(struct chunk *c)
{
	for (int i = 0; i < HANDLES; i++)
		if (!c->handle[i].used)
			return &c->handle[i];
	return NULL;
}

void *standin_handle(void)
{
	pthread_mutex_lock(&lock);
	struct chunk *c = &first;
	struct handle *found;
	while (!(found = unused_in(c))) {
		if (!c->next)
			__atomic_store_n(&c->next, standin_descriptor(sizeof *c), __ATOMIC_RELEASE);
		c = c->next;
	}
	*found = (struct handle){ .used = 1 };
	pthread_mutex_unlock(&lock);
	return found;
}

void standin_drop(void *handle)
{
	pthread_mutex_lock(&lock);
	((struct handle *)handle)->used = 0;
	pthread_mutex_unlock(&lock);
}

void standin_set_stream(void *handle, void *stream)
{
	if (standin_is_handle(handle))
		((struct handle *)handle)->stream = stream;
}

void *standin_stream(const void *handle)
{
	return standin_is_handle(handle) ? ((const struct handle *)handle)->stream : NULL;
}

uint64_t *standin_memory(void *handle)
{
	return &((struct handle *)handle)->memory;
}

int standin_set_mode(void *handle, int which, int value)
{
	if (!standin_is_handle(handle))
		return STANDIN_NOT_INITIALIZED;
	((struct handle *)handle)->mode[which] = value;
	return 0;
}

int standin_get_mode(const void *handle, int which, int *value)
{
	if (!standin_is_handle(handle))
		return STANDIN_NOT_INITIALIZED;
	if (!value)
		return STANDIN_INVALID_VALUE;
	*value = ((const struct handle *)handle)->mode[which];
	return 0;
}

/* Bytes of CUDA's data types, by number. */
static size_t type_bytes(int type)
{
	static const unsigned char bytes[] = { 4, 8, 2, 1, 8, 16, 4, 2, 1, 2, 4, 8, 4, 8, 2, 4 };
	return type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 0;
}

int standin_result(const char *name, const void *handle, const uint64_t *words, size_t count, void *to, long bytes,
                   int value)
{
	int on_device = 0, failed = standin_get_mode(handle, STANDIN_POINTER_MODE, &on_device);
	if (!failed && !to)
		failed = STANDIN_INVALID_VALUE;
	if (failed || on_device)
		return failed ? failed : standin_handle_work(name, handle, words, count);
	failed = standin_handle_work(name, handle, words, count - 1);
	size_t size = bytes < 0 ? type_bytes((int)-bytes - 1) : (size_t)bytes;
	if (!failed && trz_lookalike_library_result &&
	    trz_lookalike_library_result(standin_stream(handle), size) != 0)
		failed = STANDIN_EXECUTION_FAILED;
	if (failed || !size)
		return failed;
	memset(to, value < 0 ? 0xff : 0, size);
	*(unsigned char *)to = (unsigned char)value;
	return 0;
}

int standin_make_handle(void **handle)
{
	if (!handle)
		return STANDIN_INVALID_VALUE;
	*handle = standin_handle();
	return 0;
}

int standin_drop_handle(void *handle)
{
	if (!standin_is_handle(handle))
		return STANDIN_NOT_INITIALIZED;
	standin_drop(handle);
	return 0;
}

int standin_tell_stream(const void *handle, void **stream)
{
	if (!standin_is_handle(handle))
		return STANDIN_NOT_INITIALIZED;
	if (!stream)
		return STANDIN_INVALID_VALUE;
	*stream = standin_stream(handle);
	return 0;
}

int standin_give_stream(void *handle, void *stream)
{
	standin_set_stream(handle, stream);
	return standin_is_handle(handle) ? 0 : STANDIN_NOT_INITIALIZED;
}

int standin_make_descriptor(void **made, size_t bytes)
{
	if (!made)
		return STANDIN_INVALID_VALUE;
	*made = standin_descriptor(bytes);
	return 0;
}

int standin_tell_version(int *version)
{
	if (!version)
		return STANDIN_INVALID_VALUE;
	*version = STANDIN_MAJOR * 1000 + STANDIN_MINOR * 100 + STANDIN_PATCH;
	return 0;
}

int standin_tell_property(int which, int *value)
{
	static const int numbers[] = { STANDIN_MAJOR, STANDIN_MINOR, STANDIN_PATCH };
	if (!value || which < 0 || which > 2)
		return STANDIN_INVALID_VALUE;
	*value = numbers[which];
	return 0;
}
