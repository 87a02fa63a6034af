/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets up a heap on a simulated machine, looks at it, and takes it down.
 */
#include "rig.h"

struct rig rig_machine(sim_config config)
{
	struct rig r = {0};
	config.continue_on_violation = true;
	assert_ok(sim_open(&config, &r.s));
	r.d = sim_driver(r.s);
	assert_ok(sim_context_primary(r.s, 0, &r.c));
	return r;
}

void rig_open_heap(struct rig *r, const char *conf)
{
	trz_open_params params = {.config = conf, .driver = r->d};
	assert_ok(trz_open(&params, &r->heap));
}

struct rig rig_open(uint64_t capacity, const char *conf)
{
	struct rig r = rig_machine((sim_config){.capacity = capacity, .lenient_rules = SIM_RULE_SYNC_MAYBE});
	rig_open_heap(&r, conf);
	return r;
}

static void expect_legal(struct rig *r)
{
	if (sim_violations(r->s))
		print_error("violation: %s\n", sim_first_violation(r->s));
	assert_int_equal(sim_violations(r->s), 0);
}

void rig_close(struct rig *r)
{
	char leaks[256];
	assert_ok(trz_close(r->heap));
	if (sim_leaks(r->s, leaks, sizeof leaks))
		print_error("left with the driver: %s\n", leaks);
	assert_int_equal(sim_leaks(r->s, NULL, 0), 0);
	rig_sync(r);
	expect_legal(r);
	sim_close(r->s);
}

trz_stream rig_stream(struct rig *r)
{
	trz_stream stream = NULL;
	assert_ok(sim_stream_create(r->s, r->c, false, &stream));
	return stream;
}

void *rig_alloc(struct rig *r, size_t size, trz_stream stream)
{
	void *p = NULL;
	assert_ok(trz_alloc(r->heap, size, 0, stream, &p));
	assert_true(size == 0 || p);
	return p;
}

void rig_free(struct rig *r, void *p)
{
	assert_ok(trz_free(r->heap, p));
}

void rig_sync(struct rig *r)
{
	trz_status status = sim_device_sync(r->s, 0);
	expect_legal(r);
	assert_ok(status);
}

void rig_check(struct rig *r)
{
	assert_ok(trz_check(r->heap));
	expect_legal(r);
}

trz_heap *rig_second_heap(struct rig *r)
{
	trz_open_params params = {.driver = r->d};
	trz_heap *heap = NULL;
	assert_ok(trz_open(&params, &heap));
	return heap;
}

uint64_t rig_stat_of(trz_heap *heap, const char *name)
{
	uint64_t value = 0;
	assert_ok(trz_stat(heap, name, &value));
	return value;
}

uint64_t rig_stat(const struct rig *r, const char *name)
{
	return rig_stat_of(r->heap, name);
}

uint64_t rig_calls(const struct rig *r)
{
	uint64_t calls = 0;
	for (int slot = 0; slot < SIM_SLOTS; slot++)
		calls += sim_calls(r->s, (sim_slot)slot);
	return calls;
}

void rig_order(struct rig *r, trz_stream from, trz_stream to)
{
	trz_event event = NULL;
	assert_ok(r->d->event_create(r->d->self, r->c, &event));
	assert_ok(r->d->event_record(r->d->self, r->c, event, from));
	assert_ok(r->d->stream_wait(r->d->self, r->c, to, event));
	assert_ok(r->d->event_destroy(r->d->self, r->c, event));
}
