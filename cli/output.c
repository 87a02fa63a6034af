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
#include "special_file.h"

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

trz_status output_begin(struct output *o, const char *path)
{
	*o = (struct output){ .path = path };
	if (strcmp(path, "-") == 0) {
		o->to = stdout;
		return TRZ_OK;
	}
	if (!is_special_file(path) && asprintf(&o->beside, "%s.%ld.part", path, (long)getpid()) < 0) {
		o->beside = NULL;
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no host memory to write it", path);
	}
	o->to = fopen(o->beside ? o->beside : path, "wbe");
	if (o->to)
		return TRZ_OK;
	trz_status status = trz_fail(TRZ_ERROR_IO, "%s: cannot be created: %s", path, strerror(errno));
	free(o->beside);
	return status;
}

trz_status output_end(struct output *o, trz_status status)
{
	bool failed = ferror(o->to) != 0, is_file = o->to != stdout;
	failed = (is_file ? fclose(o->to) : fflush(o->to)) != 0 || failed;
	if (status == TRZ_OK && (failed || (o->beside && rename(o->beside, o->path))))
		status = trz_fail(TRZ_ERROR_IO, "%s: cannot be written: %s", is_file ? o->path : "standard output",
		                  strerror(errno));
	if (o->beside && status != TRZ_OK)
		unlink(o->beside);
	free(o->beside);
	return status;
}

bool output_sink(void *file, const char *bytes, size_t size)
{
	return fwrite(bytes, 1, size, file) == size;
}
