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
		return output_nameless();
	int error = 0;
	char *folder = folder_of(path);
	if (stat(path, &file) == 0)
		error = S_ISDIR(file.st_mode) ? EISDIR : access(path, W_OK) != 0 ? errno : 0;
	else if (!folder || access(folder, W_OK | X_OK) != 0)
		error = errno;
	free(folder);
	return error ? trz_fail(TRZ_ERROR_IO, "%s: cannot be created: %s", path, strerror(error)) : TRZ_OK;
}

trz_status output_json(const char *path, const json_t *object, size_t flags)
{
	struct output o;
	trz_status status = output_begin(&o, path);
	if (status != TRZ_OK)
		return status;
	if (json_dumpf(object, o.to, flags) != 0 || (o.to == stdout && putchar('\n') == EOF))
		status = output_failed(path);
	return output_end(&o, status);
}

bool output_sink(void *file, const char *bytes, size_t size)
{
	return fwrite(bytes, 1, size, file) == size;
}

char *output_report(output_writer *report, const struct evidence *e, const struct verdict *v)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	if (!to)
		return NULL;
	bool written = report(e, v, output_sink, to);
	if (fclose(to) == 0 && written)
		return text;
	free(text);
	return NULL;
}
