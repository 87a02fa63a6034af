/* SPDX-License-Identifier: Apache-2.0
 *
 * All of it at once, at random: packed and dedicated memory on three streams, grown, used on other streams, freed
 * in every way, exported, imported and opened to a peer, on a device that is nearly full. Every live byte is stamped
 * and verified, so that memory reused or unmapped too early shows.
 */
#include <unistd.h>

#include "accounts.h"
#include "prng.h"
#include "rig.h"

enum { HELD = 24, STREAMS = 3, EVENTS = 2500, SEEDS = 40 };

struct item {
	void *p;
	size_t size;
	unsigned stream;
	bool shared;         /* may be exported */
	bool import;
	unsigned exports;
	uint64_t tag;
};

struct play {
	struct rig rig;
	trz_stream stream[STREAMS];
	struct item held[HELD];
	void *exported[4 * HELD];  /* freed, with an export to be ended */
	size_t exported_count;
	uint64_t random, tags;
};

static uint64_t below(struct play *g, uint64_t bound)
{
	return prng_below(&g->random, bound);
}

static void stamp(struct play *g, struct item *i)
{
	i->tag = ++g->tags;
	assert_ok(sim_stamp(g->rig.s, g->rig.c, g->stream[i->stream], (trz_addr)i->p, i->size, i->tag));
}

static void verify(struct play *g, const struct item *i, unsigned stream)
{
	if (!i->import)  /* its bytes are also somebody else's */
		assert_ok(sim_verify(g->rig.s, g->rig.c, g->stream[stream], (trz_addr)i->p, i->size, i->tag));
}

static bool refused(trz_status status)
{
	if (status != TRZ_ERROR_OUT_OF_MEMORY)
		assert_ok(status);
	return status != TRZ_OK;
}

static void take(struct play *g, struct item *i)
{
	bool dedicated = below(g, 2);
	size_t size = below(g, 3) ? MIB(1) + below(g, MIB(12)) : 8 + below(g, KIB(60));
	*i = (struct item){.size = align_up(size, 8), .stream = (unsigned)below(g, STREAMS)};
	i->shared = dedicated && below(g, 2);
	const trz_alloc_params params = {
	    .struct_size = sizeof params, .size = i->size, .stream = g->stream[i->stream],
	    .flags = !dedicated ? 0 : i->shared ? TRZ_ALLOC_SHARE_FD : TRZ_ALLOC_CONTIGUOUS};
	if (!refused(trz_alloc_with(g->rig.heap, &params, &i->p)))
		stamp(g, i);
}

static void join_streams(struct play *g, unsigned to)
{
	for (unsigned s = 0; s < STREAMS; s++)
		rig_order(&g->rig, g->stream[s], g->stream[to]);
}

static void grow(struct play *g, struct item *i)
{
	size_t size = i->size + 8 * below(g, MIB(1));
	if (i->import)
		return;
	trz_status status = trz_grow(g->rig.heap, i->p, size);
	if (status == TRZ_ERROR_NO_ROOM || refused(status))
		return;
	verify(g, i, i->stream);
	join_streams(g, i->stream);  /* others may still have to see the old stamp */
	i->size = size;
	stamp(g, i);
}

/* Another stream uses it; what comes on its own stream is ordered behind by the free alone. */
static void use_elsewhere(struct play *g, struct item *i)
{
	unsigned other = (unsigned)below(g, STREAMS);
	rig_order(&g->rig, g->stream[i->stream], g->stream[other]);
	assert_ok(trz_record_stream(g->rig.heap, i->p, g->stream[other]));
	verify(g, i, other);
}

static trz_event record(struct play *g, unsigned stream)
{
	trz_event event = NULL;
	const trz_driver *d = g->rig.d;
	assert_ok(d->event_create(d->self, g->rig.c, &event));
	assert_ok(d->event_record(d->self, g->rig.c, event, g->stream[stream]));
	return event;
}

static void drop(struct play *g, struct item *i)
{
	unsigned other = (unsigned)below(g, STREAMS), way = (unsigned)below(g, 3);
	verify(g, i, i->stream);
	if (way == 0) {
		rig_free(&g->rig, i->p);
	} else {
		join_streams(g, other);  /* all uses, wherever they are, come before */
		if (way == 1)
			assert_ok(trz_free_on(g->rig.heap, i->p, g->stream[other]));
		else
			assert_ok(trz_free_after(g->rig.heap, i->p, record(g, other)));
	}
	for (unsigned n = 0; n < i->exports; n++)
		g->exported[g->exported_count++] = i->p;
	i->p = NULL;
}

static void end_export(struct play *g)
{
	if (g->exported_count)
		assert_ok(trz_export_end(g->rig.heap, g->exported[--g->exported_count]));
}

static void share(struct play *g, struct item *i)
{
	struct item *to = &g->held[below(g, HELD)];
	trz_pointer_info info;
	int fd = -1;
	if (!i->shared || to->p || i->exports == 3 || g->exported_count > HELD)
		return;
	assert_ok(trz_export(g->rig.heap, i->p, TRZ_ALLOC_SHARE_FD, &fd));
	i->exports++;
	assert_ok(trz_query(g->rig.heap, i->p, &info));
	*to = (struct item){.size = info.size, .stream = (unsigned)below(g, STREAMS), .import = true};
	assert_ok(trz_import(g->rig.heap, TRZ_ALLOC_SHARE_FD, &fd, info.size, g->stream[to->stream], &to->p));
	close(fd);
}

static void step(struct play *g)
{
	struct item *i = &g->held[below(g, HELD)];
	unsigned what = (unsigned)below(g, 100);
	if (what < 2)
		assert_ok(trz_trim(g->rig.heap, below(g, MIB(128)), NULL));
	else if (what < 8)
		end_export(g);
	else if (!i->p)
		take(g, i);
	else if (what < 20)
		use_elsewhere(g, i);
	else if (what < 40)
		grow(g, i);
	else if (what < 55)
		share(g, i);
	else
		drop(g, i);
}

static void expect_sound(struct play *g)
{
	struct accounts a = accounts_read(g->rig.heap);
	assert_true(accounts_balance(&a));
	rig_check(&g->rig);
}

static void play_one(uint64_t seed)
{
	struct play g = {.random = seed};
	g.rig = rig_machine((sim_config){.devices = 2, .capacity = MIB(160), .seed = seed,
	                                 .schedule = (sim_schedule)(seed % SIM_SCHEDULES)});
	rig_open_heap(&g.rig, seed % 2 ? NULL : "slack_per_mille:0,tile_size:2MiB,tile_size_max:4MiB");
	for (unsigned s = 0; s < STREAMS; s++)
		g.stream[s] = rig_stream(&g.rig);
	for (unsigned n = 0; n < EVENTS; n++) {
		step(&g);
		sim_tick(g.rig.s, seed % 3 * 10);
		if (n == EVENTS / 2)
			assert_ok(trz_enable_peer(g.rig.heap, 1, true));
		if (n % 50 == 0)
			expect_sound(&g);
	}
	for (size_t i = 0; i < HELD; i++)
		if (g.held[i].p)
			drop(&g, &g.held[i]);
	while (g.exported_count)
		end_export(&g);
	rig_sync(&g.rig);
	assert_ok(trz_trim(g.rig.heap, 0, NULL));
	expect_sound(&g);
	assert_int_equal(rig_stat(&g.rig, "reserved_bytes.all.current"), 0);
	assert_int_equal(rig_stat(&g.rig, "imported_bytes.current"), 0);
	assert_int_equal(rig_stat(&g.rig, "exported_bytes.current"), 0);
	assert_int_equal(sim_device_used(g.rig.s, 0), 0);
	rig_close(&g.rig);
}

static void test_at_random(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		play_one(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_at_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
