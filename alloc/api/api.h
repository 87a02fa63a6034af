/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the public functions.
 */
#ifndef TRZ_ALLOC_API_H
#define TRZ_ALLOC_API_H

#include "serve/route.h"

/* Sets the text, and returns the status, of a call with NULL for an argument that needs a value. */
trz_status api_is_null(const char *function, const char *argument);

/* The same of a request to a heap whose context has died. */
trz_status api_dead(const trz_heap *h);

/* SHUTDOWN if this process is a child that has inherited the heap by fork(). */
trz_status api_check_process(const trz_heap *h);

/* The same for a heap that may be NULL, which is an error as well. */
trz_status api_check_heap(const char *function, const trz_heap *h);

/* The status of a failed free, or WRONG_DEVICE with the owner's name if another heap has the pointer. */
trz_status api_free_failed(trz_heap *h, void *ptr, trz_status status);

/* WRONG_DEVICE for another heap's pool; OK for its own, and for NULL. */
trz_status api_check_pool(const trz_heap *h, const struct pool *p);

/* Where in the program the call of this public function came from. */
#define API_CALLER __builtin_return_address(0)

/* Begins an operation: the caller is the call site of what it allocates, unless a callback knows more. Pass the result
 * to api_leave at its end. */
static inline uint64_t api_enter(const void *caller)
{
	uint64_t outer = heap_thread.stack;
	heap_thread.stack = (uint64_t)(uintptr_t)caller | SITES_CALLER;
	return outer;
}

static inline void api_leave(uint64_t outer)
{
	heap_thread.stack = outer;
}

/* Serves a request, and rounds its alignment; sets *out to NULL on errors. */
trz_status api_alloc(trz_heap *h, struct request *r, void **out);

#endif
