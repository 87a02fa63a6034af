/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the best-fit index with an array that is searched from end to end.
 */
#include "bits.h"
#include "memory/fit.h"
#include "prng.h"
#include "testing.h"

enum { BLOCKS = 300, EVENTS = 30000, SEEDS = 12 };

struct model {
	struct fit fit;
	struct block *trees[FIT_BUCKETS];
	struct level cached;
	struct block blocks[BLOCKS];
	bool in[BLOCKS];
	uint64_t random;
};

static bool precedes(const struct block *a, const struct block *b)
{
	return a->size != b->size ? a->size < b->size : a->address < b->address;
}

/* The first block in (size, address) order of those that are large enough and after `after`, if that is given. */
static struct block *naive_find(struct model *m, uint64_t size, const struct block *after)
{
	struct block *best = NULL;
	for (int i = 0; i < BLOCKS; i++) {
		struct block *b = &m->blocks[i];
		if (m->in[i] && b->size >= size && (!after || precedes(after, b)) &&
		    (!best || precedes(b, best)))
			best = b;
	}
	return best;
}

/* Sizes of every order, many of them equal or nearly so. */
static uint64_t random_size(struct model *m)
{
	uint64_t shift = prng_below(&m->random, 34), size = (uint64_t)UNIT << (shift > 30 ? 3 : shift);
	if (prng_below(&m->random, 2))
		size += prng_below(&m->random, 3) * UNIT;
	if (prng_below(&m->random, 4) == 0)
		size = (1 + prng_below(&m->random, 40)) * UNIT;
	return size;
}

/* Those of equal size lie apart, or close together. */
static trz_addr random_address(struct model *m, unsigned i)
{
	if (prng_below(&m->random, 2))
		return GIB(512) + prng_below(&m->random, 1000) * MIB(8) + (uint64_t)i * CELL;
	return GIB(600) * (1 + prng_below(&m->random, 50)) + (uint64_t)i * GIB(1);
}

static void toggle(struct model *m, unsigned i)
{
	struct block *b = &m->blocks[i];
	if (m->in[i]) {
		fit_remove(&m->fit, b);
	} else {
		*b = (struct block){.address = random_address(m, i),
		                    .size = random_size(m),
		                    .state = BLOCK_FREE};
		fit_insert(&m->fit, b);
	}
	m->in[i] = !m->in[i];
}

static void compare_sums(struct model *m)
{
	uint64_t bytes = 0, largest = 0;
	for (int i = 0; i < BLOCKS; i++) {
		bytes += m->in[i] ? m->blocks[i].size : 0;
		largest = m->in[i] ? max_u64(largest, m->blocks[i].size) : largest;
	}
	assert_int_equal(m->fit.bytes, bytes);
	assert_int_equal(counter_get(&m->fit.largest), largest);
	assert_int_equal(counter_get(&m->cached.current), bytes);
	const char *wrong = fit_check(&m->fit);
	if (wrong)
		fail_msg("%s", wrong);
}

static void run_seed(uint64_t seed)
{
	static struct model m;
	memset(&m, 0, sizeof m);
	m.random = prng_mix(seed);
	fit_init(&m.fit, &m.cached, m.trees);
	for (int event = 0; event < EVENTS / SEEDS; event++) {
		toggle(&m, (unsigned)prng_below(&m.random, BLOCKS));
		uint64_t size = random_size(&m);
		struct block *found = fit_find(&m.fit, size);
		if (found != naive_find(&m, size, NULL))
			fail_msg("seed %llu, event %d: another block for %llu bytes", (unsigned long long)seed, event,
			         (unsigned long long)size);
		if (found)
			assert_ptr_equal(fit_next(&m.fit, found), naive_find(&m, 0, found));
		if (found)
			assert_ptr_equal(fit_from(&m.fit, found->size, found->address + 1), naive_find(&m, 0, found));
		if (event % 64 == 0)
			compare_sums(&m);
	}
	compare_sums(&m);
}

static void test_against_the_array(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		run_seed(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_the_array)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
