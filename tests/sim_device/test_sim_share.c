/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated machine with several processes: capacity, exported memory, processes that die.
 */
#include "peer.h"
#include "sim_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static const uint64_t granule = MIB(2);

/* Maps what has been imported; 'y' where it holds `expected`. */
static char look(struct fixture *f, trz_handle h, unsigned char expected)
{
	trz_addr a = make_range(f, granule);
	lay(f, a, granule, h);
	unsigned char seen[2] = {0};
	assert_true(sim_peek(f->s, a, &seen[0], 1));
	assert_true(sim_peek(f->s, a + granule - 1, &seen[1], 1));
	assert_int_equal(f->d->unmap(f->self, a, granule), TRZ_OK);
	return seen[0] == expected && seen[1] == expected ? 'y' : 'n';
}

static char overwrite(struct fixture *f, trz_handle h, uint8_t value)
{
	trz_addr a = make_range(f, granule);
	lay(f, a, granule, h);
	assert_int_equal(sim_fill(f->s, f->c, NULL, a, granule, value), TRZ_OK);
	assert_int_equal(sim_stream_sync(f->s, f->c, NULL), TRZ_OK);
	assert_int_equal(f->d->unmap(f->self, a, granule), TRZ_OK);
	return 'y';
}

static char export_back(struct fixture *f, int socket, trz_handle h)
{
	int fd = -1;
	if (f->d->export_handle(f->self, h, TRZ_EXPORT_FD, &fd) != TRZ_OK)
		return 'n';
	peer_say(socket, 'f', fd);
	close(fd);
	return 'y';
}

/* c: creates a granule; i: imports; l: looks for 0x11; w: writes 0x22; e: exports; r: releases; x: ends tidily */
static int peer_main(int machine, int socket)
{
	struct fixture f = fixture_open((sim_config){.attach_fd = machine, .devices = 7, .capacity = granule});
	trz_tile_props props = {.device = 0};
	trz_handle created = 0, imported = 0;
	int fd = -1;
	char letter = 'r';
	for (peer_say(socket, 'r', -1); (letter = peer_hear(socket, &fd)) != 0;) {
		trz_status status = TRZ_OK;
		char answer = 0;
		if (letter == 'c')
			status = f.d->create(f.self, &props, granule, &created);
		else if (letter == 'i')
			status = f.d->import_handle(f.self, TRZ_EXPORT_FD, &fd, &imported);
		else if (letter == 'l')
			answer = look(&f, imported, 0x11);
		else if (letter == 'w')
			answer = overwrite(&f, imported, 0x22);
		else if (letter == 'e')
			answer = export_back(&f, socket, imported);
		else if (letter == 'r')
			status = f.d->release(f.self, imported);
		else
			break;
		if (letter == 'i')
			close(fd);
		peer_say(socket, answer ? answer : status == TRZ_OK ? 'y' : 'n', -1);
	}
	sim_close(f.s);
	return letter == 'x' ? 0 : 1;
}

/* ---- the tests ---------------------------------------------------------------------------------------------- */

static trz_handle make_exportable(struct fixture *f, uint8_t value)
{
	trz_tile_props props = {.device = 0, .export_kinds = TRZ_EXPORT_FD};
	trz_handle h = 0;
	assert_int_equal(f->d->create(f->self, &props, granule, &h), TRZ_OK);
	trz_addr a = make_range(f, granule);
	lay(f, a, granule, h);
	assert_int_equal(sim_fill(f->s, f->c, NULL, a, granule, value), TRZ_OK);
	assert_int_equal(sim_stream_sync(f->s, f->c, NULL), TRZ_OK);
	assert_int_equal(f->d->unmap(f->self, a, granule), TRZ_OK);
	assert_int_equal(f->d->unreserve(f->self, a, granule), TRZ_OK);
	return h;
}

static int export_of(struct fixture *f, trz_handle h)
{
	int fd = -1;
	assert_int_equal(f->d->export_handle(f->self, h, TRZ_EXPORT_FD, &fd), TRZ_OK);
	return fd;
}

static struct fixture open_small(void)
{
	return fixture_open((sim_config){.capacity = 4 * granule});
}

/* The attached process's own wishes for devices and capacity count for nothing. */
static void test_capacity_is_shared(void **state)
{
	(void)state;
	struct fixture f = open_small();
	trz_tile_props props = {.device = 0};
	trz_handle h = make_handle(&f, granule);
	struct peer peer = peer_start(f.s);
	for (int i = 0; i < 3; i++)
		assert_int_equal(peer_ask(&peer, 'c', -1), 'y');
	assert_int_equal(peer_ask(&peer, 'c', -1), 'n');
	assert_int_equal(sim_device_used(f.s, 0), 4 * granule);
	uint64_t free_bytes = 1, total = 0;
	assert_int_equal(f.d->mem_info(f.self, f.c, &free_bytes, &total), TRZ_OK);
	assert_int_equal(free_bytes, 0);
	assert_int_equal(f.d->create(f.self, &props, granule, &h), TRZ_ERROR_OUT_OF_MEMORY);
	assert_int_equal(f.d->release(f.self, h), TRZ_OK);
	assert_int_equal(peer_ask(&peer, 'c', -1), 'y');
	peer_say(peer.socket, 'x', -1);
	assert_int_equal(peer_end(&peer), 0);
	assert_int_equal(sim_device_used(f.s, 0), 0);
	assert_int_equal(sim_device_peak(f.s, 0), 4 * granule);
	fixture_close(&f);
}

/* Of a machine that was only made, the first process says what it is. */
static void test_machine_without_a_process(void **state)
{
	(void)state;
	int machine = sim_machine_make();
	assert_true(machine >= 0);
	assert_int_equal(sim_machine_peak(machine), 0);
	sim_figures figures = {0};
	struct fixture f = fixture_open((sim_config){.attach_fd = machine, .devices = 2, .capacity = 4 * granule,
	                                             .figures = &figures});
	struct fixture g = fixture_open((sim_config){.attach_fd = machine, .devices = 7, .capacity = granule});
	make_handle(&f, granule);
	make_handle(&g, 2 * granule);
	uint64_t free_bytes = 1, total = 0;
	assert_int_equal(g.d->mem_info(g.self, g.c, &free_bytes, &total), TRZ_OK);
	assert_int_equal(free_bytes, granule);
	assert_int_equal(total, 4 * granule);
	assert_int_equal(sim_process_peak(f.s, 0), granule);
	assert_int_equal(sim_process_peak(g.s, 0), 2 * granule);
	assert_int_equal(sim_device_peak(f.s, 0), 3 * granule);
	assert_int_equal(figures.peak_bytes[0], granule);
	assert_int_equal(figures.driver_time_ns, sim_driver_time_ns(f.s));
	fixture_close(&g);
	fixture_close(&f);
	assert_int_equal(figures.peak_bytes[0], granule);
	assert_int_equal(sim_machine_peak(machine), 3 * granule);
	close(machine);
}

/* What a dead process had written gives the host its pages back, what it exported stays. */
static void test_pages_of_a_dead_process(void **state)
{
	(void)state;
	struct fixture f = open_small();
	struct fixture g = fixture_open((sim_config){.attach_fd = sim_machine_fd(f.s)});
	trz_handle exported = make_exportable(&g, 0x11), own = make_handle(&g, granule);
	trz_addr a = make_range(&g, granule);
	lay(&g, a, granule, own);
	assert_int_equal(sim_fill(g.s, g.c, NULL, a, granule, 0x33), TRZ_OK);
	assert_int_equal(sim_stream_sync(g.s, g.c, NULL), TRZ_OK);
	int fd = export_of(&g, exported);
	assert_int_equal(sim_resident_bytes(f.s), 2 * granule);
	sim_close(g.s);
	assert_int_equal(sim_device_used(f.s, 0), granule);
	assert_int_equal(sim_resident_bytes(f.s), granule);
	trz_handle imported;
	assert_int_equal(f.d->import_handle(f.self, TRZ_EXPORT_FD, &fd, &imported), TRZ_OK);
	assert_int_equal(look(&f, imported, 0x11), 'y');
	close(fd);
	fixture_close(&f);
}

static void test_memory_of_a_killed_process_comes_back(void **state)
{
	(void)state;
	struct fixture f = open_small();
	int fd = export_of(&f, make_exportable(&f, 0x11));
	struct peer peer = peer_start(f.s);
	assert_int_equal(peer_ask(&peer, 'c', -1), 'y');
	assert_int_equal(peer_ask(&peer, 'i', fd), 'y');
	close(fd);
	assert_int_equal(sim_device_used(f.s, 0), 2 * granule);
	kill(peer.pid, SIGKILL);
	assert_int_equal(peer_end(&peer), -1);
	assert_int_equal(sim_device_used(f.s, 0), granule);
	for (int i = 0; i < 3; i++)
		make_handle(&f, granule);
	struct peer heir = peer_start(f.s);
	assert_int_equal(peer_ask(&heir, 'c', -1), 'n');
	peer_say(heir.socket, 'x', -1);
	assert_int_equal(peer_end(&heir), 0);
	fixture_close(&f);
}

static void test_exported_bytes_are_the_same_bytes(void **state)
{
	(void)state;
	struct fixture f = open_small();
	trz_handle h = make_exportable(&f, 0x11);
	int fd = export_of(&f, h);
	struct peer peer = peer_start(f.s);
	assert_int_equal(peer_ask(&peer, 'i', fd), 'y');
	close(fd);
	assert_int_equal(peer_ask(&peer, 'l', -1), 'y');
	assert_int_equal(peer_ask(&peer, 'w', -1), 'y');
	assert_int_equal(look(&f, h, 0x22), 'y');
	assert_int_equal(sim_device_used(f.s, 0), granule);
	peer_say(peer.socket, 'x', -1);
	assert_int_equal(peer_end(&peer), 0);
	assert_int_equal(look(&f, h, 0x22), 'y');
	assert_int_equal(f.d->release(f.self, h), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), 0);
	fixture_close(&f);
}

/* First the descriptor alone, then the other process alone keeps what its maker has released. */
static void test_exported_memory_lives_as_long_as_anyone_has_it(void **state)
{
	(void)state;
	struct fixture f = open_small();
	trz_handle h = make_exportable(&f, 0x11);
	int fd = export_of(&f, h), back = -1;
	assert_int_equal(f.d->release(f.self, h), TRZ_OK);
	assert_int_equal(sim_leaks(f.s, NULL, 0), 0);
	assert_int_equal(sim_device_used(f.s, 0), granule);
	struct peer peer = peer_start(f.s);
	assert_int_equal(peer_ask(&peer, 'i', fd), 'y');
	close(fd);
	assert_int_equal(sim_device_used(f.s, 0), granule);
	assert_int_equal(peer_ask(&peer, 'l', -1), 'y');
	peer_say(peer.socket, 'e', -1);
	assert_int_equal(peer_hear(peer.socket, &back), 'f');
	assert_int_equal(peer_hear(peer.socket, NULL), 'y');
	assert_int_equal(peer_ask(&peer, 'r', -1), 'y');
	peer_say(peer.socket, 'x', -1);
	assert_int_equal(peer_end(&peer), 0);
	assert_int_equal(sim_device_used(f.s, 0), granule);
	assert_int_equal(f.d->import_handle(f.self, TRZ_EXPORT_FD, &back, &h), TRZ_OK);
	close(back);
	assert_int_equal(look(&f, h, 0x11), 'y');
	assert_int_equal(f.d->release(f.self, h), TRZ_OK);
	assert_int_equal(sim_device_used(f.s, 0), 0);
	assert_int_equal(sim_resident_bytes(f.s), 0);
	fixture_close(&f);
}

/* Two views of one machine in one process, for tests that want no second one. */
static void test_two_views_in_one_process(void **state)
{
	(void)state;
	struct fixture f = open_small();
	int machine = sim_machine_fd(f.s);
	struct fixture g = fixture_open((sim_config){.attach_fd = machine});
	close(machine);
	trz_handle h = make_exportable(&f, 0x11), there = 0;
	make_handle(&f, 2 * granule);
	int fd = export_of(&f, h);
	assert_int_equal(g.d->import_handle(g.self, TRZ_EXPORT_FD, &fd, &there), TRZ_OK);
	close(fd);
	assert_int_equal(look(&g, there, 0x11), 'y');
	assert_int_equal(sim_device_used(g.s, 0), 3 * granule);
	fixture_close(&f);
	assert_int_equal(sim_device_used(g.s, 0), granule);
	assert_int_equal(look(&g, there, 0x11), 'y');
	assert_int_equal(g.d->release(g.self, there), TRZ_OK);
	assert_int_equal(sim_device_used(g.s, 0), 0);
	fixture_close(&g);
}

static void test_wrong_descriptors(void **state)
{
	(void)state;
	struct fixture f = open_small(), g = open_small();
	trz_handle h = 0;
	sim *none = NULL;
	int fd = export_of(&f, make_exportable(&f, 0x11)), machine = sim_machine_fd(f.s);
	assert_int_equal(g.d->import_handle(g.self, TRZ_EXPORT_FD, &fd, &h), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(f.d->import_handle(f.self, TRZ_EXPORT_FD, &machine, &h), TRZ_ERROR_INVALID_ARGUMENT);
	close(fd);
	assert_int_equal(f.d->import_handle(f.self, TRZ_EXPORT_FD, &fd, &h), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(sim_open(&(sim_config){.attach_fd = fd}, &none), TRZ_ERROR_INVALID_ARGUMENT);
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(sim_open(&(sim_config){.attach_fd = fd}, &none), TRZ_ERROR_INVALID_ARGUMENT);
	assert_int_equal(f.d->import_handle(f.self, TRZ_EXPORT_FD, &fd, &h), TRZ_ERROR_INVALID_ARGUMENT);
	close(fd);
	close(machine);
	expect_clean(&f);
	fixture_close(&f);
	fixture_close(&g);
}

/* As a process that uses the libraries of another build would. */
static void test_a_machine_of_another_build(void **state)
{
	(void)state;
	int fd = sim_machine_make();
	struct fixture f = fixture_open((sim_config){.attach_fd = fd, .devices = 1, .capacity = granule});
	off_t ledger = lseek(fd, 0, SEEK_CUR);
	uint64_t bytes = 0, other = 64;
	assert_int_equal(pread(fd, &bytes, sizeof bytes, ledger + 8), sizeof bytes);
	assert_int_equal(pwrite(fd, &other, sizeof other, ledger + 8), sizeof other);
	sim *none = NULL;
	assert_int_equal(sim_open(&(sim_config){.attach_fd = fd}, &none), TRZ_ERROR_INVALID_ARGUMENT);
	assert_non_null(strstr(trz_last_error(), "another build"));
	assert_int_equal(pwrite(fd, &bytes, sizeof bytes, ledger + 8), sizeof bytes);
	assert_int_equal(sim_open(&(sim_config){.attach_fd = fd}, &none), TRZ_OK);
	sim_close(none);
	close(fd);
	fixture_close(&f);

	fd = sim_machine_make();  /* one that nobody has described, with less room */
	assert_int_equal(ftruncate(fd, ledger + (off_t)sysconf(_SC_PAGESIZE)), 0);
	assert_int_equal(sim_open(&(sim_config){.attach_fd = fd}, &none), TRZ_ERROR_INVALID_ARGUMENT);
	assert_non_null(strstr(trz_last_error(), "another build"));
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return peer_main(atoi(argv[1]), atoi(argv[2]));
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_capacity_is_shared),
		cmocka_unit_test(test_machine_without_a_process),
		cmocka_unit_test(test_pages_of_a_dead_process),
		cmocka_unit_test(test_memory_of_a_killed_process_comes_back),
		cmocka_unit_test(test_exported_bytes_are_the_same_bytes),
		cmocka_unit_test(test_exported_memory_lives_as_long_as_anyone_has_it),
		cmocka_unit_test(test_two_views_in_one_process),
		cmocka_unit_test(test_wrong_descriptors),
		cmocka_unit_test(test_a_machine_of_another_build),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
