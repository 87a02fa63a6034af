/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels and variables of one image, gathered by a reader and then sorted by name; owns their names, lists
 * and bytes.
 */
#ifndef TRZ_LOOKALIKE_CODE_INDEX_H
#define TRZ_LOOKALIKE_CODE_INDEX_H

#include "fatbin.h"

struct index_chunk;

/* Invariant: all that `kernels` and `variables` point to lies in `chunks`. All zero: empty. */
struct code_index {
	unsigned sm;  /* 0: the image does not say */
	struct fatbin_kernel *kernels;
	struct fatbin_variable *variables;
	size_t kernel_count, kernel_room;
	size_t variable_count, variable_room;
	struct index_chunk *chunks;
};

/* Zeroed bytes, aligned to 8, that live as long as the index; NULL: no host memory. */
void *index_bytes(struct code_index *index, size_t bytes);
char *index_text(struct code_index *index, const char *text, size_t length);

/* A new entry, all zero but for its name, which is copied; NULL: no host memory. Valid until the next is added. */
struct fatbin_kernel *index_add_kernel(struct code_index *index, const char *name, size_t length);
struct fatbin_variable *index_add_variable(struct code_index *index, const char *name, size_t length);

/* Sorts the lists, and frees memory that was allocated ahead. */
void index_finish(struct code_index *index);
void index_clear(struct code_index *index);

/* After index_finish; NULL: no such name. */
const struct fatbin_kernel *index_find_kernel(const struct code_index *index, const char *name);
const struct fatbin_variable *index_find_variable(const struct code_index *index, const char *name);

/* Fails for lack of host memory, with one text for all callers. */
trz_status index_no_memory(void);

#endif
