/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated device's memory: handles, reservations, mappings, access, capacity, plain memory, sharing.
 */
#include "sim_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t granule = MIB(2);

static void test_aliases_alias(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_handle h = make_handle(&f, granule);
	trz_addr a = make_range(&f, granule), b = make_range(&f, granule);
	lay(&f, a, granule, h);
	lay(&f, b, granule, h);
	assert_int_equal(sim_fill(f.s, f.c, NULL, a + 100, 50, 7), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	unsigned char through[52];
	assert_true(sim_peek(f.s, b + 99, through, sizeof through));
	assert_int_equal(through[0], 0);
	assert_int_equal(through[1], 7);
	assert_int_equal(through[50], 7);
	assert_int_equal(through[51], 0);
	expect_clean(&f);
	fixture_close(&f);
}

static void test_host_pointer_reaches_device_memory(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_memory(&f, granule);
	*(volatile int *)a = 42;
	int seen = 0;
	assert_true(sim_peek(f.s, a, &seen, sizeof seen));
	assert_int_equal(seen, 42);
	fixture_close(&f);
}

static void test_memory_is_written_as_by_a_debugger(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_range(&f, 3 * granule);
	lay(&f, a, granule, make_handle(&f, granule));
	lay(&f, a + granule, granule, make_handle(&f, granule));
	assert_true(sim_poke(f.s, a + granule - 2, "word", 4));
	char seen[5] = "";
	assert_true(sim_peek(f.s, a + granule - 2, seen, 4));
	assert_string_equal(seen, "word");
	assert_false(sim_poke(f.s, a + 2 * granule - 2, "word", 4));
	expect_clean(&f);
	fixture_close(&f);
}

static bool host_reads(trz_addr address)
{
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	bool could = write(ends[1], (const void *)address, 1) == 1;
	close(ends[0]);
	close(ends[1]);
	return could;
}

static void test_host_faults_where_no_work_has_been(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){.capacity = GIB(1), .host_faults = true});
	trz_handle first = make_handle(&f, granule), second = make_handle(&f, granule), third = make_handle(&f, granule);
	trz_addr a = make_range(&f, 3 * granule);
	lay(&f, a, granule, second);
	lay(&f, a + granule, granule, first);
	lay(&f, a + 2 * granule, granule, third);
	assert_false(host_reads(a + granule));
	assert_int_equal(sim_fill(f.s, f.c, NULL, a + granule - 1, 2, 7), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	unsigned char through[4];
	assert_true(sim_peek(f.s, a + granule - 2, through, sizeof through));
	assert_memory_equal(through, ((unsigned char[]){0, 7, 7, 0}), sizeof through);
	assert_true(host_reads(a) && host_reads(a + granule));
	assert_false(host_reads(a + 2 * granule));
	assert_int_equal(f.d->unmap(f.self, a, 3 * granule), TRZ_OK);
	assert_false(host_reads(a));
	fixture_close(&f);
}

static void stamp(struct fixture *f, trz_addr address, uint64_t size, uint64_t tag)
{
	assert_int_equal(sim_stamp(f->s, f->c, NULL, address, size, tag), TRZ_OK);
}

static uint64_t wrong_after_check(struct fixture *f, trz_addr address, uint64_t size, uint64_t tag)
{
	uint64_t before = sim_violations(f->s);
	assert_int_equal(sim_verify(f->s, f->c, NULL, address, size, tag), TRZ_OK);
	sim_device_sync(f->s, 0);
	return sim_violations(f->s) - before;
}

/* Whether stamps lie in the memory or beside it (host_faults), whatever else uses the memory finds their words there,
 * and they find what it has written. */
static void stamps_are_content(bool host_faults)
{
	struct fixture f = fixture_open((sim_config){
		.capacity = GIB(1), .continue_on_violation = true, .host_faults = host_faults,
	});
	trz_handle memory = make_handle(&f, 4 * granule);
	trz_addr a = make_range(&f, 4 * granule), b = make_range(&f, 4 * granule), c = make_memory(&f, 4 * granule);
	lay(&f, a, 4 * granule, memory);
	lay(&f, b, 4 * granule, memory);
	assert_int_equal(wrong_after_check(&f, a, 64, 1), 1);  /* nothing has been written */
	stamp(&f, a, 4 * granule, 1);
	assert_int_equal(wrong_after_check(&f, a, 4 * granule, 1), 0);
	assert_int_equal(wrong_after_check(&f, a, 4 * granule, 2), 1);
	stamp(&f, b, granule, 2);
	assert_int_equal(wrong_after_check(&f, a, 4 * granule, 1), 1);
	assert_int_equal(wrong_after_check(&f, b, granule, 2), 0);
	for (uint64_t at = 0; at < 4 * granule; at += KIB(4))  /* many words */
		stamp(&f, a + at, KIB(4), at);
	for (uint64_t at = 0; at < 4 * granule; at += KIB(4))
		assert_int_equal(wrong_after_check(&f, a + at, KIB(4), at), 0);
	stamp(&f, c, 4 * granule, 3);
	assert_int_equal(sim_copy(f.s, f.c, NULL, a, c, 4 * granule), TRZ_OK);
	assert_int_equal(sim_fill(f.s, f.c, NULL, c, 4 * granule, 0), TRZ_OK);
	assert_int_equal(wrong_after_check(&f, c, 4 * granule, 3), 1);
	assert_int_equal(sim_copy(f.s, f.c, NULL, c, a, 4 * granule), TRZ_OK);
	assert_int_equal(wrong_after_check(&f, c, 4 * granule, 3), 0);
	fixture_close(&f);
}

static void test_stamps_are_content(void **state)
{
	(void)state;
	stamps_are_content(false);
	stamps_are_content(true);
}

static void test_capacity_is_enforced(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){.capacity = MIB(8), .context_overhead = MIB(2)});
	trz_tile_props props = {.device = 0};
	trz_handle h[4];
	for (int i = 0; i < 3; i++)
		h[i] = make_handle(&f, granule);
	assert_int_equal(f.d->create(f.self, &props, granule, &h[3]), TRZ_ERROR_OUT_OF_MEMORY);
	assert_non_null(strstr(trz_driver_last_error(), "create"));
	uint64_t free_bytes, total;
	assert_int_equal(f.d->mem_info(f.self, f.c, &free_bytes, &total), TRZ_OK);
	assert_int_equal(free_bytes, 0);
	assert_int_equal(total, MIB(8));
	assert_int_equal(f.d->release(f.self, h[0]), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), MIB(6));
	assert_int_equal(sim_device_peak(f.s, 0), MIB(8));
	assert_int_equal(f.d->create(f.self, &props, granule, &h[0]), TRZ_OK);
	fixture_close(&f);
}

/* What mem_info calls free is not all to be had, by any kind of allocation. */
static void test_the_last_of_a_device_may_be_withheld(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){.capacity = MIB(16), .withheld = MIB(5)});
	trz_tile_props props = {.device = 0};
	trz_handle h[6];
	trz_addr plain;
	uint64_t free_bytes, total;
	for (int i = 0; i < 4; i++)
		h[i] = make_handle(&f, granule);
	assert_int_equal(f.d->mem_alloc(f.self, f.c, 2 * granule, &plain), TRZ_ERROR_OUT_OF_MEMORY);
	h[4] = make_handle(&f, granule);
	assert_int_equal(f.d->create(f.self, &props, granule, &h[5]), TRZ_ERROR_OUT_OF_MEMORY);
	assert_int_equal(f.d->mem_info(f.self, f.c, &free_bytes, &total), TRZ_OK);
	assert_int_equal(free_bytes, MIB(6));
	for (int i = 0; i < 5; i++)
		assert_int_equal(f.d->release(f.self, h[i]), TRZ_OK);
	fixture_close(&f);
}

static void test_memory_stays_charged_while_mapped(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_handle h = make_handle(&f, granule);
	trz_addr a = make_range(&f, granule), b = make_range(&f, granule);
	lay(&f, a, granule, h);
	lay(&f, b, granule, h);
	assert_int_equal(f.d->release(f.self, h), TRZ_OK);
	assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), granule);
	assert_int_equal(f.d->unmap(f.self, b, granule), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), 0);
	assert_int_equal(f.d->unreserve(f.self, a, granule), TRZ_OK);
	assert_int_equal(f.d->unreserve(f.self, b, granule), TRZ_OK);
	assert_int_equal(sim_leaks(f.s, NULL, 0), 0);
	expect_clean(&f);
	fixture_close(&f);
}

static void test_content_dies_with_its_memory(void **state)
{
	(void)state;
	for (int poison = 0; poison < 2; poison++) {
		struct fixture f = fixture_open((sim_config){.capacity = granule, .poison = poison});
		trz_addr a = make_memory(&f, granule);
		assert_int_equal(sim_fill(f.s, f.c, NULL, a, granule, 0x55), TRZ_OK);
		assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
		assert_true(sim_resident_bytes(f.s) >= granule);
		assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_OK);
		assert_int_equal(sim_resident_bytes(f.s), 0);
		a = make_memory(&f, granule);
		unsigned char byte;
		assert_true(sim_peek(f.s, a + 12345, &byte, 1));
		assert_int_equal(byte, poison ? 0xdb : 0);
		fixture_close(&f);
	}
}

static void test_double_release(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_handle h = make_handle(&f, granule);
	assert_int_equal(f.d->release(f.self, h), TRZ_OK);
	make_handle(&f, granule);
	assert_int_equal(f.d->release(f.self, h), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 1, "release");
	assert_int_equal(sim_device_used(f.s, 0), granule);
	fixture_close(&f);
}

static void test_unmap_of_a_part(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_memory(&f, 2 * granule);
	assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 1, "ends inside a mapping");
	assert_int_equal(f.d->unmap(f.self, a + granule, granule), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_violations(f.s), 2);
	assert_int_equal(f.d->unmap(f.self, a, 2 * granule), TRZ_OK);
	assert_int_equal(f.d->unmap(f.self, a, 2 * granule), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_violations(f.s), 3);
	fixture_close(&f);
}

static void test_one_unmap_covers_neighbours(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_range(&f, 4 * granule);
	lay(&f, a, granule, make_handle(&f, granule));
	lay(&f, a + granule, 2 * granule, make_handle(&f, 2 * granule));
	assert_int_equal(f.d->unmap(f.self, a, 4 * granule), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 1, "has a hole");
	assert_int_equal(f.d->unmap(f.self, a, 3 * granule), TRZ_OK);
	uint64_t word;
	assert_false(sim_peek(f.s, a, &word, sizeof word));
	fixture_close(&f);
}

/* Each wrong map: the violation, and no effect. */
static void test_wrong_maps(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_handle h = make_handle(&f, granule);
	trz_addr a = make_range(&f, 4 * granule);
	uint64_t count = 0;
	lay(&f, a + granule, granule, h);
	const struct {
		trz_addr address;
		uint64_t size;
		trz_handle handle;
	} wrong[] = {
		{a + granule, granule, h},            /* something is there */
		{a, 2 * granule, h},                  /* not the handle's size */
		{a + granule / 2, granule, h},        /* not aligned */
		{a + 4 * granule, granule, h},        /* past the reservation */
		{a - granule, granule, h},            /* before it */
		{a + 2 * granule, granule, h + 256},  /* no such handle */
		{a + 2 * granule, granule, 0},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		trz_status status = f.d->map(f.self, wrong[i].address, wrong[i].size, wrong[i].handle);
		assert_int_equal(status, wrong[i].size == granule ? TRZ_ERROR_INVALID_ARGUMENT : TRZ_ERROR_NOT_SUPPORTED);
		assert_int_equal(sim_violations(f.s), ++count);
	}
	assert_int_equal(f.d->release(f.self, h), TRZ_OK);
	assert_int_equal(f.d->map(f.self, a, granule, h), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_violations(f.s), ++count);
	char text[128];
	assert_int_equal(sim_leaks(f.s, text, sizeof text), 2);
	assert_string_equal(text, "1 mapping, 1 reservation");
	fixture_close(&f);
}

static void test_set_access_needs_whole_mappings(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_range(&f, 4 * granule);
	int device = 0;
	lay(&f, a, granule, make_handle(&f, granule));
	lay(&f, a + 2 * granule, 2 * granule, make_handle(&f, 2 * granule));
	assert_int_equal(f.d->set_access(f.self, a, 4 * granule, &device, 1), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 1, "has a hole");
	assert_int_equal(f.d->set_access(f.self, a + 2 * granule, granule, &device, 1),
	                 TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_violations(f.s), 2);
	fixture_close(&f);
}

static void test_unreserve_is_exact(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_range(&f, 4 * granule);
	assert_int_equal(f.d->unreserve(f.self, a, granule), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(f.d->unreserve(f.self, a + granule, 3 * granule), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 2, "not a reservation");
	lay(&f, a + 3 * granule, granule, make_handle(&f, granule));
	assert_int_equal(f.d->unreserve(f.self, a, 4 * granule), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_violations(f.s), 3);
	assert_int_equal(f.d->unmap(f.self, a + 3 * granule, granule), TRZ_OK);
	assert_int_equal(f.d->unreserve(f.self, a, 4 * granule), TRZ_OK);
	fixture_close(&f);
}

static void test_reserve(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){.va_bytes = GIB(1)});
	trz_addr a, b, c;
	assert_int_equal(f.d->reserve(f.self, granule, 0, 0, &a), TRZ_OK);
	assert_int_equal(f.d->reserve(f.self, granule, MIB(64), 0, &b), TRZ_OK);
	assert_int_equal(b % MIB(64), 0);
	assert_int_equal(f.d->reserve(f.self, granule, 0, b + MIB(128), &c), TRZ_OK);
	assert_int_equal(c, b + MIB(128));
	assert_int_equal(f.d->reserve(f.self, GIB(1), 0, 0, &c), TRZ_ERROR_ADDRESS_SPACE);
	assert_int_equal(f.d->reserve(f.self, granule + 1, 0, 0, &c), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(f.d->reserve(f.self, granule, 3, 0, &c), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(f.d->unreserve(f.self, a, granule), TRZ_OK);
	assert_int_equal(f.d->reserve(f.self, granule, 0, 0, &c), TRZ_OK);
	assert_int_equal(c, a);
	expect_clean(&f);
	fixture_close(&f);
}

static void test_work_without_access(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_range(&f, granule);
	assert_int_equal(f.d->map(f.self, a, granule, make_handle(&f, granule)), TRZ_OK);
	assert_int_equal(sim_fill(f.s, f.c, NULL, a, 8, 1), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_ERROR_CONTEXT_DEAD);
	expect_violation(&f, 1, "no access rights");
	assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_ERROR_CONTEXT_DEAD);
	fixture_close(&f);
}

static void test_access_does_not_survive_a_remap(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_handle h = make_handle(&f, granule);
	trz_addr a = make_range(&f, granule);
	lay(&f, a, granule, h);
	assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), granule);
	assert_int_equal(f.d->map(f.self, a, granule, h), TRZ_OK);
	assert_int_equal(sim_fill(f.s, f.c, NULL, a, 8, 1), TRZ_OK);
	sim_run(f.s, 1);
	expect_violation(&f, 1, "no access rights");
	fixture_close(&f);
}

static void test_access_is_per_device(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){
		.devices = 2, .continue_on_violation = true, .lenient_rules = SIM_RULE_SYNC_MAYBE});
	trz_context other;
	assert_int_equal(sim_context_primary(f.s, 1, &other), TRZ_OK);
	trz_addr a = make_memory(&f, granule);
	bool can = false;
	assert_int_equal(f.d->peer_access(f.self, 1, 0, &can), TRZ_OK);
	assert_true(can);
	int both[2] = {0, 1};
	assert_int_equal(f.d->set_access(f.self, a, granule, both, 2), TRZ_OK);
	assert_int_equal(sim_fill(f.s, other, NULL, a, 8, 1), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 1), TRZ_OK);
	expect_clean(&f);
	trz_addr b = make_memory(&f, granule);
	assert_int_equal(sim_fill(f.s, other, NULL, b, 8, 1), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 1), TRZ_ERROR_CONTEXT_DEAD);
	expect_violation(&f, 1, "no access rights");
	assert_int_equal(sim_fill(f.s, f.c, NULL, b, 8, 1), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	fixture_close(&f);
}

/* Each listed device is given access, the others are not; copies need it on both sides. */
static void test_copies_between_devices(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){
		.devices = 3, .continue_on_violation = true, .lenient_rules = SIM_RULE_SYNC_MAYBE});
	trz_context second, third;
	assert_int_equal(sim_context_primary(f.s, 1, &second), TRZ_OK);
	assert_int_equal(sim_context_primary(f.s, 2, &third), TRZ_OK);
	trz_tile_props props = {.device = 1};
	trz_handle h;
	int two[2] = {1, 0};
	trz_addr here = make_memory(&f, granule), there = make_range(&f, granule);
	assert_int_equal(f.d->create(f.self, &props, granule, &h), TRZ_OK);
	assert_int_equal(f.d->map(f.self, there, granule, h), TRZ_OK);
	assert_int_equal(f.d->set_access(f.self, there, granule, two, 2), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 1), granule);
	assert_int_equal(sim_stamp(f.s, f.c, NULL, here, granule, 4), TRZ_OK);
	assert_int_equal(sim_copy(f.s, f.c, NULL, there, here, granule), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	assert_int_equal(*(volatile uint64_t *)there, *(volatile uint64_t *)here);
	expect_clean(&f);
	assert_int_equal(sim_copy(f.s, second, NULL, there, here, 8), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 1), TRZ_ERROR_CONTEXT_DEAD);
	expect_violation(&f, 1, "no access rights");
	assert_int_equal(sim_fill(f.s, third, NULL, there, 8, 1), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 2), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(sim_violations(f.s), 2);
	fixture_close(&f);
}

/* A copy goes through the host; a fill, and work of a device on created memory of another, is an illegal access. */
static void test_copies_reach_plain_memory_of_another_device(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){
		.devices = 2, .no_peers = true, .continue_on_violation = true, .lenient_rules = SIM_RULE_SYNC_MAYBE});
	trz_context other;
	trz_addr here = 0, there = 0;
	char in[] = "through the host", out[sizeof in] = "";
	assert_int_equal(sim_context_primary(f.s, 1, &other), TRZ_OK);
	assert_int_equal(f.d->mem_alloc(f.self, f.c, MIB(2), &here), TRZ_OK);
	assert_int_equal(f.d->mem_alloc(f.self, other, MIB(2), &there), TRZ_OK);
	assert_int_equal(sim_copy(f.s, other, NULL, here, (uintptr_t)in, sizeof in), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 1), TRZ_OK);
	assert_int_equal(sim_copy(f.s, f.c, NULL, there, here, sizeof in), TRZ_OK);
	assert_int_equal(sim_copy(f.s, f.c, NULL, (uintptr_t)out, there, sizeof in), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	assert_string_equal(out, in);
	expect_clean(&f);

	trz_addr created = make_memory(&f, MIB(2));
	assert_int_equal(sim_copy_peer(f.s, other, NULL, there, created, MIB(2)), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 1), TRZ_OK);
	expect_clean(&f);
	assert_int_equal(sim_copy(f.s, other, NULL, there, created, MIB(2)), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 1), TRZ_ERROR_CONTEXT_DEAD);
	assert_int_equal(sim_fill(f.s, f.c, NULL, there, MIB(2), 1), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_ERROR_CONTEXT_DEAD);
	expect_violation(&f, 2, "the mapping has no access rights for the device");
	fixture_close(&f);
}

static void test_devices_that_are_no_peers(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){.devices = 2, .no_peers = true});
	bool can = true;
	int both[2] = {0, 1};
	trz_addr a = make_memory(&f, granule);
	assert_int_equal(f.d->peer_access(f.self, 1, 0, &can), TRZ_OK);
	assert_false(can);
	assert_int_equal(f.d->peer_access(f.self, 1, 1, &can), TRZ_OK);
	assert_true(can);
	assert_int_equal(f.d->set_access(f.self, a, granule, both, 2), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(f.d->set_access(f.self, a, granule, both, 1), TRZ_OK);
	expect_clean(&f);
	fixture_close(&f);
}

static void test_unmap_under_unfinished_work(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_memory(&f, granule), b = make_memory(&f, granule);
	trz_stream st = make_stream(&f);
	assert_int_equal(sim_copy(f.s, f.c, st, b, a + granule - 8, 8), TRZ_OK);
	assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_OK);
	expect_violation(&f, 1, "unfinished copy");
	sim_run(f.s, UINT64_MAX);
	assert_int_equal(sim_violations(f.s), 2);
	fixture_close(&f);
}

static void test_unmap_under_unfinished_work_faults_when_lenient(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(SIM_RULE_UNMAP_IN_USE);
	trz_addr a = make_memory(&f, granule);
	assert_int_equal(sim_fill(f.s, f.c, make_stream(&f), a, 8, 1), TRZ_OK);
	assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_OK);
	expect_clean(&f);
	sim_run(f.s, UINT64_MAX);
	expect_violation(&f, 1, "nothing is mapped");
	fixture_close(&f);
}

static void test_remap_behind_work(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(SIM_RULE_UNMAP_IN_USE);
	trz_handle h = make_handle(&f, granule);
	trz_addr a = make_range(&f, granule);
	lay(&f, a, granule, h);
	assert_int_equal(sim_fill(f.s, f.c, make_stream(&f), a, 8, 1), TRZ_OK);
	assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_OK);
	lay(&f, a, granule, h);
	sim_run(f.s, UINT64_MAX);
	expect_violation(&f, 1, "younger than the work");
	fixture_close(&f);
}

/* With the rule, a call that may wait does so by seed: both kinds turn up, and each is right. */
static void test_unmap_waits_maybe(void **state)
{
	(void)state;
	unsigned waited = 0;
	for (uint64_t seed = 0; seed < 32; seed++) {
		struct fixture f = fixture_open((sim_config){.seed = seed});
		trz_addr a = make_memory(&f, granule), b = make_memory(&f, granule);
		assert_int_equal(sim_fill(f.s, f.c, make_stream(&f), b, 8, 1), TRZ_OK);
		assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_OK);
		waited += sim_unfinished(f.s) == 0;
		fixture_close(&f);
	}
	assert_in_range(waited, 4, 28);
}

static void test_plain_memory_is_packed(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a[3], large;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(f.d->mem_alloc(f.self, f.c, 1000, &a[i]), TRZ_OK);
		assert_int_equal(a[i] % 256, 0);
	}
	assert_int_equal(sim_device_used(f.s, 0), MIB(2));
	assert_int_equal(f.d->mem_alloc(f.self, f.c, MIB(2) + 1, &large), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), MIB(6));
	assert_int_equal(sim_stamp(f.s, f.c, NULL, a[1], 1000, 5), TRZ_OK);
	assert_int_equal(sim_stamp(f.s, f.c, NULL, a[2], 1000, 6), TRZ_OK);
	assert_int_equal(sim_verify(f.s, f.c, NULL, a[1], 1000, 5), TRZ_OK);
	assert_int_equal(sim_device_sync(f.s, 0), TRZ_OK);
	assert_int_equal(sim_leaks(f.s, NULL, 0), 4);
	assert_int_equal(f.d->mem_free(f.self, f.c, a[1]), TRZ_OK);
	trz_addr again;
	assert_int_equal(f.d->mem_alloc(f.self, f.c, 1024, &again), TRZ_OK);
	assert_int_equal(again, a[1]);
	for (int i = 0; i < 3; i++)
		assert_int_equal(f.d->mem_free(f.self, f.c, a[i]), TRZ_OK);
	assert_int_equal(f.d->mem_free(f.self, f.c, large), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), 0);
	assert_int_equal(sim_leaks(f.s, NULL, 0), 0);
	expect_clean(&f);
	fixture_close(&f);
}

/* What 64 allocations take, and their distance, as an H200 had it (docs/bench/gpu/h200/rules.txt). */
static void test_plain_memory_takes_what_a_gpu_takes(void **state)
{
	static const struct {
		uint64_t size, taken, step;
	} seen[] = {
		{KIB(64), MIB(4), KIB(64)}, {MIB(1), MIB(64), MIB(1)}, {MIB(2), MIB(128), MIB(2)}, {MIB(3), MIB(256), MIB(4)},
		{1, MIB(2), 512}, {512, MIB(2), 512},  /* there 0, for the context's own memory has room for them */
	};
	enum { COUNT = 64 };
	(void)state;
	struct fixture f = fixture_lenient(0);
	for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) {
		trz_addr a[COUNT];
		uint64_t least = UINT64_MAX;
		for (int k = 0; k < COUNT; k++) {
			assert_int_equal(f.d->mem_alloc(f.self, f.c, seen[i].size, &a[k]), TRZ_OK);
			uint64_t step = k ? (a[k] > a[k - 1] ? a[k] - a[k - 1] : a[k - 1] - a[k]) : UINT64_MAX;
			least = step < least ? step : least;
		}
		assert_int_equal(sim_device_used(f.s, 0), seen[i].taken);
		assert_int_equal(least, seen[i].step);
		for (int k = 0; k < COUNT; k++)
			assert_int_equal(f.d->mem_free(f.self, f.c, a[k]), TRZ_OK);
	}
	expect_clean(&f);
	fixture_close(&f);
}

static void test_plain_memory_misuse(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a, b;
	assert_int_equal(f.d->mem_alloc(f.self, f.c, 512, &a), TRZ_OK);
	assert_int_equal(f.d->mem_alloc(f.self, f.c, 512, &b), TRZ_OK);
	assert_int_equal(f.d->mem_free(f.self, f.c, a), TRZ_OK);
	assert_int_equal(f.d->mem_free(f.self, f.c, a), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 1, "mem_free");
	assert_int_equal(f.d->mem_free(f.self, f.c, b + 8), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(f.d->unmap(f.self, align_down(b, granule), granule), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_violations(f.s), 3);
	trz_context other;
	assert_int_equal(sim_context_create(f.s, 0, &other), TRZ_OK);
	assert_int_equal(f.d->mem_free(f.self, other, b), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_violations(f.s), 4);
	assert_int_equal(f.d->mem_alloc(f.self, f.c, GIB(2), &a), TRZ_ERROR_OUT_OF_MEMORY);
	fixture_close(&f);
}

static void test_plain_free_waits_when_lenient(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_addr a;
	assert_int_equal(f.d->mem_alloc(f.self, f.c, 512, &a), TRZ_OK);
	assert_int_equal(sim_fill(f.s, f.c, make_stream(&f), a, 8, 1), TRZ_OK);
	assert_int_equal(f.d->mem_free(f.self, f.c, a), TRZ_OK);
	assert_int_equal(sim_unfinished(f.s), 0);
	expect_clean(&f);
	fixture_close(&f);
}

static void test_device_without_virtual_memory(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){.no_vmm = true});
	trz_device_info info;
	assert_int_equal(f.d->device_info(f.self, 0, &info), TRZ_OK);
	assert_false(info.vmm);
	trz_tile_props props = {.device = 0};
	trz_handle h;
	trz_addr a;
	assert_int_equal(f.d->create(f.self, &props, granule, &h), TRZ_ERROR_NOT_SUPPORTED);
	assert_int_equal(f.d->reserve(f.self, granule, 0, 0, &a), TRZ_ERROR_NOT_SUPPORTED);
	assert_int_equal(f.d->mem_alloc(f.self, f.c, granule, &a), TRZ_OK);
	assert_int_equal(f.d->mem_free(f.self, f.c, a), TRZ_OK);
	fixture_close(&f);
}

static void test_export_and_import(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	trz_tile_props props = {.device = 0, .export_kinds = TRZ_EXPORT_FD};
	trz_handle h, again;
	int fd = -1;
	assert_int_equal(f.d->create(f.self, &props, granule, &h), TRZ_OK);
	assert_int_equal(f.d->export_handle(f.self, h, TRZ_EXPORT_FD, &fd), TRZ_OK);
	assert_int_equal(f.d->import_handle(f.self, TRZ_EXPORT_FD, &fd, &again), TRZ_OK);
	assert_true(again != h);
	trz_addr a = make_range(&f, granule), b = make_range(&f, granule);
	lay(&f, a, granule, h);
	lay(&f, b, granule, again);
	assert_int_equal(f.d->release(f.self, h), TRZ_OK);
	*(volatile int *)a = 99;
	assert_int_equal(*(volatile int *)b, 99);
	assert_int_equal(f.d->release(f.self, again), TRZ_OK);
	assert_int_equal(f.d->unmap(f.self, a, granule), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), granule);
	assert_int_equal(f.d->unmap(f.self, b, granule), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), granule);
	close(fd);
	assert_int_equal(sim_device_used(f.s, 0), 0);
	trz_handle closed = make_handle(&f, granule);
	assert_int_equal(f.d->export_handle(f.self, closed, TRZ_EXPORT_FD, &fd), TRZ_ERROR_INVALID_ARGUMENT);
	props.export_kinds = TRZ_EXPORT_FABRIC;
	assert_int_equal(f.d->create(f.self, &props, granule, &h), TRZ_ERROR_NOT_SUPPORTED);
	expect_clean(&f);
	fixture_close(&f);
}

/* Whatever the order of the tiles in a window, one set_access shows each at its place. */
static void test_tiles_out_of_sequence(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	const uint64_t place[] = {2, 0, 1, 3};
	trz_addr a = make_range(&f, 4 * granule), alias = make_range(&f, 4 * granule);
	int device = 0;
	for (uint64_t i = 0; i < 4; i++) {
		trz_handle h = make_handle(&f, granule);
		assert_int_equal(f.d->map(f.self, a + place[i] * granule, granule, h), TRZ_OK);
		lay(&f, alias + i * granule, granule, h);
	}
	assert_int_equal(f.d->set_access(f.self, a, 4 * granule, &device, 1), TRZ_OK);
	for (uint64_t i = 0; i < 4; i++) {
		*(volatile uint64_t *)(a + place[i] * granule) = i + 1;
		assert_int_equal(*(volatile uint64_t *)(alias + i * granule), i + 1);
	}
	expect_clean(&f);
	fixture_close(&f);
}

static unsigned host_mappings(void)
{
	char line[512];
	unsigned count = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	assert_non_null(maps);
	while (fgets(line, sizeof line, maps))
		count++;
	fclose(maps);
	return count;
}

static void test_tiles_in_sequence_merge(void **state)
{
	(void)state;
	enum { TILES = 200 };
	struct fixture f = fixture_lenient(0);
	trz_addr a = make_range(&f, TILES * granule);
	unsigned before = host_mappings();
	for (int i = 0; i < TILES; i++)
		lay(&f, a + (uint64_t)i * granule, granule, make_handle(&f, granule));
	assert_true(host_mappings() < before + 10);
	assert_int_equal(f.d->unmap(f.self, a, TILES * granule), TRZ_OK);
	assert_true(host_mappings() < before + 10);
	fixture_close(&f);
}

static unsigned long host_mapping_limit(void)
{
	unsigned long limit = 0;
	FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
	if (file && fscanf(file, "%lu", &limit) != 1)
		limit = 0;
	if (file)
		fclose(file);
	return limit;
}

/* Aliases of one tile cannot merge, so enough of them meet the limit; a sanitizer's runtime would not
 * survive. */
static void test_host_mapping_limit_is_named(void **state)
{
	(void)state;
	unsigned long limit = host_mapping_limit();
#ifdef TRZ_UNDER_SANITIZER
	limit = 0;
#endif
	if (limit == 0 || limit > 100000)
		skip();
	struct fixture f = fixture_lenient(0);
	trz_handle h = make_handle(&f, granule);
	trz_addr a = make_range(&f, (limit + 10) * granule);
	trz_status status = TRZ_OK;
	int device = 0;
	for (unsigned long i = 0; i < limit + 10 && status == TRZ_OK; i++) {
		status = f.d->map(f.self, a + i * granule, granule, h);
		if (status == TRZ_OK)
			status = f.d->set_access(f.self, a + i * granule, granule, &device, 1);
	}
	bool named = sim_violations(f.s) == 1 && strstr(sim_first_violation(f.s), "vm.max_map_count");
	fixture_close(&f);
	assert_int_equal(status, TRZ_ERROR_DRIVER);
	assert_true(named);
}

static void test_violation_is_fatal_by_default(void **state)
{
	(void)state;
	pid_t child = fork();
	if (child == 0) {
		signal(SIGABRT, SIG_DFL);
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		struct fixture f = fixture_open((sim_config){.capacity = GIB(1)});
		f.d->release(f.self, 12345);
		_exit(0);
	}
	int status = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void test_machines_side_by_side(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){0});
	struct fixture g = fixture_open((sim_config){0});
	trz_addr a = make_memory(&f, granule), b = make_memory(&g, granule);
	assert_true(a != b);
	*(volatile int *)a = 1;
	*(volatile int *)b = 2;
	assert_int_equal(*(volatile int *)a, 1);
	fixture_close(&f);
	assert_int_equal(*(volatile int *)b, 2);
	fixture_close(&g);
}

/* As the driver's pools have it: in a range of its own, next to each other or apart. */
static void test_plain_memory_at_chosen_places(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	const uint64_t part = MIB(32);
	char leaks[200];
	trz_context made;
	trz_stream st;
	trz_addr r;
	unsigned char bytes[16] = {0};
	assert_int_equal(sim_context_create(f.s, 0, &made), TRZ_OK);
	assert_int_equal(sim_stream_create(f.s, made, false, &st), TRZ_OK);
	uint64_t before = sim_device_used(f.s, 0), leaks_before = sim_leaks(f.s, leaks, sizeof leaks);
	assert_int_equal(sim_plain_range(f.s, made, GIB(4), &r), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), before);
	assert_int_equal(sim_leaks(f.s, leaks, sizeof leaks), leaks_before);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sim_plain_lay(f.s, made, r + (i < 2 ? i : 5) * part, part), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), before + 3 * part);
	assert_int_equal(sim_leaks(f.s, leaks, sizeof leaks), leaks_before + 3);
	assert_int_equal(sim_fill(f.s, made, st, r + part - 8, sizeof bytes, 7), TRZ_OK);
	assert_int_equal(sim_stream_sync(f.s, made, st), TRZ_OK);
	assert_true(sim_peek(f.s, r + part - 8, bytes, sizeof bytes));
	assert_int_equal(bytes[0] + bytes[15], 14);
	assert_int_equal(sim_plain_lay(f.s, made, r + 8 * part, GIB(1)), TRZ_ERROR_OUT_OF_MEMORY);
	assert_int_equal(sim_plain_lift(f.s, made, r + 5 * part), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), before + 2 * part);
	assert_int_equal(sim_plain_lay(f.s, made, r + 5 * part, part), TRZ_OK);
	expect_clean(&f);
	assert_int_equal(sim_plain_lift(f.s, made, r + 6 * part), TRZ_ERROR_INVALID_ARGUMENT);
	expect_violation(&f, 1, "not an allocation");
	assert_int_equal(sim_fill(f.s, made, st, r, 1, 9), TRZ_OK);
	assert_int_equal(sim_plain_lift(f.s, made, r), TRZ_OK);
	expect_violation(&f, 2, "not an allocation");
	assert_int_equal(sim_context_destroy(f.s, made), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), 0);
	assert_int_equal(sim_leaks(f.s, leaks, sizeof leaks), leaks_before);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plain_memory_at_chosen_places),
		cmocka_unit_test(test_aliases_alias),
		cmocka_unit_test(test_host_pointer_reaches_device_memory),
		cmocka_unit_test(test_memory_is_written_as_by_a_debugger),
		cmocka_unit_test(test_host_faults_where_no_work_has_been),
		cmocka_unit_test(test_stamps_are_content),
		cmocka_unit_test(test_capacity_is_enforced),
		cmocka_unit_test(test_the_last_of_a_device_may_be_withheld),
		cmocka_unit_test(test_memory_stays_charged_while_mapped),
		cmocka_unit_test(test_content_dies_with_its_memory),
		cmocka_unit_test(test_double_release),
		cmocka_unit_test(test_unmap_of_a_part),
		cmocka_unit_test(test_one_unmap_covers_neighbours),
		cmocka_unit_test(test_wrong_maps),
		cmocka_unit_test(test_set_access_needs_whole_mappings),
		cmocka_unit_test(test_unreserve_is_exact),
		cmocka_unit_test(test_reserve),
		cmocka_unit_test(test_work_without_access),
		cmocka_unit_test(test_access_does_not_survive_a_remap),
		cmocka_unit_test(test_access_is_per_device),
		cmocka_unit_test(test_copies_between_devices),
		cmocka_unit_test(test_copies_reach_plain_memory_of_another_device),
		cmocka_unit_test(test_devices_that_are_no_peers),
		cmocka_unit_test(test_unmap_under_unfinished_work),
		cmocka_unit_test(test_unmap_under_unfinished_work_faults_when_lenient),
		cmocka_unit_test(test_remap_behind_work),
		cmocka_unit_test(test_unmap_waits_maybe),
		cmocka_unit_test(test_plain_memory_is_packed),
		cmocka_unit_test(test_plain_memory_takes_what_a_gpu_takes),
		cmocka_unit_test(test_plain_memory_misuse),
		cmocka_unit_test(test_plain_free_waits_when_lenient),
		cmocka_unit_test(test_device_without_virtual_memory),
		cmocka_unit_test(test_export_and_import),
		cmocka_unit_test(test_tiles_out_of_sequence),
		cmocka_unit_test(test_tiles_in_sequence_merge),
		cmocka_unit_test(test_host_mapping_limit_is_named),
		cmocka_unit_test(test_violation_is_fatal_by_default),
		cmocka_unit_test(test_machines_side_by_side),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
