/* SPDX-License-Identifier: Apache-2.0
 *
 * Replays a trace. Owns the simulated device and the heap meanwhile; what the program does between its streams
 * is in replay_program.c.
 */
#include "replay.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "error.h"
#include "latency.h"
#include "prng.h"
#include "replay_pools.h"
#include "replay_program.h"

enum {
	ROUNDING = 512,        /* of peak_allocated_bytes */
	STAMP_UNIT = 8,        /* a stamp covers whole words; sizes of blocks are multiples of them */
	CHECK_PERIOD = 64,
	PROGRESS_PERIOD = 1024,
	SAMPLES = 512          /* of external fragmentation */
};

/* An allocation of the trace in the pass under way; address 0: not live, or never got memory; tag 0: it holds none. */
struct replay_block {
	uint64_t address;
	uint64_t size;
	uint64_t tag;
	uint32_t uses;  /* the newest, in replay.uses; 0: none */
	uint32_t capture;  /* it was allocated in, + 1; 0: none */
	uint16_t stream;
};

/* Another stream that a block is used on; the array's first stands for none. */
struct replay_use {
	uint32_t next;
	uint16_t stream;
};

struct replay {
	const struct trace *trace;
	const struct replay_params *params;
	struct replay_result *out;
	sim *sim;
	const trz_driver *driver;
	trz_context context;
	trz_heap *heap;                 /* only with REPLAY_TERRAZZO, else NULL */
	const struct replay_peer *peer; /* only with REPLAY_PEER, else NULL */
	trz_stream *streams;
	bool *blocking;                 /* by stream: it is ordered with the default stream */
	bool any_blocking;
	struct replay_block *blocks;    /* by allocation id */
	struct replay_use *uses;
	uint32_t use_count;             /* in the pass under way */
	struct replay_program program;
	struct replay_pools pools;
	trz_stat_value *stats;
	size_t stat_count;
	struct latency *latency;
	uint64_t next_tag;
	uint64_t lag, lag_until, lag_seed;  /* where the lag varies: as it is now, and up to where it grows */
	uint64_t calls_in_frees[SIM_SLOTS];
	uint64_t operations;
	uint64_t allocated;
	uint64_t requested;
	uint64_t total_events;
	uint64_t memory_calls_before;   /* at the start of the last quarter */
	uint64_t tile_ns;               /* to create, map and open a tile of REPLAY_TILE */
	double fragmentation_sum;
	uint64_t fragmentation_samples;
};

/* -- the heap, timed ---------------------------------------------------------------------------------- */

struct stopwatch {
	uint64_t driver, start;   /* readings, in ticks */
};

static uint64_t driver_ticks(const struct replay *r)
{
	return r->peer ? r->peer->driver_ticks(r->peer->self) : sim_host_ticks(r->sim);
}

static struct stopwatch stopwatch_start(const struct replay *r)
{
	struct stopwatch w = { .driver = driver_ticks(r) };
	w.start = ticks_read_in_order(&r->latency->ticks);
	return w;
}

static void stopwatch_stop(struct replay *r, const struct stopwatch *w)
{
	uint64_t spent = ticks_read_in_order(&r->latency->ticks) - w->start;
	uint64_t in_driver = driver_ticks(r) - w->driver;
	latency_add(r->latency, spent > in_driver ? ticks_to_ns(&r->latency->ticks, spent - in_driver) : 0);
}

static trz_status get_memory(struct replay *r, uint64_t size, uint16_t stream, uint32_t pool, uint64_t *address)
{
	if (!r->heap && (!r->peer || size == 0))
		return size == 0 ? TRZ_OK : r->driver->mem_alloc(r->driver->self, r->context, size, address);
	void *pointer = NULL;
	struct stopwatch watch = stopwatch_start(r);
	trz_status status = r->peer ? r->peer->alloc(r->peer->self, size, r->streams[stream], &pointer)
	                            : pools_alloc(&r->pools, pool, size, stream, &pointer);
	stopwatch_stop(r, &watch);
	*address = (uint64_t)(uintptr_t)pointer;
	return status;
}

static trz_status time_free(struct replay *r, const struct replay_block *block, uint16_t stream)
{
	struct stopwatch watch = stopwatch_start(r);
	void *pointer = (void *)(uintptr_t)block->address;
	trz_status status;
	if (r->peer)
		status = r->peer->free(r->peer->self, pointer, block->size, r->streams[block->stream], r->streams[stream]);
	else if (stream == block->stream)
		status = trz_free(r->heap, pointer);
	else
		status = trz_free_on(r->heap, pointer, r->streams[stream]);
	stopwatch_stop(r, &watch);
	return status;
}

/* Frees in the order of `stream`: the block's own, or another that the event names. */
static trz_status give_memory(struct replay *r, const struct replay_block *block, uint16_t stream)
{
	uint64_t address = block->address;
	if (r->peer)
		return time_free(r, block, stream);
	if (!r->heap) {
		trz_status status = sim_device_sync(r->sim, 0);
		return status == TRZ_OK ? r->driver->mem_free(r->driver->self, r->context, address) : status;
	}
	static const sim_slot slots[] = { SIM_SLOT_event_record, SIM_SLOT_event_query, SIM_SLOT_stream_capture };
	for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
		r->calls_in_frees[slots[i]] -= sim_calls(r->sim, slots[i]);
	trz_status status = time_free(r, block, stream);
	for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
		r->calls_in_frees[slots[i]] += sim_calls(r->sim, slots[i]);
	return status;
}

/* -- events ------------------------------------------------------------------------------------------- */

/* A stamp reaches to the end of the last word: sizes of blocks are rounded up at least that far. */
static uint64_t stamp_size(uint64_t size)
{
	return align_up(size, STAMP_UNIT);
}

static bool is_out_of_memory(trz_status status)
{
	return status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_LIMIT || status == TRZ_ERROR_SIZE ||
	       status == TRZ_ERROR_ADDRESS_SPACE;
}

/* Nothing to do for a policy without a heap. */
static trz_status take_snapshot(const struct replay *r)
{
	return r->heap && r->params->snapshot ? trz_snapshot(r->heap, r->params->snapshot) : TRZ_OK;
}

static trz_status note_oom(struct replay *r)
{
	struct replay_result *out = r->out;
	if (out->ooms++ > 0)
		return TRZ_OK;
	out->events_before_oom = out->events;
	snprintf(out->oom, sizeof out->oom, "%s", r->heap ? trz_last_error() : trz_driver_last_error());
	return take_snapshot(r);
}

static void note_driver_time(struct replay *r, uint64_t size, uint64_t room, uint64_t ns)
{
	uint64_t tiles = max_u64(1, (size + REPLAY_TILE - 1) / REPLAY_TILE);
	double times = (double)ns / (double)(tiles * r->tile_ns);
	r->out->max_driver_time_per_alloc_ns = max_u64(r->out->max_driver_time_per_alloc_ns, ns);
	if (room >= size && times > r->out->max_times_tiles)
		r->out->max_times_tiles = times;
}

/* Work on the default stream would spoil the capture of a blocking stream. */
static bool would_spoil_capture(const struct replay *r, uint16_t stream)
{
	return stream == 0 && r->any_blocking && r->pools.under_way;
}

static trz_status replay_alloc(struct replay *r, const struct trace_event *event)
{
	struct replay_result *out = r->out;
	struct replay_block block = { .size = event->size, .stream = event->stream, .tag = r->next_tag++ };
	uint64_t capacity = r->params->capacity ? r->params->capacity : GIB(80);
	uint64_t room = capacity - sim_device_used(r->sim, 0);
	uint64_t before = sim_driver_time_ns(r->sim);
	trz_status status = get_memory(r, event->size, event->stream, event->pool, &block.address);
	note_driver_time(r, event->size, room, sim_driver_time_ns(r->sim) - before);
	r->operations++;
	if (is_out_of_memory(status))
		return note_oom(r);
	if (status != TRZ_OK || event->size == 0)
		return status;
	block.capture = pools_capture_of(&r->pools, event->stream);
	if (would_spoil_capture(r, event->stream))
		block.tag = 0;
	r->blocks[event->id] = block;
	r->requested += block.size;
	r->allocated += align_up(block.size, ROUNDING);
	out->peak_requested_bytes = max_u64(out->peak_requested_bytes, r->requested);
	out->peak_allocated_bytes = max_u64(out->peak_allocated_bytes, r->allocated);
	return block.tag ? sim_stamp(r->sim, r->context, r->streams[block.stream], block.address, stamp_size(block.size),
	                             block.tag)
	                 : TRZ_OK;
}

/* What a graph wrote is checked after its newest launch, which is not ordered with the stream that was captured. */
static trz_status check_tag(struct replay *r, const struct replay_block *block, uint16_t stream)
{
	uint32_t capture = pools_capture_of(&r->pools, stream);
	if (!block->tag || would_spoil_capture(r, stream))
		return TRZ_OK;
	if (capture ? block->capture != capture : !pools_has_content(&r->pools, block->capture))
		return TRZ_OK;
	if (!capture && block->capture) {
		stream = pools_launched_on(&r->pools, block->capture);
		if (pools_capture_of(&r->pools, stream))
			return TRZ_OK;
	}
	return sim_verify(r->sim, r->context, r->streams[stream], block->address, stamp_size(block->size),
	                  block->tag);
}

/* An event cannot be waited for across the border of a capture. */
static bool may_hand_over(struct replay *r, uint16_t from, uint16_t to)
{
	return pools_capture_of(&r->pools, from) == pools_capture_of(&r->pools, to);
}

/* Checks the tag where the memory may still be in use: on the stream that takes it over, or on all its streams. */
static trz_status check_block(struct replay *r, const struct replay_block *block, uint16_t stream)
{
	trz_status status = TRZ_OK;
	if (stream != block->stream && may_hand_over(r, block->stream, stream))
		status = program_hand_over(&r->program, r->streams[block->stream], r->streams[stream]);
	if (status == TRZ_OK)
		status = check_tag(r, block, stream);
	uint32_t use = stream == block->stream ? block->uses : 0;
	for (; status == TRZ_OK && use; use = r->uses[use].next)
		status = check_tag(r, block, r->uses[use].stream);
	return status;
}

static trz_status free_block(struct replay *r, uint32_t id, uint16_t stream)
{
	struct replay_block block = r->blocks[id];
	if (block.address == 0)
		return TRZ_OK;
	r->blocks[id].address = 0;
	r->requested -= block.size;
	r->allocated -= align_up(block.size, ROUNDING);
	r->operations++;
	trz_status status = check_block(r, &block, stream);
	return status == TRZ_OK ? give_memory(r, &block, stream) : status;
}

static trz_status free_live(struct replay *r)
{
	trz_status status = r->heap ? pools_reset(&r->pools) : TRZ_OK;
	for (uint32_t id = 0; status == TRZ_OK && id < r->trace->allocs; id++)
		status = free_block(r, id, r->blocks[id].stream);
	r->use_count = 0;
	return status;
}

static trz_status record_stream(struct replay *r, const struct trace_event *event)
{
	struct replay_block *block = &r->blocks[event->id];
	if (block->address == 0)
		return TRZ_OK;
	trz_stream stream = r->streams[event->stream];
	trz_status status = TRZ_OK;
	if (event->stream != block->stream) {
		r->uses[++r->use_count] = (struct replay_use){ block->uses, event->stream };
		block->uses = r->use_count;
		if (may_hand_over(r, block->stream, event->stream))
			status = program_hand_over(&r->program, r->streams[block->stream], stream);
	}
	void *pointer = (void *)(uintptr_t)block->address;
	if (status == TRZ_OK && r->peer)
		return r->peer->record_stream(r->peer->self, pointer, stream);
	return status == TRZ_OK && r->heap ? trz_record_stream(r->heap, pointer, stream) : status;
}

/* What the host has waited for is complete, whatever the lag. A capture has no such waits. */
static trz_status wait_as_host(struct replay *r, const struct trace_event *event)
{
	if (r->pools.under_way) {
		r->pools.skipped++;
		return TRZ_OK;
	}
	switch ((enum trace_kind)event->kind) {
	case TRACE_STREAM_SYNC:
		return sim_stream_sync(r->sim, r->context, r->streams[event->stream]);
	case TRACE_EVENT_SYNC:
		return program_event_sync(&r->program, event->id);
	case TRACE_DEFAULT_WORK:
		return program_work(&r->program, r->streams[0]);
	default:
		return sim_device_sync(r->sim, 0);
	}
}

static trz_status replay_event(struct replay *r, const struct trace_event *event)
{
	switch ((enum trace_kind)event->kind) {
	case TRACE_ALLOC:
		return replay_alloc(r, event);
	case TRACE_FREE:
		return free_block(r, event->id, event->stream);
	case TRACE_RECORD_STREAM:
		return record_stream(r, event);
	case TRACE_EVENT_RECORD:
		return program_record(&r->program, event->id, r->streams[event->stream]);
	case TRACE_STREAM_WAIT:
		return program_wait(&r->program, event->id, r->streams[event->stream]);
	case TRACE_CAPTURE_BEGIN:
	case TRACE_CAPTURE_END:
	case TRACE_POOL_BEGIN:
	case TRACE_POOL_END:
	case TRACE_POOL_RELEASE:
	case TRACE_GRAPH_LAUNCH:
		return pools_event(&r->pools, event);
	case TRACE_STREAM_SYNC:
	case TRACE_EVENT_SYNC:
	case TRACE_DEVICE_SYNC:
	case TRACE_DEFAULT_WORK:
		return wait_as_host(r, event);
	case TRACE_FREE_COMPLETED:
	case TRACE_MARKER:
	case TRACE_STREAM_BLOCKING:
	case TRACE_KINDS:
		break;
	}
	return TRZ_OK;
}

static uint64_t memory_calls(const struct replay *r)
{
	static const sim_slot slots[] = { SIM_SLOT_create, SIM_SLOT_release, SIM_SLOT_reserve, SIM_SLOT_unreserve,
	                                  SIM_SLOT_map, SIM_SLOT_unmap, SIM_SLOT_set_access, SIM_SLOT_mem_alloc,
	                                  SIM_SLOT_mem_free };
	uint64_t calls = 0;
	for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
		calls += sim_calls(r->sim, slots[i]);
	return calls;
}

static trz_status sample_fragmentation(struct replay *r)
{
	trz_status status = trz_stats(r->heap, r->stats, r->stat_count, NULL);
	for (size_t i = 0; status == TRZ_OK && i < r->stat_count; i++) {
		if (strcmp(r->stats[i].name, "external_fragmentation") != 0)
			continue;
		r->fragmentation_sum += r->stats[i].ratio;
		r->fragmentation_samples++;
	}
	return status;
}

/* Samples and checks between two events. */
static trz_status observe(struct replay *r)
{
	uint64_t done = r->out->events;
	if (done == r->total_events - r->total_events / 4)
		r->memory_calls_before = memory_calls(r);
	if (r->params->progress && done % PROGRESS_PERIOD == 0)
		r->params->progress(r->params->progress_arg, done, r->total_events);
	if (!r->heap)
		return TRZ_OK;
	trz_status status = TRZ_OK;
	if (done % max_u64(1, r->total_events / SAMPLES) == 0)
		status = sample_fragmentation(r);
	if (status == TRZ_OK && r->params->check && done % CHECK_PERIOD == 0)
		status = trz_check(r->heap);
	return status;
}

static bool is_stopped(const struct replay *r)
{
	return r->params->stop_at_oom && r->out->ooms > 0;
}

/* A lag that varies grows with every event, as behind a long kernel, to a random length; then the device catches up. */
static uint64_t lag_now(struct replay *r)
{
	const struct replay_params *p = r->params;
	if (p->lag_most <= p->lag)
		return p->lag;
	if (r->lag < r->lag_until)
		return ++r->lag;
	r->lag_until = p->lag + prng_below(&r->lag_seed, p->lag_most - p->lag + 1);
	return r->lag = p->lag;
}

static trz_status replay_pass(struct replay *r)
{
	trz_status status = TRZ_OK;
	for (size_t i = 0; status == TRZ_OK && i < r->trace->count && !is_stopped(r); i++) {
		status = replay_event(r, &r->trace->events[i]);
		sim_tick(r->sim, lag_now(r));
		r->out->events++;
		if (status == TRZ_OK)
			status = observe(r);
	}
	return status;
}

/* -- setting up and gathering ------------------------------------------------------------------------- */

/* Finds what the replay must know of the trace in advance; *record_streams: the number of TRACE_RECORD_STREAM. */
static void survey(struct replay *r, size_t *record_streams)
{
	bool seen[TRACE_STREAMS_MAX] = { false };
	*record_streams = 0;
	for (size_t i = 0; i < r->trace->count; i++) {
		const struct trace_event *event = &r->trace->events[i];
		*record_streams += event->kind == TRACE_RECORD_STREAM;
		r->program.orders_streams |= event->kind == TRACE_STREAM_WAIT || event->kind >= TRACE_STREAM_SYNC;
		r->blocking[event->stream] |= event->kind == TRACE_STREAM_BLOCKING;
		r->any_blocking |= event->kind == TRACE_STREAM_BLOCKING;
		if (event->kind == TRACE_ALLOC && !seen[event->stream]) {
			seen[event->stream] = true;
			r->out->streams++;
		}
	}
}

static trz_status make_streams(struct replay *r)
{
	trz_status status = TRZ_OK;
	for (uint32_t i = 1; status == TRZ_OK && i < r->trace->streams; i++)
		status = r->peer ? r->peer->make_stream(r->peer->self, r->blocking[i], &r->streams[i])
		                 : sim_stream_create(r->sim, r->context, r->blocking[i], &r->streams[i]);
	return status;
}

/* A peer's device is its own. */
static trz_status borrow_device(struct replay *r)
{
	r->peer = r->params->peer;
	r->sim = r->program.sim = r->peer->sim;
	r->context = r->program.context = r->peer->context;
	r->program.peer = r->peer;
	r->driver = sim_driver(r->sim);
	return TRZ_OK;
}

static trz_status open_device(struct replay *r)
{
	const struct replay_params *p = r->params;
	if (p->policy == REPLAY_PEER)
		return borrow_device(r);
	sim_config config = { .capacity = p->capacity, .continue_on_violation = true, .timed = true, .host_faults = true,
	                      .schedule = p->schedule, .seed = p->seed, .costs = p->costs };
	trz_status status = sim_open(&config, &r->sim);
	if (status != TRZ_OK)
		return status;
	r->driver = sim_driver(r->sim);
	status = sim_context_primary(r->sim, 0, &r->context);
	r->program.sim = r->sim;
	r->program.context = r->context;
	if (status != TRZ_OK || p->policy == REPLAY_NAIVE)
		return status;
	trz_hold_reports(true);  /* a failure here is a result of the replay, not the user's */
	trz_open_params open = { .context = r->context, .config = p->conf, .driver = r->driver };
	status = trz_open(&open, &r->heap);
	r->program.heap = r->heap;
	if (status == TRZ_OK && p->history > 0)
		status = trz_history_start(r->heap, p->history);
	return status == TRZ_OK ? trz_stats(r->heap, NULL, 0, &r->stat_count) : status;
}

static trz_status allocate_tables(struct replay *r)
{
	size_t record_streams;
	r->blocking = calloc(r->trace->streams, sizeof *r->blocking);
	if (!r->blocking)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to replay a trace of %u streams", r->trace->streams);
	survey(r, &record_streams);
	r->streams = calloc(r->trace->streams, sizeof *r->streams);
	r->blocks = calloc(max_u64(1, r->trace->allocs), sizeof *r->blocks);
	r->uses = calloc(record_streams + 1, sizeof *r->uses);
	r->stats = calloc(max_u64(1, r->stat_count), sizeof *r->stats);
	r->pools = (struct replay_pools){.sim = r->sim, .context = r->context, .heap = r->heap, .streams = r->streams,
	                                .stream_count = r->trace->streams};
	if (!r->streams || !r->blocks || !r->uses || !r->stats)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to replay a trace of %zu events", r->trace->count);
	return pools_open(&r->pools, r->trace);
}

/* The figures right after the last event. */
static trz_status gather(struct replay *r)
{
	struct replay_result *out = r->out;
	for (int slot = 0; slot < SIM_SLOTS; slot++)
		out->driver_calls[slot] = sim_calls(r->sim, (sim_slot)slot);
	memcpy(out->driver_calls_in_frees, r->calls_in_frees, sizeof out->driver_calls_in_frees);
	out->driver_calls_last_quarter = memory_calls(r) - r->memory_calls_before;
	out->driver_time_ns = sim_driver_time_ns(r->sim);
	for (unsigned i = 0; i < SIM_MORE_COSTS; i++)
		out->driver_time_by[i] = sim_driver_time_by(r->sim, i);
	out->operations = r->operations;
	out->skipped_events = r->pools.skipped;
	out->pools = r->pools.made;
	out->captures = r->pools.captured;
	out->launches = r->pools.launches;
	if (!r->heap) {
		out->peak_reserved_bytes = sim_device_peak(r->sim, 0);
		out->end_reserved_bytes = sim_device_used(r->sim, 0);
		return TRZ_OK;
	}
	const struct { const char *name; uint64_t *value; } wanted[] = {
		{ "reserved_bytes.all.peak", &out->peak_reserved_bytes },
		{ "reserved_bytes.all.current", &out->end_reserved_bytes },
		{ "waits_inserted", &out->waits_inserted },
		{ "num_alloc_retries", &out->retries },
		{ "metadata_bytes", &out->metadata_bytes },
	};
	for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
		trz_status status = trz_stat(r->heap, wanted[i].name, wanted[i].value);
		if (status != TRZ_OK)
			return status;
	}
	out->heap_valid = true;
	out->pool_reserved_bytes = pools_reserved(&r->pools);
	if (r->fragmentation_samples > 0)
		out->external_fragmentation = r->fragmentation_sum / (double)r->fragmentation_samples;
	return TRZ_OK;
}

static trz_status replay_passes(struct replay *r)
{
	unsigned passes = r->params->repeat ? r->params->repeat : 1;
	r->total_events = r->trace->count * (uint64_t)passes;
	struct replay_tile_cost tile;
	trz_status status = replay_tile_cost(r->params->costs, REPLAY_TILE, &tile);
	r->tile_ns = max_u64(1, tile.create_ns + tile.map_ns + tile.set_access_ns);
	if (status == TRZ_OK)
		status = make_streams(r);
	for (unsigned pass = 0; status == TRZ_OK && pass < passes && !is_stopped(r); pass++) {
		if (pass > 0)
			status = free_live(r);
		if (status == TRZ_OK)
			status = replay_pass(r);
	}
	if (status == TRZ_OK)
		status = gather(r);
	if (status == TRZ_OK && r->out->ooms == 0)
		status = take_snapshot(r);
	return status == TRZ_OK ? free_live(r) : status;
}

/* Queued work runs before the heap is closed, so that the last checks count. */
static trz_status close_device(struct replay *r)
{
	trz_status status = r->context ? sim_device_sync(r->sim, 0) : TRZ_OK;
	trz_status closed = trz_close(r->heap);
	if (r->peer && r->peer->close)
		r->peer->close(r->peer->self);
	program_close(&r->program);
	for (uint32_t i = 1; r->streams && i < r->trace->streams; i++) {
		if (r->streams[i])
			sim_stream_destroy(r->sim, r->context, r->streams[i]);
	}
	if (r->context && !r->peer)
		r->driver->context_release(r->driver->self, 0, r->context);
	struct replay_result *out = r->out;
	out->leaks = r->peer ? 0 : sim_leaks(r->sim, out->problem, sizeof out->problem);
	out->violations = sim_violations(r->sim);
	const char *violation = sim_first_violation(r->sim);
	if (violation)
		snprintf(out->problem, sizeof out->problem, "%s", violation);
	if (!r->peer)
		sim_close(r->sim);
	return status == TRZ_OK ? closed : status;
}

/* Closes after a failure, and keeps the failure's text. */
static void abandon_device(struct replay *r, trz_status status)
{
	char text[512];
	snprintf(text, sizeof text, "%s", trz_last_error());
	close_device(r);
	trz_fail(status, "%s", text);
}

static trz_status run_once(const struct trace *trace, const struct replay_params *params, struct latency *latency,
                           struct replay_result *out)
{
	struct replay r = { .trace = trace, .params = params, .out = out, .latency = latency, .next_tag = 1,
	                    .lag_seed = params->seed };
	latency_begin_round(latency);
	trz_status status = open_device(&r);
	if (status == TRZ_OK)
		status = allocate_tables(&r);
	if (status == TRZ_OK)
		status = replay_passes(&r);
	if (r.sim && status == TRZ_OK)
		status = close_device(&r);
	else if (r.sim)
		abandon_device(&r, status);
	pools_close(&r.pools);
	free(r.streams);
	free(r.blocking);
	free(r.blocks);
	free(r.uses);
	free(r.stats);
	return status;
}

/* Replays the trace once more, for the times. */
static trz_status time_again(const struct trace *trace, const struct replay_params *params, struct latency *latency)
{
	struct replay_params again = *params;
	struct replay_result ignored = { 0 };
	again.snapshot = NULL;
	again.progress = NULL;
	return run_once(trace, &again, latency, &ignored);
}

trz_status replay_run(const struct trace *trace, const struct replay_params *params,
                      struct replay_result *out)
{
	*out = (struct replay_result){ 0 };
	struct latency latency;
	/* Without an allocator nothing is timed, and a peer's device is opened once. */
	unsigned rounds = params->policy == REPLAY_TERRAZZO ? params->timings : 1;
	trz_status status = latency_init(&latency, rounds);
	if (status != TRZ_OK)
		return status;
	status = run_once(trace, params, &latency, out);
	for (unsigned round = 1; status == TRZ_OK && round < rounds; round++)
		status = time_again(trace, params, &latency);
	if (status == TRZ_OK)
		status = latency_settle(&latency);
	if (out->heap_valid || params->policy == REPLAY_PEER) {
		out->host_ns_per_op = latency_mean(&latency);
		out->host_ns_median = latency_quantile(&latency, 0.5);
		out->host_ns_p999 = latency_quantile(&latency, 0.999);
	}
	latency_free(&latency);
	return status;
}

/* -- costs -------------------------------------------------------------------------------------------- */

static trz_status time_tile(sim *s, uint64_t size, struct replay_tile_cost *out)
{
	const trz_driver *d = sim_driver(s);
	const trz_tile_props props = { .device = 0 };
	const int device = 0;
	trz_addr address;
	trz_handle handle;
	trz_status status = d->reserve(d->self, size, 0, 0, &address);
	uint64_t t0 = sim_driver_time_ns(s);
	if (status == TRZ_OK)
		status = d->create(d->self, &props, size, &handle);
	uint64_t t1 = sim_driver_time_ns(s);
	if (status == TRZ_OK)
		status = d->map(d->self, address, size, handle);
	uint64_t t2 = sim_driver_time_ns(s);
	if (status == TRZ_OK)
		status = d->set_access(d->self, address, size, &device, 1);
	uint64_t t3 = sim_driver_time_ns(s);
	*out = (struct replay_tile_cost){ t1 - t0, t2 - t1, t3 - t2 };
	return status;
}

trz_status replay_tile_cost(const char *costs, uint64_t size, struct replay_tile_cost *out)
{
	sim *s;
	sim_config config = { .costs = costs };
	trz_status status = sim_open(&config, &s);
	if (status != TRZ_OK)
		return status;
	status = time_tile(s, size, out);
	sim_close(s);
	return status;
}
