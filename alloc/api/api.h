/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the public functions share.
 */
#ifndef TRZ_ALLOC_API_H
#define TRZ_ALLOC_API_H

#include "serve/route.h"

/* The failure of a function that was given NULL for an argument that needs a value. */
trz_status api_is_null(const char *function, const char *argument);

/* The failure of whatever is asked of a heap whose context has died. */
trz_status api_dead(const trz_heap *h);

/* Whether the heap can be asked for anything: SHUTDOWN, where a child has inherited it. */
trz_status api_check_process(const trz_heap *h);

/* The same, where there may be no heap. */
trz_status api_check_heap(const char *function, const trz_heap *h);

/* The status of a failed free again, or WRONG_DEVICE with the owner's name where another heap has the pointer. */
trz_status api_free_failed(trz_heap *h, void *ptr, trz_status status);

/* The failure of what is asked of a heap with another one's pool; OK for its own, and for NULL. */
trz_status api_check_pool(const trz_heap *h, const struct pool *p);

/* Serves a request, and rounds its alignment; sets *out to NULL on errors. */
trz_status api_alloc(trz_heap *h, struct request *r, void **out);

#endif
