/* SPDX-License-Identifier: Apache-2.0
 *
 * The hall: the memory that all processes of a `terrazzo sim` share for their collectives. It is an unnamed file, which
 * TERRAZZO_SIM_HALL_FD gives as PID:FD or FD; without that a process has a hall of its own, for ranks that are its
 * threads. Behind the hall lie the pages for the bytes that ranks bring, then one byte for each process, which holds a
 * lock on it while it lives. Children made by fork() do not inherit the lock.
 */
#include "nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 1 << 20, PUNCHED_LEAST = 1 << 16 };

struct hall *hall;
int hall_process;

/* The hall's file, a bit for each page, and the pages; page 0 is never given out. */
static struct {
	int fd;
	pid_t pid;
	uint64_t map_at, pages_at, locks_at;
	uint64_t *used;
	char *pages;
	uint64_t hint;
} place;

static const char magic[8] = "trzhal1";

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int open_file(void)
{
	const char *text = getenv("TERRAZZO_SIM_HALL_FD");
	char path[64];
	int pid, fd;
	if (!text || !*text) {
		fputs("terrazzo: ranks of several processes meet only under a terrazzo sim that started them all\n", stderr);
		return memfd_create("sim-hall", MFD_CLOEXEC);
	}
	if (sscanf(text, "%d:%d", &pid, &fd) == 2)
		snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
	else
		snprintf(path, sizeof path, "/proc/self/fd/%d", atoi(text));
	return open(path, O_RDWR | O_CLOEXEC);
}

/* ---- who lives ------------------------------------------------------------ */

static bool lock_byte(int command, short type, uint64_t at, pid_t *owner)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1 };
	int result;
	do
		result = fcntl(place.fd, command, &lock);
	while (result < 0 && errno == EINTR);
	if (owner)
		*owner = lock.l_type == F_UNLCK ? 0 : lock.l_pid;
	return result == 0;
}

bool hall_is_alive(int process)
{
	pid_t owner = 0;
	return process == hall_process ||
	       (lock_byte(F_GETLK, F_WRLCK, place.locks_at + 1 + (uint64_t)process, &owner) && owner != 0);
}

/* Takes a place that no living process has. */
static bool take_place(void)
{
	const char *rank = getenv("RANK");
	int i = 0;
	while (i < MOST_PROCESSES && !lock_byte(F_SETLK, F_WRLCK, place.locks_at + 1 + (uint64_t)i, NULL))
		i++;
	if (i == MOST_PROCESSES)
		return false;
	hall_process = i;
	memset(&hall->process[i], 0, sizeof hall->process[i]);
	hall->process[i].pid = (int32_t)getpid();
	hall->process[i].world_rank = rank && *rank ? atoi(rank) : -1;
	if (i >= hall->processes)
		hall->processes = i + 1;
	return true;
}

/* ---- opening ------------------------------------------------------------ */

static void furnish(void)
{
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&hall->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
	hall->bytes = sizeof *hall;
	place.used[0] = 1;
	memcpy(hall->magic, magic, sizeof magic);
}

static bool enter(void)
{
	place.map_at = round_up(sizeof *hall);
	place.pages_at = place.map_at + round_up(PAGES / 8);
	place.locks_at = place.pages_at + (uint64_t)PAGES * PAGE;
	place.fd = open_file();
	if (place.fd < 0 || !lock_byte(F_SETLKW, F_WRLCK, place.locks_at, NULL))
		return false;
	struct stat st;
	if (fstat(place.fd, &st) != 0 ||
	    ((uint64_t)st.st_size < place.locks_at && ftruncate(place.fd, (off_t)place.locks_at) != 0))
		return false;
	void *at = mmap(NULL, place.locks_at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, place.fd, 0);
	if (at == MAP_FAILED)
		return false;
	hall = at;
	place.used = (uint64_t *)((char *)at + place.map_at);
	place.pages = (char *)at + place.pages_at;
	if (!hall->magic[0])
		furnish();
	bool placed = memcmp(hall->magic, magic, sizeof magic) == 0 && hall->bytes == sizeof *hall && take_place();
	lock_byte(F_SETLK, F_UNLCK, place.locks_at, NULL);
	return placed;
}

/* A child of fork() has no ranks. */
static void after_fork(void)
{
	hall = NULL;
}

static void open_once(void)
{
	place.pid = getpid();
	if (!enter()) {
		fprintf(stderr, "terrazzo: ranks cannot meet: %s\n", errno ? strerror(errno) : "too many processes");
		hall = NULL;
		return;
	}
	pthread_atfork(NULL, NULL, after_fork);
	nccl_start_progress();
}

bool hall_open(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, open_once);
	return hall != NULL && place.pid == getpid();
}

/* ---- the lock, and changes ------------------------------------------------------------ */

/* A process that died with the lock left at worst a table or a letter half filled in, of a rank that is told dead. */
void hall_lock(void)
{
	if (pthread_mutex_lock(&hall->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&hall->lock);
}

void hall_unlock(void)
{
	pthread_mutex_unlock(&hall->lock);
}

void hall_changed(void)
{
	__atomic_fetch_add(&hall->change, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &hall->change, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* ---- pages, with the lock ------------------------------------------------------------ */

static bool is_used(uint64_t page)
{
	return place.used[page / 64] >> page % 64 & 1;
}

static void mark(uint64_t page, uint64_t count, bool used)
{
	for (uint64_t i = page; i < page + count; i++)
		place.used[i / 64] = (place.used[i / 64] & ~(1ull << i % 64)) | (uint64_t)used << i % 64;
}

uint64_t hall_take(uint64_t bytes)
{
	uint64_t count = round_up(bytes) / PAGE, run = 0;
	for (uint64_t page = 1; page < PAGES; page++) {
		if (page % 64 == 0 && place.used[page / 64] == UINT64_MAX) {
			page += 63;
			run = 0;
			continue;
		}
		run = is_used(page) ? 0 : run + 1;
		if (run == count) {
			mark(page + 1 - count, count, true);
			return page + 1 - count;
		}
	}
	return 0;
}

void hall_give(uint64_t page, uint64_t bytes)
{
	if (!page)
		return;
	mark(page, round_up(bytes) / PAGE, false);
	if (bytes >= PUNCHED_LEAST)
		fallocate(place.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(place.pages_at + page * PAGE),
		          (off_t)round_up(bytes));
}

void *hall_bytes(uint64_t page)
{
	return place.pages + page * PAGE;
}
