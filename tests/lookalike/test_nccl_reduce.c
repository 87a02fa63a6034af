/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions of the stand-in for NCCL: compares every type and operation with results computed here.
 */
#include "lookalike/standin/nccl.h"

#include <math.h>
#include <string.h>

#include "testing.h"

/* Of the file with the functions of NCCL, which is not linked here. */
uint64_t nccl_type_bytes(int type)
{
	static const uint8_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
	return sizes[type];
}

#include "lookalike/standin/nccl_reduce.c"

static const double ones[] = {1, 1, 1};

static void integers_wrap_around(void **state)
{
	(void)state;
	const int8_t a[] = {100, -100, 3}, b[] = {100, -100, -4};
	const void *const from[] = {a, b};
	int8_t to[3];
	nccl_reduce(NCCL_INT8, NCCL_SUM, to, from, ones, 2, 0, 3);
	assert_int_equal(to[0], -56);
	assert_int_equal(to[1], 56);
	assert_int_equal(to[2], -1);
	nccl_reduce(NCCL_INT8, NCCL_MAX, to, from, ones, 2, 0, 3);
	assert_int_equal(to[2], 3);
	nccl_reduce(NCCL_UINT8, NCCL_MAX, to, from, ones, 2, 0, 3);
	assert_int_equal((uint8_t)to[2], 252);
	nccl_reduce(NCCL_INT8, NCCL_AVG, to, from, ones, 2, 2, 1);
	assert_int_equal(to[0], 0);
}

static void large_integers_are_exact(void **state)
{
	(void)state;
	const uint64_t a[] = {1ull << 63 | 1, 7}, b[] = {5, 6};
	const void *const from[] = {a, b};
	uint64_t to[2];
	nccl_reduce(NCCL_UINT64, NCCL_SUM, to, from, ones, 2, 0, 2);
	assert_true(to[0] == (1ull << 63 | 6) && to[1] == 13);
	nccl_reduce(NCCL_UINT64, NCCL_MIN, to, from, ones, 2, 0, 2);
	assert_true(to[0] == 5);
	nccl_reduce(NCCL_INT64, NCCL_MIN, to, from, ones, 2, 0, 2);
	assert_true(to[0] == (1ull << 63 | 1));
	nccl_reduce(NCCL_INT64, NCCL_PROD, to, from, ones, 2, 1, 1);
	assert_true(to[0] == 42);
}

static void floats_are_summed_in_order(void **state)
{
	(void)state;
	enum { COUNT = 1000 };  /* several pieces */
	float a[COUNT], b[COUNT], c[COUNT], to[COUNT];
	const void *const from[] = {a, b, c};
	for (int i = 0; i < COUNT; i++) {
		a[i] = (float)i * 0.1f;
		b[i] = (float)i * 1e7f;
		c[i] = -(float)i;
	}
	nccl_reduce(NCCL_FLOAT, NCCL_SUM, to, from, ones, 2, 0, COUNT);
	for (int i = 0; i < COUNT; i++)
		assert_true(to[i] == a[i] + b[i]);
	nccl_reduce(NCCL_FLOAT, NCCL_AVG, to, from, ones, 3, 10, 5);
	for (int i = 0; i < 5; i++)
		assert_true(to[i] == (float)(((double)a[i + 10] + (double)b[i + 10] + (double)c[i + 10]) / 3));
	const double halves_of[] = {0.5, 0.25, 0};
	nccl_reduce(NCCL_FLOAT, NCCL_SCALED_SUM, to, from, halves_of, 3, 4, 1);
	assert_true(to[0] == (float)((double)a[4] * 0.5 + (double)b[4] * 0.25));
}

/* Every code of a small type comes back, and a sum of two is the nearest code. */
static void check_small(int type, const struct format *f, uint32_t codes)
{
	for (uint32_t i = 0; i < codes; i++) {
		double x = decode(f, i);
		uint32_t back = encode(f, x);
		if (isnan(x))
			assert_true(isnan(decode(f, back)));
		else if (!isinf(x))
			assert_int_equal(back, i);
	}
	for (uint32_t i = 0; i + 1 < codes / 2; i++) {
		double low = decode(f, i), high = decode(f, i + 1);
		if (!isfinite(high))
			break;
		assert_int_equal(encode(f, low + (high - low) * 0.49), i);
		assert_int_equal(encode(f, low + (high - low) * 0.51), i + 1);
		assert_int_equal(encode(f, low + (high - low) * 0.5), i & 1 ? i + 1 : i);
	}
	(void)type;
}

static void small_floats_round_to_nearest(void **state)
{
	(void)state;
	check_small(NCCL_HALF, &half, 1 << 16);
	check_small(NCCL_E4M3, &e4m3, 1 << 8);
	check_small(NCCL_E5M2, &e5m2, 1 << 8);
	assert_true(decode(&e4m3, 0x7e) == 448 && decode(&e5m2, 0x7b) == 57344 && decode(&half, 0x7bff) == 65504);
	assert_int_equal(encode(&e4m3, 1e9), 0x7e);
	assert_int_equal(encode(&e5m2, -1e9), 0xfb);
	assert_int_equal(encode(&half, 1e9), 0x7c00);
}

static void brain_floats_round_to_even(void **state)
{
	(void)state;
	const uint16_t one = 0x3f80, eps = 0x3b80;  /* 1 and 2^-8: half of the last place */
	const uint16_t odd = 0x3f81;
	const void *const from[] = {&one, &eps}, *const odds[] = {&odd, &eps};
	uint16_t to;
	nccl_reduce(NCCL_BFLOAT16, NCCL_SUM, &to, from, ones, 2, 0, 1);
	assert_int_equal(to, 0x3f80);
	nccl_reduce(NCCL_BFLOAT16, NCCL_SUM, &to, odds, ones, 2, 0, 1);
	assert_int_equal(to, 0x3f82);
	nccl_reduce(NCCL_BFLOAT16, NCCL_PROD, &to, from, ones, 2, 0, 1);
	assert_int_equal(to, 0x3b80);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_wrap_around), cmocka_unit_test(large_integers_are_exact),
		cmocka_unit_test(floats_are_summed_in_order), cmocka_unit_test(small_floats_round_to_nearest),
		cmocka_unit_test(brain_floats_round_to_even),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
