/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether bytes are UTF-8: texts in JSON must be, file names and programs' arguments need not.
 */
#ifndef TRZ_BASE_UTF8_H
#define TRZ_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of the sequence at `p`, in a text that ends with a 0; 0: invalid. */
static inline size_t utf8_length(const unsigned char *p)
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

/* Bytes that belong to no sequence become question marks. */
static inline char *utf8_clean(char *text)
{
	size_t length;
	for (char *p = text; *p; p += length ? length : 1) {
		length = utf8_length((const unsigned char *)p);
		if (!length)
			*p = '?';
	}
	return text;
}

#endif
