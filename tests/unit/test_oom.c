/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of an allocation that runs out of memory, and the callback before it fails.
 */
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "heap/heap.h"
#include "overlay.h"
#include "rig.h"
#include "testing.h"

enum { BLOCKS = 5 };

/* [10 used][5 free][20 used][15 free][30 used] GiB on a device of 80. */
static struct rig open_full(void *p[BLOCKS])
{
	static const uint64_t gib[BLOCKS] = {10, 5, 20, 15, 30};
	struct rig r = rig_open(GIB(80), NULL);
	for (int i = 0; i < BLOCKS; i++)
		p[i] = rig_alloc(&r, GIB(gib[i]), NULL);
	rig_free(&r, p[1]);
	rig_free(&r, p[3]);
	return r;
}

static void close_full(struct rig *r, void *p[BLOCKS])
{
	rig_free(r, p[0]);
	rig_free(r, p[2]);
	rig_free(r, p[4]);
	rig_check(r);
	rig_sync(r);
	rig_close(r);
}

static void test_scattered_memory_serves_what_it_holds(void **state)
{
	(void)state;
	void *p[BLOCKS];
	struct rig r = open_full(p);
	void *q = rig_alloc(&r, GIB(20) - 2 * MIB(64), NULL);  /* a tile for each edge less */
	assert_int_equal(sim_device_used(r.s, 0) >> 30, 80);
	rig_free(&r, q);
	close_full(&r, p);
}

/* Small requests have windows of their own; what the large ones have free serves them before they fail. */
static void test_small_requests_fall_back_on_large_memory(void **state)
{
	(void)state;
	enum { N = 256 };
	static void *kept[N], *gone[N], *small[N];
	struct rig r = rig_open(MIB(512), NULL);
	unsigned n = 0, served = 0;
	while (n < N && trz_alloc(r.heap, MIB(1) + KIB(512), 0, NULL, &gone[n]) == TRZ_OK) {
		if (trz_alloc(r.heap, MIB(1) + KIB(512), 0, NULL, &kept[n]) != TRZ_OK) {
			rig_free(&r, gone[n]);
			break;
		}
		n++;
	}
	for (unsigned i = 0; i < n; i++)
		rig_free(&r, gone[i]);
	while (served < N && trz_alloc(r.heap, served % 2 ? 2048 : MIB(1), 0, NULL, &small[served]) == TRZ_OK)
		served++;
	assert_true(n > 100 && served >= n);
	rig_check(&r);
	for (unsigned i = 0; i < served; i++)
		rig_free(&r, small[i]);
	for (unsigned i = 0; i < n; i++)
		rig_free(&r, kept[i]);
	rig_check(&r);
	rig_sync(&r);
	rig_close(&r);
}

static void test_a_full_device_says_by_how_much(void **state)
{
	(void)state;
	void *p[BLOCKS], *q;
	trz_oom_info info;
	struct rig r = open_full(p);
	assert_error(trz_last_oom(r.heap, &info), TRZ_ERROR_NOT_FOUND, "no allocation");
	assert_error(trz_alloc(r.heap, GIB(25), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "is full, 5.00 GiB short");
	assert_ok(trz_last_oom(r.heap, &info));
	assert_int_equal(info.requested, GIB(25));
	assert_int_equal(info.missing, GIB(5));
	assert_int_equal(info.cached, GIB(20));
	assert_int_equal(info.allocated, GIB(60));
	assert_true(info.largest >= GIB(20) - 2 * MIB(64) && info.largest <= GIB(20));
	close_full(&r, p);
}

/* A device's last bytes are free by its own account, and yet refused. What was learnt from one refusal holds for the
 * next figures, to the granule, whatever is in use. */
static void test_what_the_device_withholds_is_told(void **state)
{
	(void)state;
	static const uint64_t used[] = {0, MIB(300), MIB(966)};
	for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
		struct rig r = rig_machine((sim_config){.capacity = GIB(1), .withheld = MIB(41),
		                                        .lenient_rules = SIM_RULE_SYNC_MAYBE});
		size_t largest, rest = GIB(1) - used[i], had = rest - MIB(42);
		trz_oom_info info;
		void *q, *p = NULL;
		rig_open_heap(&r, NULL);
		if (used[i])
			p = rig_alloc(&r, used[i], NULL);
		assert_ok(trz_largest_block(r.heap, NULL, &largest));
		assert_int_equal(largest, rest);
		assert_error(trz_alloc(r.heap, largest, 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY,
		             "42.00 MiB of which cannot be had; this heap");
		assert_text(trz_last_error(), "the device is full, 42.00 MiB short");
		assert_ok(trz_last_oom(r.heap, &info));
		assert_int_equal(info.device_free, rest);
		assert_int_equal(info.missing, MIB(42));
		assert_int_equal(info.largest, had);
		assert_ok(trz_largest_block(r.heap, NULL, &largest));
		assert_int_equal(largest, had);
		rig_free(&r, rig_alloc(&r, largest, NULL));
		assert_error(trz_alloc(r.heap, largest + MIB(2), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "full, 2.00 MiB short");
		if (p)
			rig_free(&r, p);
		rig_check(&r);
		rig_sync(&r);
		rig_close(&r);
	}
}

/* A figure of the driver calls since `before`. */
static uint64_t since(const struct rig *r, const char *call, uint64_t before)
{
	return rig_stat(r, call) - before;
}

/* Servers and searches for a batch size fail often: a failure does not create what is left of the device to learn that
 * it is not enough, but asks for one handle. */
static void test_a_failure_creates_nothing(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(8), NULL);
	void *p = rig_alloc(&r, GIB(6), NULL), *q = NULL;
	trz_alloc(r.heap, GIB(3), 0, NULL, &q);
	for (int i = 0; i < 3; i++) {
		uint64_t creates = rig_stat(&r, "driver_calls.create"), calls = rig_calls(&r);
		assert_error(trz_alloc(r.heap, GIB(3) - MIB(i), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "the device is full");
		assert_int_equal(since(&r, "driver_calls.create", creates), 1);
		assert_int_equal(rig_calls(&r) - calls, 9);
	}
	q = rig_alloc(&r, GIB(2), NULL);
	rig_free(&r, p);
	rig_free(&r, q);
	rig_sync(&r);
	rig_close(&r);
}

static struct overlay modest;
static bool says_nothing;

static trz_status call_less_free(void *self, trz_context context, uint64_t *free_bytes, uint64_t *total)
{
	trz_status status = modest.rig.d->mem_info(self, context, free_bytes, total);
	if (says_nothing)
		*free_bytes = 0;
	return status;
}

/* Other processes give memory back at any time, and not every driver calls all free that it has: the driver is asked
 * before a request fails. */
static void test_a_device_that_has_more_than_it_says(void **state)
{
	(void)state;
	static const char *const conf[] = {NULL, "vmm:off"};
	for (size_t i = 0; i < LENGTH(conf); i++) {
		says_nothing = false;
		overlay_machine(&modest, GIB(1));
		modest.table.mem_info = call_less_free;
		overlay_open_heap(&modest, conf[i]);
		struct rig *r = &modest.rig;
		says_nothing = true;
		void *p = rig_alloc(r, MIB(300), NULL), *q = rig_alloc(r, MIB(500), NULL);
		says_nothing = false;
		r->heap->withheld = MIB(200);  /* what was learnt once need not be so any more */
		void *last = rig_alloc(r, MIB(100), NULL);
		assert_int_equal(rig_stat(r, "num_ooms"), 0);
		rig_free(r, p);
		rig_free(r, q);
		rig_free(r, last);
		rig_sync(r);
		rig_close(r);
	}
}

/* Whoever is refused learns it: dedicated memory to the granule, and without virtual memory management, where a trial
 * would cost a wait, at least that so much cannot be had. */
static void test_every_kind_of_memory_learns_what_is_withheld(void **state)
{
	(void)state;
	static const struct {
		const char *conf;
		unsigned flags;
	} cases[] = {{NULL, TRZ_ALLOC_CONTIGUOUS}, {"vmm:off", 0}, {"vmm:off", TRZ_ALLOC_CONTIGUOUS}, {"no_cache:on", 0}};
	for (size_t i = 0; i < LENGTH(cases); i++) {
		struct rig r = rig_machine((sim_config){.capacity = GIB(1), .withheld = MIB(41),
		                                        .lenient_rules = SIM_RULE_SYNC_MAYBE});
		rig_open_heap(&r, cases[i].conf);
		trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(1000), .flags = cases[i].flags};
		trz_oom_info info;
		void *q;
		assert_error(trz_alloc_with(r.heap, &params, &q), TRZ_ERROR_OUT_OF_MEMORY, "of which cannot be had; this heap");
		assert_text(trz_last_error(), "the device is full, ");
		assert_ok(trz_last_oom(r.heap, &info));
		assert_int_equal(info.device_free, GIB(1));
		assert_true(info.missing > 0 && info.missing <= MIB(18));
		params.size = MIB(980);
		assert_ok(trz_alloc_with(r.heap, &params, &q));
		rig_free(&r, q);
		rig_sync(&r);
		rig_close(&r);
	}
}

/* Free memory of a pool that graphs rely on is of no use to others. */
static void test_memory_held_for_graphs_is_told(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), NULL);
	trz_stream s = rig_stream(&r);
	trz_pool *pool;
	trz_oom_info info;
	sim_graph graph;
	void *p, *q;
	assert_ok(trz_pool_create(r.heap, &pool));
	assert_ok(trz_pool_begin_capture(r.heap, pool, s));
	assert_ok(sim_capture_begin(r.s, r.c, s, TRZ_CAPTURE_GLOBAL));
	p = rig_alloc(&r, GIB(2), s);
	rig_free(&r, p);
	assert_ok(sim_capture_end(r.s, r.c, s, &graph));
	assert_ok(trz_pool_end(r.heap, pool));
	assert_error(trz_alloc(r.heap, GIB(3), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "2.00 GiB of that held for graphs");
	assert_ok(trz_last_oom(r.heap, &info));
	assert_true(info.pinned >= GIB(2) && info.pinned == info.cached);
	assert_int_equal(info.missing, GIB(3) - info.device_free);
	rig_sync(&r);
	p = NULL;
	assert_error(trz_pool_alloc(r.heap, pool, GIB(5), 0, s, &p), TRZ_ERROR_OUT_OF_MEMORY, "2.00 GiB is free, and");
	assert_ok(trz_last_oom(r.heap, &info));
	assert_int_equal(info.pinned, 0);
	assert_ok(sim_graph_destroy(r.s, r.c, graph));
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

/* A request that nothing could serve is refused before anything is given up for it. */
static void test_hopeless_requests_cost_nothing(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(512), NULL);
	trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(40), .flags = TRZ_ALLOC_CONTIGUOUS};
	void *p, *q;
	assert_ok(trz_alloc_with(r.heap, &params, &p));
	q = rig_alloc(&r, MIB(100), NULL);
	rig_free(&r, p);
	rig_free(&r, q);
	rig_sync(&r);
	uint64_t reserved = rig_stat(&r, "reserved_bytes.all.current");
	params.size = GIB(1);
	assert_error(trz_alloc_with(r.heap, &params, &p), TRZ_ERROR_OUT_OF_MEMORY, "the device is full, ");
	assert_text(trz_last_error(), " short: ");
	assert_error(trz_alloc(r.heap, GIB(1), 0, NULL, &p), TRZ_ERROR_OUT_OF_MEMORY, "the device is full, ");
	assert_text(trz_last_error(), " short: ");
	assert_ok(trz_set_limit(r.heap, MIB(200)));
	params.size = MIB(300);
	assert_error(trz_alloc_with(r.heap, &params, &p), TRZ_ERROR_LIMIT, "limit");
	assert_error(trz_alloc(r.heap, MIB(300), 0, NULL, &p), TRZ_ERROR_LIMIT, "limit");
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), reserved);
	assert_int_equal(rig_stat(&r, "num_alloc_retries"), 0);
	assert_int_equal(rig_stat(&r, "num_ooms"), 4);
	rig_check(&r);
	rig_close(&r);
}

/* What would help, and nothing that would not. */
static void test_the_advice(void **state)
{
	(void)state;
	enum { PIECES = 96 };
	struct rig r = rig_open(MIB(256), NULL);
	void *p[PIECES], *q;
	assert_error(trz_alloc(r.heap, MIB(300), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "no device of this size");
	assert_ok(trz_set_limit(r.heap, MIB(100)));
	assert_error(trz_alloc(r.heap, MIB(120), 0, NULL, &q), TRZ_ERROR_LIMIT,
	             "limit is reached, 20.00 MiB short: free something, use a smaller batch, or raise the limit");
	assert_ok(trz_set_limit(r.heap, MIB(2) - 1));  /* less than a granule */
	assert_error(trz_alloc(r.heap, 1, 0, NULL, &q), TRZ_ERROR_LIMIT, "the heap's limit is reached");
	assert_ok(trz_set_limit(r.heap, 0));
	for (int i = 0; i < PIECES; i++)
		p[i] = rig_alloc(&r, MIB(2) + KIB(512), NULL);
	assert_error(trz_alloc(r.heap, MIB(100), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "what else uses the device");
	for (int i = 0; i < PIECES; i += 2)
		rig_free(&r, p[i]);
	assert_error(trz_alloc(r.heap, MIB(90), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY,
	             "fragmented by live blocks in the same tiles: free more, or use a smaller batch");
	assert_null(strstr(trz_last_error(), "synchronise"));
	for (int i = 1; i < PIECES; i += 2)
		rig_free(&r, p[i]);
	rig_sync(&r);
	rig_close(&r);
}

static bool tell_limit(void *user, int device, trz_shared_limit *limit)
{
	assert_int_equal(device, 0);
	*limit = *(const trz_shared_limit *)user;
	return limit->limit != 0;
}

/* A limit before the driver looks like a full device: who stands there can tell the heaps of it. */
static void test_a_limit_before_the_driver(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	trz_shared_limit limit = {.limit = MIB(256), .own = MIB(40), .others = MIB(216), .device_free = GIB(3),
	                          .device_total = GIB(4), .process_count = 1, .processes = {{1, MIB(216)}}};
	void *p = rig_alloc(&r, MIB(200), NULL), *q;
	assert_ok(trz_set_shared_limit(tell_limit, &limit));
	assert_error(trz_alloc(r.heap, MIB(100), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY,
	             "3.00 GiB of 4.00 GiB is free there, 256.00 MiB of a limit of 256.00 MiB is held; this heap");
	assert_non_null(strstr(trz_last_error(), "a limit is reached, "));
	assert_text(trz_last_error(), " short: ");
	assert_error(trz_alloc(r.heap, MIB(300), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "a limit is reached, ");
	assert_text(trz_last_error(), " short: ");
	limit.device_free = MIB(20);  /* others have the rest of the device, too */
	assert_error(trz_alloc(r.heap, MIB(100), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "; other processes have ");
	limit.limit = 0;
	assert_error(trz_alloc(r.heap, MIB(100), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "what else uses the device");
	assert_null(strstr(trz_last_error(), "a limit of"));
	assert_ok(trz_set_shared_limit(NULL, NULL));
	rig_free(&r, p);
	rig_close(&r);
}

struct helper {
	struct rig *rig;
	void *spare;
	int calls;
};

static bool give_spare(void *user, const trz_oom_info *info)
{
	struct helper *h = user;
	h->calls++;
	assert_int_equal(info->requested, MIB(100));
	if (!h->spare)
		return false;
	rig_free(h->rig, h->spare);
	h->spare = NULL;
	return true;
}

static void test_the_callback_can_help(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	struct helper h = {&r, rig_alloc(&r, MIB(200), NULL), 0};
	void *p, *q;
	assert_ok(trz_set_oom_callback(r.heap, give_spare, &h));
	assert_ok(trz_alloc(r.heap, MIB(100), 0, NULL, &p));
	assert_int_equal(h.calls, 1);
	assert_ok(trz_alloc(r.heap, MIB(100), 0, NULL, &q));
	assert_int_equal(h.calls, 1);
	void *none;
	assert_error(trz_alloc(r.heap, MIB(100), 0, NULL, &none), TRZ_ERROR_OUT_OF_MEMORY, "full");
	assert_int_equal(h.calls, 2);
	assert_ok(trz_set_oom_callback(r.heap, NULL, NULL));
	assert_error(trz_alloc(r.heap, MIB(100), 0, NULL, &none), TRZ_ERROR_OUT_OF_MEMORY, "full");
	assert_int_equal(h.calls, 2);
	rig_free(&r, p);
	rig_free(&r, q);
	rig_sync(&r);
	rig_close(&r);
}

static int depth;

/* Fails in its own ways, which must neither recurse nor replace the text of the failure that it was called for. */
static bool make_it_worse(void *user, const trz_oom_info *info)
{
	trz_heap *heap = user;
	void *p;
	(void)info;
	depth++;
	assert_int_equal(trz_alloc(heap, MIB(200), 0, NULL, &p), TRZ_ERROR_OUT_OF_MEMORY);
	assert_int_equal(trz_free(heap, (void *)0x1234), TRZ_ERROR_UNKNOWN_POINTER);
	return false;
}

/* The first part of a report is its first line. */
static bool tells_the_outer(void *user, const char *text, size_t size)
{
	char line[256];
	(void)user;
	snprintf(line, sizeof line, "%.*s", (int)size, text);
	assert_text(line, "100.00 MiB asked for");
	return false;
}

static void test_a_callback_that_fails_itself(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), NULL);
	trz_oom_info info;
	void *p;
	assert_ok(trz_set_oom_callback(r.heap, make_it_worse, r.heap));
	assert_error(trz_alloc(r.heap, MIB(100), MIB(2), NULL, &p), TRZ_ERROR_OUT_OF_MEMORY, "100.00 MiB requested");
	assert_int_equal(depth, 1);
	assert_status(trz_report(r.heap, TRZ_REPORT_FAILURE, tells_the_outer, NULL), TRZ_ERROR_IO);
	assert_ok(trz_set_oom_callback(r.heap, NULL, NULL));
	assert_status(trz_alloc(r.heap, MIB(100), MIB(2), NULL, &p), TRZ_ERROR_OUT_OF_MEMORY);
	assert_ok(trz_last_oom(r.heap, &info));
	assert_int_equal(info.requested, MIB(100));
	rig_close(&r);
}

/* Options alone: the history begins with the heap, and a failure leaves a snapshot. */
static void test_a_failure_leaves_a_snapshot(void **state)
{
	(void)state;
	char folder[] = "oom-XXXXXX", conf[96], path[96];
	assert_non_null(mkdtemp(folder));
	snprintf(conf, sizeof conf, "history:1000,oom_snapshot:%s", folder);
	struct rig r = rig_open(GIB(1), conf);
	void *p = rig_alloc(&r, MIB(600), NULL), *q = NULL;
	snprintf(path, sizeof path, "%s/%d-0.json", folder, (int)getpid());
	assert_int_not_equal(access(path, F_OK), 0);
	assert_error(trz_alloc(r.heap, MIB(600), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, path);
	assert_true(strstr(trz_last_error(), "600.00 MiB requested") != NULL);
	json_t *snapshot = json_load_file(path, 0, NULL), *trace, *event;
	assert_non_null(snapshot);
	trace = json_array_get(json_object_get(snapshot, "device_traces"), 0);
	bool oom = false;
	size_t i;
	json_array_foreach(trace, i, event)
		oom |= strcmp(json_string_value(json_object_get(event, "action")), "oom") == 0;
	assert_true(oom);
	assert_int_equal(unlink(path), 0);
	trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(600), .flags = TRZ_ALLOC_CONTIGUOUS};
	assert_error(trz_alloc_with(r.heap, &params, &q), TRZ_ERROR_OUT_OF_MEMORY, path);
	assert_int_equal(access(path, F_OK), 0);
	json_decref(snapshot);
	unlink(path);
	rmdir(folder);  /* a folder that is gone: the failure is what it was */
	assert_error(trz_alloc(r.heap, MIB(600), 0, NULL, &q), TRZ_ERROR_OUT_OF_MEMORY, "no snapshot: ");
	assert_true(strstr(trz_last_error(), "600.00 MiB requested") != NULL);
	rig_free(&r, p);
	rig_close(&r);
}

static void set_flag(void *arg)
{
	__atomic_store_n((uint32_t *)arg, 1, __ATOMIC_RELEASE);
}

/* One stream frees memory after a kernel that spins until the other, which wants the memory, comes to its next item.
 * Nobody can tell: the wait that the free asks for hangs the device. */
static trz_status want_of_a_spinning_stream(const char *conf, bool *hangs)
{
	struct rig r = rig_open(GIB(1), conf);
	trz_stream s = rig_stream(&r), t = rig_stream(&r);
	uint32_t flag = 0;
	void *p = rig_alloc(&r, MIB(700), s), *q = NULL;
	rig_free(&r, rig_alloc(&r, 512, t));
	assert_ok(sim_spin(r.s, r.c, s, &flag));
	rig_free(&r, p);
	trz_status status = trz_alloc(r.heap, MIB(700), 0, t, &q);
	assert_ok(sim_host(r.s, r.c, t, set_flag, &flag));
	*hangs = sim_stream_sync(r.s, r.c, t) != TRZ_OK;
	if (*hangs) {
		assert_text(sim_first_violation(r.s), "deadlock");
		set_flag(&flag);
		trz_close(r.heap);
		sim_close(r.s);
		return status;
	}
	rig_sync(&r);
	assert_ok(trz_alloc(r.heap, MIB(700), 0, t, &q));  /* now that the kernel has ended */
	rig_close(&r);
	return status;
}

static void test_a_wait_can_hang_and_be_switched_off(void **state)
{
	(void)state;
	bool hangs;
	assert_ok(want_of_a_spinning_stream("wait:on", &hangs));
	assert_true(hangs);
	assert_status(want_of_a_spinning_stream("wait:off", &hangs), TRZ_ERROR_OUT_OF_MEMORY);
	assert_false(hangs);
	assert_text(trz_last_error(), "fragmented by unfinished work of other streams");
	assert_status(want_of_a_spinning_stream("wait:off,no_cache:on", &hangs), TRZ_ERROR_OUT_OF_MEMORY);
	assert_false(hangs);
}

/* Two streams that the heap knows: it records events from then on. */
static struct rig open_with_streams(trz_stream *a, trz_stream *b)
{
	struct rig r = rig_open(GIB(1), NULL);
	*a = rig_stream(&r);
	*b = rig_stream(&r);
	rig_free(&r, rig_alloc(&r, 512, *a));
	rig_free(&r, rig_alloc(&r, 512, *b));
	return r;
}

/* Work on a stream's block, which is then freed while the work is not done. */
static void free_late(struct rig *r, trz_stream stream, void *p, size_t size)
{
	assert_ok(sim_stamp(r->s, r->c, stream, (trz_addr)p, size, 1));
	rig_free(r, p);
}

/* A third stream waits for the second, which waits for the first and uses only a part of what it got so. */
static void test_what_a_wait_has_left_is_waited_for_in_turn(void **state)
{
	(void)state;
	trz_stream a, b;
	struct rig r = open_with_streams(&a, &b);
	trz_stream c = rig_stream(&r);
	free_late(&r, a, rig_alloc(&r, MIB(900), a), MIB(900));
	void *p = rig_alloc(&r, MIB(300), b), *q = rig_alloc(&r, MIB(500), c);
	assert_true(rig_stat(&r, "waits_inserted") >= 2);
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)p, MIB(300), 2));
	assert_ok(sim_stamp(r.s, r.c, c, (trz_addr)q, MIB(500), 3));
	rig_sync(&r);
	rig_free(&r, p);
	rig_free(&r, q);
	rig_close(&r);
}

/* Unfinished memory of the default pool is moved to a pool's stream that waits for it, and back. */
static void test_a_wait_gives_memory_of_other_pools(void **state)
{
	(void)state;
	trz_stream a, b;
	struct rig r = open_with_streams(&a, &b);
	trz_pool *pool;
	void *p;
	assert_ok(trz_pool_create(r.heap, &pool));
	free_late(&r, a, rig_alloc(&r, MIB(900), a), MIB(900));
	assert_ok(trz_pool_alloc(r.heap, pool, MIB(600), 0, b, &p));
	assert_true(rig_stat(&r, "waits_inserted") > 0);
	free_late(&r, b, p, MIB(600));
	p = rig_alloc(&r, MIB(700), a);
	rig_sync(&r);
	rig_free(&r, p);
	assert_ok(trz_pool_release(r.heap, pool));
	rig_close(&r);
}

enum { SMALL_BLOCKS = 200 };  /* until the device is nearly full: from then on each free can be waited for */

/* So is the memory of small requests, of which no block would do. */
static void test_a_wait_gives_memory_of_small_requests(void **state)
{
	(void)state;
	trz_stream a, b;
	struct rig r = open_with_streams(&a, &b);
	void *small[SMALL_BLOCKS], *rest = rig_alloc(&r, MIB(600), a);
	for (int i = 0; i < SMALL_BLOCKS; i++)
		small[i] = rig_alloc(&r, MIB(2), a);
	for (int i = 0; i < SMALL_BLOCKS; i++)
		free_late(&r, a, small[i], MIB(2));
	void *p = rig_alloc(&r, MIB(380), b);
	assert_true(rig_stat(&r, "waits_inserted") > 0);
	assert_ok(sim_stamp(r.s, r.c, b, (trz_addr)p, MIB(380), 2));
	rig_sync(&r);
	rig_free(&r, p);
	rig_free(&r, rest);
	rig_close(&r);
}

enum { STRIPES = 24, STRIPE = 5 };

/* What two streams have freed adds up to the request and lies between live blocks: the waits are in vain. */
static void test_a_failure_tells_of_waits_in_vain(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(STRIPES * STRIPE + 2), "tile_size:16MiB,event_bytes:0");
	trz_stream a = rig_stream(&r), b = rig_stream(&r), c = rig_stream(&r);
	void *p[STRIPES], *q;
	trz_oom_info info;
	rig_free(&r, rig_alloc(&r, MIB(2), c));
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	for (int i = 0; i < STRIPES; i++)
		assert_ok(trz_alloc(r.heap, MIB(STRIPE), 0, i < STRIPES / 2 ? a : b, &p[i]));
	for (int i = 0; i < STRIPES; i += 2) {
		assert_ok(sim_stamp(r.s, r.c, i < STRIPES / 2 ? a : b, (trz_addr)p[i], MIB(STRIPE), 1));
		rig_free(&r, p[i]);
	}
	assert_error(trz_alloc(r.heap, MIB(30), 0, c, &q), TRZ_ERROR_OUT_OF_MEMORY, "waited for stream");
	assert_text(trz_last_error(), "free memory is fragmented");
	assert_ok(trz_last_oom(r.heap, &info));
	assert_int_equal(info.waits, rig_stat(&r, "waits_inserted"));
	assert_true(info.waits >= 6);
	assert_true(info.awaited_count >= 1 && info.awaited_count <= 2);
	for (unsigned i = 0; i < info.awaited_count; i++)
		assert_true(info.awaited[i] == a || info.awaited[i] == b);
	assert_error(trz_alloc(r.heap, MIB(500), 0, c, &q), TRZ_ERROR_OUT_OF_MEMORY, "full");
	assert_ok(trz_last_oom(r.heap, &info));
	assert_int_equal(info.waits, 0);
	rig_sync(&r);
	rig_close(&r);
}

static void test_arguments(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(256), NULL);
	trz_oom_info info;
	assert_error(trz_last_oom(NULL, &info), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	assert_error(trz_last_oom(r.heap, NULL), TRZ_ERROR_INVALID_ARGUMENT, "info is NULL");
	assert_error(trz_set_oom_callback(NULL, NULL, NULL), TRZ_ERROR_INVALID_ARGUMENT, "heap is NULL");
	rig_close(&r);
}

/* What the large windows have free serves a medium request at last. */
static void test_the_largest_request_is_what_is_left(void **state)
{
	(void)state;
	struct rig r = rig_open(MIB(64), "oom_report:off");
	size_t largest;
	void *p;
	while (trz_alloc(r.heap, MIB(1) + KIB(256), 0, NULL, &p) == TRZ_OK)
		;
	assert_ok(trz_largest_block(r.heap, NULL, &largest));
	assert_in_range(largest, KIB(100), MIB(1));
	rig_alloc(&r, largest, NULL);
	rig_check(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scattered_memory_serves_what_it_holds),
		cmocka_unit_test(test_memory_held_for_graphs_is_told),
		cmocka_unit_test(test_hopeless_requests_cost_nothing),
		cmocka_unit_test(test_small_requests_fall_back_on_large_memory),
		cmocka_unit_test(test_a_full_device_says_by_how_much),
		cmocka_unit_test(test_what_the_device_withholds_is_told),
		cmocka_unit_test(test_a_failure_creates_nothing),
		cmocka_unit_test(test_a_device_that_has_more_than_it_says),
		cmocka_unit_test(test_every_kind_of_memory_learns_what_is_withheld),
		cmocka_unit_test(test_the_advice),
		cmocka_unit_test(test_a_limit_before_the_driver),
		cmocka_unit_test(test_the_callback_can_help),
		cmocka_unit_test(test_a_callback_that_fails_itself),
		cmocka_unit_test(test_a_failure_leaves_a_snapshot),
		cmocka_unit_test(test_a_wait_can_hang_and_be_switched_off),
		cmocka_unit_test(test_what_a_wait_has_left_is_waited_for_in_turn),
		cmocka_unit_test(test_a_wait_gives_memory_of_other_pools),
		cmocka_unit_test(test_a_wait_gives_memory_of_small_requests),
		cmocka_unit_test(test_a_failure_tells_of_waits_in_vain),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_the_largest_request_is_what_is_left),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
