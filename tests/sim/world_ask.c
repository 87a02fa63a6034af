/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions to the heap: what is where, what has happened, and how large a request may be. They have random numbers of
 * their own, so that a world goes on as it would have without them; except in some worlds, which tell the ends of steps
 * and make the largest request.
 */
#include "world_parts.h"

/* ---- the largest request ---------------------------------------------------------------------------------- */

/* What the heap says that it can serve, it serves, if nothing happens in between. */
static const char *ask_largest(struct actor *a, unsigned stream)
{
	struct world *w = a->w;
	size_t size;
	void *p;
	MUST(w, trz_largest_block(w->heap, handle_of(w, stream), &size));
	if (!size || w->free_running || world_expected_pool(a, stream) || world_withheld(w))
		return NULL;
	trz_status status = trz_alloc(w->heap, size, 0, handle_of(w, stream), &p);
	if (status != TRZ_OK)
		return world_wrong(w, "%zu bytes are said to be the largest request, and refused: %s", size, trz_last_error());
	MUST(w, trz_free(w->heap, p));
	return NULL;
}

/* ---- what is where ---------------------------------------------------------------------------------------- */

/* A walk so far: blocks cover each segment, one after the other. */
struct walk {
	uint64_t reserved, held, at, end;
	bool gaps;
};

static void see_segment(void *walk, const trz_segment_info *s)
{
	struct walk *k = walk;
	k->gaps |= k->at != k->end;
	k->at = s->address;
	k->end = s->address + s->size;
	k->reserved += s->size;
}

static void see_block(void *walk, const trz_block_info *b)
{
	struct walk *k = walk;
	k->gaps |= b->address != k->at || !b->size || b->address + b->size > k->end;
	k->at = b->address + b->size;
	k->held += b->state == TRZ_BLOCK_HELD ? b->requested : 0;
}

static const char *ask_what_is_where(struct actor *a)
{
	struct world *w = a->w;
	struct walk k = {0};
	uint64_t reserved, zombie, requested, lost;
	MUST(w, trz_walk(w->heap, &(trz_visitor){.segment = see_segment, .block = see_block, .user = &k}));
	MUST(w, trz_stat(w->heap, "reserved_bytes.all.current", &reserved));
	MUST(w, trz_stat(w->heap, "requested_bytes.all.current", &requested));
	MUST(w, trz_stat(w->heap, "zombie_bytes.current", &zombie));
	MUST(w, trz_stat(w->heap, "idle_bytes.current", &lost));
	if (k.gaps || k.at != k.end)
		return world_wrong(w, "the blocks of a walk do not cover its segments");
	if (!w->free_running && (k.reserved + zombie + lost != reserved || k.held != requested))
		return world_wrong(w, "a walk has %llu bytes, %llu of them held; reserved are %llu, held %llu",
		                   (unsigned long long)k.reserved, (unsigned long long)k.held, (unsigned long long)reserved,
		                   (unsigned long long)requested);
	return NULL;
}

static const char *ask_mapping(struct actor *a)
{
	struct world *w = a->w;
	struct live l;
	trz_segment_info s;
	if (!world_take(a, &l))
		return NULL;
	trz_addr last = l.address + l.size - 1;
	trz_status status = trz_query_mapping(w->heap, (void *)last, &s);
	world_give(w, &l);
	MUST(w, status);
	if (last - s.address >= s.size || (s.pool && s.pool != l.pool))  /* 0: the pool has gone since */
		return world_wrong(w, "%#llx is said to be mapped elsewhere", (unsigned long long)last);
	return NULL;
}

/* ---- what has happened ------------------------------------------------------------------------------------ */

static uint64_t number_stack(void *user)
{
	(void)user;
	return 7;
}

static const char *keep_history(struct actor *a)
{
	struct world *w = a->w;
	if (chance(a, 2))
		MUST(w, trz_history_stop(w->heap));
	else
		MUST(w, trz_history_start(w->heap, 1 + below(a, 1000)));
	if (chance(a, 4))
		MUST(w, trz_set_frame_callback(w->heap, chance(a, 2) ? number_stack : NULL, NULL, NULL));
	if (chance(a, 4))
		MUST(w, trz_set_site_callback(w->heap, chance(a, 2) ? number_stack : NULL, NULL, NULL));
	return NULL;
}

static const char *end_step(struct actor *a)
{
	MUST(a->w, trz_step(a->w->heap));
	return NULL;
}

/* Whether questions may change what the heap does. */
static bool is_disturbed(const struct world *w)
{
	return w->seed % 4 == 2;
}

static const char *ask(struct actor *a)
{
	switch (below(a, 8)) {
	case 0:
		return keep_history(a);
	case 1:
		return ask_what_is_where(a);
	case 2:
		return is_disturbed(a->w) ? world_on_any(a, ask_largest) : NULL;
	case 3:
		return is_disturbed(a->w) ? end_step(a) : NULL;
	default:
		return ask_mapping(a);
	}
}

const char *world_ask(struct actor *a)
{
	uint64_t random = a->random;
	a->random = prng_mix(random ^ a->index);
	const char *wrong = chance(a, 32) ? ask(a) : NULL;
	a->random = random;
	return wrong;
}
