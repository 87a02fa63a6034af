/* SPDX-License-Identifier: Apache-2.0
 *
 * Linking device code at run time. Kernels compute nothing, so nothing has to be resolved: the result is the PTX texts
 * that were added, one after the other, or else the first image.
 */
#include "driver_lookalike.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"

/* CUjitInputType, CUjit_option */
enum { INPUT_CUBIN, INPUT_PTX, INPUT_FATBINARY, INPUT_OBJECT, INPUT_LIBRARY, INPUT_NVVM };
enum { OPTION_WALL_TIME = 2, OPTION_INFO_LOG = 3, OPTION_INFO_SIZE = 4, OPTION_ERROR_LOG = 5, OPTION_ERROR_SIZE = 6 };

struct link {
	int type;                    /* of what is kept; -1: nothing yet */
	char *image;                 /* ends with 0 */
	size_t size;
	unsigned option_count;
	int *options;                /* the caller's, which the end writes to */
	void **values;
};

/* What is left of a log's room, beside the log in the order of the options. */
static size_t room_of(int size_option, unsigned count, const int *options, void **values)
{
	for (unsigned i = 0; i < count; i++)
		if (options[i] == size_option)
			return (size_t)values[i];
	return 0;
}

void look_answer_jit(const char *error, unsigned count, const int *options, void **values)
{
	size_t room = options && values ? room_of(OPTION_ERROR_SIZE, count, options, values) : 0, written = 0;
	for (unsigned i = 0; options && values && i < count; i++) {
		bool log = options[i] == OPTION_INFO_LOG || options[i] == OPTION_ERROR_LOG;
		if (log && values[i] && options[i] == OPTION_ERROR_LOG && room > 0)
			written = min_u64((size_t)snprintf(values[i], room, "%s", error), room - 1);
		else if (log && values[i] && (room_of(OPTION_INFO_SIZE, count, options, values) > 0))
			*(char *)values[i] = '\0';
	}
	for (unsigned i = 0; options && values && i < count; i++) {
		if (options[i] == OPTION_INFO_SIZE || options[i] == OPTION_WALL_TIME)
			values[i] = NULL;
		else if (options[i] == OPTION_ERROR_SIZE)
			values[i] = (void *)written;
	}
}

cuda_result cuLinkCreate_v2(unsigned count, int *options, void **values, void **state)
{
	LOOK_ENTER(cuLinkCreate_v2);
	LOOK_NEED(look_context(), INVALID_CONTEXT);
	LOOK_NEED(state, INVALID_VALUE);
	struct link *l = malloc(sizeof *l);
	LOOK_NEED(l, OUT_OF_MEMORY);
	*l = (struct link){.type = -1, .option_count = count, .options = options, .values = values};
	*state = l;
	return TRZ_CUDA_SUCCESS;
}

static cuda_result append(struct link *l, int type, const char *data, size_t size)
{
	bool both_text = type == INPUT_PTX && l->type == INPUT_PTX;
	if (type == INPUT_LIBRARY || (l->type >= 0 && !both_text))
		return TRZ_CUDA_SUCCESS;
	size_t text = type == INPUT_PTX ? strnlen(data, size) : size;
	char *image = realloc(l->image, l->size + text + 2);
	LOOK_NEED(image, OUT_OF_MEMORY);
	memcpy(image + l->size, data, text);
	l->image = image;
	l->size += text;
	if (type == INPUT_PTX)
		image[l->size++] = '\n';
	image[l->size] = '\0';
	l->type = type;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuLinkAddData_v2(void *state, int type, const void *data, size_t size, const char *name, unsigned count,
                             int *options, void **values)
{
	LOOK_ENTER(cuLinkAddData_v2);
	(void)name;
	LOOK_NEED(state && data && size > 0 && type >= INPUT_CUBIN && type <= INPUT_NVVM, INVALID_VALUE);
	look_answer_jit("", count, options, values);
	return append(state, type, data, size);
}

cuda_result cuLinkAddFile_v2(void *state, int type, const char *path, unsigned count, int *options, void **values)
{
	LOOK_ENTER(cuLinkAddFile_v2);
	LOOK_NEED(state && path && type >= INPUT_CUBIN && type <= INPUT_NVVM, INVALID_VALUE);
	look_answer_jit("", count, options, values);
	FILE *file = fopen(path, "rb");
	LOOK_NEED(file, FILE_NOT_FOUND);
	long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
	char *data = size > 0 ? malloc((size_t)size) : NULL;
	rewind(file);
	bool read = data && fread(data, 1, (size_t)size, file) == (size_t)size;
	fclose(file);
	cuda_result result = read ? append(state, type, data, (size_t)size) : TRZ_CUDA_ERROR_INVALID_IMAGE;
	free(data);
	return result;
}

/* The result lives as long as the state. */
cuda_result cuLinkComplete(void *state, void **image, size_t *size)
{
	const struct link *l = state;
	LOOK_ENTER(cuLinkComplete);
	LOOK_NEED(l && image, INVALID_VALUE);
	LOOK_NEED(l->image, INVALID_IMAGE);
	look_answer_jit("", l->option_count, l->options, l->values);
	*image = l->image;
	if (size)
		*size = l->size + 1;
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuLinkDestroy(void *state)
{
	struct link *l = state;
	LOOK_ENTER(cuLinkDestroy);
	LOOK_NEED(l, INVALID_VALUE);
	free(l->image);
	free(l);
	return TRZ_CUDA_SUCCESS;
}
