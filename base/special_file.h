/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that an output must not take the name of.
 */
#ifndef TRZ_BASE_SPECIAL_FILE_H
#define TRZ_BASE_SPECIAL_FILE_H

#include <stdbool.h>
#include <sys/stat.h>

/* Whether there is a device, a pipe or a link, /dev/null and /dev/stdout among them: it is written itself, since a file
 * that took its name would destroy it. */
static inline bool is_special_file(const char *path)
{
	struct stat s;
	return lstat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}

#endif
