/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes in words.
 */
#include "size_text.h"

#include <stdio.h>

#include "bits.h"
#include "decimal.h"

const char *size_text(uint64_t bytes, char text[SIZE_TEXT_BYTES])
{
	if (bytes >= GIB(1))
		return decimal_size(bytes, 30, "GiB", text, SIZE_TEXT_BYTES);
	if (bytes >= MIB(1))
		return decimal_size(bytes, 20, "MiB", text, SIZE_TEXT_BYTES);
	snprintf(text, SIZE_TEXT_BYTES, "%llu bytes", (unsigned long long)bytes);
	return text;
}
