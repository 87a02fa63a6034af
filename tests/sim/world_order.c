/* SPDX-License-Identifier: Apache-2.0
 *
 * Order between a program's streams: events are recorded, awaited, recorded again and destroyed. The program may tell
 * the heap all that happens to an event, a part, or nothing; but it must tell that an event has gone, or was recorded
 * without the heap being told.
 */
#include "world_parts.h"

/* What the program tells the heap, chosen at random, as bits. */
enum { TELLS_RECORD = 1, TELLS_WAIT = 2 };

static unsigned choose_tells(struct world *w)
{
	return (unsigned)prng_mix(w->seed ^ prng_mix(atomic_fetch_add(&w->orders, 1)));
}

static trz_status record(struct world *w, trz_event event, unsigned stream, bool told)
{
	uint64_t token = told ? trz_event_record_begin(w->heap, event, handle_of(w, stream)) : 0;
	trz_status status = w->d->event_record(w->d->self, context_of(w, stream), event, handle_of(w, stream));
	if (told)
		trz_event_record_end(w->heap, event, handle_of(w, stream), token, status == TRZ_OK);
	return status;
}

/* In a way that the heap knows nothing of: it is to forget the event. Other threads may wait for it meanwhile: then the
 * record is reported as one that has failed. */
static trz_status record_unseen(struct world *w, trz_event event, unsigned stream)
{
	bool meanwhile = w->free_running;
	uint64_t token = meanwhile ? trz_event_record_begin(w->heap, event, handle_of(w, stream)) : 0;
	trz_status status = record(w, event, stream, false);
	if (meanwhile)
		trz_event_record_end(w->heap, event, handle_of(w, stream), token, false);
	else
		trz_event_forget(w->heap, event);
	return status;
}

static trz_status await(struct world *w, trz_event event, unsigned stream, bool told)
{
	uint64_t token = told ? trz_stream_wait_begin(w->heap, handle_of(w, stream), event) : 0;
	trz_status status = w->d->stream_wait(w->d->self, context_of(w, stream), handle_of(w, stream), event);
	if (told)
		trz_stream_wait_end(w->heap, handle_of(w, stream), event, token, status == TRZ_OK);
	return status;
}

const char *world_order(struct world *w, unsigned from, unsigned to)
{
	trz_event event = NULL;
	if (from == to)
		return NULL;
	unsigned tells = choose_tells(w);
	MUST(w, w->d->event_create(w->d->self, context_of(w, from), &event));
	MUST(w, record(w, event, from, tells & TELLS_RECORD));
	MUST(w, await(w, event, to, tells & TELLS_WAIT));
	if (tells & TELLS_RECORD)
		trz_event_forget(w->heap, event);
	MUST(w, w->d->event_destroy(w->d->self, w->c, event));
	world_note_wait(w, to);
	return NULL;
}

const char *world_mark(struct world *w, unsigned stream, trz_event *mark)
{
	TRY(world_end_mark(w, mark));
	MUST(w, w->d->event_create(w->d->self, context_of(w, stream), mark));
	MUST(w, record(w, *mark, stream, choose_tells(w) & TELLS_RECORD));
	return NULL;
}

const char *world_follow(struct world *w, trz_event mark, unsigned stream)
{
	if (!mark)
		return NULL;
	MUST(w, await(w, mark, stream, choose_tells(w) & TELLS_WAIT));
	world_note_wait(w, stream);
	return NULL;
}

const char *world_end_mark(struct world *w, trz_event *mark)
{
	trz_event event = *mark;
	*mark = NULL;
	if (!event)
		return NULL;
	trz_event_forget(w->heap, event);
	MUST(w, w->d->event_destroy(w->d->self, w->c, event));
	return NULL;
}

/* ---- events that are used again and again, by all actors ---- */

/* Enters a stream of the heap's context, and locks the events for use; WORLD_STREAMS: none. */
static unsigned enter_with_signals(struct actor *a)
{
	struct world *w = a->w;
	unsigned stream = world_enter_any(a);
	if (stream == WORLD_STREAMS)
		return stream;
	if (context_of(w, stream) == w->c && pthread_rwlock_tryrdlock(&w->signal_lock) == 0)
		return stream;
	world_leave(a, stream);
	return WORLD_STREAMS;
}

static void leave_with_signals(struct actor *a, unsigned stream)
{
	pthread_rwlock_unlock(&a->w->signal_lock);
	world_leave(a, stream);
}

const char *world_signal(struct actor *a)
{
	struct world *w = a->w;
	unsigned stream = enter_with_signals(a);
	if (stream == WORLD_STREAMS)
		return NULL;
	trz_event event = w->signals[below(a, WORLD_SIGNALS)];
	bool told = !chance(a, 8);
	trz_status status = told ? record(w, event, stream, true) : record_unseen(w, event, stream);
	leave_with_signals(a, stream);
	MUST(w, status);
	return NULL;
}

/* Waits for an event; one that has never been recorded is not waited for. */
const char *world_heed(struct actor *a)
{
	struct world *w = a->w;
	unsigned stream = enter_with_signals(a);
	if (stream == WORLD_STREAMS)
		return NULL;
	trz_status status = await(w, w->signals[below(a, WORLD_SIGNALS)], stream, true);
	world_note_wait(w, stream);
	leave_with_signals(a, stream);
	MUST(w, status);
	return NULL;
}

/* The host waits for the default stream of the second device, whose handle is that of the first one's. */
static trz_status await_abroad(struct world *w)
{
	uint64_t token = trz_stream_sync_begin(NULL, NULL);
	trz_status status = sim_stream_sync(w->s, w->peer, NULL);
	trz_sync_end(NULL, token, status == TRZ_OK);
	return status;
}

static trz_status record_abroad(struct world *w, trz_event event)
{
	uint64_t token = trz_event_record_begin(NULL, event, NULL);
	trz_status status = w->d->event_record(w->d->self, w->peer, event, NULL);
	trz_event_record_end(NULL, event, NULL, token, status == TRZ_OK);
	return status;
}

/* Does both with the second device's context current in the thread. */
static trz_status act_abroad(struct world *w, trz_event event)
{
	trz_context before = sim_context_current(w->s);
	sim_context_set_current(w->s, w->peer);
	trz_status status = await_abroad(w);
	if (status == TRZ_OK)
		status = record_abroad(w, event);
	sim_context_set_current(w->s, before);
	return status;
}

/* All heaps are told, as the plugs tell them: none may take that stream for its own. */
const char *world_signal_abroad(struct actor *a)
{
	struct world *w = a->w;
	trz_event event = NULL;
	if (!w->peer || pthread_rwlock_trywrlock(&w->capture_lock) != 0)
		return NULL;
	unsigned stream = world_enter_any(a);
	trz_status status = w->d->event_create(w->d->self, w->peer, &event);
	if (status == TRZ_OK)
		status = act_abroad(w, event);
	if (status == TRZ_OK && stream != WORLD_STREAMS) {
		status = await(w, event, stream, true);
		world_note_wait(w, stream);
	}
	trz_event_forget(NULL, event);
	if (status == TRZ_OK)
		status = w->d->event_destroy(w->d->self, w->peer, event);
	if (stream != WORLD_STREAMS)
		world_leave(a, stream);
	pthread_rwlock_unlock(&w->capture_lock);
	MUST(w, status);
	return NULL;
}

/* The host queries an event, which a capture of the thread's would forbid. */
const char *world_ask_signal(struct actor *a)
{
	struct world *w = a->w;
	if (pthread_rwlock_trywrlock(&w->capture_lock) != 0)
		return NULL;
	pthread_rwlock_rdlock(&w->signal_lock);
	trz_event event = w->signals[below(a, WORLD_SIGNALS)];
	uint64_t token = trz_event_sync_begin(w->heap, event);
	trz_status status = w->d->event_query(w->d->self, w->c, event);
	trz_event_sync_end(w->heap, event, token, status == TRZ_OK);
	pthread_rwlock_unlock(&w->signal_lock);
	pthread_rwlock_unlock(&w->capture_lock);
	return NULL;
}

/* A new event is likely to get the old one's handle. */
const char *world_replace_signal(struct actor *a)
{
	struct world *w = a->w;
	if (pthread_rwlock_trywrlock(&w->signal_lock) != 0)
		return NULL;
	trz_event *event = &w->signals[below(a, WORLD_SIGNALS)];
	trz_event_forget(w->heap, *event);
	trz_status status = w->d->event_destroy(w->d->self, w->c, *event);
	if (status == TRZ_OK)
		status = w->d->event_create(w->d->self, w->c, event);
	pthread_rwlock_unlock(&w->signal_lock);
	MUST(w, status);
	return NULL;
}

const char *world_open_signals(struct world *w)
{
	for (int i = 0; i < WORLD_SIGNALS; i++)
		MUST(w, w->d->event_create(w->d->self, w->c, &w->signals[i]));
	return NULL;
}

const char *world_end_signals(struct world *w)
{
	for (int i = 0; i < WORLD_SIGNALS; i++)
		MUST(w, w->d->event_destroy(w->d->self, w->c, w->signals[i]));
	return NULL;
}
