/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares what callers hold, and the most that they have held at one moment, with a model that adds everything up
 * after each event: slots and blocks of several streams, whose slots go out and come in; frees that wait for other
 * streams; growth; resets of peaks; a history that is switched on and off.
 */
#include <stdio.h>
#include <string.h>

#include "prng.h"
#include "rig.h"

enum { EVENTS = 2500, SEEDS = 8, LIVE_MAX = 300, STREAMS = 4, STATS_MAX = 256 };
enum { SMALL_POOL, LARGE_POOL, ALL, POOLS };
enum { COUNT, BYTES, REQUESTED, ACTIVE, ACTIVE_BYTES, FIGURES };

static const char *const figure_names[FIGURES] = {"allocation", "allocated_bytes", "requested_bytes", "active",
                                                  "active_bytes"};
static const char *const pool_names[POOLS] = {"small_pool", "large_pool", "all"};

struct held {
	void *p;
	uint64_t requested;
	bool small;
};

struct model {
	struct rig rig;
	uint64_t random, seed;
	trz_stream streams[STREAMS];
	struct held live[LIVE_MAX];
	unsigned count;
	uint64_t now[FIGURES][POOLS], peak[FIGURES][POOLS];
	bool history;
};

static uint64_t below(struct model *m, uint64_t bound)
{
	return prng_below(&m->random, bound);
}

static trz_stream any_stream(struct model *m)
{
	return m->streams[below(m, STREAMS)];
}

static void add(struct model *m, const struct held *l, int sign)
{
	const uint64_t figures[] = {1, align_up(l->requested, 512), l->requested};
	for (int f = COUNT; f <= REQUESTED; f++) {
		m->now[f][l->small ? SMALL_POOL : LARGE_POOL] += (uint64_t)sign * figures[f];
		m->now[f][ALL] += (uint64_t)sign * figures[f];
	}
}

static void alloc_one(struct model *m)
{
	static const uint64_t most[] = {512, KIB(4), KIB(32), KIB(32), MIB(1), MIB(20)};
	struct held l = {.requested = 1 + below(m, most[below(m, LENGTH(most))])};
	trz_pointer_info info;
	l.p = rig_alloc(&m->rig, l.requested, any_stream(m));
	assert_ok(trz_query(m->rig.heap, l.p, &info));
	l.small = info.small;
	m->live[m->count++] = l;
	add(m, &l, 1);
}

static void free_one(struct model *m)
{
	unsigned i = (unsigned)below(m, m->count);
	struct held l = m->live[i];
	m->live[i] = m->live[--m->count];
	uint64_t how = below(m, 8);
	if (how == 0)
		assert_ok(trz_record_stream(m->rig.heap, l.p, any_stream(m)));
	if (how == 1)
		assert_ok(trz_free_on(m->rig.heap, l.p, any_stream(m)));
	else
		rig_free(&m->rig, l.p);
	add(m, &l, -1);
}

static void grow_one(struct model *m)
{
	struct held *l = &m->live[below(m, m->count)];
	uint64_t size = l->requested + 1 + below(m, 600);
	if (trz_grow(m->rig.heap, l->p, size) != TRZ_OK)
		return;
	add(m, l, -1);
	l->requested = size;
	add(m, l, 1);
}

static void switch_history(struct model *m)
{
	assert_ok(m->history ? trz_history_stop(m->rig.heap) : trz_history_start(m->rig.heap, 100));
	m->history = !m->history;
}

static uint64_t value_of(const trz_stat_value *values, size_t count, const char *figure, const char *pool,
                         const char *kind)
{
	char name[64];
	snprintf(name, sizeof name, "%s.%s.%s", figure, pool, kind);
	for (size_t i = 0; i < count; i++)
		if (strcmp(values[i].name, name) == 0)
			return values[i].value;
	fail_msg("no statistic %s", name);
	return 0;
}

/* Memory that waits is known to the heap alone: its figure is taken from there, the peaks of it are not. */
static void compare(struct model *m, bool reset)
{
	trz_stat_value values[STATS_MAX];
	size_t count;
	assert_ok(trz_stats(m->rig.heap, values, STATS_MAX, &count));
	for (int f = 0; f < FIGURES; f++)
		for (int pool = 0; pool < POOLS; pool++) {
			uint64_t now = value_of(values, count, figure_names[f], pool_names[pool], "current");
			uint64_t peak = value_of(values, count, figure_names[f], pool_names[pool], "peak");
			if (f > REQUESTED)
				m->now[f][pool] = now;
			m->peak[f][pool] = reset ? m->now[f][pool] : max_u64(m->peak[f][pool], m->now[f][pool]);
			if (now != m->now[f][pool] || peak != m->peak[f][pool])
				fail_msg("seed %llu: %s.%s is %llu, at most %llu; the model has %llu, %llu",
				         (unsigned long long)m->seed, figure_names[f], pool_names[pool], (unsigned long long)now,
				         (unsigned long long)peak, (unsigned long long)m->now[f][pool],
				         (unsigned long long)m->peak[f][pool]);
		}
}

static bool act(struct model *m)
{
	uint64_t what = below(m, 100);
	if (m->count == 0 || (what < 48 && m->count < LIVE_MAX)) {
		alloc_one(m);
	} else if (what < 92) {
		free_one(m);
	} else if (what < 95) {
		grow_one(m);
	} else if (what < 97) {
		rig_sync(&m->rig);
		assert_ok(trz_poll(m->rig.heap));
	} else if (what == 97) {
		switch_history(m);
	} else if (what == 98) {
		assert_ok(trz_reset_peaks(m->rig.heap));
		return true;
	} else {
		assert_ok(trz_check(m->rig.heap));
	}
	return false;
}

static void play(uint64_t seed)
{
	static struct model m;
	m = (struct model){.rig = rig_open(GIB(8), NULL), .random = seed, .seed = seed};
	for (int i = 1; i < STREAMS; i++)
		m.streams[i] = rig_stream(&m.rig);
	for (int i = 0; i < EVENTS; i++)
		compare(&m, act(&m));
	while (m.count)
		free_one(&m);
	rig_sync(&m.rig);
	rig_close(&m.rig);
}

static void test_peaks_are_those_of_the_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		play(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peaks_are_those_of_the_model),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
