/* SPDX-License-Identifier: Apache-2.0
 *
 * Meetings: items of work that complete only when other processes have come to the same point, as a collective among
 * devices does. First a stream arrives, when the schedule picks it, as for any item; from then on the item is ready
 * when the others have arrived, too. At both moments it is checked that the memory that it uses is still there.
 */
#include "sim_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Owned by its item. */
struct sim_attendance {
	struct sim_meeting meeting;
	bool arrived;
	struct sim_use uses[];
};

void sim_meet_drop(const struct sim_work *w)
{
	struct sim_attendance *a = w->attendance;
	if (!a)
		return;
	a->meeting.drop(a->meeting.arg);
	free(a);
}

size_t sim_meet_uses(const struct sim_work *w, const struct sim_use **uses)
{
	*uses = w->attendance->uses;
	return w->attendance->meeting.count;
}

const char *sim_meet_name(const struct sim_work *w)
{
	return w->attendance->meeting.name;
}

/* Reports what is wrong and kills the device, as an illegal access does. */
static bool accuse(sim *s, const struct sim_stream *st, const struct sim_attendance *a, const struct sim_use *u,
                   const char *why)
{
	char nearest[160];
	sim_describe_nearest(s, u->address, nearest, sizeof nearest);
	sim_violate(s, TRZ_ERROR_CONTEXT_DEAD, "illegal access by collective %.60s on stream %llu%s, which %s %.200s; %s",
	            a->meeting.name, (unsigned long long)st->id, st->graph ? " of a graph" : "",
	            u->write ? "writes" : "reads", why, nearest);
	sim_device_die(s, st->context->device);
	return false;
}

/* Whether all memory is there; if so, the host can touch it from here on. */
static bool check_uses(sim *s, const struct sim_stream *st, const struct sim_work *w)
{
	char why[SIM_TEXT_BYTES];
	const struct sim_attendance *a = w->attendance;
	for (size_t i = 0; i < a->meeting.count; i++) {
		const struct sim_use *u = &a->uses[i];
		if (!sim_in_window(s, u->address))
			continue;
		if (!sim_reachable(s, st, w, st->context->device, u->address, u->size, why))
			return accuse(s, st, a, u, why);
		if (u->size <= a->meeting.real_bytes && sim_bytes_show(s, u->address, u->size) != TRZ_OK)
			return accuse(s, st, a, u, "what the host cannot map");
	}
	return true;
}

bool sim_meet_ready(const struct sim_work *w)
{
	const struct sim_attendance *a = w->attendance;
	return a->arrived ? a->meeting.met(a->meeting.arg) != SIM_MEET_AWAITS : a->meeting.can_arrive(a->meeting.arg);
}

bool sim_meet_pending(const struct sim_work *w)
{
	return w->attendance->arrived;
}

void sim_meet_wait(sim *s, const struct sim_work *w, uint32_t mark)
{
	/* The item may end while the lock is released: so the wait takes a ticket made before, and is for any change. */
	const struct sim_meeting m = w->attendance->meeting;
	void *ticket = m.tell(m.arg);
	pthread_mutex_unlock(&s->lock);
	m.wait(ticket, mark);
	pthread_mutex_lock(&s->lock);
}

bool sim_meet_run(sim *s, struct sim_stream *st, const struct sim_work *w)
{
	struct sim_attendance *a = w->attendance;
	uint64_t sequence = st->completed;
	if (!check_uses(s, st, w))
		return false;
	if (!a->arrived) {
		sim_touch_race(s, st, w);
		a->arrived = true;
		a->meeting.arrive(a->meeting.arg);
		return false;
	}
	char text[SIM_TEXT_BYTES] = "";
	if (a->meeting.finish(a->meeting.arg, text, sizeof text) == SIM_MEET_FAILED)
		sim_violate(s, TRZ_ERROR_DRIVER, "%s", text);
	return st->completed == sequence;
}

static struct sim_attendance *copy_of(const struct sim_meeting *m)
{
	struct sim_attendance *a = malloc(sizeof *a + m->count * sizeof a->uses[0]);
	if (!a)
		return NULL;
	*a = (struct sim_attendance){.meeting = *m};
	memcpy(a->uses, m->uses, m->count * sizeof a->uses[0]);
	a->meeting.uses = a->uses;
	return a;
}

trz_status sim_meet_again(sim *s, struct sim_work *w)
{
	char text[SIM_TEXT_BYTES] = "";
	struct sim_attendance *a = copy_of(&w->attendance->meeting);
	if (!a)
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for an item of work");
	w->attendance = a;
	a->meeting.arg = a->meeting.again(a->meeting.arg, text, sizeof text);
	if (a->meeting.arg)
		return TRZ_OK;
	free(a);
	return sim_violate(s, TRZ_ERROR_DRIVER, "%s", text);
}

trz_status sim_meet(sim *s, trz_context c, trz_stream stream, const struct sim_meeting *m)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find(s, c, stream, &st);
	struct sim_attendance *a = call.status == TRZ_OK ? copy_of(m) : NULL;
	if (call.status == TRZ_OK && !a)
		call.status = sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for an item of work");
	if (!a) {
		m->drop(m->arg);
		return sim_leave(&call);
	}
	s->mark = m->mark;
	struct sim_work work = {.kind = SIM_WORK_MEET, .attendance = a, .cost_ns = m->cost_ns};
	call.status = sim_enqueue(s, st, work);
	return sim_leave(&call);
}

trz_status sim_take(sim *s, int device, uint64_t bytes)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	if (!sim_memory_take(s, device, bytes))
		call.status = sim_refuse(s, TRZ_ERROR_OUT_OF_MEMORY, "a library finds no memory on device %d", device);
	return sim_leave(&call);
}

void sim_give(sim *s, int device, uint64_t bytes)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	sim_memory_give(s, device, bytes);
	sim_leave(&call);
}

trz_status sim_report(sim *s, const char *text)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	call.status = sim_violate(s, TRZ_ERROR_DRIVER, "%s", text);
	return sim_leave(&call);
}
