/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines, columns and numbers of traces that are text.
 */
#include "trace_text.h"

#include <string.h>

#include "error.h"

static size_t length(struct text t)
{
	return (size_t)(t.end - t.at);
}

trz_status text_line(struct text_reader *r, bool *more)
{
	struct trace_input *in = r->in;
	trz_status status = input_fill(in, TEXT_LINE_MAX);
	if (status != TRZ_OK)
		return status;
	size_t have = (size_t)(in->end - in->at);
	*more = have > 0;
	if (!*more)
		return TRZ_OK;
	r->line++;
	const uint8_t *line_end = memchr(in->at, '\n', have < TEXT_LINE_MAX ? have : TEXT_LINE_MAX);
	if (!line_end && have >= TEXT_LINE_MAX)
		return text_bad(r, "is longer than 4096 bytes");
	const uint8_t *end = line_end ? line_end : in->end;
	r->text = (struct text){ (const char *)in->at, (const char *)end };
	in->at = line_end ? line_end + 1 : in->end;
	while (r->text.end > r->text.at && (r->text.end[-1] == ' ' || r->text.end[-1] == '\r'))
		r->text.end--;
	return TRZ_OK;
}

trz_status text_bad(const struct text_reader *r, const char *what)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: line %llu: %s", r->in->name, (unsigned long long)r->line, what);
}

bool text_columns(struct text line, char separator, struct text *columns, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const char *at = memchr(line.at, separator, length(line));
		bool is_last = i + 1 == count;
		if (is_last != (at == NULL))
			return false;
		columns[i] = (struct text){ line.at, at ? at : line.end };
		line.at = at ? at + 1 : line.end;
	}
	return true;
}

bool text_starts(struct text t, const char *literal)
{
	size_t size = strlen(literal);
	return length(t) >= size && memcmp(t.at, literal, size) == 0;
}

bool text_is(struct text t, const char *literal)
{
	return length(t) == strlen(literal) && text_starts(t, literal);
}

static unsigned digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return (unsigned)(c - '0');
	if (c >= 'a' && c <= 'f')
		return (unsigned)(c - 'a') + 10;
	if (c >= 'A' && c <= 'F')
		return (unsigned)(c - 'A') + 10;
	return 16;
}

static bool number(struct text t, unsigned base, uint64_t *x)
{
	*x = 0;
	for (const char *c = t.at; c < t.end; c++) {
		unsigned digit = digit_value(*c);
		if (digit >= base || *x > (UINT64_MAX - digit) / base)
			return false;
		*x = *x * base + digit;
	}
	return t.at < t.end;
}

bool text_decimal(struct text t, uint64_t *x)
{
	return number(t, 10, x);
}

bool text_pointer(struct text t, uint64_t *x)
{
	*x = 0;
	if (text_is(t, "(nil)"))
		return true;
	if (text_starts(t, "0x"))
		t.at += 2;
	return number(t, 16, x);
}
