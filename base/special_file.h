/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that an output must be written to in place, or not at all.
 */
#ifndef TRZ_BASE_SPECIAL_FILE_H
#define TRZ_BASE_SPECIAL_FILE_H

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a path names a device, a pipe or a link, such as /dev/null and /dev/stdout: a file that took its name would
 * destroy it. */
static inline bool is_special_file(const char *path)
{
	struct stat s;
	return lstat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}

/* Whether a path names a file that may not be written, errno says why: a new file that took its name would pass over
 * that. */
static inline bool is_locked_file(const char *path)
{
	return access(path, F_OK) == 0 && access(path, W_OK) != 0;
}

#endif
