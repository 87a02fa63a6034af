/* SPDX-License-Identifier: Apache-2.0
 *
 * Tickets: which tickets an event covers, the order in which tickets pass, and useless events.
 */
#include "order/ticket.h"
#include "testing.h"

static trz_event event(uintptr_t n)
{
	return (trz_event)n;
}

static void test_nothing_has_been_taken(void **state)
{
	(void)state;
	static struct tickets t;
	assert_true(ticket_passed(&t, 0));
	assert_false(ticket_passed(&t, 1));
	assert_null(ticket_oldest(&t));
}

static void test_an_event_covers_all_before_it(void **state)
{
	(void)state;
	static struct tickets t;
	uint64_t first = ticket_take(&t), second = ticket_take(&t), third = ticket_take(&t);
	assert_true(first < second && second < third);
	assert_null(ticket_note(&t, second, event(1), second));
	assert_false(ticket_passed(&t, first));
	assert_ptr_equal(ticket_oldest(&t)->event, event(1));
	assert_int_equal(ticket_oldest(&t)->first, second);
	assert_ptr_equal(ticket_pop(&t), event(1));
	assert_true(ticket_passed(&t, first));
	assert_true(ticket_passed(&t, second));
	assert_false(ticket_passed(&t, third));
	assert_null(ticket_oldest(&t));
}

static void test_an_event_that_covers_nothing_new_is_of_no_use(void **state)
{
	(void)state;
	static struct tickets t;
	uint64_t first = ticket_take(&t), second = ticket_take(&t);
	assert_null(ticket_note(&t, second, event(1), second));
	assert_ptr_equal(ticket_note(&t, first, event(2), first), event(2));
	assert_ptr_equal(ticket_note(&t, second, event(2), 0), event(2));
	ticket_pop(&t);
	assert_ptr_equal(ticket_note(&t, second, event(2), 0), event(2));
}

static void test_events_pass_in_order(void **state)
{
	(void)state;
	static struct tickets t;
	for (uintptr_t i = 1; i <= 3; i++)
		assert_null(ticket_note(&t, ticket_take(&t), event(i), i % 2));
	for (uintptr_t i = 1; i <= 3; i++) {
		assert_int_equal(ticket_oldest(&t)->first, i % 2);
		assert_ptr_equal(ticket_pop(&t), event(i));
		assert_int_equal(t.passed, i);
	}
}

/* A full queue takes no more, and what is in it stays as it is; a later event covers what was turned away. */
static void test_the_queue_is_bounded(void **state)
{
	(void)state;
	static struct tickets t;
	for (int round = 0; round < 3; round++) {  /* over the ring's end */
		for (uintptr_t i = 0; i < TICKET_QUEUE; i++)
			assert_null(ticket_note(&t, ticket_take(&t), event(i + 1), i + 1));
		uint64_t one_more = ticket_take(&t);
		assert_ptr_equal(ticket_note(&t, one_more, event(999), 1), event(999));
		assert_int_equal(t.count, TICKET_QUEUE);
		for (uintptr_t i = 0; i < TICKET_QUEUE; i++)
			assert_ptr_equal(ticket_pop(&t), event(i + 1));
		assert_false(ticket_passed(&t, one_more));
		assert_null(ticket_note(&t, one_more, event(1000), 0));
		assert_ptr_equal(ticket_pop(&t), event(1000));
		assert_true(ticket_passed(&t, one_more));
	}
}

/* While somebody waits for what is queued nothing of it goes, not even for an event that covers more. */
static void test_what_is_waited_for_stays(void **state)
{
	(void)state;
	static struct tickets t;
	for (uintptr_t i = 0; i < TICKET_QUEUE; i++)
		assert_null(ticket_note(&t, ticket_take(&t), event(i + 1), 0));
	uint64_t one_more = ticket_take(&t);
	t.waiters = 1;
	assert_ptr_equal(ticket_note(&t, one_more, event(999), 0), event(999));
	t.waiters = 0;
	assert_ptr_equal(ticket_note(&t, one_more, event(999), 0), event(TICKET_QUEUE));
}

/* A retired stream takes no number: the last one covers all that is freed later. */
static void test_a_closed_queue_takes_no_number(void **state)
{
	(void)state;
	static struct tickets t;
	uint64_t last = ticket_take(&t);
	assert_null(ticket_note(&t, last, event(1), 0));
	t.closed = true;
	assert_int_equal(ticket_take(&t), last);
	assert_int_equal(ticket_take(&t), last);
	ticket_pop(&t);
	assert_true(ticket_passed(&t, ticket_take(&t)));
}

static void test_the_pool_of_idle_events(void **state)
{
	(void)state;
	struct meta meta = {0};
	assert_true(meta_open(&meta));
	struct event_pool pool = {.meta = &meta};
	assert_null(event_pool_take(&pool));
	for (uintptr_t i = 1; i <= 200; i++)
		assert_true(event_pool_give(&pool, event(i)));
	bool seen[201] = {false};
	for (int i = 0; i < 200; i++) {
		uintptr_t n = (uintptr_t)event_pool_take(&pool);
		assert_in_range(n, 1, 200);
		assert_false(seen[n]);
		seen[n] = true;
	}
	assert_null(event_pool_take(&pool));
	meta_close(&meta);
}

/* It is as if the event had never been recorded: another one can cover the same tickets. */
static void test_an_event_that_will_never_tell(void **state)
{
	(void)state;
	static struct tickets t;
	uint64_t first = ticket_take(&t), second = ticket_take(&t);
	assert_null(ticket_note(&t, first, event(1), first));
	assert_null(ticket_note(&t, second, event(2), second));
	assert_ptr_equal(ticket_drop(&t), event(1));
	assert_false(ticket_passed(&t, first));
	assert_ptr_equal(ticket_drop(&t), event(2));
	assert_null(ticket_note(&t, second, event(3), 0));
	assert_ptr_equal(ticket_pop(&t), event(3));
	assert_true(ticket_passed(&t, second));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_has_been_taken),
		cmocka_unit_test(test_an_event_that_will_never_tell),
		cmocka_unit_test(test_an_event_covers_all_before_it),
		cmocka_unit_test(test_an_event_that_covers_nothing_new_is_of_no_use),
		cmocka_unit_test(test_events_pass_in_order),
		cmocka_unit_test(test_what_is_waited_for_stays),
		cmocka_unit_test(test_the_queue_is_bounded),
		cmocka_unit_test(test_a_closed_queue_takes_no_number),
		cmocka_unit_test(test_the_pool_of_idle_events),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
