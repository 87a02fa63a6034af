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

static struct tile *new_tile(struct tiles *t, trz_handle handle, uint64_t size, enum kind kind)
{
	struct tile *tile = node_pool_take(&t->nodes);
	*tile = (struct tile){.handle = handle, .size = size, .kind = (uint8_t)kind};
	return tile;
}

trz_status tile_create(struct tiles *t, uint64_t size, enum kind kind, unsigned export_kinds, struct tile **out)
{
	trz_handle handle;
	trz_status status = driver_create(t->driver, size, export_kinds, &handle);
	if (status == TRZ_OK)
		*out = new_tile(t, handle, size, kind);
	return status;
}

struct tile *tile_foreign(struct tiles *t, trz_handle handle, uint64_t size)
{
	return new_tile(t, handle, size, LARGE);
}

struct tile *tile_classic(struct tiles *t, uint64_t size, enum kind kind)
{
	return new_tile(t, 0, size, kind);
}

void tile_add_place(struct tiles *t, struct tile *tile, struct window *w, trz_addr address)
{
	struct place *p = node_pool_take(&t->place_nodes);
	*p = (struct place){.next = tile->places, .window = w, .address = address};
	if (p->next)
		level_add(&t->counters->alias, 1);
	tile->places = p;
}

struct place *tile_place(const struct tile *tile, trz_addr address)
{
	struct place *p = tile->places;
	while (p->address != address)
		p = p->next;
	return p;
}

void tile_flip(struct tile *tile, trz_addr address)
{
	struct place **link = &tile->places;
	while ((*link)->address != address)
		link = &(*link)->next;
	struct place *owner = *link;
	*link = owner->next;
	owner->next = tile->places;
	tile->places = owner;
}

void tile_drop_place(struct tiles *t, struct tile *tile, trz_addr address)
{
	struct place **link = &tile->places;
	while ((*link)->address != address)
		link = &(*link)->next;
	struct place *gone = *link;
	*link = gone->next;
	node_pool_give(&t->place_nodes, gone);
	if (tile->places)
		level_sub(&t->counters->alias, 1);
}

void tile_forget(struct tiles *t, struct tile *tile)
{
	assert(!tile->places && !tile->handle);
	node_pool_give(&t->nodes, tile);
}
