/* SPDX-License-Identifier: Apache-2.0
 *
 * Stand-ins for the libraries that PyTorch links: declarations that their bodies and the generated functions share. A
 * stand-in has the names and symbol versions of a CUDA library and computes nothing. The generator
 * (python/terrazzo/sim/standins.py) compiles standin.c, the body file of the library where there is one, and
 * a function for each further symbol that PyTorch asks for.
 *
 * Compiled where terrazzo sets an environment up, by the C compiler found there: no CUDA header is needed.
 */
#ifndef TRZ_STANDIN_H
#define TRZ_STANDIN_H

#include <stddef.h>
#include <stdint.h>

/* Work of `stream`: takes the time of a kernel there, and uses the device addresses among `count` words. `name`
 * is not copied. Returns 0, success in every one of these libraries, or what the driver says. */
int standin_work(const char *name, void *stream, const uint64_t *words, size_t count);

/* Work of the stream of `handle`, which may be anything: what standin_handle() did not make has none. */
int standin_call(const char *name, const void *handle);

/* For what cannot be represented: says so on standard error, the first time, and returns `status`. */
int standin_refuse(const char *name, const char *why, int status);

/* Handles of a library's context, which know their stream. Never NULL; standin_drop() takes any pointer. */
void *standin_handle(void);
void standin_drop(void *handle);
void standin_set_stream(void *handle, void *stream);
void *standin_stream(const void *handle);

/* An opaque descriptor: `bytes` zero bytes from malloc; ends the program if there is none. */
void *standin_descriptor(size_t bytes);

/* Functions that make, and end, such a handle or descriptor. */
#define STANDIN_HANDLE(create, destroy) \
	int create(void **handle) { *handle = standin_handle(); return 0; } \
	int destroy(void *handle) { standin_drop(handle); return 0; }
#define STANDIN_DESCRIPTOR(create, destroy) \
	int create(void **made) { *made = standin_descriptor(64); return 0; } \
	int destroy(void *made) { free(made); return 0; }

#endif
