/* SPDX-License-Identifier: Apache-2.0
 *
 * Logs of STAlloc's tracer, one request or marker per line:
 *
 *   1 POINTER SIZE STREAM             an allocation
 *   0 POINTER SIZE STREAM             a free
 *   Iteration Index : N               N, or "end" after the last
 *   micro-batch: F                    or B, or W
 *   NAME->MODULE Layer : F-start      or B-start, F-end, B-end
 *
 * A marker becomes a marker event whose id is the training iteration under way: 0 before the first, and the last
 * one after the last.
 */
#include <string.h>

#include "trace_format.h"
#include "trace_log.h"

#define ITERATION "Iteration Index :"
#define MICRO_BATCH "micro-batch:"
#define LAYER " Layer : "

static bool is_request(struct text line)
{
	return text_starts(line, "1 ") || text_starts(line, "0 ");
}

static bool is_layer(struct text line)
{
	const char *mark = memmem(line.at, (size_t)(line.end - line.at), LAYER, strlen(LAYER));
	if (!mark || !memmem(line.at, (size_t)(mark - line.at), "->", 2))
		return false;
	struct text phase = { mark + strlen(LAYER), line.end };
	return text_is(phase, "F-start") || text_is(phase, "F-end") || text_is(phase, "B-start") ||
	       text_is(phase, "B-end");
}

bool trace_is_stalloc(const char *text, size_t size)
{
	const char *end = memchr(text, '\n', size);
	struct text line = { text, end ? end : text + size };
	while (line.end > line.at && (line.end[-1] == ' ' || line.end[-1] == '\r'))
		line.end--;
	return is_request(line) || text_starts(line, ITERATION) || text_starts(line, MICRO_BATCH) ||
	       is_layer(line);
}

static trz_status stalloc_request(struct log_reader *r)
{
	struct text columns[4];
	if (!text_columns(r->line.text, ' ', columns, 4))
		return text_bad(&r->line, "a request does not have four columns");
	if (text_is(columns[0], "1"))
		return log_alloc(r, columns[1], columns[2], columns[3]);
	return log_free(r, columns[1], columns[2], columns[3]);
}

static struct text after(struct text line, const char *start)
{
	line.at += strlen(start);
	while (line.at < line.end && *line.at == ' ')
		line.at++;
	return line;
}

static trz_status stalloc_line(struct log_reader *r)
{
	struct text line = r->line.text;
	if (is_request(line))
		return stalloc_request(r);
	uint64_t iteration = r->history.marker;
	if (text_starts(line, ITERATION)) {
		struct text index = after(line, ITERATION);
		bool good = text_is(index, "end") || (text_decimal(index, &iteration) && iteration <= UINT32_MAX);
		if (!good)
			return text_bad(&r->line, "its iteration is neither a number nor end");
	} else if (text_starts(line, MICRO_BATCH)) {
		struct text phase = after(line, MICRO_BATCH);
		if (!text_is(phase, "F") && !text_is(phase, "B") && !text_is(phase, "W"))
			return text_bad(&r->line, "its micro-batch is not F, B or W");
	} else if (!is_layer(line)) {
		return text_bad(&r->line, "is neither a request (1 or 0, POINTER SIZE STREAM) nor a known marker");
	}
	return history_marker(&r->history, (uint32_t)iteration);
}

trz_status trace_read_stalloc(struct trace_input *in, struct trace *out)
{
	return log_read(in, out, stalloc_line);
}
