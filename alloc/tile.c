/* SPDX-License-Identifier: Apache-2.0
 *
 * Creating tiles and keeping their places.
 */
#include "tile.h"

#include <assert.h>

void tiles_init(struct tiles *t, struct meta *meta, struct driver *driver, struct counters *counters)
{
	t->driver = driver;
	t->counters = counters;
	t->zombies = NULL;
	node_pool_init(&t->nodes, meta, sizeof(struct tile));
	node_pool_init(&t->place_nodes, meta, sizeof(struct place));
}

bool tiles_reserve(struct tiles *t, size_t tiles, size_t places)
{
	return node_pool_reserve(&t->nodes, tiles) && node_pool_reserve(&t->place_nodes, places);
}

struct tile *tile_new(struct tiles *t, trz_handle handle, uint64_t size, enum kind kind)
{
	struct tile *tile = node_pool_take(&t->nodes);
	*tile = (struct tile){.handle = handle, .size = size, .kind = (uint8_t)kind};
	return tile;
}

trz_status tile_fill(struct tiles *t, struct tile *tile, unsigned export_kinds)
{
	trz_handle handle;
	trz_status status = driver_create(t->driver, tile->size, export_kinds, &handle);
	if (status == TRZ_OK)
		tile->handle = handle;
	return status;
}

trz_status tile_create(struct tiles *t, uint64_t size, enum kind kind, unsigned export_kinds, struct tile **out)
{
	struct tile *tile = tile_new(t, 0, size, kind);
	trz_status status = tile_fill(t, tile, export_kinds);
	if (status == TRZ_OK)
		*out = tile;
	else
		tile_forget(t, tile);
	return status;
}

/* Before all others. */
static void link_place(struct place *p)
{
	struct tile *tile = p->tile;
	p->prev = NULL;
	p->next = tile->places;
	if (p->next)
		p->next->prev = p;
	tile->places = p;
}

static void unlink_place(struct place *p)
{
	if (p->prev)
		p->prev->next = p->next;
	else
		p->tile->places = p->next;
	if (p->next)
		p->next->prev = p->prev;
}

struct place *tile_add_place(struct tiles *t, struct tile *tile, struct window *w, trz_addr address)
{
	struct place *p = node_pool_take(&t->place_nodes);
	*p = (struct place){.tile = tile, .window = w, .address = address};
	if (tile->places)
		level_add(&t->counters->alias, 1);
	link_place(p);
	return p;
}

void tile_flip(struct place *p)
{
	unlink_place(p);
	link_place(p);
}

void tile_drop_place(struct tiles *t, struct place *p)
{
	unlink_place(p);
	if (p->tile->places)
		level_sub(&t->counters->alias, 1);
	node_pool_give(&t->place_nodes, p);
}

void tile_forget(struct tiles *t, struct tile *tile)
{
	assert(!tile->places && !tile->handle);
	node_pool_give(&t->nodes, tile);
}
