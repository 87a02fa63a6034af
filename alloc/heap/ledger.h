/* SPDX-License-Identifier: Apache-2.0
 *
 * The ledger: what callers hold, over all streams, and its peaks, while streams count their slots under locks of their
 * own (order/slots.h). A peak is exact: the most that callers have held at any one moment.
 *
 * There is a limit for the slots of each stream, one for all small blocks and one for all large ones; none holds more
 * than its limit. The sum of the limits never exceeds the peak: so neither does what is held, as long as nobody has to
 * ask. Who needs more than its limit holds the heap lock, and raises it. If the sum would then exceed the peak, all
 * slots are called in and each limit is lowered to what is held. Nothing can change then, and the sum is what callers
 * hold at this moment: if that still exceeds the peak, it is the new one. Who has asked gets a limit beyond its need,
 * out of half of what is left below the peak, so as to ask seldom. The list of streams that may hold less than their
 * limit is what a rise has to walk; it empties the list, and each entry has been paid for by an operation under the
 * heap lock.
 */
#ifndef TRZ_ALLOC_LEDGER_H
#define TRZ_ALLOC_LEDGER_H

#include "heap/heap.h"

void heap_call_in_slow_locked(struct stream *s);

/* From here on, and until the heap lock is given up, a stream's slots are the caller's. */
static inline void heap_call_in_locked(trz_heap *h, struct stream *s)
{
	(void)h;
	HEAP_LOCKED(h);
	if (slots_are_out(&s->slots))
		heap_call_in_slow_locked(s);
}

/* The same for all streams, whose limits are lowered to what they hold. */
void heap_call_all_in_locked(trz_heap *h);

/* Lets a stream's slots out, if they may be: not while each slot's free needs an event, or a line of the history, or
 * the stream is retired. */
void heap_let_out_locked(trz_heap *h, struct stream *s);

/* The stream's slots are in, and it may hold less than its limit from now on. */
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

/* The stream's slots are in: counts this much as taken, and raises its limit, and the peaks, as need be. */
void heap_take_beyond_limit_locked(trz_heap *h, struct stream *s, const uint64_t more[MEASURES]);

/* What callers hold of a measure, in blocks and slots; and all that they have ever been given. Exact if all slots are
 * in, or nobody uses them; else of slightly different moments. */
uint64_t heap_held(const trz_heap *h, enum measure m);
uint64_t heap_given_out(const trz_heap *h, enum measure m);

/* Blocks exceed their limit, or more is pending: raises limits and peaks. */
void heap_raise_peaks_locked(trz_heap *h);

/* Every peak becomes what is held now. */
void heap_reset_peaks_locked(trz_heap *h);

/* The counters with the streams' own counts added; takes no lock. */
void heap_read_counters(const trz_heap *h, struct counters *out);

#define SLOTS_IN(h, s) assert(spinlock_is_mine(&(h)->lock) && !slots_are_out(&(s)->slots))

#endif
