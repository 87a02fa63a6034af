/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles: physical memory, and where it is mapped. A tile is mapped at one or more places; at most one of them
 * is its owner's, the others are stale aliases that cost nothing until the tile is destroyed. A tile that the
 * driver refused to take back is a zombie: without owner, counted, tried again at each trim.
 * Guarded by the growth lock.
 */
#ifndef TRZ_ALLOC_TILE_H
#define TRZ_ALLOC_TILE_H

#include <assert.h>

#include "counters.h"
#include "device/driver.h"
#include "ground/meta.h"
#include "ground/types.h"

/* One mapping of a tile. */
struct place {
	struct place *next, *prev;   /* of the same tile */
	struct tile *tile;
	struct window *window;
	trz_addr address;
	const struct stream *user;   /* of a stale place: the stream that last used memory at this address, ... */
	uint64_t sequence;           /* ... and the ticket of that use: the mapping may go when it has passed */
	bool accessible;             /* access has been set, and the place is not leaving */
	bool told;                   /* the program has been told of it (notice.c) */
	bool leaving;                /* the program is being told that it goes: no other thread uses or removes it */
	uint32_t granules;           /* its tile's size: a walk over a window need not load the tile */
};

static inline uint64_t place_size(const struct place *p)
{
	return (uint64_t)p->granules << GRANULE_SHIFT;
}

static inline trz_addr place_end(const struct place *p)
{
	return p->address + place_size(p);
}

struct tile {
	trz_handle handle;           /* 0: none any more (a zombie whose mappings are left) */
	uint64_t size;
	struct place *seat;          /* where it returns to from a view (view.h): outside views, its owner's; NULL: none */
	struct stream *seat_of;      /* in a view: whose free memory it was at its seat */
	struct place *places;        /* the owner's place is first; an empty list: not mapped */
	struct tile *next;           /* of the zombies, or of an import's tiles */
	bool zombie;
	bool told;                   /* as in struct place, for a classic segment */
	uint16_t pins;               /* > 0: the program is being told of its places; no other thread removes one */
	uint8_t kind;                /* the enum kind that its bytes are counted under */
	bool dedicated;                  /* made for one allocation */
	uint8_t export_kinds;        /* TRZ_EXPORT_*, a set: the kinds of export that it allows */
	uint32_t exports;            /* packed memory: > 0 while other processes may use it, so it stays where it is. The
	                              * heap lock guards this and the next three */
	trz_addr exported_at;        /* exported: at this address */
	struct block *exported_block;  /* dedicated: its block, which counts the exports; NULL: `exports` does */
	struct tile *exported_next;  /* in one of the heap's lists of exported tiles */
	uint32_t found_at;           /* its position in the last list of candidates that listed it */
	uint64_t seen_in;            /* the number of the last run of a flip search that counted it */
};

struct tiles {
	struct driver *driver;
	struct counters *counters;
	struct node_pool nodes, place_nodes;
	struct tile *zombies;
	unsigned export_kinds;       /* of packed memory */
};

void tiles_init(struct tiles *t, struct meta *meta, struct driver *driver, struct counters *counters,
                unsigned export_kinds);

/* Reserves nodes for `tiles` new tiles and `places` new places. */
static inline bool tiles_reserve(struct tiles *t, size_t tiles, size_t places)
{
	return node_pool_reserve(&t->nodes, tiles) && node_pool_reserve(&t->place_nodes, places);
}

/* Makes a tile. Its handle is another process's, neither created here nor counted, or 0: a tile without memory yet, or
 * a classic segment, whose memory is not ours to map. The node has been reserved. */
static inline struct tile *tile_new(struct tiles *t, trz_handle handle, uint64_t size, enum kind kind)
{
	struct tile *tile = node_pool_take(&t->nodes);
	*tile = (struct tile){.handle = handle, .size = size, .kind = (uint8_t)kind};
	return tile;
}

/* Gives a tile its memory, mapped nowhere. Driver: create. */
static inline trz_status tile_fill(struct tiles *t, struct tile *tile, unsigned export_kinds)
{
	assert(!tile->handle && tile->size > 0 && tile->size % GRANULE == 0);
	trz_handle handle;
	trz_status status = driver_create(t->driver, tile->size, export_kinds, &handle);
	if (status != TRZ_OK)
		return status;
	tile->handle = handle;
	tile->export_kinds = (uint8_t)export_kinds;
	return TRZ_OK;
}

/* tile_new and tile_fill. Driver: create. */
trz_status tile_create(struct tiles *t, uint64_t size, enum kind kind, unsigned export_kinds, struct tile **out);

/* Puts a place before all others of its tile. */
static inline void tile_link_place(struct place *p)
{
	struct tile *tile = p->tile;
	p->prev = NULL;
	p->next = tile->places;
	if (p->next)
		p->next->prev = p;
	tile->places = p;
}

/* Notes a mapping that the driver has made; the tile becomes owned there. The place has been reserved. */
static inline struct place *tile_add_place(struct tiles *t, struct tile *tile, struct window *w, trz_addr address)
{
	struct place *p = node_pool_take(&t->place_nodes);
	*p = (struct place){
	    .tile = tile, .window = w, .address = address, .granules = (uint32_t)(tile->size >> GRANULE_SHIFT)};
	if (tile->places)
		level_add(&t->counters->alias, 1);
	tile_link_place(p);
	return p;
}

/* Makes a tile owned at a place where it is mapped. No driver call. */
void tile_flip(struct place *p);

/* Whether the tile is owned at this place; else the place is a stale alias. */
static inline bool tile_is_owned_at(const struct place *p)
{
	return p->tile->places == p;
}

/* Notes who last used memory at a place, when the tile stops being owned there. */
static inline void tile_leave(struct place *p, const struct stream *user, uint64_t sequence)
{
	p->user = user;
	p->sequence = sequence;
}

/* Forgets a mapping. */
void tile_drop_place(struct tiles *t, struct place *p);

/* Gives back the node of a tile that is mapped nowhere and has no handle. */
void tile_forget(struct tiles *t, struct tile *tile);

#endif
