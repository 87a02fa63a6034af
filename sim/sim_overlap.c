/* SPDX-License-Identifier: Apache-2.0
 *
 * Items of one stream that may be resident together: dependent launches. The simulator runs one item after the
 * other, a GPU both at once; so it remembers the memory that the newest items used, and a dependent item that reaches
 * it without having waited is a violation although the bytes are right.
 */
#include "sim_machine.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"

/* So many items before a dependent one may still be resident, if all in between are dependent, too. */
enum { RESIDENT_ITEMS = 8 };

void sim_overlap_edge(struct sim_stream *st, uint64_t sequence)
{
	st->settled = max_u64(st->settled, sequence);
}

/* A graph's items come after a wait, and a dead stream gets none: neither needs an edge. */
static bool is_of_use(const struct sim_stream *st)
{
	return !st->graph && (st->value || st->thread || st->context->legacy == st);
}

/* Without host memory the wait is not noted, and the machine is stricter than it should be. */
static void note_known(struct sim_stream *st, struct sim_stream *other, uint64_t sequence)
{
	if (other == st || !is_of_use(other))
		return;
	for (size_t i = 0; i < st->known_count; i++)
		if (st->known[i].stream == other) {
			st->known[i].sequence = max_u64(st->known[i].sequence, sequence);
			return;
		}
	if (st->known_count == st->known_room) {
		size_t room = st->known_room ? st->known_room * 2 : 8;
		struct sim_known *grown = realloc(st->known, room * sizeof *grown);
		if (!grown)
			return;
		st->known = grown;
		st->known_room = room;
	}
	st->known[st->known_count++] = (struct sim_known){other, sequence};
}

static void forget_dead(struct sim_stream *st)
{
	size_t kept = 0;
	for (size_t i = 0; i < st->known_count; i++)
		if (is_of_use(st->known[i].stream))
			st->known[kept++] = st->known[i];
	st->known_count = kept;
}

void sim_overlap_waited(struct sim_stream *st, struct sim_stream *other, uint64_t sequence)
{
	forget_dead(st);
	note_known(st, other, sequence);
	for (size_t i = 0; i < other->known_count; i++)
		note_known(st, other->known[i].stream, other->known[i].sequence);
}

bool sim_overlap_knows(const struct sim_stream *st, const struct sim_stream *other, uint64_t sequence)
{
	for (size_t i = 0; i < st->known_count; i++)
		if (st->known[i].stream == other)
			return st->known[i].sequence >= sequence;
	return false;
}

void sim_overlap_seen(struct sim_stream *st, uint64_t sequence)
{
	sim_overlap_edge(st, sequence);
	for (size_t i = 0; i < st->known_count; i++)
		sim_overlap_edge(st->known[i].stream, st->known[i].sequence);
}

static void forget_before(struct sim_stream *st, uint64_t sequence)
{
	size_t gone = 0;
	while (gone < st->resident_count && st->residents[gone].sequence < sequence)
		gone++;
	st->resident_count -= gone;
	if (gone > 0 && st->resident_count > 0)
		memmove(st->residents, st->residents + gone, st->resident_count * sizeof *st->residents);
}

/* Without host memory the extent is forgotten, and what overlaps it is not found. */
static void remember(struct sim_stream *st, struct sim_extent new)
{
	struct sim_extent *last = st->resident_count ? &st->residents[st->resident_count - 1] : NULL;
	if (last && last->sequence == new.sequence && last->offset + last->size == new.offset &&
	    last->address + last->size == new.address) {
		last->size += new.size;
		return;
	}
	if (st->resident_count == st->resident_room) {
		size_t room = st->resident_room ? st->resident_room * 2 : 16;
		struct sim_extent *grown = realloc(st->residents, room * sizeof *grown);
		if (!grown)
			return;
		st->residents = grown;
		st->resident_room = room;
	}
	st->residents[st->resident_count++] = new;
}

/* Memory that an earlier item uses, too; NULL: none. */
static const struct sim_extent *find_shared(const struct sim_stream *st, const struct sim_extent *new)
{
	for (size_t i = 0; i < st->resident_count; i++) {
		const struct sim_extent *old = &st->residents[i];
		bool shared = old->offset < new->offset + new->size && new->offset < old->offset + old->size;
		if (shared && old->sequence != new->sequence)
			return old;
	}
	return NULL;
}

static void enter_range(sim *s, struct sim_stream *st, const struct sim_work *w, uint64_t address)
{
	const struct sim_extent *shared = NULL;
	struct sim_extent new = {.sequence = st->completed};
	for (uint64_t end = address + w->size; address < end; address += new.size) {
		const struct sim_mapping *m = sim_mapping_at(s, address);
		if (!m)
			return;
		uint64_t inside = address - m->address;
		new.address = address;
		new.offset = m->phys->offset + inside;
		new.size = min_u64(end - address, m->phys->size - inside);
		if (w->dependent && !shared && (shared = find_shared(st, &new)))
			sim_violate(s, TRZ_ERROR_CORRUPT,
			            "overlap without wait: a dependent %s on stream %llu reaches through %#llx what an item "
			            "that may be resident still uses through %#llx",
			            sim_work_name(w), (unsigned long long)st->id, (unsigned long long)address,
			            (unsigned long long)shared->address);
		remember(st, new);
	}
}

/* Whether the item only orders others, and lets them overlap across it. */
static bool is_transparent(const sim *s, const struct sim_work *w)
{
	return w->kind == SIM_WORK_MARK || (w->kind == SIM_WORK_WAIT && sim_enforces(s, SIM_RULE_WAIT_NO_EDGE));
}

void sim_overlap_enter(sim *s, struct sim_stream *st, const struct sim_work *w)
{
	if (is_transparent(s, w))
		return;
	uint64_t now = st->completed, oldest = now > RESIDENT_ITEMS ? now - RESIDENT_ITEMS : 0;
	forget_before(st, w->dependent ? max_u64(w->sequence, oldest) : now);
	if (w->kind > SIM_WORK_COPY)
		return;
	if (sim_in_window(s, w->address))
		enter_range(s, st, w, w->address);
	if (w->kind == SIM_WORK_COPY && sim_in_window(s, w->from))
		enter_range(s, st, w, w->from);
}
