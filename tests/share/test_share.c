/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports and imports: one heap's memory in another process, pinned here, and unmapped there in time. Most tests use
 * two heaps of one process, which the driver cannot distinguish from two processes.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "accounts.h"
#include "peer.h"
#include "rig.h"

enum { SIZE = 4 << 20 };

static void *exportable(struct rig *r, size_t size, trz_stream stream)
{
	void *p = NULL;
	const trz_alloc_params params = {
	    .struct_size = sizeof params, .size = size, .stream = stream, .flags = TRZ_ALLOC_SHARE_FD};
	assert_ok(trz_alloc_with(r->heap, &params, &p));
	return p;
}

static int export_of(struct rig *r, void *p)
{
	int fd = -1;
	assert_ok(trz_export(r->heap, p, TRZ_ALLOC_SHARE_FD, &fd));
	assert_true(fd >= 0);
	return fd;
}

static void *import_of(trz_heap *heap, int fd, size_t size, trz_stream stream)
{
	void *p = NULL;
	assert_ok(trz_import(heap, TRZ_ALLOC_SHARE_FD, &fd, size, stream, &p));
	assert_non_null(p);
	close(fd);
	return p;
}

static void fill(struct rig *r, void *p, uint8_t value, trz_stream stream)
{
	assert_ok(sim_fill(r->s, r->c, stream, (trz_addr)p, SIZE, value));
}

static bool holds(struct rig *r, void *p, unsigned char value)
{
	unsigned char seen[2] = {0};
	assert_true(sim_peek(r->s, (trz_addr)p, &seen[0], 1));
	assert_true(sim_peek(r->s, (trz_addr)p + SIZE - 1, &seen[1], 1));
	return seen[0] == value && seen[1] == value;
}

/* ---- the other process ------------------------------------------------------------------------------------ */

/* i: imports; l: looks for 0x11; w: writes 0x22; f: frees, and lets it be unmapped; x: ends */
static char serve(struct rig *r, char letter, int fd, void **p)
{
	switch (letter) {
	case 'i':
		*p = import_of(r->heap, fd, SIZE, NULL);
		return rig_stat(r, "imported_bytes.current") == SIZE && rig_stat(r, "reserved_bytes.all.current") == 0 ? 'y'
		                                                                                                     : 'n';
	case 'l':
		return holds(r, *p, 0x11) ? 'y' : 'n';
	case 'w':
		fill(r, *p, 0x22, NULL);
		rig_sync(r);
		return 'y';
	default:
		rig_free(r, *p);
		assert_ok(trz_trim(r->heap, 0, NULL));
		rig_check(r);
		return rig_stat(r, "imported_bytes.current") == 0 ? 'y' : 'n';
	}
}

static int peer_main(int machine, int socket)
{
	struct rig r = rig_machine((sim_config){.attach_fd = machine});
	rig_open_heap(&r, NULL);
	void *p = NULL;
	int fd = -1;
	char letter;
	peer_say(socket, 'r', -1);
	while ((letter = peer_hear(socket, &fd)) && letter != 'x')
		peer_say(socket, serve(&r, letter, fd, &p), -1);
	rig_close(&r);
	return letter == 'x' ? 0 : 1;
}

static void test_two_processes(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), NULL);
	void *p = exportable(&r, SIZE, NULL);
	fill(&r, p, 0x11, NULL);
	rig_sync(&r);
	struct peer peer = peer_start(r.s);
	int fd = export_of(&r, p);
	assert_int_equal(peer_ask(&peer, 'i', fd), 'y');
	close(fd);
	assert_int_equal(peer_ask(&peer, 'l', -1), 'y');
	assert_int_equal(peer_ask(&peer, 'w', -1), 'y');
	assert_true(holds(&r, p, 0x22));
	assert_int_equal(sim_device_used(r.s, 0), SIZE);
	rig_free(&r, p);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), SIZE);
	rig_check(&r);
	/* What importers keep after the last export has ended is not this heap's any more. */
	assert_ok(trz_export_end(r.heap, p));
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	assert_int_equal(sim_device_used(r.s, 0), SIZE);
	assert_int_equal(peer_ask(&peer, 'f', -1), 'y');
	assert_int_equal(sim_device_used(r.s, 0), 0);
	peer_say(peer.socket, 'x', -1);
	assert_int_equal(peer_end(&peer), 0);
	rig_close(&r);
}

/* ---- exports ------------------------------------------------------------------------------------------------ */

static void test_exported_memory_is_pinned(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), NULL);
	void *p = exportable(&r, SIZE, NULL);
	close(export_of(&r, p));
	close(export_of(&r, p));
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), SIZE);
	rig_free(&r, p);
	assert_status(trz_free(r.heap, p), TRZ_ERROR_DOUBLE_FREE);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "pending_bytes.current"), SIZE);
	struct accounts a = accounts_read(r.heap);
	assert_true(accounts_balance(&a) && a.reserved == SIZE);
	void *q = exportable(&r, SIZE, NULL);
	assert_ptr_not_equal(p, q);
	assert_ok(trz_export_end(r.heap, p));
	rig_check(&r);
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), SIZE);
	assert_ok(trz_export_end(r.heap, p));
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), 0);
	assert_int_equal(rig_stat(&r, "pending_bytes.current"), 0);
	assert_status(trz_export_end(r.heap, p), TRZ_ERROR_NOT_FOUND);
	rig_check(&r);
	assert_ptr_equal(exportable(&r, SIZE, NULL), p);
	rig_close(&r);
}

/* The end of the export alone is not enough: streams still use it. */
static void test_tickets_count_as_well(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), NULL);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	uint32_t go = 0;
	void *p = exportable(&r, SIZE, a);
	close(export_of(&r, p));
	rig_order(&r, a, b);
	assert_ok(sim_spin(r.s, r.c, b, &go));
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)p, SIZE, 1));
	assert_ok(trz_record_stream(r.heap, p, b));
	rig_free(&r, p);
	assert_ok(trz_export_end(r.heap, p));
	assert_ptr_not_equal(exportable(&r, SIZE, a), p);
	rig_check(&r);
	go = 1;
	rig_sync(&r);
	assert_ptr_equal(exportable(&r, SIZE, a), p);
	rig_check(&r);
	rig_close(&r);
}

static void test_refused_exports(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	int fd = -1;
	void *packed = rig_alloc(&r, MIB(5), NULL), *slot = rig_alloc(&r, 100, NULL), *p = exportable(&r, SIZE, NULL);
	assert_status(trz_export(r.heap, packed, TRZ_ALLOC_SHARE_FD, &fd), TRZ_ERROR_INVALID_ARGUMENT);
	assert_text(trz_last_error(), "trz_alloc_with");
	assert_status(trz_export(r.heap, slot, TRZ_ALLOC_SHARE_FD, &fd), TRZ_ERROR_INVALID_ARGUMENT);
	assert_text(trz_last_error(), "trz_alloc_with");
	assert_status(trz_export(r.heap, (char *)p + 512, TRZ_ALLOC_SHARE_FD, &fd), TRZ_ERROR_UNKNOWN_POINTER);
	assert_status(trz_export(r.heap, p, TRZ_ALLOC_SHARE_FABRIC, &fd), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_export(r.heap, p, 77, &fd), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_export(r.heap, p, TRZ_ALLOC_SHARE_FD, NULL), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_export_end(r.heap, p), TRZ_ERROR_NOT_FOUND);
	sim_fault_nth(r.s, 1ull << SIM_SLOT_export_handle, 1, false, TRZ_ERROR_DRIVER);
	assert_status(trz_export(r.heap, p, TRZ_ALLOC_SHARE_FD, &fd), TRZ_ERROR_DRIVER);
	assert_int_equal(rig_stat(&r, "exported_bytes.current"), 0);
	assert_int_equal(fd, -1);
	rig_check(&r);
	rig_close(&r);
}

/* ---- imports ------------------------------------------------------------------------------------------------ */

static void test_imports_are_used_like_allocations(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	trz_heap *other = rig_second_heap(&r);
	trz_stream a = rig_stream(&r), b = rig_stream(&r);
	uint32_t go = 0;
	void *p = exportable(&r, SIZE, NULL), *q = import_of(other, export_of(&r, p), SIZE, a);
	trz_pointer_info info;
	assert_ok(trz_query(other, (char *)q + 1000, &info));
	assert_true(info.base == q && info.size == SIZE && info.stream == a);
	rig_order(&r, a, b);
	assert_ok(sim_spin(r.s, r.c, b, &go));
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)q, SIZE, 1));
	assert_ok(trz_record_stream(other, q, b));
	assert_ok(trz_free(other, q));
	assert_status(trz_free(other, q), TRZ_ERROR_DOUBLE_FREE);
	assert_status(trz_query(other, q, &info), TRZ_ERROR_UNKNOWN_POINTER);
	assert_ok(trz_trim(other, 0, NULL));  /* mapped still: the simulated device would tell */
	assert_int_equal(rig_stat_of(other, "imported_bytes.current"), SIZE);
	assert_ok(trz_check(other));
	go = 1;
	rig_sync(&r);
	void *any = NULL;
	assert_ok(trz_alloc(other, MIB(1), 0, b, &any));  /* whoever allocates next has it unmapped */
	assert_int_equal(rig_stat_of(other, "imported_bytes.current"), 0);
	assert_int_equal(rig_stat_of(other, "allocation.all.current"), 1);
	assert_status(trz_free(other, q), TRZ_ERROR_DOUBLE_FREE);
	assert_ok(trz_check(other));
	assert_ok(trz_close(other));
	rig_check(&r);
	rig_close(&r);
}

static void test_imports_end_with_the_heap(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	trz_heap *other = rig_second_heap(&r);
	void *p = exportable(&r, SIZE, NULL);
	void *q = import_of(other, export_of(&r, p), SIZE, NULL);
	import_of(other, export_of(&r, p), SIZE, NULL);
	fill(&r, q, 7, NULL);
	assert_ok(trz_free(other, q));
	assert_ok(trz_check(other));
	assert_ok(trz_close(other));
	assert_true(holds(&r, p, 7));
	rig_close(&r);
}

/* The heap may end before those who import from it. */
static void test_importers_keep_the_memory_alive(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	trz_heap *other = rig_second_heap(&r);
	void *p = exportable(&r, SIZE, NULL), *q = import_of(other, export_of(&r, p), SIZE, NULL);
	fill(&r, p, 9, NULL);
	rig_sync(&r);
	assert_ok(trz_close(r.heap));
	assert_true(holds(&r, q, 9));
	assert_int_equal(sim_device_used(r.s, 0), SIZE);
	r.heap = other;
	rig_check(&r);
	rig_close(&r);
}

static void test_refused_imports(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	trz_heap *other = rig_second_heap(&r);
	void *p = exportable(&r, SIZE, NULL), *q = &r;
	int fd = export_of(&r, p), null = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_status(trz_import(other, TRZ_ALLOC_SHARE_FD, &null, SIZE, NULL, &q), TRZ_ERROR_INVALID_ARGUMENT);
	assert_null(q);
	assert_status(trz_import(other, TRZ_ALLOC_SHARE_FD, &fd, SIZE + MIB(2), NULL, &q), TRZ_ERROR_INVALID_ARGUMENT);
	assert_text(trz_last_error(), "exactly this");
	assert_status(trz_import(other, TRZ_ALLOC_SHARE_FD, &fd, MIB(2), NULL, &q), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_import(other, TRZ_ALLOC_SHARE_FD, &fd, SIZE - 1, NULL, &q), TRZ_ERROR_INVALID_ARGUMENT);
	assert_text(trz_last_error(), "trz_query");
	assert_status(trz_import(other, TRZ_ALLOC_SHARE_FD, &fd, 0, NULL, &q), TRZ_ERROR_INVALID_ARGUMENT);
	assert_status(trz_import(other, TRZ_ALLOC_SHARE_FABRIC, &fd, SIZE, NULL, &q), TRZ_ERROR_NOT_SUPPORTED);
	assert_status(trz_import(other, 5, &fd, SIZE, NULL, &q), TRZ_ERROR_INVALID_ARGUMENT);
	q = &r;
	assert_status(trz_import(NULL, TRZ_ALLOC_SHARE_FD, &fd, SIZE, NULL, &q), TRZ_ERROR_INVALID_ARGUMENT);
	assert_null(q);
	q = &r;
	assert_status(trz_import(other, TRZ_ALLOC_SHARE_FD, NULL, SIZE, NULL, &q), TRZ_ERROR_INVALID_ARGUMENT);
	assert_null(q);
	q = &r;
	assert_status(trz_import_tiles(other, TRZ_ALLOC_SHARE_FD, SIZE, NULL, NULL, NULL, &q), TRZ_ERROR_INVALID_ARGUMENT);
	assert_null(q);
	assert_int_equal(rig_stat_of(other, "imported_bytes.current"), 0);
	assert_ok(trz_check(other));
	close(null);
	close(fd);
	assert_ok(trz_close(other));
	rig_close(&r);
}

/* Each import is a window of its own, whose addresses are not kept for ever. */
static void test_many_imports_one_after_the_other(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	trz_heap *other = rig_second_heap(&r);
	void *p = exportable(&r, SIZE, NULL);
	int fd = export_of(&r, p);
	uint64_t before = rig_stat_of(other, "address_bytes.current"), metadata = 0;
	for (int i = 0; i < 4000; i++) {
		void *q = NULL;
		assert_ok(trz_import(other, TRZ_ALLOC_SHARE_FD, &fd, SIZE, NULL, &q));
		assert_ok(trz_free(other, q));
		rig_sync(&r);
		assert_ok(trz_poll(other));
		assert_int_equal(rig_stat_of(other, "imported_bytes.current"), 0);
		if (i == 1999)
			metadata = rig_stat_of(other, "metadata_bytes");
	}
	assert_true(rig_stat_of(other, "address_bytes.current") - before <= 1025 * (uint64_t)SIZE);
	assert_true(rig_stat_of(other, "metadata_bytes") <= metadata + metadata / 8);
	close(fd);
	assert_ok(trz_free(r.heap, p));
	assert_ok(trz_export_end(r.heap, p));
	assert_ok(trz_close(other));
	rig_close(&r);
}

/* A heap with an import is a heap like any other: nothing of it is packed, lent or trimmed. */
static void test_imports_are_nobody_elses(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), NULL);
	void *p = exportable(&r, SIZE, NULL), *q = import_of(r.heap, export_of(&r, p), SIZE, NULL);
	void *most = rig_alloc(&r, MIB(60), NULL), *more = NULL;
	int fd = -1;
	assert_status(trz_export(r.heap, q, TRZ_ALLOC_SHARE_FD, &fd), TRZ_ERROR_INVALID_ARGUMENT);
	assert_text(trz_last_error(), "only that process can export it");
	assert_status(trz_alloc(r.heap, MIB(2), 0, NULL, &more), TRZ_ERROR_OUT_OF_MEMORY);
	rig_free(&r, q);
	rig_free(&r, p);
	assert_status(trz_alloc(r.heap, MIB(2), 0, NULL, &more), TRZ_ERROR_OUT_OF_MEMORY);
	rig_check(&r);
	assert_ok(trz_export_end(r.heap, p));
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	more = rig_alloc(&r, MIB(2), NULL);
	rig_free(&r, most);
	rig_free(&r, more);
	rig_check(&r);
	rig_close(&r);
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return peer_main(atoi(argv[1]), atoi(argv[2]));
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_processes),
		cmocka_unit_test(test_exported_memory_is_pinned),
		cmocka_unit_test(test_tickets_count_as_well),
		cmocka_unit_test(test_refused_exports),
		cmocka_unit_test(test_imports_are_used_like_allocations),
		cmocka_unit_test(test_imports_end_with_the_heap),
		cmocka_unit_test(test_importers_keep_the_memory_alive),
		cmocka_unit_test(test_refused_imports),
		cmocka_unit_test(test_many_imports_one_after_the_other),
		cmocka_unit_test(test_imports_are_nobody_elses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
