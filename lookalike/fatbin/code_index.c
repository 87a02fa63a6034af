/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels and variables of one image.
 */
#include "code_index.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "error.h"

/* Small, since there are many modules and most hold few kernels. */
enum { CHUNK_BYTES = 4096 - 32 };

struct index_chunk {
	struct index_chunk *next;
	size_t used, room;
	_Alignas(8) uint8_t bytes[];
};

trz_status index_no_memory(void)
{
	return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory to read an image of device code");
}

void *index_bytes(struct code_index *index, size_t bytes)
{
	size_t rounded = align_up(bytes, 8);
	if (rounded < bytes)
		return NULL;
	struct index_chunk *chunk = index->chunks;
	if (!chunk || chunk->room - chunk->used < rounded) {
		size_t room = rounded > CHUNK_BYTES ? rounded : CHUNK_BYTES;
		chunk = room + sizeof *chunk < room ? NULL : calloc(1, sizeof *chunk + room);
		if (!chunk)
			return NULL;
		chunk->next = index->chunks;
		chunk->room = room;
		index->chunks = chunk;
	}
	void *at = chunk->bytes + chunk->used;
	chunk->used += rounded;
	return at;
}

char *index_text(struct code_index *index, const char *text, size_t length)
{
	char *copy = index_bytes(index, length + 1);
	if (copy)
		memcpy(copy, text, length);
	return copy;
}

/* Makes room for one more element of `size` bytes in `*list`. */
static bool make_room(void **list, size_t count, size_t *room, size_t size)
{
	if (count < *room)
		return true;
	size_t more = *room ? 2 * *room : 4;
	void *grown = reallocarray(*list, more, size);
	if (!grown)
		return false;
	*list = grown;
	*room = more;
	return true;
}

struct fatbin_kernel *index_add_kernel(struct code_index *index, const char *name, size_t length)
{
	void *list = index->kernels;
	bool room = make_room(&list, index->kernel_count, &index->kernel_room, sizeof *index->kernels);
	index->kernels = list;
	const char *copy = room ? index_text(index, name, length) : NULL;
	if (!copy)
		return NULL;
	struct fatbin_kernel *kernel = &index->kernels[index->kernel_count++];
	*kernel = (struct fatbin_kernel){ .name = copy };
	return kernel;
}

struct fatbin_variable *index_add_variable(struct code_index *index, const char *name, size_t length)
{
	void *list = index->variables;
	bool room = make_room(&list, index->variable_count, &index->variable_room, sizeof *index->variables);
	index->variables = list;
	const char *copy = room ? index_text(index, name, length) : NULL;
	if (!copy)
		return NULL;
	struct fatbin_variable *variable = &index->variables[index->variable_count++];
	*variable = (struct fatbin_variable){ .name = copy };
	return variable;
}

/* Kernels and variables both begin with their name. */
static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

_Static_assert(offsetof(struct fatbin_kernel, name) == 0 && offsetof(struct fatbin_variable, name) == 0,
               "by_name reads the first member");

static void *sort_and_shrink(void *list, size_t count, size_t size)
{
	if (count == 0) {
		free(list);
		return NULL;
	}
	qsort(list, count, size, by_name);
	void *shrunk = reallocarray(list, count, size);
	return shrunk ? shrunk : list;
}

void index_finish(struct code_index *index)
{
	index->kernels = sort_and_shrink(index->kernels, index->kernel_count, sizeof *index->kernels);
	index->variables = sort_and_shrink(index->variables, index->variable_count, sizeof *index->variables);
	index->kernel_room = index->kernel_count;
	index->variable_room = index->variable_count;
}

void index_clear(struct code_index *index)
{
	for (struct index_chunk *chunk = index->chunks, *next; chunk; chunk = next) {
		next = chunk->next;
		free(chunk);
	}
	free(index->kernels);
	free(index->variables);
	*index = (struct code_index){ 0 };
}

static const void *find(const char *name, const void *list, size_t count, size_t size)
{
	return count ? bsearch(&name, list, count, size, by_name) : NULL;
}

const struct fatbin_kernel *index_find_kernel(const struct code_index *index, const char *name)
{
	return find(name, index->kernels, index->kernel_count, sizeof *index->kernels);
}

const struct fatbin_variable *index_find_variable(const struct code_index *index, const char *name)
{
	return find(name, index->variables, index->variable_count, sizeof *index->variables);
}
