/* SPDX-License-Identifier: Apache-2.0
 *
 * Tickets: points in a stream's order. Every free takes the stream's next sequence number; an event recorded
 * at or after the free covers it and all before it. Events of a stream complete in order, so one number, the
 * highest that has passed, answers for every ticket of the stream.
 *
 * An event recorded inside a free is exact: it covers nothing that was enqueued later, and the heap may wait for it.
 * Frees come in batches, and only the last free of a batch records an event, for all: so a wait for one free may last
 * until a few frees later. An event that a poll recorded later is late: the heap may only ask it (law L8; a wait for it
 * can be a deadlock).
 *
 * A free takes its number first and records after that, so the event covers every number that was taken before
 * the record, whichever thread took it.
 *
 * Numbers and queue are guarded by the heap lock; driver calls are made outside it. Only the holder of the
 * growth lock polls.
 *
 * A slot that is freed under its stream's own lock takes no number, but leaves `owed` set. The next thread that wants
 * the newest number takes one for all such frees. Their work was enqueued before that number was taken, so an event
 * recorded afterwards covers them: a ticket need promise no more.
 */
#ifndef TRZ_ALLOC_TICKET_H
#define TRZ_ALLOC_TICKET_H

#include "device/driver.h"
#include "ground/meta.h"
#include "ground/types.h"

enum { TICKET_QUEUE = 256, TICKET_QUEUE_HIGH = 192, TICKET_QUEUE_STEP = 16 };

struct ticket_event {
	uint64_t sequence;           /* covers tickets up to this one */
	uint64_t first;              /* exact: of the batch's first free; a late one: 0 */
	trz_event event;
};

/* A batch ends with its BATCH_FREES-th free, or with the free that takes it beyond the option event_bytes. So at most
 * that much freed memory of a stream is without an event that other streams can be made to wait for. */
enum { BATCH_FREES = 64 };

/* The frees since the last batch ended. */
struct batch {
	uint64_t first, bytes;
	unsigned frees;
};

/* Invariants: passed <= recorded <= newest; the queue is ascending in sequence. */
struct tickets {
	uint64_t newest;             /* the last number taken; to cover all frees, ask ticket_newest */
	uint64_t recorded;           /* the highest number that a queued or completed event covers */
	uint64_t passed;
	atomic_bool owed;            /* slots have been freed since `newest` was taken; set without the heap lock */
	bool closed;                 /* the stream is retired: it takes no more numbers, `newest` covers all */
	struct ticket_event queue[TICKET_QUEUE];
	unsigned head, count;
	unsigned waiters;            /* threads that wait for a queued event: none is dropped meanwhile */
	struct batch batch;
};

/* The events of one context that are in no queue. Guarded by the heap lock, except constants. */
struct event_pool {
	struct event_pool *next;     /* of another context; const once it is in the list */
	struct meta *meta;           /* const */
	trz_context context;         /* const */
	trz_event deputy;            /* outstanding (contexts.c); NULL: none. The growth lock guards this and the next */
	uint64_t deputies;           /* how many have been recorded, and so the number of the newest */
	atomic_bool lost;            /* the context was destroyed before the heap, with its events and its streams' work */
	trz_event *events;
	size_t count, capacity;
};

static inline bool ticket_passed(const struct tickets *t, uint64_t sequence)
{
	return sequence <= t->passed;
}

/* Notes that a free has taken no number yet. The exchange in ticket_pay sees what was done before this. */
static inline void ticket_owe(struct tickets *t)
{
	if (!atomic_load_explicit(&t->owed, memory_order_relaxed))
		atomic_store_explicit(&t->owed, true, memory_order_release);
}

/* Whether frees have taken no number yet; the caller now takes one for them. */
static inline bool ticket_pay(struct tickets *t)
{
	return atomic_load_explicit(&t->owed, memory_order_relaxed) &&
	       atomic_exchange_explicit(&t->owed, false, memory_order_acq_rel);
}

/* Takes a number for a free in progress, and for all frees without one. */
static inline uint64_t ticket_take(struct tickets *t)
{
	ticket_pay(t);
	return t->closed ? t->newest : ++t->newest;
}

/* The number of the newest free, taken now if it has none yet. */
static inline uint64_t ticket_newest(struct tickets *t)
{
	return ticket_pay(t) && !t->closed ? ++t->newest : t->newest;
}

/* A free of so many bytes has taken this number. 0: the batch goes on; else it ends, with more than `most` bytes or
 * with BATCH_FREES, and this is its first number: an event is due. */
static inline uint64_t ticket_batch(struct tickets *t, uint64_t sequence, uint64_t bytes, uint64_t most)
{
	struct batch *b = &t->batch;
	b->first = b->frees++ ? b->first : sequence;
	b->bytes += bytes;
	if (b->bytes <= most && b->frees < BATCH_FREES)
		return 0;
	uint64_t first = b->first;
	*b = (struct batch){0};
	return first;
}

/* Notes an event that was recorded after `sequence` was taken. `first`: the event is exact, recorded inside that free,
 * the last of a batch that began with this number; 0: it is late. Returns NULL, or an event that the caller must give
 * back: this one, if as much is covered already, or if the queue is full and either the event is exact or a thread
 * waits for a queued one (a later poll will cover the ticket); else, of a full queue, the last event, which this one
 * replaces. Only the holder of the growth lock notes late events. */
trz_event ticket_note(struct tickets *t, uint64_t sequence, trz_event event, uint64_t first);

/* The oldest queued event; NULL: none. */
const struct ticket_event *ticket_oldest(const struct tickets *t);

/* The oldest event has completed: drops it from the queue and returns it. */
trz_event ticket_pop(struct tickets *t);

/* Drops the oldest event, which will never answer, from the queue and returns it: the next one, or none, covers its
 * tickets. */
trz_event ticket_drop(struct tickets *t);

/* An event from elsewhere has shown that tickets up to this one have passed. The queue stays as it is. */
void ticket_pass(struct tickets *t, uint64_t sequence);

/* Drops the whole queue: the context has gone, and no work is left on the stream. */
void ticket_forget(struct tickets *t);

/* An idle event, or NULL. */
trz_event event_pool_take(struct event_pool *p);

/* Takes an event back. false: the host has no memory; the caller destroys it. */
bool event_pool_give(struct event_pool *p, trz_event event);

#endif
