/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is freed with an event waits only for that event: the caller answers for all uses of it. It stays in a
 * list whose events polls query (poll.c); when the event has completed, the memory is free in its home and, since it
 * has passed, any stream can borrow it.
 */
#include "serve/after.h"

#include "error.h"
#include "heap/events.h"
#include "heap/pending.h"
#include "serve/serve.h"

/* Asks whether the event has completed. NOT_READY also if the context is dead, so that the free is noted all the same,
 * and in a host function, where the next poll asks. */
static trz_status ask(trz_heap *h, trz_event event)
{
	trz_capture_mode mode;
	if (!heap_relax(h, &mode))
		return TRZ_NOT_READY;
	trz_status status = driver_event_query(&h->driver, h->driver.context, event);
	heap_tighten(h, mode);
	bool later = status == TRZ_ERROR_NOT_PERMITTED || driver_is_dead(&h->driver);
	return later ? TRZ_NOT_READY : status;
}

trz_status after_free(trz_heap *h, trz_addr address, trz_event event)
{
	trz_status asked = ask(h, event), status;
	if (asked != TRZ_OK && asked != TRZ_NOT_READY)
		return trz_fail(asked, "%p cannot be freed after event %p: %s", (void *)address, event,
		                trz_driver_last_error());
	heap_lock(h);
	struct pending *p = serve_take_back_locked(h, address, &status);
	if (p && asked == TRZ_OK) {
		heap_end_pending_locked(h, p);
	} else if (p) {
		p->event = event;
		p->next = h->given;
		h->given = p;
		if (atomic_fetch_add_explicit(&h->given_count, 1, memory_order_relaxed) > TICKET_QUEUE_HIGH)
			atomic_store_explicit(&h->poll_wanted, true, memory_order_relaxed);
	}
	heap_unlock(h);
	if (!p)
		return serve_complain(h, address, status);
	if (asked == TRZ_OK)
		heap_destroy_event(h, event);
	return TRZ_OK;
}
