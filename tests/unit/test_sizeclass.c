/* SPDX-License-Identifier: Apache-2.0
 *
 * The size classes: both tables are derived again from the rules in their header.
 */
#include "bits.h"
#include "ground/sizeclass.h"
#include "testing.h"

/* The slot sizes in units: each one up to 8, then four per doubling. */
static unsigned derive_units(uint64_t units[CLASS_COUNT])
{
	unsigned n = 0;
	for (uint64_t u = 1; u <= CLASS_SIZE_MAX / UNIT && n < CLASS_COUNT; n++) {
		units[n] = u;
		u += u < 8 ? 1 : 1ull << (log2_floor(u) - 2);
	}
	return n;
}

/* The fewest cells that waste at most 1/16 on slots of this size, of which there are at least four. */
static uint64_t derive_slab(uint64_t slot_size)
{
	uint64_t slab = CELL;
	while (slab / slot_size < 4 || slab % slot_size * 16 > slab)
		slab += CELL;
	return slab;
}

static void test_slot_sizes(void **state)
{
	(void)state;
	uint64_t units[CLASS_COUNT];
	assert_int_equal(derive_units(units), CLASS_COUNT);
	assert_int_equal(units[CLASS_COUNT - 1] * UNIT, CLASS_SIZE_MAX);
	for (unsigned c = 0; c < CLASS_COUNT; c++)
		assert_int_equal(size_classes[c].slot_size, units[c] * UNIT);
}

static void test_slabs(void **state)
{
	(void)state;
	for (unsigned c = 0; c < CLASS_COUNT; c++) {
		const struct size_class *k = &size_classes[c];
		assert_int_equal(k->slab_size, derive_slab(k->slot_size));
		assert_int_equal(k->slots, k->slab_size / k->slot_size);
		assert_in_range(k->slots, 4, SLAB_SLOTS_MAX);
	}
}

static void test_class_of_every_size(void **state)
{
	(void)state;
	unsigned expected = 0;
	for (uint64_t size = 1; size <= CLASS_SIZE_MAX; size++) {
		while (size_classes[expected].slot_size < size)
			expected++;
		if (size_class_of(size) != expected)
			fail_msg("size %llu: class %u, expected %u", (unsigned long long)size, size_class_of(size), expected);
	}
}

static void test_a_slot_is_at_most_a_quarter_too_large(void **state)
{
	(void)state;
	for (uint64_t size = 8 * UNIT + 1; size <= CLASS_SIZE_MAX; size++) {
		uint64_t rounded = align_up(size, UNIT);
		assert_true(size_classes[size_class_of(size)].slot_size * 4 <= rounded * 5);
	}
}

static void test_slot_of_every_offset(void **state)
{
	(void)state;
	for (unsigned c = 0; c < CLASS_COUNT; c++) {
		const struct size_class *k = &size_classes[c];
		for (uint64_t offset = 0; offset < k->slab_size; offset += UNIT) {
			uint64_t expected = min_u64(offset / k->slot_size, k->slots);
			assert_int_equal(size_class_slot(k, offset), expected);
			assert_int_equal(size_class_slot(k, offset + UNIT - 1), expected);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slot_sizes),
		cmocka_unit_test(test_slabs),
		cmocka_unit_test(test_class_of_every_size),
		cmocka_unit_test(test_a_slot_is_at_most_a_quarter_too_large),
		cmocka_unit_test(test_slot_of_every_offset),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
