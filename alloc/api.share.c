/* SPDX-License-Identifier: Apache-2.0
 *
 * The public functions about memory apart, sharing and growing in place.
 */
#include <string.h>

#include "apart.h"
#include "api.h"
#include "error.h"
#include "share.h"

trz_status trz_alloc_with(trz_heap *h, const trz_alloc_params *params, void **out)
{
	trz_alloc_params p = {0};
	unsigned apart = 0;
	if (!h || !params || !out)
		return api_is_null("trz_alloc_with", !h ? "heap" : !params ? "params" : "out");
	*out = NULL;
	if (params->struct_size < sizeof p.struct_size || params->struct_size > sizeof p)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT,
		                "trz_alloc_with: struct_size is %zu, this library knows up to %zu bytes: set it to "
		                "sizeof(trz_alloc_params)",
		                params->struct_size, sizeof p);
	memcpy(&p, params, params->struct_size);
	trz_status status = apart_sort(h, p.flags, &apart);
	if (status != TRZ_OK)
		return status;
	return api_alloc_apart(h, (struct pool *)(void *)p.pool, apart, p.size, p.alignment, p.stream, out);
}

trz_status trz_export(trz_heap *h, void *ptr, unsigned kind, void *shareable)
{
	if (!h || !ptr || !shareable)
		return api_is_null("trz_export", !h ? "heap" : !ptr ? "ptr" : "shareable");
	return share_export(h, (trz_addr)ptr, kind, shareable);
}

trz_status trz_export_end(trz_heap *h, void *ptr)
{
	return h ? share_export_end(h, (trz_addr)ptr) : api_is_null("trz_export_end", "heap");
}

trz_status trz_import(trz_heap *h, unsigned kind, const void *shareable, size_t size, trz_stream stream, void **out)
{
	struct stream *s;
	trz_addr address;
	if (!h || !shareable || !out)
		return api_is_null("trz_import", !h ? "heap" : !out ? "out" : "shareable");
	*out = NULL;
	trz_status status = driver_is_dead(&h->driver) ? api_dead(h) : heap_stream(h, stream, &s);
	if (status == TRZ_OK)
		status = share_import(h, kind, shareable, size, s, &address);
	if (status == TRZ_OK)
		*out = (void *)address;
	return status;
}

trz_status trz_enable_peer(trz_heap *h, int device, bool on)
{
	if (!h)
		return api_is_null("trz_enable_peer", "heap");
	return driver_is_dead(&h->driver) ? api_dead(h) : share_enable_peer(h, device, on);
}
