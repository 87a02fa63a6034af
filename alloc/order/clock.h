/* SPDX-License-Identifier: Apache-2.0
 *
 * Known order: what the program's own events say about the order of its streams (docs/order.md). A stream's clock holds
 * for each other stream the newest ticket that its future work follows; an event's clock is that of the stream that
 * recorded it, with that stream's own newest ticket, as both were before the record. Waiting for the event merges them.
 * Guarded by the heap lock.
 */
#ifndef TRZ_ALLOC_CLOCK_H
#define TRZ_ALLOC_CLOCK_H

#include "order/stream.h"

/* A ticket of the stream with this index. */
struct clock_entry {
	uint32_t stream;
	uint64_t ticket;
};

/* Invariant: `version` is not 0 only if exactly one record has been under way since the event was made, or last
 * forgotten, or since several were, and that has succeeded. */
struct event_clock {
	struct event_clock *next;    /* of the same hash */
	trz_event event;
	trz_context context;         /* of the stream whose record is under way */
	uint64_t version;            /* of its newest record; 0: it is worthless */
	unsigned writers;            /* records under way */
	bool contested;              /* several were at a time: nobody knows which came last */
	uint32_t count, room;
	struct clock_entry *entries; /* those that had not passed */
};

enum { CLOCKS_MOST = 1 << 16 };

struct event_clocks {
	struct meta *meta;
	struct event_clock **buckets;
	size_t bucket_count, count;
	struct node_pool nodes;
	uint64_t opened;             /* the heap may have missed the beginnings of records up to this version */
	bool off;                    /* nothing is learned (any more): switched off, no host memory, or CLOCKS_MOST */
};

/* The number of a new record: of the process, and never given twice. Needs no lock. */
uint64_t clock_new_version(void);

void clocks_init(struct event_clocks *all, struct meta *m);

/* From now on the heap sees all records that begin; what it knew of events is void. */
void clocks_start(struct event_clocks *all);

/* The stream is about to record the event; NULL: the heap does not know the stream, so the event tells nothing. */
void clock_begin_record(struct event_clocks *all, const struct streams *streams, trz_event event,
                        struct stream *s);

/* The same for the newest tickets of all streams of a context, for a wait by the host. */
void clock_begin_all(struct event_clocks *all, const struct streams *streams, trz_event event, trz_context context);

/* Whether the record under way would tell anything; the context of its stream. */
bool clock_tells(const struct event_clocks *all, trz_event event, trz_context *context);

/* The record has been made; `valid`: and has succeeded, outside captures. */
void clock_end_record(struct event_clocks *all, trz_event event, uint64_t version, bool valid);

/* What the heap knows of the event is void: it is being destroyed, or is new, or was recorded unseen. */
void clock_forget(struct event_clocks *all, trz_event event);

/* The same for all events. */
void clock_forget_all(struct event_clocks *all);

/* The version of the event's newest record, if its clock holds anything that has not passed; else 0. */
uint64_t clock_version(const struct event_clocks *all, trz_event event);

/* The stream's future work follows that record, if it still is the event's newest. false: no host memory. */
bool clock_teach(const struct event_clocks *all, const struct streams *streams, trz_event event, uint64_t version,
                 struct stream *s);

/* That record has completed. */
void clock_pass(const struct event_clocks *all, const struct streams *streams, trz_event event, uint64_t version);

#endif
