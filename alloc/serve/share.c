/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports of dedicated memory pin blocks: while one has exports, it stays in place and serves no other request, even if
 * it is freed. Exports of packed memory pin tiles: they stay in place, and their free memory serves requests there.
 */
#include "serve/share.h"

#include <inttypes.h>

#include "error.h"
#include "heap/pending.h"
#include "heap/poll.h"
#include "serve/serve.h"
#include "serve/uses.h"
#include "supply/import.h"
#include "supply/reclaim.h"

/* A kind of export, as its flag in trz_alloc_with, its bit in a sort of memory, and for the driver. */
struct kind_of_export {
	unsigned flag, dedicated, driver;
	const char *name;
};

static const struct kind_of_export *find_kind(unsigned flag)
{
	static const struct kind_of_export kinds[] = {
	    {TRZ_ALLOC_SHARE_FD, DEDICATED_FD, TRZ_EXPORT_FD, "a file descriptor"},
	    {TRZ_ALLOC_SHARE_FABRIC, DEDICATED_FABRIC, TRZ_EXPORT_FABRIC, "a fabric handle"},
	};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (kinds[i].flag == flag)
			return &kinds[i];
	trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "unknown kind of sharing %#x: use TRZ_ALLOC_SHARE_FD or "
	         "TRZ_ALLOC_SHARE_FABRIC", flag);
	return NULL;
}

/* ---- exports ---- */

static trz_status unknown(const trz_heap *h, trz_addr address)
{
	return trz_fail(TRZ_ERROR_UNKNOWN_POINTER, "%p is not the first byte of a live allocation of the heap of device %d",
	                (void *)address, h->driver.device);
}

static trz_status in_none(const trz_heap *h, trz_addr address)
{
	return trz_fail(TRZ_ERROR_UNKNOWN_POINTER, "%p is not inside a live allocation of the heap of device %d",
	                (void *)address, h->driver.device);
}

static trz_status not_own(trz_addr address)
{
	return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "%p is memory of another process, and only that process can export it",
	                (void *)address);
}

static trz_status not_meant(trz_addr address, const struct kind_of_export *kind)
{
	return trz_fail(TRZ_ERROR_INVALID_ARGUMENT,
	                "%p was not allocated for export as %s: pass that flag to trz_alloc_with, or export the whole "
	                "tile around it by trz_export_tile", (void *)address, kind->name);
}

/* The list for exports at an address. */
static struct tile **list_of(trz_heap *h, trz_addr address)
{
	return &h->exported[(address >> GRANULE_SHIFT) % EXPORTED_LISTS];
}

/* Pins the tile that is owned at `p`. `b`: the block that has the tile to itself; NULL: none has. */
static trz_status pin_locked(trz_heap *h, const struct place *p, struct block *b)
{
	HEAP_LOCKED(h);
	struct tile *tile = p->tile, **list = list_of(h, p->address);
	assert(tile_is_owned_at(p) && !tile->zombie);
	if (b && b->exports == UINT16_MAX)
		return trz_fail(TRZ_ERROR_LIMIT, "%p has %d open exports, which is the most", (void *)b->address, UINT16_MAX);
	if (b ? b->exports++ : tile->exports++)
		return TRZ_OK;
	tile->exported_at = p->address;
	tile->exported_block = b;
	tile->exported_next = *list;
	*list = tile;
	level_add(&h->counters.exported_bytes, tile->size);
	return TRZ_OK;
}

/* Ends an export at an address; false: there is none. */
static bool unpin_locked(trz_heap *h, trz_addr address)
{
	HEAP_LOCKED(h);
	struct tile **link = list_of(h, address);
	while (*link && (*link)->exported_at != address)
		link = &(*link)->exported_next;
	struct tile *tile = *link;
	struct block *b = tile ? tile->exported_block : NULL;
	assert(!tile || (b ? b->exports : tile->exports));
	if (!tile || (b ? --b->exports : --tile->exports))
		return tile != NULL;
	*link = tile->exported_next;
	level_sub(&h->counters.exported_bytes, tile->size);
	if (b && b->state == BLOCK_ENDED)
		heap_end_block_locked(h, b, b->ended_sequence);
	return true;
}

trz_status share_export(trz_heap *h, trz_addr address, unsigned flag, void *shareable)
{
	const struct kind_of_export *kind = find_kind(flag);
	if (!kind)
		return TRZ_ERROR_INVALID_ARGUMENT;
	if (!heap_lock_growth(h))
		return heap_not_permitted("trz_export");
	heap_lock(h);
	struct block *b = serve_block_locked(h, address);
	bool foreign = b && b->window->foreign, meant = b && !foreign && b->window->dedicated & kind->dedicated;
	const struct place *p = meant ? window_at(b->window, address) : NULL;
	trz_status status = meant ? pin_locked(h, p, b) : foreign ? not_own(address)
	                    : b ? not_meant(address, kind) : TRZ_ERROR_UNKNOWN_POINTER;
	heap_unlock(h);
	if (status == TRZ_OK) {
		status = driver_export_handle(&h->driver, p->tile->handle, kind->driver, shareable);
		if (status != TRZ_OK) {
			heap_lock(h);
			unpin_locked(h, address);
			heap_unlock(h);
			trz_fail(status, "exporting %p as %s failed: %s", (void *)address, kind->name, trz_driver_last_error());
		}
	}
	heap_unlock_growth(h);
	trz_pointer_info info;
	if (b)
		return status;
	bool is_slot = uses_query(h, address, &info) && (trz_addr)info.base == address;
	return is_slot ? not_meant(address, kind) : unknown(h, address);
}

/* ---- exports of tiles ---- */

/* The allocation in a dedicated tile, which with the option guard does not begin where the tile does; NULL: none. */
static struct block *dedicated_block(const struct window *w, const struct place *p)
{
	for (struct block *b = w->blocks.first; b && b->address < place_end(p); b = b->next)
		if (b->address >= p->address &&
		    (b->state == BLOCK_LIVE || b->state == BLOCK_PENDING || b->state == BLOCK_ENDED))
			return b;
	return NULL;
}

/* The place at an address if its tile is owned there; else NULL. */
static const struct place *owned_at(const struct window *w, trz_addr address)
{
	const struct place *p = w && !w->classic ? window_at(w, address) : NULL;
	return p && !p->tile->zombie && tile_is_owned_at(p) ? p : NULL;
}

/* Why memory that is packed with others cannot be exported. */
static trz_status tile_is_not_meant(const trz_heap *h, trz_addr address, const struct kind_of_export *kind)
{
	if (kind->driver == TRZ_EXPORT_FD && h->driver.info.export_fd && h->config.exportable)
		return not_meant(address, kind);
	if (kind->driver == TRZ_EXPORT_FD && h->driver.info.export_fd)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT,
		                "%p cannot be exported: the option exportable is off", (void *)address);
	return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "memory that is packed with other memory of device %d cannot be exported "
	                "as %s", h->driver.device, kind->name);
}

/* Pins the tile that is owned at `p` and holds the address. */
static trz_status pin_at_locked(trz_heap *h, const struct window *w, const struct place *p, trz_addr address,
                                const struct kind_of_export *kind)
{
	HEAP_LOCKED(h);
	struct block *b = w->dedicated ? dedicated_block(w, p) : NULL;
	trz_pointer_info info;
	if (!(b ? b->exports : p->tile->exports) && !uses_query_locked(h, address, &info))
		return in_none(h, address);
	if (!(p->tile->export_kinds & kind->driver))
		return tile_is_not_meant(h, address, kind);
	return pin_locked(h, p, b);
}

static trz_status export_tile(trz_heap *h, const struct window *w, trz_addr address, const struct kind_of_export *kind,
                              void *shareable, trz_exported_tile *out)
{
	HEAP_GROWTH_LOCKED(h);
	const struct place *p = owned_at(w, address);
	if (w && w->classic)
		return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "%p lies in a plain driver allocation: cuIpcGetMemHandle exports that",
		                (void *)address);
	if (w && w->foreign)
		return not_own(address);
	if (!p)
		return in_none(h, address);
	heap_lock(h);
	trz_status status = pin_at_locked(h, w, p, address, kind);
	heap_unlock(h);
	if (status != TRZ_OK)
		return status;
	if (shareable)
		status = driver_export_handle(&h->driver, p->tile->handle, kind->driver, shareable);
	if (status != TRZ_OK) {
		heap_lock(h);
		unpin_locked(h, p->address);
		heap_unlock(h);
		return trz_fail(status, "exporting the tile at %p as %s failed: %s", (void *)p->address, kind->name,
		                trz_driver_last_error());
	}
	*out = (trz_exported_tile){.base = (void *)p->address, .size = place_size(p)};
	return TRZ_OK;
}

trz_status share_export_tile(trz_heap *h, trz_addr address, unsigned flag, void *shareable, trz_exported_tile *out)
{
	const struct kind_of_export *kind = find_kind(flag);
	if (!kind)
		return TRZ_ERROR_INVALID_ARGUMENT;
	if (!heap_lock_growth(h))
		return heap_not_permitted("trz_export_tile");
	trz_status status = export_tile(h, heap_window_at(h, address), address, kind, shareable, out);
	heap_unlock_growth(h);
	return status;
}

/* The holder frees the memory next, perhaps in a host function of a stream, so this waits for no driver call. The
 * address identifies the export, since pinned memory stays in place. */
trz_status share_export_end(trz_heap *h, trz_addr address)
{
	heap_lock(h);
	bool ended = unpin_locked(h, address);
	heap_unlock(h);
	return ended ? TRZ_OK
	             : trz_fail(TRZ_ERROR_NOT_FOUND, "%p has no open export", (void *)address);
}

/* ---- imports ---- */

trz_status share_import(trz_heap *h, unsigned flag, struct import_source from, uint64_t size, struct stream *s,
                        trz_addr *out)
{
	const struct kind_of_export *kind = find_kind(flag);
	const trz_device_info *info = &h->driver.info;
	if (!kind)
		return TRZ_ERROR_INVALID_ARGUMENT;
	if (!h->driver.vmm || !(kind->driver == TRZ_EXPORT_FD ? info->export_fd : info->export_fabric))
		return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "device %d cannot import memory from %s", h->driver.device,
		                kind->name);
	if (size == 0 || size % h->driver.granule || size >= SIZE_LIMIT)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT,
		                "import of %" PRIu64 " bytes: the size must be what trz_query reports on the exporting side, "
		                "or that of whole tiles there, a multiple of %" PRIu64,
		                size, h->driver.granule);
	if (!heap_lock_growth(h))
		return heap_not_permitted("trz_import");
	heap_poll(h);
	import_sweep(h);
	reclaim_windows(h);
	trz_status status = import_open(h, kind->driver, from, size, s, out);
	heap_unlock_growth(h);
	return status;
}

/* ---- peers ---- */

/* Whether a mapping must be opened to a new peer. One whose end the program is being told of (notice.c) still exists,
 * and remains if the driver refuses to unmap it. */
static bool is_open(const struct place *p)
{
	return p->accessible || p->leaving;
}

/* Opens all mappings of a window to a device. Mappings side by side take one call. */
static trz_status grant_window(trz_heap *h, const struct window *w, int device)
{
	trz_status status = TRZ_OK;
	for (trz_addr begin = w->base, end; begin < w->top && status == TRZ_OK; begin = end) {
		const struct place *p = NULL;
		for (end = begin; end < w->top && (p = window_at(w, end)) && is_open(p);)
			end += place_size(p);
		if (end > begin)
			status = driver_grant(&h->driver, begin, end - begin, device);
		else
			end = window_next(w, begin);
	}
	return status;
}

static trz_status grant_list(trz_heap *h, const struct window *list, int device)
{
	trz_status status = TRZ_OK;
	for (const struct window *w = list; w && status == TRZ_OK; w = w->next)
		status = grant_window(h, w, device);
	return status;
}

/* If the driver refuses half-way, the device may access more than before, but nothing relies on that. */
static trz_status add_peer(trz_heap *h, int device)
{
	HEAP_GROWTH_LOCKED(h);
	struct driver *d = &h->driver;
	trz_status status = d->access_count < ACCESS_MOST ? TRZ_OK : TRZ_ERROR_LIMIT;
	for (int kind = 0; kind < KINDS && status == TRZ_OK; kind++)
		status = grant_list(h, h->windows[kind], device);
	if (status == TRZ_OK)
		status = grant_list(h, h->imports, device);
	if (status != TRZ_OK)
		return trz_fail(status, "device %d could not open all its memory to device %d, try again: %s", d->device,
		                device, trz_driver_last_error());
	d->access[d->access_count++] = device;
	return TRZ_OK;
}

static int find_peer(const struct driver *d, int device)
{
	int i = 0;
	while (i < d->access_count && d->access[i] != device)
		i++;
	return i;
}

trz_status share_enable_peer(trz_heap *h, int device, bool on)
{
	struct driver *d = &h->driver;
	if (!d->vmm)
		return trz_fail(TRZ_ERROR_NOT_SUPPORTED,
		                "plain driver allocations of device %d are opened to peers by cuCtxEnablePeerAccess",
		                d->device);
	trz_status status = device == d->device ? TRZ_OK : driver_check_peer(d, device);
	if (status != TRZ_OK || device == d->device)
		return status;
	if (!heap_lock_growth(h))
		return heap_not_permitted("trz_enable_peer");
	int at = find_peer(d, device);
	if (on && at == d->access_count)
		status = add_peer(h, device);
	else if (!on && at < d->access_count)
		d->access[at] = d->access[--d->access_count];
	heap_unlock_growth(h);
	return status;
}
