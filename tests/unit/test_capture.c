/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap beside captures: it disturbs none, and refuses to serve a stream that is being captured.
 */
#include "overlay.h"
#include "rig.h"
#include "testing.h"

static trz_capture_status status_of(struct rig *r, trz_stream stream)
{
	trz_capture_status status;
	uint64_t id;
	assert_ok(r->d->stream_capture(r->d->self, r->c, stream, &status, &id));
	return status;
}

static void test_a_captured_stream_is_refused(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream captured = rig_stream(&r);
	sim_graph graph;
	void *p = rig_alloc(&r, 1000, captured), *out = &out;
	assert_ok(sim_capture_begin(r.s, r.c, captured, TRZ_CAPTURE_GLOBAL));
	assert_error(trz_alloc(r.heap, 1000, 0, captured, &out), TRZ_ERROR_CAPTURE, "being captured");
	assert_null(out);
	assert_error(trz_alloc(r.heap, MIB(30), 0, captured, &out), TRZ_ERROR_CAPTURE, "being captured");
	assert_int_equal(status_of(&r, captured), TRZ_CAPTURE_ACTIVE);
	assert_ok(sim_capture_end(r.s, r.c, captured, &graph));
	assert_ok(trz_alloc(r.heap, MIB(30), 0, captured, &out));
	rig_free(&r, out);
	rig_free(&r, p);
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	rig_sync(&r);
	rig_close(&r);
}

/* Growth, frees with events, polls and trims in the capturing thread, under the strictest mode. */
static void test_captures_are_not_disturbed(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream captured = rig_stream(&r), other = rig_stream(&r), third = rig_stream(&r);
	sim_graph graph;
	void *before = rig_alloc(&r, MIB(20), third);
	assert_ok(sim_capture_begin(r.s, r.c, captured, TRZ_CAPTURE_GLOBAL));
	void *p = rig_alloc(&r, MIB(100), other), *q = rig_alloc(&r, 5000, other);
	rig_free(&r, p);
	rig_free(&r, q);
	rig_free(&r, before);
	p = rig_alloc(&r, MIB(300), third);
	assert_ok(trz_trim(r.heap, 0, NULL));
	rig_free(&r, p);
	assert_int_equal(status_of(&r, captured), TRZ_CAPTURE_ACTIVE);
	assert_ok(sim_capture_end(r.s, r.c, captured, &graph));
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	rig_check(&r);
	rig_sync(&r);
	rig_close(&r);
}

/* Memory of a stream that is captured by the time of the free: no event may be recorded there. */
static void test_a_free_on_a_captured_stream(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream captured = rig_stream(&r), other = rig_stream(&r);
	sim_graph graph;
	void *p = rig_alloc(&r, MIB(20), captured), *q = rig_alloc(&r, MIB(20), other);
	assert_ok(sim_capture_begin(r.s, r.c, captured, TRZ_CAPTURE_GLOBAL));
	rig_free(&r, p);
	rig_free(&r, q);
	assert_int_equal(status_of(&r, captured), TRZ_CAPTURE_ACTIVE);
	assert_ok(sim_capture_end(r.s, r.c, captured, &graph));
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	rig_close(&r);
}

/* ---- a capture that begins between the heap's question and its record ---- */

static struct overlay racing;
static trz_stream about_to_begin;

/* The capture has come to no harm; nothing is left of it and its pool. */
static void end_unharmed(struct rig *r, trz_stream stream, trz_pool *pool)
{
	sim_graph graph;
	assert_int_equal(status_of(r, stream), TRZ_CAPTURE_ACTIVE);
	assert_ok(sim_capture_end(r->s, r->c, stream, &graph));
	assert_ok(trz_pool_end(r->heap, pool));
	assert_ok(sim_graph_destroy(r->s, r->c, graph));
	assert_ok(trz_pool_release(r->heap, pool));
	rig_sync(r);
	assert_ok(trz_trim(r->heap, 0, NULL));
	assert_int_equal(rig_stat(r, "reserved_bytes.all.current"), 0);
	rig_close(r);
}

static trz_status begin_and_record(void *self, trz_context context, trz_event event, trz_stream stream)
{
	if (stream == about_to_begin) {
		about_to_begin = NULL;
		assert_ok(sim_capture_begin(racing.rig.s, context, stream, TRZ_CAPTURE_GLOBAL));
	}
	return racing.rig.d->event_record(self, context, event, stream);
}

static void test_a_capture_that_begins_meanwhile(void **state)
{
	(void)state;
	trz_pool *pool;
	overlay_machine(&racing, GIB(1));
	racing.table.event_record = begin_and_record;
	overlay_open_heap(&racing, NULL);
	struct rig *r = &racing.rig;
	trz_stream stream = rig_stream(r), other = rig_stream(r);
	void *p = rig_alloc(r, MIB(30), stream);
	rig_free(r, rig_alloc(r, MIB(30), other));
	assert_ok(trz_pool_create(r->heap, &pool));
	assert_ok(trz_pool_begin_capture(r->heap, pool, stream));
	about_to_begin = stream;
	rig_free(r, p);
	assert_null(about_to_begin);
	assert_ok(trz_poll(r->heap));
	rig_check(r);
	end_unharmed(r, stream, pool);
}

static trz_status ask_and_begin(void *self, trz_context context, trz_stream stream, trz_capture_status *status,
                                uint64_t *id)
{
	trz_status answer = racing.rig.d->stream_capture(self, context, stream, status, id);
	if (stream == NULL && about_to_begin) {
		assert_ok(sim_capture_begin(racing.rig.s, context, about_to_begin, TRZ_CAPTURE_GLOBAL));
		about_to_begin = NULL;
	}
	return answer;
}

/* The same for a free on the legacy default stream, where an event would break the capture of a blocking stream. */
static void test_a_capture_that_a_free_would_break(void **state)
{
	(void)state;
	trz_pool *pool;
	trz_stream stream;
	overlay_machine(&racing, GIB(1));
	racing.table.stream_capture = ask_and_begin;
	overlay_open_heap(&racing, NULL);
	struct rig *r = &racing.rig;
	assert_ok(sim_stream_create(r->s, r->c, true, &stream));
	void *p = rig_alloc(r, MIB(30), NULL);
	rig_free(r, rig_alloc(r, MIB(30), stream));
	assert_ok(trz_pool_create(r->heap, &pool));
	assert_ok(trz_pool_begin_capture(r->heap, pool, stream));
	about_to_begin = stream;
	rig_free(r, p);
	if (about_to_begin)
		assert_ok(sim_capture_begin(r->s, r->c, stream, TRZ_CAPTURE_GLOBAL));
	about_to_begin = NULL;
	end_unharmed(r, stream, pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_captured_stream_is_refused),
		cmocka_unit_test(test_captures_are_not_disturbed),
		cmocka_unit_test(test_a_free_on_a_captured_stream),
		cmocka_unit_test(test_a_capture_that_begins_meanwhile),
		cmocka_unit_test(test_a_capture_that_a_free_would_break),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
