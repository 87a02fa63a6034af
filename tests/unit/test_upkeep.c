/* SPDX-License-Identifier: Apache-2.0
 *
 * Free memory that the heap returns unasked: beyond a threshold, and when it was not needed for a while.
 */
#include "overlay.h"

static uint64_t clock_now;

static trz_status set_clock(void *self, uint64_t *ns)
{
	(void)self;
	*ns = clock_now;
	return TRZ_OK;
}

static struct overlay o;

static struct rig *open_at_zero(const char *conf)
{
	overlay_machine(&o, GIB(1));
	o.table.clock_ns = set_clock;
	clock_now = 1000;
	overlay_open_heap(&o, conf);
	return &o.rig;
}

static void later_ms(uint64_t ms)
{
	rig_sync(&o.rig);
	clock_now += ms * 1000000;
	assert_ok(trz_poll(o.rig.heap));
	rig_check(&o.rig);
}

static uint64_t reserved(void)
{
	return rig_stat(&o.rig, "reserved_bytes.all.current");
}

static void test_nothing_decays_unless_asked_for(void **state)
{
	(void)state;
	struct rig *r = open_at_zero(NULL);
	rig_free(r, rig_alloc(r, MIB(100), NULL));
	uint64_t before = reserved();
	for (int i = 0; i < 10; i++)
		later_ms(100000);
	assert_int_equal(reserved(), before);
	rig_close(r);
}

static void test_idle_memory_decays(void **state)
{
	(void)state;
	struct rig *r = open_at_zero("decay_ms:1000,tile_size:2MiB,tile_size_max:2MiB");
	void *kept = rig_alloc(r, MIB(40), NULL), *slot = rig_alloc(r, 100, NULL);
	rig_free(r, rig_alloc(r, MIB(100), NULL));
	later_ms(0);
	for (int i = 0; i < 9; i++)
		later_ms(100);
	assert_true(reserved() >= MIB(140));
	for (int i = 0; i < 4; i++)
		later_ms(100);
	assert_true(reserved() < MIB(70));
	assert_true(rig_stat(r, "bytes_decayed") >= MIB(90));
	rig_free(r, kept);
	rig_free(r, slot);
	later_ms(600);
	later_ms(600);
	later_ms(600);
	later_ms(2000);
	later_ms(2000);
	assert_int_equal(reserved(), 0);  /* empty slabs as well */
	rig_close(r);
}

/* What is needed within each period stays, what is more goes. */
static void test_memory_in_use_now_and_then_stays(void **state)
{
	(void)state;
	struct rig *r = open_at_zero("decay_ms:1000");
	void *p[10];
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = rig_alloc(r, MIB(20), NULL);
	for (size_t i = 0; i < LENGTH(p); i++)
		rig_free(r, p[i]);
	for (int i = 0; i < 30; i++) {
		rig_free(r, rig_alloc(r, MIB(60), NULL));  /* 60 of 200 MiB, every 0.7 s */
		later_ms(350);
		later_ms(350);
	}
	assert_in_range(reserved(), MIB(60), MIB(100));
	uint64_t settled = reserved(), creates = rig_stat(r, "driver_calls.create");
	for (int i = 0; i < 30; i++) {
		rig_free(r, rig_alloc(r, MIB(60), NULL));
		later_ms(700);
	}
	assert_int_equal(reserved(), settled);
	assert_int_equal(rig_stat(r, "driver_calls.create"), creates);
	rig_close(r);
}

/* No poll at all for a long time is one look afterwards: the least in all that time counts. */
static void test_a_long_time_without_a_look(void **state)
{
	(void)state;
	struct rig *r = open_at_zero("decay_ms:1000");
	void *p = rig_alloc(r, MIB(80), NULL);
	later_ms(0);
	rig_free(r, p);
	clock_now += 1000000ull * 100000;
	p = rig_alloc(r, MIB(80), NULL);  /* out of the cache: nothing is looked at */
	rig_free(r, p);
	later_ms(0);
	assert_true(reserved() >= MIB(80));
	later_ms(1000);
	later_ms(1000);
	assert_int_equal(reserved(), 0);
	rig_close(r);
}

/* Decay is seen to by allocations that the cache cannot serve, too; what has not passed stays. */
static void test_decay_without_polls(void **state)
{
	(void)state;
	struct rig *r = open_at_zero("decay_ms:1000,tile_size:2MiB,tile_size_max:2MiB,slack_per_mille:1000");
	void *p = rig_alloc(r, MIB(100), NULL), *live[6] = {rig_alloc(r, MIB(2), NULL)};
	assert_ok(sim_stamp(r->s, r->c, NULL, (trz_addr)p, MIB(100), 1));
	rig_free(r, p);
	for (size_t i = 1; i < LENGTH(live); i++) {
		live[i] = rig_alloc(r, MIB(110), NULL);
		clock_now += 1000000ull * 2000;
		if (i == 3) {
			assert_int_equal(rig_stat(r, "bytes_decayed"), 0);
			rig_sync(r);
		}
	}
	assert_true(rig_stat(r, "bytes_decayed") >= MIB(96));
	assert_true(reserved() < MIB(560));
	for (size_t i = 0; i < LENGTH(live); i++)
		rig_free(r, live[i]);
	rig_check(r);
	rig_close(r);
}

static void test_threshold(void **state)
{
	(void)state;
	struct rig *r = open_at_zero("trim_threshold:64MiB,tile_size:2MiB,tile_size_max:2MiB");
	void *p[20];
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = rig_alloc(r, MIB(10), NULL);
	for (size_t i = 0; i < 6; i++)
		rig_free(r, p[i]);
	rig_sync(r);
	assert_ok(trz_poll(r->heap));
	assert_true(reserved() >= MIB(200));  /* 60 are free */
	for (size_t i = 6; i < 16; i++)
		rig_free(r, p[i]);
	assert_true(reserved() >= MIB(200));  /* a free returns nothing by itself */
	rig_sync(r);
	void *next = rig_alloc(r, MIB(10), NULL);  /* out of the cache, but past the threshold */
	assert_in_range(rig_stat(r, "cached_bytes.current"), MIB(64) - MIB(12), MIB(64));
	assert_true(reserved() <= MIB(50) + MIB(66));
	rig_check(r);
	rig_free(r, next);
	for (size_t i = 16; i < LENGTH(p); i++)
		rig_free(r, p[i]);
	rig_sync(r);
	assert_ok(trz_poll(r->heap));
	assert_in_range(reserved(), MIB(60), MIB(64));
	rig_close(r);
}

/* More is free than that, but no tile: allocations that the cache serves do not look for one each time. They do again
 * when as much has been freed, in which there may be some. */
static void test_a_threshold_that_cannot_be_met(void **state)
{
	(void)state;
	struct rig *r = open_at_zero("trim_threshold:16MiB");
	enum { SIZE = (1 << 20) + 512, PAIRS = 1000 };
	static void *p[128];
	for (size_t i = 0; i < LENGTH(p); i++)
		p[i] = rig_alloc(r, SIZE, NULL);
	for (size_t i = 0; i < LENGTH(p); i += 2)
		rig_free(r, p[i]);
	rig_sync(r);
	rig_free(r, rig_alloc(r, SIZE, NULL));
	assert_true(rig_stat(r, "cached_bytes.current") > MIB(48));
	uint64_t calls = rig_calls(r);
	for (int i = 0; i < PAIRS; i++)
		rig_free(r, rig_alloc(r, SIZE, NULL));
	assert_true(rig_calls(r) - calls < PAIRS / 2);
	for (size_t i = 1; i < LENGTH(p); i += 2)
		rig_free(r, p[i]);
	rig_sync(r);
	rig_free(r, rig_alloc(r, SIZE, NULL));
	assert_true(reserved() <= MIB(32));
	rig_close(r);
}

static void test_poll(void **state)
{
	(void)state;
	struct rig *r = open_at_zero(NULL);
	trz_stream other = rig_stream(r);
	void *p = rig_alloc(r, MIB(10), NULL);
	assert_ok(trz_record_stream(r->heap, p, other));
	rig_free(r, p);
	assert_true(rig_stat(r, "pending_bytes.current") >= MIB(10));
	rig_sync(r);
	assert_ok(trz_poll(r->heap));
	assert_int_equal(rig_stat(r, "pending_bytes.current"), 0);
	assert_status(trz_poll(NULL), TRZ_ERROR_INVALID_ARGUMENT);
	sim_kill_context(r->s, r->c);
	assert_status(trz_alloc(r->heap, MIB(500), 0, NULL, &p), TRZ_ERROR_CONTEXT_DEAD);
	assert_status(trz_poll(r->heap), TRZ_ERROR_CONTEXT_DEAD);
	trz_close(r->heap);
	sim_close(r->s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_decays_unless_asked_for),
		cmocka_unit_test(test_idle_memory_decays),
		cmocka_unit_test(test_memory_in_use_now_and_then_stays),
		cmocka_unit_test(test_a_long_time_without_a_look),
		cmocka_unit_test(test_decay_without_polls),
		cmocka_unit_test(test_threshold),
		cmocka_unit_test(test_a_threshold_that_cannot_be_met),
		cmocka_unit_test(test_poll),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
