/* SPDX-License-Identifier: Apache-2.0
 *
 * The file that an option like --json names.
 */
#include <errno.h>
#include <string.h>

#include "cli.h"
#include "error.h"

FILE *output_open(const char *path)
{
	FILE *to = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
	if (!to)
		trz_fail(TRZ_ERROR_IO, "%s: cannot be created: %s", path, strerror(errno));
	return to;
}

trz_status output_close(FILE *to, const char *path, bool written)
{
	if (to != stdout)
		written = fclose(to) == 0 && written;
	return written ? TRZ_OK : trz_fail(TRZ_ERROR_IO, "%s: cannot be written", path);
}

bool output_sink(void *file, const char *bytes, size_t size)
{
	return fwrite(bytes, 1, size, file) == size;
}
