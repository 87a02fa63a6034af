/* SPDX-License-Identifier: Apache-2.0
 *
 * Reserving windows, laying tiles, and taking mappings away.
 */
#include "memory/window.h"

#include <assert.h>

#include "bits.h"
#include "error.h"

static trz_status reserve_up_to(struct driver *driver, uint64_t *size, uint64_t least, trz_addr *address)
{
	for (;;) {
		trz_status status = driver_reserve(driver, *size, address);
		if (status != TRZ_ERROR_ADDRESS_SPACE && status != TRZ_ERROR_OUT_OF_MEMORY)
			return status;
		if (*size == least)
			return trz_fail(TRZ_ERROR_ADDRESS_SPACE,
			                "device %d has no free address range of %llu bytes: raise the process's "
			                "address space limit, or trim",
			                driver->device, (unsigned long long)least);
		*size = max_u64(align_down(*size / 2, driver->granule), least);
	}
}

trz_status window_open(struct meta *meta, struct driver *driver, enum kind kind, uint64_t size,
                       uint64_t least, struct window **out)
{
	assert(least > 0 && least <= size && (size | least) % driver->granule == 0);
	struct window *w = meta_alloc(meta, sizeof *w);
	if (!w)
		return meta_exhausted();
	trz_status status = reserve_up_to(driver, &size, least, &w->base);
	if (status == TRZ_OK) {
		w->places = meta_alloc(meta, (size >> GRANULE_SHIFT) * sizeof *w->places);
		if (!w->places) {
			driver_unreserve(driver, w->base, size);
			status = meta_exhausted();
		}
	}
	if (status != TRZ_OK) {
		meta_free(meta, w);
		return status;
	}
	w->size = size;
	w->top = w->base;
	w->kind = (uint8_t)kind;
	level_add(&driver->counters->address_bytes, size);
	*out = w;
	return TRZ_OK;
}

trz_status window_close(struct meta *meta, struct driver *driver, struct window *w)
{
	assert(!w->classic && w->mapped == 0);
	trz_status status = driver_unreserve(driver, w->base, w->size);
	if (status != TRZ_OK)
		return status;
	level_sub(&driver->counters->address_bytes, w->size);
	meta_free(meta, w->places);
	meta_free(meta, w);
	return TRZ_OK;
}

trz_status window_open_classic(struct meta *meta, struct tiles *tiles, enum kind kind, uint64_t size,
                               struct window **out)
{
	struct window *w = meta_alloc(meta, sizeof *w);
	if (!w || !tiles_reserve(tiles, 1, 0)) {
		meta_free(meta, w);
		return meta_exhausted();
	}
	trz_status status = driver_mem_alloc(tiles->driver, size, &w->classic_address);
	if (status != TRZ_OK) {
		meta_free(meta, w);
		return status;
	}
	w->base = align_up(w->classic_address, UNIT);
	w->top = align_down(w->classic_address + size, UNIT);
	w->size = w->top - w->base;
	w->mapped = size;
	w->kind = (uint8_t)kind;
	w->classic = tile_new(tiles, 0, size, kind);
	*out = w;
	return TRZ_OK;
}

trz_status window_close_classic(struct meta *meta, struct tiles *tiles, struct window *w)
{
	trz_status status = driver_mem_free(tiles->driver, w->classic_address);
	if (status != TRZ_OK)
		return status;
	tile_forget(tiles, w->classic);
	meta_free(meta, w);
	return TRZ_OK;
}

/* Notes on the granules of a tile that a place covers them, or with NULL that none does any more. */
static void set_places(struct window *w, trz_addr address, uint64_t size, struct place *p)
{
	for (struct place **at = &w->places[(address - w->base) >> GRANULE_SHIFT]; size; size -= GRANULE)
		*at++ = p;
}

trz_status window_unmap_place(struct tiles *tiles, struct place *p)
{
	uint64_t size = place_size(p);
	assert(window_at(p->window, p->address) == p && p->window->mapped >= size);
	trz_status status = driver_unmap(tiles->driver, p->address, size);
	if (status != TRZ_OK)
		return status;
	set_places(p->window, p->address, size, NULL);
	p->window->mapped -= size;
	tile_drop_place(tiles, p);
	return TRZ_OK;
}

/* A mapping that could not be undone stays as an alias; the tile is owned at its older place again, if it has one. */
static void keep_as_alias(struct tile *tile)
{
	if (tile->places->next)
		tile_flip(tile->places->next);
}

/* Undoes the newest mapping of the first `count` tiles; true: the range is as it was. */
static bool undo_lay(struct tiles *tiles, struct tile **list, size_t count)
{
	bool clean = true;
	for (size_t i = count; i-- > 0;)
		if (window_unmap_place(tiles, list[i]->places) != TRZ_OK) {
			keep_as_alias(list[i]);
			clean = false;
		}
	return clean;
}

trz_status window_lay(struct window *w, trz_addr at, struct tiles *tiles, struct tile **list, size_t count)
{
	trz_addr address = at;
	trz_status status = TRZ_OK;
	size_t mapped = 0;
	assert(count > 0 && !w->classic && at <= w->top);
	for (; mapped < count; mapped++) {
		assert(list[mapped]->handle && address + list[mapped]->size <= w->base + w->size);
		status = driver_map(tiles->driver, address, list[mapped]->size, list[mapped]->handle);
		if (status != TRZ_OK)
			break;
		address += list[mapped]->size;
	}
	if (status == TRZ_OK)
		status = driver_set_access(tiles->driver, at, address - at);
	w->mapped += address - at;
	address = at;
	for (size_t i = 0; i < mapped; i++) {  /* not in the loop above: driver calls evict our data from the caches */
		struct place *p = tile_add_place(tiles, list[i], w, address);
		p->accessible = status == TRZ_OK;
		set_places(w, address, list[i]->size, p);
		address += list[i]->size;
	}
	if (status == TRZ_OK || !undo_lay(tiles, list, mapped))
		w->top = max_u64(w->top, address);
	for (size_t i = 0; i < count && status == TRZ_OK; i++)
		if (!w->view || !list[i]->seat)
			list[i]->seat = list[i]->places;
	return status;
}

trz_status window_unmap_tile(struct tiles *tiles, struct tile *tile)
{
	trz_status status = TRZ_OK;
	while (status == TRZ_OK && tile->places && tile->places->next)
		status = window_unmap_place(tiles, tile->places->next);
	if (status == TRZ_OK && tile->places)
		status = window_unmap_place(tiles, tile->places);
	return status;
}
