/* SPDX-License-Identifier: Apache-2.0
 *
 * A file that gets its name once it is complete.
 */
#ifndef TRZ_TRACE_OUTPUT_FILE_H
#define TRZ_TRACE_OUTPUT_FILE_H

#include <stdio.h>

#include "terrazzo.h"

/* Until it is complete an older file of that name stays as it is. A device, a pipe or a link is written directly; "-"
 * is standard output. */
struct output {
	FILE *to;
	const char *path;
	char *beside;              /* its name until then; NULL: `path` is written directly */
};

/* IO, with the error set: the name is empty. */
trz_status output_nameless(void);

/* Errors: IO, HOST_MEMORY. */
trz_status output_begin(struct output *o, const char *path);

/* IO, with the error set: the file could not be written, errno says why. */
trz_status output_failed(const char *path);

/* Ends it; `status` says whether writing succeeded. Returns the first error. */
trz_status output_end(struct output *o, trz_status status);

/* Removes what is not complete, for a handler of a signal that ends the process. */
void output_remove_unfinished(void);

#endif
