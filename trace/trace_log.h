/* SPDX-License-Identifier: Apache-2.0
 *
 * Common to the line-by-line logs of other allocators: a request is a pointer, a size and a stream.
 * Private to trace/.
 */
#ifndef TRZ_TRACE_LOG_H
#define TRZ_TRACE_LOG_H

#include "trace_history.h"
#include "trace_text.h"

struct log_reader {
	struct text_reader line;
	struct history history;
	uint64_t thread;   /* that made the request, if the log names it */
};

/* One request, by its columns. A request of no bytes, which got no address, is left out. Errors: BAD_INPUT (a malformed
 * column), HOST_MEMORY. */
trz_status log_alloc(struct log_reader *r, struct text pointer, struct text size, struct text stream);
trz_status log_free(struct log_reader *r, struct text pointer, struct text size, struct text stream);

/* A request that got no memory when it was recorded. */
trz_status log_failure(struct log_reader *r, struct text pointer, struct text size, struct text stream);

/* Reads a log, line by line through `read_line`. Errors: read_line's, BAD_INPUT (no request). */
trz_status log_read(struct trace_input *in, struct trace *out, trz_status (*read_line)(struct log_reader *r));

#endif
