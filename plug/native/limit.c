/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger.
 */
#include "limit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/uncancelled.h"

enum { PLACES = 1024 };

#define MAGIC UINT64_C(0x7a74726c656467)

/* Invariant: what a process holds is in its place and nowhere else. */
struct ledger {
	uint64_t magic;       /* written last, when the rest is there */
	pthread_mutex_t lock;
	struct place {
		int64_t pid;      /* 0: free */
		uint64_t born;    /* when the process started: tells it from another one with the same number */
		uint64_t held;
	} places[PLACES];
};

bool limit_on;
uint64_t limit_bytes;

static struct ledger *ledger;
static bool shared;          /* the ledger is a file's */
static struct place *own;    /* the place of process `owner` */
static pid_t owner;

/* ---- processes ------------------------------------------------------------------------------------------------- */

/* When a process started, in ticks since the machine did; 0: there is no such process, or it is a zombie. */
static uint64_t birth(int64_t pid)
{
	char path[64], text[1024];
	snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
	if (file >= 0)
		close(file);
	if (length <= 0)
		return 0;
	text[length] = '\0';
	const char *field = strrchr(text, ')');  /* the end of the second field, which may hold anything */
	char state = 0;
	uint64_t born = 0;
	const char *format = " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64;
	if (!field || sscanf(field + 1, format, &state, &born) != 2)
		return 0;
	return state == 'Z' || state == 'X' ? 0 : born;
}

static void bury_dead(void)
{
	for (struct place *p = ledger->places; p < ledger->places + PLACES; p++)
		if (p->pid && p->pid != owner && birth(p->pid) != p->born)
			p->pid = 0;
}

static struct place *free_place(void)
{
	struct place *p = ledger->places;
	while (p < ledger->places + PLACES && p->pid)
		p++;
	return p < ledger->places + PLACES ? p : NULL;
}

/* This process's place; a child made by fork() takes one of its own. NULL: there is none. */
static struct place *place_locked(void)
{
	pid_t pid = getpid();
	if (own && owner == pid)
		return own;
	owner = pid;
	own = free_place();
	if (!own) {
		bury_dead();
		own = free_place();
	}
	if (own)
		*own = (struct place){.pid = pid, .born = birth(pid)};
	return own;
}

static int cancel;  /* whether the ledger's holder could be cancelled before */

static void lock_ledger(void)
{
	int before = uncancelled_begin();
	if (pthread_mutex_lock(&ledger->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&ledger->lock);
	cancel = before;
}

static void unlock_ledger(void)
{
	int before = cancel;
	pthread_mutex_unlock(&ledger->lock);
	uncancelled_end(before);
}

static uint64_t sum_locked(void)
{
	uint64_t sum = 0;
	for (const struct place *p = ledger->places; p < ledger->places + PLACES; p++)
		sum += p->pid ? p->held : 0;
	return sum;
}

/* ---- what is held ---------------------------------------------------------------------------------------------- */

bool limit_take(uint64_t bytes)
{
	lock_ledger();
	struct place *p = place_locked();
	uint64_t held = sum_locked();
	bool fits = p && held <= limit_bytes && bytes <= limit_bytes - held;
	if (p && !fits) {
		bury_dead();
		held = sum_locked();
		fits = held <= limit_bytes && bytes <= limit_bytes - held;
	}
	if (fits)
		p->held += bytes;
	unlock_ledger();
	return fits;
}

void limit_force(uint64_t bytes)
{
	lock_ledger();
	struct place *p = place_locked();
	if (p)
		p->held += bytes;
	unlock_ledger();
}

void limit_give(uint64_t bytes)
{
	lock_ledger();
	struct place *p = place_locked();
	if (p)
		p->held -= bytes < p->held ? bytes : p->held;
	unlock_ledger();
}

uint64_t limit_left(void)
{
	lock_ledger();
	bury_dead();
	uint64_t held = sum_locked();
	unlock_ledger();
	return held < limit_bytes ? limit_bytes - held : 0;
}

static unsigned insert(struct limit_process *list, unsigned count, unsigned most, const struct place *p)
{
	unsigned at = count < most ? count : most;
	for (; at > 0 && list[at - 1].held < p->held; at--)
		if (at < most)
			list[at] = list[at - 1];
	if (at < most)
		list[at] = (struct limit_process){.process = p->pid, .held = p->held};
	return count < most ? count + 1 : most;
}

unsigned limit_look(uint64_t *own_held, uint64_t *others, struct limit_process *processes, unsigned most)
{
	unsigned count = 0;
	lock_ledger();
	bury_dead();
	const struct place *mine = place_locked();
	*own_held = mine ? mine->held : 0;
	*others = sum_locked() - *own_held;
	for (const struct place *p = ledger->places; p < ledger->places + PLACES; p++)
		if (p->pid && p != mine && p->held)
			count = insert(processes, count, most, p);
	unlock_ledger();
	return count;
}

/* ---- beginning -------------------------------------------------------------------------------------------------- */

static void make_ledger(struct ledger *made, bool for_others)
{
	pthread_mutexattr_t attributes;
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	if (for_others)
		pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&made->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
	made->magic = MAGIC;
}

/* Locks a file. While another process has the lock, signals that the program handles may interrupt the wait. */
static bool lock_file(int file)
{
	int error;
	do
		error = flock(file, LOCK_EX);
	while (error && errno == EINTR);
	return !error;
}

/* Makes room for the ledger, so that a full file system says so now: a page without room would end the process when it
 * is used. */
static bool has_room(int file)
{
	int error = posix_fallocate(file, 0, sizeof(struct ledger));
	errno = error ? error : errno;
	return !error;
}

/* What this process held before it became another program (exec) ended then; its number and birth stay the same. */
static void bury_former(void)
{
	const pid_t pid = getpid();
	lock_ledger();
	for (struct place *p = ledger->places; p < ledger->places + PLACES; p++)
		if (p->pid == pid)
			p->pid = 0;
	unlock_ledger();
}

/* Whether the file is a ledger, or has nothing where one is to be made: any other is the user's, named by mistake. */
static bool is_ledger(int file)
{
	uint64_t words[64] = {0}, found = 0;
	ssize_t got = pread(file, words, sizeof words, 0);
	bool made = got > 0 && words[0] == MAGIC;
	for (off_t at = 0; !made && got > 0 && at < (off_t)sizeof(struct ledger);) {
		for (size_t i = 0; i < sizeof words / sizeof *words; i++)
			found |= words[i];
		memset(words, 0, sizeof words);
		at += got;
		got = pread(file, words, sizeof words, at);
	}
	if (got < 0)
		return false;
	errno = EEXIST;
	return made || !found;
}

/* Opens the ledger; the first process that comes makes it. */
static struct ledger *open_ledger(const char *path)
{
	int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	void *memory = MAP_FAILED;
	if (file < 0)
		return NULL;
	if (lock_file(file) && is_ledger(file) && has_room(file))
		memory = mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory != MAP_FAILED && ((struct ledger *)memory)->magic != MAGIC)
		make_ledger(memory, true);
	flock(file, LOCK_UN);  /* the mapping would keep it */
	close(file);
	return memory == MAP_FAILED ? NULL : memory;
}

/* In the child of a fork, which holds nothing: threads of the parent may have had its locks. That of a shared ledger
 * they still give up. */
static void note_fork(void)
{
	if (!shared) {
		memset(ledger, 0, sizeof *ledger);
		make_ledger(ledger, false);
	}
	own = NULL;
	limit_forget_held();
	limit_forget_captured();
	limit_forget_opening();
}

/* Reads "BYTES", "BYTES -" or "BYTES LEDGER". *path: NULL without a ledger. */
static bool read_limit(const char *text, uint64_t *bytes, const char **path)
{
	char *end;
	errno = 0;
	*bytes = strtoull(text, &end, 10);
	*path = *end == ' ' && strcmp(end + 1, "-") != 0 ? end + 1 : NULL;
	return *text >= '0' && *text <= '9' && errno == 0 && *bytes > 0 && (!*end || (*end == ' ' && end[1]));
}

static void begin(void)
{
	const char *text = getenv("TERRAZZO_LIMIT"), *path;
	if (!text || !*text)
		return;
	if (!read_limit(text, &limit_bytes, &path)) {
		fprintf(stderr, "terrazzo: TERRAZZO_LIMIT: '%s' is not a limit, and ignored: give a number of bytes, and after "
		        "a space a ledger's file, or - for none: 1073741824 -\n", text);
		return;
	}
	ledger = path ? open_ledger(path) : NULL;
	shared = ledger;
	if (shared)
		bury_former();
	if (path && !ledger)
		fprintf(stderr, "terrazzo: the ledger %s cannot be opened (%s): the limit is this process's own\n", path,
		        errno == EEXIST ? "it is another file" : strerror(errno));
	if (!ledger) {
		void *memory = mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (memory == MAP_FAILED)
			return;
		ledger = memory;
		make_ledger(ledger, false);
	}
	limit_on = true;
	pthread_atfork(NULL, NULL, note_fork);
}

void limit_begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, begin);
}
