/* SPDX-License-Identifier: Apache-2.0
 *
 * Serves requests from tiles of their own: from a free tile that is not much too large, else from another stream's
 * whose ticket has passed, else from a new tile.
 */
#include "serve/dedicated.h"

#include "error.h"
#include "heap/carve.h"
#include "heap/poll.h"
#include "observe/account.h"
#include "observe/check.h"
#include "observe/dump.h"
#include "observe/notice.h"
#include "serve/postmortem.h"
#include "serve/serve.h"
#include "supply/await.h"
#include "supply/extent.h"
#include "supply/oom.h"
#include "supply/reclaim.h"
#include "supply/upkeep.h"

enum { WASTE = 8 };  /* a free tile may be longer than the request by one part in this many */

/* ---- what is asked for ---- */

static trz_status lacks(const trz_heap *h, const char *what)
{
	return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "device %d does not support %s: allocate without that flag",
	                h->driver.device, what);
}

trz_status dedicated_sort(const trz_heap *h, unsigned flags, unsigned *dedicated)
{
	const unsigned known = TRZ_ALLOC_CONTIGUOUS | TRZ_ALLOC_SHARE_FD | TRZ_ALLOC_SHARE_FABRIC | TRZ_ALLOC_RDMA;
	const trz_device_info *info = &h->driver.info;
	if (flags & ~known)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "allocation flags %#x: unknown flags %#x", flags, flags & ~known);
	if (flags & (TRZ_ALLOC_SHARE_FD | TRZ_ALLOC_SHARE_FABRIC) && !h->driver.vmm)
		return lacks(h, "exportable memory (it lacks virtual memory management, or vmm:off is set)");
	if (flags & TRZ_ALLOC_SHARE_FD && !info->export_fd)
		return lacks(h, "export as file descriptors");
	if (flags & TRZ_ALLOC_SHARE_FABRIC && !info->export_fabric)
		return lacks(h, "export as fabric handles");
	if (flags & TRZ_ALLOC_RDMA && !info->rdma_with_vmm)
		return lacks(h, "GPUDirect RDMA to memory of this kind");
	*dedicated = 0;
	if (flags && h->driver.vmm)
		*dedicated = DEDICATED | (flags & TRZ_ALLOC_SHARE_FD ? DEDICATED_FD : 0) |
		             (flags & TRZ_ALLOC_SHARE_FABRIC ? DEDICATED_FABRIC : 0);
	return TRZ_OK;
}

/* ---- free tiles ---- */

static bool fits(const struct block *b, uint64_t size)
{
	return b && b->size <= size + size / WASTE;
}

/* The lane's own smallest tile that fits, in the order of its stream; else another stream's whose ticket has passed. */
static struct block *find_locked(const trz_heap *h, const struct lane *l, uint64_t size)
{
	HEAP_LOCKED(h);
	struct block *best = fit_find(&l->fit[LARGE], size);
	if (fits(best, size))
		return best;
	best = NULL;
	for (const struct lane *of = h->streams.lanes.first; of; of = of->next) {
		if (of->pool != l->pool || of->dedicated != l->dedicated)
			continue;
		struct block *b = fit_find(&of->fit[LARGE], size);
		while (fits(b, size) && !ticket_passed(&of->stream->tickets, b->sequence))
			b = fit_next(&of->fit[LARGE], b);
		if (fits(b, size) && (!best || b->size < best->size))
			best = b;
	}
	return best;
}

static trz_addr take_kept(trz_heap *h, const struct demand *d)
{
	trz_addr address = 0;
	if (d->lane->dedicated & DEDICATED_ONCE)
		return 0;
	heap_lock(h);
	struct block *b = pagemap_reserve(&h->pagemap, 1) ? find_locked(h, d->lane, d->bytes) : NULL;
	if (b) {
		b = heap_cut_block_locked(h, b, b->address, b->size);
		counter_add(&h->counters.path_dedicated, 1);
		address = serve_make_live_locked(h, d->lane, d->size, b);
	}
	heap_unlock(h);
	return address;
}

/* ---- new tiles ---- */

/* Whether an allocation ends where unmapped addresses begin. What the program itself asks to be dedicated begins where
 * its tile does, since it may be shared by its address. */
static bool is_guarded(const trz_heap *h, const struct lane *l)
{
	return h->config.guard && l->dedicated == DEDICATED_ONCE;
}

/* Where the allocation begins in its tile. Memory that serves once keeps nothing for other requests: with guards the
 * allocation ends as close to its tile's end as possible. */
static trz_addr place_in(const trz_heap *h, const struct demand *d, const struct block *b)
{
	if (is_guarded(h, d->lane))
		return align_down(block_end(b) - d->occupied, d->alignment);
	return align_up(b->address, d->alignment);
}

/* Makes a new tile the caller's; what is left of it beside the allocation is free. */
static trz_addr settle(trz_heap *h, const struct demand *d, struct block *b)
{
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, b->size);
	trz_addr address = place_in(h, d, b);
	bool room = pagemap_reserve(&h->pagemap, 1) && node_pool_reserve(&h->blocks, 2);
	if (room) {
		uint64_t size = block_end(b) - address;
		if (d->lane->dedicated & DEDICATED_ONCE)
			size = heap_block_size(LARGE, d->occupied, size);
		serve_make_live_locked(h, d->lane, d->size, heap_trim_busy_locked(h, b, address, size));
	} else {
		heap_free_block_locked(h, b, 0);
	}
	counter_add(&h->counters.path_dedicated, room);
	heap_unlock(h);
	return room ? address : 0;
}

static trz_status make(trz_heap *h, const struct demand *d, trz_addr *out)
{
	struct block *b;
	bool once = d->lane->dedicated & DEDICATED_ONCE;
	if (once)
		reclaim_spent(h);
	trz_status status = extent_make(h, d->lane, d->bytes, once && h->config.guard ? h->driver.granule : 0, &b);
	if (status != TRZ_OK)
		return status;
	notice_mapped(h, b);
	*out = settle(h, d, b);
	return *out ? TRZ_OK : meta_exhausted();
}

/* ---- the slow path ---- */

/* Returns packed memory's free tiles to the driver first, since they are of the wrong sort. Memory that serves once
 * comes back only when its work has passed, so the host waits for that, one free after another. */
static trz_status trim_and_make(trz_heap *h, const struct demand *d, trz_addr *out)
{
	bool waits = d->lane->dedicated & DEDICATED_ONCE && h->config.wait;
	trz_status refused;
	do {
		uint64_t released, reserved = min_u64(heap_reserved(h), heap_limit(h));
		if (reclaim_trim(h, reserved > d->bytes ? reserved - d->bytes : 0, &released) == TRZ_ERROR_HOST_MEMORY)
			return meta_exhausted();
		refused = make(h, d, out);
	} while (waits && oom_is_want_of_memory(refused) && await_free(h, d->lane));
	return refused;
}

static trz_status climb(trz_heap *h, const struct demand *d, trz_status refused, trz_addr *out)
{
	struct counters *c = &h->counters;
	uint64_t asked = h->driver.vmm ? d->bytes : extent_segment(d->bytes);  /* of the driver */
	counter_add(&c->num_alloc_retries, 1);
	counter_add(&c->rung_dedicated, 1);
	if (reclaim_dedicated(h, d->bytes))
		refused = make(h, d, out);
	if (!oom_is_want_of_memory(refused))
		return refused;
	counter_add(&c->rung_trim, 1);
	refused = trim_and_make(h, d, out);
	if (driver_is_dead(&h->driver))
		return TRZ_ERROR_CONTEXT_DEAD;
	if (refused == TRZ_ERROR_OUT_OF_MEMORY && heap_ask_device(h, NULL) >= asked)
		extent_learn_withheld(h, asked);
	if (oom_is_want_of_memory(refused) && refused != TRZ_ERROR_ADDRESS_SPACE)
		return oom_report(h, d, refused);
	return refused;
}

static trz_status slow(trz_heap *h, const struct demand *d, trz_addr *out)
{
	trz_status status = TRZ_OK;
	if (!heap_lock_growth(h))
		return TRZ_ERROR_NOT_PERMITTED;
	heap_poll(h);
	*out = take_kept(h, d);
	if (!*out && oom_is_hopeless(h, d->bytes, &status)) {
		status = oom_report(h, d, status);
	} else if (!*out) {
		status = make(h, d, out);
		if (oom_is_want_of_memory(status))
			status = climb(h, d, status, out);
	}
	if (status == TRZ_OK)
		upkeep_return_free(h);
	heap_unlock_growth(h);
	CHECK_SLOW_PATH(h);
	return status;
}

static struct demand make_demand(const trz_heap *h, struct lane *l, uint64_t size, uint64_t alignment)
{
	uint64_t rounded = account_rounded(size), bytes = align_up(rounded, h->driver.granule);
	return (struct demand){.lane = l,
	                       .size = size,
	                       .occupied = is_guarded(h, l) ? rounded : bytes,
	                       .bytes = h->driver.vmm ? bytes : bytes + align_up(alignment - UNIT, h->driver.granule),
	                       .alignment = alignment,
	                       .size_class = CLASS_COUNT,
	                       .kind = LARGE};
}

trz_status dedicated_alloc(trz_heap *h, struct lane *l, uint64_t size, uint64_t alignment, trz_addr *out)
{
	const struct demand d = make_demand(h, l, size, alignment);
	*out = take_kept(h, &d);
	if (*out)
		return TRZ_OK;
	trz_status status = slow(h, &d, out);
	if (oom_is_full(status) && oom_ask(h, status))
		status = slow(h, &d, out);
	if (!oom_is_full(status))
		return status;
	oom_count(h, &d);
	return postmortem_failed(h, dump_failure(h, status, postmortem_write));
}
