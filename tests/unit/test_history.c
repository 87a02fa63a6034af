/* SPDX-License-Identifier: Apache-2.0
 *
 * The history: the events that the ring keeps, its clock, and the table of tags.
 */
#include "testing.h"

#include <stdio.h>
#include <time.h>

#include "history.h"

enum { SLOTS = 7 };

static struct history_event memory[SLOTS];

static struct history started(void)
{
	struct history h;
	assert_true(history_start(&h, memory, sizeof memory));
	return h;
}

static void note_many(struct history *h, uint64_t first, uint64_t count)
{
	for (uint64_t i = first; i < first + count; i++)
		history_note(h, HISTORY_ALLOC, .address = i);
}

static uint64_t now_ns(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* -- the ring ----------------------------------------------------------------------------------------- */

static void test_a_history_that_is_off_notes_nothing(void **state)
{
	(void)state;
	struct history h = {0};
	int looked_at = 0;
	history_note(&h, HISTORY_ALLOC, .size = (uint64_t)++looked_at);
	assert_int_equal(looked_at, 0);
	assert_int_equal(history_kept(&h), 0);
	assert_null(history_stop(&h));
}

static void test_memory_for_less_than_one_event(void **state)
{
	(void)state;
	struct history h;
	assert_false(history_start(&h, memory, sizeof *memory - 1));
	note_many(&h, 0, 3);
	assert_int_equal(history_kept(&h), 0);
	assert_true(history_start(&h, memory, sizeof *memory));
	note_many(&h, 0, 3);
	assert_int_equal(history_kept(&h), 1);
	struct history_event only;
	history_copy(&h, &only, history_kept(&h));
	assert_int_equal(only.address, 2);
}

static void test_an_event_is_kept_as_it_was_given(void **state)
{
	(void)state;
	struct history h = started();
	history_note(&h, HISTORY_FREE, .address = 1, .size = 2, .stream = 3, .pool = 4, .tag = 5, .frames = 6);
	history_note(&h, HISTORY_FLIP, .address = 7, .from = 8);
	struct history_event e[2];
	assert_int_equal(history_kept(&h), 2);
	history_copy(&h, e, history_kept(&h));
	assert_int_equal(e[0].kind, HISTORY_FREE);
	assert_int_equal(e[0].address, 1);
	assert_int_equal(e[0].size, 2);
	assert_int_equal(e[0].stream, 3);
	assert_int_equal(e[0].pool, 4);
	assert_int_equal(e[0].tag, 5);
	assert_int_equal(e[0].frames, 6);
	assert_int_equal(e[1].kind, HISTORY_FLIP);
	assert_int_equal(e[1].from, 8);
	assert_int_equal(e[1].size, 0);
	assert_int_equal(e[1].tag, 0);
}

static void test_the_newest_events_are_kept_in_order(void **state)
{
	(void)state;
	for (uint64_t count = 0; count <= 3 * SLOTS + 1; count++) {
		struct history h = started();
		note_many(&h, 100, count);
		uint64_t kept = count < SLOTS ? count : SLOTS;
		assert_int_equal(history_kept(&h), kept);
		assert_int_equal(h.count, count);
		struct history_event out[SLOTS];
		history_copy(&h, out, history_kept(&h));
		for (uint64_t i = 0; i < kept; i++)
			assert_int_equal(out[i].address, 100 + count - kept + i);
	}
}

static void test_stopping_forgets(void **state)
{
	(void)state;
	struct history h = started();
	note_many(&h, 0, 3);
	assert_ptr_equal(history_stop(&h), memory);
	note_many(&h, 0, 3);
	assert_int_equal(history_kept(&h), 0);
	h = started();
	assert_int_equal(history_kept(&h), 0);
}

/* -- the clock ---------------------------------------------------------------------------------------- */

static void test_times_lie_on_a_line_between_the_two_readings(void **state)
{
	(void)state;
	struct history_clock c = {.start = 1000, .end = 3000, .start_ns = 50, .end_ns = 5050, .epoch_ns = 1000000};
	assert_int_equal(history_clock_epoch_ns(&c, 3000), 1000000);
	assert_int_equal(history_clock_epoch_ns(&c, 2000), 1000000 - 2500);
	assert_int_equal(history_clock_epoch_ns(&c, 1000), 1000000 - 5000);
	/* Beyond the ends: at the ends. */
	assert_int_equal(history_clock_epoch_ns(&c, 0), 1000000 - 5000);
	assert_int_equal(history_clock_epoch_ns(&c, 3001), 1000000);
}

static void test_no_time_at_all_between_the_readings(void **state)
{
	(void)state;
	struct history_clock c = {.start = 1000, .end = 1000, .epoch_ns = 77};
	assert_int_equal(history_clock_epoch_ns(&c, 1000), 77);
	assert_int_equal(history_clock_epoch_ns(&c, 0), 77);
}

static void test_years_do_not_overflow(void **state)
{
	(void)state;
	uint64_t year_ns = UINT64_C(31536000000000000);
	struct history_clock c = {
	    .end = 10 * 3 * year_ns, .end_ns = 10 * year_ns, .epoch_ns = 50 * year_ns};
	assert_int_equal(history_clock_epoch_ns(&c, 3 * year_ns), 41 * year_ns);
}

static void test_a_later_reading_is_never_earlier(void **state)
{
	(void)state;
	struct history_clock c = {.start = 17, .end = 1017, .start_ns = 0, .end_ns = 333, .epoch_ns = 100000};
	for (uint64_t t = 0; t < 1100; t++)
		assert_true(history_clock_epoch_ns(&c, t) <= history_clock_epoch_ns(&c, t + 1));
}

/* Notes events and compares their times with the time of day; a second is far more than a clock is set by. */
static void check_times(struct history *h, struct history_event *out, size_t count)
{
	uint64_t second = 1000000000, before = now_ns(CLOCK_REALTIME), last = 0;
	for (size_t i = 0; i < count; i++)
		history_note(h, i % 3 ? HISTORY_ALLOC : HISTORY_MAP, .address = i);
	history_clock_settle(&h->clock);
	uint64_t after = now_ns(CLOCK_REALTIME);
	history_copy(h, out, history_kept(h));
	for (size_t i = 0; i < history_kept(h); i++) {
		uint64_t t = history_clock_epoch_ns(&h->clock, out[i].time);
		assert_true(t >= last && t + second > before && t < after + second);
		last = t;
	}
}

static void test_times_of_events(void **state)
{
	(void)state;
	static struct history_event ring[1000], out[1000];
	struct history h;
	assert_true(history_start(&h, ring, sizeof ring));
	check_times(&h, out, 2500);
}

static void test_times_without_a_usable_counter(void **state)
{
	(void)state;
	static struct history_event ring[1000], out[1000];
	struct history h;
	assert_true(history_start(&h, ring, sizeof ring));
	h.clock.ticks.counter = false;
	h.clock.burst = 1000;
	h.clock.start = h.last_time = h.clock.start_ns;
	check_times(&h, out, 2500);
	assert_in_range(out[999].time, h.clock.start_ns, h.clock.end_ns);
}

static void test_in_a_burst_one_reading_serves_eight(void **state)
{
	(void)state;
	struct history h = started();
	h.clock.burst = UINT64_MAX;
	static const unsigned expected[] = {7, 6, 5, 4, 3, 2, 1, 0, 7, 6};
	for (size_t i = 0; i < LENGTH(expected); i++) {
		uint64_t before = h.last_time;
		note_many(&h, i, 1);
		assert_int_equal(h.unread, expected[i]);
		if (expected[i] != 7)
			assert_int_equal(h.last_time, before);
	}
	/* Events that are rare have their own reading. */
	history_note(&h, HISTORY_MAP, .address = 1);
	assert_int_equal(h.unread, 7);
	h.clock.burst = 0;
	for (int i = 0; i < 10; i++) {
		note_many(&h, 0, 1);
		if (i >= 7)
			assert_int_equal(h.unread, 0);
	}
}

static void test_a_counter_that_is_behind_does_not_turn_time_back(void **state)
{
	(void)state;
	struct history h = started();
	h.clock.burst = 0;
	uint64_t ahead = h.last_time + (UINT64_C(1) << 60);
	h.last_time = ahead;
	note_many(&h, 0, 2);
	assert_int_equal(memory[0].time, ahead);
	assert_int_equal(memory[1].time, ahead);
}

/* -- tags --------------------------------------------------------------------------------------------- */

static void test_tags(void **state)
{
	(void)state;
	static struct history_tags t;
	assert_int_equal(history_tag(&t, ""), 0);
	assert_string_equal(history_tag_text(&t, 0), "");
	uint32_t weights = history_tag(&t, "weights"), gradients = history_tag(&t, "gradients");
	assert_true(weights && gradients && weights != gradients);
	assert_int_equal(history_tag(&t, "weights"), weights);
	assert_int_equal(history_tag(&t, "gradients"), gradients);
	assert_string_equal(history_tag_text(&t, weights), "weights");
	assert_string_equal(history_tag_text(&t, gradients), "gradients");
	assert_true(history_tag(&t, "weight") != weights);
	assert_int_equal(t.count, 3);
}

static void test_long_tags_are_cut_off(void **state)
{
	(void)state;
	static struct history_tags t;
	char text[2 * HISTORY_TAG_BYTES];
	memset(text, 'a', sizeof text - 1);
	text[sizeof text - 1] = 0;
	uint32_t tag = history_tag(&t, text);
	assert_int_equal(strlen(history_tag_text(&t, tag)), HISTORY_TAG_BYTES - 1);
	text[HISTORY_TAG_BYTES] = 'b';
	assert_int_equal(history_tag(&t, text), tag);
	text[HISTORY_TAG_BYTES - 2] = 'b';
	assert_true(history_tag(&t, text) != tag);
}

/* Not in the middle of a character; bytes that are no UTF-8 are one each. */
static void test_long_tags_are_cut_between_characters(void **state)
{
	(void)state;
	static struct history_tags t;
	char text[2 * HISTORY_TAG_BYTES] = "";
	for (size_t i = 0; i < 31; i++)
		strcat(text, "\xc3\xa9");
	uint32_t whole = history_tag(&t, text);
	strcat(text, "\xe2\x82\xac");
	assert_int_equal(history_tag(&t, text), whole);
	assert_int_equal(strlen(history_tag_text(&t, whole)), 62);
	assert_int_equal(history_tag(&t, text), whole);
	text[62] = 'x';
	assert_true(history_tag(&t, text) != whole);
	memset(text, 0x80, HISTORY_TAG_BYTES + 5);
	uint32_t broken = history_tag(&t, text);
	assert_int_equal(strlen(history_tag_text(&t, broken)), HISTORY_TAG_BYTES - 1);
	assert_int_equal(history_tag(&t, text), broken);
	assert_int_equal(t.count, 3);
}

static void test_the_table_of_tags_is_bounded(void **state)
{
	(void)state;
	static struct history_tags t;
	char text[16];
	for (uint32_t i = 1; i < HISTORY_TAGS; i++) {
		snprintf(text, sizeof text, "tag %u", i);
		assert_int_equal(history_tag(&t, text), i);
	}
	for (int i = 0; i < 3; i++) {
		snprintf(text, sizeof text, "late %d", i);
		assert_int_equal(history_tag(&t, text), HISTORY_TAGS);
	}
	assert_string_equal(history_tag_text(&t, HISTORY_TAGS), "(other tags)");
	assert_int_equal(history_tag(&t, "tag 7"), 7);
	assert_int_equal(t.count, HISTORY_TAGS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_history_that_is_off_notes_nothing),
		cmocka_unit_test(test_memory_for_less_than_one_event),
		cmocka_unit_test(test_an_event_is_kept_as_it_was_given),
		cmocka_unit_test(test_the_newest_events_are_kept_in_order),
		cmocka_unit_test(test_stopping_forgets),
		cmocka_unit_test(test_times_lie_on_a_line_between_the_two_readings),
		cmocka_unit_test(test_no_time_at_all_between_the_readings),
		cmocka_unit_test(test_years_do_not_overflow),
		cmocka_unit_test(test_a_later_reading_is_never_earlier),
		cmocka_unit_test(test_times_of_events),
		cmocka_unit_test(test_times_without_a_usable_counter),
		cmocka_unit_test(test_in_a_burst_one_reading_serves_eight),
		cmocka_unit_test(test_a_counter_that_is_behind_does_not_turn_time_back),
		cmocka_unit_test(test_tags),
		cmocka_unit_test(test_long_tags_are_cut_off),
		cmocka_unit_test(test_long_tags_are_cut_between_characters),
		cmocka_unit_test(test_the_table_of_tags_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
