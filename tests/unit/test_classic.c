/* SPDX-License-Identifier: Apache-2.0
 *
 * Without virtual memory management: plain driver allocations, announced in the statistics.
 */
#include "accounts.h"
#include "rig.h"

/* Both ways there: the device lacks it, or it is switched off. */
static struct rig open_classic(bool lacking)
{
	struct rig r = rig_machine((sim_config){.capacity = MIB(512), .no_vmm = lacking,
	                                        .lenient_rules = SIM_RULE_SYNC_MAYBE});
	rig_open_heap(&r, lacking ? NULL : "vmm:off");
	return r;
}

static void test_everything_is_classic(void **state)
{
	(void)state;
	for (int lacking = 0; lacking < 2; lacking++) {
		struct rig r = open_classic(lacking);
		for (size_t size = 1; size < MIB(60); size = size * 3 + 1) {
			void *p = rig_alloc(&r, size, NULL);
			assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)p, size < 8 ? 8 : size, size));
			assert_ok(sim_verify(r.s, r.c, NULL, (trz_addr)p, size < 8 ? 8 : size, size));
			struct accounts a = accounts_read(r.heap);
			assert_int_equal(a.classic, a.reserved);
			assert_true(accounts_balance(&a));
		}
		assert_int_equal(sim_calls(r.s, SIM_SLOT_create), 0);
		assert_true(sim_calls(r.s, SIM_SLOT_mem_alloc) > 0);
		assert_int_equal(rig_stat(&r, "address_bytes.current"), 0);
		rig_sync(&r);
		rig_check(&r);
		rig_close(&r);
	}
}

static void test_a_heap_with_vmm_has_no_classic_bytes(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(512), NULL);
	rig_alloc(&r, MIB(50), NULL);
	assert_int_equal(rig_stat(&r, "classic_bytes.peak"), 0);
	rig_close(&r);
}

static void test_reuse(void **state)
{
	(void)state;
	struct rig r = open_classic(true);
	static const size_t sizes[] = {100, KIB(40), MIB(1), MIB(50)};
	for (size_t i = 0; i < LENGTH(sizes); i++) {
		void *p = rig_alloc(&r, sizes[i], NULL);
		rig_free(&r, p);
		assert_ptr_equal(rig_alloc(&r, sizes[i], NULL), p);
	}
	rig_close(&r);
}

static void test_trim(void **state)
{
	(void)state;
	struct rig r = open_classic(true);
	void *p = rig_alloc(&r, MIB(30), NULL);
	rig_free(&r, rig_alloc(&r, MIB(40), NULL));
	rig_free(&r, rig_alloc(&r, 100, NULL));
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	uint64_t left = rig_stat(&r, "classic_bytes.current");
	assert_true(left >= MIB(30) && left < MIB(40));
	rig_check(&r);
	rig_free(&r, p);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "classic_bytes.current"), 0);
	assert_int_equal(sim_device_used(r.s, 0), 0);
	rig_close(&r);
}

static void test_trim_leaves_what_work_still_uses(void **state)
{
	(void)state;
	struct rig r = open_classic(true);
	void *p = rig_alloc(&r, MIB(40), NULL);
	assert_ok(sim_stamp(r.s, r.c, NULL, (trz_addr)p, MIB(40), 1));
	rig_free(&r, p);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_true(rig_stat(&r, "classic_bytes.current") >= MIB(40));
	rig_check(&r);
	rig_close(&r);
}

static void test_limit_and_out_of_memory(void **state)
{
	(void)state;
	struct rig r = open_classic(true);
	void *p = &r, *held = rig_alloc(&r, MIB(300), NULL);
	assert_error(trz_alloc(r.heap, MIB(300), 0, NULL, &p), TRZ_ERROR_OUT_OF_MEMORY, "300.00 MiB requested");
	assert_null(p);
	assert_ok(trz_set_limit(r.heap, MIB(310)));
	assert_error(trz_alloc(r.heap, MIB(100), 0, NULL, &p), TRZ_ERROR_LIMIT, "limit of 310.00 MiB");
	rig_check(&r);
	rig_free(&r, held);
	rig_sync(&r);
	held = rig_alloc(&r, MIB(305), NULL);  /* the old segment has to go for it */
	rig_free(&r, held);
	rig_close(&r);
}

static void test_alignment(void **state)
{
	(void)state;
	struct rig r = open_classic(true);
	for (size_t alignment = 512; alignment <= MIB(2); alignment *= 2)
		for (size_t size = 1; size < MIB(10); size = size * 7 + 1) {
			void *p;
			assert_ok(trz_alloc(r.heap, size, alignment, NULL, &p));
			assert_int_equal((uintptr_t)p % alignment, 0);
		}
	rig_check(&r);
	rig_close(&r);
}

/* The index from addresses to blocks has a leaf for each 16 GiB: a segment gets those that it lies in. */
static void test_a_long_segment(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.capacity = GIB(80), .no_vmm = true, .host_faults = true,
	                                        .lenient_rules = SIM_RULE_SYNC_MAYBE});
	rig_open_heap(&r, NULL);
	rig_free(&r, rig_alloc(&r, GIB(50), NULL));
	void *parts[3];
	for (size_t i = 0; i < LENGTH(parts); i++)
		parts[i] = rig_alloc(&r, GIB(16), NULL);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_mem_alloc), 1);
	rig_check(&r);
	for (size_t i = 0; i < LENGTH(parts); i++)
		rig_free(&r, parts[i]);
	rig_check(&r);
	rig_close(&r);
}

/* A segment is longer than the request, by what alignment may lose. A refusal teaches only what the driver withholds of
 * what it was asked for. */
static void test_the_largest_request(void **state)
{
	(void)state;
	static const char *const confs[] = {"vmm:off,oom_report:off", "vmm:off,oom_report:off,no_cache:on"};
	for (size_t i = 0; i < LENGTH(confs); i++) {
		struct rig r = rig_open(MIB(64), confs[i]);
		size_t size, again;
		void *p;
		rig_alloc(&r, MIB(3), NULL);
		assert_ok(trz_largest_block(r.heap, NULL, &size));
		assert_in_range(size, MIB(40), MIB(60));
		assert_status(trz_alloc(r.heap, size + MIB(2), 0, NULL, &p), TRZ_ERROR_OUT_OF_MEMORY);
		assert_ok(trz_largest_block(r.heap, NULL, &again));
		assert_int_equal(again, size);
		rig_alloc(&r, size, NULL);
		rig_check(&r);
		rig_close(&r);
	}
}

/* A medium request gets a block of whole grains, which must fit into the segment, too. */
static void test_the_largest_request_is_medium(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), "vmm:off,medium_limit:16MiB,oom_report:off");
	size_t size;
	rig_alloc(&r, MIB(20), NULL);
	assert_ok(trz_set_limit(r.heap, rig_stat(&r, "reserved_bytes.all.current") + MIB(10)));
	assert_ok(trz_largest_block(r.heap, NULL, &size));
	assert_in_range(size, MIB(9), MIB(10));
	rig_alloc(&r, size, NULL);
	rig_check(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_everything_is_classic),
		cmocka_unit_test(test_a_heap_with_vmm_has_no_classic_bytes),
		cmocka_unit_test(test_reuse),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_trim_leaves_what_work_still_uses),
		cmocka_unit_test(test_limit_and_out_of_memory),
		cmocka_unit_test(test_alignment),
		cmocka_unit_test(test_a_long_segment),
		cmocka_unit_test(test_the_largest_request),
		cmocka_unit_test(test_the_largest_request_is_medium),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
