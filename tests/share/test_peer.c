/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers reach every mapping, whenever it was made; failures affect nothing else. The simulated device reports a
 * violation when work reaches memory that its device may not.
 */
#include <unistd.h>

#include "rig.h"

static trz_context context_of(struct rig *r, int device)
{
	trz_context c = NULL;
	assert_ok(sim_context_primary(r->s, device, &c));
	return c;
}

static struct rig two_devices(bool no_peers)
{
	struct rig r = rig_machine((sim_config){.devices = 2, .capacity = GIB(1), .no_peers = no_peers});
	rig_open_heap(&r, "slack_per_mille:0,tile_size:2MiB,tile_size_max:2MiB");
	return r;
}

/* Whether work on device 1 reaches the memory. */
static bool reaches(struct rig *r, void *p, size_t size)
{
	trz_context c = context_of(r, 1);
	assert_ok(sim_fill(r->s, c, NULL, (trz_addr)p, size, 3));
	trz_status status = sim_device_sync(r->s, 1);  /* an illegal access kills the context */
	assert_ok(r->d->context_release(r->d->self, 1, c));
	return status == TRZ_OK;
}

/* Every second granule freed, so that the next request is laid of tiles that are mapped already. */
static void *scattered(struct rig *r)
{
	void *held[40];
	for (size_t i = 0; i < LENGTH(held); i++)
		held[i] = rig_alloc(r, MIB(2), NULL);
	for (size_t i = 0; i < LENGTH(held); i += 2)
		rig_free(r, held[i]);
	rig_sync(r);
	return rig_alloc(r, MIB(20), NULL);
}

static void *dedicated(struct rig *r, size_t size)
{
	void *p = NULL;
	const trz_alloc_params params = {.struct_size = sizeof params, .size = size, .flags = TRZ_ALLOC_SHARE_FD};
	assert_ok(trz_alloc_with(r->heap, &params, &p));
	return p;
}

static void *import_own(struct rig *r, void *p, size_t size)
{
	int fd = -1;
	void *q = NULL;
	assert_ok(trz_export(r->heap, p, TRZ_ALLOC_SHARE_FD, &fd));
	assert_ok(trz_import(r->heap, TRZ_ALLOC_SHARE_FD, &fd, size, NULL, &q));
	close(fd);
	return q;
}

/* Early: before anything is mapped. Late: aliases, dedicated tiles and imports are there already. */
static void all_is_reached(bool early)
{
	struct rig r = two_devices(false);
	if (early)
		assert_ok(trz_enable_peer(r.heap, 1, true));
	void *small = rig_alloc(&r, 700, NULL), *gathered = scattered(&r), *own = dedicated(&r, MIB(4));
	void *imported = import_own(&r, own, MIB(4));
	assert_true(rig_stat(&r, "alias.current") > 0);
	if (!early)
		assert_ok(trz_enable_peer(r.heap, 1, true));
	assert_true(reaches(&r, small, 700) && reaches(&r, gathered, MIB(20)));
	assert_true(reaches(&r, own, MIB(4)) && reaches(&r, imported, MIB(4)));
	rig_free(&r, gathered);
	void *flipped[10];  /* the old places again */
	for (size_t i = 0; i < LENGTH(flipped); i++)
		flipped[i] = rig_alloc(&r, MIB(2), NULL);
	for (size_t i = 0; i < LENGTH(flipped); i++)
		assert_true(reaches(&r, flipped[i], MIB(2)));
	assert_true(reaches(&r, rig_alloc(&r, MIB(100), NULL), MIB(100)));
	rig_check(&r);
	rig_close(&r);
}

static void test_early(void **state)
{
	(void)state;
	all_is_reached(true);
}

static void test_late(void **state)
{
	(void)state;
	all_is_reached(false);
}

static void test_nothing_is_open_unasked(void **state)
{
	(void)state;
	struct rig r = two_devices(false);
	void *p = rig_alloc(&r, MIB(4), NULL);
	assert_false(reaches(&r, p, MIB(4)));
	assert_ok(trz_enable_peer(r.heap, 0, true));
	assert_ok(trz_close(r.heap));
	sim_close(r.s);
	r = two_devices(false);
	assert_ok(trz_enable_peer(r.heap, 1, true));
	assert_ok(trz_enable_peer(r.heap, 1, true));
	p = rig_alloc(&r, MIB(4), NULL);
	assert_ok(trz_enable_peer(r.heap, 1, false));
	assert_ok(trz_enable_peer(r.heap, 1, false));
	void *later = rig_alloc(&r, MIB(30), NULL);
	assert_true(reaches(&r, p, MIB(4)));
	assert_false(reaches(&r, later, MIB(30)));
	assert_ok(trz_check(r.heap));
	assert_ok(trz_close(r.heap));
	sim_close(r.s);
}

static void test_what_is_impossible_fails_alone(void **state)
{
	(void)state;
	struct rig r = two_devices(true);
	void *p = rig_alloc(&r, MIB(4), NULL);
	uint64_t calls = sim_calls(r.s, SIM_SLOT_set_access);
	assert_status(trz_enable_peer(r.heap, 1, true), TRZ_ERROR_NOT_SUPPORTED);
	assert_text(trz_last_error(), "device 1");
	assert_status(trz_enable_peer(r.heap, 2, true), TRZ_ERROR_NO_DEVICE);
	assert_status(trz_enable_peer(r.heap, -1, true), TRZ_ERROR_NO_DEVICE);
	assert_status(trz_enable_peer(NULL, 1, true), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_calls(r.s, SIM_SLOT_set_access), calls);
	rig_free(&r, p);
	rig_alloc(&r, MIB(50), NULL);
	rig_check(&r);
	rig_close(&r);
	r = rig_open(GIB(1), "vmm:off");
	assert_status(trz_enable_peer(r.heap, 1, true), TRZ_ERROR_NOT_SUPPORTED);
	rig_close(&r);
}

static void test_half_way_is_tried_again(void **state)
{
	(void)state;
	struct rig r = two_devices(false);
	void *small = rig_alloc(&r, 700, NULL), *large = scattered(&r), *own = dedicated(&r, MIB(4));
	uint64_t nth = 1;
	for (;; nth++) {
		sim_fault_nth(r.s, 1ull << SIM_SLOT_set_access, nth, false, TRZ_ERROR_DRIVER);
		trz_status status = trz_enable_peer(r.heap, 1, true);
		sim_fault_nth(r.s, 0, 0, false, TRZ_OK);
		rig_check(&r);
		if (status == TRZ_OK)
			break;
		assert_status(status, TRZ_ERROR_DRIVER);
		rig_alloc(&r, MIB(2), NULL);
	}
	assert_true(nth > 3);
	assert_true(reaches(&r, small, 700) && reaches(&r, large, MIB(20)) && reaches(&r, own, MIB(4)));
	/* With a peer that the driver refuses a mapping to, an allocation fails as a whole. */
	sim_fault_nth(r.s, 1ull << SIM_SLOT_set_access, 1, true, TRZ_ERROR_DRIVER);
	void *p = &r;
	assert_status(trz_alloc(r.heap, MIB(90), 0, NULL, &p), TRZ_ERROR_DRIVER);
	assert_null(p);
	sim_fault_nth(r.s, 0, 0, false, TRZ_OK);
	assert_true(reaches(&r, rig_alloc(&r, MIB(90), NULL), MIB(90)));
	rig_check(&r);
	rig_close(&r);
}

/* What is about to be unmapped while the peer comes is mapped still, and stays so where the driver refuses. */
static void enable_meanwhile(void *user, trz_map_event event, void *address, size_t size)
{
	struct rig *r = user;
	(void)address;
	(void)size;
	if (event == TRZ_UNMAP)
		assert_ok(trz_enable_peer(r->heap, 1, true));
}

static void test_what_could_not_be_unmapped(void **state)
{
	(void)state;
	struct rig r = two_devices(false);
	rig_free(&r, rig_alloc(&r, MIB(4), NULL));
	rig_sync(&r);
	assert_ok(trz_set_map_callback(r.heap, enable_meanwhile, &r));
	sim_fault_probability(r.s, 1 << SIM_SLOT_unmap, 1, TRZ_ERROR_DRIVER);
	assert_status(trz_trim(r.heap, 0, NULL), TRZ_ERROR_DRIVER);
	sim_fault_probability(r.s, 0, 0, TRZ_OK);
	assert_ok(trz_set_map_callback(r.heap, NULL, NULL));
	void *p = rig_alloc(&r, MIB(4), NULL);
	assert_true(reaches(&r, p, MIB(4)));
	rig_free(&r, p);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_early),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_nothing_is_open_unasked),
		cmocka_unit_test(test_what_is_impossible_fails_alone),
		cmocka_unit_test(test_half_way_is_tried_again),
		cmocka_unit_test(test_what_could_not_be_unmapped),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
