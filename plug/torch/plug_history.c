/* SPDX-License-Identifier: Apache-2.0
 *
 * The history that a program asks for, in each heap from its opening on: to open a heap just for its history would make
 * a context on a device that the program may never use, which takes memory there.
 */
#include "plug.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Guarded by `lock`; no events: there is no history. */
static struct {
	size_t events;
	trz_frame_callback *stack;
	trz_frame_text_callback *text;
} wanted;

static trz_status begin_locked(trz_heap *heap)
{
	trz_status status = plug_pass(trz_set_frame_callback(heap, wanted.stack, wanted.text, NULL));
	return status == TRZ_OK ? plug_pass(trz_history_start(heap, wanted.events)) : status;
}

static trz_status end_locked(trz_heap *heap)
{
	trz_status status = plug_pass(trz_set_frame_callback(heap, NULL, NULL, NULL));
	return status == TRZ_OK ? plug_pass(trz_history_stop(heap)) : status;
}

static trz_status apply_locked(void)
{
	for (int device = 0; device < TRZ_TORCH_DEVICES; device++) {
		trz_heap *heap;
		trz_status status = trz_torch_heap(device, false, &heap);
		if (status == TRZ_OK && heap)
			status = wanted.events ? begin_locked(heap) : end_locked(heap);
		if (status != TRZ_OK)
			return status;
	}
	return TRZ_OK;
}

trz_status trz_torch_history(size_t events, trz_frame_callback *stack, trz_frame_text_callback *text)
{
	pthread_mutex_lock(&lock);
	wanted.events = events;
	wanted.stack = events ? stack : NULL;
	wanted.text = events ? text : NULL;
	trz_status status = apply_locked();
	pthread_mutex_unlock(&lock);
	return status;
}

void plug_join_history(trz_heap *heap)
{
	pthread_mutex_lock(&lock);
	if (wanted.events)
		begin_locked(heap);
	pthread_mutex_unlock(&lock);
}
