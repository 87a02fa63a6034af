/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-ins for the libraries that PyTorch links: declarations that their bodies and the generated functions share. A
 * stand-in has the names and symbol versions of a CUDA library and computes nothing. The generator
 * (python/terrazzo/sim/standins.py) compiles standin.c, the library's body file if it has one, and a function for each
 * further symbol that PyTorch asks for.
 *
 * terrazzo compiles them where it sets an environment up, with the C compiler found there; they need no CUDA header.
 */
#ifndef TRZ_STANDIN_H
#define TRZ_STANDIN_H

#include <stddef.h>
#include <stdint.h>

/* Each library has these functions, and handles, of its own: one must not call another's. */
#pragma GCC visibility push(hidden)

/* The generator defines a family's statuses: STANDIN_NOT_INITIALIZED (of a handle that is none), STANDIN_INVALID_VALUE,
 * STANDIN_EXECUTION_FAILED. */

/* Enqueues work on `stream` that takes the time of a kernel and uses the device addresses among `count` words. `name`
 * is not copied. Returns 0, success in all of these libraries, or STANDIN_EXECUTION_FAILED. */
int standin_work(const char *name, void *stream, const uint64_t *words, size_t count);

/* The same on the stream of a handle; STANDIN_NOT_INITIALIZED if it is none. */
int standin_handle_work(const char *name, const void *handle, const uint64_t *words, size_t count);

/* The same on the stream of `first`, a function's first argument, which may be anything: what standin_handle() did not
 * make has no stream. */
int standin_call(const char *name, const void *first);

/* Refuses what cannot be represented: says so on standard error, the first time, and returns `status`. */
int standin_refuse(const char *name, const char *why, int status);

/* Handles of a library's context. A handle knows its stream, the device memory that it has taken, and the modes that
 * the program has set, all 0 at first. */
void *standin_handle(void);
int standin_is_handle(const void *handle);
void standin_drop(void *handle);
void standin_set_stream(void *handle, void *stream);
void *standin_stream(const void *handle);
uint64_t *standin_memory(void *handle);
enum { STANDIN_POINTER_MODE, STANDIN_MODES = 4 };
int standin_set_mode(void *handle, int which, int value);
int standin_get_mode(const void *handle, int which, int *value);

/* Define a library's functions that create and destroy a handle, and those that set and tell its stream. */
int standin_make_handle(void **handle);
int standin_drop_handle(void *handle);
int standin_tell_stream(const void *handle, void **stream);
int standin_give_stream(void *handle, void *stream);
#define STANDIN_HANDLE(create, destroy) \
	int create(void **handle) { return standin_make_handle(handle); } \
	int destroy(void *handle) { return standin_drop_handle(handle); }
#define STANDIN_STREAM(set, get) \
	int set(void *handle, void *stream) { return standin_give_stream(handle, stream); } \
	int get(void *handle, void **stream) { return standin_tell_stream(handle, stream); }

/* Define a library's functions that set and tell a mode, from 0 to `most`. */
#define STANDIN_MODE(set, get, which, most) \
	int set(void *handle, int value) \
	{ \
		if (standin_is_handle(handle) && (value < 0 || value > most)) \
			return STANDIN_INVALID_VALUE; \
		return standin_set_mode(handle, which, value); \
	} \
	int get(const void *handle, int *value) { return standin_get_mode(handle, which, value); }

/* As standin_handle_work, for work that has a result; `to`, the last of the words, is on the device or, by the handle's
 * pointer mode, on the host: then the call waits, and the result is a small number, `value`, of so many bytes. If
 * `bytes` is negative, it is -1 - a data type of CUDA's. */
int standin_result(const char *name, const void *handle, const uint64_t *words, size_t count, void *to, long bytes,
                   int value);

/* Define a library's functions that tell its version, as a number and by parts. */
int standin_tell_version(int *version);
int standin_tell_property(int which, int *value);
#define STANDIN_VERSION(name) int name(int *version) { return standin_tell_version(version); }
#define STANDIN_PROPERTY(name) int name(int which, int *value) { return standin_tell_property(which, value); }

/* An opaque descriptor: `bytes` zero bytes from malloc; ends the program if there is none. */
void *standin_descriptor(size_t bytes);

/* Define a library's functions that create and destroy such a descriptor. */
int standin_make_descriptor(void **made, size_t bytes);
#define STANDIN_DESCRIPTOR_OF(create, destroy, bytes) \
	int create(void **made) { return standin_make_descriptor(made, bytes); } \
	int destroy(void *made) { free(made); return 0; }
#define STANDIN_DESCRIPTOR(create, destroy) STANDIN_DESCRIPTOR_OF(create, destroy, 64)

#pragma GCC visibility pop

#endif
