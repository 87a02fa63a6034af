/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports pin blocks: as long as one is counted the memory stays where it is and is given to nobody, freed or not.
 */
#include "share.h"

#include <inttypes.h>

#include "error.h"
#include "import.h"
#include "reclaim.h"
#include "serve.h"

/* A kind of export, as its flag in trz_alloc_with, its bit in a sort of memory, and for the driver. */
struct kind_of_export {
	unsigned flag, apart, driver;
	const char *name;
};

static const struct kind_of_export *find_kind(unsigned flag)
{
	static const struct kind_of_export kinds[] = {
	    {TRZ_ALLOC_SHARE_FD, APART_FD, TRZ_EXPORT_FD, "a file descriptor"},
	    {TRZ_ALLOC_SHARE_FABRIC, APART_FABRIC, TRZ_EXPORT_FABRIC, "a fabric handle"},
	};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (kinds[i].flag == flag)
			return &kinds[i];
	trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "sharing of kind %#x: it is TRZ_ALLOC_SHARE_FD or TRZ_ALLOC_SHARE_FABRIC",
	         flag);
	return NULL;
}

/* ---- exports ---- */

static trz_status unknown(const trz_heap *h, trz_addr address)
{
	return trz_fail(TRZ_ERROR_UNKNOWN_POINTER, "%p is not the first byte of a live allocation of the heap of device %d",
	                (void *)address, h->driver.device);
}

static trz_status not_meant(trz_addr address, const struct kind_of_export *kind)
{
	return trz_fail(TRZ_ERROR_INVALID_ARGUMENT,
	                "%p was not allocated to be exported as %s: trz_alloc_with has a flag for that", (void *)address,
	                kind->name);
}

static trz_status pin_locked(trz_heap *h, struct block *b, const struct kind_of_export *kind)
{
	if (b->window->foreign || !(b->window->apart & kind->apart))
		return not_meant(b->address, kind);
	if (b->exports == UINT16_MAX)
		return trz_fail(TRZ_ERROR_LIMIT, "%p has %d exports that have not been ended", (void *)b->address, UINT16_MAX);
	if (b->exports++ == 0)
		level_add(&h->counters.exported_bytes, b->size);
	return TRZ_OK;
}

static void unpin_locked(trz_heap *h, struct block *b)
{
	if (--b->exports)
		return;
	level_sub(&h->counters.exported_bytes, b->size);
	if (b->state == BLOCK_ENDED)
		heap_end_block_locked(h, b, b->ended_sequence);
}

trz_status share_export(trz_heap *h, trz_addr address, unsigned flag, void *shareable)
{
	const struct kind_of_export *kind = find_kind(flag);
	if (!kind)
		return TRZ_ERROR_INVALID_ARGUMENT;
	trz_capture_mode mode = heap_lock_growth(h);
	heap_lock(h);
	struct block *b = serve_block_locked(h, address);
	trz_status status = b ? pin_locked(h, b, kind) : TRZ_ERROR_UNKNOWN_POINTER;
	heap_unlock(h);
	if (status == TRZ_OK) {
		const struct tile *tile = window_at(b->window, address)->tile;
		status = driver_export_handle(&h->driver, tile->handle, kind->driver, shareable);
		if (status != TRZ_OK) {
			heap_lock(h);
			unpin_locked(h, b);
			heap_unlock(h);
			trz_fail(status, "%p is not exported as %s: %s", (void *)address, kind->name, trz_driver_last_error());
		}
	}
	heap_unlock_growth(h, mode);
	trz_pointer_info info;
	if (b)
		return status;
	bool is_slot = serve_query(h, address, &info) && (trz_addr)info.base == address;
	return is_slot ? not_meant(address, kind) : unknown(h, address);
}

/* The exported block at an address, live or freed. The list of a window of memory apart changes under the growth lock
 * only, so that the walk needs no other. */
static struct block *find_exported(const trz_heap *h, trz_addr address)
{
	for (const struct window *w = h->windows[LARGE]; w; w = w->next)
		for (struct block *b = w->apart & (APART_FD | APART_FABRIC) && address >= w->base && address < w->top
		                           ? w->blocks.first : NULL; b; b = b->next)
			if (b->address == address)
				return b;
	return NULL;
}

trz_status share_export_end(trz_heap *h, trz_addr address)
{
	pthread_mutex_lock(&h->growth_lock);
	struct block *b = find_exported(h, address);
	heap_lock(h);
	bool exported = b && b->exports;
	if (exported)
		unpin_locked(h, b);
	heap_unlock(h);
	pthread_mutex_unlock(&h->growth_lock);
	return exported ? TRZ_OK
	                : trz_fail(TRZ_ERROR_NOT_FOUND, "%p has no export that could be ended", (void *)address);
}

/* ---- imports ---- */

trz_status share_import(trz_heap *h, unsigned flag, const void *shareable, uint64_t size, struct stream *s,
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
		                "import of %" PRIu64 " bytes: it must be the size that trz_query tells on the exporting side, "
		                "a multiple of %" PRIu64,
		                size, h->driver.granule);
	trz_capture_mode mode = heap_lock_growth(h);
	heap_poll(h);
	import_sweep(h);
	reclaim_windows(h);
	trz_status status = import_open(h, kind->driver, shareable, size, s, out);
	heap_unlock_growth(h, mode);
	return status;
}

/* ---- peers ---- */

/* What the program is being told to lose (notice.c) is mapped still, and stays where the driver refuses to unmap it. */
static bool is_open(const struct place *p)
{
	return p->accessible || p->leaving;
}

/* Mappings side by side take one call. */
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

/* Where the driver refuses half-way the device may access more than before; nothing relies on that. */
static trz_status add_peer(trz_heap *h, int device)
{
	struct driver *d = &h->driver;
	trz_status status = d->access_count < ACCESS_MOST ? TRZ_OK : TRZ_ERROR_LIMIT;
	for (int kind = 0; kind < KINDS && status == TRZ_OK; kind++)
		status = grant_list(h, h->windows[kind], device);
	if (status == TRZ_OK)
		status = grant_list(h, h->imports, device);
	if (status != TRZ_OK)
		return trz_fail(status, "not all memory of device %d could be opened to device %d, try again: %s", d->device,
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
	trz_capture_mode mode = heap_lock_growth(h);
	int at = find_peer(d, device);
	if (on && at == d->access_count)
		status = add_peer(h, device);
	else if (!on && at < d->access_count)
		d->access[at] = d->access[--d->access_count];
	heap_unlock_growth(h, mode);
	return status;
}
