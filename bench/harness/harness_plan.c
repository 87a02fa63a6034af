/* SPDX-License-Identifier: Apache-2.0
 *
 * An offline planner: finds addresses for all requests of a trace, whose sizes and lives it knows beforehand. It places
 * blocks one after another, each in a gap between those placed that live while it does: in the order of their requests,
 * as an allocator must; in that order, but beside a block that ends when they do; by size, by bytes times life, by
 * life. Then, from the best of these orders, it moves up the block that kept a plan from beating the best so far, again
 * and again, until a plan needs no more than what lives or the steps are spent. It counts steps, not time, so a plan
 * repeats.
 */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "trace.h"

enum { ROUNDING = 512, STRIDE = 256, STEPS_PER_EXTRA = 4 };

/* A block's place: [at, end). */
struct place {
	uint64_t at, end;
	uint32_t block;
};

/* The placed blocks that live at the beginning of one stride of requests, by address. */
struct stride {
	struct place *places;
	size_t count, room;
};

/* Time is the number of the request: a block lives from the request of its own number to `last`, both included. */
struct plan {
	size_t count;
	uint64_t *bytes;
	uint32_t *last;
	uint64_t *at;              /* where each block was placed */
	uint64_t *placed;          /* a bit for each block */
	struct stride *strides;
	struct stride living;      /* for place_in_time: the blocks that live now */
	uint32_t *dying, *dead_before;  /* blocks in the order of their ends, and how many end before each request */
	struct place *near;        /* for find_gap: blocks that began within the block's life, or in its stride before it */
	uint32_t *order;
	uint64_t *key;             /* for by_key */
	uint64_t live_peak, best, steps, most_steps;
	unsigned tries;
	bool tightest;             /* place in the smallest gap that will do; else in the lowest */
	uint64_t aim;              /* for find_gap_beside: a plan must not need more */
};

static void *room_for(size_t count, size_t size)
{
	void *made = calloc(max_u64(1, count), size);
	if (!made)
		harness_fail("plan", "no host memory");
	return made;
}

static size_t stride_count(const struct plan *p)
{
	return p->count / STRIDE + 1;
}

/* For place_in_time. */
static void order_ends(struct plan *p)
{
	p->dead_before = room_for(p->count + 2, sizeof *p->dead_before);
	p->dying = room_for(p->count, sizeof *p->dying);
	for (size_t i = 0; i < p->count; i++)
		p->dead_before[p->last[i] + 2]++;
	for (size_t i = 2; i < p->count + 2; i++)
		p->dead_before[i] += p->dead_before[i - 1];
	for (size_t i = 0; i < p->count; i++)
		p->dying[p->dead_before[p->last[i] + 1]++] = (uint32_t)i;
}

static void read_trace(struct plan *p, const struct trace *trace)
{
	uint32_t made = 0;
	uint64_t live = 0;
	p->count = trace->allocs;
	p->bytes = room_for(p->count, sizeof *p->bytes);
	p->last = room_for(p->count, sizeof *p->last);
	for (size_t i = 0; i < trace->count; i++) {
		const struct trace_event *e = &trace->events[i];
		if (e->kind == TRACE_ALLOC) {
			p->bytes[made] = align_up(e->size, ROUNDING);
			p->last[made] = trace->allocs - 1;
			live += p->bytes[made++];
			p->live_peak = max_u64(p->live_peak, live);
		} else if (e->kind == TRACE_FREE) {
			p->last[e->id] = made - 1;
			live -= p->bytes[e->id];
		}
	}
}

/* ---- one block ---- */

static int by_address(const void *a, const void *b)
{
	uint64_t x = ((const struct place *)a)->at, y = ((const struct place *)b)->at;
	return (x > y) - (x < y);
}

/* Lists placed blocks that begin in the block's stride before it and live on, or begin while it lives; by address. */
static size_t gather_near(struct plan *p, uint32_t block)
{
	size_t count = 0, first = block / STRIDE * STRIDE;
	for (size_t word = first / 64; word <= p->last[block] / 64; word++) {
		for (uint64_t bits = p->placed[word]; bits; bits &= bits - 1) {
			uint32_t other = (uint32_t)(word * 64 + (unsigned)__builtin_ctzll(bits));
			if (other <= p->last[block] && p->last[other] >= block)
				p->near[count++] = (struct place){p->at[other], p->at[other] + p->bytes[other], other};
		}
	}
	p->steps += count * STEPS_PER_EXTRA + (p->last[block] - first) / 64;
	qsort(p->near, count, sizeof *p->near, by_address);
	return count;
}

/* The address for the block. */
static uint64_t find_gap(struct plan *p, uint32_t block)
{
	const struct stride *s = &p->strides[block / STRIDE];
	size_t near = gather_near(p, block), i = 0, j = 0;
	uint64_t need = p->bytes[block], top = 0, best_at = UINT64_MAX, best_gap = UINT64_MAX;
	p->steps += s->count;
	while (i < s->count || j < near) {
		bool here = j == near || (i < s->count && s->places[i].at < p->near[j].at);
		const struct place *next = here ? &s->places[i++] : &p->near[j++];
		if (here && p->last[next->block] < block)
			continue;
		if (next->at >= top + need && next->at - top < best_gap) {
			best_at = top;
			best_gap = next->at - top;
			if (!p->tightest)
				return best_at;
		}
		top = max_u64(top, next->end);
	}
	return best_at == UINT64_MAX ? top : best_at;
}

/* The index of the first place that does not begin before the address. */
static size_t find_place(const struct stride *s, uint64_t at)
{
	size_t low = 0, high = s->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (s->places[middle].at < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void insert(struct stride *s, struct place place)
{
	if (s->count == s->room) {
		s->room = s->room ? 2 * s->room : 16;
		s->places = realloc(s->places, s->room * sizeof *s->places);
		if (!s->places)
			harness_fail("plan", "no host memory");
	}
	size_t i = find_place(s, place.at);
	memmove(&s->places[i + 1], &s->places[i], (s->count - i) * sizeof *s->places);
	s->places[i] = place;
	s->count++;
}

/* A block of no bytes may lie where another one does. */
static void take_out(struct stride *s, uint64_t at, uint32_t block)
{
	size_t i = find_place(s, at);
	while (s->places[i].block != block)
		i++;
	s->count--;
	memmove(&s->places[i], &s->places[i + 1], (s->count - i) * sizeof *s->places);
}

static void put(struct plan *p, uint32_t block, uint64_t at)
{
	const struct place place = {at, at + p->bytes[block], block};
	p->at[block] = at;
	p->placed[block / 64] |= UINT64_C(1) << block % 64;
	for (size_t i = block / STRIDE + 1; i * STRIDE <= p->last[block]; i++) {
		insert(&p->strides[i], place);
		p->steps += p->strides[i].count / 16 + 1;
	}
}

/* ---- all blocks ---- */

enum { ALL_PLACED = -1, SPENT = -2 };

/* Places all blocks in their order, none above `target`. Returns the position of the first that would lie above, or
 * ALL_PLACED, or SPENT. *top: what the plan needs. */
static long place_all(struct plan *p, uint64_t target, uint64_t *top)
{
	*top = 0;
	p->tries++;
	memset(p->placed, 0, (p->count / 64 + 1) * sizeof *p->placed);
	for (size_t i = 0; i < stride_count(p); i++)
		p->strides[i].count = 0;
	for (size_t i = 0; i < p->count; i++) {
		uint32_t block = p->order[i];
		uint64_t at = find_gap(p, block);
		if (at + p->bytes[block] > target)
			return (long)i;
		if (p->steps > p->most_steps)
			return SPENT;
		put(p, block, at);
		*top = max_u64(*top, at + p->bytes[block]);
	}
	return ALL_PLACED;
}

/* A gap among the blocks that live now. */
static uint64_t find_gap_now(const struct plan *p, uint64_t need)
{
	const struct stride *s = &p->living;
	uint64_t top = 0, best_at = UINT64_MAX, best_gap = UINT64_MAX;
	for (size_t i = 0; i < s->count; i++) {
		uint64_t gap = s->places[i].at - top;
		if (gap >= need && gap < best_gap) {
			best_at = top;
			best_gap = gap;
			if (!p->tightest)
				break;
		}
		top = s->places[i].end;
	}
	return best_at == UINT64_MAX ? top : best_at;
}

static uint64_t ends_apart(const struct plan *p, uint32_t a, uint32_t b)
{
	return p->last[a] > p->last[b] ? p->last[a] - p->last[b] : p->last[b] - p->last[a];
}

/* Beside the neighbour whose life ends most nearly when the block's does, so that their gaps will be one; UINT64_MAX:
 * no gap below the aim will do. */
static uint64_t find_gap_beside(const struct plan *p, uint32_t block)
{
	const struct stride *s = &p->living;
	uint64_t need = p->bytes[block], top = 0, best_at = UINT64_MAX, nearest = UINT64_MAX;
	for (size_t i = 0; i <= s->count; i++) {
		uint64_t end = i < s->count ? s->places[i].at : p->aim;
		if (end >= top + need) {
			uint64_t below = i > 0 ? ends_apart(p, block, s->places[i - 1].block) : UINT32_MAX;
			uint64_t above = i < s->count ? ends_apart(p, block, s->places[i].block) : UINT32_MAX;
			if (min_u64(below, above) < nearest) {
				nearest = min_u64(below, above);
				best_at = below <= above ? top : end - need;
			}
		}
		top = i < s->count ? s->places[i].end : top;
	}
	return best_at;
}

/* Places all blocks in the order of their requests, which is fast; UINT64_MAX: the aim is too low. */
static uint64_t place_in_time(struct plan *p)
{
	uint64_t most = 0;
	size_t dead = 0;
	p->living.count = 0;
	for (uint32_t block = 0; block < p->count; block++) {
		for (; dead < p->dead_before[block]; dead++)
			take_out(&p->living, p->at[p->dying[dead]], p->dying[dead]);
		uint64_t at = p->at[block] = p->aim ? find_gap_beside(p, block) : find_gap_now(p, p->bytes[block]);
		if (at == UINT64_MAX)
			return UINT64_MAX;
		insert(&p->living, (struct place){at, at + p->bytes[block], block});
		p->steps += p->living.count / 16 + 1;
		most = max_u64(most, at + p->bytes[block]);
	}
	return most;
}

static const uint64_t *sort_keys;

/* The greater key first; of equal ones the older block. */
static int by_key(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	if (sort_keys[x] != sort_keys[y])
		return sort_keys[x] < sort_keys[y] ? 1 : -1;
	return (x > y) - (x < y);
}

enum order { BY_TIME, BY_SIZE, BY_AREA, BY_LIFE, ORDERS };

static void sort_by(struct plan *p, enum order order)
{
	for (size_t i = 0; i < p->count; i++) {
		uint64_t life = p->last[i] - i + 1;
		p->order[i] = (uint32_t)i;
		p->key[i] = order == BY_AREA ? p->bytes[i] / ROUNDING * life : order == BY_LIFE ? life :
		            order == BY_SIZE ? p->bytes[i] : p->count - i;
	}
	sort_keys = p->key;
	qsort(p->order, p->count, sizeof *p->order, by_key);
}

static bool finished(const struct plan *p)
{
	return p->best <= p->live_peak || p->steps > p->most_steps;
}

/* Tries an order; keeps it in `kept` if it is the best yet. */
static void try_order(struct plan *p, enum order order, bool tightest, uint32_t *kept, bool *kept_tightest)
{
	uint64_t top;
	p->tightest = tightest;
	sort_by(p, order);
	if (order == BY_TIME)
		top = place_in_time(p);
	else if (place_all(p, p->best - ROUNDING, &top) != ALL_PLACED)
		return;
	if (top >= p->best)
		return;
	p->best = top;
	memcpy(kept, p->order, p->count * sizeof *kept);
	*kept_tightest = tightest;
}

/* Moves the block at `from` up to the position `to`. */
static void move_up(uint32_t *order, size_t from, size_t to)
{
	uint32_t block = order[from];
	memmove(&order[to + 1], &order[to], (from - to) * sizeof *order);
	order[to] = block;
}

/* Aims between the best plan and what lives; places a block that does not fit below earlier the next time. */
static void improve(struct plan *p)
{
	enum { PATIENCE = 64 };
	uint64_t gap = 2, top;
	unsigned failed = 0;
	while (!finished(p)) {
		uint64_t aim = align_down(p->best - max_u64(ROUNDING, (p->best - p->live_peak) / gap), ROUNDING);
		long stopped = place_all(p, aim, &top);
		if (stopped == ALL_PLACED) {
			p->best = top;
			failed = 0;
		} else if (stopped > 0) {
			move_up(p->order, (size_t)stopped, (size_t)stopped / (failed % 3 ? 2 : 64));
			failed++;
		} else {
			return;  /* the steps are spent, or the first block is too large */
		}
		if (failed == PATIENCE) {
			gap = gap < 64 ? gap * 2 : gap;
			failed = 0;
		}
	}
}

/* Searches by halves between what lives and the best plan, placing blocks beside those that end when they do. */
static void place_beside(struct plan *p)
{
	enum { HALVINGS = 12 };
	uint64_t low = p->live_peak - 1;
	for (int i = 0; i < HALVINGS && p->best - low > ROUNDING && !finished(p); i++) {
		p->aim = low + 1 == p->live_peak && i == 0 ? p->live_peak : (low + p->best) / 2;
		uint64_t top = place_in_time(p);
		if (top < p->best)
			p->best = top;
		else
			low = p->aim;
	}
	p->aim = 0;
}

static void search(struct plan *p)
{
	uint32_t *kept = room_for(p->count, sizeof *kept);
	bool tightest = false;
	p->best = UINT64_MAX;
	for (int order = 0; order < ORDERS; order++) {
		for (int fit = 0; fit < 2 && !finished(p); fit++)
			try_order(p, (enum order)order, fit, kept, &tightest);
		if (order == BY_TIME)
			place_beside(p);
	}
	memcpy(p->order, kept, p->count * sizeof *kept);
	p->tightest = tightest;
	free(kept);
	improve(p);
}

static void add(struct harness *h, const char *name, uint64_t value)
{
	json_object_set_new(h->row, name, json_integer((json_int_t)value));
}

void harness_plan(struct harness *h, const char *file, uint64_t most_steps)
{
	struct trace trace;
	struct plan p = {.most_steps = most_steps};
	if (trace_load(file, TRACE_ANY_DEVICE, &trace) != TRZ_OK)
		harness_fail("trace", trz_last_error());
	read_trace(&p, &trace);
	order_ends(&p);
	trace_free(&trace);
	p.at = room_for(p.count, sizeof *p.at);
	p.placed = room_for(p.count / 64 + 1, sizeof *p.placed);
	p.strides = room_for(stride_count(&p), sizeof *p.strides);
	p.near = room_for(p.count, sizeof *p.near);
	p.order = room_for(p.count, sizeof *p.order);
	p.key = room_for(p.count, sizeof *p.key);
	search(&p);
	add(h, "planner_bytes", p.count ? p.best : 0);
	add(h, "planner_tries", p.tries);
	add(h, "planner_steps", p.steps);
	add(h, "lower_bound_bytes", p.live_peak);
}
