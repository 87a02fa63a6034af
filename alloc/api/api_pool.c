/* SPDX-License-Identifier: Apache-2.0
 *
 * The public functions about pools. A trz_pool is a struct pool.
 */
#include "api/api.h"
#include "error.h"
#include "heap/pools.h"
#include "observe/frames.h"
#include "observe/nvtx.h"
#include "serve/pool_divert.h"
#include "serve/pool_state.h"

static struct pool *inner(trz_pool *p)
{
	return (struct pool *)(void *)p;
}

static trz_status check(const char *function, const trz_heap *h, trz_pool *p)
{
	if (!h || !p)
		return api_is_null(function, h ? "pool" : "heap");
	trz_status status = api_check_process(h);
	return status == TRZ_OK ? api_check_pool(h, inner(p)) : status;
}

trz_status trz_pool_create(trz_heap *h, trz_pool **out)
{
	if (!h || !out)
		return api_is_null("trz_pool_create", h ? "out" : "heap");
	struct pool *p;
	trz_status status = api_check_process(h);
	if (status == TRZ_OK)
		status = heap_pool_create(h, &p);
	if (status == TRZ_OK)
		*out = (trz_pool *)(void *)p;
	return status;
}

trz_status trz_pool_retain(trz_heap *h, trz_pool *p)
{
	trz_status status = check("trz_pool_retain", h, p);
	if (status != TRZ_OK)
		return status;
	heap_lock(h);
	inner(p)->users++;
	heap_unlock(h);
	return TRZ_OK;
}

trz_status trz_pool_release(trz_heap *h, trz_pool *p)
{
	if (h && p && heap_is_inherited(h))
		return TRZ_OK;
	trz_status status = check("trz_pool_release", h, p);
	if (status == TRZ_OK)
		heap_pool_release(h, inner(p));
	return status;
}

trz_status trz_pool_alloc(trz_heap *h, trz_pool *p, size_t size, size_t alignment, trz_stream stream, void **out)
{
	if (!out)
		return api_is_null("trz_pool_alloc", "out");
	*out = NULL;
	trz_status status = check("trz_pool_alloc", h, p);
	struct request r = {
	    .size = size, .alignment = alignment, .stream = stream, .pool = inner(p), .caller = API_CALLER};
	return status == TRZ_OK ? api_alloc(h, &r, out) : status;
}

trz_status trz_pool_begin(trz_heap *h, trz_pool *p, trz_pool_filter *filter, void *user)
{
	trz_status status = check("trz_pool_begin", h, p);
	const struct diversion d = {.pool = inner(p), .thread = !filter, .filter = filter, .user = user};
	return status == TRZ_OK ? pool_divert_begin(h, &d) : status;
}

trz_status trz_pool_begin_capture(trz_heap *h, trz_pool *p, trz_stream stream)
{
	trz_status status = check("trz_pool_begin_capture", h, p);
	const struct diversion d = {.pool = inner(p), .captured = true, .stream = stream};
	if (status == TRZ_OK && is_legacy(stream))
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "the legacy default stream cannot be captured: use another one");
	return status == TRZ_OK ? pool_divert_begin(h, &d) : status;
}

trz_status trz_pool_end(trz_heap *h, trz_pool *p)
{
	if (h && p && heap_is_inherited(h))
		return TRZ_OK;
	trz_status status = check("trz_pool_end", h, p);
	if (status == TRZ_OK)
		status = pool_divert_end(h, inner(p));
	return status == TRZ_ERROR_NOT_FOUND ? trz_fail(status, "no diversion to pool %p is under way", (void *)p) : status;
}

trz_status trz_pool_query(trz_heap *h, trz_pool *p, trz_pool_info *out)
{
	trz_status status = out ? check("trz_pool_query", h, p) : api_is_null("trz_pool_query", "out");
	if (status == TRZ_OK)
		*out = pool_state_info(h, inner(p));
	return status;
}

trz_status trz_pool_live(trz_heap *h, trz_pool *p, void **list, size_t capacity, size_t *count)
{
	trz_status status = count ? check("trz_pool_live", h, p) : api_is_null("trz_pool_live", "count");
	if (status == TRZ_OK)
		*count = pool_state_live(h, inner(p), list, list ? capacity : 0);
	return status;
}

trz_status trz_pool_checkpoint(trz_heap *h, trz_pool *p, trz_pool_state **out)
{
	trz_status status = out ? check("trz_pool_checkpoint", h, p) : api_is_null("trz_pool_checkpoint", "out");
	return status == TRZ_OK ? pool_state_take(h, inner(p), out) : status;
}

/* Calls `tell` for each of the pool's live allocations, as far as there is host memory for the list. */
static void annotate(trz_heap *h, const struct pool *p, void (*tell)(trz_heap *h, trz_addr address))
{
	size_t room = h->annotates ? pool_state_live(h, p, NULL, 0) : 0;
	void **list = room ? meta_alloc(&h->meta, room * sizeof *list) : NULL;
	size_t count = list ? min_u64(pool_state_live(h, p, list, room), room) : 0;
	for (size_t i = 0; i < count; i++)
		tell(h, (trz_addr)list[i]);
	meta_free(&h->meta, list);
}

trz_status trz_pool_restore(trz_heap *h, trz_pool *p, const trz_pool_state *state)
{
	trz_status status = state ? check("trz_pool_restore", h, p) : api_is_null("trz_pool_restore", "state");
	if (status != TRZ_OK)
		return status;
	uint64_t outer_site = api_enter(API_CALLER), outer = frames_enter(h);
	annotate(h, inner(p), nvtx_freeing);
	status = pool_state_restore(h, inner(p), state);
	annotate(h, inner(p), nvtx_allocated);
	frames_leave(outer);
	api_leave(outer_site);
	return status;
}

trz_status trz_pool_state_live(const trz_pool_state *state, void **list, size_t capacity, size_t *count)
{
	if (!state || !count)
		return api_is_null("trz_pool_state_live", state ? "count" : "state");
	*count = pool_state_list(state, list, list ? capacity : 0);
	return TRZ_OK;
}

void trz_pool_state_free(trz_pool_state *state)
{
	if (state)
		pool_state_free(state);
}
