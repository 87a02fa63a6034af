/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocations in tiles of their own: their properties, how free ones are kept and reused, and which go when memory is
 * short.
 */
#include "accounts.h"
#include "rig.h"

static trz_status alloc_with(struct rig *r, size_t size, unsigned flags, trz_stream stream, void **out)
{
	const trz_alloc_params params = {.struct_size = sizeof params, .size = size, .stream = stream, .flags = flags};
	return trz_alloc_with(r->heap, &params, out);
}

static void *dedicated(struct rig *r, size_t size, unsigned flags, trz_stream stream)
{
	void *p = NULL;
	assert_ok(alloc_with(r, size, flags, stream, &p));
	assert_non_null(p);
	assert_int_equal((uintptr_t)p % MIB(2), 0);
	return p;
}

static trz_pointer_info query(struct rig *r, const void *p)
{
	trz_pointer_info info;
	assert_ok(trz_query(r->heap, p, &info));
	return info;
}

static void test_one_allocation_is_one_tile(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	rig_alloc(&r, MIB(5), NULL);
	uint64_t created = sim_calls(r.s, SIM_SLOT_create);
	void *p = dedicated(&r, MIB(100) + 1, TRZ_ALLOC_CONTIGUOUS, NULL);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_create), created + 1);
	trz_pointer_info info = query(&r, p);
	assert_ptr_equal(info.base, p);
	assert_int_equal(info.size, MIB(102));
	assert_int_equal(info.requested, MIB(100) + 1);
	void *q = dedicated(&r, 300, TRZ_ALLOC_CONTIGUOUS, NULL);
	assert_int_equal(query(&r, q).size, MIB(2));
	assert_int_equal(rig_stat(&r, "dedicated_bytes.current"), MIB(104));
	assert_int_equal(rig_stat(&r, "path_dedicated"), 2);
	struct accounts a = accounts_read(r.heap);
	assert_true(accounts_balance(&a));
	rig_check(&r);
	rig_close(&r);
}

/* Each stream and sort has addresses of its own, and none has more than a window of packed memory. */
static void test_addresses_are_reserved_as_for_packed_memory(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(80), NULL);
	for (int i = 1; i <= 4; i++) {
		dedicated(&r, MIB(20), TRZ_ALLOC_CONTIGUOUS, rig_stream(&r));
		assert_int_equal(rig_stat(&r, "address_bytes.current"), GIB(32) * i);
	}
	dedicated(&r, GIB(40), TRZ_ALLOC_SHARE_FD, NULL);
	assert_int_equal(rig_stat(&r, "address_bytes.current"), GIB(32) * 4 + GIB(40));
	rig_check(&r);
	rig_close(&r);
}

/* Neither are free tiles given to others, nor do they join, nor does packed memory go here. */
static void test_the_sorts_never_mix(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "slack_per_mille:0");
	void *p = dedicated(&r, MIB(20), TRZ_ALLOC_CONTIGUOUS, NULL);
	void *q = dedicated(&r, MIB(20), TRZ_ALLOC_CONTIGUOUS, NULL);
	void *shared = dedicated(&r, MIB(20), TRZ_ALLOC_SHARE_FD, NULL);
	rig_free(&r, p);
	rig_free(&r, q);
	rig_check(&r);
	void *packed = rig_alloc(&r, MIB(20), NULL), *large = rig_alloc(&r, MIB(40), NULL);
	assert_true(packed != p && packed != q && large != p);
	void *other = dedicated(&r, MIB(20), TRZ_ALLOC_SHARE_FD, NULL);
	assert_true(other != p && other != q);
	rig_free(&r, packed);
	rig_free(&r, large);
	void *again = dedicated(&r, MIB(20), TRZ_ALLOC_CONTIGUOUS, NULL);
	assert_true(again == p || again == q);
	assert_true(rig_stat(&r, "tiles_gathered") == 0 && rig_stat(&r, "path_flip") == 0);
	(void)shared;
	rig_check(&r);
	rig_close(&r);
}

static void test_kept_tiles_serve_what_is_little_smaller(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = dedicated(&r, MIB(90), TRZ_ALLOC_CONTIGUOUS, NULL);
	rig_free(&r, p);
	uint64_t calls = rig_calls(&r);
	assert_ptr_equal(dedicated(&r, MIB(80), TRZ_ALLOC_CONTIGUOUS, NULL), p);
	assert_int_equal(rig_calls(&r), calls);
	rig_free(&r, p);
	assert_ptr_not_equal(dedicated(&r, MIB(78), TRZ_ALLOC_CONTIGUOUS, NULL), p);
	rig_check(&r);
	rig_close(&r);
}

static void test_other_streams_get_what_has_passed(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	uint32_t go = 0;
	void *p = dedicated(&r, MIB(10), TRZ_ALLOC_CONTIGUOUS, a);
	void *q = dedicated(&r, MIB(10), TRZ_ALLOC_CONTIGUOUS, b);
	assert_ok(sim_spin(r.s, r.c, a, &go));
	assert_ok(sim_stamp(r.s, r.c, a, (trz_addr)p, MIB(10), 1));
	rig_free(&r, p);
	void *other = dedicated(&r, MIB(10), TRZ_ALLOC_CONTIGUOUS, b);
	assert_ptr_not_equal(other, p);
	go = 1;
	rig_sync(&r);
	assert_ptr_equal(dedicated(&r, MIB(10), TRZ_ALLOC_CONTIGUOUS, b), p);
	rig_free(&r, q);
	rig_check(&r);
	rig_close(&r);
}

static void test_uses_and_foreign_frees_are_waited_for(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	uint32_t go = 0;
	void *p = dedicated(&r, MIB(10), TRZ_ALLOC_SHARE_FD, a);
	rig_order(&r, a, b);
	assert_ok(sim_spin(r.s, r.c, b, &go));
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)p, MIB(10), 1));
	assert_ok(trz_record_stream(r.heap, p, b));
	rig_free(&r, p);
	assert_int_equal(rig_stat(&r, "pending_bytes.current"), MIB(10));
	void *q = dedicated(&r, MIB(10), TRZ_ALLOC_SHARE_FD, a);
	assert_ptr_not_equal(q, p);
	assert_ok(trz_free_on(r.heap, q, b));
	assert_ptr_equal(dedicated(&r, MIB(10), TRZ_ALLOC_SHARE_FD, b), q);
	go = 1;
	rig_sync(&r);
	assert_ptr_equal(dedicated(&r, MIB(10), TRZ_ALLOC_SHARE_FD, a), p);
	rig_check(&r);
	rig_close(&r);
}

static void test_trim_returns_what_is_free(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = dedicated(&r, MIB(30), TRZ_ALLOC_RDMA, NULL), *q = dedicated(&r, MIB(10), TRZ_ALLOC_RDMA, NULL);
	rig_free(&r, p);
	size_t released = 0;
	assert_ok(trz_trim(r.heap, 0, &released));
	assert_int_equal(released, MIB(30));
	assert_int_equal(sim_device_used(r.s, 0), MIB(10));
	assert_int_equal(rig_stat(&r, "dedicated_bytes.current"), MIB(10));
	assert_ptr_not_equal(dedicated(&r, MIB(30), TRZ_ALLOC_RDMA, NULL), p);  /* an address is not laid twice */
	rig_free(&r, q);
	rig_check(&r);
	rig_close(&r);
}

/* Each sort gives way to the other when the device is full. */
static void test_free_tiles_go_where_they_are_needed(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	void *p = dedicated(&r, MIB(200), TRZ_ALLOC_CONTIGUOUS, NULL);
	rig_free(&r, p);
	size_t largest = 0;
	assert_ok(trz_largest_block(r.heap, NULL, &largest));
	assert_int_equal(largest, MIB(256));
	void *packed = rig_alloc(&r, MIB(180), NULL);
	assert_int_equal(rig_stat(&r, "rung_dedicated"), 1);
	rig_free(&r, packed);
	p = dedicated(&r, MIB(190), TRZ_ALLOC_CONTIGUOUS, NULL);
	void *fd = NULL;
	assert_status(alloc_with(&r, MIB(190), TRZ_ALLOC_SHARE_FD, NULL, &fd), TRZ_ERROR_OUT_OF_MEMORY);
	assert_null(fd);
	trz_oom_info info;
	assert_ok(trz_last_oom(r.heap, &info));
	assert_int_equal(info.requested, MIB(190));
	assert_ok(trz_set_limit(r.heap, MIB(192)));
	assert_status(alloc_with(&r, MIB(4), TRZ_ALLOC_SHARE_FD, NULL, &fd), TRZ_ERROR_LIMIT);
	rig_free(&r, p);
	dedicated(&r, MIB(190), TRZ_ALLOC_SHARE_FD, NULL);
	rig_check(&r);
	rig_close(&r);
}

static bool free_it(void *user, const trz_oom_info *info)
{
	void **p = user;
	(void)info;
	assert_ok(trz_free(p[0], p[1]));
	return true;
}

/* A limit below what is reserved: as much goes as makes room under it. */
static void test_a_limit_that_has_been_lowered(void **state)
{
	(void)state;
	for (int sort = 0; sort < 2; sort++) {
		struct rig r = rig_open(GIB(1), NULL);
		void *kept[4];
		for (size_t i = 0; i < LENGTH(kept); i++)
			kept[i] = sort == 0 ? rig_alloc(&r, MIB(64), NULL) : dedicated(&r, MIB(64), TRZ_ALLOC_CONTIGUOUS, NULL);
		for (size_t i = 0; i < LENGTH(kept); i++)
			rig_free(&r, kept[i]);
		rig_sync(&r);
		assert_ok(trz_set_limit(r.heap, MIB(100)));
		size_t largest = 0;
		assert_ok(trz_largest_block(r.heap, NULL, &largest));
		assert_true(largest >= MIB(30));
		void *p = dedicated(&r, MIB(30), TRZ_ALLOC_SHARE_FD, NULL), *q = rig_alloc(&r, MIB(30), NULL);
		assert_true(rig_stat(&r, "reserved_bytes.all.current") <= MIB(256));
		rig_free(&r, p);
		rig_free(&r, q);
		rig_check(&r);
		rig_close(&r);
	}
}

static void test_the_callback_is_asked(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), NULL);
	void *user[2] = {r.heap, rig_alloc(&r, MIB(40), NULL)};
	assert_ok(trz_set_oom_callback(r.heap, free_it, user));
	dedicated(&r, MIB(50), TRZ_ALLOC_CONTIGUOUS, NULL);
	rig_check(&r);
	rig_close(&r);
}

static void test_pools_have_their_own(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_pool *pool = NULL;
	assert_ok(trz_pool_create(r.heap, &pool));
	trz_alloc_params params = {
	    .struct_size = sizeof params, .size = MIB(8), .pool = pool, .flags = TRZ_ALLOC_CONTIGUOUS};
	void *p, *q, *packed;
	assert_ok(trz_alloc_with(r.heap, &params, &p));
	assert_ok(trz_pool_alloc(r.heap, pool, MIB(3), 0, NULL, &packed));
	trz_pool_state *before = NULL;
	assert_ok(trz_pool_checkpoint(r.heap, pool, &before));
	rig_free(&r, p);
	q = dedicated(&r, MIB(8), TRZ_ALLOC_CONTIGUOUS, NULL);
	assert_ptr_not_equal(p, q);
	rig_free(&r, packed);
	assert_ok(trz_pool_restore(r.heap, pool, before));
	trz_pool_state_free(before);
	assert_int_equal(query(&r, p).size, MIB(8));
	rig_check(&r);
	rig_free(&r, p);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_sync(&r);
	rig_check(&r);
	assert_ptr_equal(dedicated(&r, MIB(8), TRZ_ALLOC_CONTIGUOUS, NULL), p);  /* the heap's now */
	rig_free(&r, q);
	rig_free(&r, packed);
	rig_check(&r);
	rig_close(&r);
}

static void test_refusals(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	void *p = &r;
	assert_status(alloc_with(&r, 100, 1u << 20, NULL, &p), TRZ_ERROR_INVALID_ARGUMENT);
	assert_null(p);
	assert_status(alloc_with(&r, 100, TRZ_ALLOC_SHARE_FABRIC, NULL, &p), TRZ_ERROR_NOT_SUPPORTED);
	assert_non_null(strstr(trz_last_error(), "fabric"));
	trz_alloc_params params = {.struct_size = sizeof params + 8, .size = 100};
	assert_status(trz_alloc_with(r.heap, &params, &p), TRZ_ERROR_INVALID_ARGUMENT);
	params.struct_size = 0;
	assert_status(trz_alloc_with(r.heap, &params, &p), TRZ_ERROR_INVALID_ARGUMENT);
	params.struct_size = offsetof(trz_alloc_params, pool);
	params.flags = ~0u;  /* is not there in so short a struct */
	assert_ok(trz_alloc_with(r.heap, &params, &p));
	assert_true(query(&r, p).small);
	rig_free(&r, p);
	assert_ok(alloc_with(&r, 0, TRZ_ALLOC_CONTIGUOUS, NULL, &p));
	assert_null(p);
	p = &r;
	assert_status(trz_alloc_with(r.heap, NULL, &p), TRZ_ERROR_INVALID_ARGUMENT);
	assert_null(p);
	p = &r;
	assert_status(trz_alloc_with(NULL, &params, &p), TRZ_ERROR_INVALID_ARGUMENT);
	assert_null(p);
	p = dedicated(&r, MIB(3), TRZ_ALLOC_CONTIGUOUS, NULL);
	rig_free(&r, p);
	assert_status(trz_free(r.heap, p), TRZ_ERROR_DOUBLE_FREE);
	rig_close(&r);
}

static void test_without_virtual_memory_management(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "vmm:off");
	void *p = NULL;
	assert_ok(alloc_with(&r, MIB(30), TRZ_ALLOC_CONTIGUOUS, NULL, &p));
	assert_status(alloc_with(&r, MIB(30), TRZ_ALLOC_SHARE_FD, NULL, &p), TRZ_ERROR_NOT_SUPPORTED);
	assert_non_null(strstr(trz_last_error(), "virtual memory management"));
	rig_check(&r);
	rig_close(&r);
	r = rig_machine((sim_config){.capacity = GIB(1), .no_vmm = true});
	rig_open_heap(&r, NULL);
	assert_status(alloc_with(&r, MIB(30), TRZ_ALLOC_RDMA, NULL, &p), TRZ_ERROR_NOT_SUPPORTED);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_allocation_is_one_tile),
		cmocka_unit_test(test_addresses_are_reserved_as_for_packed_memory),
		cmocka_unit_test(test_the_sorts_never_mix),
		cmocka_unit_test(test_kept_tiles_serve_what_is_little_smaller),
		cmocka_unit_test(test_other_streams_get_what_has_passed),
		cmocka_unit_test(test_uses_and_foreign_frees_are_waited_for),
		cmocka_unit_test(test_trim_returns_what_is_free),
		cmocka_unit_test(test_free_tiles_go_where_they_are_needed),
		cmocka_unit_test(test_a_limit_that_has_been_lowered),
		cmocka_unit_test(test_the_callback_is_asked),
		cmocka_unit_test(test_pools_have_their_own),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_without_virtual_memory_management),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
