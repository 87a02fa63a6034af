/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocation grows into the free block behind it: its own stream's, whose order is the same, or one that has
 * passed. At the end of a window more can be laid first.
 */
#include "stretch.h"

#include "account.h"
#include "check.h"
#include "grow.h"
#include "notice.h"
#include "serve.h"

static void note_locked(trz_heap *h, const struct lane *l, trz_addr address, uint64_t size, uint64_t grown)
{
	ACCOUNT_NOTE(h, HISTORY_FREE, l, address, size);
	ACCOUNT_NOTE(h, HISTORY_ALLOC, l, address, grown);
	counter_add(&h->counters.path_grow, 1);
}

static trz_status stretch_slot_locked(trz_heap *h, struct slab *s, trz_addr address, uint64_t size)
{
	uint64_t occupied = slab_class(s)->slot_size;
	unsigned slot = size_class_slot(slab_class(s), address - s->base);
	if (slot >= slab_class(s)->slots || slab_slot_address(s, slot) != address || (s->free | s->pending) >> slot & 1)
		return TRZ_ERROR_UNKNOWN_POINTER;
	uint64_t requested = occupied - s->slack[slot];
	if (size <= requested)
		return TRZ_OK;
	if (size > occupied)
		return TRZ_ERROR_NO_ROOM;
	s->slack[slot] = (uint16_t)(occupied - size);
	account_grow(h, SLOTS, SMALL, requested, size, 0);
	note_locked(h, s->home, address, requested, size);
	return TRZ_OK;
}

/* The block is long enough now. `added`: bytes that it has got. */
static trz_status settle_locked(trz_heap *h, struct block *b, uint64_t size, uint64_t added)
{
	uint64_t requested = b->requested;
	b->requested = size;
	b->home->held += added;
	b->home->held_peak = max_u64(b->home->held_peak, b->home->held);
	if (b->kind == LARGE)
		counter_add(&h->burst_bytes, added);
	account_grow(h, BLOCKS, (enum kind)b->kind, requested, size, added);
	note_locked(h, b->home, b->address, requested, size);
	return TRZ_OK;
}

/* Bytes that the block lacks. */
static uint64_t missing(const struct block *b, uint64_t size)
{
	uint64_t occupied = b->kind == SMALL ? serve_cells(size) : account_rounded(size);
	return occupied > b->size ? occupied - b->size : 0;
}

static struct block *free_behind(const struct block *b)
{
	return b->next && b->next->state == BLOCK_FREE && b->next->home == b->home ? b->next : NULL;
}

/* Large memory has windows of its own. */
static bool is_too_large(const trz_heap *h, const struct block *b, uint64_t size)
{
	return b->kind == SMALL && size > h->config.medium_limit;
}

/* Memory that shares its tile with nothing; what lies behind it is not to be used for it. With a debugging option the
 * addresses of what has been freed never come again. */
static bool stands_alone(const trz_heap *h, const struct block *b)
{
	return b->window->apart || h->isolated;
}

/* What needs no growth lock. NO_ROOM: perhaps with it. */
static trz_status stretch_block_locked(trz_heap *h, struct block *b, uint64_t size)
{
	uint64_t need = missing(b, size);
	struct block *behind = free_behind(b);
	if (size <= b->requested)
		return TRZ_OK;
	if (b->window->foreign || (need && (stands_alone(h, b) || is_too_large(h, b, size))))
		return TRZ_ERROR_NO_ROOM;
	if (!need)
		return settle_locked(h, b, size, 0);
	if (!behind || behind->size < need)
		return TRZ_ERROR_NO_ROOM;
	if (!node_pool_reserve(&h->blocks, 2))
		return TRZ_ERROR_HOST_MEMORY;
	need = heap_block_size((enum kind)b->kind, need, behind->size);
	heap_cut_block_locked(h, behind, behind->address, need);
	block_absorb_next(&h->blocks, b);
	return settle_locked(h, b, size, need);
}

static trz_status stretch_locked(trz_heap *h, trz_addr address, uint64_t size)
{
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	if (pagemap_is_slab(entry))
		return stretch_slot_locked(h, pagemap_slab(entry), address, size);
	struct block *b = serve_block_locked(h, address);
	return b ? stretch_block_locked(h, b, size) : TRZ_ERROR_UNKNOWN_POINTER;
}

/* ---- with the growth lock ---- */

/* What lies behind, as far as it is free and has passed, becomes the block's lane's, and joins. */
static void adopt_locked(trz_heap *h, struct block *b)
{
	for (struct block *n = b->next; n && n->state == BLOCK_FREE; n = n->next) {
		if (n->home == b->home)
			continue;
		if (!ticket_passed(&n->home->stream->tickets, n->sequence) || n->home->pool != b->home->pool)
			return;
		fit_remove(&n->home->fit[n->kind], n);
		n->home = b->home;
		heap_free_block_locked(h, n, 0);
		n = b->next;  /* it may have joined with the one before */
	}
}

/* Takes the free tail behind a block away from its index. false: something else lies between it and the end of what
 * is laid. */
static bool take_tail_locked(trz_heap *h, struct block *b, struct block **tail)
{
	*tail = free_behind(b);
	if ((*tail ? *tail : b)->next)
		return false;
	if (*tail) {
		fit_remove(&b->home->fit[b->kind], *tail);
		(*tail)->state = BLOCK_BUSY;
		level_add(&h->counters.idle_bytes, (*tail)->size);
	}
	return true;
}

/* Whether work may be enqueued in the order of the lane's stream: it is alive, reached from this thread, and not being
 * captured, unless the memory is a pool's. */
static trz_status may_grow(trz_heap *h, const struct lane *l)
{
	struct stream *s = l->stream;
	trz_capture_status capture = TRZ_CAPTURE_NONE;
	if (!heap_reaches_stream(h, s))
		return TRZ_ERROR_NO_ROOM;
	if (s->handle == NULL)
		return TRZ_OK;
	trz_status status = driver_stream_capture(&h->driver, s->handle, &capture, NULL);
	if (status != TRZ_OK)
		return status;
	atomic_store_explicit(&s->captured, capture != TRZ_CAPTURE_NONE, memory_order_relaxed);
	return capture == TRZ_CAPTURE_NONE || l->pool ? TRZ_OK : TRZ_ERROR_CAPTURE;
}

/* Joins what has been laid, busy and counted as idle, to the block before it, if that is there still. */
static trz_status join_locked(trz_heap *h, trz_addr address, struct block *laid, uint64_t size)
{
	struct block *b = serve_block_locked(h, address);
	level_sub(&h->counters.idle_bytes, laid->size);
	heap_free_block_locked(h, laid, laid->sequence);
	return b ? stretch_block_locked(h, b, size) : TRZ_ERROR_UNKNOWN_POINTER;
}

static trz_status lay_behind(trz_heap *h, trz_addr address, uint64_t size)
{
	struct block *tail = NULL, *laid;
	heap_lock(h);
	trz_status status = stretch_locked(h, address, size);  /* others may have freed what lies behind meanwhile */
	if (status != TRZ_ERROR_NO_ROOM) {
		heap_unlock(h);
		return status;
	}
	struct block *b = serve_block_locked(h, address);
	uint64_t need = b ? missing(b, size) : 0;
	bool at_end = b && need && !b->window->classic && !stands_alone(h, b) && !b->window->foreign &&
	              !is_too_large(h, b, size) && take_tail_locked(h, b, &tail);
	struct window *w = at_end ? b->window : NULL;
	struct lane *l = at_end ? b->home : NULL;
	need -= tail ? min_u64(need, tail->size) : 0;
	heap_unlock(h);
	if (!at_end)
		return TRZ_ERROR_NO_ROOM;
	status = grow_behind(h, l, w, tail, need, &laid);
	if (status != TRZ_OK)
		return status;
	notice_mapped(h, laid);
	heap_lock(h);
	status = join_locked(h, address, laid, size);
	heap_unlock(h);
	return status;
}

/* An allocation outlives its pool, and growth polls: the pool, if there is one, is held so that its lanes stay. */
static struct pool *hold_pool_locked(const struct lane *l)
{
	struct pool *p = l ? l->pool : NULL;
	if (p)
		p->users++;
	return p;
}

/* Where that was the last reference a later poll sees to the end. */
static void let_go(trz_heap *h, struct pool *p)
{
	heap_lock(h);
	if (p)
		p->users--;
	heap_unlock(h);
}

static trz_status stretch_slow(trz_heap *h, trz_addr address, uint64_t size)
{
	heap_poll(h);
	heap_lock(h);
	struct block *b = serve_block_locked(h, address);
	struct lane *l = b && !b->window->foreign ? b->home : NULL;
	struct pool *p = hold_pool_locked(l);
	if (l && !stands_alone(h, b))
		adopt_locked(h, b);
	trz_status status = stretch_locked(h, address, size);
	heap_unlock(h);
	if (status == TRZ_ERROR_NO_ROOM && l) {
		status = may_grow(h, l);
		if (status == TRZ_OK)
			status = lay_behind(h, address, size);
	}
	let_go(h, p);
	return status;
}

trz_status stretch(trz_heap *h, trz_addr address, uint64_t size)
{
	heap_lock(h);
	trz_status status = stretch_locked(h, address, size);
	heap_unlock(h);
	if (status != TRZ_ERROR_NO_ROOM)
		return status;
	trz_capture_mode mode = heap_lock_growth(h);
	status = stretch_slow(h, address, size);
	heap_unlock_growth(h, mode);
	CHECK_SLOW_PATH(h);
	return status;
}
