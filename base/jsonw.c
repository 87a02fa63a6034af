/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer of JSON. A million events go through it while a program waits for its error, so short pieces are copied
 * whole rather than byte by byte.
 */
#include "jsonw.h"

#include "bits.h"
#include "utf8.h"

void jsonw_flush(struct jsonw *j)
{
	if (!j->failed && j->used)
		j->failed = !j->sink(j->owner, j->buffer, j->used);
	j->used = 0;
}

void jsonw_byte(struct jsonw *j, char byte)
{
	*jsonw_room(j, 1) = byte;
	j->used++;
}

void jsonw_bytes(struct jsonw *j, const char *bytes, size_t size)
{
	while (size) {
		size_t part = min_u64(size, j->room - j->used);
		memcpy(j->buffer + j->used, bytes, part);
		j->used += part;
		bytes += part;
		size -= part;
		if (j->used == j->room)
			jsonw_flush(j);
	}
}

void jsonw_raw(struct jsonw *j, const char *text)
{
	jsonw_bytes(j, text, strlen(text));
}

static void jsonw_separate(struct jsonw *j)
{
	if (j->separate)
		jsonw_byte(j, ',');
	j->separate = true;
}

void jsonw_open(struct jsonw *j, char bracket)
{
	jsonw_separate(j);
	jsonw_byte(j, bracket);
	j->separate = false;
}

void jsonw_close(struct jsonw *j, char bracket)
{
	jsonw_byte(j, bracket);
	j->separate = true;
}

void jsonw_open_line(struct jsonw *j)
{
	jsonw_separate(j);
	jsonw_bytes(j, "\n{", 2);
	j->separate = false;
}

void jsonw_number(struct jsonw *j, uint64_t value)
{
	static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
	                            "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
	                            "8081828384858687888990919293949596979899";
	char digits[20], *end = digits + sizeof digits, *p = end;
	value = min_u64(value, JSONW_NUMBER_MAX);
	while (value >= 10) {
		p -= 2;
		memcpy(p, pairs + value % 100 * 2, 2);
		value /= 100;
	}
	if (value || p == end)
		*--p = (char)('0' + value);
	char *begin = jsonw_room(j, sizeof digits + 1), *to = begin;
	if (j->separate)
		*to++ = ',';
	memcpy(to, p, (size_t)(end - p));
	j->used += (size_t)(to - begin) + (size_t)(end - p);
	j->separate = true;
}

static void jsonw_escape(struct jsonw *j, unsigned char byte)
{
	static const char hex[] = "0123456789abcdef";
	char text[] = {'\\', (char)byte, '0', '0', hex[byte >> 4], hex[byte & 15]};
	if (byte == '"' || byte == '\\') {
		jsonw_bytes(j, text, 2);
	} else {
		text[1] = 'u';
		jsonw_bytes(j, text, sizeof text);
	}
}

static bool is_plain(unsigned char byte)
{
	return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

/* Writes the bytes that need no escape, up to the first that may; returns where that is. */
static const unsigned char *plain_run(struct jsonw *j, const unsigned char *p)
{
	const unsigned char *end = p;
	while (is_plain(*end))
		end++;
	jsonw_bytes(j, (const char *)p, (size_t)(end - p));
	return end;
}

void jsonw_string(struct jsonw *j, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	jsonw_separate(j);
	jsonw_byte(j, '"');
	for (p = plain_run(j, p); *p; p = plain_run(j, p)) {
		size_t length = utf8_length(p);
		if (length == 1)
			jsonw_escape(j, *p);
		else if (length)
			jsonw_bytes(j, (const char *)p, length);
		else
			jsonw_bytes(j, "\\ufffd", 6);
		p += length ? length : 1;
	}
	jsonw_byte(j, '"');
}

void jsonw_word(struct jsonw *j, const char *word)
{
	jsonw_separate(j);
	jsonw_raw(j, word);
}

void jsonw_text_key(struct jsonw *j, const char *key)
{
	jsonw_string(j, key);
	jsonw_byte(j, ':');
	j->separate = false;
}
