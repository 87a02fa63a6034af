/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap creates memory as long as reserved memory stays within the slack above the peak of allocated memory: the
 * program needs that much in any case. Beyond the slack it moves memory.
 *
 * A program whose free memory never lines up would move tiles for ever. So moving is paid for: the slack grows with the
 * square of how often the peak has been moved. For a program that settles that is very little. For one that does not,
 * it is fast enough that its heap soon is so large that driver calls stop (docs/decisions/0003-moving-pays.md), or are
 * few (0020-refills.md).
 *
 * A program that is warm asks again for what it has asked for before. Tiles that move for its largest requests then
 * return when these are freed, so that the same tiles are free next time (view.h, docs/decisions/0016-views.md).
 *
 * The preferred tile is small where memory is churned, because a tile can only be gathered when all of it is free,
 * and larger in a burst of allocations without frees, such as weights and optimizer state. It is small again while the
 * heap is, and towards the end of what the device has (docs/decisions/0010-tiles-on-a-tight-device.md).
 */
#include "supply/policy.h"

#include "heap/ledger.h"

/* A tile is at most such a part of what it is for (docs/design.md, Tile size). */
enum {
	SMALL_TILES = 128,           /* a tile of small memory is at most such a part of it, once that is large */
	SMALL_DOUBLES = 64,          /* so many SMALL_TILEs are reserved before tiles of small memory have that size */
	BURST_TILES = 128,           /* a tile in a burst is at most such a part of what is reserved */
	BURST_PART = 50              /* a burst is such a part of what is reserved, allocated in a row without a free */
};

/* A tile is at most such a part of its heap, or EARLY_TILE. In heaps below EARLY_HEAP, which many never leave, it is no
 * longer than what is missing either, but EARLY_LEAST at least (docs/decisions/0024-small-programs.md). */
enum { EARLY_PARTS = 32 };
#define EARLY_TILE ((uint64_t)8 << 20)
#define EARLY_LEAST ((uint64_t)4 << 20)
#define EARLY_HEAP (EARLY_PARTS * EARLY_TILE)

/* With TIGHT_LEFT left, tiles are at most TIGHT_TILE, in a burst TIGHT_BURST times that; with less left, less, by the
 * square (docs/decisions/0010-tiles-on-a-tight-device.md). */
#define TIGHT_LEFT ((uint64_t)28 << 30)
enum { TIGHT_TILE = 8 * GRANULE, TIGHT_BURST = 4 };

/* If less than such a part of what is reserved is left, other streams may soon have to wait for what any stream
 * frees. */
enum { NEARLY_FULL = 32 };

/* In a burst a tile of ENDING_TILE times tile_size or more may be a quarter longer, to end with its block; blocks of
 * UNSHARED_HALVES halves of tile_size or more do not share theirs (docs/decisions/0013-tiles-end-with-blocks.md). */
enum { ENDING_TILE = 3, UNSHARED_HALVES = 5 };

/* Many programs move their peak this many times before they settle by themselves. */
#define FREE_TURNS 3.0

/* A program that repeats itself settles before it has earned EARNED_QUICKLY of slack, in per mille of its peak. One at
 * random never settles, and its slack would grow on as fast: so what it earns beyond that counts EARNED_SLOWLY. */
#define EARNED_QUICKLY 350.0
#define EARNED_SLOWLY 0.01

/* Streams that keep their peaks to themselves hold the sum of these: at most such a part of the program's peak
 * (docs/decisions/0008-lending.md). */
enum { APART_PERCENT = 130 };

/* Up to so many slacks above the peak, memory is created if gathering would break up free blocks for little. */
#define BARGAIN_SLACK 1.5
enum { BARGAIN_TILES = 6 };     /* for requests of at most so many tiles: for longer ones there is always something */

/* A program is warm once its peak has been moved so many times, or its allocations add up to this many peaks. */
#define WARM_TURNS 1.0
#define WARM_TURNOVERS 200.0

/* Once VIEW_TURNS peaks have been mapped for views that are not flipped into, views do not repeat. FLIPS_REPAY bytes
 * flipped into views make up for one byte mapped. The count starts anew once the peak has grown by one PEAK_GROWS-th,
 * or has been moved for good RETRY_TURNS times since. */
#define VIEW_TURNS 3.0
#define RETRY_TURNS 1.5
enum { FLIPS_REPAY = 4, PEAK_GROWS = 8 };

/* A view is worth its while if at most so many times the demand is free; if work is late, fewer times, since then the
 * same tiles are not free again the next time. */
enum { VIEW_SPARE = 8, VIEW_SPARE_LATE = 4 };

/* ---- to create or to move ---- */

/* How far reserved memory may exceed the peak of allocated memory before growth looks for free memory elsewhere, in per
 * mille. */
static double least_slack(const trz_heap *h)
{
	return (double)h->config.slack_per_mille;
}

/* How far before growth maps memory elsewhere. What was mapped for pools that have ended earns nothing: their addresses
 * were new, so no slack would have spared it. */
static double grown_slack(const trz_heap *h, double peak)
{
	double turns = (double)(h->moved_bytes - h->moved_for_ended) / peak - FREE_TURNS;
	double earned = turns > 0 ? (double)h->config.churn_per_mille * turns * turns : 0;
	if (earned > EARNED_QUICKLY)
		earned = EARNED_QUICKLY + EARNED_SLOWLY * (earned - EARNED_QUICKLY);
	return least_slack(h) + earned;
}

/* The peak of allocated bytes since the heap was opened: a program that resets its statistics gets the same memory. */
static uint64_t peak_of(const trz_heap *h)
{
	return max_u64(h->peak_before, counter_get(&h->counters.allocated_bytes.peak[2]));
}

/* The peak, once callers hold `need` more. */
static double peak_with(const trz_heap *h, uint64_t need)
{
	return (double)max_u64(peak_of(h), heap_held(h, ALLOCATED_BYTES) + need);
}

static bool is_within(const trz_heap *h, uint64_t bytes, double peak, double per_mille)
{
	return (double)(heap_reserved(h) + bytes) <= peak * (1.0 + per_mille / 1000.0);
}

enum effort policy_effort(const trz_heap *h, const struct demand *d)
{
	HEAP_GROWTH_LOCKED(h);
	return is_within(h, d->bytes, peak_with(h, d->bytes), least_slack(h)) ? EFFORT_CREATE : EFFORT_MOVE;
}

bool policy_creates(const trz_heap *h, const struct demand *d, uint64_t bytes, uint64_t need)
{
	HEAP_GROWTH_LOCKED(h);
	double peak = peak_with(h, need);
	return d->effort == EFFORT_CREATE ||
	       (d->effort == EFFORT_MOVE && is_within(h, bytes, peak, grown_slack(h, peak)));
}

bool policy_bargains(const trz_heap *h, const struct demand *d)
{
	HEAP_GROWTH_LOCKED(h);
	return d->effort == EFFORT_MOVE && !d->view && d->bytes <= BARGAIN_TILES * h->config.tile_size &&
	       is_within(h, d->bytes, peak_with(h, d->bytes), BARGAIN_SLACK * least_slack(h));
}

bool policy_peaks_are_apart(const trz_heap *h, const struct lane *l)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t peak = peak_of(h), sum = 0;
	for (const struct lane *of = h->streams.lanes.first; of; of = of->next)
		if (of->pool == l->pool && !atomic_load_explicit(&of->stream->retired, memory_order_relaxed))
			sum += of->held_peak;
	return sum > peak / 100 * APART_PERCENT;
}

/* Whether the program has moved its peak, or has run for long, so that what it asks for now it will ask for again. */
static bool is_warm(const trz_heap *h, double peak)
{
	return (double)h->moved_bytes > WARM_TURNS * peak ||
	       (double)heap_given_out(h, ALLOCATED_BYTES) > WARM_TURNOVERS * peak;
}

static bool is_large(const trz_heap *h, const struct demand *d)
{
	uint64_t tiles = h->config.view_tiles;
	return tiles && d->kind == LARGE && d->bytes >= tiles * h->config.tile_size;
}

/* Whether memory has been moved for a request of this size. */
static bool is_known_size(const trz_heap *h, uint64_t bytes)
{
	for (unsigned i = 0; i < VIEW_SIZES; i++)
		if (h->views.sizes[i] == bytes)
			return true;
	return false;
}

/* Whether what views have cost so far says nothing: the peak has grown since, so no step was like the one before; or
 * views were given up, and moving memory for good has not ended the scatter either. */
static bool counts_anew(const trz_heap *h, double peak)
{
	return peak > (double)h->views.peak * (1.0 + 1.0 / PEAK_GROWS) ||
	       (double)(h->moved_bytes - h->views.moved) > RETRY_TURNS * peak;
}

/* If much more is free than is asked for, or views do not repeat, moving memory for good is better: it ends the
 * scatter. A size that has not come before may not come again, so it gets no view; if work is late it does, since there
 * may be no second time. */
bool policy_views(const trz_heap *h, const struct demand *d)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t unused = heap_reserved(h) - heap_held(h, ALLOCATED_BYTES);
	bool late = d->lane->stream->late;
	if (!is_large(h, d) || d->lane->pool || unused > (late ? VIEW_SPARE_LATE : VIEW_SPARE) * d->bytes)
		return false;
	double peak = (double)peak_of(h);
	bool known = is_known_size(h, d->bytes), paid = (double)h->views.debt <= VIEW_TURNS * peak;
	return is_warm(h, peak) && (paid ? known || late : known && counts_anew(h, peak));
}

static void owe(trz_heap *h, uint64_t bytes)
{
	struct views_record *v = &h->views;
	uint64_t peak = peak_of(h);
	if (counts_anew(h, (double)peak)) {
		v->peak = peak;
		v->debt = 0;
	}
	v->debt += bytes;
	v->moved = h->moved_bytes + bytes;
}

void policy_moved(trz_heap *h, const struct demand *d, uint64_t bytes, bool view)
{
	HEAP_GROWTH_LOCKED(h);
	struct views_record *v = &h->views;
	if (view)
		owe(h, bytes);
	h->moved_bytes += bytes;
	if (d->lane->pool)
		d->lane->pool->moved_bytes += bytes;
	if (bytes && is_large(h, d) && !is_known_size(h, d->bytes))
		v->sizes[v->sizes_count++ % VIEW_SIZES] = d->bytes;
}

void policy_view_flipped(trz_heap *h, uint64_t bytes)
{
	HEAP_GROWTH_LOCKED(h);
	h->views.debt -= min_u64(h->views.debt, bytes / FLIPS_REPAY);
}

/* ---- tiles ---- */

static uint64_t small_tile(const trz_heap *h, uint64_t reserved)
{
	uint64_t least = reserved < SMALL_DOUBLES * (uint64_t)SMALL_TILE ? GRANULE : SMALL_TILE;
	uint64_t share = flow_current(&h->counters.reserved_bytes, SMALL) / SMALL_TILES;
	uint64_t size = max_u64(least, min_u64(share, h->config.tile_size));
	return align_down(max_u64(size, h->driver.granule), h->driver.granule);
}

static bool is_burst(const trz_heap *h, uint64_t reserved)
{
	return counter_get(&h->burst_bytes) >= reserved / BURST_PART;
}

static uint64_t large_tile(const trz_heap *h, uint64_t reserved)
{
	uint64_t size = h->config.tile_size;
	return is_burst(h, reserved) ? min_u64(max_u64(reserved / BURST_TILES, size), h->config.tile_size_max) : size;
}

static uint64_t left_of(uint64_t most, uint64_t reserved)
{
	return most > reserved ? most - reserved : 0;
}

/* The largest tile while this much is left. */
static uint64_t fine_tile(const trz_heap *h, uint64_t reserved, uint64_t left)
{
	double part = (double)left / (double)TIGHT_LEFT, times = is_burst(h, reserved) ? TIGHT_BURST : 1;
	return (uint64_t)(part * part * times * TIGHT_TILE);
}

uint64_t policy_tile(const trz_heap *h, enum kind kind, uint64_t reserved)
{
	HEAP_GROWTH_LOCKED(h);
	if (kind == SMALL)
		return small_tile(h, reserved);
	uint64_t left = left_of(min_u64(counter_get(&h->attainable), heap_limit(h)), reserved);
	uint64_t size = min_u64(large_tile(h, reserved), fine_tile(h, reserved, left));
	return align_down(max_u64(size, h->driver.granule), h->driver.granule);
}

bool policy_is_tight(const trz_heap *h, enum kind kind, uint64_t bytes)
{
	HEAP_GROWTH_LOCKED(h);
	uint64_t reserved = heap_reserved(h), left = left_of(counter_get(&h->attainable), reserved);
	return left < bytes || (kind == LARGE && fine_tile(h, reserved, left) < large_tile(h, reserved));
}

bool policy_is_nearly_full(const trz_heap *h, uint64_t reserved)
{
	HEAP_GROWTH_LOCKED(h);
	return left_of(min_u64(counter_get(&h->attainable), heap_limit(h)), reserved) < reserved / NEARLY_FULL;
}

/* The largest tile of large memory in a heap that will then have so much reserved. */
static uint64_t early_tile(const trz_heap *h, uint64_t missing, uint64_t reserved)
{
	uint64_t size = max_u64(reserved / EARLY_PARTS, EARLY_TILE);
	if (reserved < EARLY_HEAP)
		size = min_u64(size, max_u64(missing, EARLY_LEAST));
	return align_up(size, h->driver.granule);
}

/* In a burst, which prefers tiles of `size`, a tile ends with the block that it is made for: one that two blocks share
 * is free only when both are. What a long block must share with the next, the rest of a granule, is a tile of its
 * own. */
static uint64_t ending_tile(const trz_heap *h, const struct demand *d, uint64_t missing, uint64_t size)
{
	uint64_t granule = h->driver.granule, usual = h->config.tile_size;
	if (size >= ENDING_TILE * usual && missing <= size + size / 4)
		size = max_u64(size, missing);
	size = min_u64(size, max_u64(missing, usual));
	bool shares = d->bytes % granule != 0 && 2 * d->bytes >= UNSHARED_HALVES * usual;
	return shares && size >= missing ? max_u64(missing - granule, granule) : size;
}

uint64_t policy_next_tile(const trz_heap *h, const struct demand *d, uint64_t missing, uint64_t reserved)
{
	uint64_t limit = heap_limit(h);
	uint64_t most = d->effort == EFFORT_LAST ? limit : min_u64(limit, counter_get(&h->attainable));
	uint64_t left = align_down(left_of(most, reserved), h->driver.granule);
	uint64_t size = policy_tile(h, d->kind, reserved);
	if (missing > left)
		return 0;
	if (d->effort >= EFFORT_ALL)
		return min_u64(missing, h->config.tile_size);
	if (d->kind == LARGE)
		size = min_u64(size, early_tile(h, missing, reserved + missing));
	if (d->kind == LARGE && is_burst(h, reserved))
		size = ending_tile(h, d, missing, size);
	return size <= left ? size : min_u64(missing, left);
}
