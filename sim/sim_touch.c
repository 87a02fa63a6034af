/* SPDX-License-Identifier: Apache-2.0
 *
 * Touches, which stand for kernels: the device addresses that a launch was given must be mapped still when it
 * runs, and by the mappings of the launch, or of the capture for a node of a graph.
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

void sim_touch_check(sim *s, const struct sim_stream *st, const struct sim_work *w)
{
	const struct sim_touched *t = w->touched;
	for (size_t i = 0; t && i < t->count; i++) {
		const struct sim_mapping *m = sim_mapping_at(s, t->address[i]);
		if (m && m->generation <= w->generation)
			continue;
		char nearest[160];
		sim_describe_nearest(s, t->address[i], nearest, sizeof nearest);
		sim_violate(s, TRZ_ERROR_CONTEXT_DEAD, "illegal access by kernel %.160s on stream %llu%s: %#llx, which was "
		            "mapped at its %s, %s; %s", t->name, (unsigned long long)st->id, st->graph ? " of a graph" : "",
		            (unsigned long long)t->address[i], st->graph ? "capture" : "launch",
		            m ? "has been mapped anew since" : "is mapped no more", nearest);
		sim_device_die(s, st->context->device);
		return;
	}
}

/* The first address of the touch inside what a fill or a copy writes; 0: none. */
static uint64_t written_address(const struct sim_work *touch, const struct sim_work *write)
{
	bool writes = write->kind == SIM_WORK_FILL || write->kind == SIM_WORK_COPY;
	const struct sim_touched *t = touch->kind == SIM_WORK_TOUCH ? touch->touched : NULL;
	for (size_t i = 0; writes && t && i < t->count; i++)
		if (t->address[i] - write->address < write->size)
			return t->address[i];
	return 0;
}

static void report_race(sim *s, const struct sim_stream *st, const struct sim_work *w, const struct sim_stream *other,
                        const struct sim_work *old, uint64_t address)
{
	const struct sim_work *touch = w->kind == SIM_WORK_TOUCH ? w : old;
	const struct sim_work *write = touch == w ? old : w;
	sim_violate(s, TRZ_ERROR_CORRUPT,
	            "race: kernel %.160s on stream %llu uses %#llx, to which a %s on stream %llu writes [%#llx, +%llu); "
	            "the %s was enqueued first and nothing orders the two", touch->touched->name,
	            (unsigned long long)(touch == w ? st : other)->id, (unsigned long long)address, sim_work_name(write),
	            (unsigned long long)(touch == w ? other : st)->id, (unsigned long long)write->address,
	            (unsigned long long)write->size, old == touch ? "kernel" : sim_work_name(write));
}

void sim_touch_race(sim *s, const struct sim_stream *st, const struct sim_work *w)
{
	bool may = w->kind == SIM_WORK_FILL || w->kind == SIM_WORK_COPY || (w->kind == SIM_WORK_TOUCH && w->touched);
	if (!may || s->active_count < 2 || !sim_enforces(s, SIM_RULE_TOUCH_RACE))
		return;
	for (size_t i = 0; i < s->active_count; i++) {
		const struct sim_stream *other = s->active[i];
		for (uint64_t n = other->completed; other != st && n < other->enqueued; n++) {
			const struct sim_work *old = &other->items[n & (other->room - 1)];
			if (old->order > w->order)
				break;
			uint64_t address = written_address(w, old);
			if (!address)
				address = written_address(old, w);
			if (!address)
				continue;
			report_race(s, st, w, other, old, address);
			return;
		}
	}
}

/* NULL with *count 0: no word is an address. */
static struct sim_touched *collect(const sim *s, const uint64_t *words, size_t *count, const char *name)
{
	size_t found = 0;
	for (size_t i = 0; i < *count; i++)
		found += sim_mapping_at(s, words[i]) != NULL;
	struct sim_touched *t = found ? malloc(sizeof *t + found * sizeof t->address[0]) : NULL;
	if (t) {
		t->references = 1;
		t->name = name;
		t->count = 0;
		for (size_t i = 0; i < *count; i++)
			if (sim_mapping_at(s, words[i]))
				t->address[t->count++] = words[i];
	}
	*count = found;
	return t;
}

trz_status sim_touch(sim *s, trz_context c, trz_stream stream, const uint64_t *words, size_t count, const char *name,
                     uint64_t cost_ns)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find(s, c, stream, &st);
	struct sim_touched *touched = call.status == TRZ_OK ? collect(s, words, &count, name) : NULL;
	if (call.status == TRZ_OK && count > 0 && !touched)
		call.status = sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for an item of work");
	if (call.status == TRZ_OK) {
		struct sim_work work = {.kind = SIM_WORK_TOUCH, .touched = touched, .cost_ns = cost_ns};
		call.status = sim_enqueue(s, st, work);
	}
	return sim_leave(&call);
}
