/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap beside captures: it disturbs none, and refuses to serve a stream that is being captured.
 */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_captured_stream_is_refused),
		cmocka_unit_test(test_captures_are_not_disturbed),
		cmocka_unit_test(test_a_free_on_a_captured_stream),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
