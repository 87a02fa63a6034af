/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a pool's memory lies. A pool has a range of addresses in each context, and puts memory into it by chunks of
 * 32 MiB; blocks lie where they fit best, across chunks, and whole free chunks go back to the device. So much was seen
 * from outside of an H200's driver 580.159.04 (docs/sim.md); how the driver does it is not known.
 */
#include "driver_pool.h"

#include <stdlib.h>

#include "bits.h"

/* Invariant: `blocks` are all blocks with addresses in the range, by address; a chunk has memory exactly if `laid`, and
 * blocks cover it then, and never touch another. */
struct pool_range {
	LIST_ENTRY(pool_range) link;
	trz_context home;
	trz_addr start;
	uint64_t chunks;
	TAILQ_HEAD(places, pool_block) blocks;
	bool laid[];
};

static trz_addr chunk_start(const struct pool_range *r, uint64_t chunk)
{
	return r->start + (chunk << POOL_CHUNK_SHIFT);
}

static uint64_t chunk_of(const struct pool_range *r, trz_addr address)
{
	return (address - r->start) >> POOL_CHUNK_SHIFT;
}

/* Addresses for all memory of the device, twice, so that free ones are in one piece somewhere. */
static struct pool_range *new_range(struct look_pool *pool, trz_context home)
{
	trz_device_info info;
	if (look.table->device_info(look.table->self, pool->device, &info) != TRZ_OK)
		return NULL;
	uint64_t chunks = 2 * (align_up(info.total_bytes, POOL_CHUNK) >> POOL_CHUNK_SHIFT);
	struct pool_range *r = calloc(1, sizeof *r + chunks * sizeof r->laid[0]);
	if (!r || sim_plain_range(look.sim, home, chunks << POOL_CHUNK_SHIFT, &r->start) != TRZ_OK) {
		free(r);
		return NULL;
	}
	r->home = home;
	r->chunks = chunks;
	TAILQ_INIT(&r->blocks);
	LIST_INSERT_HEAD(&pool->ranges, r, link);
	return r;
}

static struct pool_range *range_of(struct look_pool *pool, trz_context home)
{
	struct pool_range *r;
	LIST_FOREACH(r, &pool->ranges, link)
		if (r->home == home)
			return r;
	return new_range(pool, home);
}

/* ---- blocks ------------------------------------------------------------ */

static void remove_block(struct pool_block *b)
{
	TAILQ_REMOVE(&b->range->blocks, b, beside);
	pool_block_end(b);
}

/* A free block behind another, or (NULL) at the range's start. */
static struct pool_block *add_free(struct look_pool *pool, struct pool_range *r, struct pool_block *before,
                                   trz_addr address, uint64_t size)
{
	struct pool_block *b = pool_block_new(pool, r->home, address, size);
	if (!b)
		return NULL;
	b->range = r;
	if (before)
		TAILQ_INSERT_AFTER(&r->blocks, before, b, beside);
	else
		TAILQ_INSERT_HEAD(&r->blocks, b, beside);
	pool_put_unused(b);
	return b;
}

/* Cuts a block in two; the second, free one keeps the mark, too. Without host memory nothing is cut. */
static struct pool_block *cut(struct pool_block *b, uint64_t size)
{
	uint64_t whole = b->size;
	b->size = size;
	struct pool_block *rest = add_free(b->pool, b->range, b, b->address + size, whole - size);
	if (!rest) {
		b->size = whole;
		return NULL;
	}
	rest->mark = b->mark;
	if (rest->mark)
		rest->mark->users++;
	return rest;
}

void pool_range_cut(struct pool_block *b, uint64_t size)
{
	if (size < b->size)
		cut(b, size);
}

static bool is_free(const struct pool_block *b)
{
	return b && !b->live;
}

static bool touch(const struct pool_block *a, const struct pool_block *b)
{
	return is_free(a) && is_free(b) && a->address + a->size == b->address;
}

/* Whether `b`'s mark, the newer one, is good for both. Handles do not tell: a new stream may have that of one that has
 * ended. */
static bool is_behind(const struct pool_block *b, const struct pool_block *other)
{
	const struct pool_mark *m = b->mark, *o = other->mark;
	return m == o || (m && o && o->event && m->context == o->context &&
	                  sim_event_is_on(look.sim, m->context, m->stream, o->event));
}

static void swallow_next(struct pool_block *b, struct pool_block *next)
{
	uint64_t size = next->size;
	remove_block(next);
	b->size += size;
}

static void drop_if_passed(struct pool_block *b)
{
	if (b && is_free(b) && b->mark && pool_has_passed(b))
		pool_drop_mark(b);
}

/* `b` is what was freed last. */
void pool_range_join(struct pool_block *b)
{
	struct pool_block *next = TAILQ_NEXT(b, beside), *before = TAILQ_PREV(b, places, beside);
	if (b->pool->reuse[OPPORTUNISTIC]) {
		drop_if_passed(b);
		drop_if_passed(next);
		drop_if_passed(before);
	}
	if (touch(b, next) && is_behind(b, next))
		swallow_next(b, next);
	if (!touch(before, b) || !is_behind(b, before))
		return;
	pool_drop_mark(before);
	before->mark = b->mark;
	b->mark = NULL;
	swallow_next(before, b);
}

/* ---- taking ------------------------------------------------------------ */

/* The first place of so many bytes without memory, or with free blocks that serve the stream; *before: the block in
 * front of it, or NULL. 0: there is none. */
static trz_addr find_place(struct pool_range *r, const struct wish *w, struct pool_block **before)
{
	trz_addr start = r->start;
	struct pool_block *b;
	*before = NULL;
	TAILQ_FOREACH(b, &r->blocks, beside) {
		if (is_free(b) && pool_serves(b, w))
			continue;
		if (b->address - start >= w->room)
			return start;
		start = b->address + b->size;
		*before = b;
	}
	return chunk_start(r, r->chunks) - start >= w->room ? start : 0;
}

static void unlay(struct look_pool *pool, struct pool_range *r, uint64_t chunk)
{
	sim_plain_lift(look.sim, r->home, chunk_start(r, chunk));
	r->laid[chunk] = false;
	pool->reserved -= POOL_CHUNK;
}

/* Gives a chunk memory, and a free block; *before: the last block below it, or NULL, and then that one. */
static bool lay(struct look_pool *pool, struct pool_range *r, uint64_t chunk, struct pool_block **before)
{
	trz_addr start = chunk_start(r, chunk);
	bool beyond = pool->most && pool->reserved + POOL_CHUNK > align_up(pool->most, POOL_CHUNK);
	if (beyond || sim_plain_lay(look.sim, r->home, start, POOL_CHUNK) != TRZ_OK)
		return false;
	r->laid[chunk] = true;
	pool_grow(pool, POOL_CHUNK);
	struct pool_block *next = *before ? TAILQ_NEXT(*before, beside) : TAILQ_FIRST(&r->blocks);
	while (next && next->address < start) {
		*before = next;
		next = TAILQ_NEXT(next, beside);
	}
	struct pool_block *b = add_free(pool, r, *before, start, POOL_CHUNK);
	if (!b) {
		unlay(pool, r, chunk);
		return false;
	}
	*before = b;
	return true;
}

/* Makes one block of the free ones at a place; false: no host memory. */
static struct pool_block *carve(struct pool_range *r, struct pool_block *before, trz_addr start, uint64_t size)
{
	struct pool_block *b = before ? TAILQ_NEXT(before, beside) : TAILQ_FIRST(&r->blocks);
	while (b->address + b->size <= start)
		b = TAILQ_NEXT(b, beside);
	if (b->address < start && !(b = cut(b, start - b->address)))
		return NULL;
	struct pool_block *last = b;
	uint64_t before_last = 0;
	for (; before_last + last->size < size; last = TAILQ_NEXT(last, beside))
		before_last += last->size;
	if (before_last + last->size > size && !cut(last, size - before_last))
		return NULL;
	pool_drop_mark(b);
	while (b->size < size)
		swallow_next(b, TAILQ_NEXT(b, beside));
	return b;
}

struct pool_block *pool_range_take(const struct wish *w)
{
	struct pool_block *before, *below;
	struct pool_range *r = range_of(w->pool, w->home);
	trz_addr start = r ? find_place(r, w, &before) : 0;
	if (!start)
		return NULL;
	uint64_t had = w->pool->reserved, high = w->pool->reserved_high;
	bool enough = true;
	below = before;
	for (uint64_t i = chunk_of(r, start); enough && i <= chunk_of(r, start + w->room - 1); i++)
		enough = r->laid[i] || lay(w->pool, r, i, &below);
	struct pool_block *b = enough ? carve(r, before, start, w->room) : NULL;
	if (b) {
		pool_pull_unused(b);
	} else {
		pool_range_trim(w->pool, had);
		w->pool->reserved_high = high;
	}
	return b;
}

/* ---- giving back ------------------------------------------------------------ */

/* Returns the chunks that lie wholly in a free block, as far as needed; the parts around them stay. */
static bool trim_block(struct pool_block *b, uint64_t keep)
{
	struct look_pool *pool = b->pool;
	struct pool_range *r = b->range;
	uint64_t needed = (pool->reserved - keep + POOL_CHUNK - 1) >> POOL_CHUNK_SHIFT;
	uint64_t first = chunk_of(r, b->address + POOL_CHUNK - 1), end = chunk_of(r, b->address + b->size);
	if (first >= end)
		return false;
	end = min_u64(end, first + needed);
	trz_addr low = chunk_start(r, first), high = chunk_start(r, end);
	if (high < b->address + b->size && !cut(b, high - b->address))
		return false;
	for (uint64_t i = first; i < end; i++)
		unlay(pool, r, i);
	if (b->address < low)
		b->size = low - b->address;
	else
		remove_block(b);
	return true;
}

bool pool_range_settle(struct look_pool *pool)
{
	struct pool_range *r;
	struct pool_block *b, *next;
	bool some = false;
	LIST_FOREACH(r, &pool->ranges, link) {
		TAILQ_FOREACH(b, &r->blocks, beside)
			drop_if_passed(b);
		TAILQ_FOREACH(b, &r->blocks, beside)
			while ((next = TAILQ_NEXT(b, beside)) && touch(b, next) && !b->mark && !next->mark) {
				swallow_next(b, next);
				some = true;
			}
	}
	return some;
}

bool pool_range_trim(struct look_pool *pool, uint64_t keep)
{
	struct pool_range *r;
	struct pool_block *b, *next;
	bool some = false;
	pool_range_settle(pool);
	LIST_FOREACH(r, &pool->ranges, link)
		for (b = TAILQ_FIRST(&r->blocks); b; b = next) {
			next = TAILQ_NEXT(b, beside);  /* a rest, which trim_block makes, has no whole chunk left to give */
			if (is_free(b) && !b->mark && pool->reserved > keep)
				some = trim_block(b, keep) || some;
		}
	return some;
}

void pool_ranges_end(struct look_pool *pool, trz_context context)
{
	struct pool_range *r, *next;
	for (r = LIST_FIRST(&pool->ranges); r; r = next) {
		next = LIST_NEXT(r, link);
		if (context ? r->home != context : !TAILQ_EMPTY(&r->blocks))
			continue;
		while (!TAILQ_EMPTY(&r->blocks))
			remove_block(TAILQ_FIRST(&r->blocks));
		for (uint64_t i = 0; i < r->chunks; i++)
			pool->reserved -= r->laid[i] ? POOL_CHUNK : 0;
		if (!context)
			sim_plain_unrange(look.sim, r->start);
		LIST_REMOVE(r, link);
		free(r);
	}
}
