/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory of a heap: zeroed, aligned, counted to the byte, refused without harm, and all freed at the end.
 */
#include "bits.h"
#include "ground/meta.h"
#include "testing.h"

/* A sanitizer's malloc would end the program where libc's gives NULL. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void test_zeroed_and_aligned(void **state)
{
	(void)state;
	struct meta m = {0};
	assert_true(meta_open(&m));
	for (size_t size = 1; size < 100000; size = size * 3 + 1)
		for (int round = 0; round < 2; round++) {
			unsigned char *p = meta_alloc(&m, size);
			assert_non_null(p);
			assert_int_equal((uintptr_t)p % 64, 0);
			for (size_t i = 0; i < size; i++)
				assert_int_equal(p[i], 0);
			memset(p, 0xff, size);
			meta_free(&m, p);
		}
	meta_close(&m);
}

static void test_bytes_are_counted(void **state)
{
	(void)state;
	struct meta m = {0};
	assert_true(meta_open(&m));
	uint64_t before = atomic_load(&m.bytes);
	void *a = meta_alloc(&m, 1000), *b = meta_alloc(&m, 5000);
	assert_true(atomic_load(&m.bytes) >= before + 6000);
	assert_true(atomic_load(&m.bytes) < before + 6000 + 512);
	meta_free(&m, a);
	meta_free(&m, NULL);
	meta_free(&m, b);
	assert_int_equal(atomic_load(&m.bytes), before);
	meta_close(&m);
}

static void test_freed_in_any_order(void **state)
{
	(void)state;
	struct meta m = {0};
	void *p[32];
	assert_true(meta_open(&m));
	for (unsigned i = 0; i < 32; i++)
		p[i] = meta_alloc(&m, 100 + i);
	for (unsigned i = 0; i < 31; i++)
		meta_free(&m, p[i * 7 % 32]);
	meta_close(&m);  /* the last one goes here: the leak check of ASan sees to it */
}

/* More than one range of the host's addresses holds. */
static void test_large_amounts(void **state)
{
	(void)state;
	enum { COUNT = 40, SIZE = 10 << 20 };
	static unsigned char *p[COUNT];
	struct meta m = {0};
	assert_true(meta_open(&m));
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < COUNT; i++) {
			p[i] = meta_alloc(&m, SIZE);
			assert_non_null(p[i]);
			assert_int_equal(p[i][0] | p[i][SIZE / 2] | p[i][SIZE - 1], 0);
			p[i][0] = p[i][SIZE / 2] = p[i][SIZE - 1] = (unsigned char)(i + 1);
		}
		for (int i = 0; i < COUNT; i++)
			assert_true(p[i][0] == i + 1 && p[i][SIZE / 2] == i + 1 && p[i][SIZE - 1] == i + 1);
		for (int i = 0; i < COUNT; i++)
			meta_free(&m, p[i]);
	}
	meta_close(&m);
}

static void test_refusal(void **state)
{
	(void)state;
	struct meta m = {0};
	assert_true(meta_open(&m));
	uint64_t before = atomic_load(&m.bytes);
	assert_null(meta_alloc(&m, (size_t)1 << 60));
	assert_int_equal(atomic_load(&m.bytes), before);
	struct node_pool huge;
	node_pool_init(&huge, &m, (size_t)1 << 60);
	assert_false(node_pool_reserve(&huge, 1));
	assert_int_equal(huge.available, 0);
	assert_non_null(meta_alloc(&m, 64));
	meta_close(&m);
}

static void test_nodes_are_disjoint_and_used_again(void **state)
{
	(void)state;
	enum { COUNT = 5000, SIZE = 40 };
	static unsigned char *nodes[COUNT];
	struct meta m = {0};
	struct node_pool pool;
	assert_true(meta_open(&m));
	node_pool_init(&pool, &m, SIZE);
	assert_true(node_pool_reserve(&pool, COUNT));
	for (int i = 0; i < COUNT; i++) {
		nodes[i] = node_pool_take(&pool);
		memset(nodes[i], i, SIZE);
	}
	for (int i = 0; i < COUNT; i++)
		for (int j = 0; j < SIZE; j++)
			assert_int_equal(nodes[i][j], (unsigned char)i);
	uint64_t bytes = atomic_load(&m.bytes);
	for (int i = 0; i < COUNT; i++)
		node_pool_give(&pool, nodes[i]);
	assert_true(node_pool_reserve(&pool, COUNT));
	assert_int_equal(atomic_load(&m.bytes), bytes);
	meta_close(&m);
}

static void test_reserve_makes_takes_succeed(void **state)
{
	(void)state;
	struct meta m = {0};
	struct node_pool pool;
	assert_true(meta_open(&m));
	node_pool_init(&pool, &m, 128);
	for (size_t n = 1; n < 3000; n = n * 2 + 1) {
		assert_true(node_pool_reserve(&pool, n));
		assert_true(pool.available >= n);
		for (size_t i = 0; i < n; i++)
			assert_non_null(node_pool_take(&pool));
	}
	meta_close(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zeroed_and_aligned),
		cmocka_unit_test(test_bytes_are_counted),
		cmocka_unit_test(test_freed_in_any_order),
		cmocka_unit_test(test_large_amounts),
		cmocka_unit_test(test_refusal),
		cmocka_unit_test(test_nodes_are_disjoint_and_used_again),
		cmocka_unit_test(test_reserve_makes_takes_succeed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
