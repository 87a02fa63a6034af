/* SPDX-License-Identifier: Apache-2.0
 *
 * A device shared with another process: one that ends after the heap has been opened, and one that starts later.
 */
#include <stdio.h>
#include <unistd.h>

#include "rig.h"

enum { TILES = 400 };

/* A process that takes memory of the machine, and has no heap. */
struct other {
	sim *s;
	trz_handle tiles[TILES];
	size_t count;
};

static struct other join(struct rig *r)
{
	struct other o = {0};
	int fd = sim_machine_fd(r->s);
	const sim_config config = {.attach_fd = fd, .continue_on_violation = true, .va_bytes = GIB(1)};
	assert_ok(sim_open(&config, &o.s));
	close(fd);
	return o;
}

static void take(struct other *o, uint64_t bytes)
{
	const trz_driver *d = sim_driver(o->s);
	const trz_tile_props props = {.device = 0};
	for (uint64_t size = GIB(1); bytes; bytes -= size) {
		size = min_u64(size, bytes);
		assert_true(o->count < TILES);
		assert_ok(d->create(d->self, &props, size, &o->tiles[o->count++]));
	}
}

static void leave(struct other *o)
{
	const trz_driver *d = sim_driver(o->s);
	while (o->count)
		assert_ok(d->release(d->self, o->tiles[--o->count]));
	sim_close(o->s);
}

enum { BLOCKS = 600 };

struct program {
	void *held[BLOCKS];
	size_t count;
};

/* Takes `bytes` in blocks of 100 MiB and less, or as much of it as there is. */
static uint64_t fill(struct rig *r, struct program *p, uint64_t bytes)
{
	uint64_t taken = 0;
	for (size_t i = 0; taken < bytes && p->count < BLOCKS; i++) {
		uint64_t size = min_u64(MIB(3) + i * 7 % 98 * MIB(1), bytes - taken);
		if (trz_alloc(r->heap, size, 0, NULL, &p->held[p->count]) != TRZ_OK)
			break;
		p->count++;
		taken += size;
	}
	return taken;
}

static void drop(struct rig *r, struct program *p)
{
	while (p->count)
		rig_free(r, p->held[--p->count]);
}

static void end(struct rig *r, struct program *p)
{
	drop(r, p);
	rig_sync(r);
	rig_close(r);
}

/* What a program that has the device to itself is given. */
static uint64_t tiles_alone(uint64_t bytes, uint64_t *calls)
{
	struct rig r = rig_open(GIB(40), NULL);
	static struct program p;
	assert_int_equal(fill(&r, &p, bytes), bytes);
	uint64_t tiles = rig_stat(&r, "segment.all.current");
	*calls = rig_calls(&r);
	end(&r, &p);
	return tiles;
}

/* The heap finds out, climbs no ladder, and its tiles are as large as on a device of its own. */
static void test_one_that_goes(void **state)
{
	(void)state;
	uint64_t alone, tiles = tiles_alone(GIB(20), &alone);
	struct rig r = rig_machine((sim_config){.capacity = GIB(40), .lenient_rules = SIM_RULE_SYNC_MAYBE});
	struct other o = join(&r);
	static struct program p;
	take(&o, GIB(36));
	rig_open_heap(&r, NULL);
	uint64_t calls = rig_calls(&r);
	leave(&o);
	assert_int_equal(fill(&r, &p, GIB(20)), GIB(20));
	assert_int_equal(rig_stat(&r, "num_alloc_retries"), 0);
	assert_int_equal(rig_stat(&r, "segment.all.current"), tiles);
	assert_true(rig_calls(&r) - calls <= alone + 2);
	calls = rig_calls(&r);
	drop(&r, &p);
	fill(&r, &p, GIB(20));
	assert_int_equal(rig_calls(&r), calls);
	end(&r, &p);
}

/* What it leaves is served nearly to the end, and of the refusals one is enough to know. */
static void test_one_that_comes(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(40), NULL);
	struct other o = join(&r);
	static struct program p;
	fill(&r, &p, GIB(2));
	take(&o, GIB(34));
	sim_reset_calls(r.s);
	uint64_t taken = fill(&r, &p, GIB(4));
	uint64_t tiles = rig_stat(&r, "segment.all.current");
	print_message("of 4 GiB %llu MiB, %llu tiles\n", (unsigned long long)taken >> 20, (unsigned long long)tiles);
	assert_true(taken >= GIB(4) - MIB(100));
	leave(&o);
	uint64_t retries = rig_stat(&r, "num_alloc_retries");
	assert_int_equal(fill(&r, &p, GIB(20)), GIB(20));
	assert_int_equal(rig_stat(&r, "num_alloc_retries"), retries);
	end(&r, &p);
}

/* The heap's own limit and the device are told apart, whoever has the rest of it. */
static void test_what_refuses(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.capacity = GIB(4), .lenient_rules = SIM_RULE_SYNC_MAYBE});
	struct other o = join(&r);
	void *p;
	take(&o, GIB(3));
	rig_open_heap(&r, NULL);
	assert_ok(trz_set_limit(r.heap, GIB(2)));
	assert_error(trz_alloc(r.heap, GIB(1) + MIB(500), 0, NULL, &p), TRZ_ERROR_OUT_OF_MEMORY,
	             "other processes have about 2.00 GiB of the device, ");
	assert_text(trz_last_error(), " short: ");
	leave(&o);
	assert_error(trz_alloc(r.heap, GIB(2) + MIB(500), 0, NULL, &p), TRZ_ERROR_LIMIT, "limit");
	p = rig_alloc(&r, GIB(1) + MIB(500), NULL);
	assert_error(trz_alloc(r.heap, GIB(1), 0, NULL, &p), TRZ_ERROR_LIMIT, "limit");
	rig_close(&r);
}

struct text {
	char bytes[1 << 15];
	size_t used;
};

static bool keep(void *user, const char *text, size_t size)
{
	struct text *t = user;
	assert_true(t->used + size < sizeof t->bytes);
	memcpy(t->bytes + t->used, text, size);
	t->used += size;
	return true;
}

/* The text ends with the words, and has them once. */
static void assert_last_words(const char *text, const char *words)
{
	const char *found = strstr(text, words);
	assert_non_null(found);
	assert_string_equal(found, words);
}

/* Enough is free in pieces between live blocks, but another process has far more: the error says what the report says,
 * with a report that is held back and printed later, and without one. */
static void test_the_error_says_what_the_report_says(void **state)
{
	(void)state;
	enum { PIECES = 400 };
	struct rig r = rig_machine((sim_config){.capacity = GIB(4), .lenient_rules = SIM_RULE_SYNC_MAYBE});
	struct other o = join(&r);
	static struct text report;
	void *held[PIECES], *q;
	rig_open_heap(&r, "tile_size:16MiB");
	for (int i = 0; i < PIECES; i++)
		held[i] = rig_alloc(&r, MIB(2) + KIB(512), NULL);
	for (int i = 0; i < PIECES; i += 2)
		rig_free(&r, held[i]);
	take(&o, GIB(4) - MIB(1040));
	trz_hold_reports(true);
	assert_error(trz_alloc(r.heap, MIB(450), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "; other processes have ");
	trz_hold_reports(false);
	trz_print_failure(r.heap);
	assert_last_words(trz_last_error(), "end them, or use another device");
	assert_status(trz_free(r.heap, &q), TRZ_ERROR_UNKNOWN_POINTER);
	snprintf(report.bytes, sizeof report.bytes, "%s", trz_last_error());
	trz_print_failure(r.heap);
	assert_string_equal(trz_last_error(), report.bytes);
	for (int i = 0; i < 2; i++) {
		assert_error(trz_alloc(r.heap, MIB(450), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "; other processes have ");
		assert_last_words(trz_last_error(), "end them, or use another device");
		report.used = 0;
		assert_ok(trz_report(r.heap, TRZ_REPORT_FAILURE | TRZ_REPORT_JSON, keep, &report));
		report.bytes[report.used] = '\0';
		assert_text(report.bytes, "\"verdict\":\"other_process\"");
	}
	for (int i = 1; i < PIECES; i += 2)
		rig_free(&r, held[i]);
	leave(&o);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_that_goes),
		cmocka_unit_test(test_one_that_comes),
		cmocka_unit_test(test_what_refuses),
		cmocka_unit_test(test_the_error_says_what_the_report_says),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
