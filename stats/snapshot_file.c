/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots in files, and the names of the files.
 *
 * A file is written under another name in the same folder, and gets its own when it is complete. Its writer holds a
 * lock on it: if nobody does, the writer has been killed, and the next one removes what it left. A device, a pipe or a
 * link is written in place.
 */
#include "snapshot_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bits.h"
#include "error.h"
#include "held_signals.h"
#include "special_file.h"

#define UNFINISHED ".terrazzo-part"

/* ---- names ------------------------------------------------------------------------------------------ */

static const char *text_of_time(uint64_t epoch_ns, char *text, size_t size)
{
	struct tm utc;
	time_t seconds = (time_t)(epoch_ns / 1000000000u);
	char day[32];
	gmtime_r(&seconds, &utc);
	strftime(day, sizeof day, "%Y%m%dT%H%M%S", &utc);
	snprintf(text, size, "%s.%03uZ", day, (unsigned)(epoch_ns / 1000000u % 1000));
	return text;
}

/* What a letter stands for; NULL: nothing. */
static const char *value_of(char letter, const struct snapshot_name *n, char *text, size_t size)
{
	switch (letter) {
	case 'p':
		snprintf(text, size, "%d", n->process);
		return text;
	case 'd':
		snprintf(text, size, "%d", n->device);
		return text;
	case 'n':
		snprintf(text, size, "%u", n->number);
		return text;
	case 'r':
		return n->rank && n->rank[0] && !strchr(n->rank, '/') ? n->rank : "0";
	case 't':
		return text_of_time(n->epoch_ns, text, size);
	case '%':
		return "%";
	default:
		return NULL;
	}
}

/* Writes the path too, unless it is NULL. */
static bool make_path(const char *pattern, const struct snapshot_name *n, char *path)
{
	size_t used = 0;
	char last = '\0';
	for (const char *p = pattern; *p; p++) {
		char one[64] = {*p};
		const char *part = *p == '%' ? value_of(*++p, n, one, sizeof one) : one;
		size_t length = part ? strlen(part) : SNAPSHOT_PATH;
		if (length >= SNAPSHOT_PATH - used)
			return false;
		if (path)
			memcpy(path + used, part, length + 1);
		used += length;
		last = length ? part[length - 1] : last;
	}
	return used > 0 && last != '/';
}

bool snapshot_path(const char *pattern, const struct snapshot_name *n, char path[SNAPSHOT_PATH])
{
	path[0] = '\0';
	return make_path(pattern, n, path);
}

bool snapshot_pattern_is_good(const char *pattern)
{
	return make_path(pattern, &(struct snapshot_name){0}, NULL);
}

/* ---- what killed writers left ------------------------------------------------------------------------- */

static bool is_unfinished(const char *name)
{
	size_t length = strlen(name), suffix = sizeof UNFINISHED - 1;
	return length > suffix && strcmp(name + length - suffix, UNFINISHED) == 0;
}

/* Removes a file unless its writer is alive, and so holds its lock. */
static void remove_if_left(int folder, const char *name)
{
	int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		unlinkat(folder, name, 0);
	close(fd);
}

/* The folder of a path, in `text`. */
static const char *folder_of(const char *path, char text[SNAPSHOT_PATH])
{
	const char *slash = strrchr(path, '/');
	size_t length = slash ? (size_t)(slash - path) : 0;
	if (!slash || length >= SNAPSHOT_PATH)
		return ".";
	length = length ? length : 1;
	memcpy(text, path, length);
	text[length] = '\0';
	return text;
}

static void remove_left(const char *folder)
{
	DIR *d = opendir(folder);
	if (!d)
		return;
	for (const struct dirent *e; (e = readdir(d));)
		if (is_unfinished(e->d_name))
			remove_if_left(dirfd(d), e->d_name);
	closedir(d);
}

/* ---- writing ---------------------------------------------------------------------------------------- */

struct receiver {
	int fd;
	uint64_t most, size;       /* bytes that the file may have, and has */
	bool too_large;
	int error;                 /* why it failed; kept here, since callbacks for texts run later and may set errno */
};

static bool refuse(struct receiver *r, int error)
{
	r->error = error;
	return false;
}

static bool sink_to_file(void *owner, const char *bytes, size_t size)
{
	struct receiver *r = owner;
	r->size += size;
	r->too_large = r->size > r->most;
	if (r->too_large)
		return refuse(r, EFBIG);
	while (size) {
		ssize_t written = write(r->fd, bytes, size);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return refuse(r, written ? errno : EIO);
		bytes += written;
		size -= (size_t)written;
	}
	return true;
}

/* Whether a new file is still ours: before it was locked, another process may have taken it for a killed writer's and
 * removed it. That cannot happen on a file system without locks. */
static bool is_ours(int fd)
{
	struct stat s;
	bool taken = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
	return !taken && fstat(fd, &s) == 0 && s.st_nlink > 0;
}

/* A new file beside `path`, under a unique name, locked. Returns its descriptor; -1: errno says why. */
static int open_beside(const char *path, char name[SNAPSHOT_PATH])
{
	static atomic_uint serial;
	for (;;) {
		unsigned n = atomic_fetch_add(&serial, 1);
		if (snprintf(name, SNAPSHOT_PATH, "%s.%ld.%u" UNFINISHED, path, (long)getpid(), n) >= SNAPSHOT_PATH) {
			errno = ENAMETOOLONG;
			return -1;
		}
		int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd < 0 && errno != EEXIST)
			return -1;
		if (fd >= 0 && is_ours(fd))
			return fd;
		if (fd >= 0)
			close(fd);
	}
}

/* Writes the snapshot; if the file would be too large, once more, with less history. Returns 0 or an errno. */
static int write_all(struct snapshot *s, struct receiver *r)
{
	trz_status status = snapshot_write(s, sink_to_file, r);
	if (r->too_large && snapshot_shorten(s, r->most)) {
		*r = (struct receiver){.fd = r->fd, .most = r->most};
		if (ftruncate(r->fd, 0) || lseek(r->fd, 0, SEEK_SET))
			return errno;
		status = snapshot_write(s, sink_to_file, r);
	}
	if (status != TRZ_OK)
		return r->error;
	return fsync(r->fd) && errno != EINVAL ? errno : 0;  /* EINVAL: a device, a pipe */
}

trz_status snapshot_to_file(struct snapshot *s, const char *path, uint64_t *size)
{
	struct held_signals held;
	struct receiver r = {.most = *size};
	bool in_place = is_special_file(path);
	if (is_locked_file(path))
		return trz_fail(TRZ_ERROR_IO, "%.400s: cannot be created: %s", path, strerror(errno));
	remove_left(folder_of(path, s->room->path));
	r.fd = in_place ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : open_beside(path, s->room->path);
	if (r.fd < 0)
		return trz_fail(TRZ_ERROR_IO, "%.400s: cannot be created: %s", path, strerror(errno));
	held_signals_begin(&held);
	int error = write_all(s, &r);
	held_signals_end(&held);
	if (!error && !in_place && rename(s->room->path, path))
		error = errno;
	if (error && !in_place)
		unlink(s->room->path);
	close(r.fd);
	*size = r.size;
	return error ? trz_fail(TRZ_ERROR_IO, "%.400s: cannot be written: %s", path, strerror(error)) : TRZ_OK;
}
