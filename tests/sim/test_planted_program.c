/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the tests, continued: bugs that show only if programs do certain things, planted in the heap or between it
 * and its driver, and the worlds that do these things.
 */
#include <pthread.h>

#include "heap/heap.h"
#include "order/pool.h"
#include "planted.h"
#include "rig.h"

static struct world world;

/* One actor's world in which work runs late enough for a bug to matter. */
static bool is_late(void)
{
	bool fit = world.vmm && !world.faulty && !world.aided;
	if (fit)
		world.run_most = 0;
	return fit;
}

static bool is_late_and_captures(void)
{
	return world.captures && world.graphs && is_late();
}

static void expect(const char *bug, const char *text, void (*spoil)(trz_driver *driver), bool (*fit)(void),
                   void (*plant)(void))
{
	const char *noticed = planted_noticed(&world, spoil, fit, plant, 20);
	print_message("%s: %s\n", bug, noticed ? noticed : "nothing");
	assert_non_null(noticed);
	assert_text(noticed, text);
}

static struct stream *stream_at(unsigned i)
{
	return atomic_load(&world.heap->streams.list[i]);
}

static unsigned streams(void)
{
	return world.heap ? atomic_load(&world.heap->streams.count) : 0;
}

/* ---- captures ------------------------------------------------------------------------------------------- */

/* The bug: a capture that is not announced counts as one of a stream that has settled. */
static void settle_unannounced(void)
{
	bool any = false;
	for (const struct pool *p = world.heap->pools; p; p = p->next)
		any |= p->announcers != 0;
	for (struct pool *p = world.heap->pools; p && !any; p = p->next)
		p->announced = 1;
	for (unsigned i = 0; i < streams() && !any; i++)
		stream_at(i)->announced = (struct announcement){.number = 1};
}

/* The bug: the announcement of a capture forgets what pools have served since an earlier one. */
static void forget_service(void)
{
	static uint64_t seen;
	bool announced = world.heap->announcements != seen;
	seen = world.heap->announcements;
	for (unsigned i = 0; i < streams() && announced; i++)
		if (stream_at(i)->announced.sequence == NEVER_SETTLES)
			stream_at(i)->announced.sequence = ticket_newest(&stream_at(i)->tickets);
}

/* The bug: all captures look like one. */
static trz_status ask_roughly(void *self, trz_context context, trz_stream stream, trz_capture_status *status,
                              uint64_t *id)
{
	trz_status answer = world.watch.stream_capture(self, context, stream, status, id);
	if (answer == TRZ_OK && *status == TRZ_CAPTURE_ACTIVE && id)
		*id = 1;
	return answer;
}

static void make_rough(trz_driver *driver)
{
	driver->stream_capture = ask_roughly;
}

static void test_worlds_notice_what_captures_mix_up(void **state)
{
	(void)state;
	assert_null(planted_noticed(&world, NULL, is_late_and_captures, NULL, 1));
	planted_before_question = settle_unannounced;
	expect("captures that are not announced", "violation", planted_ask, is_late_and_captures, NULL);
	planted_before_question = forget_service;
	planted_first = 190;
	expect("announcements of several captures", "violation", planted_ask, is_late_and_captures, NULL);
	planted_first = 1;
	expect("captures at once", "", make_rough, is_late_and_captures, NULL);
}

/* ---- streams and threads -------------------------------------------------------------------------------- */

/* The bug: streams are told apart by a part of their ids. */
static trz_status part_of_id(void *self, trz_context context, trz_stream stream, uint64_t *id)
{
	trz_status status = world.watch.stream_id(self, context, stream, id);
	*id = 1 + *id % RECENT_STREAMS;
	return status;
}

static void make_forgetful(trz_driver *driver)
{
	driver->stream_id = part_of_id;
}

/* The bug: work of threads counts as complete. */
static void pass_work_of_threads(void)
{
	for (unsigned i = 0; i < streams(); i++) {
		struct tickets *t = &stream_at(i)->tickets;
		if (stream_at(i)->thread_bound)
			ticket_pass(t, t->newest);
	}
}

/* The bug: the driver does not say that a context has ended. */
static trz_status hide_end(trz_status status)
{
	return status == TRZ_ERROR_CONTEXT_DEAD ? TRZ_ERROR_DRIVER : status;
}

static trz_status query_blindly(void *self, trz_context context, trz_event event)
{
	return hide_end(world.watch.event_query(self, context, event));
}

static trz_status sync_blindly(void *self, trz_context context, trz_event event)
{
	return hide_end(world.watch.event_sync(self, context, event));
}

static trz_status ask_blindly(void *self, trz_context context, trz_stream stream, trz_capture_status *status,
                              uint64_t *id)
{
	return hide_end(world.watch.stream_capture(self, context, stream, status, id));
}

static void make_blind(trz_driver *driver)
{
	driver->event_query = query_blindly;
	driver->event_sync = sync_blindly;
	driver->stream_capture = ask_blindly;
}

static bool changes_contexts(void)
{
	return world.far && !world.graphs && world.stream_count > 2 && is_late();
}

static void test_worlds_notice_streams_mixed_up(void **state)
{
	(void)state;
	assert_null(planted_noticed(&world, NULL, changes_contexts, NULL, 2));
	expect("a part of the ids", "", make_forgetful, is_late, NULL);
	expect("threads", "violation", NULL, is_late, pass_work_of_threads);
	planted_first = 1200;  /* the first that notices is 1287 */
	expect("a context that ends", "", make_blind, changes_contexts, NULL);
	planted_first = 1;
}

/* ---- limits and children ---------------------------------------------------------------------------------- */

/* The bug: the heap forgets its limit. */
static void forget_limit(void)
{
	atomic_store(&world.heap->limit, 0);
}

/* The bug: a child does not know that it is one. */
static bool unmarks;

static void unmark(void)
{
	if (unmarks && world.heap)
		atomic_store(&world.heap->inherited, false);
}

static void test_worlds_notice_limits_and_children(void **state)
{
	(void)state;
	expect("a limit", "though the limit is", NULL, is_late, forget_limit);
	assert_int_equal(pthread_atfork(NULL, NULL, unmark), 0);
	unmarks = true;
	expect("a child", "a child made by fork()", NULL, is_late, NULL);
	unmarks = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_worlds_notice_what_captures_mix_up),
		cmocka_unit_test(test_worlds_notice_streams_mixed_up),
		cmocka_unit_test(test_worlds_notice_limits_and_children),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
