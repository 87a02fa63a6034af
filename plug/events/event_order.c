/* SPDX-License-Identifier: Apache-2.0
 *
 * Which events the heaps may be told of.
 */
#include "event_order.h"

#include <pthread.h>
#include <stddef.h>

#include "terrazzo.h"

enum {
	NODE_EVENT_RECORD = 7,          /* cudaGraphNodeTypeEventRecord */
	LAUNCH_PROGRAMMATIC_EVENT = 7,  /* cudaLaunchAttributeProgrammaticEvent */
	LAUNCH_COMPLETION_EVENT = 12    /* cudaLaunchAttributeLaunchCompletionEvent */
};

atomic_bool event_order_reporting;
atomic_bool event_order_given_up;

void event_order_forget_all(void)
{
	if (event_order_is_reporting())
		trz_event_forget(NULL, NULL);
}

void event_order_give_up(void)
{
	atomic_store(&event_order_given_up, true);
	event_order_forget_all();
	atomic_store(&event_order_reporting, false);
}

/* ---- foreign events ---- */

/* Small sets, by a hash of the event. If one is full, nothing is reported any more. */
enum { FOREIGN_SETS = 1024, FOREIGN_WAYS = 8 };
static _Atomic(void *) foreign[FOREIGN_SETS][FOREIGN_WAYS];
static atomic_size_t foreign_count;
static pthread_mutex_t foreign_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic(void *) *foreign_set(const void *event)
{
	return foreign[(uintptr_t)event * 0x9e3779b97f4a7c15u >> 54];
}

static _Atomic(void *) *find_foreign(const void *event, void *what)
{
	_Atomic(void *) *set = foreign_set(event);
	for (int i = 0; i < FOREIGN_WAYS; i++)
		if (atomic_load_explicit(&set[i], memory_order_acquire) == what)
			return &set[i];
	return NULL;
}

bool event_order_is_foreign(void *event)
{
	return atomic_load_explicit(&foreign_count, memory_order_acquire) &&
	       !atomic_load_explicit(&event_order_given_up, memory_order_relaxed) && find_foreign(event, event);
}

void event_order_make_foreign(void *event)
{
	if (!event || atomic_load_explicit(&event_order_given_up, memory_order_relaxed))
		return;
	pthread_mutex_lock(&foreign_lock);
	_Atomic(void *) *place = find_foreign(event, event) ? NULL : find_foreign(event, NULL);
	bool full = !place && !find_foreign(event, event);
	if (place) {
		atomic_store_explicit(place, event, memory_order_release);
		atomic_fetch_add(&foreign_count, 1);
	}
	pthread_mutex_unlock(&foreign_lock);
	if (full)
		event_order_give_up();
	else if (event_order_is_reporting())
		trz_event_forget(NULL, event);
}

void event_order_begin_anew(void)
{
	pthread_mutex_init(&foreign_lock, NULL);
}

void event_order_forget(void *event)
{
	if (event_order_is_foreign(event)) {
		pthread_mutex_lock(&foreign_lock);
		_Atomic(void *) *place = find_foreign(event, event);
		if (place) {
			atomic_store_explicit(place, NULL, memory_order_release);
			atomic_fetch_sub(&foreign_count, 1);
		}
		pthread_mutex_unlock(&foreign_lock);
	}
	if (event && event_order_is_reporting())
		trz_event_forget(NULL, event);
}

/* ---- the calls ---- */

int event_order_record(event_order_record_call *real, void *event, void *stream, void *order)
{
	if (!event_order_is_reporting() || event_order_is_foreign(event))
		return real(event, stream);
	uint64_t token = trz_event_record_begin(NULL, event, order);
	int error = real(event, stream);
	trz_event_record_end(NULL, event, order, token, error == 0);
	return error;
}

int event_order_record_with(event_order_record_with_call *real, void *event, void *stream, unsigned flags, void *order)
{
	if (flags)
		event_order_make_foreign(event);
	if (!event_order_is_reporting() || event_order_is_foreign(event))
		return real(event, stream, flags);
	uint64_t token = trz_event_record_begin(NULL, event, order);
	int error = real(event, stream, flags);
	trz_event_record_end(NULL, event, order, token, error == 0);
	return error;
}

int event_order_wait(event_order_wait_call *real, void *stream, void *event, unsigned flags, void *order,
                     event_order_question *saw_all)
{
	uint64_t token = event_order_is_reporting() && !flags ? trz_stream_wait_begin(NULL, order, event) : 0;
	int error = real(stream, event, flags);
	if (token)
		trz_stream_wait_end(NULL, order, event, token, error == 0 && (!saw_all || saw_all()));
	return error;
}

/* ---- waits by the host ---- */

/* The thread is in one of these calls: a heap knows only one for each thread. */
static _Thread_local bool waiting;

int event_order_finish(event_order_finish_call *real, void *event, event_order_question *saw_all)
{
	uint64_t token = event_order_is_reporting() ? trz_event_sync_begin(NULL, event) : 0;
	int error = real(event);
	if (token)
		trz_event_sync_end(NULL, event, token, error == 0 && (!saw_all || saw_all()));
	return error;
}

int event_order_finish_stream(event_order_finish_call *real, void *stream, void *order)
{
	if (!event_order_is_reporting() || waiting)
		return real(stream);
	waiting = true;
	uint64_t token = trz_stream_sync_begin(NULL, order);
	int error = real(stream);
	trz_sync_end(NULL, token, error == 0);
	waiting = false;
	return error;
}

int event_order_finish_all(event_order_finish_all_call *real, void *context)
{
	if (!event_order_is_reporting() || waiting || !context)
		return real();
	waiting = true;
	uint64_t token = trz_context_sync_begin(NULL, context);
	int error = real();
	trz_sync_end(NULL, token, error == 0);
	waiting = false;
	return error;
}

/* ---- what else records events ---- */

void event_order_note_node(const struct event_order_node *node)
{
	if (node && node->type == NODE_EVENT_RECORD)
		event_order_make_foreign(node->event);
}

void event_order_note_attributes(const struct event_order_attribute *attributes, unsigned count)
{
	for (unsigned i = 0; attributes && i < count; i++)
		if (attributes[i].id == LAUNCH_PROGRAMMATIC_EVENT || attributes[i].id == LAUNCH_COMPLETION_EVENT)
			event_order_make_foreign(attributes[i].value.event);
}
