/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of events, its clock, and the table of tags.
 */
#include "history.h"

#include <string.h>
#include <time.h>

#include "utf8.h"

enum { UNREAD_IN_BURST = 7 };

/* ---- clocks ----------------------------------------------------------------------------------------- */

static uint64_t time_of_day_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void clock_start(struct history_clock *c)
{
	*c = (struct history_clock){.start_ns = monotonic_ns()};
	ticks_init(&c->ticks);
	c->burst = ticks_microsecond(&c->ticks);
	c->start = ticks_read(&c->ticks);
}

void history_clock_settle(struct history_clock *c)
{
	c->end_ns = monotonic_ns();
	c->end = ticks_read(&c->ticks);
	c->epoch_ns = time_of_day_ns();
}

uint64_t history_clock_epoch_ns(const struct history_clock *c, uint64_t time)
{
	uint64_t ticks = c->end - c->start, ns = c->end_ns - c->start_ns;
	/* Counters of two processors may differ a little: a reading outside the span moves to its nearer end. */
	uint64_t left = time >= c->end ? 0 : min_u64(c->end - time, ticks);
	uint64_t ago = ticks ? (uint64_t)((unsigned __int128)left * ns / ticks) : 0;
	return c->epoch_ns - ago;
}

/* ---- the ring --------------------------------------------------------------------------------------- */

bool history_start(struct history *h, void *memory, size_t bytes)
{
	size_t capacity = min_u64(bytes / sizeof *h->ring, UINT32_MAX);
	*h = (struct history){.ring = capacity ? memory : NULL, .capacity = (uint32_t)capacity};
	clock_start(&h->clock);
	h->last_time = h->clock.start;
	return h->ring != NULL;
}

void *history_stop(struct history *h)
{
	void *memory = h->ring;
	*h = (struct history){0};
	return memory;
}

void history_forget_frames(struct history *h)
{
	for (uint32_t i = 0; i < history_kept(h); i++)
		h->ring[i].frames = 0;
}

/* The lock orders events, so a lagging counter of another processor must not move them back in time. */
void history_take_time(struct history *h)
{
	uint64_t now = ticks_read(&h->clock.ticks);
	if (UNLIKELY(now < h->last_time))
		now = h->last_time;
	h->unread = now - h->last_time < h->clock.burst ? UNREAD_IN_BURST : 0;
	h->last_time = now;
}

void history_copy(const struct history *h, struct history_event *out, uint32_t count)
{
	assert(count <= history_kept(h));
	uint32_t newer = (uint32_t)min_u64(count, h->next), older = count - newer;
	if (older)
		memcpy(out, h->ring + h->capacity - older, older * sizeof *out);
	if (newer)
		memcpy(out + older, h->ring + h->next - newer, newer * sizeof *out);
}

/* ---- tags ------------------------------------------------------------------------------------------- */

/* How much of a text is kept: as many whole characters as fit. */
static size_t tag_length(const char *text)
{
	size_t length = 0, next = 0;
	while (next < HISTORY_TAG_BYTES && text[next]) {
		size_t character = utf8_length((const unsigned char *)text + next);
		next += character ? character : 1;
		if (next < HISTORY_TAG_BYTES)
			length = next;
	}
	return length;
}

static uint32_t tag_find(const struct history_tags *t, const char *text, size_t length)
{
	for (uint32_t i = 0; i < t->count; i++)
		if (strncmp(t->text[i], text, length) == 0 && !t->text[i][length])
			return i + 1;
	return 0;
}

uint32_t history_tag(struct history_tags *t, const char *text)
{
	if (!*text)
		return 0;
	size_t length = tag_length(text);
	uint32_t known = tag_find(t, text, length);
	if (known)
		return known;
	if (t->count >= HISTORY_TAGS - 1) {
		text = "(other tags)";
		length = strlen(text);
		if (t->count == HISTORY_TAGS)
			return HISTORY_TAGS;
	}
	char *entry = t->text[t->count];
	memcpy(entry, text, length);
	entry[length] = 0;
	return ++t->count;
}
