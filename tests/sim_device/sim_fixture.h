/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the simulated device share: an open machine with its primary context, one tile laid somewhere, and
 * assertions on violations.
 */
#ifndef TRZ_TESTS_SIM_FIXTURE_H
#define TRZ_TESTS_SIM_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bits.h"
#include "sim.h"

/* A machine under test. `d` and `self` make slot calls short: f.d->create(f.self, ...). */
struct fixture {
	sim *s;
	const trz_driver *d;
	void *self;
	trz_context c;
};

static inline struct fixture fixture_open(sim_config config)
{
	struct fixture f = {0};
	assert_int_equal(sim_open(&config, &f.s), TRZ_OK);
	f.d = sim_driver(f.s);
	f.self = f.d->self;
	assert_int_equal(sim_context_primary(f.s, 0, &f.c), TRZ_OK);
	return f;
}

/* Most tests watch violations rather than die of them. Calls that may wait never do, so that what is queued
 * stays queued until the test lets it run. */
static inline struct fixture fixture_lenient(unsigned lenient_rules)
{
	return fixture_open((sim_config){
		.continue_on_violation = true,
		.capacity = GIB(1),
		.lenient_rules = SIM_RULE_SYNC_MAYBE | lenient_rules,
	});
}

static inline void fixture_close(struct fixture *f)
{
	sim_close(f->s);
}

static inline trz_handle make_handle(struct fixture *f, uint64_t size)
{
	trz_tile_props props = {.device = 0};
	trz_handle handle = 0;
	assert_int_equal(f->d->create(f->self, &props, size, &handle), TRZ_OK);
	assert_true(handle != 0);
	return handle;
}

static inline trz_addr make_range(struct fixture *f, uint64_t size)
{
	trz_addr address = 0;
	assert_int_equal(f->d->reserve(f->self, size, 0, 0, &address), TRZ_OK);
	return address;
}

static inline void lay(struct fixture *f, trz_addr address, uint64_t size, trz_handle handle)
{
	int device = 0;
	assert_int_equal(f->d->map(f->self, address, size, handle), TRZ_OK);
	assert_int_equal(f->d->set_access(f->self, address, size, &device, 1), TRZ_OK);
}

/* A range of its own with memory of its own, whose handle is released already. */
static inline trz_addr make_memory(struct fixture *f, uint64_t size)
{
	trz_handle handle = make_handle(f, size);
	trz_addr address = make_range(f, size);
	lay(f, address, size, handle);
	assert_int_equal(f->d->release(f->self, handle), TRZ_OK);
	return address;
}

static inline trz_stream make_stream(struct fixture *f)
{
	trz_stream st = NULL;
	assert_int_equal(sim_stream_create(f->s, f->c, false, &st), TRZ_OK);
	return st;
}

static inline trz_event make_event(struct fixture *f)
{
	trz_event e = NULL;
	assert_int_equal(f->d->event_create(f->self, f->c, &e), TRZ_OK);
	return e;
}

static inline trz_event record_on(struct fixture *f, trz_stream st)
{
	trz_event e = make_event(f);
	assert_int_equal(f->d->event_record(f->self, f->c, e, st), TRZ_OK);
	return e;
}

static inline void expect_clean(struct fixture *f)
{
	if (sim_first_violation(f->s))
		print_error("%s\n", sim_first_violation(f->s));
	assert_int_equal(sim_violations(f->s), 0);
}

/* Exactly `count` violations so far, the first of which says `text`. */
static inline void expect_violation(struct fixture *f, uint64_t count, const char *text)
{
	assert_non_null(sim_first_violation(f->s));
	if (!strstr(sim_first_violation(f->s), text))
		print_error("first violation is: %s\n", sim_first_violation(f->s));
	assert_non_null(strstr(sim_first_violation(f->s), text));
	assert_int_equal(sim_violations(f->s), count);
}

#endif
