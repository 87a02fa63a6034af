/* SPDX-License-Identifier: Apache-2.0
 *
 * The contents of the device code that a program hands to CUDA: its kernels with the layout of their parameters, and
 * its variables. Reads the wrapper of __cudaRegisterFatBinary, a fatbin, an ELF cubin, or PTX.
 *
 * Reads one image of a fatbin, at the first query, and keeps only the facts listed here. All
 * functions may be called from any thread; fatbin_close must be the last. Failures say why in trz_last_error().
 */
#ifndef TRZ_LOOKALIKE_FATBIN_H
#define TRZ_LOOKALIKE_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "terrazzo.h"

struct fatbin;

/* Where a parameter lies in the buffer that the kernel reads; args[i] of a launch points at list[i].size bytes.
 * Sizes are the same in all images of a program, and so are offsets, except those of parameters aligned to more than
 * 16 bytes: cubins align the place in constant memory, where parameters begin elsewhere on each architecture. */
struct kernel_param {
	uint32_t offset;
	uint32_t size;
};

struct kernel_params {
	uint32_t count;
	uint32_t bytes;  /* size of the whole buffer: the end of the last parameter */
	struct kernel_param *list;
};

struct fatbin_kernel {
	const char *name;       /* mangled */
	const char *no_params;  /* NULL, or why the image lacks the parameters: `params` is empty then */
	struct kernel_params params;
	uint32_t max_threads;   /* of a block, by __launch_bounds__ or the like; 0: the device's own limit */
	uint32_t registers;     /* of a thread; 0: not known (PTX) */
	uint32_t shared_bytes;  /* static, of a block, without what the system reserves; 0 for PTX */
	uint32_t local_bytes;   /* of a thread's stack frame; 0 for PTX */
	uint32_t constant_bytes; /* of the program's constants, which all kernels of an image share; 0 for PTX */
};

/* `initial` is NULL where all bytes are 0; addresses in it are not filled in. PTX does not give it. */
struct fatbin_variable {
	const char *name;
	uint64_t bytes;
	const void *initial;
	bool constant;
	bool managed;
};

struct fatbin_image {
	bool ptx;     /* else a cubin */
	unsigned sm;  /* 90: compute capability 9.0 */
	size_t kernel_count;
	size_t variable_count;
	const struct fatbin_kernel *kernels;      /* by name */
	const struct fatbin_variable *variables;  /* by name */
};

/* For `bytes` of fatbin_open: the image's own headers (for PTX: its NUL) are trusted to say where it ends. */
enum { FATBIN_UNKNOWN_SIZE = 0 };

/* The caller keeps `image` unchanged until fatbin_load has been called or the fatbin is closed. `sm`: the device's
 * compute capability (90): chooses the image that a driver would, or the newest cubin if a driver would find none;
 * 0: always the newest. Reads only the first bytes.
 * Errors: INVALID_ARGUMENT, BAD_INPUT (none of the four kinds; a wrapper of known size), HOST_MEMORY. */
trz_status fatbin_open(const void *image, size_t bytes, unsigned sm, struct fatbin **fatbin);
void fatbin_close(struct fatbin *fatbin);

/* Reads the image now, and never again. As with the functions below, the answer never changes.
 * Errors: BAD_INPUT (damaged, truncated), NOT_SUPPORTED (no cubin and no PTX inside), HOST_MEMORY. */
trz_status fatbin_load(struct fatbin *fatbin);

/* Whether the image that was read, or could not be read, is PTX. */
bool fatbin_is_ptx(const struct fatbin *fatbin);

/* Results live until fatbin_close. Errors: as fatbin_load; NOT_FOUND. */
trz_status fatbin_image(struct fatbin *fatbin, struct fatbin_image *image);
trz_status fatbin_kernel(struct fatbin *fatbin, const char *name, const struct fatbin_kernel **kernel);
trz_status fatbin_variable(struct fatbin *fatbin, const char *name, const struct fatbin_variable **variable);

/* The parameters of one kernel, or NULL and the reason in trz_last_error(). */
const struct kernel_params *fatbin_params(struct fatbin *fatbin, const char *name);

#endif
