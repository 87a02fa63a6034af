/* SPDX-License-Identifier: Apache-2.0
 *
 * What a short read from the device may give besides 0: bytes that the host has sent or filled with, and what PyTorch's
 * operations make of such bytes, which python/terrazzo/sim/computing.cpp tells.
 */
#include "driver_lookalike.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Ranges of the device's memory that hold what the host has sent: this rank's, or, by a collective, another's. Work may
 * overwrite them. So a program that sends sizes and reads them back, as gathering among processes does, gets its
 * sizes. */
struct sent_range {
	uint64_t start, end;
	uint64_t work;  /* the amount of work after which they came */
	bool brought;   /* by a collective */
};

enum { SENT, FILLED, SENT_KINDS, SENT_RANGES = 64 };

/* The newest of each kind, so that a program that fills much does not make what it has sent unknown. */
static struct {
	pthread_mutex_t lock;
	unsigned count[SENT_KINDS];  /* of ranges ever noted */
	struct sent_range ranges[SENT_KINDS][SENT_RANGES];
} sent = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What this thread may read, whatever other threads launch, and what it reads instead of anything else. */
static _Thread_local struct {
	uint64_t start, end;
	bool has_answer;
	uint64_t answer;
} own;

static uint64_t work_so_far(void)
{
	return __atomic_load_n(&look_live.kernels, __ATOMIC_RELAXED) +
	       __atomic_load_n(&look_live.library_calls, __ATOMIC_RELAXED) +
	       __atomic_load_n(&look_live.graph_launches, __ATOMIC_RELAXED);
}

/* A copy of the range that holds this one; no start: none does. */
static struct sent_range find_range(uint64_t start, uint64_t size)
{
	struct sent_range found = {0};
	pthread_mutex_lock(&sent.lock);
	for (unsigned i = 0; i < SENT_KINDS * SENT_RANGES && !found.start; i++) {
		const struct sent_range *r = &sent.ranges[i / SENT_RANGES][i % SENT_RANGES];
		if (r->start <= start && start + size <= r->end)
			found = *r;
	}
	pthread_mutex_unlock(&sent.lock);
	return found;
}

bool trz_lookalike_is_known(uint64_t address, uint64_t size)
{
	if (own.start <= address && address + size <= own.end)
		return true;
	struct sent_range found = find_range(address, size);
	return found.start && found.work == work_so_far();
}

static void note_as(unsigned kind, struct sent_range range, bool known)
{
	pthread_mutex_lock(&sent.lock);
	for (unsigned i = 0; i < SENT_KINDS * SENT_RANGES; i++) {
		struct sent_range *r = &sent.ranges[i / SENT_RANGES][i % SENT_RANGES];
		if (r->start < range.end && range.start < r->end)
			*r = (struct sent_range){0};
	}
	if (known)
		sent.ranges[kind][sent.count[kind]++ % SENT_RANGES] = range;
	pthread_mutex_unlock(&sent.lock);
}

static void note(struct sent_range range, bool known)
{
	note_as(SENT, range, known);
}

void look_note_known(uint64_t start, uint64_t size, bool known)
{
	note((struct sent_range){.start = start, .end = start + size, .work = work_so_far()}, known);
}

void look_note_filled(uint64_t start, uint64_t size, bool known)
{
	if (known && trz_lookalike_is_known(start, size))
		return;
	note_as(FILLED, (struct sent_range){.start = start, .end = start + size, .work = work_so_far()}, known);
}

/* Messages of several ranks may each bring a part. */
bool look_is_brought(uint64_t start, uint64_t size)
{
	struct sent_range found = {.brought = true};
	for (uint64_t at = start; found.brought && at < start + size; at = found.end)
		found = find_range(at, 1);
	return found.brought;
}

void look_note_copied(uint64_t to, uint64_t from, uint64_t size, bool known)
{
	bool brought = look_is_brought(from, size);
	note((struct sent_range){.start = to, .end = to + size, .work = known ? work_so_far() : find_range(from, 1).work,
	                         .brought = brought}, known || brought);
}

bool look_answer(uint64_t *answer)
{
	*answer = own.answer;
	return own.has_answer;
}

void trz_lookalike_note_brought(uint64_t address, uint64_t size, bool known)
{
	note((struct sent_range){.start = address, .end = address + size, .work = work_so_far(), .brought = true}, known);
}

bool trz_lookalike_wait(uint64_t address, void *stream)
{
	trz_context context = look.sim ? look_memory_context(stream, address) : NULL;
	return context && !look_is_captured(context, stream) && sim_stream_sync(look.sim, context, stream) == TRZ_OK;
}

bool trz_lookalike_get(uint64_t address, void *bytes, uint64_t size, void *stream)
{
	return trz_lookalike_wait(address, stream) &&
	       (look_is_brought(address, size) || trz_lookalike_is_known(address, size)) &&
	       sim_peek(look.sim, address, bytes, size);
}

/* Bytes on their way to the device. */
struct put {
	uint64_t address, size;
	char bytes[];
};

static void put_now(void *argument)
{
	struct put *p = argument;
	sim_poke(look.sim, p->address, p->bytes, p->size);
	free(p);
}

void trz_lookalike_put(uint64_t address, const void *bytes, uint64_t size, void *stream)
{
	trz_context context = look.sim ? look_memory_context(stream, address) : NULL;
	struct put *p = context && !look_is_captured(context, stream) ? malloc(sizeof *p + size) : NULL;
	if (!p)
		return;
	p->address = address;
	p->size = size;
	memcpy(p->bytes, bytes, size);
	if (sim_host(look.sim, context, stream, put_now, p) == TRZ_OK)
		look_note_known(address, size, true);
	else
		free(p);
}

void trz_lookalike_vouch(uint64_t address, uint64_t size)
{
	own.start = address;
	own.end = address + size;
}

void trz_lookalike_answer(const uint64_t *answer)
{
	own.has_answer = answer;
	own.answer = answer ? *answer : 0;
}
