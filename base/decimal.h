/* SPDX-License-Identifier: Apache-2.0
 *
 * Decimal fractions with a point, in any locale: strtod and printf use the decimal sign of the program's, which a
 * library cannot choose.
 */
#ifndef TRZ_BASE_DECIMAL_H
#define TRZ_BASE_DECIMAL_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

static inline bool decimal_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Reads "12", "1.5", "2.": no sign, no exponent. *end is behind the number; it is `text` if there is none. */
static inline double decimal_read(const char *text, const char **end)
{
	double whole = 0, part = 0;
	const char *at = text;
	for (; decimal_is_digit(*at); at++)
		whole = 10 * whole + (*at - '0');
	if (*at == '.' && at > text) {
		const char *point = at++;
		while (decimal_is_digit(*at))
			at++;
		/* From the last digit on, so that halves, quarters and so on are exact. */
		for (const char *digit = at - 1; digit > point; digit--)
			part = (part + (*digit - '0')) / 10;
	}
	*end = at;
	return whole + part;
}

/* Writes "1.50 GiB" for bytes, 30 and "GiB"; rounds as printf does. */
static inline const char *decimal_size(uint64_t bytes, unsigned shift, const char *unit, char *text, size_t size)
{
	uint64_t one = (uint64_t)1 << shift, hundredths = 100 * (bytes & (one - 1)), rest = hundredths & (one - 1);
	hundredths >>= shift;
	hundredths += rest > one / 2 || (rest == one / 2 && hundredths % 2);
	snprintf(text, size, "%" PRIu64 ".%02" PRIu64 " %s", (bytes >> shift) + hundredths / 100, hundredths % 100, unit);
	return text;
}

#endif
