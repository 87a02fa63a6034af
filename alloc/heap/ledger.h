/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger: what callers hold, over all streams, and its peaks, while streams count their slots under locks of their
 * own (order/slots.h). A peak is exact: the most that callers have held at any one moment.
 *
 * There is a limit for the slots of each stream, one for all small blocks and one for all large ones; none of these
 * holds more than its limit. The sum of the limits never exceeds the peak, so what is held does not either while all
 * stay within their limits. An operation that needs more takes the heap lock and raises the limit. If the sum would
 * then exceed the peak, it calls in all slots and lowers each limit to what is held. Nothing can change then, and the
 * sum is what callers hold at this moment: if it still exceeds the peak, it is the new peak. The limit is raised beyond
 * the need, by up to half of what is left below the peak, so that such operations are rare. A rise only has to walk the
 * list of streams that may hold less than their limit. It empties the list, and each entry in it has been paid for by
 * an operation under the heap lock.
 */
#ifndef TRZ_ALLOC_LEDGER_H
#define TRZ_ALLOC_LEDGER_H

#include "heap/heap.h"

void heap_call_in_slow_locked(struct stream *s);

/* Calls a stream's slots in: until it gives the heap lock up, the caller alone has them. */
static inline void heap_call_in_locked(trz_heap *h, struct stream *s)
{
	(void)h;
	HEAP_LOCKED(h);
	if (slots_are_out(&s->slots))
		heap_call_in_slow_locked(s);
}

/* Calls in the slots of all streams, and lowers their limits to what they hold. */
void heap_call_all_in_locked(trz_heap *h);

/* Lets a stream's slots out, unless each free of a slot needs an event (thread-bound streams) or a line of the history,
 * or the stream is retired. */
void heap_let_out_locked(trz_heap *h, struct stream *s);

/* Lists a stream, whose slots are in: from now on it may hold less than its limit. */
static inline void heap_list_locked(trz_heap *h, struct stream *s)
{
	HEAP_LOCKED(h);
	struct slots *o = &s->slots;
	if (o->link_listed)
		return;
	o->next_listed = h->listed;
	o->link_listed = &h->listed;
	if (o->next_listed)
		o->next_listed->slots.link_listed = &o->next_listed;
	h->listed = s;
}

/* Counts `more` as taken by a stream whose slots are in, and raises its limit, and the peaks, as need be. */
void heap_take_beyond_limit_locked(trz_heap *h, struct stream *s, const uint64_t more[MEASURES]);

/* What callers hold of a measure, in blocks and slots; and all that they have ever been given. Exact while all slots
 * are in, or no thread uses them; else the sum of figures of slightly different moments. */
uint64_t heap_held(const trz_heap *h, enum measure m);
uint64_t heap_given_out(const trz_heap *h, enum measure m);

/* Raises limits and peaks, since blocks exceed their limit or more is pending. */
void heap_raise_peaks_locked(trz_heap *h);

/* Every peak becomes what is held now. Growth lock held, too. */
void heap_reset_peaks_locked(trz_heap *h);

/* The counters with the streams' own counts added; takes no lock. */
void heap_read_counters(const trz_heap *h, struct counters *out);

#define SLOTS_IN(h, s) assert(spinlock_is_mine(&(h)->lock) && !slots_are_out(&(s)->slots))

#endif
