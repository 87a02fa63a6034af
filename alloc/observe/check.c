/* SPDX-License-Identifier: Apache-2.0
 *
 * Verifies a heap by walking all of it and adding everything up again. Each failure names the invariant by its
 * number in docs/invariants.md.
 */
#include "observe/check.h"

#include <inttypes.h>

#include "error.h"
#include "heap/ledger.h"

/* The walk's sums. */
struct sums {
	uint64_t reserved[KINDS], segments[KINDS];
	uint64_t allocations[KINDS], allocated[KINDS], requested[KINDS];
	uint64_t pending[KINDS], pending_count[KINDS];
	uint64_t rounding, cached, free_slots, idle, lost, classic, zombie, aliases;
	uint64_t dedicated, exported, imported;
	unsigned growing;            /* windows in which a lane grows */
	struct sites *sites;
};

#define CORRUPT(invariant, ...) trz_fail(TRZ_ERROR_CORRUPT, "invariant " invariant ": " __VA_ARGS__)

static void add_held(struct sums *sum, enum kind kind, uint64_t requested, uint64_t occupied)
{
	sum->allocations[kind]++;
	sum->requested[kind] += requested;
	sum->allocated[kind] += align_up(requested, UNIT);
	sum->rounding += occupied - requested;
}

static void add_pending(struct sums *sum, enum kind kind, uint64_t count, uint64_t occupied)
{
	sum->pending_count[kind] += count;
	sum->pending[kind] += occupied;
}

static trz_status check_slab(const trz_heap *h, const struct block *b, struct sums *sum)
{
	const struct slab *s = b->slab;
	const struct size_class *c = slab_class(s);
	if (s->block != b || s->base != b->address || b->size != c->slab_size || s->home != b->home)
		return CORRUPT("I5", "the slab at %#" PRIx64 " and its block disagree", b->address);
	if (s->free & s->pending || (s->free | s->pending | s->sampled) & ~slab_all_slots(s))
		return CORRUPT("I5", "the slab at %#" PRIx64 " has a slot that is free and pending, or beyond its end",
		               b->address);
	if (s->sampled & (s->free | s->pending))
		return CORRUPT("I12", "the slab at %#" PRIx64 " has a slot that nobody holds, but a call site counts",
		               b->address);
	bool listed = false;
	for (const struct slab *i = s->home->bins[s->size_class].first; i && !listed; i = i->next)
		listed = i == s;
	if (b->address % GRANULE + b->size > GRANULE)
		return CORRUPT("I5", "the slab at %#" PRIx64 " lies across two granules", b->address);
	if (listed != (s->free != 0))
		return CORRUPT("I5", "the slab at %#" PRIx64 " is %s its bin, with %s free slots", b->address,
		               listed ? "in" : "not in", s->free ? "some" : "no");
	for (uint64_t offset = 0; offset < b->size; offset += CELL)
		if (pagemap_get(&h->pagemap, b->address + offset) != ((pagemap_entry)s | 1))
			return CORRUPT("I6", "the index does not lead to the slab at %#" PRIx64, b->address);
	for (unsigned slot = 0; slot < c->slots; slot++) {
		uint64_t bit = (uint64_t)1 << slot;
		if (!((s->free | s->pending) & bit))
			add_held(sum, SMALL, c->slot_size - s->unused[slot], c->slot_size);
		if (s->sampled & bit)
			sites_walk_add(sum->sites, s->sites[slot], sites_sampled(c->slot_size - s->unused[slot]));
	}
	uint64_t free_slots = (uint64_t)__builtin_popcountll(s->free);
	uint64_t pending_slots = (uint64_t)__builtin_popcountll(s->pending);
	add_pending(sum, SMALL, pending_slots, pending_slots * c->slot_size);
	sum->free_slots += free_slots * c->slot_size + c->slab_size - (uint64_t)c->slots * c->slot_size;
	return TRZ_OK;
}

/* Every byte of a block that has memory lies on tiles that are owned there (law L1); a hole on none. */
static trz_status check_memory(const struct window *w, const struct block *b)
{
	if (w->classic)
		return TRZ_OK;
	for (trz_addr a = align_down(b->address, GRANULE); a < block_end(b); a += GRANULE) {
		const struct place *p = window_at(w, a);
		bool owned = p && !p->tile->zombie && tile_is_owned_at(p);
		if (owned == (b->state == BLOCK_HOLE))
			return CORRUPT("I1", "%#" PRIx64 ": the block there %s, its tile is %s", a,
			               owned ? "is a hole" : "has memory", owned ? "owned" : "owned elsewhere or gone");
		if (p && place_size(p) != p->tile->size)
			return CORRUPT("I1", "%#" PRIx64 ": a mapping is not as long as its tile", a);
	}
	return TRZ_OK;
}

static bool has_tile(const struct block *b)
{
	const struct window *w = b->window;
	trz_addr cursor = b->address;
	return w->classic ? b->size == w->size : window_next_owned(w, &cursor, block_end(b)) != NULL;
}

static trz_status check_block(const trz_heap *h, const struct window *w, const struct block *b, struct sums *sum)
{
	pagemap_entry entry = pagemap_get(&h->pagemap, b->address);
	switch ((enum block_state)b->state) {
	case BLOCK_FREE:
		sum->cached += b->size;
		if (b->home->pool != w->pool)
			return CORRUPT("I3", "the free block at %#" PRIx64 " is another pool's than its window", b->address);
		if (b->sequence > b->home->stream->tickets.newest)
			return CORRUPT("I7", "the free block at %#" PRIx64 " has a ticket from the future", b->address);
		if (b->tileless && has_tile(b))
			return CORRUPT("I3", "the free block at %#" PRIx64 " is marked as having no whole tile", b->address);
		break;
	case BLOCK_LIVE:
		if (entry != (pagemap_entry)b)
			return CORRUPT("I6", "the index does not lead to the block at %#" PRIx64, b->address);
		if (b->requested > b->size || (b->size <= CELL && !h->dedicates))
			return CORRUPT("I4", "the block at %#" PRIx64 " is too small", b->address);
		add_held(sum, (enum kind)b->kind, b->requested, b->size);
		if (b->site)
			sites_walk_add(sum->sites, b->site, sites_whole(b->requested));
		break;
	case BLOCK_SLAB:
		if (check_slab(h, b, sum) != TRZ_OK)
			return TRZ_ERROR_CORRUPT;
		break;
	case BLOCK_PENDING:
	case BLOCK_ENDED:
		add_pending(sum, (enum kind)b->kind, 1, b->size);
		break;
	case BLOCK_BUSY:
		sum->idle += b->size;
		break;
	case BLOCK_HOLE:
		break;
	}
	return check_memory(w, b);
}

/* A block of memory that serves once lies in one tile, unless several beside each other are free. */
static trz_status check_once(const struct window *w, const struct block *b)
{
	const struct place *p = w->classic ? NULL : window_at(w, b->address);
	if (p && b->state != BLOCK_FREE && block_end(b) > place_end(p))
		return CORRUPT("I10", "the block at %#" PRIx64 " is more than one tile", b->address);
	return TRZ_OK;
}

/* A dedicated block is one tile, which is mapped nowhere else, and belongs to its own sort of lane. */
static trz_status check_dedicated(const struct window *w, const struct block *b, struct sums *sum)
{
	if (b->exports && (b->state == BLOCK_LIVE || b->state == BLOCK_PENDING || b->state == BLOCK_ENDED))
		sum->exported += window_at(w, b->address)->tile->size;
	else if (b->exports)
		return CORRUPT("I10", "the block at %#" PRIx64 " is exported, but neither live nor pending", b->address);
	if (b->exports && !w->dedicated)
		return CORRUPT("I10", "the block at %#" PRIx64 " is exported, but packed with others", b->address);
	if (b->home && b->home->dedicated != w->dedicated)
		return CORRUPT("I10", "the block at %#" PRIx64 " is of another sort than its lane", b->address);
	if (!w->dedicated || b->state == BLOCK_HOLE)
		return TRZ_OK;
	if (w->dedicated & DEDICATED_ONCE)
		return check_once(w, b);
	const struct place *p = window_at(w, b->address);
	if (p->address != b->address || p->tile->size != b->size || p->tile->places->next)
		return CORRUPT("I10", "the block at %#" PRIx64 " is not one tile, mapped once", b->address);
	return TRZ_OK;
}

static trz_status check_neighbours(const struct block *b, const struct block *prev, trz_addr expected)
{
	if (b->address != expected || b->prev != prev || b->size == 0 || b->size % UNIT)
		return CORRUPT("I2", "the block at %#" PRIx64 " does not follow its neighbour", b->address);
	if (prev && prev->state == b->state &&
	    (b->state == BLOCK_HOLE || (b->state == BLOCK_FREE && prev->home == b->home && !lane_keeps_dedicated(b->home))))
		return CORRUPT("I3", "the block at %#" PRIx64 " should have been joined with the one before", b->address);
	return TRZ_OK;
}

static trz_status check_window(const trz_heap *h, const struct window *w, struct sums *sum)
{
	trz_addr expected = w->base;
	const struct block *prev = NULL;
	for (const struct block *b = w->blocks.first; b; prev = b, b = b->next) {
		if (check_neighbours(b, prev, expected) != TRZ_OK || check_block(h, w, b, sum) != TRZ_OK ||
		    check_dedicated(w, b, sum) != TRZ_OK)
			return TRZ_ERROR_CORRUPT;
		expected = block_end(b);
	}
	if (expected != w->top || w->blocks.last != prev)
		return CORRUPT("I2", "the blocks of the window at %#" PRIx64 " end at %#" PRIx64 ", not at %#" PRIx64,
		               w->base, expected, w->top);
	return TRZ_OK;
}

static trz_status check_seat(const struct window *w, const struct place *p)
{
	const struct place *seat = p->tile->seat;
	bool visits = w->view && seat && seat != p;
	if (seat ? seat->tile != p->tile || (seat != p && !visits) : !p->tile->zombie)
		return CORRUPT("I11", "the tile at %#" PRIx64 " has its seat elsewhere, without being in a view", p->address);
	if (visits && !p->tile->seat_of)
		return CORRUPT("I11", "the tile at %#" PRIx64 " visits a view, of unknown memory", p->address);
	return TRZ_OK;
}

static trz_status add_tiles(const trz_heap *h, const struct window *w, struct sums *sum)
{
	if (w->classic) {
		sum->reserved[w->kind] += w->classic->size;
		sum->classic += w->classic->size;
		sum->segments[w->kind]++;
		sum->lost += w->classic->size - w->size;
		return TRZ_OK;
	}
	for (trz_addr a = w->base; a < w->top; a += GRANULE) {
		const struct place *p = window_at(w, a);
		if (!p || p->address != a)
			continue;
		if (p->leaving && !p->tile->pins && !h->closing)
			return CORRUPT("I13", "the mapping at %#" PRIx64 " was to go, has stayed, and is not used again", a);
		if (!tile_is_owned_at(p)) {
			sum->aliases++;
			continue;
		}
		if (check_seat(w, p) != TRZ_OK)
			return TRZ_ERROR_CORRUPT;
		sum->reserved[p->tile->kind] += p->tile->size;
		sum->dedicated += p->tile->dedicated ? p->tile->size : 0;
		sum->segments[p->tile->kind]++;
		sum->exported += p->tile->exports ? p->tile->size : 0;
		if (p->tile->exports && (p->tile->exported_at != p->address || p->tile->dedicated || p->tile->zombie))
			return CORRUPT("I10", "the tile at %#" PRIx64 " is exported, but does not stay at %#" PRIx64, p->address,
			               p->tile->exported_at);
	}
	return TRZ_OK;
}

/* Adds all zombies; those that are mapped nowhere also to what is reserved, since no window has them. */
static void add_zombies(const trz_heap *h, struct sums *sum)
{
	for (const struct tile *tile = h->tiles.zombies; tile; tile = tile->next) {
		sum->zombie += tile->size;
		if (tile->places)
			continue;
		sum->reserved[tile->kind] += tile->size;
		sum->dedicated += tile->dedicated ? tile->size : 0;
		sum->segments[tile->kind]++;
	}
}

static trz_status expect(const char *what, uint64_t counter_value, uint64_t sum)
{
	if (counter_value == sum)
		return TRZ_OK;
	return CORRUPT("I8", "the counter of %s says %" PRIu64 ", the heap holds %" PRIu64, what, counter_value, sum);
}

#define EXPECT(what, value, sum)                                                                               \
	if (expect(what, value, sum) != TRZ_OK)                                                                 \
		return TRZ_ERROR_CORRUPT;

static uint64_t listed_bytes(const trz_heap *h)
{
	uint64_t bytes = 0;
	for (int i = 0; i < EXPORTED_LISTS; i++)
		for (const struct tile *tile = h->exported[i]; tile; tile = tile->exported_next)
			bytes += tile->size;
	return bytes;
}

static trz_status check_counters(const trz_heap *h, const struct counters *c, const struct sums *sum)
{
	for (int kind = 0; kind < KINDS; kind++) {
		EXPECT("reserved bytes", flow_current(&c->reserved_bytes, kind), sum->reserved[kind]);
		EXPECT("segments", flow_current(&c->segment, kind), sum->segments[kind]);
		EXPECT("allocations", flow_current(&c->allocation, kind), sum->allocations[kind]);
		EXPECT("allocated bytes", flow_current(&c->allocated_bytes, kind), sum->allocated[kind]);
		EXPECT("requested bytes", flow_current(&c->requested_bytes, kind), sum->requested[kind]);
		EXPECT("pending bytes of a kind", counter_get(&c->active_bytes.pending[kind]), sum->pending[kind]);
		EXPECT("pending allocations of a kind", counter_get(&c->active.pending[kind]), sum->pending_count[kind]);
	}
	EXPECT("rounding", counters_rounding(c), sum->rounding);
	EXPECT("pending bytes", counter_get(&c->pending_bytes.current), sum->pending[SMALL] + sum->pending[LARGE]);
	EXPECT("pending allocations", counter_get(&c->pending.current),
	       sum->pending_count[SMALL] + sum->pending_count[LARGE]);
	EXPECT("cached bytes", counter_get(&c->cached_bytes.current), sum->cached);
	EXPECT("free slots", counters_free_slots(c), sum->free_slots);
	EXPECT("idle bytes", counter_get(&c->idle_bytes.current), sum->idle + sum->lost);
	EXPECT("zombie bytes", counter_get(&c->zombie_bytes.current), sum->zombie);
	EXPECT("classic bytes", counter_get(&c->classic_bytes.current), sum->classic);
	EXPECT("aliases", counter_get(&c->alias.current), sum->aliases);
	EXPECT("exported bytes", counter_get(&c->exported_bytes.current), sum->exported);
	EXPECT("bytes that are listed as exported", listed_bytes(h), sum->exported);
	EXPECT("imported bytes", counter_get(&c->imported_bytes.current), sum->imported);
	EXPECT("dedicated memory", counter_get(&c->dedicated_bytes.current), sum->dedicated);
	uint64_t parts = sum->requested[SMALL] + sum->requested[LARGE] + sum->rounding + sum->pending[SMALL] +
	                 sum->pending[LARGE] + sum->cached + sum->free_slots + sum->idle + sum->lost + sum->zombie;
	if (parts != sum->reserved[SMALL] + sum->reserved[LARGE])
		return CORRUPT("I9", "%" PRIu64 " bytes are reserved, their owners hold %" PRIu64,
		               sum->reserved[SMALL] + sum->reserved[LARGE], parts);
	return TRZ_OK;
}

/* All slots are in: every limit is what is held, and the sums are right; none exceeds a peak. */
static trz_status check_ledger(const trz_heap *h, const struct counters *c)
{
	const struct flow *const flows[MEASURES] = {&c->allocation, &c->allocated_bytes, &c->requested_bytes};
	for (enum measure m = 0; m < MEASURES; m++) {
		uint64_t held = 0;
		for (unsigned i = 0; i < h->streams.count; i++) {
			const struct slots *o = &h->streams.list[i]->slots;
			held += slots_held(o, m);
			EXPECT("a stream's limit", o->limit[m], slots_held(o, m));
		}
		EXPECT("the limits of all streams", h->limits[m], held);
		if (flow_all(flows[m]) > counter_get(&flows[m]->peak[2]))
			return CORRUPT("I8", "callers hold more than the peak says");
	}
	return TRZ_OK;
}

/* Each import has a window of its own, with one block; over a part of it, or with none, if the import failed. */
static trz_status check_imports(const trz_heap *h, struct sums *sum)
{
	for (const struct window *w = h->imports; w; w = w->next) {
		const struct block *b = w->blocks.first;
		for (const struct tile *tile = w->foreign; tile; tile = tile->next)
			sum->imported += tile->size;
		if (!b)
			continue;
		bool given = b->state == BLOCK_PENDING || b->state == BLOCK_ENDED;
		if (b->next || b->size != w->top - w->base || (b->state == BLOCK_LIVE ? b->size != w->size : !given))
			return CORRUPT("I10", "the import at %#" PRIx64 " is not one block, held or given back", w->base);
		if (b->state == BLOCK_LIVE && pagemap_get(&h->pagemap, b->address) != (pagemap_entry)b)
			return CORRUPT("I6", "the index does not lead to the import at %#" PRIx64, b->address);
	}
	return TRZ_OK;
}

static trz_status check_stream(const struct stream *s)
{
	const struct tickets *t = &s->tickets;
	if (t->passed > t->recorded || t->recorded > t->newest || t->count > TICKET_QUEUE)
		return CORRUPT("I7", "the tickets of stream %" PRIu64 " are out of order", s->id);
	return TRZ_OK;
}

static trz_status check_lane(const struct lane *l, struct sums *sum)
{
	for (int part = 0; part < PARTS; part++) {
		if (l->window[part] && !l->window[part]->grows)
			return CORRUPT("I2", "the window at %#" PRIx64 " does not know that a lane grows in it",
			               l->window[part]->base);
		sum->growing += l->window[part] != NULL;
		const char *wrong = fit_check(&l->fit[part]);
		if (wrong)
			return CORRUPT("I3", "stream %" PRIu64 ": %s", l->stream->id, wrong);
	}
	for (unsigned c = 0; c < CLASS_COUNT; c++) {
		uint32_t length = 0;
		for (const struct slab *i = l->bins[c].first; i; i = i->next) {
			length++;
			if ((!i->next && i != l->bins[c].last) || (i->next && i->free == slab_all_slots(i)))
				return CORRUPT("I5", "stream %" PRIu64 ": a bin's last slab is not the end of its list, or an earlier "
				               "one is wholly free", l->stream->id);
		}
		if (length != l->bins[c].length)
			return CORRUPT("I5", "stream %" PRIu64 ": a bin's length is not its number of slabs", l->stream->id);
	}
	return TRZ_OK;
}

static trz_status check_sites(const struct sites *s)
{
	const char *wrong = sites_walk_end(s);
	return wrong ? CORRUPT("I12", "%s", wrong) : TRZ_OK;
}

static trz_status check_all(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	HEAP_LOCKED(h);
	struct counters counters;
	struct sums sum = {.sites = &h->sites};
	uint64_t indexed = 0;
	sites_walk_begin(&h->sites);
	for (unsigned i = 0; i < h->streams.count; i++)
		if (check_stream(h->streams.list[i]) != TRZ_OK)
			return TRZ_ERROR_CORRUPT;
	for (const struct lane *l = h->streams.lanes.first; l; l = l->next) {
		if (check_lane(l, &sum) != TRZ_OK)
			return TRZ_ERROR_CORRUPT;
		indexed += lane_free_bytes(l);
	}
	for (int kind = 0; kind < KINDS; kind++)
		for (const struct window *w = h->windows[kind]; w; w = w->next) {
			if (check_window(h, w, &sum) != TRZ_OK || add_tiles(h, w, &sum) != TRZ_OK)
				return TRZ_ERROR_CORRUPT;
			sum.growing -= w->grows;
		}
	if (sum.growing)
		return CORRUPT("I2", "a window is said to grow where no lane grows in it");
	add_zombies(h, &sum);
	if (check_imports(h, &sum) != TRZ_OK)
		return TRZ_ERROR_CORRUPT;
	if (indexed != sum.cached)
		return CORRUPT("I3", "%" PRIu64 " bytes are indexed as free, %" PRIu64 " are", indexed, sum.cached);
	heap_read_counters(h, &counters);
	if (check_sites(&h->sites) != TRZ_OK || check_ledger(h, &counters) != TRZ_OK)
		return TRZ_ERROR_CORRUPT;
	return check_counters(h, &counters, &sum);
}

trz_status check_heap(trz_heap *h)
{
	heap_take_growth(h);
	heap_lock(h);
	heap_call_all_in_locked(h);
	trz_status status = check_all(h);
	SPINLOCK_FORGET();
	heap_unlock(h);
	heap_give_growth(h);
	return status;
}
