/* SPDX-License-Identifier: Apache-2.0
 *
 * Logs of RMM's logging adaptor: CSV, one request per row, in the order in which they were served. The thread
 * must be a number, and tells whose a per-thread default stream is; the time is ignored. A free names the stream in
 * whose order it was made, which need not be the allocation's.
 */
#include <string.h>

#include "trace_format.h"
#include "trace_log.h"

#define RMM_COLUMNS "Thread,Time,Action,Pointer,Size,Stream"

bool trace_is_rmm(const char *text, size_t size)
{
	static const char start[] = "Thread,Time,";
	return size >= sizeof start - 1 && memcmp(text, start, sizeof start - 1) == 0;
}

static trz_status rmm_line(struct log_reader *r)
{
	const struct text_reader *t = &r->line;
	if (t->line == 1)
		return text_is(t->text, RMM_COLUMNS) ? TRZ_OK : text_bad(t, "the columns are not " RMM_COLUMNS);
	struct text columns[6];
	if (!text_columns(t->text, ',', columns, 6))
		return text_bad(t, "a row does not have six columns");
	if (!text_decimal(columns[0], &r->thread))
		return text_bad(t, "its thread is not a number");
	if (text_is(columns[2], "allocate"))
		return log_alloc(r, columns[3], columns[4], columns[5]);
	if (text_is(columns[2], "free"))
		return log_free(r, columns[3], columns[4], columns[5]);
	if (text_is(columns[2], "allocate failure"))
		return log_failure(r, columns[3], columns[4], columns[5]);
	return text_bad(t, "its action is not allocate, free or allocate failure");
}

trz_status trace_read_rmm(struct trace_input *in, struct trace *out)
{
	return log_read(in, out, rmm_line);
}
