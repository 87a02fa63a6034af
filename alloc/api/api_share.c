/* SPDX-License-Identifier: Apache-2.0
 *
 * The public functions about dedicated memory, sharing, growing in place and frees after events.
 */
#include <string.h>

#include "api/api.h"
#include "error.h"
#include "heap/events.h"
#include "heap/lookup.h"
#include "observe/frames.h"
#include "observe/nvtx.h"
#include "serve/after.h"
#include "serve/dedicated.h"
#include "serve/share.h"
#include "serve/grow.h"

trz_status trz_alloc_with(trz_heap *h, const trz_alloc_params *params, void **out)
{
	trz_alloc_params p = {0};
	unsigned dedicated = 0;
	if (out)
		*out = NULL;
	if (!h || !params || !out)
		return api_is_null("trz_alloc_with", !h ? "heap" : !params ? "params" : "out");
	if (params->struct_size < sizeof p.struct_size || params->struct_size > sizeof p)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT,
		                "trz_alloc_with: struct_size is %zu, this library knows up to %zu bytes: set it to "
		                "sizeof(trz_alloc_params)",
		                params->struct_size, sizeof p);
	memcpy(&p, params, params->struct_size);
	trz_status status = dedicated_sort(h, p.flags, &dedicated);
	if (status == TRZ_OK)
		status = api_check_pool(h, (struct pool *)(void *)p.pool);
	if (status == TRZ_OK && p.flags && p.address)
		status = trz_fail(TRZ_ERROR_INVALID_ARGUMENT,
		                  "trz_alloc_with: flags and an address exclude each other: ask for %p without flags",
		                  p.address);
	if (status != TRZ_OK)
		return status;
	struct request r = {.size = p.size,
	                        .alignment = p.alignment,
	                        .stream = p.stream,
	                        .pool = (struct pool *)(void *)p.pool,
	                        .dedicated = dedicated,
	                        .address = (trz_addr)p.address,
	                        .caller = API_CALLER};
	return api_alloc(h, &r, out);
}

trz_status trz_export(trz_heap *h, void *ptr, unsigned kind, void *shareable)
{
	if (!h || !ptr || !shareable)
		return api_is_null("trz_export", !h ? "heap" : !ptr ? "ptr" : "shareable");
	trz_status usable = api_check_process(h);
	if (usable != TRZ_OK)
		return usable;
	return share_export(h, (trz_addr)ptr, kind, shareable);
}

trz_status trz_export_tile(trz_heap *h, const void *address, unsigned kind, void *shareable, trz_exported_tile *tile)
{
	if (!h || !address || !tile)
		return api_is_null("trz_export_tile", !h ? "heap" : !address ? "address" : "tile");
	trz_status usable = api_check_process(h);
	if (usable == TRZ_OK && driver_is_dead(&h->driver))
		usable = api_dead(h);
	return usable == TRZ_OK ? share_export_tile(h, (trz_addr)address, kind, shareable, tile) : usable;
}

trz_status trz_export_end(trz_heap *h, void *ptr)
{
	if (!h)
		return api_is_null("trz_export_end", "heap");
	return heap_is_inherited(h) ? TRZ_OK : share_export_end(h, (trz_addr)ptr);
}

static trz_status import(trz_heap *h, unsigned kind, size_t size, struct import_source from, trz_stream stream,
                         void **out)
{
	struct stream *s;
	trz_addr address;
	trz_status status = api_check_process(h);
	if (status == TRZ_OK)
		status = driver_is_dead(&h->driver) ? api_dead(h) : heap_stream(h, stream, &s);
	if (status != TRZ_OK)
		return status;
	status = share_import(h, kind, from, size, s, &address);
	heap_leave_stream(s, stream);
	if (status == TRZ_OK)
		*out = (void *)address;
	return status;
}

/* The one handle of an import of one tile. */
struct single {
	const void *shareable;
	size_t bytes, size;
};

static trz_status give_single(void *user, size_t offset, void *shareable, size_t *size)
{
	const struct single *one = user;
	(void)offset;
	memcpy(shareable, one->shareable, one->bytes);
	*size = one->size;
	return TRZ_OK;
}

trz_status trz_import(trz_heap *h, unsigned kind, const void *shareable, size_t size, trz_stream stream, void **out)
{
	if (out)
		*out = NULL;
	if (!h || !shareable || !out)
		return api_is_null("trz_import", !h ? "heap" : !out ? "out" : "shareable");
	struct single one = {shareable, kind == TRZ_ALLOC_SHARE_FD ? sizeof(int) : TRZ_SHAREABLE_BYTES, size};
	return import(h, kind, size, (struct import_source){give_single, &one}, stream, out);
}

trz_status trz_import_tiles(trz_heap *h, unsigned kind, size_t size, trz_import_callback *next, void *user,
                            trz_stream stream, void **out)
{
	if (out)
		*out = NULL;
	if (!h || !next || !out)
		return api_is_null("trz_import_tiles", !h ? "heap" : !out ? "out" : "next");
	return import(h, kind, size, (struct import_source){next, user}, stream, out);
}

trz_status trz_enable_peer(trz_heap *h, int device, bool on)
{
	trz_status usable = api_check_heap("trz_enable_peer", h);
	if (usable != TRZ_OK)
		return usable;
	return driver_is_dead(&h->driver) ? api_dead(h) : share_enable_peer(h, device, on);
}

/* Sets the text of a failed growth. */
static trz_status grow_failed(trz_heap *h, void *ptr, size_t size, trz_status status)
{
	switch (status) {
	case TRZ_ERROR_CONTEXT_DEAD:
		return api_dead(h);
	case TRZ_ERROR_HOST_MEMORY:
		return meta_exhausted();
	case TRZ_ERROR_UNKNOWN_POINTER:
		return trz_fail(status, "%p is not the first byte of a live allocation of the heap of device %d", ptr,
		                h->driver.device);
	case TRZ_ERROR_NO_ROOM:
		return trz_fail(status, "%p cannot grow to %zu bytes where it is: allocate elsewhere and copy", ptr, size);
	case TRZ_ERROR_CAPTURE:
		return trz_fail(status, "%p is in no private pool and its stream is being captured: grow it before the "
		                "capture", ptr);
	default:
		return trz_fail(status, "%p cannot grow to %zu bytes: %s", ptr, size,
		                status == TRZ_ERROR_LIMIT ? "the heap's limit" : trz_driver_last_error());
	}
}

trz_status trz_grow(trz_heap *h, void *ptr, size_t size)
{
	if (!h || !ptr)
		return api_is_null("trz_grow", h ? "ptr" : "heap");
	trz_status usable = api_check_process(h);
	if (usable != TRZ_OK)
		return usable;
	if (size >= SIZE_LIMIT)
		return trz_fail(TRZ_ERROR_SIZE, "%zu bytes requested: no device has that much memory", size);
	if (driver_is_dead(&h->driver))
		return api_dead(h);
	uint64_t outer_site = api_enter(API_CALLER), outer = frames_enter(h);
	trz_status status = grow_in_place(h, (trz_addr)ptr, size);
	frames_leave(outer);
	api_leave(outer_site);
	if (status == TRZ_OK && h->annotates) {
		nvtx_freeing(h, (trz_addr)ptr);
		nvtx_allocated(h, (trz_addr)ptr);
	}
	return status == TRZ_OK ? TRZ_OK : grow_failed(h, ptr, size, status);
}

trz_status trz_free_after(trz_heap *h, void *ptr, trz_event event)
{
	if (!h || !event)
		return api_is_null("trz_free_after", h ? "event" : "heap");
	if (heap_is_inherited(h))
		return TRZ_OK;
	if (!ptr) {
		heap_destroy_event(h, event);
		return TRZ_OK;
	}
	uint64_t outer = frames_enter(h);
	if (h->annotates)
		nvtx_freeing(h, (trz_addr)ptr);
	trz_status status = after_free(h, (trz_addr)ptr, event);
	frames_leave(outer);
	return status == TRZ_OK ? TRZ_OK : api_free_failed(h, ptr, status);
}
