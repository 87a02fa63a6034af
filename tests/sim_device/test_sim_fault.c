/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated device's faults, call counts, cost tables and clocks, and configurations that sim_open refuses.
 */
#include "sim_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const uint64_t granule = MIB(2);
static const uint64_t create_only = 1ull << SIM_SLOT_create;

static trz_status try_create(struct fixture *f)
{
	trz_tile_props props = {.device = 0};
	trz_handle handle;
	return f->d->create(f->self, &props, granule, &handle);
}

static void test_nth_call_fails_once(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	sim_fault_nth(f.s, create_only, 3, false, TRZ_ERROR_OUT_OF_MEMORY);
	assert_int_equal(try_create(&f), TRZ_OK);
	make_range(&f, granule);
	assert_int_equal(try_create(&f), TRZ_OK);
	assert_int_equal(try_create(&f), TRZ_ERROR_OUT_OF_MEMORY);
	assert_non_null(strstr(trz_driver_last_error(), "injected"));
	assert_int_equal(try_create(&f), TRZ_OK);
	assert_int_equal(sim_faults(f.s), 1);
	assert_int_equal(sim_device_used(f.s, 0), 3 * granule);
	fixture_close(&f);
}

static void test_persistent_fault(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	sim_fault_nth(f.s, ~0ull, 2, true, TRZ_ERROR_DRIVER);
	assert_int_equal(try_create(&f), TRZ_OK);
	assert_int_equal(try_create(&f), TRZ_ERROR_DRIVER);
	trz_addr a;
	uint64_t ns;
	int count;
	assert_int_equal(f.d->reserve(f.self, granule, 0, 0, &a), TRZ_ERROR_DRIVER);
	assert_int_equal(f.d->clock_ns(f.self, &ns), TRZ_OK);
	assert_int_equal(f.d->device_count(f.self, &count), TRZ_OK);
	sim_fault_nth(f.s, 0, 0, false, TRZ_OK);
	assert_int_equal(try_create(&f), TRZ_OK);
	assert_int_equal(sim_faults(f.s), 2);
	fixture_close(&f);
}

static unsigned failures_of(double probability, uint64_t seed)
{
	struct fixture f = fixture_open((sim_config){.seed = seed});
	unsigned failures = 0;
	sim_fault_probability(f.s, create_only, probability, TRZ_ERROR_OUT_OF_MEMORY);
	for (int i = 0; i < 200; i++)
		failures += try_create(&f) != TRZ_OK;
	assert_int_equal(sim_faults(f.s), failures);
	fixture_close(&f);
	return failures;
}

static void test_probability(void **state)
{
	(void)state;
	assert_int_equal(failures_of(0, 1), 0);
	assert_int_equal(failures_of(1, 1), 200);
	assert_in_range(failures_of(0.5, 1), 60, 140);
	assert_int_equal(failures_of(0.5, 7), failures_of(0.5, 7));
}

static void test_calls_are_counted(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	make_memory(&f, granule);
	sim_fault_nth(f.s, create_only, 1, false, TRZ_ERROR_DRIVER);
	try_create(&f);
	assert_int_equal(sim_calls(f.s, SIM_SLOT_create), 2);
	assert_int_equal(sim_calls(f.s, SIM_SLOT_map), 1);
	assert_int_equal(sim_calls(f.s, SIM_SLOT_unmap), 0);
	assert_string_equal(sim_slot_name(SIM_SLOT_set_access), "set_access");
	sim_reset_calls(f.s);
	assert_int_equal(sim_calls(f.s, SIM_SLOT_create), 0);
	fixture_close(&f);
}

static void test_calls_are_timed_where_that_is_asked_for(void **state)
{
	(void)state;
	for (int timed = 0; timed < 2; timed++) {
		struct fixture f = fixture_open((sim_config){.capacity = GIB(1), .timed = timed});
		assert_int_equal(f.d->release(f.self, make_handle(&f, granule)), TRZ_OK);
		assert_int_equal(sim_host_ticks(f.s) > 0, timed);
		fixture_close(&f);
	}
}

static void lay_and_take(struct fixture *f, uint64_t size, uint64_t tiles)
{
	trz_addr a = make_range(f, size * tiles);
	int device = 0;
	for (uint64_t i = 0; i < tiles; i++)
		assert_int_equal(f->d->map(f->self, a + i * size, size, make_handle(f, size)), TRZ_OK);
	assert_int_equal(f->d->set_access(f->self, a, size * tiles, &device, 1), TRZ_OK);
	assert_int_equal(f->d->unmap(f->self, a, size * tiles), TRZ_OK);
	assert_int_equal(f->d->unreserve(f->self, a, size * tiles), TRZ_OK);
}

/* What one tile of `size` costs from reserve to unreserve, in virtual ns. */
static uint64_t tile_cost(const char *costs, uint64_t size, uint64_t tiles)
{
	struct fixture f = fixture_open((sim_config){.costs = costs});
	lay_and_take(&f, size, tiles);
	uint64_t ns = sim_driver_time_ns(f.s);
	fixture_close(&f);
	return ns;
}

static void test_shipped_costs(void **state)
{
	(void)state;
	const uint64_t range = 2000 + 1600;
	assert_int_equal(tile_cost(NULL, MIB(2), 1), tile_cost(SIM_DEFAULT_COSTS, MIB(2), 1));
	assert_int_equal(tile_cost("a100", MIB(2), 1), range + 2 * 2 + 29200 + 1900 + 36800 + 34300);
	assert_int_equal(tile_cost("a100", MIB(2), 10), range + 2 * 20 + 10 * (29200 + 1900 + 36800 + 34300));
	assert_int_equal(tile_cost("a100", MIB(128), 1),
	                 range + 2 * 128 + 28200 + 64000 + 1900 + 199000 + 34300);
	assert_int_equal(tile_cost("slow-create", MIB(2), 1), range + 2 * 2 + 193000 + 1450 + 36000 + 25600);
	assert_int_equal(tile_cost("wsl2", MIB(2), 1), range + 2 * 2 + 29200 + 146000 + 36800 + 198000);
	for (const char *const *name = sim_cost_tables(); *name; name++)
		tile_cost(*name, MIB(2), 1);
}

static void test_one_run_by_several_tables(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){0});
	assert_int_equal(sim_add_costs(f.s, "a100"), TRZ_OK);
	assert_int_equal(sim_add_costs(f.s, "no-such-table"), TRZ_ERROR_IO);
	assert_int_equal(sim_add_costs(f.s, "wsl2"), TRZ_OK);
	lay_and_take(&f, MIB(8), 3);
	assert_int_equal(sim_driver_time_ns(f.s), tile_cost(NULL, MIB(8), 3));
	assert_int_equal(sim_driver_time_by(f.s, 0), tile_cost("a100", MIB(8), 3));
	assert_int_equal(sim_driver_time_by(f.s, 1), tile_cost("wsl2", MIB(8), 3));
	assert_int_equal(sim_add_costs(f.s, "slow-create"), TRZ_OK);
	assert_int_equal(sim_add_costs(f.s, "h200"), TRZ_ERROR_INVALID_ARGUMENT);
	fixture_close(&f);
}

static void test_a_programs_own_calls_pass_on_the_clock_alone(void **state)
{
	(void)state;
	struct fixture f = fixture_open((sim_config){0});
	assert_int_equal(sim_add_costs(f.s, "a100"), TRZ_OK);
	trz_addr a = make_range(&f, MIB(2));
	trz_handle handle = make_handle(&f, MIB(2));
	uint64_t spent = sim_driver_time_ns(f.s), by_a100 = sim_driver_time_by(f.s, 0), before, after;
	assert_int_equal(f.d->clock_ns(f.self, &before), TRZ_OK);
	sim_leave_out(f.s, true);
	assert_int_equal(f.d->map(f.self, a, MIB(2), handle), TRZ_OK);
	sim_leave_out(f.s, false);
	assert_int_equal(sim_calls(f.s, SIM_SLOT_map), 0);
	assert_int_equal(sim_driver_time_ns(f.s), spent);
	assert_int_equal(sim_driver_time_by(f.s, 0), by_a100);
	assert_int_equal(f.d->clock_ns(f.self, &after), TRZ_OK);
	assert_true(after > before + 1000);
	assert_int_equal(f.d->unmap(f.self, a, MIB(2)), TRZ_OK);
	assert_int_equal(sim_calls(f.s, SIM_SLOT_unmap), 1);
	assert_true(sim_driver_time_ns(f.s) > spent);
	fixture_close(&f);
}

/* Opens a machine with a cost table of this text. */
static trz_status open_with_table(const char *text, char path[32], sim **s)
{
	strcpy(path, "/tmp/sim-costs-XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	sim_config config = {.costs = path};
	trz_status status = sim_open(&config, s);
	unlink(path);
	return status;
}

static void test_cost_table_from_a_file(void **state)
{
	(void)state;
	char path[32];
	sim *s;
	assert_int_equal(open_with_table("# own\n[create]\ncall_ns = 5\nhandle_ns = 2:100, 4:300\n", path, &s),
	                 TRZ_OK);
	const trz_driver *d = sim_driver(s);
	trz_tile_props props = {.device = 0};
	trz_handle h;
	assert_int_equal(d->create(d->self, &props, MIB(8), &h), TRZ_OK);
	assert_int_equal(sim_driver_time_ns(s), 305);
	sim_close(s);
}

static void test_bad_cost_tables_name_the_line(void **state)
{
	(void)state;
	const char *const bad[] = {
		"[create]\ncall_ns = much\n",
		"[create]\nprice = 3\n",
		"[nothing]\ncall_ns = 3\n",
		"[create]\nhandle_ns = 4:1, 2:1\n",
		"[create]\nhandle_ns = 1, 2\n",
		"[create]\nhandle_ns = 4:1,\n",
		"[create]\nmib_ns = -1\n",
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		char path[32], where[40];
		sim *s;
		assert_int_equal(open_with_table(bad[i], path, &s), TRZ_ERROR_BAD_INPUT);
		snprintf(where, sizeof where, "%s:2", path);
		assert_non_null(strstr(trz_last_error(), where));
	}
	sim *s;
	sim_config config = {.costs = "no-such-table"};
	assert_int_equal(sim_open(&config, &s), TRZ_ERROR_IO);
	assert_non_null(strstr(trz_last_error(), "no-such-table"));
}

static void test_a_file_that_is_no_cost_table(void **state)
{
	(void)state;
	const char *const bad[] = {"", "# nothing\n", "[create]\n"};
	char path[32];
	sim *s;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_int_equal(open_with_table(bad[i], path, &s), TRZ_ERROR_BAD_INPUT);
		assert_non_null(strstr(trz_last_error(), path));
		assert_non_null(strstr(trz_last_error(), "shipped are h200"));
	}
	sim_config empty = {.costs = "/dev/null"}, folder = {.costs = "/tmp"};
	assert_int_equal(sim_open(&empty, &s), TRZ_ERROR_BAD_INPUT);
	assert_non_null(strstr(trz_last_error(), "/dev/null"));
	assert_int_equal(sim_open(&folder, &s), TRZ_ERROR_IO);
	assert_non_null(strstr(trz_last_error(), "cost table /tmp is neither shipped"));
	assert_non_null(strstr(trz_last_error(), "Is a directory"));
}

static void test_clock_always_advances(void **state)
{
	(void)state;
	struct fixture f = fixture_lenient(0);
	uint64_t a, b, c;
	assert_int_equal(f.d->clock_ns(f.self, &a), TRZ_OK);
	assert_int_equal(f.d->clock_ns(f.self, &b), TRZ_OK);
	assert_true(b > a);
	uint64_t spent = sim_driver_time_ns(f.s);
	make_handle(&f, granule);
	spent = sim_driver_time_ns(f.s) - spent;
	assert_true(spent > 0);
	assert_int_equal(f.d->clock_ns(f.self, &c), TRZ_OK);
	assert_true(c >= b + spent);
	fixture_close(&f);
}

static void test_open_refuses(void **state)
{
	(void)state;
	const sim_config bad[] = {
		{.devices = 17},
		{.devices = -1},
		{.granularity = MIB(3)},
		{.granularity = 4096},
		{.va_bytes = 1000},
		{.schedule = SIM_SCHEDULES},
		{.lenient_rules = 1u << 20},
	};
	sim *s;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(sim_open(&bad[i], &s), TRZ_ERROR_INVALID_ARGUMENT);
	sim_config vast = {.va_bytes = 1ull << 47};
	assert_int_equal(sim_open(&vast, &s), TRZ_ERROR_ADDRESS_SPACE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nth_call_fails_once),
		cmocka_unit_test(test_persistent_fault),
		cmocka_unit_test(test_probability),
		cmocka_unit_test(test_calls_are_counted),
		cmocka_unit_test(test_calls_are_timed_where_that_is_asked_for),
		cmocka_unit_test(test_shipped_costs),
		cmocka_unit_test(test_one_run_by_several_tables),
		cmocka_unit_test(test_a_programs_own_calls_pass_on_the_clock_alone),
		cmocka_unit_test(test_cost_table_from_a_file),
		cmocka_unit_test(test_bad_cost_tables_name_the_line),
		cmocka_unit_test(test_a_file_that_is_no_cost_table),
		cmocka_unit_test(test_clock_always_advances),
		cmocka_unit_test(test_open_refuses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
