/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of device memory, reached by calls in which the thread is not cancelled: it holds the machine's lock.
 */
#ifndef TRZ_SIM_FILE_H
#define TRZ_SIM_FILE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "uncancelled.h"

/* Gives the host back the pages of a range. */
static inline bool sim_file_punch(int fd, uint64_t offset, uint64_t size)
{
	int cancel = uncancelled_begin();
	bool done = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size) == 0;
	uncancelled_end(cancel);
	return done;
}

static inline ssize_t sim_file_read(int fd, void *to, size_t size, uint64_t offset)
{
	int cancel = uncancelled_begin();
	ssize_t got = pread(fd, to, size, (off_t)offset);
	uncancelled_end(cancel);
	return got;
}

static inline ssize_t sim_file_write(int fd, const void *from, size_t size, uint64_t offset)
{
	int cancel = uncancelled_begin();
	ssize_t written = pwrite(fd, from, size, (off_t)offset);
	uncancelled_end(cancel);
	return written;
}

#endif
