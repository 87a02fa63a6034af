/* SPDX-License-Identifier: Apache-2.0
 *
 * Stamps: the content by which simulated work shows whose memory is.
 *
 * A stamp is a set of words at places that depend only on address, size and tag: the first, the last, one per
 * granule and a few more. A word holds tag ^ mix(its device address), so that a wrong one shows whose it is. The extra
 * words lie at coarse steps and each granule's at one place for all stamps, so that few pages hold them.
 *
 * Even so a page and a host mapping for each granule make large blocks slow. So where the host does not read device
 * memory by itself (host_faults), words lie beside the memory that they belong to, in a hash table, until something
 * else uses its bytes, or they are many.
 */
#include "sim_machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bits.h"
#include "prng.h"
#include "sim_file.h"

/* ---- words beside the memory ---------------------------------------------------------------------- */

enum { FIRST_ROOM = 8, MOST_OF_GRANULE = 256 };

/* Open addressing; at most half full. */
struct sim_beside {
	uint64_t count, room;  /* room: a power of two */
	struct { uint64_t place, word; } entry[];  /* place: in the physical memory, plus 1; 0: the entry is free */
};

static struct sim_beside *beside_new(uint64_t room)
{
	struct sim_beside *b = calloc(1, sizeof *b + room * sizeof b->entry[0]);
	if (b)
		b->room = room;
	return b;
}

/* The word's entry, or the free one that it would take. */
static uint64_t find(const struct sim_beside *b, uint64_t place)
{
	uint64_t i = prng_mix(place) & (b->room - 1);
	while (b->entry[i].place && b->entry[i].place != place + 1)
		i = (i + 1) & (b->room - 1);
	return i;
}

/* false: there is no host memory. */
static bool make_room(struct sim_phys *p)
{
	struct sim_beside *old = p->beside;
	if (old && 2 * old->count < old->room)
		return true;
	struct sim_beside *new = beside_new(old ? 2 * old->room : FIRST_ROOM);
	for (uint64_t i = 0; new && old && i < old->room; i++)
		if (old->entry[i].place)
			new->entry[find(new, old->entry[i].place - 1)] = old->entry[i];
	if (!new)
		return false;
	new->count = old ? old->count : 0;
	free(old);
	p->beside = new;
	return true;
}

void sim_stamps_settle(const sim *s, struct sim_phys *p)
{
	for (uint64_t i = 0; p->beside && i < p->beside->room; i++) {
		if (!p->beside->entry[i].place)
			continue;
		uint64_t to = p->offset + p->beside->entry[i].place - 1;
		const uint64_t *word = &p->beside->entry[i].word;
		if (sim_file_write(s->memory_fd, word, sizeof *word, to) != sizeof *word) {
			fprintf(stderr, "sim: no host memory for what device memory holds: %s\n", strerror(errno));
			abort();
		}
	}
	free(p->beside);
	p->beside = NULL;
	p->bare = true;
}

/* false: the words of this memory lie in it. */
static bool put_beside(sim *s, struct sim_phys *p, uint64_t place, uint64_t word)
{
	uint64_t most = MOST_OF_GRANULE * (p->size >> s->granule_shift);
	if (!p->bare && ((p->beside && p->beside->count == most) || !make_room(p)))
		sim_stamps_settle(s, p);
	if (p->bare)
		return false;
	uint64_t i = find(p->beside, place);
	p->beside->count += p->beside->entry[i].place == 0;
	p->beside->entry[i].place = place + 1;
	p->beside->entry[i].word = word;
	return true;
}

/* 0 where nothing was written, as in the memory. */
static uint64_t get_beside(const struct sim_phys *p, uint64_t place)
{
	uint64_t i = p->beside ? find(p->beside, place) : 0;
	return p->beside && p->beside->entry[i].place ? p->beside->entry[i].word : 0;
}

/* ---- words ---------------------------------------------------------------------------------------- */

enum { EXTRA_WORDS = 3, EXTRA_STEPS = 8 };

/* Writes the words of the stamp, or checks them: false at the first wrong one, whose address is `bad`, and at one that
 * the host cannot reach, which has been reported. */
struct stamp {
	sim *s;
	uint64_t address, size, tag;
	bool check, unreachable;
	uint64_t bad, found;
};

static bool stamp_word(struct stamp *p, uint64_t at)
{
	const struct sim_mapping *m = sim_mapping_at(p->s, at);
	uint64_t expected = p->tag ^ prng_mix(at), place = at - m->address;
	if (!p->check && put_beside(p->s, m->phys, place, expected))
		return true;
	p->unreachable = m->phys->bare && sim_mapping_show(p->s, at, sizeof expected) != TRZ_OK;
	if (p->unreachable)
		return false;
	if (!p->check) {
		memcpy((void *)at, &expected, sizeof expected);
		return true;
	}
	if (m->phys->bare)
		memcpy(&p->found, (const void *)at, sizeof p->found);
	else
		p->found = get_beside(m->phys, place);
	p->bad = at;
	return p->found == expected;
}

/* The granule's word, if the range covers its place. */
static bool stamp_granule(struct stamp *p, uint64_t granule)
{
	uint64_t granularity = p->s->config.granularity;
	uint64_t at = granule + (prng_mix(granule) & (granularity - 1) & ~7ull);
	if (at < p->address || at + sizeof(uint64_t) > p->address + p->size)
		return true;
	return stamp_word(p, at);
}

/* A few words: anywhere in a small range, at the start of one of a few steps in a large one. */
static bool stamp_extra(struct stamp *p)
{
	uint64_t seed = prng_mix(p->address ^ prng_mix(p->size ^ prng_mix(p->tag)));
	uint64_t words = p->size / sizeof(uint64_t);
	uint64_t step = min_u64(KIB(256), 1ull << log2_floor(max_u64(p->size / EXTRA_STEPS, 8)));
	for (int i = 0; i < EXTRA_WORDS; i++) {
		uint64_t at = p->address + prng_below(&seed, words) * sizeof(uint64_t);
		if (at % step >= 512)
			at = max_u64(align_down(at, step), p->address);
		if (!stamp_word(p, at))
			return false;
	}
	return true;
}

static bool stamp_all(struct stamp *p)
{
	uint64_t granularity = p->s->config.granularity;
	uint64_t last = p->address + ((p->size - sizeof(uint64_t)) & ~7ull);
	if (!stamp_word(p, p->address) || !stamp_word(p, last))
		return false;
	for (uint64_t g = align_down(p->address, granularity); g < p->address + p->size; g += granularity)
		if (!stamp_granule(p, g))
			return false;
	return stamp_extra(p);
}

/* The tag that was most likely written there. A word must be decoded with the address that it was written through,
 * which may be another mapping of the same memory; the right tag is a small number, wrong ones are not. */
static uint64_t guess_tag(const sim *s, uint64_t at, uint64_t word, uint64_t *through)
{
	const struct sim_mapping *here = sim_mapping_at(s, at), *m;
	uint64_t best = word ^ prng_mix(at);
	*through = at;
	LIST_FOREACH(m, &s->mappings, link) {
		uint64_t alias = m->address + (at - here->address);
		if (m->phys == here->phys && (word ^ prng_mix(alias)) < best) {
			best = word ^ prng_mix(alias);
			*through = alias;
		}
	}
	return best;
}

static void report_mismatch(const struct sim_stream *st, const struct stamp *p)
{
	sim *s = p->s;
	uint64_t word = p->found, through;
	unsigned long long address = p->address, size = p->size, offset = p->bad - p->address, id = st->id;
	if (word == 0) {
		sim_violate(s, TRZ_ERROR_CORRUPT,
		            "stamp of [%#llx, +%llu) on stream %llu: at offset %llu found zeros, expected tag %llu",
		            address, size, id, offset, (unsigned long long)p->tag);
		return;
	}
	uint64_t tag = guess_tag(s, p->bad, word, &through);
	sim_violate(s, TRZ_ERROR_CORRUPT,
	            "stamp of [%#llx, +%llu) on stream %llu: at offset %llu found tag %llu (written through "
	            "%#llx), expected tag %llu", address, size, id, offset, (unsigned long long)tag,
	            (unsigned long long)through, (unsigned long long)p->tag);
}

void sim_stamp_execute(sim *s, const struct sim_stream *st, const struct sim_work *w)
{
	bool check = w->kind == SIM_WORK_VERIFY;
	struct stamp p = {.s = s, .address = w->address, .size = w->size, .tag = w->tag, .check = check};
	if (stamp_all(&p))
		return;
	if (p.unreachable)
		sim_device_die(s, st->context->device);
	else
		report_mismatch(st, &p);
}
