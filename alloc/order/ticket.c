/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of recorded events of a stream, and the pool of idle ones.
 */
#include "order/ticket.h"

#include <assert.h>
#include <string.h>

#include "bits.h"

/* The invariants of struct tickets. */
#define ASSERT_ORDER(t) assert((t)->passed <= (t)->recorded && (t)->recorded <= (t)->newest)

trz_event ticket_note(struct tickets *t, uint64_t sequence, trz_event event, uint64_t first)
{
	assert(sequence <= t->newest);
	ASSERT_ORDER(t);
	if (sequence <= t->recorded || (t->count == TICKET_QUEUE && (first || t->waiters)))
		return event;
	if (t->count == TICKET_QUEUE) {
		struct ticket_event *last = &t->queue[(t->head + t->count - 1) % TICKET_QUEUE];
		trz_event old = last->event;
		*last = (struct ticket_event){sequence, 0, event};
		t->recorded = sequence;
		return old;
	}
	t->queue[(t->head + t->count++) % TICKET_QUEUE] = (struct ticket_event){sequence, first, event};
	t->recorded = sequence;
	return NULL;
}

const struct ticket_event *ticket_oldest(const struct tickets *t)
{
	return t->count ? &t->queue[t->head] : NULL;
}

trz_event ticket_pop(struct tickets *t)
{
	assert(t->count > 0 && !t->waiters);
	struct ticket_event *e = &t->queue[t->head];
	t->head = (t->head + 1) % TICKET_QUEUE;
	t->count--;
	t->passed = max_u64(t->passed, e->sequence);
	ASSERT_ORDER(t);
	return e->event;
}

trz_event ticket_drop(struct tickets *t)
{
	assert(t->count > 0 && !t->waiters);
	trz_event event = t->queue[t->head].event;
	t->head = (t->head + 1) % TICKET_QUEUE;
	t->count--;
	if (!t->count)
		t->recorded = t->passed;
	ASSERT_ORDER(t);
	return event;
}

void ticket_pass(struct tickets *t, uint64_t sequence)
{
	assert(sequence <= t->newest);
	t->passed = max_u64(t->passed, sequence);
	t->recorded = max_u64(t->recorded, sequence);
}

void ticket_forget(struct tickets *t)
{
	assert(!t->waiters);
	t->head = t->count = 0;
	t->passed = t->recorded = t->newest;
}

trz_event event_pool_take(struct event_pool *p)
{
	return p->count ? p->events[--p->count] : NULL;
}

enum { EVENTS_FIRST = 64 };  /* room for so many at first */

bool event_pool_give(struct event_pool *p, trz_event event)
{
	assert(event);
	if (p->count == p->capacity) {
		size_t capacity = p->capacity ? 2 * p->capacity : EVENTS_FIRST;
		trz_event *events = meta_alloc(p->meta, capacity * sizeof *events);
		if (!events)
			return false;
		if (p->count)
			memcpy(events, p->events, p->count * sizeof *events);
		meta_free(p->meta, p->events);
		p->events = events;
		p->capacity = capacity;
	}
	p->events[p->count++] = event;
	return true;
}
