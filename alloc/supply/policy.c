/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap creates memory as long as reserved memory stays within the slack above the peak of allocated memory: the
 * program needs that much in any case. Beyond the slack it moves memory.
 *
 * A program whose free memory never lines up would move tiles for ever. So moving is paid for: the slack grows with the
 * square of how often the peak has been moved, very little for a program that settles, and fast enough for one that
 * does not, until its heap is large enough and the driver calls stop. And a program whose allocations add up to many
 * times its peak is warmed up: if it still needs to move memory, its slack grows once more
 * (docs/decisions/0003-moving-pays.md).
 *
 * The preferred tile is small where memory is churned, because a tile can only be gathered when all of it is free,
 * and larger in a burst of allocations without frees, such as weights and optimizer state. Towards the end of what
 * the device has it is small again (docs/decisions/0010-tiles-on-a-tight-device.md).
 */
#include "supply/policy.h"

#include "heap/ledger.h"

/* A tile is at most such a part of what it is for (docs/design.md, Tile size). */
enum {
	SMALL_TILES = 64,            /* of small memory: so many at least once it is large */
	SMALL_DOUBLES = 64,          /* so many of SMALL_TILE are reserved before small tiles have that size */
	BURST_TILES = 128,           /* of what is reserved, in a burst */
	BURST_PART = 50              /* of what is reserved; so much in a row without a free is a burst */
};

/* Towards the end of the device (docs/decisions/0010-tiles-on-a-tight-device.md). */
enum { TIGHT_TILES = 256, FINE_TILES = 64, FINE_TILE = 2 * GRANULE };

/* A tile of so many times tile_size ends with its block (docs/decisions/0013-tiles-end-with-blocks.md). */
enum { ENDING_TILE = 3 };

/* Many programs move their peak this many times before they settle by themselves. */
#define FREE_TURNS 3.0

/* A program whose allocations add up to this many times its peak is warmed up. */
#define WARM_TURNOVERS 200.0

/* ---- to create or to move ---- */

/* How far reserved memory may exceed the peak of allocated memory; in per mille. */
static double slack(const trz_heap *h, double peak)
{
	double per_mille = (double)h->config.slack_per_mille;
	double moved = (double)h->gathered_bytes - FREE_TURNS * peak;
	if (moved > 0)
		per_mille += (double)h->config.churn_per_mille * (moved / peak) * (moved / peak);
	if ((double)heap_given_out(h, ALLOCATED_BYTES) > WARM_TURNOVERS * peak)
		per_mille += (double)h->config.warm_per_mille;
	return per_mille;
}

/* Whether this much new memory keeps reserved memory within the slack, once callers hold `need` more. */
static bool within_slack(const trz_heap *h, uint64_t bytes, uint64_t need)
{
	uint64_t held = heap_held(h, ALLOCATED_BYTES) + need;
	double peak = (double)max_u64(counter_get(&h->counters.allocated_bytes.peak[2]), held);
	return (double)(heap_reserved(h) + bytes) <= peak * (1.0 + slack(h, peak) / 1000.0);
}

enum effort policy_effort(const trz_heap *h, const struct demand *d)
{
	HEAP_GROWTH_LOCKED(h);
	return within_slack(h, d->bytes, d->bytes) ? EFFORT_CREATE : EFFORT_MOVE;
}

bool policy_creates(const trz_heap *h, const struct demand *d, uint64_t bytes, uint64_t need)
{
	HEAP_GROWTH_LOCKED(h);
	return d->effort == EFFORT_CREATE || (d->effort == EFFORT_MOVE && within_slack(h, bytes, need));
}

/* ---- tiles ---- */

static uint64_t small_tile(const trz_heap *h, uint64_t reserved)
{
	uint64_t least = reserved < SMALL_DOUBLES * (uint64_t)SMALL_TILE ? GRANULE : SMALL_TILE;
	uint64_t share = flow_current(&h->counters.reserved_bytes, SMALL) / SMALL_TILES;
	uint64_t size = max_u64(least, min_u64(share, h->config.tile_size));
	return align_down(max_u64(size, h->driver.granule), h->driver.granule);
}

static uint64_t large_tile(const trz_heap *h, uint64_t reserved)
{
	uint64_t size = h->config.tile_size;
	if (counter_get(&h->burst_bytes) >= reserved / BURST_PART)
		size = min_u64(max_u64(reserved / BURST_TILES, size), h->config.tile_size_max);
	return size;
}

static uint64_t left_of(uint64_t most, uint64_t reserved)
{
	return most > reserved ? most - reserved : 0;
}

/* The largest tile when this much is left. */
static uint64_t fine_tile(uint64_t left)
{
	return max_u64(left / TIGHT_TILES, min_u64(left / FINE_TILES, FINE_TILE));
}

uint64_t policy_tile(const trz_heap *h, enum kind kind, uint64_t reserved)
{
	HEAP_GROWTH_LOCKED(h);
	if (kind == SMALL)
		return small_tile(h, reserved);
	uint64_t left = left_of(min_u64(h->attainable, heap_limit(h)), reserved);
	uint64_t size = min_u64(large_tile(h, reserved), fine_tile(left));
	return align_down(max_u64(size, h->driver.granule), h->driver.granule);
}

bool policy_is_tight(const trz_heap *h, enum kind kind, uint64_t bytes)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t reserved = heap_reserved(h), left = left_of(h->attainable, reserved);
	return left < bytes || (kind == LARGE && fine_tile(left) < large_tile(h, reserved));
}

uint64_t policy_next_tile(const trz_heap *h, const struct demand *d, uint64_t missing, uint64_t reserved)
{
	uint64_t limit = heap_limit(h);
	uint64_t most = d->effort == EFFORT_ALL ? limit : min_u64(limit, h->attainable);
	uint64_t left = align_down(left_of(most, reserved), h->driver.granule);
	uint64_t size = policy_tile(h, d->kind, reserved);
	if (missing > left)
		return 0;
	if (d->effort == EFFORT_ALL)
		return min_u64(missing, h->config.tile_size);
	/* Large tiles end with the block that they are made for: one that two share is free only when both are. */
	if (size >= ENDING_TILE * h->config.tile_size && missing >= size / 2 && missing <= size + size / 4)
		size = missing;
	return size <= left ? size : min_u64(missing, left);
}
