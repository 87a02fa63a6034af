/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory a trace needs of any allocator, by a fluid model. Memory is bytes without addresses, so nothing is
 * ever fragmented; a byte goes to another stream only where the program's own order, or completion, allows it
 * (replay_order.h); new bytes are made when no free ones may be used. A request takes its own stream's bytes first, the
 * newest before others; then other streams' bytes, those that the fewest streams may use first; then what all may use.
 * That is greedy: another choice may need less, so the result is an upper estimate of what an ideal allocator needs.
 *
 * A pool's memory comes from the default pool, or is made. It goes back when the pool is released, ordered after the
 * streams that launched its graphs; if the trace names the pool again, that is a new one. In a capture, memory of the
 * default pool must have passed; what earlier captures of the same pool freed may be used at once, since graphs that
 * share a pool are launched in the order of their captures.
 */
#include <stdlib.h>

#include "bits.h"
#include "error.h"
#include "replay.h"
#include "replay_order.h"

enum { ROUNDING = 512, BATCH_FREES = 64 };
#define BATCH_BYTES MIB(64)
#define BEYOND_POOLS ((uint64_t)1 << 32)  /* numbers that no pool of a trace has */

/* Another stream that used a block; the array's first stands for none. */
struct bound_use {
	uint32_t next;
	uint16_t stream;
};

/* Free bytes that wait for the same work: up to `ticket` on the lane's stream and on all users. */
struct bunch {
	uint64_t bytes;
	uint64_t ticket;
	uint32_t uses;      /* the newest, in bound.uses; 0: none */
	uint32_t capture;   /* they were freed in, + 1; 0: none */
};

/* The free memory of one stream in one pool, in the order of tickets. */
struct bound_lane {
	struct bunch *list;
	size_t first, count, room;
	uint32_t pool;
	uint16_t stream;
};

struct bound_block {
	uint64_t bytes;
	uint32_t pool;
	uint32_t uses;
	uint16_t stream;
};

/* Frees of a stream since its last batch was full. */
struct bound_batch {
	uint64_t frees;
	uint64_t bytes;
};

struct bound {
	const struct trace *trace;
	struct replay_order order;
	struct bound_block *blocks;   /* by allocation id */
	struct bound_use *uses;
	uint32_t use_count;
	struct trace_map index;       /* from pool and stream to the lane */
	struct bound_lane *lanes;
	size_t lane_count;
	struct trace_map pools;       /* from a pool's number in the trace to the one that has it now, from 1 on */
	uint32_t pool_count;
	struct trace_map launchers;   /* pairs of a pool and a stream that launched its graphs */
	struct trace_map capture_pools;
	struct trace_map released;
	uint32_t *diverted;           /* by stream: the pool that its allocations go to */
	struct bound_batch *batches;  /* by stream */
	uint64_t anyone;              /* bytes of the default pool that have passed */
	uint64_t live;
	struct replay_bound *out;
};

static uint64_t key_of(uint32_t pool, uint16_t stream)
{
	return (uint64_t)pool << 16 | stream;
}

static trz_status no_memory(void)
{
	return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to work out what the trace needs");
}

/* ---- pools that live ---- */

/* The pool that has the number now: a new one if there is none. */
static trz_status pool_of_number(struct bound *b, uint64_t number, uint32_t *pool)
{
	*pool = 0;
	if (!number || map_get(&b->pools, number, pool))
		return TRZ_OK;
	*pool = ++b->pool_count;
	return map_set(&b->pools, number, *pool);
}

static bool is_released(const struct bound *b, uint32_t pool)
{
	uint32_t found;
	return map_get(&b->released, pool, &found);
}

/* ---- lanes ---- */

static trz_status lane_of(struct bound *b, uint32_t pool, uint16_t stream, struct bound_lane **out)
{
	uint32_t index;
	if (!map_get(&b->index, key_of(pool, stream), &index)) {
		struct bound_lane *grown = realloc(b->lanes, (b->lane_count + 1) * sizeof *grown);
		if (grown)
			b->lanes = grown;
		index = (uint32_t)b->lane_count;
		if (!grown || map_set(&b->index, key_of(pool, stream), index) != TRZ_OK)
			return no_memory();
		b->lanes[b->lane_count++] = (struct bound_lane){.pool = pool, .stream = stream};
	}
	*out = &b->lanes[index];
	return TRZ_OK;
}

static trz_status add_bunch(struct bound *b, uint32_t pool, uint16_t stream, struct bunch bunch)
{
	struct bound_lane *l = NULL;
	trz_status status = lane_of(b, pool, stream, &l);
	if (status != TRZ_OK)
		return status;
	if (l->count == l->room) {
		size_t room = l->room ? 2 * l->room : 16;
		struct bunch *grown = realloc(l->list, room * sizeof *grown);
		if (!grown)
			return no_memory();
		l->list = grown;
		l->room = room;
	}
	l->list[l->count++] = bunch;
	return TRZ_OK;
}

/* Drops empty bunches at either end. */
static void tidy_lane(struct bound_lane *l)
{
	while (l->count > l->first && !l->list[l->count - 1].bytes)
		l->count--;
	while (l->first < l->count && !l->list[l->first].bytes)
		l->first++;
	if (l->first == l->count)
		l->first = l->count = 0;
}

/* ---- who may use what ---- */

static bool has_passed(const struct bound *b, const struct bound_lane *l, const struct bunch *bunch)
{
	bool passed = order_has_passed(&b->order, l->stream, bunch->ticket);
	for (uint32_t use = bunch->uses; passed && use; use = b->uses[use].next)
		passed = order_has_passed(&b->order, b->uses[use].stream, bunch->ticket);
	return passed;
}

static bool follows(const struct bound *b, uint16_t stream, const struct bound_lane *l, const struct bunch *bunch)
{
	bool follows = order_follows(&b->order, stream, l->stream, bunch->ticket);
	for (uint32_t use = bunch->uses; follows && use; use = b->uses[use].next)
		follows = order_follows(&b->order, stream, b->uses[use].stream, bunch->ticket);
	return follows;
}

static bool may_use(const struct bound *b, uint16_t stream, const struct bound_lane *l, const struct bunch *bunch)
{
	uint32_t capture = b->order.captures[stream];
	if (capture && !l->pool)
		return has_passed(b, l, bunch);
	if (capture && bunch->capture != capture)
		return true;
	return follows(b, stream, l, bunch);
}

static uint64_t take(struct bunch *bunch, uint64_t need)
{
	uint64_t taken = min_u64(bunch->bytes, need);
	bunch->bytes -= taken;
	return taken;
}

static uint64_t take_own(struct bound *b, uint32_t pool, uint16_t stream, uint64_t need)
{
	uint32_t index;
	uint64_t taken = 0;
	if (!map_get(&b->index, key_of(pool, stream), &index))
		return 0;
	struct bound_lane *l = &b->lanes[index];
	for (size_t i = l->count; i-- > l->first && taken < need;)
		if (may_use(b, stream, l, &l->list[i]))
			taken += take(&l->list[i], need - taken);
	tidy_lane(l);
	return taken;
}

/* Bytes of the default pool that have passed become anyone's. */
static void pass(struct bound *b)
{
	for (size_t i = 0; i < b->lane_count; i++) {
		struct bound_lane *l = &b->lanes[i];
		for (size_t j = l->first; !l->pool && j < l->count; j++) {
			if (!order_has_passed(&b->order, l->stream, l->list[j].ticket))
				break;
			if (has_passed(b, l, &l->list[j]))
				b->anyone += take(&l->list[j], UINT64_MAX);
		}
		tidy_lane(l);
	}
}

/* How many streams may use the bunch. */
static uint32_t count_users(const struct bound *b, const struct bound_lane *l, const struct bunch *bunch)
{
	uint32_t count = 0;
	for (size_t i = 0; i < b->lane_count; i++)
		count += b->lanes[i].pool == l->pool && may_use(b, b->lanes[i].stream, l, bunch);
	return count;
}

/* The lane's newest bunch that the stream may use. */
static struct bunch *newest_for(struct bound *b, uint16_t stream, struct bound_lane *l)
{
	for (size_t i = l->count; i-- > l->first;)
		if (l->list[i].bytes && may_use(b, stream, l, &l->list[i]))
			return &l->list[i];
	return NULL;
}

/* Takes from the lanes' newest bunches that the stream may use: from the one that the fewest streams may use, among
 * equal ones from the newest. */
static uint64_t take_of_others(struct bound *b, uint32_t pool, uint16_t stream, uint64_t need)
{
	struct bunch *best = NULL;
	uint32_t fewest = UINT32_MAX;
	for (size_t i = 0; i < b->lane_count; i++) {
		struct bound_lane *l = &b->lanes[i];
		struct bunch *bunch = l->pool == pool ? newest_for(b, stream, l) : NULL;
		uint32_t users = bunch ? count_users(b, l, bunch) : UINT32_MAX;
		if (bunch && (users < fewest || (users == fewest && bunch->ticket > best->ticket))) {
			best = bunch;
			fewest = users;
		}
	}
	return best ? take(best, need) : 0;
}

/* ---- requests ---- */

static uint64_t take_free(struct bound *b, uint32_t pool, uint16_t stream, uint64_t need)
{
	uint64_t taken = take_own(b, pool, stream, need);
	if (taken < need)
		pass(b);
	for (uint64_t more = 1; taken < need && more; taken += more)
		more = take_of_others(b, pool, stream, need - taken);
	if (pool)
		return taken;
	uint64_t rest = min_u64(need - taken, b->anyone);
	b->anyone -= rest;
	return taken + rest;
}

/* The pool that an allocation comes from: the one it names, that its stream is diverted to, or its capture's. */
static trz_status pool_of(struct bound *b, const struct trace_event *e, uint32_t *pool)
{
	uint32_t capture = b->order.captures[e->stream];
	if (e->pool)
		return pool_of_number(b, e->pool, pool);
	*pool = is_released(b, b->diverted[e->stream]) ? 0 : b->diverted[e->stream];
	if (!*pool && capture)
		map_get(&b->capture_pools, capture, pool);
	return TRZ_OK;
}

static trz_status alloc(struct bound *b, const struct trace_event *e)
{
	uint64_t bytes = align_up(e->size, ROUNDING);
	uint32_t pool;
	trz_status status = pool_of(b, e, &pool);
	if (status != TRZ_OK)
		return status;
	b->blocks[e->id] = (struct bound_block){.bytes = bytes, .pool = pool, .stream = e->stream};
	uint64_t taken = take_free(b, pool, e->stream, bytes);
	if (pool && taken < bytes)
		taken += take_free(b, 0, e->stream, bytes - taken);
	b->out->bytes += bytes - taken;
	b->live += bytes;
	b->out->peak_allocated_bytes = max_u64(b->out->peak_allocated_bytes, b->live);
	return TRZ_OK;
}

static void count_free(struct bound *b, uint64_t bytes, uint16_t stream)
{
	struct bound_batch *batch = &b->batches[stream];
	b->out->frees++;
	batch->frees++;
	batch->bytes += bytes;
	if (batch->frees < BATCH_FREES && batch->bytes < BATCH_BYTES)
		return;
	b->out->batches++;
	*batch = (struct bound_batch){0};
}

static trz_status free_block(struct bound *b, const struct trace_event *e)
{
	struct bound_block *block = &b->blocks[e->id];
	struct bunch bunch = {.bytes = block->bytes, .ticket = b->order.now, .uses = block->uses,
	                      .capture = b->order.captures[e->stream]};
	if (!block->bytes)
		return TRZ_OK;
	b->live -= block->bytes;
	count_free(b, block->bytes, e->stream);
	trz_status status = add_bunch(b, is_released(b, block->pool) ? 0 : block->pool, e->stream, bunch);
	block->bytes = 0;
	return status;
}

static void record_stream(struct bound *b, const struct trace_event *e)
{
	struct bound_block *block = &b->blocks[e->id];
	if (e->stream == block->stream)
		return;
	b->uses[++b->use_count] = (struct bound_use){block->uses, e->stream};
	block->uses = b->use_count;
}

/* ---- pools ---- */

/* A capture that names no pool has one of its own, beyond the trace's. */
static trz_status begin_capture(struct bound *b, const struct trace_event *e)
{
	uint32_t pool;
	trz_status status = pool_of_number(b, e->pool ? e->pool : BEYOND_POOLS + e->id, &pool);
	return status == TRZ_OK ? map_set(&b->capture_pools, e->id + (uint64_t)1, pool) : status;
}

static trz_status launch(struct bound *b, const struct trace_event *e)
{
	uint32_t pool;
	if (!map_get(&b->capture_pools, e->id + (uint64_t)1, &pool))
		return TRZ_OK;
	return map_set(&b->launchers, key_of(pool, e->stream), 0);
}

/* The pool's free memory becomes the default pool's, ordered after all streams that launched its graphs. */
static trz_status release(struct bound *b, uint32_t number)
{
	uint32_t uses = 0, found, pool;
	if (!map_get(&b->pools, number, &pool))
		return TRZ_OK;
	map_remove(&b->pools, number);
	trz_status status = map_set(&b->released, pool, 0);
	for (uint32_t i = 0; i < b->trace->streams; i++) {
		if (!map_get(&b->launchers, key_of(pool, (uint16_t)i), &found))
			continue;
		b->uses[++b->use_count] = (struct bound_use){uses, (uint16_t)i};
		uses = b->use_count;
	}
	for (size_t i = 0; i < b->lane_count && status == TRZ_OK; i++) {
		struct bound_lane l = b->lanes[i];
		if (l.pool != pool)
			continue;
		b->lanes[i].first = b->lanes[i].count = 0;
		for (size_t j = l.first; j < l.count && status == TRZ_OK; j++) {
			l.list[j].capture = 0;
			l.list[j].uses = uses;
			l.list[j].ticket = b->order.now;
			status = add_bunch(b, 0, l.stream, l.list[j]);
		}
	}
	return status;
}

/* ---- the trace ---- */

static trz_status step(struct bound *b, const struct trace_event *e)
{
	trz_status status = order_step(&b->order, e);
	if (status != TRZ_OK)
		return status;
	switch ((enum trace_kind)e->kind) {
	case TRACE_ALLOC:
		return alloc(b, e);
	case TRACE_FREE:
		return free_block(b, e);
	case TRACE_RECORD_STREAM:
		record_stream(b, e);
		break;
	case TRACE_CAPTURE_BEGIN:
		return begin_capture(b, e);
	case TRACE_GRAPH_LAUNCH:
		return launch(b, e);
	case TRACE_POOL_BEGIN:
		return pool_of_number(b, e->pool, &b->diverted[e->stream]);
	case TRACE_POOL_END:
		b->diverted[e->stream] = 0;
		break;
	case TRACE_POOL_RELEASE:
		return release(b, e->pool);
	default:
		break;
	}
	return TRZ_OK;
}

/* Room for all uses: those of the trace, and one per stream for each release. */
static size_t most_uses(const struct trace *trace)
{
	size_t count = 1;
	for (size_t i = 0; i < trace->count; i++) {
		count += trace->events[i].kind == TRACE_RECORD_STREAM;
		count += trace->events[i].kind == TRACE_POOL_RELEASE ? trace->streams : 0;
	}
	return count;
}

trz_status replay_bound(const struct trace *trace, uint64_t lag, struct replay_bound *out)
{
	struct bound b = {.trace = trace, .out = out};
	*out = (struct replay_bound){0};
	b.blocks = calloc(max_u64(1, trace->allocs), sizeof *b.blocks);
	b.uses = calloc(most_uses(trace), sizeof *b.uses);
	b.diverted = calloc(trace->streams, sizeof *b.diverted);
	b.batches = calloc(trace->streams, sizeof *b.batches);
	trz_status status = b.blocks && b.uses && b.diverted && b.batches ? TRZ_OK : no_memory();
	if (status == TRZ_OK)
		status = order_open(&b.order, trace, lag);
	for (size_t i = 0; i < trace->count && status == TRZ_OK; i++)
		status = step(&b, &trace->events[i]);
	order_close(&b.order);
	for (size_t i = 0; i < b.lane_count; i++)
		free(b.lanes[i].list);
	free(b.lanes);
	map_free(&b.index);
	map_free(&b.pools);
	map_free(&b.launchers);
	map_free(&b.capture_pools);
	map_free(&b.released);
	free(b.blocks);
	free(b.uses);
	free(b.diverted);
	free(b.batches);
	return status;
}
