/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the public functions with a set of intervals: no two live allocations share a byte, sizes and alignments
 * are as requested, and every query and every wrong free gets the answer that the set gives.
 */
#include "accounts.h"
#include "prng.h"
#include "rig.h"
#include "shadow.h"

enum { EVENTS = 3000, SEEDS = 12, LIVE_MAX = 400 };

struct model {
	struct rig rig;
	struct shadow shadow;
	uint64_t random, seed;
	void *gone[32];         /* freed before, perhaps handed out again */
};

static uint64_t below(struct model *m, uint64_t bound)
{
	return prng_below(&m->random, bound);
}

static uint64_t random_size(struct model *m)
{
	uint64_t size = 1ull << below(m, 24);
	return size + below(m, size);
}

static void check_info(const trz_pointer_info *info, const struct live *l)
{
	assert_int_equal((trz_addr)info->base, l->address);
	assert_int_equal(info->size, l->size);
	assert_int_equal(info->requested, l->requested);
	assert_int_equal(info->small, l->small);
	assert_null(info->stream);
	assert_int_equal(info->device, 0);
}

static void alloc_one(struct model *m)
{
	uint64_t size = random_size(m), alignment = below(m, 4) ? 0 : 1ull << below(m, 22);
	trz_pointer_info info;
	size_t other;
	void *p;
	assert_ok(trz_alloc(m->rig.heap, size, alignment, NULL, &p));
	assert_int_equal((trz_addr)p % max_u64(alignment, 512), 0);
	assert_ok(trz_query(m->rig.heap, p, &info));
	uint64_t most = max_u64(align_up(size, 512), KIB(33)) + KIB(32);
	if (info.small)  /* the largest rounding of slots, or two grains of medium blocks */
		most = size <= KIB(32) ? max_u64(size + size / 4 + 512, KIB(34)) : size + size / 16 + 512;
	assert_in_range(info.size, size, most);
	struct live l = {.address = (trz_addr)p, .size = info.size, .requested = size, .small = info.small};
	if (!shadow_add(&m->shadow, l, &other))
		fail_msg("seed %llu: %p, %llu bytes, is inside a live allocation", (unsigned long long)m->seed, p,
		         (unsigned long long)size);
	check_info(&info, &l);
}

static void free_one(struct model *m)
{
	struct live l = shadow_remove(&m->shadow, below(m, m->shadow.count));
	assert_ok(trz_free(m->rig.heap, (void *)l.address));
	m->gone[below(m, LENGTH(m->gone))] = (void *)l.address;
}

/* Around a live allocation, or anywhere. */
static void query_one(struct model *m)
{
	trz_pointer_info info;
	trz_addr address = prng_next(&m->random) >> 17;
	if (m->shadow.count && below(m, 8)) {
		const struct live *l = &m->shadow.list[below(m, m->shadow.count)];
		address = l->address - 600 + below(m, l->size + 1200);
	}
	size_t index = shadow_find(&m->shadow, address);
	trz_status status = trz_query(m->rig.heap, (void *)address, &info);
	assert_int_equal(status, index == SIZE_MAX ? TRZ_ERROR_UNKNOWN_POINTER : TRZ_OK);
	if (status == TRZ_OK)
		check_info(&info, &m->shadow.list[index]);
}

static void free_wrongly(struct model *m)
{
	void *p = m->gone[below(m, LENGTH(m->gone))];
	size_t index = shadow_find(&m->shadow, (trz_addr)p);
	if (!p || (index != SIZE_MAX && m->shadow.list[index].address == (trz_addr)p))
		return;
	trz_status status = trz_free(m->rig.heap, p);
	assert_true(status == TRZ_ERROR_DOUBLE_FREE || status == TRZ_ERROR_UNKNOWN_POINTER);
	if (index != SIZE_MAX)
		assert_int_equal(status, TRZ_ERROR_UNKNOWN_POINTER);
}

static void compare_sums(struct model *m)
{
	uint64_t count[2] = {0}, requested[2] = {0}, rounding = 0;
	for (size_t i = 0; i < m->shadow.count; i++) {
		const struct live *l = &m->shadow.list[i];
		count[!l->small]++;
		requested[!l->small] += l->requested;
		rounding += l->size - l->requested;
	}
	struct accounts a = accounts_read(m->rig.heap);
	assert_true(accounts_balance(&a));
	assert_int_equal(a.rounding, rounding);
	for (int pool = 0; pool < 2; pool++) {
		assert_int_equal(a.allocations[pool], count[pool]);
		assert_int_equal(a.requested_of[pool], requested[pool]);
	}
}

static void step(struct model *m)
{
	uint64_t what = below(m, 16);
	bool full = m->shadow.count == LIVE_MAX;
	if (what < 7 && !full)
		alloc_one(m);
	else if (what < 12 && m->shadow.count)
		free_one(m);
	else if (what < 14)
		query_one(m);
	else if (what == 14)
		free_wrongly(m);
	else if (below(m, 30) == 0)
		assert_ok(trz_trim(m->rig.heap, below(m, 2) * MIB(64), NULL));
}

static void run_seed(uint64_t seed, const char *conf)
{
	struct model m = {.seed = seed, .random = prng_mix(seed)};
	m.rig = rig_open(GIB(16), conf);
	for (int event = 0; event < EVENTS; event++) {
		step(&m);
		if (event % 64 == 0) {
			compare_sums(&m);
			rig_check(&m.rig);
		}
	}
	while (m.shadow.count)
		free_one(&m);
	compare_sums(&m);
	shadow_clear(&m.shadow);
	rig_close(&m.rig);
}

static void test_by_default(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		run_seed(seed, NULL);
}

static void test_without_slabs(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS / 2; seed++)
		run_seed(seed, "small_limit:0,tile_size:2MiB");
}

static void test_without_virtual_memory_management(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS / 2; seed++)
		run_seed(seed, "vmm:off");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_default),
		cmocka_unit_test(test_without_slabs),
		cmocka_unit_test(test_without_virtual_memory_management),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
