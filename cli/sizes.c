/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes as people write them.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "cli.h"

static bool suffix_shift(const char *suffix, int *shift)
{
	static const char *const suffixes[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	*shift = 0;
	if (suffix[0] == '\0')
		return true;
	for (int i = 0; i < 5; i++) {
		*shift = 10 * i;
		if (strcmp(suffix, suffixes[i]) == 0)
			return true;
	}
	return false;
}

bool size_parse(const char *text, uint64_t *bytes)
{
	/* strtod takes hexadecimal, infinities and signs too: look at the digits first. */
	size_t digits = strspn(text, "0123456789.");
	if (!isdigit((unsigned char)text[0]) || digits > 20)
		return false;
	char number[24] = { 0 };
	memcpy(number, text, digits);
	char *end;
	double value = strtod(number, &end);
	if (*end != '\0')
		return false;
	const char *suffix = text + digits;
	int shift;
	if (!suffix_shift(suffix + (suffix[0] == ' '), &shift))
		return false;
	value *= (double)((uint64_t)1 << shift);
	if (value >= 9223372036854775808.0 || (value > 0 && value < 1))
		return false;
	*bytes = (uint64_t)value;
	return true;
}
