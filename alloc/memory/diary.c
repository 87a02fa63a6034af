/* SPDX-License-Identifier: Apache-2.0
 *
 * Noting requests and finding stretches again.
 */
#include "memory/diary.h"

#include <assert.h>

#include "bits.h"
#include "prng.h"

enum {
	TRIES = 64,                  /* entries with the same hash that are compared */
	COMPARED = 1024,             /* requests backwards */
	LOOKS = 16,                  /* one in so many requests looks for a match with a place where its own has none */
	HOPS = 4,                    /* matches of matches that tell of a life */
	LONG_RUN = 64                /* requests with a match before the distance is believed to be a period */
};

#define HASH_BASE UINT64_C(0x9e3779b97f4a7c15)

static bool is_kept(const struct diary *d, uint32_t number)
{
	return d->next - number - 1 < DIARY - 1;  /* the entry that is being written is not */
}

/* HASH_BASE to the power DIARY_CONTEXT. */
static uint64_t oldest_factor(void)
{
	uint64_t x = HASH_BASE;
	for (int i = 1; i < DIARY_CONTEXT; i *= 2)
		x *= x;
	return x;
}
_Static_assert((DIARY_CONTEXT & (DIARY_CONTEXT - 1)) == 0, "oldest_factor squares");

void diary_open(struct diary *d)
{
	d->oldest_factor = oldest_factor();
}

/* How many entries up to `a` are those up to `b`, backwards. */
static uint32_t common(const struct diary *d, uint32_t a, uint32_t b)
{
	uint32_t n = 0;
	while (n < COMPARED && is_kept(d, a - n) &&
	       d->entry[(a - n) % DIARY].context == d->entry[(b - n) % DIARY].context)
		n++;
	return n;
}

/* Follows the longest of the stretches that ended as the newest entry, `number`, does, or of those whose end has a
 * place. */
static uint32_t find_match(const struct diary *d, uint32_t number, uint32_t slot, bool placed, uint32_t *match)
{
	uint32_t longest = DIARY_CONTEXT - 1, old = d->newest[slot];
	for (int tries = 0; tries < TRIES && is_kept(d, old); tries++) {
		uint32_t n = common(d, old, number);
		if (n > longest && (!placed || d->entry[old % DIARY].place)) {
			longest = n;
			*match = old;
		}
		uint32_t before = d->older[old % DIARY];
		if (before - old < UINT32_MAX / 2)
			break;  /* not older: the end of the list */
		old = before;
	}
	return longest < DIARY_CONTEXT ? 0 : longest;
}

/* The place of a like entry in another stretch, where the match has none: it was made before there was a plan. */
static uint32_t other_place(struct diary *d, uint32_t number, uint32_t slot)
{
	bool like = is_kept(d, d->other) && diary_entry(d, d->other)->key == diary_entry(d, number)->key &&
	            diary_entry(d, d->other)->place;
	if (!like && (number % LOOKS || !find_match(d, number, slot, true, &d->other)))
		return 0;
	return diary_entry(d, d->other)->place;
}

uint32_t diary_begin(struct diary *d, uint64_t size, uint64_t stream, uint64_t level, uint32_t ticks)
{
	uint32_t number = d->next, match = number;
	struct diary_entry *e = diary_entry(d, number);
	uint32_t units = (uint32_t)min_u64(size / 512, UINT32_MAX);
	uint32_t key = (uint32_t)(prng_mix(units ^ stream << 32) >> 32) | 1;
	uint32_t context = key * (d->clock - diary_entry(d, number - 1)->begun + 1);
	d->hash = d->hash * HASH_BASE + context - d->oldest_factor * diary_entry(d, number - DIARY_CONTEXT)->context;
	uint32_t slot = (uint32_t)(d->hash >> 40) % DIARY;
	d->other++;
	*e = (struct diary_entry){
	    .units = units, .match = number, .key = key, .context = context, .begun = ++d->clock,
	    .level = (uint32_t)(level >> 20)};
	bool found = d->run && is_kept(d, d->follow) && diary_entry(d, d->follow)->key == key;
	if (found) {
		match = d->follow;
		d->run += d->run < UINT32_MAX;
	} else {
		d->run = find_match(d, number, slot, false, &match);
		found = d->run > 0;
	}
	d->older[number % DIARY] = d->newest[slot];
	d->newest[slot] = number;
	d->next = number + 1;
	if (found) {
		d->follow = match + 1;
		const struct diary_entry *m = diary_entry(d, match);
		e->match = match;
		if (m->life && m->life < ticks)
			e->place = m->place ? m->place : other_place(d, number, slot);
	}
	return number;
}

void diary_end(struct diary *d, uint32_t number)
{
	struct diary_entry *e = diary_entry(d, number);
	uint32_t now = ++d->clock;
	if (d->next - number - 1 < DIARY && !e->life)
		e->life = now - e->begun;
}

uint32_t diary_life(const struct diary *d, uint32_t number)
{
	for (int hop = 0; hop < HOPS && d->next - number - 1 < DIARY; hop++) {
		const struct diary_entry *e = &d->entry[number % DIARY];
		if (e->life || e->match == number)
			return e->life;
		number = e->match;
	}
	return 0;
}

uint32_t diary_period(const struct diary *d)
{
	return d->run >= LONG_RUN ? d->next - d->follow : 0;
}
