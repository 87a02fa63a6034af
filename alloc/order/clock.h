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

/* Invariant: `version` is not 0 only if the newest record has succeeded, and no other record was under way with it. */
struct event_clock {
	struct event_clock *next;    /* of the same hash */
	trz_event event;
	trz_context context;         /* the context of the stream whose record is under way */
	uint64_t version;            /* of the event's newest record; 0: the clock tells nothing */
	unsigned writers;            /* records under way */
	bool contested;              /* several are, or were, at the same time: nobody knows which came last */
	uint32_t count, room;
	struct clock_entry *entries; /* the tickets that had not passed at the record */
};

enum { CLOCKS_MOST = 1 << 16 };

struct event_clocks {
	struct meta *meta;
	struct event_clock **buckets;
	size_t bucket_count, count;
	struct node_pool nodes;
	uint64_t opened;             /* the heap may have missed the beginnings of records up to this version */
	bool off;                    /* learns nothing (any more): switched off, no host memory, or CLOCKS_MOST reached */
};

/* A number for a new record, unique in the process. Needs no lock. */
uint64_t clock_new_version(void);

void clocks_init(struct event_clocks *all, struct meta *m);

/* From now on the heap sees all records that begin; what it knew of events is void. */
void clocks_start(struct event_clocks *all);

/* The stream is about to record the event. NULL: a stream that the heap does not know; the event tells nothing then. */
void clock_begin_record(struct event_clocks *all, const struct streams *streams, trz_event event,
                        struct stream *s);

/* The same, with the newest tickets of all streams of a context, since the host is about to wait for all of them. */
void clock_begin_all(struct event_clocks *all, const struct streams *streams, trz_event event, trz_context context);

/* Whether the record under way would tell anything; *context becomes that of its stream. */
bool clock_tells(const struct event_clocks *all, trz_event event, trz_context *context);

/* The record has been made. `valid`: it has succeeded, outside captures. */
void clock_end_record(struct event_clocks *all, trz_event event, uint64_t version, bool valid);

/* Forgets what the heap knows of an event: it is being destroyed, is new, or was recorded unseen. */
void clock_forget(struct event_clocks *all, trz_event event);

/* The same for all events. */
void clock_forget_all(struct event_clocks *all);

/* The version of the event's newest record, if its clock has any entry; else 0. */
uint64_t clock_version(const struct event_clocks *all, trz_event event);

/* The stream's future work follows the record of this version, if it still is the event's newest. false: no host
 * memory. */
bool clock_teach(const struct event_clocks *all, const struct streams *streams, trz_event event, uint64_t version,
                 struct stream *s);

/* That record has completed, so the tickets of its clock have passed. */
void clock_pass(const struct event_clocks *all, const struct streams *streams, trz_event event, uint64_t version);

#endif
