/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells all open heaps of the events that the process records and waits for (include/terrazzo.h, "known order"), except
 * foreign ones: an event that may be recorded unseen, by a launched graph, another process or a kernel's launch, is
 * foreign until it is destroyed.
 */
#ifndef TRZ_EVENT_ORDER_H
#define TRZ_EVENT_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Heaps are told while `reporting`. Once given up, they never are again. */
extern atomic_bool event_order_reporting;
extern atomic_bool event_order_given_up;

static inline bool event_order_is_reporting(void)
{
	return atomic_load_explicit(&event_order_reporting, memory_order_relaxed);
}

void event_order_give_up(void);
void event_order_forget_all(void);

void event_order_make_foreign(void *event);
bool event_order_is_foreign(void *event);

/* In a child made by fork(), where a lock of the parent's may be held for ever. */
void event_order_begin_anew(void);

/* Forgets an event that is new, or about to be destroyed; it is no longer foreign. */
void event_order_forget(void *event);

/* ---- calls, with reports around them ----
 *
 * `real` is the driver's function or the runtime's. `order` is the stream's handle as the heaps know it: NULL is the
 * legacy default stream. `saw_all`, if it is not NULL, says after the call whether all records so far have been
 * seen. */

typedef int event_order_record_call(void *event, void *stream);
typedef int event_order_record_with_call(void *event, void *stream, unsigned flags);
typedef int event_order_wait_call(void *stream, void *event, unsigned flags);
typedef int event_order_finish_call(void *what);
typedef int event_order_finish_all_call(void);
typedef bool event_order_question(void);

int event_order_record(event_order_record_call *real, void *event, void *stream, void *order);
int event_order_record_with(event_order_record_with_call *real, void *event, void *stream, unsigned flags, void *order);
int event_order_wait(event_order_wait_call *real, void *stream, void *event, unsigned flags, void *order,
                     event_order_question *saw_all);

/* Waits by the host: for an event, a stream, all streams of a context (NULL: not known). */
int event_order_finish(event_order_finish_call *real, void *event, event_order_question *saw_all);
int event_order_finish_stream(event_order_finish_call *real, void *stream, void *order);
int event_order_finish_all(event_order_finish_all_call *real, void *context);

/* Make the events foreign that a graph's node records, or a launch by its attributes. */
struct event_order_node {
	int type, reserved[3];
	void *event;
};

struct event_order_attribute {
	int id, padding;
	union {
		void *event;
		char bytes[64];
	} value;
};

void event_order_note_node(const struct event_order_node *node);
void event_order_note_attributes(const struct event_order_attribute *attributes, unsigned count);

#endif
