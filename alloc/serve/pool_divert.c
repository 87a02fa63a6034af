/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of diversions. While there is one, every allocation reads the list, and filters are the caller's code: so a
 * reader holds the list's lock and no other.
 */
#include "serve/pool_divert.h"

#include "error.h"
#include "heap/capture.h"
#include "heap/events.h"
#include "heap/pools.h"
#include "heap/streams.h"

static trz_status same_capture(trz_heap *h, const struct diversion *d, const struct capture *capture, bool *same)
{
	struct capture other;
	if (d->stream == STREAM_PER_THREAD && d->owner != stream_this_thread())
		return TRZ_OK;  /* the handle means another stream here */
	if (capture->status == TRZ_CAPTURE_NONE)
		return TRZ_OK;
	trz_status status = driver_stream_capture(&h->driver, h->driver.context, d->stream, &other.status, &other.id);
	*same = status == TRZ_OK && other.status != TRZ_CAPTURE_NONE && other.id == capture->id;
	return status == TRZ_OK ? TRZ_OK : heap_stream_not_asked(d->stream, status);
}

static trz_status ask(trz_heap *h, const struct diversion *d, trz_stream stream, const struct capture *capture,
                      bool *takes)
{
	*takes = false;
	if (d->captured)
		return same_capture(h, d, capture, takes);
	*takes = d->thread ? d->owner == stream_this_thread() : d->filter(d->user, stream);
	return TRZ_OK;
}

trz_status pool_divert(trz_heap *h, trz_stream stream, const struct capture *capture, struct pool **out)
{
	struct pool *p = NULL;
	trz_status status = TRZ_OK;
	bool takes;
	int cancel = uncancelled_begin();
	pthread_rwlock_rdlock(&h->divert_lock);
	for (const struct diversion *d = h->diversions; d && !p && status == TRZ_OK; d = d->next) {
		status = ask(h, d, stream, capture, &takes);
		if (status == TRZ_OK && takes)
			p = d->pool;
	}
	if (p) {
		heap_lock(h);
		p->users++;
		heap_unlock(h);
	}
	pthread_rwlock_unlock(&h->divert_lock);
	uncancelled_end(cancel);
	*out = p;
	return status;
}

static void count_capture(trz_heap *h, const struct diversion *d, int sign)
{
	atomic_fetch_add(&h->capturing, (unsigned)(sign * !d->thread));
	atomic_fetch_add(&h->announced, (unsigned)(sign * d->captured));
}

/* Announces the capture that is to come, which an event of the whole context, or of the legacy default stream, would
 * invalidate. When this returns, a thread that records one has done so, or has seen the announcement. false: in a host
 * function. */
static bool announce(trz_heap *h, const struct diversion *d)
{
	if (d->thread)
		return true;
	count_capture(h, d, 1);
	if (!heap_announce_capture(h, d->pool)) {
		count_capture(h, d, -1);
		return false;
	}
	const struct stream *legacy = heap_known_stream(h, NULL);
	if (d->captured && legacy)
		heap_await_recorders(h, legacy);
	return true;
}

trz_status pool_divert_begin(trz_heap *h, const struct diversion *like)
{
	struct diversion *d = meta_alloc(&h->meta, sizeof *d);
	if (!d)
		return meta_exhausted();
	*d = *like;
	d->owner = stream_this_thread();
	if (!announce(h, d)) {
		meta_free(&h->meta, d);
		return heap_not_permitted("trz_pool_begin");
	}
	heap_lock(h);
	d->pool->users++;
	d->pool->pinned |= d->captured;
	heap_unlock(h);
	pthread_rwlock_wrlock(&h->divert_lock);
	d->next = h->diversions;
	h->diversions = d;
	pthread_rwlock_unlock(&h->divert_lock);
	atomic_fetch_add_explicit(&h->diverting, 1, memory_order_release);
	return TRZ_OK;
}

/* Takes the newest diversion to `p` that this thread began out of the list; if it began none, the newest to `p`. */
static struct diversion *detach(trz_heap *h, const struct pool *p)
{
	struct diversion **found = NULL;
	for (struct diversion **link = &h->diversions; *link; link = &(*link)->next) {
		const struct diversion *d = *link;
		if (d->pool != p)
			continue;
		if (!found || d->owner == stream_this_thread())
			found = link;
		if (d->owner == stream_this_thread())
			break;
	}
	struct diversion *gone = found ? *found : NULL;
	if (gone)
		*found = gone->next;
	return gone;
}

trz_status pool_divert_end(trz_heap *h, const struct pool *p)
{
	pthread_rwlock_wrlock(&h->divert_lock);
	struct diversion *d = detach(h, p);
	pthread_rwlock_unlock(&h->divert_lock);
	if (!d)
		return TRZ_ERROR_NOT_FOUND;
	atomic_fetch_sub_explicit(&h->diverting, 1, memory_order_release);
	count_capture(h, d, -1);
	if (!d->thread)
		heap_end_announcement(h, d->pool);
	struct pool *pool = d->pool;
	meta_free(&h->meta, d);
	heap_pool_release(h, pool);
	return TRZ_OK;
}
