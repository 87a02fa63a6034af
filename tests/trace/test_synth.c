/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic traces are legal programs: a stream that uses or takes over a block has waited for the block's earlier
 * streams. Proved with vector clocks, at every length.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "synth.h"

enum { STREAMS = 6, EVENTS = 3000 };

/* What a stream has waited for: of each stream, how many of its operations. */
struct clock {
	uint32_t of[STREAMS];
};

struct checked_block {
	uint16_t owner;
	bool live;
	uint32_t made;         /* the owner's time of the allocation */
	uint32_t users;        /* streams recorded, as bits */
};

struct checker {
	struct clock streams[STREAMS];
	struct clock events[STREAMS];
	bool recorded[STREAMS];
	struct checked_block blocks[EVENTS];
	uint32_t allocs;
	uint32_t shared;
	bool capturing, diverted;
	uint32_t graphs;       /* that can be launched, as bits */
};

static void join(struct clock *a, const struct clock *b)
{
	for (int i = 0; i < STREAMS; i++)
		a->of[i] = a->of[i] > b->of[i] ? a->of[i] : b->of[i];
}

static void check_event(struct checker *c, const struct trace_event *e)
{
	struct clock *now = &c->streams[e->stream];
	struct checked_block *block = &c->blocks[e->id % EVENTS];
	switch (e->kind) {
	case TRACE_ALLOC:
		assert_int_equal(e->id, c->allocs++);
		assert_true(e->size > 0);
		*block = (struct checked_block){ .owner = e->stream, .live = true, .made = ++now->of[e->stream] };
		return;
	case TRACE_EVENT_RECORD:
		c->events[e->id] = *now;
		c->recorded[e->id] = true;
		return;
	case TRACE_STREAM_WAIT:
		assert_true(c->recorded[e->id]);
		join(now, &c->events[e->id]);
		return;
	case TRACE_RECORD_STREAM:
		assert_true(block->live && e->stream != block->owner);
		assert_true(now->of[block->owner] >= block->made);
		block->users |= 1u << e->stream;
		c->shared++;
		return;
	case TRACE_FREE:
		assert_true(block->live);
		assert_true(now->of[block->owner] >= block->made);
		assert_true(block->users == 0 || e->stream == block->owner);
		c->shared += e->stream != block->owner;
		block->live = false;
		return;
	case TRACE_CAPTURE_BEGIN:
		assert_true(e->stream > 0 && e->pool > 0 && !c->capturing);
		c->capturing = true;
		return;
	case TRACE_CAPTURE_END:
		assert_true(c->capturing);
		c->capturing = false;
		c->graphs |= 1u << e->id;
		return;
	case TRACE_GRAPH_LAUNCH:
		assert_true(!c->capturing && (c->graphs >> e->id & 1));
		return;
	case TRACE_POOL_BEGIN:
	case TRACE_POOL_END:
		assert_int_equal(c->diverted, e->kind == TRACE_POOL_END);
		c->diverted = !c->diverted;
		return;
	case TRACE_POOL_RELEASE:
		c->graphs = 0;
		return;
	default:
		assert_int_equal(e->kind, TRACE_MARKER);
	}
}

static void every_shape_is_legal(void **state)
{
	(void)state;
	static struct checker c;
	for (int shape = SYNTH_RING; shape <= SYNTH_RANDOM; shape++) {
		for (uint32_t streams = shape == SYNTH_GRAPHS ? 2 : 1; streams <= STREAMS; streams++) {
			for (int record_stream = 0; record_stream < 2; record_stream++) {
				struct synth_params params = { .shape = (enum synth_shape)shape, .streams = streams,
				                               .events = EVENTS, .seed = 5, .record_stream = record_stream };
				struct trace trace;
				assert_int_equal(synth_trace(&params, &trace), TRZ_OK);
				assert_int_equal(trace.count, EVENTS);
				assert_int_equal(trace.streams, streams);
				memset(&c, 0, sizeof c);
				for (size_t i = 0; i < trace.count; i++)
					check_event(&c, &trace.events[i]);
				assert_int_equal(c.allocs, trace.allocs);
				assert_true(streams == 1 ? c.shared == 0 : c.shared > 50 || shape == SYNTH_GRAPHS);
				trace_free(&trace);
			}
		}
	}
}

static void the_seed_decides(void **state)
{
	(void)state;
	for (int shape = SYNTH_RING; shape <= SYNTH_RANDOM; shape++) {
		struct synth_params params = { .shape = (enum synth_shape)shape, .streams = 3, .events = EVENTS };
		struct trace a, b, other, shorter;
		assert_int_equal(synth_trace(&params, &a), TRZ_OK);
		assert_int_equal(synth_trace(&params, &b), TRZ_OK);
		params.seed = 1;
		assert_int_equal(synth_trace(&params, &other), TRZ_OK);
		params.seed = 0;
		params.events = 7;
		assert_int_equal(synth_trace(&params, &shorter), TRZ_OK);
		assert_int_equal(shorter.count, 7);
		uint64_t differences = 0;
		for (size_t i = 0; i < EVENTS; i++) {
			assert_int_equal(a.events[i].kind, b.events[i].kind);
			assert_int_equal(a.events[i].size, b.events[i].size);
			assert_int_equal(a.events[i].id, b.events[i].id);
			assert_int_equal(a.events[i].stream, b.events[i].stream);
			assert_true(i >= 7 || shorter.events[i].size == a.events[i].size);
			differences += a.events[i].size != other.events[i].size;
		}
		assert_true(differences > 0);
		trace_free(&a);
		trace_free(&b);
		trace_free(&other);
		trace_free(&shorter);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_shape_is_legal),
		cmocka_unit_test(the_seed_decides),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
