/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the tests, continued: bugs about order, addresses and locks, planted in the heap or between it and its
 * driver, and what notices them. Each scene is also played without its bug.
 */
#include <string.h>
#include <unistd.h>

#include "heap/carve.h"
#include "heap/ends.h"
#include "heap/heap.h"
#include "order/pool.h"
#include "planted.h"
#include "rig.h"

static struct world world;

static const char *first_noticed(void (*spoil)(trz_driver *driver), bool (*fit)(void), void (*plant)(void), int most)
{
	return planted_noticed(&world, spoil, fit, plant, most);
}

/* ---- an event recorded late, and waited for -------------------------------------------------------------- */

static void set_flag(void *arg)
{
	__atomic_store_n((uint32_t *)arg, 1, __ATOMIC_RELEASE);
}

/* Frees memory on a stream that then spins until another stream, which wants the memory, has set a flag. */
static uint64_t play_late_event(bool planted, trz_status *status)
{
	struct rig r = rig_open(GIB(1), NULL);
	trz_stream s = rig_stream(&r), t = rig_stream(&r);
	uint32_t flag = 0;
	void *p = rig_alloc(&r, MIB(700), s), *q = NULL;
	rig_free(&r, rig_alloc(&r, 512, t));
	assert_ok(sim_stamp(r.s, r.c, s, (trz_addr)p, MIB(700), 1));
	sim_fault_nth(r.s, 1ull << SIM_SLOT_event_record, 1, false, TRZ_ERROR_DRIVER);
	rig_free(&r, p);
	assert_ok(sim_spin(r.s, r.c, s, &flag));
	assert_ok(trz_poll(r.heap));  /* records the event that the free could not */
	uint64_t id;
	assert_ok(r.d->stream_id(r.d->self, r.c, s, &id));
	struct tickets *tickets = &stream_find(&r.heap->streams, id)->tickets;
	assert_int_equal(tickets->count, 1);
	tickets->queue[tickets->head].first = planted ? tickets->queue[tickets->head].sequence : 0;
	*status = trz_alloc(r.heap, MIB(700), 0, t, &q);
	assert_ok(sim_host(r.s, r.c, t, set_flag, &flag));
	sim_device_sync(r.s, 0);
	uint64_t violations = sim_violations(r.s);
	if (violations)
		assert_text(sim_first_violation(r.s), "deadlock");
	set_flag(&flag);
	trz_close(r.heap);
	sim_close(r.s);
	return violations;
}

static void test_the_device_notices_a_wait_for_a_late_event(void **state)
{
	(void)state;
	trz_status status;
	assert_int_equal(play_late_event(false, &status), 0);
	assert_status(status, TRZ_ERROR_OUT_OF_MEMORY);
	assert_true(play_late_event(true, &status) > 0);
	assert_ok(status);
}

/* ---- tiles that move to another stream before their last use has completed ------------------------------- */

/* The bug: what a stream has freed counts as passed, so its tiles are laid elsewhere for another stream. */
static uint64_t play_moved_tiles(bool planted)
{
	struct rig r = rig_open(GIB(1), "slack_per_mille:0,tile_size:2MiB,tile_size_max:2MiB");
	trz_stream s = rig_stream(&r), t = rig_stream(&r);
	uint32_t flag = 0;
	void *held[40], *p;
	for (int i = 0; i < 40; i++)
		held[i] = rig_alloc(&r, MIB(2), s);
	rig_free(&r, rig_alloc(&r, 512, t));
	assert_ok(sim_spin(r.s, r.c, s, &flag));
	for (int i = 0; i < 40; i += 2) {
		assert_ok(sim_stamp(r.s, r.c, s, (trz_addr)held[i], MIB(2), 1));
		rig_free(&r, held[i]);
	}
	uint64_t id;
	assert_ok(r.d->stream_id(r.d->self, r.c, s, &id));
	struct tickets *tickets = &stream_find(&r.heap->streams, id)->tickets;
	if (planted)
		ticket_pass(tickets, tickets->newest);
	p = rig_alloc(&r, MIB(30), t);
	assert_int_equal(rig_stat(&r, "tiles_gathered") > 0, planted);
	assert_ok(sim_stamp(r.s, r.c, t, (trz_addr)p, MIB(30), 2));
	sim_run(r.s, UINT64_MAX);
	set_flag(&flag);
	sim_run(r.s, UINT64_MAX);
	assert_ok(sim_verify(r.s, r.c, t, (trz_addr)p, MIB(30), 2));
	sim_device_sync(r.s, 0);
	uint64_t violations = sim_violations(r.s);
	trz_close(r.heap);
	sim_close(r.s);
	return violations;
}

static void test_stamps_notice_tiles_that_move_too_early(void **state)
{
	(void)state;
	assert_int_equal(play_moved_tiles(false), 0);
	assert_true(play_moved_tiles(true) > 0);
}

/* ---- order that the program did not make ------------------------------------------------------------------ */

static bool has_order(void)
{
	return world.vmm && !world.faulty && !world.aided && world.stream_count > 2 && world.actor_count == 1;
}

static struct streams *heap_streams(void)
{
	return &world.heap->streams;
}

/* The bug: a record covers memory freed after it. */
static void age_records(void)
{
	const struct event_clocks *all = &world.heap->clocks;
	for (size_t i = 0; i < all->bucket_count; i++)
		for (const struct event_clock *c = all->buckets[i]; c; c = c->next)
			for (unsigned k = 0; k < c->count; k++)
				c->entries[k].ticket = heap_streams()->list[c->entries[k].stream]->tickets.newest;
}

/* The bug: a wait also counts as one for all later work of the other stream. */
static void extend_waits(void)
{
	for (unsigned i = 0; i < heap_streams()->count; i++) {
		const struct stream *s = heap_streams()->list[i];
		for (unsigned k = 0; k < s->known_count; k++)
			if (s->known[k])
				s->known[k] = heap_streams()->list[k]->tickets.newest;
	}
}

/* The bug: what one stream follows counts as complete for all. */
static void pass_what_is_known(void)
{
	for (unsigned i = 0; i < heap_streams()->count; i++) {
		const struct stream *s = heap_streams()->list[i];
		for (unsigned k = 0; k < s->known_count; k++)
			if (s->known[k])
				ticket_pass(&heap_streams()->list[k]->tickets, s->known[k]);
	}
}

static void test_worlds_notice_false_order(void **state)
{
	(void)state;
	static void (*const plants[])(void) = {age_records, extend_waits, pass_what_is_known};
	assert_null(first_noticed(NULL, has_order, NULL, 3));
	for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++) {
		const char *noticed = first_noticed(NULL, has_order, plants[i], 60);
		print_message("%zu: %s\n", i, noticed ? noticed : "nothing");
		assert_non_null(noticed);
	}
}

/* ---- an exported tile unmapped --------------------------------------------------------------------------- */

static void *exportable(trz_heap *heap)
{
	const trz_alloc_params params = {.struct_size = sizeof params, .size = MIB(4), .flags = TRZ_ALLOC_SHARE_FD};
	void *p = NULL;
	assert_ok(trz_alloc_with(heap, &params, &p));
	return p;
}

/* The bug: the heap forgets an export, and returns the tile, which another process has mapped and the device counts. */
static const char *play_exported_tile(bool planted)
{
	assert_null(world_open(&world, 2));
	for (uint64_t seed = 3; !world.vmm || !world.other; seed++) {
		world_close(&world);
		assert_null(world_open(&world, seed));
	}
	int fd = -1;
	trz_heap *h = world.heap;
	const trz_driver *other = sim_driver(world.other);
	trz_handle handle;
	void *p = exportable(h);
	assert_ok(trz_export(h, p, TRZ_ALLOC_SHARE_FD, &fd));
	assert_ok(other->import_handle(other->self, TRZ_EXPORT_FD, &fd, &handle));
	assert_ok(trz_free(h, p));
	sim_device_sync(world.s, 0);
	assert_ok(trz_trim(h, 0, NULL));
	if (planted)
		assert_ok(trz_export_end(h, p));
	assert_ok(trz_trim(h, 0, NULL));
	const char *wrong = world_check(&world);
	assert_ok(other->release(other->self, handle));
	close(fd);
	return wrong;
}

static void test_the_books_notice_an_exported_tile_that_is_unmapped(void **state)
{
	(void)state;
	assert_null(play_exported_tile(false));
	world_close(&world);
	const char *wrong = play_exported_tile(true);
	assert_non_null(wrong);
	assert_text(wrong, "the device has given");
	world_close(&world);
}

/* ---- a tile that another process has, returned ------------------------------------------------------------ */

static void open_shared_world(void)
{
	assert_null(world_open(&world, 2));
	for (uint64_t seed = 3; !world.vmm || !world.other || !world.exportable || world.aided; seed++) {
		world_close(&world);
		assert_null(world_open(&world, seed));
	}
}

/* The bug: the heap forgets that it has exported a tile that also holds other memory, and returns it. */
static void play_packed_tile(bool planted)
{
	struct world_export *e = &world.actors[0].exports[0];
	trz_exported_tile tile;
	void *p = NULL;
	open_shared_world();
	assert_ok(trz_alloc(world.heap, MIB(4), 0, world.streams[0].handle, &p));
	assert_ok(trz_export_tile(world.heap, p, TRZ_ALLOC_SHARE_FD, NULL, &tile));
	*e = (struct world_export){.tiles = {(trz_addr)tile.base}, .tile_sizes = {tile.size}, .tile_count = 1};
	assert_ok(trz_free(world.heap, p));
	sim_device_sync(world.s, 0);
	if (planted)
		assert_ok(trz_export_end(world.heap, tile.base));
	assert_ok(trz_trim(world.heap, 0, NULL));
}

static void test_the_watch_notices_an_exported_tile_that_is_returned(void **state)
{
	(void)state;
	play_packed_tile(false);
	assert_false(atomic_load(&world.failed));
	world_close(&world);
	play_packed_tile(true);
	assert_true(atomic_load(&world.failed));
	assert_text(world.wrong, "is unmapped while another process has it");
	world_close(&world);
}

/* ---- a page of a pool given away while a graph lives ----------------------------------------------------- */

static bool has_graphs(void)
{
	return world.vmm && world.graphs && !world.faulty && world.stream_count > 2 && world.capacity <= MIB(512);
}

static void unpin(void)
{
	for (struct pool *p = world.heap->pools; p; p = p->next)
		p->pinned = false;
}

static void test_worlds_notice_a_pool_page_given_away(void **state)
{
	(void)state;
	assert_null(first_noticed(NULL, has_graphs, NULL, 3));
	const char *noticed = first_noticed(NULL, has_graphs, unpin, 20);
	assert_non_null(noticed);
}

/* ---- memory taken by a capture while work outside it still uses that ------------------------------------- */

/* The bug: when the heap asks whether a stream is being captured, all streams count as having done all their work. */
static trz_status settle_and_ask(void *self, trz_context context, trz_stream stream, trz_capture_status *status,
                                 uint64_t *id)
{
	struct streams *all = world.heap ? &world.heap->streams : NULL;  /* the closing heap asks, too */
	for (unsigned i = 0; all && i < all->count; i++)
		all->list[i]->announced.sequence = 0;
	return world.watch.stream_capture(self, context, stream, status, id);
}

static void make_settled(trz_driver *driver)
{
	driver->stream_capture = settle_and_ask;
}

static void test_worlds_notice_captures_of_memory_in_use(void **state)
{
	(void)state;
	const char *noticed = first_noticed(make_settled, has_graphs, NULL, 600);
	assert_non_null(noticed);
	assert_text(noticed, "violation");
}

/* The bug: when the heap asks whether a stream is being captured, all that has been freed by then counts as freed in
 * captures. */
static trz_status clean_and_ask(void *self, trz_context context, trz_stream stream, trz_capture_status *status,
                                uint64_t *id)
{
	for (struct pool *p = world.heap ? world.heap->pools : NULL; p; p = p->next)
		for (struct lane *l = p->lanes; l; l = l->pool_next)
			l->clean = l->stream->tickets.newest;
	return world.watch.stream_capture(self, context, stream, status, id);
}

static void make_clean(trz_driver *driver)
{
	driver->stream_capture = clean_and_ask;
}

static void test_worlds_notice_captures_of_memory_that_is_not_clean(void **state)
{
	(void)state;
	const char *noticed = first_noticed(make_clean, has_graphs, NULL, 600);
	assert_non_null(noticed);
	assert_text(noticed, "violation");
}

/* ---- the clauses of docs/decisions/0023-clean-memory.md --------------------------------------------------- */

static bool captures_anyhow(void)
{
	bool fit = world.captures && world.vmm && world.graphs && !world.faulty && world.stream_count > 2;
	if (fit)
		world.run_most = 0;  /* work runs late enough for a bug to matter */
	return fit;
}

/* Without the debugging options, which reuse less memory. */
static bool captures_much(void)
{
	return !world.aided && captures_anyhow();
}

/* With one thread, whose calls nothing comes between. */
static bool captures_alone(void)
{
	return world.actor_count == 1 && world.stream_count > 3 && captures_much();
}

static void for_lanes(void (*act)(struct lane *l))
{
	for (struct pool *p = world.heap ? world.heap->pools : NULL; p; p = p->next)
		for (struct lane *l = p->lanes; l; l = l->pool_next)
			act(l);
}

static void for_blocks(void (*act)(struct block *b))
{
	for (int kind = 0; kind < KINDS && world.heap; kind++)
		for (struct window *w = world.heap->windows[kind]; w; w = w->next)
			for (struct block *b = w->pool ? w->blocks.first : NULL; b; b = b->next)
				act(b);
}

static void widen(struct lane *l)
{
	if (l->clean && l->clean + 1 == l->stream->tickets.newest)
		l->clean++;
}

/* The bug: the ticket that a free takes beyond its own, which no free has, is clean. */
static void widen_clean(void)
{
	for_lanes(widen);
}

static void keep_slab(struct block *b)
{
	struct lane *from = b->state == BLOCK_SLAB ? b->home : NULL;
	if (!from || from->captured || b->slab->free == slab_all_slots(b->slab))
		return;
	struct lane *to = lane_find(from->pool->lanes, from->stream, from->dedicated, true);
	if (to)
		heap_rehome_block_locked(world.heap, b, to);
}

/* The bug: slabs in use serve the next capture. */
static void keep_slabs(void)
{
	heap_lock(world.heap);
	for_blocks(keep_slab);
	heap_unlock(world.heap);
}

static void pass_if_clean(struct block *b)
{
	if (b->state == BLOCK_FREE && heap_block_is_clean(b))
		b->sequence = 0;
}

/* The bug: what captures of one stream have used serves all streams. */
static void pass_what_is_clean(void)
{
	for_blocks(pass_if_clean);
}

/* The capture that some lane of a stream has served; 0: none. */
static uint64_t served(trz_stream stream)
{
	uint64_t capture = 0;
	for (struct pool *p = world.heap ? world.heap->pools : NULL; p; p = p->next)
		for (struct lane *l = p->lanes; l; l = l->pool_next)
			capture = l->stream->handle == stream && l->serving ? l->serving : capture;
	return capture;
}

/* The bug: frees, during which memory is idle, do not ask, so what the program frees after a capture counts as freed in
 * it. */
static trz_status never_ask(void *self, trz_context context, trz_stream stream, trz_capture_status *status,
                            uint64_t *id)
{
	trz_status answer = world.watch.stream_capture(self, context, stream, status, id);
	uint64_t capture = served(stream);
	if (capture && id && counter_get(&world.heap->counters.idle_bytes.current) > 0) {
		*status = TRZ_CAPTURE_ACTIVE;
		*id = capture;
	}
	return answer;
}

static void make_unasked(trz_driver *driver)
{
	driver->stream_capture = never_ask;
}

/* The bug: the event that a pool's end waits for comes before the launches under way. */
static trz_status record_nothing(void *self, trz_context context, trz_event event)
{
	(void)self;
	(void)context;
	(void)event;
	return TRZ_OK;
}

static void make_hasty(trz_driver *driver)
{
	driver->context_record = record_nothing;
}

static void expect_noticed(const char *bug, void (*spoil)(trz_driver *driver), bool (*fit)(void))
{
	const char *noticed = first_noticed(spoil, fit, NULL, 60);
	print_message("%s: %s\n", bug, noticed ? noticed : "nothing");
	assert_non_null(noticed);
	assert_text(noticed, "violation");
}

static void test_worlds_notice_what_is_not_clean(void **state)
{
	(void)state;
	static const struct {
		const char *bug;
		void (*plant)(void);
		bool (*fit)(void);
		uint64_t first;
	} plants[] = {
		{"a ticket that no free has", widen_clean, captures_alone, 1},
		{"slabs in use", keep_slabs, captures_much, 5200},
		{"other streams", pass_what_is_clean, captures_much, 1},
	};
	assert_null(first_noticed(NULL, captures_anyhow, NULL, 20));
	for (size_t i = 0; i < LENGTH(plants); i++) {
		planted_before_question = plants[i].plant;
		planted_first = plants[i].first;
		expect_noticed(plants[i].bug, planted_ask, plants[i].fit);
	}
	expect_noticed("frees after the capture", make_unasked, captures_much);
	expect_noticed("pools that end", make_hasty, captures_much);
}

/* ---- addresses laid anew --------------------------------------------------------------------------------- */

/* The bug: the driver under the heap moves memory behind an address, as a heap that broke law L10 would. */
static void test_the_watch_notices_an_address_laid_anew(void **state)
{
	(void)state;
	for (int planted = 0; planted < 2; planted++) {
		assert_null(world_open(&world, 2));
		for (uint64_t seed = 3; !world.vmm || world.conf[0] != ','; seed++) {
			world_close(&world);
			assert_null(world_open(&world, seed));
		}
		trz_heap *h = world.heap;
		assert_null(world_alloc(&world, MIB(20), 0, 0));
		struct window *w = h->windows[LARGE];
		const struct place *p = window_at(w, world.shadow.list[world.shadow.count - 1].address);
		trz_handle handle = p->tile->handle;
		uint64_t size = p->tile->size;
		sim_device_sync(world.s, 0);
		if (planted) {
			assert_ok(world.watch.unmap(world.d->self, p->address, size));
			assert_ok(world.watch.map(world.d->self, p->address, size, handle));
		}
		assert_int_equal(atomic_load(&world.failed), planted);
		if (planted)
			assert_text(world.wrong, "law 10");
		world_close(&world);
	}
}

/* A graph's addresses are like a registration that nobody announces. The bug: the heap gives an address out again, with
 * other memory there. */
static void test_the_device_notices_a_graph_with_an_address_laid_anew(void **state)
{
	(void)state;
	for (int planted = 0; planted < 2; planted++) {
		struct rig r = rig_open(GIB(1), NULL);
		trz_stream stream = rig_stream(&r);
		sim_graph graph;
		void *p = rig_alloc(&r, MIB(40), stream);
		assert_ok(sim_capture_begin(r.s, r.c, stream, TRZ_CAPTURE_RELAXED));
		assert_ok(sim_stamp(r.s, r.c, stream, (trz_addr)p, MIB(40), 1));
		assert_ok(sim_capture_end(r.s, r.c, stream, &graph));
		rig_free(&r, p);
		rig_sync(&r);
		assert_ok(trz_trim(r.heap, 0, NULL));
		struct window *w = r.heap->windows[LARGE];
		if (planted) {  /* the quarantine ends too early */
			heap_take_growth(r.heap);
			heap_lock(r.heap);
			heap_drop_holes_locked(r.heap, w->blocks.first);
			heap_unlock(r.heap);
			heap_give_growth(r.heap);
			w->blocks.first = w->blocks.last = NULL;
			w->top = w->base;
		}
		void *q = rig_alloc(&r, MIB(40), stream);
		assert_int_equal(p == q, planted);
		if (planted) {
			assert_ok(sim_graph_launch(r.s, r.c, graph, stream));
			sim_device_sync(r.s, 0);
		}
		assert_int_equal(sim_violations(r.s) > 0, planted);
		trz_close(r.heap);
		sim_close(r.s);
	}
}

/* ---- slots that are freed without a ticket --------------------------------------------------------------- */

/* The bug: the heap forgets tickets owed since frees under a stream's own lock, and so calls slots passed while work
 * uses them. */
static void forget_tickets(void)
{
	struct streams *all = &world.heap->streams;
	for (unsigned i = 0; i < all->count; i++)
		atomic_store(&all->list[i]->tickets.owed, false);
}

static bool has_busy_streams(void)
{
	bool fit = world.vmm && world.stream_count > 2 && world.actor_count == 1 && !world.faulty;
	if (fit)
		world.run_most = 0;  /* work runs late enough for the bug to matter */
	return fit;
}

static void test_worlds_notice_slots_without_tickets(void **state)
{
	(void)state;
	assert_null(first_noticed(NULL, has_busy_streams, NULL, 3));
	/* One world in sixty or so shows it. */
	const char *noticed = first_noticed(NULL, has_busy_streams, forget_tickets, 200);
	assert_non_null(noticed);
	assert_text(noticed, "violation");
}

/* ---- another device's default stream, taken for the heap's own -------------------------------------------- */

static bool has_peer(void)
{
	return world.peer && world.vmm && !world.faulty && world.actor_count == 1;
}

/* The bug: the heap's context seems current in every thread. */
static trz_status own_context(void *self, trz_context context, trz_stream stream, trz_context *of)
{
	return world.watch.stream_context(self, context || (uintptr_t)stream > 2 ? context : world.c, stream, of);
}

static void make_blind(trz_driver *driver)
{
	driver->stream_context = own_context;
}

static void test_worlds_notice_default_streams_of_others(void **state)
{
	(void)state;
	assert_null(first_noticed(NULL, has_peer, NULL, 3));
	const char *noticed = first_noticed(make_blind, has_peer, NULL, 60);
	assert_non_null(noticed);
	assert_text(noticed, "violation");
}

/* ---- a lock held across a wait --------------------------------------------------------------------------- */

static bool is_plain(void)
{
	return world.vmm && !world.faulty && world.actor_count == 1;
}

/* The bug: an unmap, which may wait for the device, and the device for a host function that frees, under the lock. */
static trz_status unmap_under_lock(void *self, trz_addr address, uint64_t size)
{
	heap_lock(world.heap);
	trz_status status = world.watch.unmap(self, address, size);
	heap_unlock(world.heap);
	return status;
}

/* These worlds begin without host functions, so the watch sees the lock before the first deadlock. */
static void test_the_watch_notices_a_lock_held_across_a_wait(void **state)
{
	(void)state;
	assert_null(world_open(&world, 2));
	for (uint64_t seed = 3; !is_plain(); seed++) {
		world_close(&world);
		assert_null(world_open(&world, seed));
	}
	trz_driver slow = world.watch;
	slow.unmap = unmap_under_lock;
	assert_ok(trz_close(world.heap));
	assert_null(world_open_heap(&world, &slow));
	assert_null(world_alloc(&world, MIB(8), 0, 0));
	assert_null(world_free(&world, 0));
	sim_device_sync(world.s, 0);
	assert_false(atomic_load(&world.failed));
	assert_ok(trz_trim(world.heap, 0, NULL));
	assert_true(atomic_load(&world.failed));
	assert_text(world.wrong, "law 12: unmap is called with the heap lock held");
	world_close(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_device_notices_a_wait_for_a_late_event),
		cmocka_unit_test(test_stamps_notice_tiles_that_move_too_early),
		cmocka_unit_test(test_worlds_notice_false_order),
		cmocka_unit_test(test_the_books_notice_an_exported_tile_that_is_unmapped),
		cmocka_unit_test(test_the_watch_notices_an_exported_tile_that_is_returned),
		cmocka_unit_test(test_worlds_notice_a_pool_page_given_away),
		cmocka_unit_test(test_worlds_notice_captures_of_memory_in_use),
		cmocka_unit_test(test_worlds_notice_captures_of_memory_that_is_not_clean),
		cmocka_unit_test(test_worlds_notice_what_is_not_clean),
		cmocka_unit_test(test_the_watch_notices_an_address_laid_anew),
		cmocka_unit_test(test_the_device_notices_a_graph_with_an_address_laid_anew),
		cmocka_unit_test(test_worlds_notice_slots_without_tickets),
		cmocka_unit_test(test_worlds_notice_default_streams_of_others),
		cmocka_unit_test(test_the_watch_notices_a_lock_held_across_a_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
