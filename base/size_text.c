/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes in words.
 */
#include "size_text.h"

#include <stdio.h>

#include "bits.h"

const char *size_text(uint64_t bytes, char text[SIZE_TEXT_BYTES])
{
	if (bytes >= GIB(1))
		snprintf(text, SIZE_TEXT_BYTES, "%.2f GiB", (double)bytes / (double)GIB(1));
	else if (bytes >= MIB(1))
		snprintf(text, SIZE_TEXT_BYTES, "%.2f MiB", (double)bytes / (double)MIB(1));
	else
		snprintf(text, SIZE_TEXT_BYTES, "%llu bytes", (unsigned long long)bytes);
	return text;
}
