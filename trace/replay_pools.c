/* SPDX-License-Identifier: Apache-2.0
 *
 * The replayed program's pools, captures and graphs, through the public functions of the heap and of the device.
 */
#include "replay_pools.h"

#include <stdlib.h>

#include "bits.h"
#include "error.h"

enum { NUMBERS_MAX = 1 << 20 };

struct replay_pool {
	trz_pool *pool;          /* NULL: not made, or released */
	trz_stream *diverted;    /* streams whose allocations go there */
	size_t diverted_count;
};

struct replay_capture {
	bool under_way;
	uint16_t stream;
	uint32_t pool;
	uint32_t order;          /* of its end, among all captures of the replay */
	uint64_t id;             /* the driver's, while it is under way */
	sim_graph graph;         /* 0: none */
	bool content;
	uint16_t launched_on;    /* the stream of the newest launch */
};

trz_status pools_open(struct replay_pools *p, const struct trace *trace)
{
	uint64_t pools = 0, captures = 0;
	for (size_t i = 0; i < trace->count; i++) {
		const struct trace_event *e = &trace->events[i];
		bool capture = e->kind == TRACE_CAPTURE_BEGIN || e->kind == TRACE_CAPTURE_END || e->kind == TRACE_GRAPH_LAUNCH;
		if (e->kind == TRACE_ALLOC || e->kind >= TRACE_CAPTURE_BEGIN)
			pools = max_u64(pools, e->pool);
		if (capture)
			captures = max_u64(captures, (uint64_t)e->id + 1);
	}
	if (pools >= NUMBERS_MAX || captures > NUMBERS_MAX)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "the trace names pool %u and %llu captures: numbers below %d are replayed",
		                (uint32_t)pools, (unsigned long long)captures, NUMBERS_MAX);
	p->pool_count = (uint32_t)(pools + 1 + captures);  /* a capture that names no pool has one after these */
	p->capture_count = (uint32_t)captures;
	p->pools = calloc(p->pool_count, sizeof *p->pools);
	p->captures = calloc(captures + 1, sizeof *p->captures);
	if (!p->pools || !p->captures)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for %u pools of the trace", p->pool_count);
	return TRZ_OK;
}

/* ---- pools ---- */

static trz_status use_pool(struct replay_pools *p, uint32_t number, trz_pool **out)
{
	struct replay_pool *r = &p->pools[number];
	p->made += !r->pool;
	trz_status status = r->pool ? TRZ_OK : trz_pool_create(p->heap, &r->pool);
	*out = r->pool;
	return status;
}

static bool is_diverted(void *user, trz_stream stream)
{
	const struct replay_pool *r = user;
	for (size_t i = 0; i < r->diverted_count; i++)
		if (r->diverted[i] == stream)
			return true;
	return false;
}

static trz_status divert(struct replay_pools *p, uint32_t number, uint16_t stream)
{
	struct replay_pool *r = &p->pools[number];
	trz_pool *pool;
	trz_status status = use_pool(p, number, &pool);
	if (status != TRZ_OK)
		return status;
	trz_stream *grown = realloc(r->diverted, (r->diverted_count + 1) * sizeof *grown);
	if (!grown)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for a diversion to pool %u", number);
	r->diverted = grown;
	r->diverted[r->diverted_count++] = p->streams[stream];
	return r->diverted_count == 1 ? trz_pool_begin(p->heap, pool, is_diverted, r) : TRZ_OK;
}

static trz_status undivert(struct replay_pools *p, uint32_t number, uint16_t stream)
{
	struct replay_pool *r = &p->pools[number];
	for (size_t i = r->diverted_count; i-- > 0;) {
		if (r->diverted[i] != p->streams[stream])
			continue;
		r->diverted[i] = r->diverted[--r->diverted_count];
		return r->diverted_count == 0 ? trz_pool_end(p->heap, r->pool) : TRZ_OK;
	}
	p->skipped++;
	return TRZ_OK;
}

static trz_status drop_graph(struct replay_pools *p, struct replay_capture *c)
{
	trz_status status = c->graph ? sim_graph_destroy(p->sim, p->context, c->graph) : TRZ_OK;
	c->graph = 0;
	c->content = false;
	return status;
}

static bool is_captured_into(const struct replay_pools *p, uint32_t number)
{
	for (uint32_t i = 0; i < p->capture_count; i++)
		if (p->captures[i].under_way && p->captures[i].pool == number)
			return true;
	return false;
}

static trz_status release(struct replay_pools *p, uint32_t number)
{
	struct replay_pool *r = &p->pools[number];
	trz_status status = TRZ_OK;
	if (!r->pool || is_captured_into(p, number)) {
		p->skipped++;
		return TRZ_OK;
	}
	for (uint32_t i = 0; i < p->capture_count && status == TRZ_OK; i++)
		if (p->captures[i].pool == number)
			status = drop_graph(p, &p->captures[i]);
	if (status == TRZ_OK && r->diverted_count)
		status = trz_pool_end(p->heap, r->pool);
	r->diverted_count = 0;
	if (status == TRZ_OK)
		status = trz_pool_release(p->heap, r->pool);
	r->pool = NULL;
	return status;
}

trz_status pools_alloc(struct replay_pools *p, uint32_t pool, uint64_t size, uint16_t stream, void **out)
{
	trz_pool *private = NULL;
	if (!pool || pools_capture_of(p, stream))
		return trz_alloc(p->heap, size, 0, p->streams[stream], out);
	trz_status status = use_pool(p, pool, &private);
	return status == TRZ_OK ? trz_pool_alloc(p->heap, private, size, 0, p->streams[stream], out) : status;
}

/* ---- captures ---- */

/* The query is the replay's own: no figure counts it. */
static trz_status ask(struct replay_pools *p, uint16_t stream, uint64_t *id)
{
	const trz_driver *d = sim_driver(p->sim);
	trz_capture_status capture = TRZ_CAPTURE_NONE;
	*id = 0;
	sim_leave_out(p->sim, true);
	trz_status status = d->stream_capture(d->self, p->context, p->streams[stream], &capture, id);
	sim_leave_out(p->sim, false);
	return status;
}

uint32_t pools_capture_of(struct replay_pools *p, uint16_t stream)
{
	uint64_t id = 0;
	if (!p->under_way || stream == 0 || ask(p, stream, &id) != TRZ_OK || !id)
		return 0;
	for (uint32_t i = 0; i < p->capture_count; i++)
		if (p->captures[i].under_way && p->captures[i].id == id)
			return i + 1;
	return 0;
}

/* The default stream cannot be captured, nor one twice. */
static trz_status begin_capture(struct replay_pools *p, const struct trace_event *e)
{
	struct replay_capture *c = &p->captures[e->id];
	trz_pool *pool;
	if (e->stream == 0 || c->under_way || pools_capture_of(p, e->stream)) {
		p->skipped++;
		return TRZ_OK;
	}
	trz_status status = drop_graph(p, c);
	c->stream = e->stream;
	c->pool = e->pool ? e->pool : p->pool_count - p->capture_count + e->id;
	if (status == TRZ_OK)
		status = use_pool(p, c->pool, &pool);
	if (status == TRZ_OK)
		status = trz_pool_begin_capture(p->heap, pool, p->streams[e->stream]);
	if (status == TRZ_OK)
		status = sim_capture_begin(p->sim, p->context, p->streams[e->stream], TRZ_CAPTURE_RELAXED);
	c->under_way = status == TRZ_OK;
	p->under_way += c->under_way;
	return status == TRZ_OK ? ask(p, e->stream, &c->id) : status;
}

/* A capture that the program has spoilt has no graph; the device reports a violation. */
static trz_status end_capture(struct replay_pools *p, struct replay_capture *c)
{
	if (!c->under_way) {
		p->skipped++;
		return TRZ_OK;
	}
	c->under_way = false;
	p->under_way--;
	trz_status status = sim_capture_end(p->sim, p->context, p->streams[c->stream], &c->graph);
	c->order = ++p->captured;
	trz_status ended = trz_pool_end(p->heap, p->pools[c->pool].pool);
	return status == TRZ_OK || status == TRZ_ERROR_CAPTURE ? ended : status;
}

/* Graphs of one pool share its free memory: a launch may overwrite what graphs captured later have written. */
static trz_status launch(struct replay_pools *p, const struct trace_event *e)
{
	struct replay_capture *c = &p->captures[e->id];
	if (!c->graph || pools_capture_of(p, e->stream)) {
		p->skipped++;
		return TRZ_OK;
	}
	for (uint32_t i = 0; i < p->capture_count; i++)
		p->captures[i].content &= p->captures[i].pool != c->pool || p->captures[i].order < c->order;
	c->content = true;
	c->launched_on = e->stream;
	p->launches++;
	return sim_graph_launch(p->sim, p->context, c->graph, p->streams[e->stream]);
}

bool pools_has_content(const struct replay_pools *p, uint32_t capture)
{
	return !capture || p->captures[capture - 1].content;
}

uint16_t pools_launched_on(const struct replay_pools *p, uint32_t capture)
{
	return p->captures[capture - 1].launched_on;
}

trz_status pools_event(struct replay_pools *p, const struct trace_event *e)
{
	bool names_pool = e->kind >= TRACE_POOL_BEGIN && e->kind <= TRACE_POOL_RELEASE;
	if (!p->heap || (names_pool && e->pool == 0)) {
		p->skipped++;
		return TRZ_OK;
	}
	switch ((enum trace_kind)e->kind) {
	case TRACE_CAPTURE_BEGIN:
		return begin_capture(p, e);
	case TRACE_CAPTURE_END:
		return end_capture(p, &p->captures[e->id]);
	case TRACE_GRAPH_LAUNCH:
		return launch(p, e);
	case TRACE_POOL_BEGIN:
		return divert(p, e->pool, e->stream);
	case TRACE_POOL_END:
		return undivert(p, e->pool, e->stream);
	default:
		return release(p, e->pool);
	}
}

/* ---- the end ---- */

/* The trace ends inside a capture: streams that joined it are joined back to its first. */
static trz_status abandon(struct replay_pools *p, struct replay_capture *c)
{
	const trz_driver *d = sim_driver(p->sim);
	trz_event event;
	uint64_t id;
	trz_status status = d->event_create(d->self, p->context, &event);
	for (uint16_t i = 1; i < p->stream_count && status == TRZ_OK; i++) {
		status = ask(p, i, &id);
		if (status != TRZ_OK || id != c->id || i == c->stream)
			continue;
		status = d->event_record(d->self, p->context, event, p->streams[i]);
		if (status == TRZ_OK)
			status = d->stream_wait(d->self, p->context, p->streams[c->stream], event);
	}
	if (status == TRZ_OK)
		status = d->event_destroy(d->self, p->context, event);
	return status == TRZ_OK ? end_capture(p, c) : status;
}

trz_status pools_reset(struct replay_pools *p)
{
	trz_status status = TRZ_OK;
	for (uint32_t i = 0; i < p->capture_count && status == TRZ_OK; i++)
		if (p->captures[i].under_way)
			status = abandon(p, &p->captures[i]);
	for (uint32_t i = 1; i < p->pool_count && status == TRZ_OK; i++)
		if (p->pools[i].pool)
			status = release(p, i);
	return status;
}

void pools_close(struct replay_pools *p)
{
	for (uint32_t i = 0; p->pools && i < p->pool_count; i++)
		free(p->pools[i].diverted);
	free(p->pools);
	free(p->captures);
}

uint64_t pools_reserved(const struct replay_pools *p)
{
	uint64_t bytes = 0;
	trz_pool_info info;
	for (uint32_t i = 1; i < p->pool_count; i++)
		if (p->pools[i].pool && trz_pool_query(p->heap, p->pools[i].pool, &info) == TRZ_OK)
			bytes += info.reserved;
	return bytes;
}
