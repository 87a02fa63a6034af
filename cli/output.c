/* SPDX-License-Identifier: Apache-2.0
 *
 * The file that an option like --json or -o names.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "error.h"

/* The folder that a file lies in. To be freed. */
static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
}

trz_status output_check(const char *path)
{
	struct stat file;
	if (strcmp(path, "-") == 0)
		return TRZ_OK;
	if (!*path)
		return trz_fail(TRZ_ERROR_IO, "'': cannot be created: a file needs a name");
	int error = 0;
	char *folder = folder_of(path);
	if (stat(path, &file) == 0)
		error = S_ISDIR(file.st_mode) ? EISDIR : access(path, W_OK) != 0 ? errno : 0;
	else if (!folder || access(folder, W_OK | X_OK) != 0)
		error = errno;
	free(folder);
	return error ? trz_fail(TRZ_ERROR_IO, "%s: cannot be created: %s", path, strerror(error)) : TRZ_OK;
}

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
