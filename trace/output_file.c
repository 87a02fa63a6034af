/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that gets its name once it is complete.
 */
#include "output_file.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "special_file.h"

/* Names of files that are not complete yet. */
enum { MOST_UNFINISHED = 8 };
static _Atomic(const char *) unfinished[MOST_UNFINISHED];

/* Puts `new` in the place of `old`; NULL: none. A file for which there is no place is left behind by a signal. */
static void note_unfinished(const char *old, const char *new)
{
	for (int i = 0; i < MOST_UNFINISHED; i++) {
		const char *expected = old;
		if (atomic_compare_exchange_strong(&unfinished[i], &expected, new))
			return;
	}
}

void output_remove_unfinished(void)
{
	for (int i = 0; i < MOST_UNFINISHED; i++) {
		const char *path = atomic_load(&unfinished[i]);
		if (path)
			unlink(path);
	}
}

trz_status output_nameless(void)
{
	return trz_fail(TRZ_ERROR_IO, "'': cannot be created: a file needs a name");
}

trz_status output_begin(struct output *o, const char *path)
{
	*o = (struct output){.path = path};
	if (!*path)
		return output_nameless();
	if (strcmp(path, "-") == 0) {
		o->to = stdout;
		return TRZ_OK;
	}
	if (is_locked_file(path))
		return trz_fail(TRZ_ERROR_IO, "%s: cannot be created: %s", path, strerror(errno));
	if (!is_special_file(path) && asprintf(&o->beside, "%s.%ld.part", path, (long)getpid()) < 0) {
		o->beside = NULL;
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no host memory to write it", path);
	}
	if (o->beside)
		note_unfinished(NULL, o->beside); /* before it exists: a signal may come as soon as it does */
	o->to = fopen(o->beside ? o->beside : path, "wbe");
	if (o->to)
		return TRZ_OK;
	trz_status status = trz_fail(TRZ_ERROR_IO, "%s: cannot be created: %s", path, strerror(errno));
	if (o->beside)
		note_unfinished(o->beside, NULL);
	free(o->beside);
	return status;
}

trz_status output_failed(const char *path)
{
	return trz_fail(TRZ_ERROR_IO, "%s: cannot be written: %s", strcmp(path, "-") == 0 ? "standard output" : path,
	                strerror(errno));
}

trz_status output_end(struct output *o, trz_status status)
{
	bool failed = ferror(o->to) != 0;
	failed = (o->to != stdout ? fclose(o->to) : fflush(o->to)) != 0 || failed;
	if (status == TRZ_OK && (failed || (o->beside && rename(o->beside, o->path))))
		status = output_failed(o->path);
	if (o->beside && status != TRZ_OK)
		unlink(o->beside);
	if (o->beside)
		note_unfinished(o->beside, NULL);
	free(o->beside);
	return status;
}
