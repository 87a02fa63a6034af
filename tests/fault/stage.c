/* SPDX-License-Identifier: Apache-2.0
 *
 * The stage, the list of all scenarios, and the checks after a disturbance.
 */
#include "stage.h"

#include <stdio.h>

#include "scenario.h"

/* ---- the list ---------------------------------------------------------------------------------------- */

static const char *only = "";

void scenario_choose(const char *part)
{
	only = part;
}

bool scenario_is_chosen(const struct scenario *s)
{
	return strstr(s->name, only);
}

bool scenarios_are_chosen(void)
{
	return *only;
}

const struct scenario *scenario_at(size_t i)
{
	static const struct scenarios *const all[] = {
		&scenarios_first, &scenarios_of_moves, &scenarios_of_order, &scenarios_of_pools, &scenarios_of_sharing,
		&scenarios_of_telling,
	};
	for (size_t k = 0; k < LENGTH(all); k++) {
		if (i < all[k]->count)
			return &all[k]->list[i];
		i -= all[k]->count;
	}
	return NULL;
}

uint64_t scenario_stride(const struct scenario *s, uint64_t points)
{
	return 1 + points / (s->points ? s->points : POINTS_OF_ONE);
}

/* ---- what preparations share --------------------------------------------------------------------------- */

void stage_keep(struct stage *g, void *p, size_t stamped)
{
	assert_true(g->count < STAGE_BLOCKS);
	g->held[g->count] = p;
	g->stamped[g->count++] = stamped;
}

void *stage_take(struct stage *g, size_t size, trz_stream stream)
{
	void *p = rig_alloc(&g->rig, size, stream);
	assert_ok(sim_stamp(g->rig.s, g->rig.c, stream, (trz_addr)p, size, (trz_addr)p));
	return p;
}

void stage_hold(struct stage *g, size_t size, trz_stream stream)
{
	stage_keep(g, stage_take(g, size, stream), size);
}

void stage_drop(struct stage *g, size_t i)
{
	assert_true(i < g->count);
	rig_free(&g->rig, g->held[i]);
	g->held[i] = g->held[--g->count];
	g->stamped[i] = g->stamped[g->count];
}

void stage_perforate(struct stage *g)
{
	size_t kept = 0;
	for (size_t i = 0; i < g->count; i++)
		if (i % 2) {
			rig_free(&g->rig, g->held[i]);
		} else {
			g->held[kept] = g->held[i];
			g->stamped[kept++] = g->stamped[i];
		}
	g->count = kept;
}

void stage_scatter(struct stage *g)
{
	for (int i = 0; i < 24; i++)
		stage_hold(g, MIB(16), g->a);
	stage_perforate(g);
}

void stage_scatter_and_wait(struct stage *g)
{
	stage_scatter(g);
	rig_sync(&g->rig);
}

/* No address is told twice, and what goes is what came. */
static void on_notice(void *user, trz_map_event event, void *address, size_t size)
{
	struct told *t = user;
	trz_addr a = (trz_addr)address;
	size_t i = 0;
	while (i < t->count && (a + size <= t->range[i].address || t->range[i].address + t->range[i].size <= a))
		i++;
	if (event == TRZ_MAP) {
		assert_int_equal(i, t->count);
		assert_true(i < STAGE_RANGES);
		t->range[t->count++].address = a;
		t->range[i].size = size;
		t->bytes += size;
		return;
	}
	assert_true(i < t->count && t->range[i].address == a && t->range[i].size == size);
	t->range[i] = t->range[--t->count];
	t->bytes -= size;
}

trz_status stage_listen(struct stage *g)
{
	g->told = (struct told){.listens = false};
	trz_status status = trz_set_map_callback(g->rig.heap, on_notice, &g->told);
	g->told.listens = status == TRZ_OK;
	return status;
}

/* What an allocation into g->p has returned. */
static trz_status given_or_null(const struct stage *g, trz_status status)
{
	if (status != TRZ_OK)
		assert_null(g->p);
	return status;
}

trz_status stage_alloc(struct stage *g, size_t size, trz_stream stream)
{
	g->p = g;
	return given_or_null(g, trz_alloc(g->rig.heap, size, 0, stream, &g->p));
}

trz_status stage_alloc_of(struct stage *g, trz_pool *pool, size_t size, trz_stream stream)
{
	g->p = g;
	return given_or_null(g, trz_pool_alloc(g->rig.heap, pool, size, 0, stream, &g->p));
}

trz_status stage_alloc_dedicated(struct stage *g, size_t size, trz_stream stream)
{
	trz_alloc_params params = {
		.struct_size = sizeof params, .size = size, .stream = stream, .flags = TRZ_ALLOC_CONTIGUOUS};
	g->p = g;
	return given_or_null(g, trz_alloc_with(g->rig.heap, &params, &g->p));
}

trz_status stage_trim(struct stage *g)
{
	return trz_trim(g->rig.heap, 0, NULL);
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static trz_status no_context_record(void *self, trz_context context, trz_event event)
{
	(void)self;
	(void)context;
	(void)event;
	return TRZ_ERROR_NOT_SUPPORTED;
}

static uint64_t capacity_of(const struct scenario *s)
{
	return s->capacity ? s->capacity : GIB(1);
}

void stage_note(struct stage *g)
{
	g->before = accounts_read(g->rig.heap);
	assert_ok(trz_get_limit(g->rig.heap, &g->limit));
}

void stage_open(struct stage *g, const struct scenario *s, bool classic)
{
	static char conf[300];
	*g = (struct stage){.conf = conf};
	snprintf(conf, sizeof conf, "%s%s", classic ? "vmm:off," : "", s->conf ? s->conf : "");
	g->rig = rig_machine((sim_config){.devices = 2, .capacity = capacity_of(s), .withheld = s->withheld, .seed = 11,
	                                  .host_faults = true, .lenient_rules = SIM_RULE_SYNC_MAYBE});
	g->old = *g->rig.d;
	g->old.context_record = no_context_record;
	if (s->old_driver)
		g->rig.d = &g->old;
	g->a = rig_stream(&g->rig);
	g->b = rig_stream(&g->rig);
	if (!s->prepare)
		return;
	rig_open_heap(&g->rig, conf);
	s->prepare(g);
	stage_note(g);
}

/* ---- judging ------------------------------------------------------------------------------------------- */

static void expect_held(struct stage *g, uint64_t count)
{
	struct accounts a = accounts_read(g->rig.heap);
	assert_int_equal(a.allocations[0] + a.allocations[1], count);
	assert_true(accounts_balance(&a));
	assert_int_equal(a.idle, 0);
}

/* After a failure: callers hold what they held, and the limit is what it was. */
static void expect_unchanged(struct stage *g)
{
	struct accounts a = accounts_read(g->rig.heap);
	size_t limit;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(a.allocations[i], g->before.allocations[i]);
		assert_int_equal(a.allocated[i], g->before.allocated[i]);
		assert_int_equal(a.requested_of[i], g->before.requested_of[i]);
	}
	assert_ok(trz_get_limit(g->rig.heap, &limit));
	assert_int_equal(limit, g->limit);
}

/* Small and large requests on both streams; the large ones as far as the device has room. */
static void use_heap(struct stage *g, uint64_t capacity)
{
	const size_t sizes[] = {100, KIB(20), KIB(100), capacity >= GIB(1) ? MIB(40) : MIB(1)};
	for (size_t i = 0; i < 2 * LENGTH(sizes); i++) {
		trz_stream stream = i % 2 ? g->a : g->b;
		void *p = stage_take(g, sizes[i / 2], stream);
		assert_ok(sim_verify(g->rig.s, g->rig.c, stream, (trz_addr)p, sizes[i / 2], (trz_addr)p));
		rig_free(&g->rig, p);
	}
}

/* Whoever listens anew is told the same. */
static void expect_told(struct stage *g)
{
	struct told before = g->told;
	if (!before.listens)
		return;
	assert_ok(stage_listen(g));
	assert_int_equal(g->told.count, before.count);
	for (size_t i = 0; i < before.count; i++)
		on_notice(&g->told, TRZ_UNMAP, (void *)before.range[i].address, before.range[i].size);
	g->told = before;
}

static void expect_content(struct stage *g)
{
	trz_pointer_info info;
	rig_sync(&g->rig);
	for (size_t i = 0; i < g->count; i++) {
		trz_addr address = (trz_addr)g->held[i];
		assert_ok(trz_query(g->rig.heap, g->held[i], &info));
		assert_ptr_equal(info.base, g->held[i]);
		if (g->stamped[i])
			assert_ok(sim_verify(g->rig.s, g->rig.c, g->a, address, g->stamped[i], address));
	}
	rig_sync(&g->rig);
}

static void give_everything_back(struct stage *g)
{
	for (size_t i = 0; i < g->count; i++)
		rig_free(&g->rig, g->held[i]);
	rig_free(&g->rig, g->imported);
	if (g->pool)
		assert_ok(trz_pool_release(g->rig.heap, g->pool));
	rig_sync(&g->rig);
	if (g->event)
		assert_ok(g->rig.d->event_destroy(g->rig.d->self, g->rig.c, g->event));
	assert_ok(trz_trim(g->rig.heap, 0, NULL));
	rig_check(&g->rig);
	assert_int_equal(rig_stat(&g->rig, "zombie_bytes.current"), 0);
	assert_int_equal(rig_stat(&g->rig, "reserved_bytes.all.current"), 0);
	assert_int_equal(sim_device_used(g->rig.s, 0), 0);
}

void stage_judge(struct stage *g, const struct scenario *s, trz_status status)
{
	if (status != TRZ_OK)
		assert_true(*trz_last_error());
	if (!g->rig.heap) { /* it was not opened, or it has been closed */
		if (s->prepare && sim_leaks(g->rig.s, NULL, 0) == 0)
			assert_ok(sim_device_sync(g->rig.s, 0));
		assert_int_equal(sim_violations(g->rig.s), 0);
		sim_close(g->rig.s);
		return;
	}
	if (g->frees ? status != TRZ_OK : status == TRZ_OK && g->p)
		stage_keep(g, g->p, 0);
	rig_check(&g->rig);
	expect_held(g, g->count);
	expect_told(g);
	if (status != TRZ_OK)
		expect_unchanged(g);
	assert_ok(trz_set_limit(g->rig.heap, 0));
	use_heap(g, capacity_of(s));
	rig_check(&g->rig);
	expect_held(g, g->count);
	expect_told(g);
	expect_content(g);
	give_everything_back(g);
	rig_close(&g->rig);
}
