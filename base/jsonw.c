/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing JSON: commas, escapes, numbers.
 */
#include "jsonw.h"

#include "bits.h"

void jsonw_flush(struct jsonw *j)
{
	if (!j->failed && j->used)
		j->failed = !j->sink(j->owner, j->buffer, j->used);
	j->used = 0;
}

void jsonw_byte(struct jsonw *j, char byte)
{
	if (j->used == sizeof j->buffer)
		jsonw_flush(j);
	j->buffer[j->used++] = byte;
}

void jsonw_raw(struct jsonw *j, const char *text)
{
	while (*text)
		jsonw_byte(j, *text++);
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
	jsonw_raw(j, "\n{");
	j->separate = false;
}

void jsonw_number(struct jsonw *j, uint64_t value)
{
	char digits[20], *p = digits + sizeof digits;
	value = min_u64(value, JSONW_NUMBER_MAX);
	jsonw_separate(j);
	do {
		*--p = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	while (p < digits + sizeof digits)
		jsonw_byte(j, *p++);
}

/* The length of the UTF-8 sequence at `p`, which ends with a 0; 0: invalid. */
static size_t utf8_length(const unsigned char *p)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t length = *p < 0x80 ? 1 : *p < 0xc0 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf8 ? 4 : 0;
	if (length <= 1)
		return length;
	uint32_t point = *p & (0x7fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (p[i] & 0x3fu);
	}
	bool surrogate = point >= 0xd800 && point < 0xe000;
	return point >= least[length] && point <= 0x10ffff && !surrogate ? length : 0;
}

static void jsonw_escape(struct jsonw *j, unsigned char byte)
{
	static const char hex[] = "0123456789abcdef";
	if (byte == '"' || byte == '\\') {
		jsonw_byte(j, '\\');
		jsonw_byte(j, (char)byte);
	} else {
		jsonw_raw(j, "\\u00");
		jsonw_byte(j, hex[byte >> 4]);
		jsonw_byte(j, hex[byte & 15]);
	}
}

void jsonw_string(struct jsonw *j, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	jsonw_separate(j);
	jsonw_byte(j, '"');
	while (*p) {
		size_t length = utf8_length(p);
		if (length == 0) {
			jsonw_raw(j, "\\ufffd");
			p++;
		} else if (*p < 0x20 || *p == '"' || *p == '\\') {
			jsonw_escape(j, *p++);
		} else {
			while (length--)
				jsonw_byte(j, (char)*p++);
		}
	}
	jsonw_byte(j, '"');
}

void jsonw_key(struct jsonw *j, const char *key)
{
	jsonw_string(j, key);
	jsonw_byte(j, ':');
	j->separate = false;
}

void jsonw_put_number(struct jsonw *j, const char *key, uint64_t value)
{
	jsonw_key(j, key);
	jsonw_number(j, value);
}

void jsonw_put_string(struct jsonw *j, const char *key, const char *value)
{
	jsonw_key(j, key);
	jsonw_string(j, value);
}

void jsonw_put_word(struct jsonw *j, const char *key, const char *word)
{
	jsonw_key(j, key);
	jsonw_raw(j, word);
	j->separate = true;
}
