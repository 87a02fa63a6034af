/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots in files.
 */
#include "snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "error.h"

static bool sink_to_fd(void *owner, const char *bytes, size_t size)
{
	while (size) {
		ssize_t written = write(*(int *)owner, bytes, size);
		if (written < 0 && errno == EINTR)
			continue;
		if (written == 0)
			errno = EIO;
		if (written <= 0)
			return false;
		bytes += written;
		size -= (size_t)written;
	}
	return true;
}

/* A new file beside `path`, under a unique name. Returns its descriptor; -1: errno says why. */
static int open_beside(const char *path, char *name, size_t size)
{
	static atomic_uint serial;
	for (;;) {
		unsigned n = atomic_fetch_add(&serial, 1);
		if (snprintf(name, size, "%s.%ld.%u.part", path, (long)getpid(), n) >= (int)size) {
			errno = ENAMETOOLONG;
			return -1;
		}
		int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd >= 0 || errno != EEXIST)
			return fd;
	}
}

trz_status snapshot_to_file(const struct snapshot *s, const char *path)
{
	char name[PATH_MAX];
	int fd = open_beside(path, name, sizeof name);
	if (fd < 0)
		return trz_fail(TRZ_ERROR_IO, "%.400s: cannot be created: %s", path, strerror(errno));
	int error = 0;
	if (snapshot_write(s, sink_to_fd, &fd) != TRZ_OK || fsync(fd))
		error = errno;
	if (close(fd) && !error)
		error = errno;
	if (!error && rename(name, path))
		error = errno;
	if (!error)
		return TRZ_OK;
	unlink(name);
	return trz_fail(TRZ_ERROR_IO, "%.400s: cannot be written: %s", path, strerror(error));
}
