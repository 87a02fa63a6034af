/* SPDX-License-Identifier: Apache-2.0
 *
 * The decision list on handmade evidence, practitioners' worked cases included, and the report's form.
 */
#include "testing.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "comma_locale.h"
#include "oom_report.h"

static struct evidence e;
static struct verdict v;

static uint64_t gib(double n)
{
	return (uint64_t)(n * (double)GIB(1));
}

/* A request that failed in an allocator that serves whole pieces. */
static void ask(double requested, double device_total, double device_free, double reserved, double allocated)
{
	evidence_init(&e, EVIDENCE_PICKLE, "test");
	e.failed = true;
	e.requested = gib(requested);
	e.device_total = gib(device_total);
	e.device_free = gib(device_free);
	e.reserved = gib(reserved);
	e.allocated = gib(allocated);
	e.cached = e.reserved - e.allocated;
}

static void expect(enum verdict_kind kind, double short_gib)
{
	verdict_find(&e, &v);
	assert_string_equal(verdict_name(v.kind), verdict_name(kind));
	double error = (double)v.short_bytes / (double)GIB(1) - short_gib;
	if (error > 0.001 || error < -0.001)
		fail_msg("%.3f GiB short, not %.3f", (double)v.short_bytes / (double)GIB(1), short_gib);
}

static bool also(enum verdict_kind kind)
{
	for (unsigned i = 0; i < v.also_count; i++)
		if (v.also[i] == kind)
			return true;
	return false;
}

static const struct verdict_remedy *remedy(enum remedy_kind kind)
{
	for (unsigned i = 0; i < v.remedy_count; i++)
		if (v.remedies[i].kind == kind)
			return &v.remedies[i];
	return NULL;
}

/* ---- worked cases ----------------------------------------------------------------------------------- */

/* "Reserved but unallocated" is 0.05 GiB: joining pieces or emptying the cache does not help. */
static void test_a_full_card_is_not_fragmented(void **state)
{
	(void)state;
	ask(2.50, 23.69, 1.89, 21.50, 21.45);
	expect(VERDICT_FULL, 0.56);
	assert_int_equal(v.also_count, 0);
	assert_null(remedy(REMEDY_JOIN));
	assert_int_equal(v.others, 0);
}

/* [10 used][5 free][20 used][15 free][30 used]: 20 are free, so 25 are full, short by 5. */
static void test_the_popular_picture_is_full(void **state)
{
	(void)state;
	ask(25, 80, 0, 80, 60);
	e.free_own = gib(20);
	e.largest_free = gib(15);
	expect(VERDICT_FULL, 5);
}

static void test_the_picture_with_less_is_fragmented(void **state)
{
	(void)state;
	for (double size = 16; size <= 20; size++) {
		ask(size, 80, 0, 80, 60);
		e.free_own = gib(20);
		e.largest_free = gib(15);
		expect(VERDICT_FRAGMENTED, size - 15);
		assert_true(remedy(REMEDY_JOIN)->enough);
	}
}

/* 7B with AdamW on 80 GB: weights and gradients, then the state; next to no activations. */
static void test_the_first_step_wants_optimizer_state(void **state)
{
	(void)state;
	ask(0.25, 80, 0.1, 79, 78.9);
	e.categories[CATEGORY_WEIGHTS] = gib(14);
	e.categories[CATEGORY_GRADIENTS] = gib(14);
	e.categories[CATEGORY_OPTIMIZER] = gib(50.8);
	e.categories[CATEGORY_ACTIVATIONS] = gib(0.01);
	e.category = CATEGORY_OPTIMIZER;
	expect(VERDICT_FULL, 0.05);
	assert_int_equal(v.remedies[0].kind, REMEDY_OFFLOAD_OPTIMIZER);
	assert_null(remedy(REMEDY_BATCH));
}

static void test_growth_that_holds_what_is_missing_is_a_leak(void **state)
{
	(void)state;
	ask(0.5, 24.2, 0.1, 24, 23.9);
	e.has_history = true;
	e.growth[e.growth_count++] = (struct evidence_growth){.site = "train.py:9", .live = gib(6), .leak = true};
	expect(VERDICT_LEAK, 0.3);
	e.growth[0].live = gib(0.2);
	expect(VERDICT_FULL, 0.3);
	e.growth[0] = (struct evidence_growth){.site = "cache.py:9", .live = gib(6), .leak = false};
	expect(VERDICT_FULL, 0.3);
}

/* ---- the list --------------------------------------------------------------------------------------- */

static void test_too_large(void **state)
{
	(void)state;
	ask(100, 80, 79.5, 0, 0);
	e.limit = gib(40);
	expect(VERDICT_TOO_LARGE, 60);
	ask(80, 80, 79.5, 0, 0);
	e.context = gib(0.5);
	expect(VERDICT_TOO_LARGE, 0.5);
	evidence_init(&e, EVIDENCE_TEXT, "test");
	e.failed = e.too_large = true;
	verdict_find(&e, &v);
	assert_int_equal(v.kind, VERDICT_TOO_LARGE);
	assert_false(evidence_known(v.short_bytes));
}

static void test_limit(void **state)
{
	(void)state;
	ask(2, 80, 60, 19, 19);
	e.limit = gib(20);
	expect(VERDICT_LIMIT, 1);
	assert_int_equal(remedy(REMEDY_LIMIT)->bytes, gib(59));
	e.device_total = gib(21);  /* the device lacks room too: the limit is not what forbids it */
	e.device_free = gib(1.5);
	expect(VERDICT_FULL, 1);
}

/* Weights that find no room are many; a few activations would make up for it as well. */
static void test_what_the_request_is_for_comes_first(void **state)
{
	(void)state;
	ask(0.1, 24, 0, 24, 23.9);
	e.free_own = 0;
	e.categories[CATEGORY_ACTIVATIONS] = gib(0.2);
	e.categories[CATEGORY_WEIGHTS] = gib(23);
	e.category = CATEGORY_WEIGHTS;
	expect(VERDICT_FULL, 0.1);
	assert_int_equal(v.remedies[0].kind, REMEDY_OFFLOAD_WEIGHTS);
	e.category = CATEGORY_KV_CACHE;
	e.categories[CATEGORY_KV_CACHE] = gib(20);
	expect(VERDICT_FULL, 0.1);
	assert_int_equal(v.remedies[0].kind, REMEDY_KV_CACHE);
}

/* What is missing is beyond what joining and returning give: neither is offered for a part of it. */
static void test_no_remedy_for_what_is_counted_already(void **state)
{
	(void)state;
	ask(4, 24, 0, 24, 21);
	e.releasable = gib(0.5);
	e.joins = true;
	expect(VERDICT_FULL, 1);
	assert_null(remedy(REMEDY_TRIM));
	ask(4, 24, 0, 24, 19);
	e.largest_free = gib(3);
	e.expandable = true;  /* whole pages have been joined in vain */
	expect(VERDICT_FRAGMENTED, 1);
	assert_null(remedy(REMEDY_JOIN));
}

static void test_nearly_all_in_one_piece_is_full(void **state)
{
	(void)state;
	ask(3.01, 24, 0, 24, 20.95);
	e.joins = true;
	e.largest = gib(3);
	expect(VERDICT_FULL, 0.01);
	assert_true(also(VERDICT_FRAGMENTED));
}

/* PyTorch lays new memory beside no free piece; with expandable segments it does, and so does terrazzo. */
static void test_a_smaller_batch_makes_up_for_pieces(void **state)
{
	(void)state;
	for (int joins = 0; joins < 3; joins++) {
		ask(6, 24, 3, 21, 19);
		e.joins = joins == 1;
		e.expandable = joins == 2;
		e.largest_free = gib(0.5);
		for (int i = 0; i < CATEGORY_COUNT; i++)
			e.categories[i] = 0;
		e.categories[CATEGORY_ACTIVATIONS] = gib(19);
		e.category = CATEGORY_ACTIVATIONS;
		expect(VERDICT_FULL, 1);
		assert_true(remedy(REMEDY_BATCH)->enough && remedy(REMEDY_BATCH)->bytes == gib(joins ? 1 : 3));
	}
}

/* 2 GiB asked for, 1 GiB left, and 500 MiB free in pieces that do not help: 524 MiB given back would fail again. */
static void scatter(void)
{
	ask(2, 24, 1, 23, 0);
	e.cached = e.free_own = MIB(500);
	e.allocated = e.reserved - e.cached;
	e.largest_free = MIB(2);
}

static void test_what_has_to_be_given_back_beside_pieces(void **state)
{
	(void)state;
	static const enum evidence_category categories[] = {CATEGORY_OPTIMIZER, CATEGORY_KV_CACHE, CATEGORY_WEIGHTS};
	static const enum remedy_kind kinds[] = {REMEDY_OFFLOAD_OPTIMIZER, REMEDY_KV_CACHE, REMEDY_OFFLOAD_WEIGHTS};
	for (int i = 0; i < 3; i++) {
		scatter();
		for (int c = 0; c < CATEGORY_COUNT; c++)
			e.categories[c] = EVIDENCE_UNKNOWN;
		e.category = categories[i];
		expect(VERDICT_FULL, 524.0 / 1024);
		assert_true(remedy(kinds[i])->at_least && remedy(kinds[i])->bytes == GIB(1));
		for (int joins = 0; joins < 2; joins++) {
			e.joins = joins;
			e.categories[categories[i]] = MIB(600);
			expect(VERDICT_FULL, 524.0 / 1024);
			assert_int_equal(remedy(kinds[i])->enough, joins);
		}
		e.joins = false;
		e.categories[categories[i]] = GIB(1);
		expect(VERDICT_FULL, 524.0 / 1024);
		assert_true(remedy(kinds[i])->enough);
	}
}

/* What grows, or is held in many blocks, would have to be as much, too: to be the verdict, and to be enough. */
static void test_what_grows_beside_pieces(void **state)
{
	(void)state;
	for (int bytes = 600; bytes <= 1024; bytes += 424) {
		bool enough = bytes == 1024;
		scatter();
		e.growth[0] = (struct evidence_growth){.site = "a.py:1", .live = MIB((uint64_t)bytes), .leak = true};
		e.growth_count = 1;
		expect(enough ? VERDICT_LEAK : VERDICT_FULL, 524.0 / 1024);
		assert_int_equal(remedy(REMEDY_LEAK)->enough, enough);
		e.growth[0].leak = false;
		e.allocated = GIB(2);
		expect(VERDICT_FULL, 524.0 / 1024);
		assert_int_equal(remedy(REMEDY_GROWTH) != NULL, enough);
		e.growth[0].overfilled = true;
		expect(VERDICT_FULL, 524.0 / 1024);
		assert_int_equal(remedy(REMEDY_OVERFILLED) != NULL, enough);
		e.growth_count = 0;
		e.holders[e.holder_count++] = (struct evidence_holder){
			.site = "a.py:1", .bytes = MIB((uint64_t)bytes), .count = 1000};
		e.allocated = GIB(1);
		expect(VERDICT_FULL, 524.0 / 1024);
		assert_int_equal(remedy(REMEDY_FEWER) != NULL, enough);
	}
}

/* A limit has to allow all of the new segment, whatever is free. */
static void test_a_limit_beside_pieces(void **state)
{
	(void)state;
	scatter();
	e.device_total = e.device_free = EVIDENCE_UNKNOWN;
	e.limit = e.reserved + GIB(1);
	expect(VERDICT_LIMIT, 524.0 / 1024);
	assert_int_equal(remedy(REMEDY_LIMIT)->bytes, GIB(1));
}

/* Without the request's own rounding a piece would do; without that of live memory only new memory. */
static void test_rounding_beside_pieces(void **state)
{
	(void)state;
	scatter();
	e.live_requested = e.allocated - MIB(800);
	expect(VERDICT_FULL, 524.0 / 1024);
	assert_null(remedy(REMEDY_ROUNDING));
	e.live_requested = EVIDENCE_UNKNOWN;
	e.device_free = 0;
	e.largest_free = MIB(310);
	e.requested = MIB(300);
	e.needed = MIB(512);
	expect(VERDICT_ROUNDING, 12.0 / 1024);
	assert_true(remedy(REMEDY_ROUNDING)->enough);
}

/* A request that is an activation itself shrinks with the batch, too; the optimizer's state does not. */
static void test_what_a_smaller_batch_gives(void **state)
{
	(void)state;
	ask(4, 24, 3, 21, 21);
	for (int i = 0; i < CATEGORY_COUNT; i++)
		e.categories[i] = 0;
	e.categories[CATEGORY_WEIGHTS] = gib(20.5);
	e.categories[CATEGORY_ACTIVATIONS] = gib(0.5);
	e.category = CATEGORY_ACTIVATIONS;
	expect(VERDICT_FULL, 1);
	assert_true(remedy(REMEDY_BATCH)->enough && verdict_scaling(&e) == gib(4.5));
	e.category = CATEGORY_GRADIENTS;
	expect(VERDICT_FULL, 1);
	assert_false(remedy(REMEDY_BATCH)->enough);
	e.categories[CATEGORY_WEIGHTS] = gib(0.1);  /* a gradient is no larger: these are of samples */
	expect(VERDICT_FULL, 1);
	assert_true(remedy(REMEDY_BATCH)->enough && verdict_scaling(&e) == gib(4.5));
	e.category = CATEGORY_OPTIMIZER;
	expect(VERDICT_FULL, 1);
	assert_null(remedy(REMEDY_BATCH));
	e.category = CATEGORY_UNKNOWN;  /* but its line has made weights before */
	e.site = "load.py:3";
	e.holders[e.holder_count++] = (struct evidence_holder){
		.site = "load.py:3", .category = CATEGORY_WEIGHTS, .bytes = gib(0.1), .count = 1};
	expect(VERDICT_FULL, 1);
	assert_null(remedy(REMEDY_BATCH));
	e.holder_count = 0;
	e.category = CATEGORY_KV_CACHE;  /* has a remedy of its own */
	e.categories[CATEGORY_ACTIVATIONS] = EVIDENCE_UNKNOWN;
	e.categories[CATEGORY_WEIGHTS] = gib(0.5);
	e.categories[CATEGORY_KV_CACHE] = gib(20);
	expect(VERDICT_FULL, 1);
	assert_int_equal(v.remedies[0].kind, REMEDY_KV_CACHE);
}

/* A list and what it is put together into: without the list there were no request. */
static void test_a_list_that_is_put_together(void **state)
{
	(void)state;
	ask(2.1, 4, 1.9, 2.1, 2.1);
	e.growth[e.growth_count++] = (struct evidence_growth){.site = "predict.py:9", .live = gib(2.05), .leak = true};
	e.holders[e.holder_count++] = (struct evidence_holder){.site = "predict.py:9", .bytes = gib(2.1), .count = 90};
	expect(VERDICT_FULL, 0.2);
	assert_true(v.together);
	assert_int_equal(v.remedies[0].kind, REMEDY_OVERFILLED);
	assert_int_equal(v.remedies[0].bytes, gib(2.05));
	assert_null(remedy(REMEDY_BATCH));
	e.requested = gib(2.3);
	expect(VERDICT_LEAK, 0.4);
	assert_false(v.together);
}

/* What one line allocates in two ways grows as one. */
static void test_growth_of_one_line(void **state)
{
	(void)state;
	ask(0.5, 24, 0.1, 23.9, 23.9);
	const struct evidence_growth g = {.site = "serve.py:15", .per_step = 1e6, .live = gib(0.3), .leak = true};
	evidence_add_growth(&e, &g);
	evidence_add_growth(&e, &g);
	assert_int_equal(e.growth_count, 1);
	expect(VERDICT_LEAK, 0.4);
	assert_int_equal(remedy(REMEDY_LEAK)->bytes, gib(0.3) * 2);
}

/* Before anything has failed no remedy is known to be enough; what the verdict says comes first all the same. */
static void test_a_leak_before_the_failure(void **state)
{
	(void)state;
	ask(0, 24, 2, 22, 20);
	e.failed = false;
	e.releasable = gib(1);
	evidence_add_growth(&e, &(struct evidence_growth){.site = "serve.py:15", .live = gib(9), .leak = true});
	verdict_find(&e, &v);
	assert_int_equal(v.kind, VERDICT_LEAK);
	assert_int_equal(v.remedies[0].kind, REMEDY_LEAK);
	assert_non_null(remedy(REMEDY_TRIM));
}

/* A list that is emptied now and then holds more than ever: a smaller batch would do for a few rounds. */
static void test_a_list_with_more_than_ever(void **state)
{
	(void)state;
	ask(0.5, 24, 0.1, 23.9, 23.9);
	evidence_add_growth(&e, &(struct evidence_growth){.site = "eval.py:9", .per_step = 1e6, .live = gib(3)});
	expect(VERDICT_FULL, 0.4);
	assert_null(remedy(REMEDY_OVERFILLED));
	evidence_add_growth(&e, &(struct evidence_growth){.site = "eval.py:15", .live = gib(3), .overfilled = true});
	expect(VERDICT_FULL, 0.4);
	assert_int_equal(v.remedies[0].kind, REMEDY_OVERFILLED);
	assert_int_equal(v.remedies[0].bytes, gib(3));
}

/* A cache that is copied into a longer one, or a batch: a smaller batch would only help for some steps. Weights, their
 * gradients and state get more by themselves. */
static void test_what_gets_larger_comes_before_a_smaller_batch(void **state)
{
	(void)state;
	ask(0.25, 4, 0.1, 3.8, 3.8);
	e.categories[CATEGORY_ACTIVATIONS] = gib(1);
	evidence_add_growth(&e, &(struct evidence_growth){.category = CATEGORY_OPTIMIZER, .live = gib(3)});
	evidence_add_growth(&e, &(struct evidence_growth){.site = "chat.py:9", .per_step = 1e6, .live = gib(0.4)});
	expect(VERDICT_FULL, 0.15);
	assert_true(v.remedies[0].kind == REMEDY_BATCH && !remedy(REMEDY_GROWTH));  /* less than an eighth */
	evidence_add_growth(&e, &(struct evidence_growth){.site = "chat.py:7", .per_step = 1e6, .live = gib(1)});
	expect(VERDICT_FULL, 0.15);
	assert_true(v.remedies[0].kind == REMEDY_GROWTH && v.remedies[0].enough);
	assert_int_equal(v.remedies[0].bytes, gib(1.4));
	assert_string_equal(verdict_larger(&e)->site, "chat.py:7");
	e.growth[1].leak = true;
	expect(VERDICT_LEAK, 0.15);
	assert_null(remedy(REMEDY_GROWTH));
}

/* Whatever the request is for. */
static void test_a_cache_that_holds_most_comes_before_a_smaller_batch(void **state)
{
	(void)state;
	ask(0.25, 4, 0.1, 3.8, 3.8);
	e.category = CATEGORY_ACTIVATIONS;
	e.categories[CATEGORY_ACTIVATIONS] = gib(2);
	e.categories[CATEGORY_KV_CACHE] = gib(1.8);
	expect(VERDICT_FULL, 0.15);
	assert_int_equal(v.remedies[0].kind, REMEDY_BATCH);
	e.categories[CATEGORY_ACTIVATIONS] = gib(1);
	e.categories[CATEGORY_KV_CACHE] = gib(2.8);
	expect(VERDICT_FULL, 0.15);
	assert_true(v.remedies[0].kind == REMEDY_KV_CACHE && !remedy(REMEDY_BATCH));
}

/* More than a pass through the model could leave: outputs that a server keeps, data. */
static void test_very_many_blocks_of_a_line_come_before_a_smaller_batch(void **state)
{
	(void)state;
	ask(0.25, 4, 0.1, 3.8, 3.8);
	e.categories[CATEGORY_ACTIVATIONS] = gib(3);
	e.holders[0] = (struct evidence_holder){
		.site = "serve.py:7", .category = CATEGORY_ACTIVATIONS, .bytes = gib(3), .count = 1599};
	e.holders[1] = (struct evidence_holder){
		.site = "serve.py:3", .category = CATEGORY_WEIGHTS, .bytes = gib(0.5), .count = 100};
	e.holder_count = 2;
	expect(VERDICT_FULL, 0.15);
	assert_true(v.remedies[0].kind == REMEDY_BATCH && !remedy(REMEDY_FEWER));
	e.holders[0].count = 1600;
	expect(VERDICT_FULL, 0.15);
	assert_true(v.remedies[0].kind == REMEDY_FEWER && v.remedies[0].enough);
	assert_int_equal(v.remedies[0].bytes, gib(3));
	e.holders[0].bytes = gib(1.8);
	expect(VERDICT_FULL, 0.15);
	assert_null(remedy(REMEDY_FEWER));
}

/* Another process is why, where what is free could not be joined, and less of it than that has. */
static void test_another_process_beside_pieces(void **state)
{
	(void)state;
	ask(0.064, 4, 0.054, 1.7, 1.68);
	e.joins = true;
	e.other_processes = gib(2.25);
	e.free_own = gib(0.014);
	e.largest = gib(0.062);
	expect(VERDICT_OTHER_PROCESS, 0.002);
	assert_true(v.remedies[0].kind == REMEDY_OTHER_PROCESS && v.remedies[0].enough);
	e.other_processes = gib(0.01);
	expect(VERDICT_FULL, 0.002);
}

/* The best remedy is one that is enough. */
static void test_what_is_enough_comes_first(void **state)
{
	(void)state;
	ask(0.25, 4, 0.2, 3.8, 3.8);
	for (int i = 0; i < CATEGORY_COUNT; i++)
		e.categories[i] = 0;
	e.categories[CATEGORY_WEIGHTS] = gib(3.8);
	expect(VERDICT_FULL, 0.05);
	assert_int_equal(v.remedies[0].kind, REMEDY_OFFLOAD_WEIGHTS);
	assert_false(remedy(REMEDY_BATCH)->enough);
}

/* An early guess at a leak does not hide what other streams keep. */
static void test_a_leak_beside_much_that_others_keep(void **state)
{
	(void)state;
	ask(0.1, 4, 0, 4, 1.4);
	e.free_streams = gib(2.6);
	e.largest_streams = gib(0.5);
	e.growth[e.growth_count++] = (struct evidence_growth){.site = "train.py:9", .live = gib(0.12), .leak = true};
	expect(VERDICT_OTHER_STREAM, 0.1);
	assert_true(also(VERDICT_LEAK));
	e.growth[0].live = gib(1);
	expect(VERDICT_LEAK, 0.1);
}

/* An allocator that joins pieces needs new memory only for the rest. */
static void test_limit_of_an_allocator_that_joins(void **state)
{
	(void)state;
	ask(2, 80, 60, 20, 19);
	e.joins = true;
	e.limit = gib(20);
	e.free_own = gib(1);
	expect(VERDICT_LIMIT, 1);
}

/* Of what a limit or the device leaves, less than a granule cannot be had. */
static void test_what_is_left_is_less_than_a_granule(void **state)
{
	(void)state;
	ask(0, 80, 60, 20, 20);
	e.joins = true;
	e.requested = MIB(1);
	e.limit = gib(20) + MIB(2) - 1;
	expect(VERDICT_LIMIT, 1 / 1024.0);
	assert_int_equal(v.limit_room, 0);
	e.limit = EVIDENCE_UNKNOWN;
	e.device_total = gib(20.5);
	e.device_free = MIB(2) - 1;
	expect(VERDICT_FULL, 1 / 1024.0);
	assert_int_equal(v.device_room, 0);
	e.joins = false;
	verdict_find(&e, &v);
	assert_int_equal(v.device_room, MIB(2) - 1);
}

/* Of a limit that processes share what is held by all of them counts. */
static void test_shared_limit(void **state)
{
	(void)state;
	ask(2, 80, 60, 5, 5);
	e.limit = gib(10);
	verdict_find(&e, &v);
	assert_int_not_equal(v.kind, VERDICT_LIMIT);  /* the allocator alone is far from it */
	e.limit_held = gib(9);
	e.limit_others = gib(4);
	expect(VERDICT_LIMIT, 1);
	assert_int_equal(remedy(REMEDY_LIMIT)->bytes, gib(59));
	e.device_free = gib(0.5);  /* the device would not have done either */
	expect(VERDICT_OTHER_PROCESS, 1.5);
}

static void test_other_process(void **state)
{
	(void)state;
	ask(2, 24, 0.5, 10, 10);
	e.other_processes = gib(13);
	expect(VERDICT_OTHER_PROCESS, 1.5);
	e.other_processes = gib(1);
	expect(VERDICT_FULL, 1.5);
	e.other_processes = EVIDENCE_UNKNOWN;  /* then what neither the allocator has nor the device has left */
	expect(VERDICT_OTHER_PROCESS, 1.5);
	e.context = gib(13.5);
	expect(VERDICT_FULL, 1.5);
}

static void test_pool(void **state)
{
	(void)state;
	ask(2, 24, 0.5, 23, 19);
	e.free_pools = gib(4);
	e.largest_pools = gib(2);
	expect(VERDICT_POOL, 1.5);
	e.largest_pools = gib(1);
	e.free_own = 0;
	expect(VERDICT_POOL, 1.5);  /* makes up for it as a sum */
	e.free_pools = gib(1.4);
	expect(VERDICT_FULL, 1.5);
}

/* Where the request's own memory would do as a sum, only pieces of others help. */
static void test_pools_and_fragments(void **state)
{
	(void)state;
	ask(2, 24, 0.5, 23, 16);
	e.free_own = gib(3);
	e.largest_free = gib(1);
	e.free_pools = gib(4);
	e.largest_pools = gib(1);
	e.releasable_pools = gib(1);
	expect(VERDICT_FRAGMENTED, 1);
	e.releasable_pools = gib(1.5);
	expect(VERDICT_POOL, 1);
	e.releasable_pools = 0;
	e.largest_pools = gib(2);
	expect(VERDICT_POOL, 1);
}

static void test_what_is_too_little_to_matter_is_beside_the_verdict(void **state)
{
	(void)state;
	ask(2, 24, 1.9, 22, 21.7);
	e.free_own = gib(0.3);
	e.largest_free = gib(0.1);
	expect(VERDICT_FULL, 0.1);
	assert_true(also(VERDICT_FRAGMENTED));
	ask(2, 24, 0.5, 23.5, 21.5);
	e.largest_free = gib(1);
	expect(VERDICT_FRAGMENTED, 1);
	e.categories[CATEGORY_ACTIVATIONS] = gib(12);  /* programs that train have as much in pieces */
	expect(VERDICT_FULL, 1);
	assert_true(also(VERDICT_FRAGMENTED));
	ask(2, 24, 1.9, 22, 21.7);
	e.free_own = 0;
	e.free_streams = gib(0.3);
	e.largest_streams = gib(0.1);
	e.categories[CATEGORY_WEIGHTS] = gib(21);
	e.category = CATEGORY_WEIGHTS;
	expect(VERDICT_FULL, 0.1);
	assert_true(also(VERDICT_OTHER_STREAM));
	assert_true(v.remedies[0].kind == REMEDY_OFFLOAD_WEIGHTS && remedy(REMEDY_STREAMS)->enough);
	ask(2, 24, 1.9, 21.5, 21.5);
	e.other_processes = gib(0.6);
	expect(VERDICT_FULL, 0.1);
	assert_true(also(VERDICT_OTHER_PROCESS));
}

static void test_other_stream(void **state)
{
	(void)state;
	ask(2, 24, 0.5, 23, 19);
	e.free_own = gib(1);
	e.largest_free = gib(1);
	e.free_streams = gib(3);
	e.largest_streams = gib(2.5);
	expect(VERDICT_OTHER_STREAM, 0.5);
	e.largest_streams = gib(1.9);  /* several pieces: they are other streams' all the same */
	expect(VERDICT_OTHER_STREAM, 0.5);
	e.joins = true;
	expect(VERDICT_OTHER_STREAM, 0.5);
}

static void test_pending_memory_is_other_streams(void **state)
{
	(void)state;
	ask(2, 24, 0, 23, 19);
	e.joins = true;
	e.free_own = gib(1);
	e.pending = gib(1.5);
	expect(VERDICT_OTHER_STREAM, 1);
	e.pending = gib(0.5);
	expect(VERDICT_FULL, 1);
}

static void test_rounding(void **state)
{
	(void)state;
	ask(0.002, 24, 0.015, 23.9, 23.9);
	e.needed = MIB(20);
	expect(VERDICT_FULL, 20.0 / 1024 - 0.015);   /* the device is, but for less than a segment */
	assert_null(remedy(REMEDY_ROUNDING));
	ask(0.1, 24, 0.12, 23.8, 23.8);
	e.needed = MIB(200);
	expect(VERDICT_ROUNDING, 200.0 / 1024 - 0.12);
	assert_true(remedy(REMEDY_ROUNDING)->enough);
	ask(1, 24, 0.5, 23.5, 23.5);
	e.live_requested = gib(20);
	expect(VERDICT_ROUNDING, 0.5);
	e.live_requested = gib(23.2);  /* so little is in every program */
	expect(VERDICT_FULL, 0.5);
	/* A cache leaves some per cent behind its blocks; a small request does not make that more. */
	ask(0.03, 24, 0, 24, 24);
	e.live_requested = gib(22);
	expect(VERDICT_ROUNDING, 0.03);
	for (int i = 0; i < CATEGORY_COUNT; i++)
		e.categories[i] = 0;
	e.categories[CATEGORY_KV_CACHE] = gib(20);
	expect(VERDICT_FULL, 0.03);
	assert_null(remedy(REMEDY_ROUNDING));
	e.live_requested = gib(19);
	expect(VERDICT_ROUNDING, 0.03);
}

static void test_unknown(void **state)
{
	(void)state;
	evidence_init(&e, EVIDENCE_SNAPSHOT, "test");
	verdict_find(&e, &v);
	assert_int_equal(v.kind, VERDICT_UNKNOWN);
	ask(1, 24, 0.5, 23.5, 23.5);
	e.device_free = EVIDENCE_UNKNOWN;
	verdict_find(&e, &v);
	assert_int_equal(v.kind, VERDICT_UNKNOWN);
	assert_false(evidence_known(v.short_bytes));
}

static void test_the_first_that_applies_wins(void **state)
{
	(void)state;
	ask(2, 24, 0.5, 10, 7);
	e.other_processes = gib(13);
	e.free_pools = gib(2);
	e.growth[e.growth_count++] = (struct evidence_growth){.site = "train.py:9", .live = gib(6), .leak = true};
	verdict_find(&e, &v);
	assert_int_equal(v.kind, VERDICT_OTHER_PROCESS);
	assert_int_equal(v.also_count, 2);
	assert_true(also(VERDICT_LEAK) && also(VERDICT_POOL));
	assert_int_equal(v.remedies[0].kind, REMEDY_OTHER_PROCESS);
}

/* ---- what is said first ----------------------------------------------------------------------------- */

static int tenths(double steps)
{
	return (int)(10 * steps + 0.5);
}

static void add_leak(double grown, double per_step)
{
	e.growth[e.growth_count++] = (struct evidence_growth){
		.site = "train.py:7", .live = gib(grown), .leak = true, .per_step = per_step * (double)GIB(1)};
}

/* A full card with a neighbour, and a leak. */
static void leak_beside(double others, double grown, double per_step)
{
	ask(0.5, 140, 205 / 512.0, 139.1 - others, 139.1 - others);
	e.joins = true;
	e.other_processes = gib(others);
	add_leak(grown, per_step);
}

/* The neighbour's memory would last for two steps: the leak has to be fixed, whoever is why memory ran out now. */
static void test_a_leak_beside_a_neighbour(void **state)
{
	(void)state;
	leak_beside(10.5, 108, 4);
	expect(VERDICT_OTHER_PROCESS, 0.1);
	assert_true(v.choice && v.remedies[0].kind == REMEDY_LEAK && v.remedies[1].kind == REMEDY_OTHER_PROCESS);
	assert_int_equal(tenths(v.remedies[1].lasts), 26);
	assert_true(v.remedies[0].lasts >= VERDICT_LASTS);
}

/* Enough for more steps than there have been, and for very many. */
static void test_a_neighbour_with_far_more_than_a_leak(void **state)
{
	(void)state;
	leak_beside(100, 6, 0.01);
	expect(VERDICT_OTHER_PROCESS, 0.1);
	assert_true(v.choice && v.remedies[0].kind == REMEDY_OTHER_PROCESS && v.remedies[1].kind == REMEDY_LEAK);
	assert_int_equal(tenths(v.remedies[0].lasts), 99900);
	leak_beside(100, 6, 1);
	expect(VERDICT_OTHER_PROCESS, 0.1);
	assert_int_equal(v.remedies[0].kind, REMEDY_LEAK);
	leak_beside(10, 29, 0.001);
	expect(VERDICT_OTHER_PROCESS, 0.1);
	assert_int_equal(v.remedies[0].kind, REMEDY_LEAK);
}

static void test_a_leak_below_a_limit(void **state)
{
	(void)state;
	ask(2, 80, 60, 19, 19);
	e.limit = gib(20);
	add_leak(10, 2);
	expect(VERDICT_LIMIT, 1);
	assert_true(v.choice && v.remedies[0].kind == REMEDY_LEAK && v.remedies[1].kind == REMEDY_LIMIT);
	assert_int_equal(tenths(v.remedies[1].lasts), 290);
}

static void test_a_leak_beside_pools(void **state)
{
	(void)state;
	ask(2, 24, 0.5, 23, 19);
	e.free_pools = e.largest_pools = gib(4);
	add_leak(0.9, 0.5);
	e.free_own = gib(0);
	e.device_free = gib(1.2);
	expect(VERDICT_POOL, 0.8);
	assert_true(v.choice && v.remedies[0].kind == REMEDY_LEAK && v.remedies[1].kind == REMEDY_POOLS);
	assert_int_equal(tenths(v.remedies[1].lasts), 64);
}

/* One per cent of what the program itself has is less trouble than a neighbour, if that has less than the program. */
static void test_a_little_smaller_batch_beside_a_neighbour(void **state)
{
	(void)state;
	ask(0.3, 140, 0.2, 128, 128);
	e.other_processes = gib(10.5);
	e.categories[CATEGORY_ACTIVATIONS] = gib(121);
	e.category = CATEGORY_ACTIVATIONS;
	expect(VERDICT_OTHER_PROCESS, 0.1);
	assert_true(v.choice && v.remedies[0].kind == REMEDY_BATCH && v.remedies[1].kind == REMEDY_OTHER_PROCESS);
	ask(0.3, 140, 0.2, 28, 28);
	e.other_processes = gib(111);
	e.categories[CATEGORY_ACTIVATIONS] = gib(21);
	e.category = CATEGORY_ACTIVATIONS;
	expect(VERDICT_OTHER_PROCESS, 0.1);
	assert_true(v.choice && v.remedies[0].kind == REMEDY_OTHER_PROCESS && v.remedies[1].kind == REMEDY_BATCH);
	e.requested = gib(4);
	expect(VERDICT_OTHER_PROCESS, 3.8);
	assert_false(v.choice);
}

/* What gets larger with each step soon fills the pieces that are joined. */
static void test_what_gets_larger_beside_pieces(void **state)
{
	(void)state;
	scatter();
	e.free_own = e.cached = GIB(3);
	e.growth[0] = (struct evidence_growth){.site = "a.py:1", .live = GIB(4), .per_step = (double)MIB(100)};
	e.growth_count = 1;
	expect(VERDICT_FRAGMENTED, 1);
	assert_true(v.choice && v.remedies[0].kind == REMEDY_JOIN && v.remedies[1].kind == REMEDY_GROWTH);
	e.growth_count = 0;
	expect(VERDICT_FRAGMENTED, 1);
	assert_false(v.choice);
}

/* Without the neighbour the limit would forbid the same. */
static void test_a_neighbour_and_a_limit(void **state)
{
	(void)state;
	ask(2, 24, 0.5, 10, 10);
	e.other_processes = gib(13);
	e.limit = gib(11);
	expect(VERDICT_OTHER_PROCESS, 1.5);
	assert_false(remedy(REMEDY_OTHER_PROCESS)->enough);
	e.limit = gib(12);
	expect(VERDICT_OTHER_PROCESS, 1.5);
	assert_true(remedy(REMEDY_OTHER_PROCESS)->enough);
}

/* No judge may trip over extreme figures. */
static void test_figures_at_the_edge(void **state)
{
	(void)state;
	static const uint64_t edges[] = {0, 1, GIB(1), UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX};
	enum { EDGES = sizeof edges / sizeof edges[0] };
	uint32_t seed = 1;
	for (int round = 0; round < 20000; round++) {
		evidence_init(&e, EVIDENCE_HEAP, "test");
		e.failed = round % 7 != 0;
		e.joins = round % 2;
#define ANY(name, what) e.name = edges[((seed = seed * 1664525 + 1013904223) >> 16) % EDGES];
		EVIDENCE_FIGURES(ANY)
#undef ANY
		verdict_find(&e, &v);
		assert_true(v.kind <= VERDICT_UNKNOWN && v.also_count < VERDICT_COUNT);
		assert_true(v.remedy_count <= VERDICT_REMEDIES_MAX);
	}
}

/* ---- the report ------------------------------------------------------------------------------------- */

struct page {
	char text[65536];
	size_t used, lines;
};

static bool to_page(void *owner, const char *text, size_t size)
{
	struct page *page = owner;
	assert_true(size < sizeof page->text - page->used);
	memcpy(page->text + page->used, text, size);
	page->used += size;
	page->text[page->used] = '\0';
	for (size_t i = 0; i < size; i++)
		page->lines += text[i] == '\n';
	return true;
}

static bool refuse(void *owner, const char *text, size_t size)
{
	(void)text;
	(void)size;
	++*(int *)owner;
	return false;
}

/* The report of the evidence and its verdict as they are, until the next. */
static const struct page *print_report(void)
{
	static struct page page;
	page = (struct page){.used = 0};
	assert_true(oom_report_text(&e, &v, to_page, &page));
	return &page;
}

/* Evidence with everything in it. */
static void fill(void)
{
	static char long_site[600];
	memset(long_site, 'x', sizeof long_site - 1);
	long_site[sizeof long_site - 1] = '\0';
	ask(2, 24, 0.5, 23.4, 15);
	e.allocator = "PyTorch";
	e.device = 1;
	e.rank = 3;
	e.process = 4711;
	e.stream = 0x10;
	e.live_requested = gib(13);
	e.context = e.other_processes = e.pending = e.limit = e.limit_held = e.limit_others = e.peak_allocated = gib(1);
	e.free_own = e.free_streams = e.free_pools = e.free_partly = gib(1);
	e.site = "model.py:8 forward";
	for (int i = 0; i < CATEGORY_COUNT; i++)
		e.categories[i] = gib(1);
	for (int i = 0; i < EVIDENCE_HOLDERS_MAX; i++)
		e.holders[e.holder_count++] = (struct evidence_holder){.site = i ? "a.py:1 \"f\"" : long_site, .bytes = gib(1),
		                                                       .tag = "t", .peak = gib(2), .count = 3, .error = 9};
	for (int i = 0; i < EVIDENCE_SHARERS_MAX; i++)
		e.sharers[e.sharer_count++] = (struct evidence_sharer){.process = 9 + i, .name = i ? "a" : NULL, .bytes = 1};
	for (int i = 0; i < EVIDENCE_GROWTH_MAX; i++)
		e.growth[e.growth_count++] = (struct evidence_growth){.site = "a.py:1", .live = gib(4), .leak = true,
		                                                      .per_step = 1e6};
	for (int i = 0; i < EVIDENCE_RUNGS_MAX; i++)
		e.rungs[e.rung_count++] = (struct evidence_rung){.name = "moved free tiles", .tries = 2, .gave = gib(1)};
	e.forecast = (struct evidence_forecast){.steps = 10, .steps_low = 8, .steps_high = 13, .seconds = 600};
	verdict_find(&e, &v);
	for (v.remedy_count = 0; v.remedy_count < VERDICT_REMEDIES_MAX; v.remedy_count++)
		v.remedies[v.remedy_count] = (struct verdict_remedy){.kind = v.remedy_count, .bytes = gib(1), .enough = true};
}

static void test_the_report_is_short(void **state)
{
	(void)state;
	fill();
	const struct page *page = print_report();
	assert_in_range(page->lines, 1, OOM_REPORT_LINES - 1);
	assert_text(page->text, "rank 3, device 1, process 4711: 2.00 GiB asked for on stream 0x10");
	assert_text(page->text, "\nverdict: ");
	assert_text(page->text, "\nremedy: ");
	assert_text(page->text, "+- 9 bytes");
	assert_text(page->text, "in 10 steps (8 to 13), 10 minutes");
}

/* A program without a model may ask for a buffer. */
static void test_the_third_line_names_a_buffer(void **state)
{
	(void)state;
	ask(3, 24, 2, 22, 22);
	e.categories[CATEGORY_ACTIVATIONS] = 0;
	verdict_find(&e, &v);
	assert_text(print_report()->text, "\nremedy: a batch, sequence or buffer that needs this much less: 1.00 GiB");
}

/* The third line names both, and the leak's line, which the second does not. */
static void test_the_third_line_names_a_leak(void **state)
{
	(void)state;
	leak_beside(10.5, 108, 4);
	verdict_find(&e, &v);
	const struct page *page = print_report();
	assert_text(page->text, "\nremedy: free, bound or move to the host what grows by 4.00 GiB a step, most at "
	            "train.py:7 (.item(), .detach().cpu(), no_grad, hooks, caches): 108.00 GiB; or end the other "
	            "processes, or use another device (lasts 2 steps): 10.50 GiB\n");
	assert_text(page->text, "*      10.50 GiB  end the other processes, or use another device (lasts 2 steps)\n");
}

/* Rungs that gave nothing tell one thing together. */
static void test_rungs_in_vain_have_one_line(void **state)
{
	(void)state;
	ask(2, 24, 0.5, 23, 23);
	e.rungs[e.rung_count++] = (struct evidence_rung){.name = "drain: take in what has passed", .tries = 1};
	e.rungs[e.rung_count++] = (struct evidence_rung){.name = "slabs: free empty slabs", .tries = 2, .gave = MIB(1)};
	e.rungs[e.rung_count++] = (struct evidence_rung){.name = "trim: return what cannot move", .tries = 3};
	verdict_find(&e, &v);
	const struct page *page = print_report();
	assert_text(page->text, "what was tried\n"
	            "        1.00 MiB  slabs: free empty slabs (2 times)\n"
	            "         0 bytes  drain, trim (3 times)\n");
}

/* Sizes and shares, in any locale as in C's; rounded as printf does. */
static void test_the_report_has_decimal_points(void **state)
{
	(void)state;
	fill();
	e.allocated = gib(1);
	e.reserved = gib(1) + MIB(24);
	e.holders[0].bytes = gib(0.0625);
	e.pending = KIB(10) + 128;
	if (!comma_locale_begin())
		skip();
	const struct page *page = print_report();
	setlocale(LC_ALL, "C");
	assert_text(page->text, ": 2.00 GiB asked for");
	assert_text(page->text, "      allocated                                1.00 GiB\n");
	assert_text(page->text, "      awaits other streams' work              10.12 KiB\n");
	assert_text(page->text, "      fragmentation                                2.3 %\n");
	assert_text(page->text, "       64.00 MiB +- 9 bytes   6.2 %  ");
}

/* All that is reserved would be fragmented if nothing is allocated. */
static void test_fragmentation_is_of_what_is_allocated(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		fill();
		e.allocated = i ? gib(1) : 0;
		e.reserved = gib(2);
		const struct page *page = print_report();
		assert_int_equal(strstr(page->text, "fragmentation") != NULL, i);
	}
}

/* The device calls free what it has just refused. */
static void test_what_the_device_withholds_is_not_left(void **state)
{
	(void)state;
	ask(0.5, 24, 0.75, 23, 23);
	e.withheld = gib(0.375);
	expect(VERDICT_FULL, 0.125);
	const struct page *page = print_report();
	assert_text(page->text, "512.00 MiB asked for - 384.00 MiB that the device would give - 0 bytes free in the "
	            "allocator = 128.00 MiB short");
	assert_text(page->text, "left                                     768.00 MiB\n"
	            "      which cannot be had                    384.00 MiB\n");
	ask(23.5, 24, 23.75, 0, 0);
	e.context = gib(0.25);
	e.withheld = gib(0.5);
	expect(VERDICT_TOO_LARGE, 0.25);
	assert_text(print_report()->text, "an empty process could have 23.25 GiB of its 24.00 GiB");
}

/* Each verdict's first lines, from evidence of nothing but a failure. */
static void test_every_verdict_has_its_lines(void **state)
{
	(void)state;
	for (int kind = 0; kind < VERDICT_COUNT; kind++) {
		evidence_init(&e, EVIDENCE_TEXT, NULL);
		e.failed = true;
		verdict_find(&e, &v);
		v.kind = kind;
		if (kind == VERDICT_LEAK)
			e.growth[e.growth_count++] = (struct evidence_growth){.leak = true};
		const struct page *page = print_report();
		assert_text(page->text, verdict_name(kind));
		assert_text(page->text, "\nremedy: ");
	}
}

static void test_json(void **state)
{
	(void)state;
	static struct page page;
	page = (struct page){.used = 0};
	fill();
	v.remedies[0].enough = false;
	v.remedies[0].at_least = true;
	assert_true(oom_report_json(&e, &v, to_page, &page));
	json_t *root = json_loads(page.text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(root);
	assert_string_equal(json_string_value(json_object_get(root, "verdict")), verdict_name(v.kind));
	assert_int_equal(json_integer_value(json_object_get(root, "requested_bytes")), gib(2));
	assert_int_equal(json_integer_value(json_object_get(root, "short_bytes")), v.short_bytes);
	assert_int_equal(json_array_size(json_object_get(root, "also")), v.also_count);
	assert_int_equal(json_array_size(json_object_get(root, "remedies")), v.remedy_count);
	json_t *holders = json_object_get(root, "holders");
	assert_int_equal(json_array_size(holders), EVIDENCE_HOLDERS_MAX);
	assert_string_equal(json_string_value(json_object_get(json_array_get(holders, 1), "site")), "a.py:1 \"f\"");
	json_t *figures = json_object_get(root, "figures");
	assert_int_equal(json_integer_value(json_object_get(figures, "reserved")), e.reserved);
	assert_null(json_object_get(figures, "largest"));  /* unknown */
	json_t *remedies = json_object_get(root, "remedies");
	assert_true(json_is_true(json_object_get(json_array_get(remedies, 0), "at_least")));
	assert_null(json_object_get(json_array_get(remedies, 1), "at_least"));
	json_decref(root);
}

static void test_a_sink_that_refuses_is_left_alone(void **state)
{
	(void)state;
	int calls = 0;
	fill();
	assert_false(oom_report_text(&e, &v, refuse, &calls));
	assert_int_equal(calls, 1);
	assert_false(oom_report_json(&e, &v, refuse, &calls));
	assert_int_equal(calls, 2);
}

static void test_texts_are_kept_while_there_is_room(void **state)
{
	(void)state;
	char text[1000];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	evidence_init(&e, EVIDENCE_TEXT, "test");
	for (int i = 0; i < EVIDENCE_TEXTS_BYTES / (int)sizeof text; i++)
		assert_string_equal(evidence_keep(&e, text), text);
	assert_string_equal(evidence_keep(&e, text), "");
	assert_string_equal(evidence_keep(&e, "short"), "short");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_full_card_is_not_fragmented),
		cmocka_unit_test(test_the_popular_picture_is_full),
		cmocka_unit_test(test_the_picture_with_less_is_fragmented),
		cmocka_unit_test(test_the_first_step_wants_optimizer_state),
		cmocka_unit_test(test_growth_that_holds_what_is_missing_is_a_leak),
		cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_what_the_request_is_for_comes_first),
		cmocka_unit_test(test_no_remedy_for_what_is_counted_already),
		cmocka_unit_test(test_nearly_all_in_one_piece_is_full),
		cmocka_unit_test(test_a_smaller_batch_makes_up_for_pieces),
		cmocka_unit_test(test_what_has_to_be_given_back_beside_pieces),
		cmocka_unit_test(test_what_grows_beside_pieces),
		cmocka_unit_test(test_a_limit_beside_pieces),
		cmocka_unit_test(test_rounding_beside_pieces),
		cmocka_unit_test(test_what_a_smaller_batch_gives),
		cmocka_unit_test(test_a_list_that_is_put_together),
		cmocka_unit_test(test_growth_of_one_line),
		cmocka_unit_test(test_a_leak_before_the_failure),
		cmocka_unit_test(test_a_list_with_more_than_ever),
		cmocka_unit_test(test_what_gets_larger_comes_before_a_smaller_batch),
		cmocka_unit_test(test_a_cache_that_holds_most_comes_before_a_smaller_batch),
		cmocka_unit_test(test_very_many_blocks_of_a_line_come_before_a_smaller_batch),
		cmocka_unit_test(test_another_process_beside_pieces),
		cmocka_unit_test(test_what_is_enough_comes_first),
		cmocka_unit_test(test_a_leak_beside_much_that_others_keep),
		cmocka_unit_test(test_limit_of_an_allocator_that_joins),
		cmocka_unit_test(test_what_is_left_is_less_than_a_granule),
		cmocka_unit_test(test_shared_limit),
		cmocka_unit_test(test_other_process),
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_pools_and_fragments),
		cmocka_unit_test(test_what_is_too_little_to_matter_is_beside_the_verdict),
		cmocka_unit_test(test_other_stream),
		cmocka_unit_test(test_pending_memory_is_other_streams),
		cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_what_the_device_withholds_is_not_left),
		cmocka_unit_test(test_the_first_that_applies_wins),
		cmocka_unit_test(test_a_leak_beside_a_neighbour),
		cmocka_unit_test(test_a_neighbour_with_far_more_than_a_leak),
		cmocka_unit_test(test_a_leak_below_a_limit),
		cmocka_unit_test(test_a_leak_beside_pools),
		cmocka_unit_test(test_a_little_smaller_batch_beside_a_neighbour),
		cmocka_unit_test(test_what_gets_larger_beside_pieces),
		cmocka_unit_test(test_a_neighbour_and_a_limit),
		cmocka_unit_test(test_figures_at_the_edge),
		cmocka_unit_test(test_the_report_is_short),
		cmocka_unit_test(test_the_third_line_names_a_buffer),
		cmocka_unit_test(test_the_third_line_names_a_leak),
		cmocka_unit_test(test_rungs_in_vain_have_one_line),
		cmocka_unit_test(test_the_report_has_decimal_points),
		cmocka_unit_test(test_fragmentation_is_of_what_is_allocated),
		cmocka_unit_test(test_every_verdict_has_its_lines),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_a_sink_that_refuses_is_left_alone),
		cmocka_unit_test(test_texts_are_kept_while_there_is_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
