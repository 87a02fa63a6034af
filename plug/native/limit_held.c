/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of what the process holds.
 */
#include "limit_held.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "limit.h"

struct limit_memory {
	uint64_t bytes;
	unsigned references;   /* of names, and of callers */
	bool marked;
};

/* A name. It may count several times: a handle that was retained. */
struct name {
	uint64_t key, size;
	unsigned count;
	const void *context;   /* in which it was given; NULL: none */
	struct limit_memory *memory;
};

static void *trees[LIMIT_KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* guards all of them */

static int by_key(const void *a, const void *b)
{
	const struct name *m = a, *n = b;
	return (m->key > n->key) - (m->key < n->key);
}

struct limit_memory *limit_memory_take(uint64_t bytes)
{
	struct limit_memory *made = malloc(sizeof *made);
	if (made && limit_take(bytes)) {
		*made = (struct limit_memory){bytes, 1, false};
		return made;
	}
	free(made);
	return NULL;
}

/* Takes or gives only the difference, in one step, so that no other process can take what is merely counted anew. */
static void settle(uint64_t had, uint64_t has)
{
	if (has > had)
		limit_force(has - had);
	else if (has < had)
		limit_give(had - has);
}

static void resize_locked(struct limit_memory *memory, uint64_t bytes)
{
	settle(memory->bytes, bytes);
	memory->bytes = bytes;
}

void limit_memory_resize(struct limit_memory *memory, uint64_t bytes)
{
	pthread_mutex_lock(&lock);
	resize_locked(memory, bytes);
	pthread_mutex_unlock(&lock);
}

struct limit_memory *limit_memory_hold(struct limit_memory *memory)
{
	pthread_mutex_lock(&lock);
	memory->references++;
	pthread_mutex_unlock(&lock);
	return memory;
}

void limit_memory_mark(struct limit_memory *memory)
{
	memory->marked = true;
}

bool limit_memory_is_marked(const struct limit_memory *memory)
{
	return memory->marked;
}

static void drop_locked(struct limit_memory *memory)
{
	if (--memory->references > 0)
		return;
	limit_give(memory->bytes);
	free(memory);
}

void limit_memory_drop(struct limit_memory *memory)
{
	pthread_mutex_lock(&lock);
	drop_locked(memory);
	pthread_mutex_unlock(&lock);
}

static void join_locked(struct limit_memory *whole, struct limit_memory *part)
{
	whole->bytes += part->bytes;
	part->bytes = 0;
	drop_locked(part);
}

void limit_memory_join(struct limit_memory *whole, struct limit_memory *part)
{
	pthread_mutex_lock(&lock);
	join_locked(whole, part);
	pthread_mutex_unlock(&lock);
}

static struct name *find_locked(enum limit_kind kind, uint64_t key)
{
	const struct name wanted = {.key = key};
	struct name **found = tfind(&wanted, &trees[kind], by_key);
	return found ? *found : NULL;
}

/* Removes a name, with all of its references. */
static void end_locked(enum limit_kind kind, struct name *n)
{
	struct limit_memory *memory = n->memory;
	unsigned count = n->count;
	tdelete(n, &trees[kind], by_key);
	free(n);
	while (count-- > 0)
		drop_locked(memory);
}

/* A key that the driver gives anew names nothing else any more. Without host memory for the name, the memory counts
 * until the process ends. */
static void name_locked(enum limit_kind kind, struct name fresh)
{
	struct name *n = find_locked(kind, fresh.key);
	if (n && n->memory == fresh.memory) {
		n->count++;
		return;
	}
	if (n)
		end_locked(kind, n);
	n = malloc(sizeof *n);
	if (!n)
		return;
	*n = fresh;
	n->count = 1;
	tsearch(n, &trees[kind], by_key);
}

void limit_name(enum limit_kind kind, uint64_t key, uint64_t size, struct limit_memory *memory)
{
	struct name fresh = {.key = key, .size = size, .memory = memory};
	void *context = NULL;
	if (native_load() && native_driver.cuCtxGetCurrent(&context) == TRZ_CUDA_SUCCESS)
		fresh.context = context;
	pthread_mutex_lock(&lock);
	name_locked(kind, fresh);
	pthread_mutex_unlock(&lock);
}

struct limit_memory *limit_find(enum limit_kind kind, uint64_t key, uint64_t *size)
{
	pthread_mutex_lock(&lock);
	const struct name *n = find_locked(kind, key);
	struct limit_memory *memory = n ? n->memory : NULL;
	if (n && size)
		*size = n->size;
	if (memory)
		memory->references++;
	pthread_mutex_unlock(&lock);
	return memory;
}

struct limit_memory *limit_unname(enum limit_kind kind, uint64_t key, uint64_t *size)
{
	pthread_mutex_lock(&lock);
	struct name *n = find_locked(kind, key);
	struct limit_memory *memory = n ? n->memory : NULL;
	if (n && size)
		*size = n->size;
	if (n && --n->count == 0) {
		tdelete(n, &trees[kind], by_key);
		free(n);
	}
	pthread_mutex_unlock(&lock);
	return memory;
}

void limit_end(enum limit_kind kind, uint64_t key)
{
	struct limit_memory *memory = limit_unname(kind, key, NULL);
	if (memory)
		limit_memory_drop(memory);
}

/* Names that are to end: those of a piece of memory, or of a context. Used under the lock, since twalk passes no
 * argument on. */
static struct {
	const struct limit_memory *memory;
	const void *context;
	struct name **found;
	size_t count, room;
} ending;

static void gather(const void *node, VISIT which, int depth)
{
	struct name *n = *(struct name *const *)node;
	(void)depth;
	if (which != postorder && which != leaf)
		return;
	if (n->memory != ending.memory && (!ending.context || n->context != ending.context))
		return;
	if (ending.count == ending.room) {
		size_t room = ending.room ? 2 * ending.room : 64;
		struct name **grown = realloc(ending.found, room * sizeof(struct name *));
		if (!grown)
			return;
		ending.found = grown;
		ending.room = room;
	}
	ending.found[ending.count++] = n;
}

static void end_all_locked(enum limit_kind kind, const struct limit_memory *memory, const void *context)
{
	ending.memory = memory;
	ending.context = context;
	ending.count = 0;
	twalk(trees[kind], gather);
	for (size_t i = 0; i < ending.count; i++)
		end_locked(kind, ending.found[i]);
	free(ending.found);
	ending.found = NULL;
	ending.room = 0;
}

void limit_end_all(enum limit_kind kind, const struct limit_memory *memory)
{
	pthread_mutex_lock(&lock);
	end_all_locked(kind, memory, NULL);
	pthread_mutex_unlock(&lock);
}

void limit_forget_held(void)
{
	pthread_mutex_init(&lock, NULL);
	memset(trees, 0, sizeof trees);
}

/* Handles of physical memory, mappings, pools and graphs belong to no context. */
void limit_end_context(const void *context)
{
	static const enum limit_kind kinds[] = {LIMIT_ADDRESS, LIMIT_ARRAY, LIMIT_EXEC};
	if (!context)
		return;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		end_all_locked(kinds[i], NULL, context);
	pthread_mutex_unlock(&lock);
}

struct limit_memory *limit_measure_name(enum limit_kind kind, uint64_t key, struct limit_memory *fresh,
                                        limit_measure *measure)
{
	pthread_mutex_lock(&lock);
	const struct name *n = find_locked(kind, key);
	struct limit_memory *memory = n ? n->memory : fresh;
	memory->references++;
	if (n)
		join_locked(memory, fresh);
	else
		name_locked(kind, (struct name){.key = key, .memory = memory});
	resize_locked(memory, measure(key));
	pthread_mutex_unlock(&lock);
	return memory;
}

static limit_measure *measurer;  /* used under the lock, since twalk passes no argument on */

static void visit(const void *node, VISIT which, int depth)
{
	const struct name *n = *(struct name *const *)node;
	(void)depth;
	if (which == postorder || which == leaf)
		resize_locked(n->memory, measurer(n->key));
}

void limit_measure_all(enum limit_kind kind, limit_measure *measure)
{
	pthread_mutex_lock(&lock);
	measurer = measure;
	twalk(trees[kind], visit);
	pthread_mutex_unlock(&lock);
}
