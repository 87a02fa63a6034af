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

/* Enqueues work on `stream` that takes the time of a kernel and uses the device addresses among `count` words. `name`
 * is not copied. Returns 0, success in all of these libraries, or the driver's error. */
int standin_work(const char *name, void *stream, const uint64_t *words, size_t count);

/* Enqueues work on the stream of `handle`, any pointer: one that standin_handle() did not make has no stream. */
int standin_call(const char *name, const void *handle);

/* Refuses what cannot be represented: says so on standard error, the first time, and returns `status`. */
int standin_refuse(const char *name, const char *why, int status);

/* Handles of a library's context, which know their stream. Never NULL; standin_drop() takes any pointer. */
void *standin_handle(void);
void standin_drop(void *handle);
void standin_set_stream(void *handle, void *stream);
void *standin_stream(const void *handle);

/* An opaque descriptor: `bytes` zero bytes from malloc; ends the program if there is none. */
void *standin_descriptor(size_t bytes);

/* Define a library's functions that create and destroy such a handle or descriptor. */
#define STANDIN_HANDLE(create, destroy) \
	int create(void **handle) { *handle = standin_handle(); return 0; } \
	int destroy(void *handle) { standin_drop(handle); return 0; }
#define STANDIN_DESCRIPTOR_OF(create, destroy, bytes) \
	int create(void **made) { *made = standin_descriptor(bytes); return 0; } \
	int destroy(void *made) { free(made); return 0; }
#define STANDIN_DESCRIPTOR(create, destroy) STANDIN_DESCRIPTOR_OF(create, destroy, 64)

#endif
