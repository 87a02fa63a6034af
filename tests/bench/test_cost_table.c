/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost table that device_figures makes. A simulated device that charges by a known table stands for the GPU; one
 * that charges by the table made must cost the same.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/gpu/figures/gpu.h"
#include "sim.h"

struct results *results;

static const uint64_t sizes_mib[] = {2, 4, 8, 16, 20, 32, 64, 128, 256, 512, 1024};
enum { SIZES = sizeof sizes_mib / sizeof sizes_mib[0], MOST = 100 };

/* What the calls of one round cost, all handles together. */
struct round {
	double create, map, set_access, unmap, release;
};

static double spent(sim *s, double *last)
{
	double now = (double)sim_driver_time_ns(s), took = now - *last;
	*last = now;
	return took;
}

static struct round one_round(sim *s, uint64_t size, uint64_t count)
{
	const trz_driver *d = sim_driver(s);
	trz_tile_props props = {.device = 0};
	trz_handle handles[MOST];
	trz_addr a;
	int device = 0;
	double last;
	struct round r;
	assert_int_equal(d->reserve(d->self, size * count, 0, 0, &a), TRZ_OK);
	last = (double)sim_driver_time_ns(s);
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(d->create(d->self, &props, size, &handles[i]), TRZ_OK);
	r.create = spent(s, &last);
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(d->map(d->self, a + i * size, size, handles[i]), TRZ_OK);
	r.map = spent(s, &last);
	assert_int_equal(d->set_access(d->self, a, size * count, &device, 1), TRZ_OK);
	r.set_access = spent(s, &last);
	assert_int_equal(d->unmap(d->self, a, size * count), TRZ_OK);
	r.unmap = spent(s, &last);
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(d->release(d->self, handles[i]), TRZ_OK);
	r.release = spent(s, &last);
	assert_int_equal(d->unreserve(d->self, a, size * count), TRZ_OK);
	return r;
}

static void add(const char *slot, const char *what, uint64_t mib, uint64_t handles, double ns)
{
	struct figure *f = &results->figures[results->figure_count++];
	*f = (struct figure){.mib = (double)mib, .handles = (unsigned)handles, .ns = {.samples = 2, .mean = ns}};
	snprintf(f->slot, sizeof f->slot, "%s", slot);
	snprintf(f->what, sizeof f->what, "%s", what);
}

static void measure(sim *s, uint64_t mib, uint64_t count)
{
	struct round r = one_round(s, MIB(mib), count);
	add("create", "", mib, count, r.create / (double)count);
	add("map", "", mib, count, r.map / (double)count);
	add("release", "", mib, count, r.release / (double)count);
	add("set_access", "range", mib, count, r.set_access);
	add("unmap", "range", mib, count, r.unmap);
}

static sim *open_with(const char *costs)
{
	sim_config config = {.costs = costs, .capacity = GIB(128)};
	sim *s;
	assert_int_equal(sim_open(&config, &s), TRZ_OK);
	return s;
}

static void assert_near(double made, double wanted)
{
	if (fabs(made - wanted) > 0.06 * wanted)
		fail_msg("%.0f instead of %.0f", made, wanted);
}

static void write_file(const char *text, char path[32])
{
	strcpy(path, "/tmp/trz-costs-XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* A table with a cost of every kind, and corners that straight lines must meet. */
static const char known[] =
	"[reserve]\ncall_ns = 3000\n"
	"[create]\nhandle_ns = 2:40000, 32:90000, 1024:80000\nmib_ns = 300\n"
	"[release]\nhandle_ns = 24000\n"
	"[map]\nhandle_ns = 1900\n"
	"[set_access]\ncall_ns = 5000\nhandle_ns = 2:36800, 128:199000, 1024:136000\n"
	"[unmap]\ncall_ns = 20000\nhandle_ns = 700\nmib_ns = 9\n";

static void test_a_known_table_comes_back(void **state)
{
	static char text[16384];
	char known_path[32], made_path[32];
	(void)state;
	results->figure_count = 0;
	write_file(known, known_path);
	sim *s = open_with(known_path);
	for (int i = 0; i < SIZES; i++)
		for (uint64_t count = 1; count <= MOST; count *= 10)
			measure(s, sizes_mib[i], count);
	cost_table_write(text, sizeof text, "a test");
	assert_non_null(strstr(text, "[map]\nhandle_ns = 1900\n"));
	assert_non_null(strstr(text, "[set_access]\ncall_ns = 5000\n"));
	assert_non_null(strstr(text, "# [measured] a test.\n"));
	assert_non_null(strstr(text, "# not measured: [mem_alloc]\n"));
	write_file(text, made_path);
	sim *made = open_with(made_path);
	for (uint64_t mib = 2; mib <= 1024; mib += mib < 64 ? 2 : 30)
		for (uint64_t count = 1; count <= MOST; count *= 10) {
			struct round wanted = one_round(s, MIB(mib), count), is = one_round(made, MIB(mib), count);
			assert_near(is.create, wanted.create);
			assert_near(is.map, wanted.map);
			assert_near(is.set_access, wanted.set_access);
			assert_near(is.unmap, wanted.unmap);
			assert_near(is.release, wanted.release);
		}
	sim_close(made);
	sim_close(s);
	unlink(known_path);
	unlink(made_path);
}

/* Nothing measured gives a table that says so. */
static void test_nothing_measured(void **state)
{
	static char text[16384];
	(void)state;
	results->figure_count = 0;
	cost_table_write(text, sizeof text, "a test");
	assert_non_null(strstr(text, "# not measured: [create]\n"));
	assert_null(strstr(text, "\n["));
}

int main(void)
{
	results = calloc(1, sizeof *results);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_known_table_comes_back),
		cmocka_unit_test(test_nothing_measured),
	};
	int failed = results ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
	free(results);
	return failed;
}
