/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that run out of memory on a simulated device, each for one reason: the report at the failure names the right
 * verdict, how much was missing, and the largest holder.
 */
#include <jansson.h>
#include <stdlib.h>

#include "prng.h"
#include "rig.h"

/* What a report must say. `holder`: the tag of the largest one; NULL: nobody's business. `off`: bytes by which the
 * shortage may differ, for edges and slabs. */
struct expected {
	const char *verdict;
	int64_t short_bytes;
	const char *holder;
	int64_t off;
};

static void *hold(struct rig *r, const char *tag, size_t size, trz_stream stream)
{
	trz_set_tag(tag);
	void *p = rig_alloc(r, size, stream);
	trz_set_tag(NULL);
	return p;
}

static bool collect(void *user, const char *text, size_t size)
{
	json_t **out = user;
	static char all[1 << 16];
	static size_t used;
	if (*out == NULL)
		used = 0;
	assert_true(size < sizeof all - used);
	memcpy(all + used, text, size);
	used += size;
	json_decref(*out);
	*out = json_loadb(all, used, 0, NULL);
	if (!*out)
		*out = json_null();
	return true;
}

static bool append(void *user, const char *text, size_t size)
{
	strncat(user, text, size);
	return true;
}

static void fails(struct rig *r, size_t size, trz_stream stream, struct expected x)
{
	void *p;
	json_t *report = NULL;
	trz_set_tag("request");
	trz_status status = trz_alloc(r->heap, size, 0, stream, &p);
	trz_set_tag(NULL);
	assert_true(status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_LIMIT || status == TRZ_ERROR_SIZE);
	assert_ok(trz_report(r->heap, TRZ_REPORT_FAILURE | TRZ_REPORT_JSON, collect, &report));
	assert_true(json_is_object(report));
	assert_string_equal(json_string_value(json_object_get(report, "verdict")), x.verdict);
	int64_t missing = json_integer_value(json_object_get(report, "short_bytes"));
	if (llabs(missing - x.short_bytes) > x.off)
		fail_msg("%lld bytes short, not %lld", (long long)missing, (long long)x.short_bytes);
	json_t *holders = json_object_get(report, "holders");
	if (x.holder) {
		const char *tag = json_string_value(json_object_get(json_array_get(holders, 0), "tag"));
		assert_string_equal(tag ? tag : "", x.holder);
	}
	json_decref(report);
}

static struct rig begin(const char *conf)
{
	char all[128];
	snprintf(all, sizeof all, "oom_report:off%s%s", conf ? "," : "", conf ? conf : "");
	return rig_open(GIB(8), all);
}

/* Closes the heap with all that is held. */
static void end(struct rig *r)
{
	rig_check(r);
	rig_sync(r);
	rig_close(r);
}

/* ---- full ---- */

static void test_full_of_weights(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	hold(&r, "weights", GIB(5), NULL);
	hold(&r, "gradients", GIB(2), NULL);
	fails(&r, GIB(2), NULL, (struct expected){"full", GIB(1), "weights", 0});
	end(&r);
}

static void test_full_of_many_layers(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	hold(&r, "embedding", GIB(1), NULL);
	for (int i = 0; i < 28; i++)
		hold(&r, "layers", MIB(256), NULL);
	fails(&r, MIB(256), NULL, (struct expected){"full", MIB(256), "layers", 0});
	end(&r);
}

static void test_full_of_the_state_of_an_optimizer(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	hold(&r, "weights", GIB(2), NULL);
	hold(&r, "gradients", GIB(2), NULL);
	for (int i = 0; i < 15; i++)
		hold(&r, "optimizer", MIB(256), NULL);
	fails(&r, MIB(512), NULL, (struct expected){"full", MIB(256), "optimizer", 0});
	end(&r);
}

static void test_full_although_some_is_free(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	hold(&r, "kv", GIB(6), NULL);
	void *p = hold(&r, "workspace", GIB(1), NULL);
	rig_free(&r, p);
	fails(&r, GIB(4), NULL, (struct expected){"full", GIB(2), "kv", 0});
	end(&r);
}

/* ---- too large ---- */

static void test_too_large_for_an_empty_device(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	fails(&r, GIB(9), NULL, (struct expected){"too_large", GIB(1), NULL, 0});
	end(&r);
}

static void test_too_large_for_any_device_of_the_size(void **state)
{
	(void)state;
	struct rig r = begin("limit:4GiB");
	hold(&r, "weights", GIB(1), NULL);
	fails(&r, GIB(64), NULL, (struct expected){"too_large", GIB(61), "weights", 0});
	end(&r);
}

static void test_too_large_an_attention_matrix(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	hold(&r, "weights", GIB(2), NULL);
	size_t heads = 32, tokens = 16384;
	fails(&r, heads * tokens * tokens * 4, NULL, (struct expected){"too_large", GIB(26), "weights", 0});
	end(&r);
}

/* ---- limit ---- */

static void test_limit_of_the_options(void **state)
{
	(void)state;
	struct rig r = begin("limit:2GiB");
	hold(&r, "weights", GIB(1), NULL);
	fails(&r, MIB(1536), NULL, (struct expected){"limit", MIB(512), "weights", 0});
	end(&r);
}

static void test_limit_that_the_program_sets(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	hold(&r, "weights", GIB(3), NULL);
	assert_ok(trz_set_limit(r.heap, GIB(4)));
	fails(&r, GIB(2), NULL, (struct expected){"limit", GIB(1), "weights", 0});
	end(&r);
}

static void test_limit_below_what_is_held(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	hold(&r, "weights", GIB(3), NULL);
	assert_ok(trz_set_limit(r.heap, GIB(1)));
	fails(&r, GIB(2), NULL, (struct expected){"limit", GIB(2), "weights", 0});
	end(&r);
}

/* ---- other process ---- */

static void other_process(size_t theirs, size_t ours, size_t asked, struct expected x)
{
	struct rig r = begin(NULL);
	trz_heap *other = rig_second_heap(&r);
	void *p;
	assert_ok(trz_alloc(other, theirs, 0, NULL, &p));
	hold(&r, "weights", ours, NULL);
	fails(&r, asked, NULL, x);
	assert_ok(trz_close(other));
	end(&r);
}

static void test_half_of_the_card_is_another_process_s(void **state)
{
	(void)state;
	other_process(GIB(4), GIB(2), GIB(3), (struct expected){"other_process", GIB(1), "weights", 0});
}

static void test_nearly_all_of_the_card_is_another_process_s(void **state)
{
	(void)state;
	other_process(GIB(7), MIB(512), GIB(1), (struct expected){"other_process", MIB(512), "weights", MIB(4)});
}

static void test_another_process_takes_what_was_free(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	hold(&r, "weights", GIB(2), NULL);
	assert_ok(sim_take(r.s, 0, GIB(5)));
	fails(&r, GIB(2), NULL, (struct expected){"other_process", GIB(1), "weights", 0});
	sim_give(r.s, 0, GIB(5));
	end(&r);
}

/* ---- leak ---- */

/* Steps until one fails; what they keep has the tag. */
static void leak(struct rig *r, size_t each, size_t noise, struct expected x)
{
	uint64_t seed = 1;
	hold(r, "weights", GIB(2), NULL);
	for (int step = 0; step < 2000; step++) {
		size_t size = MIB(512) + (noise ? prng_below(&seed, noise) : 0);
		void *passing, *kept;
		trz_set_tag("activations");
		trz_status status = trz_alloc(r->heap, size, 0, NULL, &passing);
		trz_set_tag(NULL);
		if (status != TRZ_OK) {
			fails(r, size, NULL, x);
			return;
		}
		trz_set_tag("kept");
		status = trz_alloc(r->heap, each, 0, NULL, &kept);
		trz_set_tag(NULL);
		if (status != TRZ_OK) {
			fails(r, each, NULL, x);
			return;
		}
		assert_ok(trz_free(r->heap, passing));
		assert_ok(trz_step(r->heap));
	}
	fail_msg("memory has not run out");
}

static void test_leak_of_a_tenth_a_step(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	leak(&r, MIB(200), 0, (struct expected){"leak", MIB(168), "kept", MIB(4)});
	end(&r);
}

static void test_leak_of_a_hundredth_a_step(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	leak(&r, MIB(20), 0, (struct expected){"leak", MIB(8), "kept", MIB(4)});
	end(&r);
}

static void test_leak_beside_batches_of_all_sizes(void **state)
{
	(void)state;
	struct rig r = begin(NULL);
	leak(&r, MIB(10), MIB(200), (struct expected){"leak", MIB(100), "kept", MIB(100)});
	end(&r);
}

/* ---- pool ---- */

static void pool(size_t theirs, size_t asked, struct expected x)
{
	struct rig r = begin(NULL);
	trz_stream s = rig_stream(&r);
	trz_pool *pool;
	sim_graph graph;
	assert_ok(trz_pool_create(r.heap, &pool));
	assert_ok(trz_pool_begin_capture(r.heap, pool, s));
	assert_ok(sim_capture_begin(r.s, r.c, s, TRZ_CAPTURE_GLOBAL));
	rig_free(&r, hold(&r, "captured", theirs, s));
	assert_ok(sim_capture_end(r.s, r.c, s, &graph));
	assert_ok(trz_pool_end(r.heap, pool));
	hold(&r, "weights", GIB(2), NULL);
	fails(&r, asked, NULL, x);
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_ok(trz_pool_release(r.heap, pool));
	end(&r);
}

static void test_pool_of_a_graph(void **state)
{
	(void)state;
	pool(GIB(4), GIB(5), (struct expected){"pool", GIB(3), "weights", 0});
}

static void test_pool_of_a_graph_has_just_enough(void **state)
{
	(void)state;
	pool(GIB(2), GIB(6), (struct expected){"pool", GIB(2), "weights", 0});
}

/* ---- other stream ---- */

/* What a stream has freed is in use by its work still, and the option forbids to wait for it. */
static void other_stream(size_t theirs, size_t asked, struct expected x)
{
	struct rig r = begin("wait:off");
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	hold(&r, "weights", GIB(1), NULL);
	void *p = hold(&r, "passing", theirs, a);
	assert_ok(sim_fill(r.s, r.c, a, (trz_addr)p, KIB(4), 1));
	rig_free(&r, p);
	fails(&r, asked, b, x);
	end(&r);
}

static void test_other_stream_has_most_of_the_device(void **state)
{
	(void)state;
	other_stream(GIB(6), GIB(4), (struct expected){"other_stream", GIB(3), "weights", 0});
}

static void test_other_stream_has_just_enough(void **state)
{
	(void)state;
	other_stream(GIB(2), GIB(6), (struct expected){"other_stream", GIB(1), "weights", MIB(4)});
}

/* ---- fragmented: on a device without virtual memory management ---- */

static void fragmented(size_t each, int count, size_t asked, struct expected x)
{
	struct rig r = begin("vmm:off");
	void *freed[64];
	assert_true(count <= 64);
	for (int i = 0; i < count; i++) {
		freed[i] = hold(&r, "passing", each, NULL);
		hold(&r, "kept", each / 2, NULL);
	}
	for (int i = 0; i < count; i++)
		rig_free(&r, freed[i]);
	fails(&r, asked, NULL, x);
	char text[16384] = "";
	assert_ok(trz_report(r.heap, TRZ_REPORT_FAILURE, append, text));
	assert_non_null(strstr(text, "leave out vmm:off"));  /* it is on terrazzo already */
	assert_null(strstr(text, "expandable_segments"));
	end(&r);
}

static void test_fragmented_in_small_pieces(void **state)
{
	(void)state;
	fragmented(KIB(600), 64, GIB(8) - MIB(30), (struct expected){"fragmented", 0, "kept", GIB(8)});
}

static void test_fragmented_in_pieces_of_a_tile(void **state)
{
	(void)state;
	fragmented(MIB(3), 64, GIB(8) - MIB(150), (struct expected){"fragmented", 0, "kept", GIB(8)});
}

/* ---- rounding ---- */

static void rounding(size_t size)
{
	struct rig r = rig_open(MIB(64), "oom_report:off");
	while (rig_stat(&r, "reserved_bytes.all.current") < MIB(60))
		hold(&r, "odd", size, NULL);
	fails(&r, MIB(8), NULL, (struct expected){"rounding", MIB(4), "odd", MIB(4)});
	end(&r);
}

static void test_rounding_of_slots(void **state)
{
	(void)state;
	rounding(2049);
}

static void test_rounding_of_large_slots(void **state)
{
	(void)state;
	rounding(KIB(16) + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_of_weights),
		cmocka_unit_test(test_full_of_many_layers),
		cmocka_unit_test(test_full_of_the_state_of_an_optimizer),
		cmocka_unit_test(test_full_although_some_is_free),
		cmocka_unit_test(test_too_large_for_an_empty_device),
		cmocka_unit_test(test_too_large_for_any_device_of_the_size),
		cmocka_unit_test(test_too_large_an_attention_matrix),
		cmocka_unit_test(test_limit_of_the_options),
		cmocka_unit_test(test_limit_that_the_program_sets),
		cmocka_unit_test(test_limit_below_what_is_held),
		cmocka_unit_test(test_half_of_the_card_is_another_process_s),
		cmocka_unit_test(test_nearly_all_of_the_card_is_another_process_s),
		cmocka_unit_test(test_another_process_takes_what_was_free),
		cmocka_unit_test(test_leak_of_a_tenth_a_step),
		cmocka_unit_test(test_leak_of_a_hundredth_a_step),
		cmocka_unit_test(test_leak_beside_batches_of_all_sizes),
		cmocka_unit_test(test_pool_of_a_graph),
		cmocka_unit_test(test_pool_of_a_graph_has_just_enough),
		cmocka_unit_test(test_other_stream_has_most_of_the_device),
		cmocka_unit_test(test_other_stream_has_just_enough),
		cmocka_unit_test(test_fragmented_in_small_pieces),
		cmocka_unit_test(test_fragmented_in_pieces_of_a_tile),
		cmocka_unit_test(test_rounding_of_slots),
		cmocka_unit_test(test_rounding_of_large_slots),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
