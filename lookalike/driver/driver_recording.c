/* SPDX-License-Identifier: Apache-2.0
 *
 * `terrazzo sim --record`: notes the process's requests to its allocator and what orders its streams, in
 * DIR/<pid>.recording (sim/sim_recording.h), which survives however the process ends.
 *
 * If PyTorch's allocator reports the requests to it (python/terrazzo/sim/requests.cpp), they replace those to the
 * driver: its segments are no requests of the program, and its own waits, between `inside` calls, not the program's.
 */
#include "driver_lookalike.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK_ENTRIES = SIM_RECORDED_CHUNK / sizeof(struct sim_recorded) };

/* The lock is taken before the machine's, and held across a driver call whose place in the order counts. */
static struct {
	pthread_mutex_t lock;
	bool on;                     /* read without the lock */
	bool by_allocator;           /* PyTorch's allocator reports the requests; set once */
	int fd;
	struct sim_recorded *chunk;  /* the file's last chunk */
	size_t used;                 /* its entries so far */
	off_t size;                  /* the file's size */
	unsigned blocking;           /* streams so far that are ordered with the legacy default stream */
	uint16_t newest;             /* the kind of the newest entry */
} recording = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static _Thread_local unsigned inside;
static _Thread_local bool told_own;  /* the recording says that the thread's own default stream is blocking */

/* ---- the file, under the lock ------------------------------------------------------------ */

static void stop(const char *why)
{
	recording.on = false;
	fprintf(stderr, "terrazzo: the recording ends here: %s\n", why);
}

static bool grow(void)
{
	if (recording.chunk)
		munmap(recording.chunk, SIM_RECORDED_CHUNK);
	recording.chunk = NULL;
	int error = posix_fallocate(recording.fd, recording.size, SIM_RECORDED_CHUNK);
	void *made = error ? MAP_FAILED : mmap(NULL, SIM_RECORDED_CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, recording.fd,
	                                       recording.size);
	if (made == MAP_FAILED) {
		stop(strerror(error ? error : errno));
		return false;
	}
	recording.chunk = made;
	recording.size += SIM_RECORDED_CHUNK;
	recording.used = 0;
	return true;
}

/* Writes the kind last: an entry is there whole or not at all. */
static void append(const struct sim_recorded *entry)
{
	if (!recording.on || (recording.used == CHUNK_ENTRIES && !grow()))
		return;
	struct sim_recorded *at = &recording.chunk[recording.used++];
	at->key = entry->key;
	at->value = entry->value;
	at->stream = entry->stream;
	at->pool = entry->pool;
	at->device = entry->device;
	__atomic_store_n(&at->kind, entry->kind, __ATOMIC_RELEASE);
	recording.newest = entry->kind;
}

void look_recording_open(const char *folder)
{
	char *path;
	const char *wanted = getenv("TERRAZZO_SIM_RECORD");
	if (!folder || !wanted || !*wanted)
		return;
	if (asprintf(&path, "%s/%d.recording", folder, (int)getpid()) >= 0) {
		recording.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		free(path);
	}
	if (recording.fd < 0) {
		fprintf(stderr, "terrazzo: nothing is recorded: %s/%d.recording: %s\n", folder, (int)getpid(), strerror(errno));
		return;
	}
	recording.chunk = NULL;
	recording.size = 0;
	recording.used = CHUNK_ENTRIES;
	recording.on = true;
}

/* In a child made by fork(): the file is its parent's, and the child cannot use the device. */
void look_recording_detach(void)
{
	recording.on = false;
}

/* ---- notes ------------------------------------------------------------ */

static bool is_legacy(const void *stream)
{
	return (uintptr_t)stream <= 1;
}

static uint64_t key_of(trz_context context, void *stream)
{
	return is_legacy(stream) ? 0 : sim_stream_id(look.sim, context, stream);
}

static bool is_wanted(void)
{
	return __atomic_load_n(&recording.on, __ATOMIC_RELAXED) && !inside;
}

/* The thread's own default stream is made when it is first used. */
static void note_own_default(const struct sim_recorded *entry, const void *stream)
{
	if ((uintptr_t)stream != 2 || told_own)
		return;
	told_own = true;
	struct sim_recorded blocking = {.kind = SIM_RECORDED_BLOCKING, .stream = entry->stream, .device = entry->device};
	recording.blocking++;
	append(&blocking);
}

static void note_on(enum sim_recorded_kind kind, trz_context context, void *stream, uint64_t key, uint64_t value)
{
	int device = context ? sim_context_device(look.sim, context) : -1;
	struct sim_recorded entry = {.kind = (uint16_t)kind, .key = key, .value = value,
	                             .stream = context ? key_of(context, stream) : 0,
	                             .device = (uint16_t)(device > 0 ? device : 0)};
	note_own_default(&entry, stream);
	recording.blocking += kind == SIM_RECORDED_BLOCKING;
	append(&entry);
}

bool look_note_begin(void)
{
	if (!is_wanted())
		return false;
	pthread_mutex_lock(&recording.lock);
	return true;
}

void look_note_end(bool begun, bool happened, enum sim_recorded_kind kind, trz_context context, void *stream,
                   uint64_t key)
{
	if (!begun)
		return;
	if (happened)
		note_on(kind, context, stream, key, 0);
	pthread_mutex_unlock(&recording.lock);
}

void look_note(enum sim_recorded_kind kind, trz_context context, void *stream, uint64_t key)
{
	look_note_end(look_note_begin(), true, kind, context, stream, key);
}

void look_note_request(enum sim_recorded_kind kind, int device, trz_context context, void *stream, uint64_t address,
                       uint64_t size)
{
	if (!is_wanted() || recording.by_allocator)
		return;
	pthread_mutex_lock(&recording.lock);
	struct sim_recorded entry = {.kind = (uint16_t)kind, .device = (uint16_t)device, .key = address, .value = size,
	                             .stream = context ? key_of(context, stream) : SIM_RECORDED_OWN_STREAM};
	note_own_default(&entry, stream);
	append(&entry);
	pthread_mutex_unlock(&recording.lock);
}

/* Only these notes order the work of blocking streams; a second one right after another would say nothing new. */
void look_note_work(trz_context context, void *stream)
{
	if (!is_legacy(stream) || !is_wanted() || !__atomic_load_n(&recording.blocking, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&recording.lock);
	if (recording.newest != SIM_RECORDED_DEFAULT_WORK)
		note_on(SIM_RECORDED_DEFAULT_WORK, context, stream, 0, 0);
	pthread_mutex_unlock(&recording.lock);
}

/* ---- PyTorch's allocator ------------------------------------------------------------ */

void trz_lookalike_request(int kind, int device, uint64_t address, uint64_t size, void *stream, uint32_t pool)
{
	if (!__atomic_load_n(&recording.on, __ATOMIC_RELAXED))
		return;
	trz_context context = look_stream_context(stream);
	pthread_mutex_lock(&recording.lock);
	struct sim_recorded entry = {.kind = (uint16_t)kind, .device = (uint16_t)device, .key = address, .value = size,
	                             .stream = context ? key_of(context, stream) : 0, .pool = pool};
	note_own_default(&entry, stream);
	append(&entry);
	pthread_mutex_unlock(&recording.lock);
}

void trz_lookalike_inside(bool enter)
{
	recording.by_allocator = true;
	inside += enter ? 1 : -1u;
}

void trz_lookalike_stop_recording(const char *why)
{
	pthread_mutex_lock(&recording.lock);
	if (recording.on)
		stop(why);
	pthread_mutex_unlock(&recording.lock);
}
