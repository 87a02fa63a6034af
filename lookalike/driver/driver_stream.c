/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, events, host functions, and when enqueued work runs. A stream or an event has a context of its own, and may
 * be used whichever is current.
 */
#include "driver_graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/prng.h"

/* ---- when work runs ------------------------------------------------------------ */

/* Late work runs when the host blocks, and in portions by seed during calls: so programs that only query come to an
 * end, and the backlog of one that never blocks stays bounded. Behind a kernel that sleeps all work is late; the host
 * waits for it when the backlog gets too long. */
void look_progress(void)
{
	enum { PORTION = 16, BACKLOG = 4096 };
	static uint64_t calls;
	bool sleeps = __atomic_load_n(&look.has_slept, __ATOMIC_RELAXED);
	if (sleeps && look.work != LOOK_BLOCKED && sim_unfinished(look.sim) > BACKLOG)
		sim_wake(look.sim);
	if (look.work == LOOK_NOW) {
		sim_nudge(look.sim, UINT64_MAX);
		return;
	}
	if (look.work == LOOK_BLOCKED)
		return;
	uint64_t draw = prng_mix(look.seed ^ prng_mix(__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED)));
	if (draw % 8 == 0)
		sim_run(look.sim, (draw >> 8) % PORTION);
	if (draw % 64 == 0 || sim_unfinished(look.sim) > BACKLOG)
		sim_nudge(look.sim, PORTION);
}

cuda_result look_enqueued(trz_status status)
{
	if (status == TRZ_OK)
		look_progress();
	return look_result(status);
}

/* ---- events ------------------------------------------------------------ */

/* Events for several processes must not keep time. */
static bool are_event_flags(unsigned flags)
{
	const unsigned all = TRZ_CU_EVENT_BLOCKING_SYNC | TRZ_CU_EVENT_DISABLE_TIMING | TRZ_CU_EVENT_INTERPROCESS;
	return !(flags & ~all) && (!(flags & TRZ_CU_EVENT_INTERPROCESS) || flags & TRZ_CU_EVENT_DISABLE_TIMING);
}

cuda_result cuEventCreate(void **event, unsigned flags)
{
	LOOK_ENTER(cuEventCreate);
	trz_context context = look_context();
	LOOK_NEED(context, INVALID_CONTEXT);
	LOOK_NEED(event && are_event_flags(flags), INVALID_VALUE);
	if (flags & TRZ_CU_EVENT_INTERPROCESS) {
		cuda_result result = LOOK_SLOT(event_create, context, event);
		if (result != TRZ_CUDA_SUCCESS || look_ipc_event_made(*event))
			return result;
		LOOK_SLOT(event_destroy, context, *event);
		return TRZ_CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (flags & TRZ_CU_EVENT_DISABLE_TIMING)
		return LOOK_SLOT(event_create, context, event);
	return look_result(sim_event_create_timed(look.sim, context, event));
}

cuda_result cuEventDestroy_v2(void *event)
{
	LOOK_ENTER(cuEventDestroy_v2);
	LOOK_NEED(event, INVALID_HANDLE);
	trz_context context = look_event_context(event);
	LOOK_NEED(context, INVALID_CONTEXT);
	bool begun = look_note_begin();
	look_ipc_event_gone(event);  /* now: another thread may get the handle right after */
	cuda_result result = LOOK_SLOT(event_destroy, context, event);
	look_note_end(begun, result == TRZ_CUDA_SUCCESS, SIM_RECORDED_EVENT_END, context, NULL, (uintptr_t)event);
	return result;
}

cuda_result cuEventRecord(void *event, void *stream)
{
	LOOK_ENTER(cuEventRecord);
	LOOK_NEED(event, INVALID_HANDLE);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	LOOK_NEED(look_event_context(event) == context, INVALID_HANDLE);
	bool begun = look_note_begin();
	cuda_result result = LOOK_SLOT(event_record, context, event, stream);
	look_note_end(begun, result == TRZ_CUDA_SUCCESS, SIM_RECORDED_EVENT, context, stream, (uintptr_t)event);
	look_progress();
	return result;
}

cuda_result cuCtxRecordEvent(void *context, void *event)
{
	LOOK_ENTER(cuCtxRecordEvent);
	LOOK_NEED(context && event && look_event_context(event) == context, INVALID_HANDLE);
	cuda_result result = LOOK_SLOT(context_record, context, event);
	if (result == TRZ_CUDA_SUCCESS)
		trz_lookalike_stop_recording("an event of a whole context (cuCtxRecordEvent)");
	look_progress();
	return result;
}

cuda_result cuEventRecordWithFlags(void *event, void *stream, unsigned flags)
{
	if (flags == 0)
		return cuEventRecord(event, stream);
	LOOK_ENTER(cuEventRecordWithFlags);
	LOOK_NEED(flags == TRZ_CU_EVENT_RECORD_EXTERNAL, INVALID_VALUE);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	return look_result(sim_event_record_external(look.sim, context, event, stream));
}

/* Sleeps a moment, so that a program that queries in a loop leaves the processor to the ranks that it waits for. */
static void rest(void)
{
	const struct timespec a_moment = {.tv_nsec = 50000};
	if (__atomic_load_n(&look.has_met, __ATOMIC_RELAXED))
		nanosleep(&a_moment, NULL);
}

cuda_result cuEventQuery(void *event)
{
	LOOK_ENTER(cuEventQuery);
	LOOK_NEED(event, INVALID_HANDLE);
	trz_context context = look_event_context(event);
	LOOK_NEED(context, INVALID_CONTEXT);
	look_progress();
	cuda_result result = LOOK_SLOT(event_query, context, event);
	if (result == TRZ_CUDA_ERROR_NOT_READY)
		rest();
	return result;
}

cuda_result cuEventSynchronize(void *event)
{
	LOOK_ENTER(cuEventSynchronize);
	LOOK_NEED(event, INVALID_HANDLE);
	trz_context context = look_event_context(event);
	LOOK_NEED(context, INVALID_CONTEXT);
	cuda_result result = LOOK_SLOT(event_sync, context, event);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	look_note(SIM_RECORDED_EVENT_SYNC, context, NULL, (uintptr_t)event);
	look_pools_trim(sim_context_device(look.sim, context), false);
	return result;
}

cuda_result cuEventElapsedTime(float *milliseconds, void *start, void *end)
{
	int64_t ns = 0;
	LOOK_ENTER(cuEventElapsedTime);
	LOOK_NEED(milliseconds, INVALID_VALUE);
	trz_status status = sim_event_elapsed(look.sim, start, end, &ns);
	if (status == TRZ_OK)
		*milliseconds = (float)((double)ns / 1e6);
	return look_result(status);
}

cuda_result cuEventElapsedTime_v2(float *milliseconds, void *start, void *end)
{
	return cuEventElapsedTime(milliseconds, start, end);
}

/* ---- streams ------------------------------------------------------------ */

/* A stream's facts that the simulator does not keep. */
struct stream_facts {
	struct stream_facts *next;
	void *stream, *green;
	unsigned flags;
	int priority;
};
static struct {
	pthread_mutex_t lock;
	struct stream_facts *first;
} facts = {.lock = PTHREAD_MUTEX_INITIALIZER};

cuda_result cuStreamCreateWithPriority(void **stream, unsigned flags, int priority)
{
	LOOK_ENTER(cuStreamCreateWithPriority);
	trz_context context = look_context();
	LOOK_NEED(context, INVALID_CONTEXT);
	LOOK_NEED(stream && !(flags & ~(unsigned)TRZ_CU_STREAM_NON_BLOCKING), INVALID_VALUE);
	priority = priority > LOOK_LEAST_PRIORITY ? LOOK_LEAST_PRIORITY : priority;
	priority = priority < LOOK_GREATEST_PRIORITY ? LOOK_GREATEST_PRIORITY : priority;
	struct stream_facts *f = malloc(sizeof *f);
	LOOK_NEED(f, OUT_OF_MEMORY);
	bool blocking = !(flags & TRZ_CU_STREAM_NON_BLOCKING);
	cuda_result result = look_result(sim_stream_create(look.sim, context, blocking, stream));
	if (result != TRZ_CUDA_SUCCESS) {
		free(f);
		return result;
	}
	*f = (struct stream_facts){.stream = *stream, .green = look_green(), .flags = flags, .priority = priority};
	pthread_mutex_lock(&facts.lock);
	f->next = facts.first;
	facts.first = f;
	pthread_mutex_unlock(&facts.lock);
	if (blocking)
		look_note(SIM_RECORDED_BLOCKING, context, *stream, 0);
	return result;
}

cuda_result cuStreamCreate(void **stream, unsigned flags)
{
	LOOK_COUNT(cuStreamCreate);
	return cuStreamCreateWithPriority(stream, flags, 0);
}

/* A stream's facts; if there are none, those of the default streams. `take`: removes them from the list. */
static struct stream_facts facts_of(void *stream, bool take)
{
	struct stream_facts found = {0}, **at, *gone = NULL;
	pthread_mutex_lock(&facts.lock);
	for (at = &facts.first; *at && (*at)->stream != stream;)
		at = &(*at)->next;
	if (*at) {
		found = **at;
		gone = take ? *at : NULL;
		*at = take ? found.next : *at;
	}
	pthread_mutex_unlock(&facts.lock);
	free(gone);
	return found;
}

cuda_result cuStreamDestroy_v2(void *stream)
{
	LOOK_ENTER(cuStreamDestroy_v2);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	facts_of(stream, true);
	look_attributes_forget(stream);
	return look_result(sim_stream_destroy(look.sim, context, stream));
}

cuda_result cuStreamQuery(void *stream)
{
	LOOK_ENTER(cuStreamQuery);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	look_progress();
	return look_result(sim_stream_idle(look.sim, context, stream));
}

cuda_result cuStreamSynchronize(void *stream)
{
	LOOK_ENTER(cuStreamSynchronize);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	cuda_result result = look_result(sim_stream_sync(look.sim, context, stream));
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	look_note(SIM_RECORDED_STREAM_SYNC, context, stream, 0);
	look_pools_trim(sim_context_device(look.sim, context), false);
	return result;
}

cuda_result cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
	LOOK_ENTER(cuStreamWaitEvent);
	LOOK_NEED(event, INVALID_HANDLE);
	LOOK_NEED(flags <= TRZ_CU_EVENT_WAIT_EXTERNAL, INVALID_VALUE);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	if (flags == TRZ_CU_EVENT_WAIT_EXTERNAL)
		return look_result(sim_stream_wait_external(look.sim, context, stream, event));
	bool begun = look_note_begin();
	cuda_result result = LOOK_SLOT(stream_wait, context, stream, event);
	look_note_end(begun, result == TRZ_CUDA_SUCCESS, SIM_RECORDED_WAIT, context, stream, (uintptr_t)event);
	return result;
}

cuda_result cuStreamGetId(void *stream, uint64_t *id)
{
	LOOK_ENTER(cuStreamGetId);
	LOOK_NEED(id, INVALID_VALUE);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	return LOOK_SLOT(stream_id, context, stream, id);
}

cuda_result cuStreamGetCtx(void *stream, void **context)
{
	LOOK_ENTER(cuStreamGetCtx);
	LOOK_NEED(context, INVALID_VALUE);
	void *green;
	cuda_result result = cuStreamGetCtx_v2(stream, context, &green);
	if (result == TRZ_CUDA_SUCCESS && green)
		*context = green;
	return result;
}

void *look_stream_green(void *stream)
{
	return (uintptr_t)stream <= 2 ? look_green() : facts_of(stream, false).green;
}

cuda_result cuStreamGetCtx_v2(void *stream, void **context, void **green)
{
	LOOK_ENTER(cuStreamGetCtx_v2);
	LOOK_NEED(context && green, INVALID_VALUE);
	*context = look_stream_context(stream);
	LOOK_NEED(*context, INVALID_CONTEXT);
	*green = look_stream_green(stream);
	bool legacy = (uintptr_t)stream <= 1;  /* a captured stream tells */
	return legacy ? look_result(sim_stream_ask(look.sim, *context, stream)) : TRZ_CUDA_SUCCESS;
}

cuda_result cuStreamGetGreenCtx(void *stream, void **green)
{
	LOOK_ENTER(cuStreamGetGreenCtx);
	LOOK_NEED(green, INVALID_VALUE);
	*green = look_stream_green(stream);
	return TRZ_CUDA_SUCCESS;
}

cuda_result cuGreenCtxStreamCreate(void **stream, void *green, unsigned flags, int priority)
{
	void *context, *popped;
	LOOK_ENTER(cuGreenCtxStreamCreate);
	LOOK_NEED(flags == TRZ_CU_STREAM_NON_BLOCKING, INVALID_VALUE);
	cuda_result result = cuCtxFromGreenCtx(&context, green);
	if (result == TRZ_CUDA_SUCCESS)
		result = cuCtxPushCurrent_v2(context);
	if (result != TRZ_CUDA_SUCCESS)
		return result;
	result = cuStreamCreateWithPriority(stream, flags, priority);
	cuCtxPopCurrent_v2(&popped);
	return result;
}

cuda_result cuStreamGetDevice(void *stream, cuda_device *device)
{
	LOOK_ENTER(cuStreamGetDevice);
	LOOK_NEED(device, INVALID_VALUE);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	*device = sim_context_device(look.sim, context);
	return look_result(sim_stream_ask(look.sim, context, stream));
}

cuda_result cuStreamGetFlags(void *stream, unsigned *flags)
{
	LOOK_ENTER(cuStreamGetFlags);
	LOOK_NEED(flags, INVALID_VALUE);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	*flags = facts_of(stream, false).flags;
	return look_result(sim_stream_ask(look.sim, context, stream));
}

cuda_result cuStreamGetPriority(void *stream, int *priority)
{
	LOOK_ENTER(cuStreamGetPriority);
	LOOK_NEED(priority, INVALID_VALUE);
	*priority = facts_of(stream, false).priority;
	return TRZ_CUDA_SUCCESS;
}

/* ---- host functions, values ------------------------------------------------------------ */

cuda_result cuLaunchHostFunc(void *stream, cuda_function *function, void *argument)
{
	LOOK_ENTER(cuLaunchHostFunc);
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	LOOK_NEED(function, INVALID_VALUE);
	look_note_work(context, stream);
	return look_enqueued(sim_host(look.sim, context, stream, function, argument));
}

struct callback {
	void (*function)(void *, cuda_result, void *);
	void *stream, *argument;
};

static void call_back(void *argument)
{
	struct callback c = *(struct callback *)argument;
	free(argument);
	c.function(c.stream, TRZ_CUDA_SUCCESS, c.argument);
}

/* A callback, unlike a host function, cannot be captured: it is refused, and invalidates the capture as a wait does. */
cuda_result cuStreamAddCallback(void *stream, void (*function)(void *, cuda_result, void *), void *argument,
                                unsigned flags)
{
	LOOK_ENTER(cuStreamAddCallback);
	LOOK_NEED(function && flags == 0, INVALID_VALUE);
	int capturing = 0;
	cuda_result result = cuStreamIsCapturing(stream, &capturing);
	if (result != TRZ_CUDA_SUCCESS || capturing)
		return capturing ? cuStreamSynchronize(stream) : result;
	struct callback *c = malloc(sizeof *c);
	LOOK_NEED(c, OUT_OF_MEMORY);
	*c = (struct callback){function, stream, argument};
	result = cuLaunchHostFunc(stream, call_back, c);
	if (result != TRZ_CUDA_SUCCESS)
		free(c);
	return result;
}

/* Values of pinned memory, too. Where the device writes it, the host sees it at once. */
static cuda_result write_value(void *stream, cuda_addr address, uint64_t value, unsigned bytes)
{
	LOOK_NEED(trz_lookalike_is_known_to_device(address) && address % bytes == 0, INVALID_VALUE);
	return look_fill(address, value, bytes, 1, stream, false);
}

/* The flag to flush remote writes makes no difference: memory is coherent here. */
static cuda_result wait_value(void *stream, cuda_addr address, uint64_t value, unsigned bytes, unsigned flags)
{
	const unsigned flush = 1u << 30, how = flags & ~flush;
	trz_context context = look_stream_context(stream);
	LOOK_NEED(context, INVALID_CONTEXT);
	LOOK_NEED(how <= SIM_CLEAR_BIT && address % bytes == 0 && trz_lookalike_is_known_to_device(address), INVALID_VALUE);
	look_note_work(context, stream);
	return look_enqueued(sim_wait_value(look.sim, context, stream, address, bytes, value, (sim_comparison)how));
}

cuda_result cuStreamWriteValue32_v2(void *stream, cuda_addr address, uint32_t value, unsigned flags)
{
	LOOK_ENTER(cuStreamWriteValue32_v2);
	(void)flags;
	return write_value(stream, address, value, sizeof value);
}

cuda_result cuStreamWriteValue64_v2(void *stream, cuda_addr address, uint64_t value, unsigned flags)
{
	LOOK_ENTER(cuStreamWriteValue64_v2);
	(void)flags;
	return write_value(stream, address, value, sizeof value);
}

cuda_result cuStreamWaitValue32_v2(void *stream, cuda_addr address, uint32_t value, unsigned flags)
{
	LOOK_ENTER(cuStreamWaitValue32_v2);
	return wait_value(stream, address, value, sizeof value, flags);
}

cuda_result cuStreamWaitValue64_v2(void *stream, cuda_addr address, uint64_t value, unsigned flags)
{
	LOOK_ENTER(cuStreamWaitValue64_v2);
	return wait_value(stream, address, value, sizeof value, flags);
}

cuda_result cuStreamBatchMemOp_v2(void *stream, unsigned count, const struct cuda_mem_op *ops, unsigned flags)
{
	enum { WAIT_32 = 1, WRITE_32, FLUSH, WAIT_64, WRITE_64, BARRIER, MOST = 256 };
	LOOK_ENTER(cuStreamBatchMemOp_v2);
	LOOK_NEED(ops && count <= MOST && flags == 0, INVALID_VALUE);
	cuda_result result = TRZ_CUDA_SUCCESS;
	for (unsigned i = 0; i < count && result == TRZ_CUDA_SUCCESS; i++) {
		const struct cuda_mem_op *op = &ops[i];
		unsigned bytes = op->operation >= WAIT_64 ? sizeof(uint64_t) : sizeof(uint32_t);
		if (op->operation == WAIT_32 || op->operation == WAIT_64)
			result = wait_value(stream, op->address, op->value, bytes, op->flags);
		else if (op->operation == WRITE_32 || op->operation == WRITE_64)
			result = write_value(stream, op->address, op->value, bytes);
		else
			LOOK_NEED(op->operation == FLUSH || op->operation == BARRIER, INVALID_VALUE);
	}
	return result;
}
