/* SPDX-License-Identifier: Apache-2.0
 *
 * Executes items: stamps and their checks (sim_stamp.c), fills, copies.
 */
#include "sim_machine.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bits.h"
#include "prng.h"

struct sim_work *sim_head(const struct sim_stream *st)
{
	return &st->items[st->completed & (st->room - 1)];
}

const char *sim_work_name(const struct sim_work *w)
{
	static const char *const names[] = {
		[SIM_WORK_STAMP] = "stamp", [SIM_WORK_VERIFY] = "verify", [SIM_WORK_FILL] = "fill",
		[SIM_WORK_COPY] = "copy", [SIM_WORK_HOST] = "host function", [SIM_WORK_SPIN] = "spin",
		[SIM_WORK_WAIT] = "wait", [SIM_WORK_TOUCH] = "kernel", [SIM_WORK_MARK] = "event",
		[SIM_WORK_AWAIT] = "wait", [SIM_WORK_MEET] = "collective", [SIM_WORK_SLEEP] = "sleep",
	};
	return names[w->kind];
}

void sim_work_drop(const struct sim_work *w)
{
	sim_touch_drop(w);
	sim_meet_drop(w);
}

static bool overlap(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size)
{
	return a < b + b_size && b < a + a_size;
}

static bool meeting_uses(const struct sim_work *w, uint64_t address, uint64_t size)
{
	const struct sim_use *uses;
	size_t count = sim_meet_uses(w, &uses);
	for (size_t i = 0; i < count; i++)
		if (overlap(uses[i].address, uses[i].size, address, size))
			return true;
	return false;
}

bool sim_work_uses(const struct sim_work *w, uint64_t address, uint64_t size)
{
	switch (w->kind) {
	case SIM_WORK_STAMP:
	case SIM_WORK_VERIFY:
	case SIM_WORK_FILL:
	case SIM_WORK_SPIN:
		return overlap(w->address, w->size, address, size);
	case SIM_WORK_COPY:
		return overlap(w->address, w->size, address, size) || overlap(w->from, w->size, address, size);
	case SIM_WORK_MEET:
		return meeting_uses(w, address, size);
	case SIM_WORK_HOST:
	case SIM_WORK_WAIT:
	case SIM_WORK_TOUCH:
	case SIM_WORK_MARK:
	case SIM_WORK_AWAIT:
	case SIM_WORK_SLEEP:
		return false;
	}
	return false;
}

/* ---- values ----------------------------------------------------------------------------------------- */

static bool compares(sim_comparison how, unsigned bytes, uint64_t found, uint64_t value)
{
	uint64_t all = bytes == sizeof(uint32_t) ? UINT32_MAX : UINT64_MAX;
	switch (how) {
	case SIM_AT_LEAST:
		return ((found - value) & all) <= all / 2;
	case SIM_EQUAL:
		return ((found ^ value) & all) == 0;
	case SIM_COMMON_BIT:
		return (found & value & all) != 0;
	case SIM_CLEAR_BIT:
		return (~(found | value) & all) != 0;
	}
	return false;
}

/* false: the program has unmapped the memory that its stream waits on. */
static bool read_host(const struct sim_work *w, uint64_t *found)
{
	struct iovec to = {found, w->size}, from = {(void *)w->address, w->size};
	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)w->size)
		return true;
	if (errno == EFAULT)
		return false;
	memcpy(found, (const void *)w->address, w->size);  /* a sandbox forbids the call */
	return true;
}

bool sim_value_ready(const sim *s, const struct sim_work *w)
{
	uint64_t found = 0;
	if (w->flag)
		return __atomic_load_n(w->flag, __ATOMIC_ACQUIRE) != 0;
	bool device = sim_in_window(s, w->address);
	if (!(device ? sim_bytes_read(s, w->address, &found, w->size) : read_host(w, &found)))
		return true;  /* running it says what is wrong */
	return compares((sim_comparison)w->unit, (unsigned)w->size, found, w->tag);
}

/* ---- execution ------------------------------------------------------------------------------------ */

/* The device whose rights an item needs to reach memory. A copy needs those of the memory's own device for plain
 * memory, and for any if the call named both devices: the driver copies through the host what the stream's device does
 * not reach. */
static int reaching_device(const sim *s, const struct sim_stream *st, const struct sim_work *w, uint64_t address)
{
	const struct sim_mapping *m = w->kind == SIM_WORK_COPY ? sim_mapping_at(s, address) : NULL;
	return m && (m->chunk || w->peer) ? m->phys->device : st->context->device;
}

/* An illegal access is sticky, as on hardware: it kills the device. */
static bool check_access(sim *s, const struct sim_stream *st, const struct sim_work *w, uint64_t address)
{
	char why[SIM_TEXT_BYTES], nearest[160];
	int device = st->context->device;
	bool reached = sim_reachable(s, st, w, reaching_device(s, st, w, address), address, w->size, why);
	if (reached && (w->kind <= SIM_WORK_VERIFY || sim_bytes_show(s, address, w->size) == TRZ_OK))
		return true;
	if (!reached) {
		sim_describe_nearest(s, address, nearest, sizeof nearest);
		sim_violate(s, TRZ_ERROR_CONTEXT_DEAD, "illegal access by a %s on stream %llu%s: %.250s; %s", sim_work_name(w),
		            (unsigned long long)st->id, st->graph ? " of a graph" : "", why, nearest);
	}
	sim_device_die(s, device);
	return false;
}

static void execute_copy(sim *s, const struct sim_stream *st, const struct sim_work *w)
{
	const uint8_t zero = 0;
	if (sim_in_window(s, w->from) && !check_access(s, st, w, w->from))
		return;
	if (w->blank)
		sim_bytes_fill(s, w->address, w->size, &zero, 1);
	else
		sim_bytes_copy(s, w->address, w->from, w->size);
}

/* Only the newest record gets the time; the event may have ended or been recorded again. */
static void execute_mark(sim *s, const struct sim_stream *st, const struct sim_work *w)
{
	struct sim_event *e = sim_event_of(s, w);
	if (!e || !e->timed || e->records != w->tag)
		return;
	e->marked = true;
	e->time_ns = st->now_ns;
}

static void execute_spin(sim *s, const struct sim_stream *st, const struct sim_work *w)
{
	uint64_t found;
	if (w->flag || sim_in_window(s, w->address) || read_host(w, &found))
		return;
	sim_violate(s, TRZ_ERROR_CONTEXT_DEAD, "illegal access by a wait on stream %llu: the host's memory at %#llx is no "
	            "longer mapped", (unsigned long long)st->id, (unsigned long long)w->address);
	sim_device_die(s, st->context->device);
}

void sim_work_execute(sim *s, const struct sim_stream *st, const struct sim_work *w)
{
	sim_touch_race(s, st, w);
	if (w->kind == SIM_WORK_TOUCH) {
		sim_touch_check(s, st, w);
		return;
	}
	if (w->kind == SIM_WORK_MARK) {
		execute_mark(s, st, w);
		return;
	}
	if (w->kind == SIM_WORK_SLEEP)
		return;
	if (sim_in_window(s, w->address) && !check_access(s, st, w, w->address))
		return;
	if (w->kind == SIM_WORK_SPIN) {
		execute_spin(s, st, w);
		return;
	}
	if (w->kind == SIM_WORK_COPY) {
		execute_copy(s, st, w);
	} else if (w->kind == SIM_WORK_FILL) {
		sim_bytes_fill(s, w->address, w->size, w->unit ? (const void *)&w->tag : &w->value, w->unit ? w->unit : 1);
	} else {
		sim_stamp_execute(s, st, w);
	}
}

/* ---- time ----------------------------------------------------------------------------------------- */

/* Copies and fills take the time that their bytes need at best, and [assumed] a microsecond to start. A copy within a
 * device takes twice its bytes: it reads and writes the memory. */
static uint64_t transfer_ns(const sim *s, const struct sim_work *w)
{
	const struct sim_mapping *to = sim_mapping_at(s, w->address);
	const struct sim_mapping *from = w->kind == SIM_WORK_COPY ? sim_mapping_at(s, w->from) : to;
	bool inside = to && from && to->phys->device == from->phys->device;
	uint64_t rate = inside ? s->config.memory_rate : s->config.link_rate;
	uint64_t bytes = inside && w->kind == SIM_WORK_COPY ? 2 * w->size : w->size;
	return rate ? 1000 + (uint64_t)((double)bytes * 1000 / (double)rate) : 0;
}

/* ---- sim.h: enqueueing ---------------------------------------------------------------------------- */

static trz_status enqueue(sim *s, trz_context c, trz_stream stream, struct sim_work work)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	bool stamps = work.kind <= SIM_WORK_VERIFY, touches = stamps || work.kind == SIM_WORK_FILL;
	if (touches && !sim_in_window(s, work.address))
		call.status = sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, 0, "%s of %#llx, which is not a device address",
		                         sim_work_name(&work), (unsigned long long)work.address);
	else if (stamps && (work.size < sizeof(uint64_t) || work.address % sizeof(uint64_t)))
		call.status = sim_refuse(s, TRZ_ERROR_INVALID_ARGUMENT,
		                         "a stamp takes 8 bytes at least, at a multiple of 8");
	else
		call.status = sim_stream_find(s, c, stream, &st);
	if (work.kind == SIM_WORK_FILL || work.kind == SIM_WORK_COPY)
		work.cost_ns = transfer_ns(s, &work);
	if (call.status == TRZ_OK)
		call.status = sim_enqueue(s, st, work);
	return sim_leave(&call);
}

trz_status sim_stamp(sim *s, trz_context c, trz_stream st, trz_addr address, uint64_t size, uint64_t tag)
{
	struct sim_work work = {.kind = SIM_WORK_STAMP, .address = address, .size = size, .tag = tag};
	return enqueue(s, c, st, work);
}

trz_status sim_stamp_dependent(sim *s, trz_context c, trz_stream st, trz_addr address, uint64_t size,
                               uint64_t tag)
{
	struct sim_work work = {
		.kind = SIM_WORK_STAMP, .dependent = true, .address = address, .size = size, .tag = tag,
	};
	return enqueue(s, c, st, work);
}

trz_status sim_verify(sim *s, trz_context c, trz_stream st, trz_addr address, uint64_t size, uint64_t tag)
{
	struct sim_work work = {.kind = SIM_WORK_VERIFY, .address = address, .size = size, .tag = tag};
	return enqueue(s, c, st, work);
}

trz_status sim_fill(sim *s, trz_context c, trz_stream st, trz_addr address, uint64_t size, uint8_t value)
{
	struct sim_work work = {.kind = SIM_WORK_FILL, .address = address, .size = size, .value = value};
	return enqueue(s, c, st, work);
}

trz_status sim_copy(sim *s, trz_context c, trz_stream st, uint64_t to, uint64_t from, uint64_t size)
{
	struct sim_work work = {.kind = SIM_WORK_COPY, .address = to, .from = from, .size = size};
	return enqueue(s, c, st, work);
}

trz_status sim_copy_peer(sim *s, trz_context c, trz_stream st, uint64_t to, uint64_t from, uint64_t size)
{
	struct sim_work work = {.kind = SIM_WORK_COPY, .peer = true, .address = to, .from = from, .size = size};
	return enqueue(s, c, st, work);
}

trz_status sim_fill_pattern(sim *s, trz_context c, trz_stream st, trz_addr address, uint64_t count,
                            uint64_t pattern, unsigned unit)
{
	struct sim_work work = {
		.kind = SIM_WORK_FILL, .address = address, .size = count * unit, .tag = pattern, .unit = (uint8_t)unit,
	};
	return enqueue(s, c, st, work);
}

trz_status sim_copy_blank(sim *s, trz_context c, trz_stream st, uint64_t to, uint64_t from, uint64_t size)
{
	struct sim_work work = {.kind = SIM_WORK_COPY, .blank = true, .address = to, .from = from, .size = size};
	return enqueue(s, c, st, work);
}

trz_status sim_host(sim *s, trz_context c, trz_stream st, void (*fn)(void *), void *arg)
{
	struct sim_work work = {.kind = SIM_WORK_HOST, .fn = fn, .arg = arg};
	return enqueue(s, c, st, work);
}

trz_status sim_spin(sim *s, trz_context c, trz_stream st, const uint32_t *flag)
{
	struct sim_work work = {.kind = SIM_WORK_SPIN, .flag = flag};
	return enqueue(s, c, st, work);
}

trz_status sim_wait_value(sim *s, trz_context c, trz_stream st, uint64_t address, unsigned bytes, uint64_t value,
                          sim_comparison how)
{
	struct sim_work work = {
		.kind = SIM_WORK_SPIN, .address = address, .size = bytes, .tag = value, .unit = (uint8_t)how,
	};
	return enqueue(s, c, st, work);
}

trz_status sim_sleep(sim *s, trz_context c, trz_stream st, uint64_t ns)
{
	enum { QUESTION_NS = 100000, MOST_QUESTIONS = 256 };
	struct sim_work work = {.kind = SIM_WORK_SLEEP, .cost_ns = ns, .size = min_u64(ns / QUESTION_NS, MOST_QUESTIONS)};
	return enqueue(s, c, st, work);
}
