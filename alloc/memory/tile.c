/* SPDX-License-Identifier: Apache-2.0
 *
 * Creating tiles and keeping their places.
 */
#include "memory/tile.h"

#include <assert.h>

void tiles_init(struct tiles *t, struct meta *meta, struct driver *driver, struct counters *counters,
                unsigned export_kinds)
{
	t->driver = driver;
	t->counters = counters;
	t->zombies = NULL;
	t->export_kinds = export_kinds;
	node_pool_init(&t->nodes, meta, sizeof(struct tile));
	node_pool_init(&t->place_nodes, meta, sizeof(struct place));
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

static void unlink_place(struct place *p)
{
	if (p->prev)
		p->prev->next = p->next;
	else
		p->tile->places = p->next;
	if (p->next)
		p->next->prev = p->prev;
}

void tile_flip(struct place *p)
{
	assert(!tile_is_owned_at(p));
	unlink_place(p);
	tile_link_place(p);
}

void tile_drop_place(struct tiles *t, struct place *p)
{
	unlink_place(p);
	if (p->tile->seat == p)
		p->tile->seat = p->tile->places;
	if (p->tile->places)
		level_sub(&t->counters->alias, 1);
	node_pool_give(&t->place_nodes, p);
}

void tile_forget(struct tiles *t, struct tile *tile)
{
	assert(!tile->places && !tile->handle && !tile->pins);
	node_pool_give(&t->nodes, tile);
}
