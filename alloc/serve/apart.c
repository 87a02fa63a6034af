/* SPDX-License-Identifier: Apache-2.0
 *
 * Serving requests from tiles of their own: a free one that is little too large, one of another stream that is done
 * with it, a new one.
 */
#include "serve/apart.h"

#include "error.h"
#include "heap/carve.h"
#include "heap/poll.h"
#include "observe/account.h"
#include "observe/check.h"
#include "observe/inspect.h"
#include "observe/notice.h"
#include "serve/serve.h"
#include "supply/extent.h"
#include "supply/oom.h"
#include "supply/reclaim.h"

enum { WASTE = 8 };  /* a free tile serves requests that are shorter by up to one in so many parts */

/* ---- what is asked for ---- */

static trz_status lacks(const trz_heap *h, const char *what)
{
	return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "device %d does not support %s: allocate without that flag",
	                h->driver.device, what);
}

trz_status apart_sort(const trz_heap *h, unsigned flags, unsigned *apart)
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
	*apart = 0;
	if (flags && h->driver.vmm)
		*apart = APART | (flags & TRZ_ALLOC_SHARE_FD ? APART_FD : 0) |
		         (flags & TRZ_ALLOC_SHARE_FABRIC ? APART_FABRIC : 0);
	return TRZ_OK;
}

/* ---- free tiles ---- */

static bool fits(const struct block *b, uint64_t size)
{
	return b && b->size <= size + size / WASTE;
}

/* The lane's own smallest that fits, in the order of its stream; else another stream's whose ticket has passed. */
static struct block *find_locked(const trz_heap *h, const struct lane *l, uint64_t size)
{
	HEAP_LOCKED(h);
	struct block *best = fit_find(&l->fit[LARGE], size);
	if (fits(best, size))
		return best;
	best = NULL;
	for (const struct lane *of = h->streams.lanes.first; of; of = of->next) {
		if (of->pool != l->pool || of->apart != l->apart)
			continue;
		struct block *b = fit_find(&of->fit[LARGE], size);
		while (fits(b, size) && !ticket_passed(&of->stream->tickets, b->sequence))
			b = fit_next(&of->fit[LARGE], b);
		if (fits(b, size) && (!best || b->size < best->size))
			best = b;
	}
	return best;
}

/* `size` is what was asked for, `bytes` a tile for it. */
static trz_addr take_kept(trz_heap *h, struct lane *l, uint64_t bytes, uint64_t size)
{
	trz_addr address = 0;
	heap_lock(h);
	struct block *b = pagemap_reserve(&h->pagemap, 1) ? find_locked(h, l, bytes) : NULL;
	if (b) {
		fit_remove(&b->home->fit[LARGE], b);
		counter_add(&h->counters.path_apart, 1);
		address = serve_make_live_locked(h, l, size, b);
	}
	heap_unlock(h);
	return address;
}

/* ---- new tiles ---- */

static trz_status make(trz_heap *h, struct lane *l, uint64_t bytes, uint64_t size, trz_addr *out)
{
	struct block *b;
	trz_status status = extent_make(h, l, bytes, 0, &b);
	if (status != TRZ_OK)
		return status;
	notice_mapped(h, b);
	heap_lock(h);
	level_sub(&h->counters.idle_bytes, b->size);
	bool room = pagemap_reserve(&h->pagemap, 1);
	if (room)
		*out = serve_make_live_locked(h, l, size, b);
	else
		heap_free_block_locked(h, b, 0);
	counter_add(&h->counters.path_apart, room);
	heap_unlock(h);
	return room ? TRZ_OK : meta_exhausted();
}

/* ---- the slow path ---- */

/* What the packed heap keeps has to go to the driver first: its tiles are of the wrong sort. */
static trz_status climb(trz_heap *h, struct lane *l, uint64_t bytes, uint64_t size, trz_status refused, trz_addr *out)
{
	struct counters *c = &h->counters;
	uint64_t released, reserved;
	counter_add(&c->num_alloc_retries, 1);
	counter_add(&c->rung_apart, 1);
	if (reclaim_apart(h, bytes))
		refused = make(h, l, bytes, size, out);
	if (!oom_is_want_of_memory(refused))
		return refused;
	counter_add(&c->rung_trim, 1);
	reserved = min_u64(heap_reserved(h), heap_limit(h));
	if (reclaim_trim(h, reserved > bytes ? reserved - bytes : 0, &released) == TRZ_ERROR_HOST_MEMORY)
		return meta_exhausted();
	refused = make(h, l, bytes, size, out);
	if (oom_is_want_of_memory(refused) && refused != TRZ_ERROR_ADDRESS_SPACE)
		return oom_report(h, l, size, refused);
	return refused;
}

static trz_status slow(trz_heap *h, struct lane *l, uint64_t bytes, uint64_t size, trz_addr *out)
{
	trz_status status = TRZ_OK;
	if (!heap_lock_growth(h))
		return TRZ_ERROR_NOT_PERMITTED;
	heap_poll(h);
	*out = take_kept(h, l, bytes, size);
	if (!*out && oom_is_hopeless(h, bytes, &status)) {
		status = oom_report(h, l, size, status);
	} else if (!*out) {
		status = make(h, l, bytes, size, out);
		if (oom_is_want_of_memory(status))
			status = climb(h, l, bytes, size, status, out);
	}
	heap_unlock_growth(h);
	CHECK_SLOW_PATH(h);
	return status;
}

static bool is_full(trz_status status)
{
	return status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_LIMIT;
}

trz_status apart_alloc(trz_heap *h, struct lane *l, uint64_t size, trz_addr *out)
{
	uint64_t bytes = align_up(size, h->driver.granule);
	*out = take_kept(h, l, bytes, size);
	if (*out)
		return TRZ_OK;
	trz_status status = slow(h, l, bytes, size, out);
	if (is_full(status) && oom_ask(h, status))
		status = slow(h, l, bytes, size, out);
	return is_full(status) ? inspect_oom(h, status) : status;
}
