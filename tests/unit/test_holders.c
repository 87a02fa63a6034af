/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds memory: counts by call site, tag and category, exact for blocks, an unbiased sample for slots.
 */
#include "heap/ledger.h"
#include "prng.h"
#include "rig.h"

enum { MOST = 64, SLOTS_MOST = 20000 };

struct list {
	trz_holder of[MOST];
	size_t count;
};

static struct list read_list(trz_heap *heap, trz_holder_kind by)
{
	struct list l = {.count = 0};
	assert_ok(trz_holders(heap, by, l.of, MOST, &l.count));
	assert_in_range(l.count, 0, MOST);
	for (size_t i = 1; i < l.count; i++)
		assert_true(l.of[i - 1].bytes >= l.of[i].bytes);
	return l;
}

/* The holder with this tag, or category; all zero: there is none. */
static trz_holder find(trz_heap *heap, trz_holder_kind by, const char *name)
{
	struct list l = read_list(heap, by);
	for (size_t i = 0; i < l.count; i++)
		if (strcmp(by == TRZ_BY_CATEGORY ? l.of[i].category_name : l.of[i].tag, name) == 0)
			return l.of[i];
	return (trz_holder){.tag = "", .category_name = ""};
}

/* Two places in the program. */
static NOINLINE void *alloc_here(struct rig *r, size_t size)
{
	void *p;
	assert_ok(trz_alloc(r->heap, size, 0, NULL, &p));
	return p;
}

static NOINLINE void *alloc_there(struct rig *r, size_t size)
{
	void *p;
	assert_ok(trz_alloc(r->heap, size, 0, NULL, &p));
	return p;
}

static void test_blocks_are_counted_one_by_one(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *a = alloc_here(&r, MIB(10)), *b = alloc_there(&r, MIB(3)), *c = alloc_here(&r, KIB(33));
	struct list l = read_list(r.heap, TRZ_BY_SITE);
	assert_int_equal(l.count, 2);
	assert_int_equal(l.of[0].bytes, MIB(10) + KIB(33));
	assert_int_equal(l.of[0].count, 2);
	assert_int_equal(l.of[0].error, 0);
	assert_int_equal(l.of[1].bytes, MIB(3));
	assert_int_not_equal(l.of[0].stack, l.of[1].stack);
	unsigned site = l.of[0].site;
	rig_free(&r, a);
	l = read_list(r.heap, TRZ_BY_SITE);
	assert_int_equal(l.of[1].site, site);
	assert_int_equal(l.of[1].bytes, KIB(33));
	assert_int_equal(l.of[1].peak, MIB(10) + KIB(33));
	rig_free(&r, b);
	rig_free(&r, c);
	assert_ok(trz_reset_peaks(r.heap));
	assert_int_equal(read_list(r.heap, TRZ_BY_SITE).count, 0);
	rig_close(&r);
}

static void test_a_site_is_the_place_of_the_call(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = alloc_here(&r, MIB(10));
	trz_frame frame;
	size_t count;
	assert_ok(trz_site_frames(r.heap, read_list(r.heap, TRZ_BY_SITE).of[0].stack, &frame, 1, &count));
	assert_int_equal(count, 1);
	assert_non_null(strstr(frame.filename, "test_holders"));
	assert_ok(trz_site_frames(r.heap, 0, &frame, 1, &count));
	assert_int_equal(count, 0);
	rig_free(&r, p);
	rig_close(&r);
}

/* The site is the caller that the library names, or the place of the call itself. */
static void test_a_library_names_its_caller(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	static const char callers[2];
	void *p[4];
	for (int i = 0; i < 4; i++)
		assert_ok(trz_alloc_from(r.heap, MIB(1 + i / 2), 0, NULL, i < 3 ? &callers[i % 2] : NULL, &p[i]));
	struct list l = read_list(r.heap, TRZ_BY_SITE);
	assert_int_equal(l.count, 3);
	assert_int_equal(l.of[0].bytes, MIB(3));
	assert_int_equal(l.of[0].stack & ~SITES_CALLER, (uintptr_t)&callers[0]);
	assert_int_equal(l.of[1].bytes, MIB(2));
	assert_int_not_equal(l.of[1].stack & ~SITES_CALLER, (uintptr_t)&callers[1]);
	assert_int_equal(l.of[2].bytes, MIB(1));
	assert_int_equal(l.of[2].stack & ~SITES_CALLER, (uintptr_t)&callers[1]);
	for (int i = 0; i < 4; i++)
		rig_free(&r, p[i]);
	rig_close(&r);
}

static void test_native_stacks_begin_at_the_caller(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "native_frames:on");
	const size_t sizes[] = {MIB(100), MIB(10), MIB(10)};  /* the heap grows, and grows not */
	void *p[3];
	for (volatile int i = 0; i < 3; i++)  /* volatile: not unrolled, so one call */
		p[i] = alloc_here(&r, sizes[i]);
	struct list l = read_list(r.heap, TRZ_BY_SITE);
	trz_frame frames[32];
	size_t count;
	assert_int_equal(l.count, 1);
	assert_int_equal(l.of[0].bytes, MIB(120));
	assert_ok(trz_site_frames(r.heap, l.of[0].stack, frames, 32, &count));
	assert_in_range(count, 3, 32);
	assert_non_null(strstr(frames[0].filename, "test_holders"));
	for (int i = 0; i < 3; i++)
		rig_free(&r, p[i]);
	rig_close(&r);
}

static void test_tags_and_categories(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_set_tag("kv");
	void *a = alloc_here(&r, MIB(10));
	assert_ok(trz_set_category(TRZ_CATEGORY_WEIGHTS));
	void *b = alloc_here(&r, MIB(5));
	trz_set_tag(NULL);
	void *c = alloc_here(&r, MIB(2));
	assert_ok(trz_set_category(TRZ_CATEGORY_NONE));
	void *d = alloc_here(&r, MIB(1));
	assert_int_equal(find(r.heap, TRZ_BY_TAG, "kv").bytes, MIB(15));
	assert_int_equal(find(r.heap, TRZ_BY_TAG, "kv").count, 2);
	assert_int_equal(find(r.heap, TRZ_BY_CATEGORY, "weights").bytes, MIB(7));
	assert_int_equal(read_list(r.heap, TRZ_BY_SITE).count, 4);
	rig_free(&r, b);
	assert_int_equal(find(r.heap, TRZ_BY_TAG, "kv").bytes, MIB(10));
	assert_int_equal(find(r.heap, TRZ_BY_TAG, "kv").peak, MIB(15));
	assert_ok(trz_categorize(r.heap, a, TRZ_CATEGORY_OPTIMIZER));
	assert_int_equal(find(r.heap, TRZ_BY_CATEGORY, "optimizer").bytes, MIB(10));
	assert_int_equal(find(r.heap, TRZ_BY_TAG, "kv").bytes, MIB(10));
	assert_int_equal(find(r.heap, TRZ_BY_CATEGORY, "weights").bytes, MIB(2));
	rig_check(&r);
	rig_free(&r, a);
	rig_free(&r, c);
	rig_free(&r, d);
	assert_int_equal(find(r.heap, TRZ_BY_CATEGORY, "optimizer").bytes, 0);
	rig_close(&r);
}

static void test_a_tag_is_looked_up_in_each_heap(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_heap *second = rig_second_heap(&r);
	void *a, *b;
	trz_set_tag("other");
	trz_set_tag("one");
	assert_ok(trz_alloc(second, MIB(2), 0, NULL, &a));
	trz_set_tag("two");
	assert_ok(trz_alloc(r.heap, MIB(4), 0, NULL, &b));
	trz_set_tag(NULL);
	assert_int_equal(find(second, TRZ_BY_TAG, "one").bytes, MIB(2));
	assert_int_equal(find(r.heap, TRZ_BY_TAG, "two").bytes, MIB(4));
	assert_int_equal(find(r.heap, TRZ_BY_TAG, "one").bytes, 0);
	assert_ok(trz_free(second, a));
	rig_free(&r, b);
	assert_ok(trz_close(second));
	rig_close(&r);
}

static void test_growing_counts_as_asked_for(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = alloc_here(&r, MIB(10));
	assert_ok(trz_grow(r.heap, p, MIB(12)));
	assert_int_equal(read_list(r.heap, TRZ_BY_SITE).of[0].bytes, MIB(12));
	rig_check(&r);
	rig_free(&r, p);
	assert_int_equal(read_list(r.heap, TRZ_BY_SITE).of[0].bytes, 0);
	rig_close(&r);
}

/* What a use on another stream keeps pending is not held by anybody. */
static void test_pending_memory_is_nobodys(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream other = rig_stream(&r);
	void *p = alloc_here(&r, MIB(10));
	assert_ok(trz_record_stream(r.heap, p, other));
	rig_free(&r, p);
	assert_int_equal(read_list(r.heap, TRZ_BY_SITE).of[0].bytes, 0);
	rig_check(&r);
	rig_sync(&r);
	assert_ok(trz_poll(r.heap));
	rig_close(&r);
}

static void test_off(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "sites:off");
	void *p = alloc_here(&r, MIB(10)), *q = alloc_here(&r, 512);
	assert_int_equal(read_list(r.heap, TRZ_BY_SITE).count, 0);
	rig_free(&r, p);
	rig_free(&r, q);
	rig_close(&r);
}

static void test_wrong_arguments(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	size_t count;
	void *p = rig_alloc(&r, MIB(1), NULL);
	assert_status(trz_holders(NULL, TRZ_BY_SITE, NULL, 0, &count), TRZ_ERROR_INVALID_ARGUMENT);
	assert_error(trz_holders(r.heap, (trz_holder_kind)0, NULL, 0, &count), TRZ_ERROR_INVALID_ARGUMENT, "TRZ_BY_TAG");
	assert_error(trz_holders(r.heap, (trz_holder_kind)4, NULL, 0, &count), TRZ_ERROR_INVALID_ARGUMENT, "TRZ_BY_TAG");
	assert_status(trz_site_frames(r.heap, 1, NULL, 0, NULL), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_set_category((trz_category)8), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_categorize(r.heap, p, (trz_category)8), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_categorize(r.heap, (char *)p + 512, TRZ_CATEGORY_OTHER), TRZ_ERROR_UNKNOWN_POINTER);
	assert_status(trz_set_site_callback(NULL, NULL, NULL, NULL), TRZ_ERROR_INVALID_ARGUMENT);
	assert_ok(trz_categorize(r.heap, NULL, TRZ_CATEGORY_OTHER));
	rig_free(&r, p);
	assert_status(trz_categorize(r.heap, p, TRZ_CATEGORY_OTHER), TRZ_ERROR_UNKNOWN_POINTER);
	rig_close(&r);
}

/* ---- callbacks ---- */

struct program {
	struct rig *rig;
	uint64_t stack;
	unsigned asked;
	bool allocates;
};

static uint64_t name_stack(void *user)
{
	struct program *p = user;
	p->asked++;
#ifndef NDEBUG
	assert_false(spinlock_is_mine(&p->rig->heap->lock));
#endif
	if (p->allocates)
		rig_free(p->rig, rig_alloc(p->rig, MIB(2), NULL));
	return p->stack;
}

static size_t tell_stack(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	(void)user;
	if (capacity)
		frames[0] = (trz_frame){.filename = "train.py", .name = id == 7 ? "seven" : "eight", .line = (unsigned)id};
	return capacity > 0;
}

static void test_a_callback_numbers_the_sites(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	struct program program = {&r, 7, 0, true};
	trz_frame frame;
	size_t count;
	assert_ok(trz_set_site_callback(r.heap, name_stack, tell_stack, &program));
	void *p = alloc_here(&r, MIB(10)), *q = alloc_there(&r, MIB(20));
	assert_int_equal(program.asked, 2);
	struct list l = read_list(r.heap, TRZ_BY_SITE);
	assert_int_equal(l.of[0].stack, 7);
	assert_int_equal(l.of[0].bytes, MIB(30));
	assert_ok(trz_site_frames(r.heap, 7, &frame, 1, &count));
	assert_string_equal(frame.name, "seven");
	assert_ok(trz_set_site_callback(r.heap, NULL, NULL, NULL));
	l = read_list(r.heap, TRZ_BY_SITE);
	assert_int_equal(l.of[0].bytes, MIB(30));
	assert_ok(trz_site_frames(r.heap, l.of[0].stack, &frame, 1, &count));
	assert_non_null(strstr(frame.name, "numbered anew"));
	rig_free(&r, p);
	rig_free(&r, q);
	rig_close(&r);
}

/* Only slots of the sample ask for a stack. */
static void test_the_sample_asks_before_any_lock(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	struct program program = {&r, 7, 0, false};
	static void *held[SLOTS_MOST];
	assert_ok(trz_set_site_callback(r.heap, name_stack, tell_stack, &program));
	for (int i = 0; i < SLOTS_MOST; i++)
		held[i] = rig_alloc(&r, 512, NULL);
	struct list l = read_list(r.heap, TRZ_BY_SITE);
	assert_int_equal(l.count, 1);
	assert_in_range(program.asked, 1, 30);  /* 9.8 on the average */
	assert_in_range(l.of[0].bytes, program.asked * MIB(1), program.asked * KIB(1025));
	for (int i = 0; i < SLOTS_MOST; i++)
		rig_free(&r, held[i]);
	rig_close(&r);
}

/* ---- the sample ---- */

/* One run: slots of many sizes, some of them freed again. *held gets their bytes. */
static trz_holder run(unsigned long seed, uint64_t *bytes)
{
	struct rig r = rig_open(GIB(2), NULL);
	static void *held[SLOTS_MOST];
	static uint64_t sizes[SLOTS_MOST];
	uint64_t random = seed;
	r.heap->sites.random = prng_mix(seed);
	*bytes = 0;
	for (int i = 0; i < SLOTS_MOST; i++) {
		sizes[i] = 1 + prng_below(&random, KIB(32));
		held[i] = rig_alloc(&r, sizes[i], NULL);
		int gone = (int)prng_below(&random, (uint64_t)i + 1);
		if (i % 3 == 0 && held[gone]) {
			rig_free(&r, held[gone]);
			held[gone] = NULL;
			sizes[gone] = 0;
		}
	}
	for (int i = 0; i < SLOTS_MOST; i++)
		*bytes += sizes[i];
	struct list l = read_list(r.heap, TRZ_BY_SITE);
	rig_check(&r);
	assert_int_equal(l.count, 1);
	for (int i = 0; i < SLOTS_MOST; i++)
		if (held[i])
			rig_free(&r, held[i]);
	assert_int_equal(read_list(r.heap, TRZ_BY_SITE).of[0].bytes, 0);
	rig_close(&r);
	return l.of[0];
}

/* Over many runs the estimates' mean is what is held, their spread what `error` says. */
static void test_the_sample_is_unbiased(void **state)
{
	(void)state;
	enum { RUNS = 60 };
	double off = 0, square = 0, said = 0;
	for (unsigned long seed = 1; seed <= RUNS; seed++) {
		uint64_t bytes;
		trz_holder h = run(seed, &bytes);
		double error = (double)h.bytes - (double)bytes;
		off += error;
		square += error * error;
		said += (double)h.error * (double)h.error;
	}
	assert_true(said > 0 && off * off < 9 * said);
	assert_true(square / said > 0.5 && square / said < 2);
}

static void test_a_sampled_slot_that_grows(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	static void *held[SLOTS_MOST];
	for (int i = 0; i < SLOTS_MOST; i++)
		held[i] = rig_alloc(&r, 300, NULL);
	uint64_t before = read_list(r.heap, TRZ_BY_SITE).of[0].bytes;
	assert_true(before > 0);
	for (int i = 0; i < SLOTS_MOST; i++)
		assert_ok(trz_grow(r.heap, held[i], 512));
	assert_true(read_list(r.heap, TRZ_BY_SITE).of[0].bytes >= before);
	rig_check(&r);
	for (int i = 0; i < SLOTS_MOST; i++)
		rig_free(&r, held[i]);
	assert_int_equal(read_list(r.heap, TRZ_BY_SITE).of[0].bytes, 0);
	rig_close(&r);
}

/* ---- the table ---- */

/* More sites than fit: the later ones share one for each tag. */
static void test_a_full_table_shares(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(16), NULL);
	struct program program = {&r, 0, 0, false};
	static void *held[SITES_MAX + 100];
	static trz_holder list[SITES_MAX];
	size_t count;
	assert_ok(trz_set_site_callback(r.heap, name_stack, tell_stack, &program));
	for (int i = 0; i < SITES_MAX + 100; i++) {
		program.stack = (uint64_t)i + 1;
		trz_set_tag(i % 2 ? "odd" : NULL);
		held[i] = rig_alloc(&r, MIB(1), NULL);
	}
	trz_set_tag(NULL);
	assert_ok(trz_holders(r.heap, TRZ_BY_SITE, list, SITES_MAX, &count));
	assert_int_equal(count, SITES_MAX - SITES_SPARE + 2);
	assert_true(list[0].stack == SITES_OTHER && list[1].stack == SITES_OTHER);
	assert_int_equal(list[0].bytes + list[1].bytes, MIB(100 + SITES_SPARE));
	assert_int_equal(find(r.heap, TRZ_BY_TAG, "odd").bytes, MIB(SITES_MAX / 2 + 50));
	rig_check(&r);
	for (int i = 0; i < SITES_MAX + 100; i++)
		rig_free(&r, held[i]);
	rig_close(&r);
}

static void test_the_largest_alone(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	struct program program = {&r, 0, 0, false};
	void *held[40];
	trz_holder two[2];
	size_t count;
	assert_ok(trz_set_site_callback(r.heap, name_stack, tell_stack, &program));
	for (unsigned i = 0; i < LENGTH(held); i++) {
		program.stack = i + 1;
		held[i] = rig_alloc(&r, MIB(1 + i * 7 % 40), NULL);
	}
	assert_ok(trz_holders(r.heap, TRZ_BY_SITE, two, 2, &count));
	assert_int_equal(count, LENGTH(held));
	assert_int_equal(two[0].bytes, MIB(40));
	assert_int_equal(two[1].bytes, MIB(39));
	for (unsigned i = 0; i < LENGTH(held); i++)
		rig_free(&r, held[i]);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_blocks_are_counted_one_by_one),
	    cmocka_unit_test(test_a_site_is_the_place_of_the_call),
	    cmocka_unit_test(test_a_library_names_its_caller),
	    cmocka_unit_test(test_native_stacks_begin_at_the_caller),
	    cmocka_unit_test(test_tags_and_categories),
	    cmocka_unit_test(test_a_tag_is_looked_up_in_each_heap),
	    cmocka_unit_test(test_growing_counts_as_asked_for),
	    cmocka_unit_test(test_pending_memory_is_nobodys),
	    cmocka_unit_test(test_off),
	    cmocka_unit_test(test_wrong_arguments),
	    cmocka_unit_test(test_a_callback_numbers_the_sites),
	    cmocka_unit_test(test_the_sample_asks_before_any_lock),
	    cmocka_unit_test(test_the_sample_is_unbiased),
	    cmocka_unit_test(test_a_sampled_slot_that_grows),
	    cmocka_unit_test(test_a_full_table_shares),
	    cmocka_unit_test(test_the_largest_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
