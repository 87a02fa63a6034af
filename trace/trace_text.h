/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces that are text: lines, the columns of a line, numbers. Private to trace/.
 */
#ifndef TRZ_TRACE_TEXT_H
#define TRZ_TRACE_TEXT_H

#include "trace_input.h"

enum { TEXT_LINE_MAX = 4096 };

/* A part of a line, without a zero at its end. */
struct text {
	const char *at;
	const char *end;
};

struct text_reader {
	struct trace_input *in;
	uint64_t line;     /* number of the line, from 1 */
	struct text text;  /* its text; valid until the next line is asked for */
};

/* Goes to the next line, and cuts off its line break and the blanks before it. *more is false at the end of the
 * input. Errors: BAD_INPUT (longer than TEXT_LINE_MAX), IO. */
trz_status text_line(struct text_reader *r, bool *more);

/* BAD_INPUT that names the line: "FILE: line N: WHAT". */
trz_status text_bad(const struct text_reader *r, const char *what);

/* Cuts a line at its separators. False: that does not give `count` columns. */
bool text_columns(struct text line, char separator, struct text *columns, size_t count);

bool text_is(struct text t, const char *literal);
bool text_starts(struct text t, const char *literal);

/* The whole of `t` as a number below 2^64. False: it is not one. */
bool text_decimal(struct text t, uint64_t *x);

/* As C and C++ print pointers: hexadecimal with or without 0x, or "(nil)". */
bool text_pointer(struct text t, uint64_t *x);

#endif
