/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams: the heap's entry for each stream that it has seen. The driver's id identifies a stream, asked while the
 * caller's handle is alive; a handle alone can be another stream tomorrow. Guarded by the heap lock, except constants.
 * The driver ends the capture of a stream that is asked for its id, so a captured one is known by its handle until it
 * can be asked. The legacy default stream and each thread's have ids of the heap's own, which need no question.
 */
#ifndef TRZ_ALLOC_STREAM_H
#define TRZ_ALLOC_STREAM_H

#include <assert.h>

#include "order/lane.h"
#include "order/slots.h"
#include "order/ticket.h"

enum { STREAM_HASH = 64, STREAMS_MAX = 1024 };

/* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD of the CUDA driver. */
#define STREAM_LEGACY ((trz_stream)1)
#define STREAM_PER_THREAD ((trz_stream)2)

/* Ids that the driver does not give: its own count up from 1, or are handles. */
#define STREAM_ID_LEGACY UINT64_MAX
#define STREAM_ID_OF_THREAD (1ull << 62)     /* and the thread's number */
#define STREAM_ID_UNKNOWN (1ull << 63)       /* and a number: the stream has been seen in captures alone */

/* Freed memory that may not be reused before a ticket of another stream has passed, and then perhaps further tickets;
 * or before an event that came with the free has completed. */
struct pending {
	struct pending *next;        /* in the list of the stream whose ticket is awaited, or of those with an event */
	trz_event event;             /* owned by the heap; NULL: a ticket is awaited */
	uint64_t sequence;           /* that ticket */
	struct use *uses;            /* tickets to await after it */
	struct slab *slab;           /* the slot's slab; NULL: it is a block, ... */
	struct block *block;         /* ... this one */
	unsigned slot;
	uint64_t home_sequence;      /* the block's ticket in its home stream */
};

/* The driver's answer about a stream's capture. */
struct capture {
	trz_capture_status status;
	uint64_t id;
};

#define NEVER_SETTLES UINT64_MAX  /* no ticket gets there */

/* The announcement of a capture, as a stream has noted it (capture.c). */
struct announcement {
	uint64_t number;             /* among the heap's announcements; 0: there is none */
	uint64_t sequence;           /* the stream's ticket, taken then; 0: it had no memory of the pool; NEVER_SETTLES: it
	                              * has been given some since */
};

struct stream {
	struct slots slots;
	struct tickets tickets;
	struct stream *next;                 /* of the same hash */
	uint64_t id;                         /* this and the handle are const until the stream is retired and has no ... */
	trz_stream handle;                   /* ... recorders. Recorders and holders of the growth lock read the handle */
	                                     /* without the heap lock */
	bool thread_bound;                   /* const with the handle, which means this stream in one thread only. Its frees
	                                      * record their events at once, since later only polls of that thread could */
	struct event_pool *events;           /* const with the handle: the events of its context */
	struct lane lane;                    /* what it has of the default pool: packed memory ... */
	struct lane *dedicated;              /* ... and dedicated memory, by pool_next */
	uint64_t *known;                     /* [known_count], by index: the newest ticket of another stream that its */
	unsigned known_count;                /* future work follows, by the program's events (clock.h); 0: none */
	unsigned index;                      /* const: in the list of all streams */
	uint64_t covered;                    /* its context's deputy answers for tickets up to this one */
	unsigned late;                       /* polls left until it counts as a stream whose frees pass at once */
	struct pending *pending_first, **pending_last;
	unsigned recorders;                  /* frees that may be using the handle; retiring waits for them to end */
	atomic_bool retired;                 /* the handle is dead, or dies once the recorders end: no new ones begin. */
	                                     /* If `tickets` is not closed, it died unannounced, and no event covers them */

	atomic_uint_fast64_t entered;        /* operations that have looked it up, under the lock of its slots, ... */
	atomic_uint_fast64_t left;           /* ... and those of them that have ended; not of the legacy default stream */
	unsigned uses;                       /* uses of live and pending memory with this stream as the further user */
	_Atomic uint64_t capture;            /* the capture that its newest allocation was part of; 0: none */
	atomic_bool unsettled;               /* it has yet to pass `begun`; this and the next two change under the growth */
	struct announcement begun;           /* lock: the newest announcement before that capture began, */
	struct announcement announced;       /* and the newest since, for the next capture */
};

enum { RECENT_STREAMS = 64 };

/* A stream of the heap's own context, by the id that it has, or had. A thread that finds one here must check, under the
 * lock of its slots, that they are out and that the id is still the stream's: a stream whose slots are out is alive. */
struct recent {
	_Atomic uint64_t id;
	_Atomic(struct stream *) stream;
};

/* Every stream of a heap. `list` only grows and may be walked without the lock up to `count`. */
struct streams {
	struct meta *meta;
	struct counters *counters;
	struct lanes lanes;
	struct stream *hash[STREAM_HASH];
	struct recent recent[RECENT_STREAMS];  /* by id; read without the lock */
	_Atomic(struct stream *) list[STREAMS_MAX];
	_Atomic unsigned count;
};

static inline bool is_legacy(trz_stream handle)
{
	return (uintptr_t)handle <= (uintptr_t)STREAM_LEGACY;
}

/* A number of the calling thread, > 0, that no other thread has had. */
uint64_t stream_this_thread(void);

/* The id of a default stream; 0: the handle is another stream's. */
static inline uint64_t stream_default_id(trz_stream handle)
{
	if (handle == STREAM_PER_THREAD)
		return STREAM_ID_OF_THREAD | stream_this_thread();
	return is_legacy(handle) ? STREAM_ID_LEGACY : 0;
}

/* The stream with this id that has not been retired; NULL: none yet. Where the driver has no ids, the handle stands in,
 * which another stream can have, too. */
struct stream *stream_find(const struct streams *all, uint64_t id);

/* Notes a stream for stream_recent, which finds it again without the heap lock. */
void stream_note_recent(struct streams *all, struct stream *s);

static inline struct stream *stream_recent(const struct streams *all, uint64_t id)
{
	const struct recent *r = &all->recent[id % RECENT_STREAMS];
	bool found = atomic_load_explicit(&r->id, memory_order_relaxed) == id;
	return found ? atomic_load_explicit(&r->stream, memory_order_acquire) : NULL;
}

/* The newest stream that this handle means in every thread and that has not been retired; NULL: none. It may have died
 * unannounced. */
struct stream *stream_find_handle(const struct streams *all, trz_stream handle);

/* A new stream has this handle: the stream that had it was destroyed unannounced. No event can be recorded for that
 * one; its tickets, with one more for its last work, wait for an event of the whole context. */
void stream_bury(struct streams *all, trz_stream handle);

/* The stream with this handle that has been seen in captures alone, now with the id that the driver gives for the
 * handle. NULL: there is none. The stream's slots must be in. */
struct stream *stream_name(struct streams *all, trz_stream handle, uint64_t id);

/* Adds a stream. NULL: the host has no memory, or STREAMS_MAX are known. */
struct stream *stream_add(struct streams *all, uint64_t id, trz_stream handle, struct event_pool *events);

/* Gives the entry of a retired stream whose work has completed to another stream, with the memory that it still has:
 * all of it is ordered before the new stream's work. NULL: there is no such entry. Only a caller that also holds the
 * growth lock (`growing`) can turn a per-thread stream's entry into another sort, or the reverse. */
struct stream *stream_recycle(struct streams *all, uint64_t id, trz_stream handle, struct event_pool *events,
                              bool growing);

/* Whether all its tickets have passed, no operation and no use refers to it, and it has no live memory and no slab of
 * the default pool. */
bool stream_is_idle(struct stream *s);

/* Whether only a thread that may have ended can record on it, or no thread can, since its handle died unannounced. */
static inline bool stream_is_out_of_reach(const struct stream *s)
{
	return !s->tickets.closed && (s->thread_bound || atomic_load_explicit(&s->retired, memory_order_relaxed));
}

/* Whether its handle has died unannounced. */
static inline bool stream_is_gone(const struct stream *s)
{
	return !s->tickets.closed && atomic_load_explicit(&s->retired, memory_order_relaxed);
}

/* Whether the stream's future work follows a ticket of another one: the ticket has passed, or the program has made the
 * stream wait for it. Such waits do not count while the stream is captured, since they order no launch of the graph;
 * nor once it is retired, since it takes no more tickets, so none would say when memory that it got this way has
 * passed. */
static inline bool stream_follows(const struct stream *s, const struct stream *other, uint64_t ticket)
{
	if (ticket_passed(&other->tickets, ticket))
		return true;
	return other->index < s->known_count && ticket <= s->known[other->index] &&
	       !atomic_load_explicit(&s->capture, memory_order_relaxed) &&
	       !atomic_load_explicit(&s->retired, memory_order_relaxed);
}

/* A free is about to record on the stream, and calls stream_end_record afterwards; false: the stream is retired. */
static inline bool stream_begin_record(struct stream *s)
{
	bool alive = !atomic_load_explicit(&s->retired, memory_order_relaxed);
	s->recorders += alive;
	return alive;
}

static inline void stream_end_record(struct stream *s)
{
	assert(s->recorders > 0);
	s->recorders--;
}

/* How much of its free large memory a lane can lend to another (docs/decisions/0008-lending.md). It may need again
 * what it needed at its own peak. To a stream whose frees have passed at each of the last polls it lends all; to one
 * that its own stream waits for, all but `kept`, which it once did not get back in time; to others, what is beyond its
 * peak, or all if the streams have their peaks `apart` (policy.h). A retired stream needs nothing again, and lends
 * all. */
uint64_t stream_lendable(const struct lane *lender, const struct lane *to, bool apart);

/* Notes whether a poll has found that everything freed has passed. */
void stream_note_poll(struct stream *s);

void stream_push_pending(struct stream *s, struct pending *p);

/* Takes the entry that `link` points to out of the stream's list. */
void stream_unlink_pending(struct stream *s, struct pending **link);

#endif
