/* SPDX-License-Identifier: Apache-2.0
 *
 * Growth in snapshots' histories: steps that are told, marked or recognised; what is a leak and what only grows.
 */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>

#include "bits.h"
#include "dump_evidence.h"
#include "dump_steps.h"
#include "verdict.h"

enum { TEXT = 4 << 20, LIVE_MAX = 4096, MODEL = 1000, WEIGHTS = 2000 };

/* A program that writes the history of PyTorch's allocator, each allocation from a line of train.py: of the script,
 * from MODEL on of its model, from WEIGHTS on where layers are made. */
static struct {
	char events[TEXT], marks[TEXT];
	size_t used, marked;
	uint64_t address, time;
	struct {
		uint64_t address, size;
		int line;
	} live[LIVE_MAX];
	int count;
	bool stacks, makes;        /* makes: layers, at any line */
} p;

static void start(void)
{
	p.used = p.marked = 0;
	p.events[0] = p.marks[0] = '\0';
	p.address = MIB(1);
	p.time = 1000;
	p.count = 0;
	p.stacks = true;
	p.makes = false;
}

static void add_event(const char *action, uint64_t address, uint64_t size, int line)
{
	const char *call = ",{\"filename\":\"torch/nn/modules/module.py\",\"line\":7,\"name\":\"_call_impl\"}";
	const char *make = "{\"filename\":\"torch/nn/modules/linear.py\",\"line\":5,\"name\":\"__init__\"},";
	bool model = line >= MODEL && line < WEIGHTS;
	int n = snprintf(p.events + p.used, TEXT - p.used,
	                 "%s{\"action\":\"%s\",\"addr\":%llu,\"size\":%llu,\"stream\":0,\"time_us\":%llu,\"%s\":[%s"
	                 "{\"filename\":\"train.py\",\"line\":%d,\"name\":\"%s\"}%s]}", p.used ? "," : "", action,
	                 (unsigned long long)address, (unsigned long long)size, (unsigned long long)p.time++,
	                 p.stacks ? "frames" : "none", line >= WEIGHTS || p.makes ? make : "", line,
	                 model ? "forward" : "main", model ? call : "");
	assert_in_range(n, 1, TEXT - p.used - 1);
	p.used += (size_t)n;
}

/* Returns its number, for give(). */
static int take(int line, uint64_t size)
{
	assert_true(p.count < LIVE_MAX);
	add_event("alloc", p.address, size, line);
	p.live[p.count].address = p.address;
	p.live[p.count].size = size;
	p.live[p.count].line = line;
	p.address += align_up(size, 512);
	return p.count++;
}

static void give(int number)
{
	add_event("free_requested", p.live[number].address, p.live[number].size, 0);
	add_event("free_completed", p.live[number].address, p.live[number].size, 0);
	p.live[number].size = 0;
}

static void end_mark(const char *name)
{
	int n = snprintf(p.marks + p.marked, TEXT - p.marked,
	                 "%s{\"name\":\"%s\",\"stage\":\"END\",\"device\":0,\"time_us\":%llu}", p.marked ? "," : "", name,
	                 (unsigned long long)p.time++);
	p.marked += (size_t)n;
}

/* Something that comes and goes: lines 1 to 9, the same in each step. */
static void work(void)
{
	int passing[9];
	for (int i = 0; i < 9; i++)
		passing[i] = take(1 + i, MIB(1 + (uint64_t)i % 3));
	for (int i = 0; i < 9; i++)
		give(passing[i]);
}

/* Memory runs out; the evidence of it. */
static struct evidence *run_out(uint64_t requested)
{
	static char text[2 * TEXT];
	static struct evidence e;
	struct dump d;
	add_event("oom", 0, requested, 30);
	size_t n = (size_t)snprintf(text, sizeof text, "{\"segments\":[{\"device\":0,\"address\":%llu,\"total_size\":%llu,"
	                            "\"stream\":0,\"segment_type\":\"large\",\"blocks\":[", (unsigned long long)MIB(1),
	                            (unsigned long long)(p.address - MIB(1)));
	bool first = true;
	for (int i = 0; i < p.count; i++) {
		uint64_t size = align_up(p.live[i].size, 512);
		if (size == 0)
			continue;
		n += (size_t)snprintf(text + n, sizeof text - n, "%s{\"address\":%llu,\"size\":%llu,\"requested_size\":%llu,"
		                      "\"state\":\"active_allocated\"}", first ? "" : ",",
		                      (unsigned long long)p.live[i].address, (unsigned long long)size,
		                      (unsigned long long)p.live[i].size);
		first = false;
	}
	n += (size_t)snprintf(text + n, sizeof text - n, "]}],\"device_traces\":[[%s]],\"external_annotations\":[%s]}",
	                      p.events, p.marks);
	assert_ok(dump_load_memory("test", text, n, &d));
	assert_ok(dump_evidence(&d, "test", DUMP_ANY_DEVICE, &e, NULL));
	dump_free(&d);
	return &e;
}

static bool leaks(const struct evidence *e, const char *site)
{
	for (unsigned i = 0; i < e->growth_count; i++)
		if (e->growth[i].leak && e->growth[i].site && strstr(e->growth[i].site, site))
			return true;
	return false;
}

static unsigned leak_count(const struct evidence *e)
{
	unsigned n = 0;
	for (unsigned i = 0; i < e->growth_count; i++)
		n += e->growth[i].leak;
	return n;
}

/* ---- leaks ---- */

static void test_a_leak_is_named_by_the_line_that_allocates(void **state)
{
	(void)state;
	start();
	take(20, MIB(50));
	for (int step = 0; step < 60; step++) {
		work();
		take(21, MIB(2));
	}
	const struct evidence *e = run_out(MIB(4));
	assert_true(leaks(e, "train.py:21"));
	assert_int_equal(leak_count(e), 1);
	assert_true(e->growth[0].per_step > 1.9 * (double)MIB(1) && e->growth[0].per_step < 2.1 * (double)MIB(1));
	struct verdict v;
	verdict_find(e, &v);
	assert_string_equal(verdict_name(v.kind), "leak");
}

static void test_a_leak_in_few_steps_is_named(void **state)
{
	(void)state;
	start();
	take(20, MIB(50));
	for (int step = 0; step < 7; step++) {
		work();
		take(21, MIB(4));
	}
	assert_true(leaks(run_out(MIB(40)), "train.py:21"));
}

static void test_marks_of_optimizers_are_steps(void **state)
{
	(void)state;
	start();
	take(20, MIB(50));
	for (int step = 0; step < 20; step++) {
		for (int part = 0; part < 1 + step % 5; part++)
			work();
		take(21, MIB(10));
		end_mark("Optimizer.step#AdamW.step");
	}
	const struct evidence *e = run_out(MIB(40));
	assert_true(leaks(e, "train.py:21"));
	assert_in_range(e->growth[0].steps, 8, 20);
}

/* Two come, one goes: after a while nothing of the first half is there any more. */
static void test_a_queue_that_grows_leaks(void **state)
{
	(void)state;
	start();
	take(20, MIB(50));
	int queue[400], first = 0, behind = 0;
	for (int step = 0; step < 150; step++) {
		work();
		queue[behind++] = take(21, MIB(1));
		queue[behind++] = take(21, MIB(1));
		give(queue[first++]);
	}
	assert_true(leaks(run_out(MIB(4)), "train.py:21"));
}

/* Nothing but lists of buffers, and work, each from one line. */
static void test_a_list_that_is_filled_is_one_allocation(void **state)
{
	(void)state;
	start();
	for (int step = 0; step < 60; step++) {
		for (int i = 0; i < 8; i++)
			take(21, MIB(2));
		for (int i = 0; i < 5; i++)
			give(take(22, MIB(64)));
	}
	assert_true(leaks(run_out(MIB(4)), "train.py:21"));
}

static void test_a_leak_without_stacks_is_found(void **state)
{
	(void)state;
	start();
	p.stacks = false;
	for (int step = 0; step < 60; step++) {
		work();
		take(21, MIB(7));
	}
	assert_int_equal(leak_count(run_out(MIB(4))), 1);
}

/* One cache more in each step, and all are copied into longer ones: so nothing in them is old. */
static void test_caches_that_become_more_leak(void **state)
{
	(void)state;
	start();
	int caches[40];
	for (int step = 0; step < 40; step++) {
		work();
		caches[step] = take(21, MIB(1));
		for (int i = 0; i < step; i++) {
			int longer = take(21, MIB(1) + 4096 * (uint64_t)(step - i));
			give(caches[i]);
			caches[i] = longer;
		}
	}
	assert_true(leaks(run_out(MIB(4)), "train.py:21"));
}

/* Of a model with more layers than there are steps; what it keeps is for a backward pass that never comes. */
static void test_evaluation_with_graphs_leaks(void **state)
{
	(void)state;
	start();
	for (int layer = 0; layer < 40; layer++)
		take(WEIGHTS, MIB(1));
	for (int step = 0; step < 12; step++) {
		take(21, MIB(1));
		for (int layer = 0; layer < 40; layer++) {
			take(MODEL, MIB(3));
			give(take(MODEL + 1, MIB(1)));
		}
	}
	assert_true(leaks(run_out(MIB(4)), "train.py:1000"));
}

/* The history begins here, as where only the newest events were kept. */
static void forget(void)
{
	p.used = 0;
	p.events[0] = '\0';
}

/* What lived before is as large as what grows, and there is more of it: more of the leak, not weights. */
static void test_a_leak_of_which_the_history_has_the_end_is_found(void **state)
{
	(void)state;
	start();
	take(20, MIB(50));
	for (int step = 0; step < 150; step++) {
		if (step == 120)
			forget();
		give(take(22, MIB(4)));
		for (int layer = 0; layer < 4; layer++) {
			take(MODEL, MIB(3));
			give(take(MODEL + 1, MIB(1)));
		}
	}
	assert_true(leaks(run_out(MIB(4)), "train.py:1000"));
}

/* Of a leak of 900 MiB the history has 36: less than growth has to be, were it all. */
static void test_a_slow_leak_of_which_the_history_has_the_end_is_found(void **state)
{
	(void)state;
	start();
	take(20, MIB(50));
	for (int step = 0; step < 300; step++) {
		if (step == 288)
			forget();
		work();
		take(21, MIB(3));
	}
	assert_true(leaks(run_out(MIB(4)), "train.py:21"));
}

/* What the line made before was weights: to look for a model's parts among it does not make the leak one. */
static void test_a_leak_where_weights_were_made_is_found(void **state)
{
	(void)state;
	start();
	p.makes = true;
	take(21, MIB(3));
	p.makes = false;
	for (int step = 0; step < 60; step++) {
		work();
		take(21, MIB(3));
	}
	assert_true(leaks(run_out(MIB(4)), "train.py:21"));
}

/* So many parts as steps would be one pass; but those that were asked for in as many sizes are not alike, though they
 * take the same. */
static void test_a_leak_without_stacks_beside_parts_of_many_sizes_is_found(void **state)
{
	(void)state;
	start();
	p.stacks = false;
	for (uint64_t part = 0; part < 120; part++)
		take(20, MIB(1) - 4 * part);
	for (int step = 0; step < 60; step++) {
		work();
		take(21, MIB(5));
	}
	assert_true(leaks(run_out(MIB(4)), "blocks of 5.00 MiB"));
}

/* What was there before is of other sizes: growth that is little is none that matters. */
static void test_little_growth_beside_much_does_not_leak(void **state)
{
	(void)state;
	start();
	for (int i = 0; i < 20; i++)
		take(20, MIB(50));
	forget();
	for (int step = 0; step < 12; step++) {
		work();
		take(21, MIB(3));
	}
	assert_int_equal(leak_count(run_out(MIB(4))), 0);
}

/* ---- what is none ---- */

/* A script calls as many blocks one by one as would be steps. */
static void pass(int blocks)
{
	for (int block = 0; block < blocks; block++) {
		give(take(21, MIB(8)));
		give(take(MODEL, MIB(8)));
		take(MODEL + 1, MIB(8));
	}
}

static void test_one_pass_through_blocks_does_not_leak(void **state)
{
	(void)state;
	start();
	for (int block = 0; block < 80; block++)
		take(WEIGHTS, MIB(1));
	pass(60);
	assert_int_equal(leak_count(run_out(MIB(40))), 0);
}

/* The history tells how large its weights are, not who made them. */
static void test_one_pass_of_a_history_that_began_late_does_not_leak(void **state)
{
	(void)state;
	start();
	for (int block = 0; block < 80; block++)
		take(WEIGHTS, MIB(1));
	forget();
	pass(60);
	assert_int_equal(leak_count(run_out(MIB(40))), 0);
}

/* Nothing calls a model, and each item stays beside as much that passes. */
static void test_data_that_are_normalised_do_not_leak(void **state)
{
	(void)state;
	start();
	for (int item = 0; item < 60; item++) {
		int raw = take(21, MIB(8)), centred = take(22, MIB(8));
		take(22, MIB(8));
		give(centred);
		give(raw);
	}
	assert_int_equal(leak_count(run_out(MIB(8))), 0);
}

static void test_a_program_that_repeats_does_not_leak(void **state)
{
	(void)state;
	start();
	take(20, MIB(50));
	for (int step = 0; step < 60; step++)
		work();
	assert_int_equal(run_out(MIB(4))->growth_count, 0);
}

/* Nothing is ever freed: layers of a model, not steps. */
static void test_a_loop_that_fills_memory_does_not_leak(void **state)
{
	(void)state;
	start();
	for (int layer = 0; layer < 60; layer++) {
		take(22, MIB(20));
		take(23, MIB(1));
	}
	assert_int_equal(leak_count(run_out(MIB(20))), 0);
}

/* Without stacks, too: what each layer of a forward pass keeps, beside much that comes and goes. */
static void test_layers_without_stacks_do_not_leak(void **state)
{
	(void)state;
	start();
	p.stacks = false;
	for (int layer = 0; layer < 12; layer++) {
		take(21, MIB(40));
		for (int i = 0; i < 3; i++)
			give(take(22, MIB(40)));
		give(take(23, MIB(120)));
	}
	assert_int_equal(leak_count(run_out(MIB(40))), 0);
}

/* Each time a longer copy takes the place of what there was, as caches of keys and values do. */
static void test_what_is_replaced_by_a_longer_copy_does_not_leak(void **state)
{
	(void)state;
	start();
	take(20, MIB(50));
	int cache = take(21, MIB(2));
	for (uint64_t step = 1; step < 60; step++) {
		work();
		int longer = take(21, MIB(2) * (step + 1));
		give(cache);
		cache = longer;
	}
	const struct evidence *e = run_out(MIB(130));
	assert_int_equal(leak_count(e), 0);
	assert_int_equal(e->growth_count, 1);
}

/* Growth that ended long before memory ran out. */
static void test_growth_of_an_earlier_loop_does_not_leak(void **state)
{
	(void)state;
	start();
	int kept[60];
	for (int step = 0; step < 60; step++) {
		work();
		kept[step] = take(21, MIB(2));
	}
	for (int step = 0; step < 60; step += 2)
		give(kept[step]);
	assert_int_equal(leak_count(run_out(MIB(70))), 0);
}

static void test_batches_of_growing_length_do_not_leak(void **state)
{
	(void)state;
	start();
	take(20, MIB(50));
	for (uint64_t step = 1; step < 60; step++) {
		int activations = take(24, MIB(2) * step);
		work();
		give(activations);
	}
	assert_int_equal(leak_count(run_out(MIB(130))), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_leak_is_named_by_the_line_that_allocates),
		cmocka_unit_test(test_a_leak_in_few_steps_is_named),
		cmocka_unit_test(test_marks_of_optimizers_are_steps),
		cmocka_unit_test(test_a_leak_without_stacks_is_found),
		cmocka_unit_test(test_a_queue_that_grows_leaks),
		cmocka_unit_test(test_a_list_that_is_filled_is_one_allocation),
		cmocka_unit_test(test_caches_that_become_more_leak),
		cmocka_unit_test(test_evaluation_with_graphs_leaks),
		cmocka_unit_test(test_a_leak_of_which_the_history_has_the_end_is_found),
		cmocka_unit_test(test_a_slow_leak_of_which_the_history_has_the_end_is_found),
		cmocka_unit_test(test_a_leak_where_weights_were_made_is_found),
		cmocka_unit_test(test_a_leak_without_stacks_beside_parts_of_many_sizes_is_found),
		cmocka_unit_test(test_little_growth_beside_much_does_not_leak),
		cmocka_unit_test(test_one_pass_through_blocks_does_not_leak),
		cmocka_unit_test(test_one_pass_of_a_history_that_began_late_does_not_leak),
		cmocka_unit_test(test_data_that_are_normalised_do_not_leak),
		cmocka_unit_test(test_a_program_that_repeats_does_not_leak),
		cmocka_unit_test(test_a_loop_that_fills_memory_does_not_leak),
		cmocka_unit_test(test_layers_without_stacks_do_not_leak),
		cmocka_unit_test(test_what_is_replaced_by_a_longer_copy_does_not_leak),
		cmocka_unit_test(test_growth_of_an_earlier_loop_does_not_leak),
		cmocka_unit_test(test_batches_of_growing_length_do_not_leak),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
