/* SPDX-License-Identifier: Apache-2.0
 *
 * Routes: which lane serves a request. This decides what a capture may use, which pool takes a request, whether its
 * memory is dedicated, and when the heap polls for it.
 */
#ifndef TRZ_ALLOC_ROUTE_H
#define TRZ_ALLOC_ROUTE_H

#include "heap/streams.h"

struct request {
	size_t size, alignment;      /* as in serve_alloc */
	trz_stream stream;
	struct pool *pool;           /* NULL: where diversions send it */
	unsigned dedicated;          /* the sort of memory that the caller wants (DEDICATED_*); 0: any */
	trz_addr address;            /* the required address; 0: any */
	const struct asked *asked;   /* what the driver has said about the stream; NULL: it has not been asked */
	const void *caller;          /* where in the program the call came from */
};

/* Takes a slot for a small, plain request on a stream other than the legacy default one, under the lock of that
 * stream's slots alone. *out 0: there is none, or more has to be done. Errors: the driver's, with their text. */
trz_status route_slot(trz_heap *h, const struct request *r, struct asked *asked, trz_addr *out);

/* Serves a request on stream `s`, which the caller has entered, and of which the driver has said `asked`. CAPTURE: the
 * stream is being captured and no pool takes the request. NO_ROOM: the required address is not free. Other errors: the
 * driver's, and those of growth. */
trz_status route_alloc(trz_heap *h, const struct request *r, struct stream *s, const struct asked *asked,
                       trz_addr *out);

#endif
