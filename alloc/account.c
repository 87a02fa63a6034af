/* SPDX-License-Identifier: Apache-2.0
 *
 * The rare parts of the accounting.
 */
#include "account.h"

COLD void account_active_peaks_locked(trz_heap *h)
{
	struct counters *c = &h->counters;
	counter_raise(&h->active_bytes_peak, flow_all(&c->allocated_bytes) + counter_get(&c->pending_bytes.current));
	counter_raise(&h->active_peak, flow_all(&c->allocation) + counter_get(&c->pending.current));
}

COLD void account_note_locked(trz_heap *h, unsigned event, const struct lane *l, trz_addr address, uint64_t size)
{
	history_note(&h->history, event, .address = address, .size = size, .stream = (uint64_t)l->stream->handle,
	             .pool = pool_id(l->pool), .tag = event == HISTORY_ALLOC ? heap_tag_locked(h) : 0);
}
