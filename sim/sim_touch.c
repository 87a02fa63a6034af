/* SPDX-License-Identifier: Apache-2.0
 *
 * Touches, the stand-ins for kernels: the device addresses that a launch was given must still be mapped when it runs,
 * and by the same mappings as at the launch or, for a graph's node, at the capture.
 */
#include "sim_machine.h"

#include <stdio.h>
#include <stdlib.h>

void sim_describe_nearest(const sim *s, uint64_t address, char *text, size_t size)
{
	const struct sim_mapping *m, *best = NULL;
	uint64_t least = UINT64_MAX;
	LIST_FOREACH(m, &s->mappings, link) {
		uint64_t end = m->address + m->phys->size;
		uint64_t far = address < m->address ? m->address - address : address >= end ? address - end + 1 : 0;
		if (far < least) {
			least = far;
			best = m;
		}
	}
	uint64_t start = best ? best->address : 0, bytes = best ? best->phys->size : 0;
	if (!best) {
		snprintf(text, size, "nothing is mapped on the machine");
		return;
	}
	if (least > 0 && best->chunk)
		sim_plain_at(s, address < start ? start : start + bytes - 1, &start, &bytes);
	else if (best->chunk)
		sim_plain_at(s, address, &start, &bytes);
	snprintf(text, size, "the nearest allocation is [%#llx, +%llu), %llu bytes away", (unsigned long long)start,
	         (unsigned long long)bytes, (unsigned long long)least);
}

void sim_touch_drop(const struct sim_work *w)
{
	if (w->touched && --w->touched->references == 0)
		free(w->touched);
}

/* Reports a mistake: a violation if the word is an argument, else a suspicion. */
static void accuse(sim *s, bool known, trz_status status, const char *text)
{
	if (known)
		sim_violate(s, status, "%s", text);
	else
		sim_suspect(s, text);
}

/* The first address that is not mapped as when the item was enqueued; `count`: all are. */
static size_t first_stale(const sim *s, const struct sim_stream *st, const struct sim_work *w)
{
	const struct sim_touched *t = w->touched;
	size_t i = 0;
	for (; i < t->count; i++) {
		const struct sim_mapping *m = sim_mapping_at(s, t->address[i]);
		if (!m || sim_mapping_is_younger(m, st, w))
			break;
	}
	return i;
}

void sim_touch_check(sim *s, const struct sim_stream *st, const struct sim_work *w)
{
	char nearest[160], text[SIM_TEXT_BYTES];
	const struct sim_touched *t = w->touched;
	size_t i = t ? first_stale(s, st, w) : 0;
	if (!t || i == t->count)
		return;
	bool known = i < t->known;
	sim_describe_nearest(s, t->address[i], nearest, sizeof nearest);
	snprintf(text, sizeof text, "%s by kernel %.160s on stream %llu%s: %#llx%s, which was mapped at its %s, %s; %s",
	         known ? "illegal access" : "perhaps an illegal access", t->name, (unsigned long long)st->id,
	         st->graph ? " of a graph" : "", (unsigned long long)t->address[i],
	         known ? "" : " among other bytes of a parameter", st->graph ? "capture" : "launch",
	         sim_mapping_at(s, t->address[i]) ? "has been mapped again since" : "is no longer mapped", nearest);
	accuse(s, known, TRZ_ERROR_CONTEXT_DEAD, text);
	if (known)
		sim_device_die(s, st->context->device);
}

/* Two items, one of which uses an address that the other writes. */
struct race {
	const struct sim_stream *stream, *other;
	const struct sim_work *work, *old;   /* work: `stream`'s item; old: `other`'s older one */
	const struct sim_work *user, *writer;
	struct sim_range written;
	uint64_t address;
	bool argument, known;        /* known: the user uses just this address */
};

/* The i-th range that an item writes: a fill or copy has one, a collective several. False: there are no more. */
static bool written_range(const struct sim_work *w, size_t i, struct sim_range *range)
{
	const struct sim_use *uses;
	if (w->kind == SIM_WORK_FILL || w->kind == SIM_WORK_COPY) {
		*range = (struct sim_range){w->address, w->size};
		return i == 0;
	}
	if (w->kind != SIM_WORK_MEET || i >= sim_meet_uses(w, &uses))
		return false;
	*range = (struct sim_range){uses[i].address, uses[i].write ? uses[i].size : 0};
	return true;
}

/* Whether a kernel or a collective uses something of r->written; fills in where. */
static bool find_use(struct race *r, const struct sim_work *user)
{
	const struct sim_use *uses;
	size_t count = user->kind == SIM_WORK_MEET ? sim_meet_uses(user, &uses) : 0;
	const struct sim_touched *t = user->kind == SIM_WORK_TOUCH ? user->touched : NULL;
	for (size_t i = 0; t && i < t->count; i++)
		if (t->address[i] - r->written.address < r->written.size) {
			r->address = t->address[i];
			r->argument = i < t->known;
			r->known = r->argument && !t->parts;
			return true;
		}
	for (size_t i = 0; i < count; i++)
		if (uses[i].address < r->written.address + r->written.size &&
		    r->written.address < uses[i].address + uses[i].size) {
			r->address = uses[i].address > r->written.address ? uses[i].address : r->written.address;
			r->argument = r->known = true;
			return true;
		}
	return false;
}

static bool find_race(struct race *r, const struct sim_work *user, const struct sim_work *writer)
{
	for (size_t i = 0; written_range(writer, i, &r->written); i++) {
		if (!r->written.size || !find_use(r, user))
			continue;
		r->user = user;
		r->writer = writer;
		return true;
	}
	return false;
}

static void report_race(sim *s, const struct race *r)
{
	char text[SIM_TEXT_BYTES];
	bool newer = r->user == r->work;
	const struct sim_work *first = newer ? r->writer : r->user;
	snprintf(text, sizeof text, "%s: %s %.160s on stream %llu %s %#llx, to which a %s on stream %llu writes "
	         "[%#llx, +%llu); the %s was enqueued first and nothing orders the two",
	         r->known ? "race" : "perhaps a race", sim_work_name(r->user),
	         r->user->kind == SIM_WORK_MEET ? sim_meet_name(r->user) : r->user->touched->name,
	         (unsigned long long)(newer ? r->stream : r->other)->id,
	         r->argument ? "uses" : "has among other bytes of a parameter", (unsigned long long)r->address,
	         sim_work_name(r->writer), (unsigned long long)(newer ? r->other : r->stream)->id,
	         (unsigned long long)r->written.address, (unsigned long long)r->written.size, sim_work_name(first));
	accuse(s, r->known, TRZ_ERROR_CORRUPT, text);
}

void sim_touch_race(sim *s, const struct sim_stream *st, const struct sim_work *w)
{
	struct race maybe = {.user = NULL};
	bool may = w->kind == SIM_WORK_FILL || w->kind == SIM_WORK_COPY || w->kind == SIM_WORK_MEET ||
	           (w->kind == SIM_WORK_TOUCH && w->touched);
	if (!may || s->active_count < 2 || !sim_enforces(s, SIM_RULE_TOUCH_RACE))
		return;
	for (size_t i = 0; i < s->active_count; i++) {
		const struct sim_stream *other = s->active[i];
		for (uint64_t n = other->completed; other != st && n < other->enqueued; n++) {
			const struct sim_work *old = &other->items[n & (other->room - 1)];
			struct race r = {.stream = st, .other = other, .work = w, .old = old};
			if (old->order > w->order)
				break;
			if (!find_race(&r, w, old) && !find_race(&r, old, w))
				continue;
			if (r.known) {
				report_race(s, &r);
				return;
			}
			maybe = maybe.user ? maybe : r;
		}
	}
	if (maybe.user)
		report_race(s, &maybe);
}

/* NULL: no word is an address (*found is 0), or the host has no memory. */
static struct sim_touched *collect(const sim *s, struct sim_words words, const char *name, size_t *found)
{
	*found = 0;
	for (size_t i = 0; i < words.count; i++)
		*found += sim_mapping_at(s, words.word[i]) != NULL;
	struct sim_touched *t = *found ? malloc(sizeof *t + *found * sizeof t->address[0]) : NULL;
	if (!t)
		return NULL;
	*t = (struct sim_touched){.references = 1, .name = name, .parts = words.parts};
	for (size_t i = 0; i < words.count; i++) {
		if (!sim_mapping_at(s, words.word[i]))
			continue;
		t->address[t->count++] = words.word[i];
		t->known += i < words.known;
	}
	return t;
}

trz_status sim_touch(sim *s, trz_context c, trz_stream stream, struct sim_words words, const char *name,
                     uint64_t cost_ns)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	size_t found = 0;
	call.status = sim_stream_find(s, c, stream, &st);
	struct sim_touched *touched = call.status == TRZ_OK ? collect(s, words, name, &found) : NULL;
	if (call.status == TRZ_OK && found > 0 && !touched)
		call.status = sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for an item of work");
	if (call.status == TRZ_OK) {
		struct sim_work work = {.kind = SIM_WORK_TOUCH, .touched = touched, .cost_ns = cost_ns};
		call.status = sim_enqueue(s, st, work);
	}
	return sim_leave(&call);
}
