/* SPDX-License-Identifier: Apache-2.0
 *
 * The public functions: argument checks and error texts, nothing else.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/api.h"
#include "api/init.h"
#include "device/driver_cuda.h"
#include "error.h"
#include "heap/lookup.h"
#include "heap/poll.h"
#include "heap/pools.h"
#include "heap/streams.h"
#include "observe/check.h"
#include "observe/dump.h"
#include "observe/frames.h"
#include "observe/holders.h"
#include "observe/steps.h"
#include "observe/inspect.h"
#include "observe/notice.h"
#include "observe/nvtx.h"
#include "serve/pool_divert.h"
#include "serve/postmortem.h"
#include "serve/route.h"
#include "serve/serve.h"
#include "serve/small.h"
#include "serve/uses.h"
#include "supply/extend.h"
#include "supply/reclaim.h"
#include "supply/shared.h"
#include "supply/upkeep.h"

#define TEXT(x) #x
#define VERSION_TEXT(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *trz_version(void)
{
	return VERSION_TEXT(TRZ_VERSION_MAJOR, TRZ_VERSION_MINOR, TRZ_VERSION_PATCH);
}

trz_status api_is_null(const char *function, const char *argument)
{
	return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

/* Does all that opening a heap asks of the dynamic linker. */
trz_status trz_driver_cuda(const trz_driver **out)
{
	nvtx_load();
	return driver_cuda_table(out);
}

trz_status trz_open(const trz_open_params *params, trz_heap **out)
{
	static const trz_open_params defaults = {0};
	if (!out)
		return api_is_null("trz_open", "out");
	if (!params)
		params = &defaults;
	const trz_driver *table = params->driver;
	trz_status status = table ? TRZ_OK : trz_driver_cuda(&table);
	if (status != TRZ_OK)
		return status;
	trz_heap *h = aligned_alloc(64, align_up(sizeof *h, 64));
	if (!h)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "the host has no memory left for a heap");
	memset(h, 0, sizeof *h);
	period_init(&h->period);
	status = heap_open(h, params, table);
	if (status == TRZ_OK) {
		status = nvtx_open(h);
		if (status == TRZ_OK && h->config.history)
			status = inspect_history(h, h->config.history);
		if (status == TRZ_OK)
			status = dump_open(h);
		if (status == TRZ_OK)
			status = postmortem_open(h);
		if (status == TRZ_OK)
			status = answer_begin(&h->config);
		if (status != TRZ_OK)
			heap_close(h);
	}
	if (status == TRZ_OK) {
		frames_set(h, NULL, NULL, NULL);
		frames_set_sites(h, NULL, NULL, NULL);
	}
	if (status != TRZ_OK) {
		free(h);
		return status;
	}
	init_add_heap(h);
	*out = h;
	return TRZ_OK;
}

trz_status trz_close(trz_heap *h)
{
	if (!h || heap_is_inherited(h))
		return TRZ_OK; /* its memory is the parent's */
	if (!heap_lock_growth(h))
		return heap_not_permitted("trz_close");
	heap_unlock_growth(h);
	dump_end(h);
	init_remove_heap(h);
	heap_relock_growth(h);
	trz_status status = reclaim_everything(h);
	heap_unlock_growth(h);
	heap_close(h);
	free(h);
	return status == TRZ_OK
	           ? TRZ_OK
	           : trz_fail(status, "closing the heap did not return all memory to the driver: %s",
	                      trz_driver_last_error());
}

trz_status api_check_process(const trz_heap *h)
{
	if (LIKELY(!heap_is_inherited(h)))
		return TRZ_OK;
	return trz_fail(TRZ_ERROR_SHUTDOWN,
	                "the heap of device %d was opened before fork() made this process, where the "
	                "device cannot be used: start workers with another method, or fork before the heap is opened",
	                h->driver.device);
}

trz_status api_check_heap(const char *function, const trz_heap *h)
{
	return h ? api_check_process(h) : api_is_null(function, "heap");
}

trz_status api_dead(const trz_heap *h)
{
	return trz_fail(TRZ_ERROR_CONTEXT_DEAD,
	                "the context of device %d has failed (%s): the process must create a new one", h->driver.device,
	                trz_driver_last_error());
}

trz_status api_check_pool(const trz_heap *h, const struct pool *p)
{
	return !p || p->heap == h ? TRZ_OK
	                          : trz_fail(TRZ_ERROR_WRONG_DEVICE, "pool %p belongs to another heap, not to that of "
	                                     "device %d",
	                                     (const void *)p, h->driver.device);
}

static trz_status check_request(struct request *r)
{
	if (r->size >= SIZE_LIMIT)
		return trz_fail(TRZ_ERROR_SIZE, "%zu bytes requested: no device holds %" PRIu64 " or more", r->size,
		                SIZE_LIMIT);
	if (r->alignment < UNIT && (r->alignment == 0 || is_power_of_two(r->alignment)))
		r->alignment = UNIT;
	if (!is_power_of_two(r->alignment) || r->alignment > GRANULE)
		return trz_fail(TRZ_ERROR_ALIGNMENT, "alignment %zu requested: it must be a power of two up to %d",
		                r->alignment, GRANULE);
	if (r->address % r->alignment)
		return trz_fail(TRZ_ERROR_ALIGNMENT, "address %p requested: it must be a multiple of %zu", (void *)r->address,
		                r->alignment);
	return TRZ_OK;
}

/* Begins an operation that may return memory to the driver: gathers its stack, if stacks are on, then takes the growth
 * lock. false: it cannot, in a host function. */
static bool enter_growth(trz_heap *h, uint64_t *outer)
{
	*outer = frames_enter(h);
	if (heap_lock_growth(h))
		return true;
	frames_leave(*outer);
	return false;
}

static void leave_growth(trz_heap *h, uint64_t outer)
{
	heap_unlock_growth(h);
	frames_leave(outer);
}

static COLD trz_status captured_without_pool(trz_stream stream)
{
	return trz_fail(TRZ_ERROR_CAPTURE,
	                "stream %p is being captured but no pool takes its allocations: call trz_pool_begin_capture before "
	                "the capture, or allocate before it begins",
	                stream);
}

static COLD trz_status not_permitted(const trz_heap *h, size_t size)
{
	return trz_fail(TRZ_ERROR_NOT_PERMITTED,
	                "%zu bytes requested on device %d in a host function of a stream, where CUDA permits no call: "
	                "allocate before the function is launched, or after it has returned",
	                size, h->driver.device);
}

static COLD trz_status not_there(const struct request *r)
{
	return trz_fail(TRZ_ERROR_NO_ROOM, "%zu bytes requested at %p: part of that range is not free for stream %p",
	                r->size, (void *)r->address, r->stream);
}

/* Sets the text of a failed request, unless the heap ran out of something and has set it; by default the driver's text
 * is the reason. */
static COLD trz_status alloc_failed(trz_heap *h, const struct request *r, trz_status status)
{
	switch (status) {
	case TRZ_ERROR_CONTEXT_DEAD:
		return api_dead(h);
	case TRZ_ERROR_NOT_PERMITTED:
		return not_permitted(h, r->size);
	case TRZ_ERROR_CAPTURE:
		return captured_without_pool(r->stream);
	case TRZ_ERROR_NO_ROOM:
		return not_there(r);
	case TRZ_ERROR_OUT_OF_MEMORY:
	case TRZ_ERROR_LIMIT:
	case TRZ_ERROR_HOST_MEMORY:
	case TRZ_ERROR_ADDRESS_SPACE:
		return status;
	default:
		return trz_fail(status, "%zu bytes requested on stream %p of device %d: %s", r->size, r->stream,
		                h->driver.device, trz_driver_last_error());
	}
}

static trz_status alloc_checked(trz_heap *h, struct request *r, void **out)
{
	struct stream *s;
	trz_addr address;
	trz_status status = check_request(r);
	if (status != TRZ_OK || r->size == 0)
		return status;
	if (driver_is_dead(&h->driver))
		return api_dead(h);
	struct asked here;
	const struct asked *asked = r->asked ? r->asked : &here;
	if (!r->asked)
		status = heap_ask_stream(h, r->stream, &here);
	if (status == TRZ_OK)
		status = heap_stream_asked(h, r->stream, asked, &s);
	if (status != TRZ_OK)
		return status;
	status = route_alloc(h, r, s, asked, &address);
	heap_leave_stream(s, r->stream);
	if (UNLIKELY(status != TRZ_OK))
		return alloc_failed(h, r, status);
	*out = (void *)address;
	return TRZ_OK;
}

trz_status api_alloc(trz_heap *h, struct request *r, void **out)
{
	*out = NULL;
	trz_status status = api_check_process(h);
	if (status != TRZ_OK)
		return status;
	uint64_t outer_site = api_enter(r->caller), outer = frames_enter(h);
	status = alloc_checked(h, r, out);
	frames_leave(outer);
	api_leave(outer_site);
	if (status == TRZ_OK && h->annotates && *out)
		nvtx_allocated(h, (trz_addr)*out);
	return status;
}

static NOINLINE trz_status alloc_any(trz_heap *h, size_t size, size_t alignment, trz_stream stream, void **out,
                                     const void *caller)
{
	if (out)
		*out = NULL;
	if (!h || !out)
		return api_is_null("trz_alloc", h ? "out" : "heap");
	struct request r = {.size = size, .alignment = alignment, .stream = stream, .caller = caller};
	return api_alloc(h, &r, out);
}

/* A small request on a stream other than the legacy default one. */
static NOINLINE trz_status alloc_slot_on(trz_heap *h, size_t size, trz_stream stream, void **out, const void *caller)
{
	struct asked asked;
	struct request r = {.size = size, .alignment = UNIT, .stream = stream, .caller = caller};
	trz_addr address;
	trz_status status = route_slot(h, &r, &asked, &address);
	*out = (void *)address;
	if (LIKELY(address))
		return TRZ_OK;
	if (status != TRZ_OK)
		return status;
	r.asked = &asked;
	return api_alloc(h, &r, out);
}

/* A larger request on the legacy default stream, `s`, served by one of its free blocks if that will do. */
static NOINLINE trz_status alloc_block(trz_heap *h, size_t size, struct stream *s, trz_stream stream, void **out,
                                       const void *caller)
{
	uint64_t outer = api_enter(caller);
	*out = (void *)serve_block(h, &s->lane, size);
	api_leave(outer);
	return LIKELY(*out) ? TRZ_OK : alloc_any(h, size, 0, stream, out, caller);
}

/* A small request for which there is more to do than to take a slot at once. */
static NOINLINE trz_status alloc_slot(trz_heap *h, size_t size, trz_stream stream, void **out, const void *caller)
{
	if (!is_legacy(stream))
		return alloc_slot_on(h, size, stream, out, caller);
	struct stream *s = heap_known_stream(h, stream);
	*out = LIKELY(s) ? (void *)small_alloc(h, &s->lane, size) : NULL;
	return LIKELY(*out) ? TRZ_OK : alloc_any(h, size, 0, stream, out, caller);
}

/* Whether a request asks for nothing unusual, of a heap in which nothing unusual is on. */
static inline bool is_plain(trz_heap *h, size_t size, size_t alignment, void *const *out)
{
	return h && out && size && !alignment && !driver_is_dead(&h->driver) && !pool_diverting(h) && !frames_or_tool(h);
}

/* Every allocation comes through here; all but those that take a slot at once go on to another function. */
static FLAT NOINLINE trz_status alloc_from(trz_heap *h, size_t size, size_t alignment, trz_stream stream, void **out,
                                           const void *caller)
{
	if (UNLIKELY(!is_plain(h, size, alignment, out)))
		return alloc_any(h, size, alignment, stream, out, caller);
	struct stream *s = heap_known_stream(h, stream);
	if (size > h->config.small_limit)
		return LIKELY(s) ? alloc_block(h, size, s, stream, out, caller) : alloc_any(h, size, 0, stream, out, caller);
	trz_addr address = LIKELY(s) ? small_try(s, size) : 0;
	if (UNLIKELY(!address))
		return alloc_slot(h, size, stream, out, caller);
	*out = (void *)address;
	return TRZ_OK;
}

trz_status trz_alloc(trz_heap *h, size_t size, size_t alignment, trz_stream stream, void **out)
{
	return alloc_from(h, size, alignment, stream, out, API_CALLER);
}

trz_status trz_alloc_from(trz_heap *h, size_t size, size_t alignment, trz_stream stream, const void *caller, void **out)
{
	return alloc_from(h, size, alignment, stream, out, caller ? caller : API_CALLER);
}

/* Names the heap that an unknown pointer really belongs to, if there is one. */
COLD trz_status api_free_failed(trz_heap *h, void *ptr, trz_status status)
{
	int device;
	if (status == TRZ_ERROR_UNKNOWN_POINTER && init_find_owner(h, ptr, &device))
		return trz_fail(TRZ_ERROR_WRONG_DEVICE, "%p belongs to another heap, of device %d: free it there", ptr, device);
	return status;
}

static COLD trz_status free_watched(trz_heap *h, const _Atomic pagemap_entry *at, void *ptr, struct stream *on)
{
	if (heap_is_inherited(h))
		return TRZ_OK;
	uint64_t outer = frames_enter(h);
	if (h->annotates)
		nvtx_freeing(h, (trz_addr)ptr);
	trz_status status = serve_free(h, at, (trz_addr)ptr, on);
	frames_leave(outer);
	return status;
}

/* Any free but that of a slot that goes back at once. `at`: where the pointer's entry is; NULL: it has none. */
static NOINLINE trz_status free_any(trz_heap *h, const _Atomic pagemap_entry *at, void *ptr, struct stream *on)
{
	if (!h)
		return api_is_null("trz_free", "heap");
	if (!ptr)
		return TRZ_OK;
	trz_status status = UNLIKELY(frames_or_tool(h)) ? free_watched(h, at, ptr, on)
	                                                : serve_free(h, at, (trz_addr)ptr, on);
	return LIKELY(status == TRZ_OK) ? status : api_free_failed(h, ptr, status);
}

FLAT trz_status trz_free(trz_heap *h, void *ptr)
{
	const _Atomic pagemap_entry *at = LIKELY(h) ? pagemap_slot(&h->pagemap, (trz_addr)ptr) : NULL;
	if (LIKELY(at && !frames_or_tool(h)) && LIKELY(small_free(at, (trz_addr)ptr, NULL, false)))
		return TRZ_OK;
	return free_any(h, at, ptr, NULL);
}

trz_status trz_free_on(trz_heap *h, void *ptr, trz_stream stream)
{
	if (!h)
		return api_is_null("trz_free_on", "heap");
	if (!ptr || heap_is_inherited(h))
		return TRZ_OK;
	struct stream *on = NULL;
	struct capture capture = {.status = TRZ_CAPTURE_NONE};
	trz_status status = driver_is_dead(&h->driver) ? TRZ_OK : heap_stream_of_freer(h, stream, &on, &capture);
	if (status == TRZ_ERROR_CONTEXT_DEAD) {
		on = NULL;
		status = TRZ_OK;  /* no order is left */
	}
	if (on && capture.status != TRZ_CAPTURE_NONE && !uses_record_own(h, (trz_addr)ptr, capture.id))
		status = meta_exhausted();
	if (status == TRZ_OK)
		status = free_any(h, pagemap_slot(&h->pagemap, (trz_addr)ptr), ptr, on);
	if (on)
		heap_leave_stream(on, stream);
	return status;
}

trz_status trz_record_stream(trz_heap *h, void *ptr, trz_stream stream)
{
	if (!h)
		return api_is_null("trz_record_stream", "heap");
	struct stream *s;
	if (heap_is_inherited(h))
		return TRZ_OK;
	trz_status status = ptr ? heap_stream_of_user(h, stream, &s) : TRZ_OK;
	if (status != TRZ_OK || !ptr)
		return status;
	bool noted = uses_record(h, (trz_addr)ptr, s);
	heap_leave_stream(s, stream);
	return noted ? TRZ_OK : meta_exhausted();
}

trz_status trz_stream_retire(trz_heap *h, trz_stream stream)
{
	trz_status usable = api_check_heap("trz_stream_retire", h);
	if (usable != TRZ_OK)
		return usable;
	if (is_legacy(stream))
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "the legacy default stream cannot be retired: it lives as long "
		                "as its context");
	if (!heap_lock_growth(h))
		return heap_not_permitted("trz_stream_retire");
	trz_status status = heap_retire_stream(h, stream);
	heap_unlock_growth(h);
	if (status == TRZ_ERROR_CAPTURE)
		return trz_fail(status, "stream %p is being captured: end the capture, then retire it", stream);
	return status == TRZ_OK ? TRZ_OK
	                        : trz_fail(status, "stream %p cannot be retired: %s", stream, trz_driver_last_error());
}

trz_status trz_largest_block(trz_heap *h, trz_stream stream, size_t *size)
{
	if (!h || !size)
		return api_is_null("trz_largest_block", h ? "size" : "heap");
	trz_status usable = api_check_process(h);
	if (usable != TRZ_OK)
		return usable;
	if (driver_is_dead(&h->driver))
		return api_dead(h);
	struct stream *s;
	trz_status status = heap_stream(h, stream, &s);
	if (status != TRZ_OK)
		return status;
	uint64_t outer;
	if (!enter_growth(h, &outer)) {
		heap_leave_stream(s, stream);
		return heap_not_permitted("trz_largest_block");
	}
	uint64_t bytes = extend_largest(h, &s->lane);
	leave_growth(h, outer);
	heap_leave_stream(s, stream);
	if (driver_is_dead(&h->driver))
		return api_dead(h);
	*size = bytes;
	return TRZ_OK;
}

trz_status trz_query(trz_heap *h, const void *ptr, trz_pointer_info *out)
{
	if (!h || !out)
		return api_is_null("trz_query", h ? "out" : "heap");
	trz_status usable = api_check_process(h);
	if (usable != TRZ_OK)
		return usable;
	trz_pointer_info info;
	if (!uses_query(h, (trz_addr)ptr, &info))
		return trz_fail(TRZ_ERROR_UNKNOWN_POINTER, "%p is not inside a live allocation of the heap of device %d", ptr,
		                h->driver.device);
	*out = info;
	return TRZ_OK;
}

trz_status trz_query_mapping(trz_heap *h, const void *address, trz_segment_info *out)
{
	if (!h || !out)
		return api_is_null("trz_query_mapping", h ? "out" : "heap");
	trz_status usable = api_check_process(h);
	if (usable != TRZ_OK)
		return usable;
	return inspect_mapping(h, (trz_addr)address, out)
	           ? TRZ_OK
	           : trz_fail(TRZ_ERROR_NOT_FOUND, "the heap of device %d has nothing mapped at %p", h->driver.device,
	                      address);
}

trz_status trz_trim(trz_heap *h, size_t keep, size_t *released)
{
	uint64_t bytes = 0, outer;
	trz_status usable = api_check_heap("trz_trim", h);
	if (usable != TRZ_OK)
		return usable;
	if (released)
		*released = 0;
	if (driver_is_dead(&h->driver))
		return api_dead(h);
	if (!enter_growth(h, &outer))
		return heap_not_permitted("trz_trim");
	trz_status status = reclaim_trim(h, keep, &bytes);
	leave_growth(h, outer);
	CHECK_SLOW_PATH(h);
	if (released)
		*released = bytes;
	if (status == TRZ_ERROR_CONTEXT_DEAD)
		return api_dead(h);
	return status == TRZ_OK ? TRZ_OK
	                        : trz_fail(status, "trim of device %d returned %" PRIu64 " bytes, then failed: %s",
	                                   h->driver.device, bytes, trz_driver_last_error());
}

trz_status trz_poll(trz_heap *h)
{
	uint64_t outer;
	trz_status usable = api_check_heap("trz_poll", h);
	if (usable != TRZ_OK)
		return usable;
	if (driver_is_dead(&h->driver))
		return api_dead(h);
	if (!enter_growth(h, &outer))
		return heap_not_permitted("trz_poll");
	upkeep(h);
	leave_growth(h, outer);
	CHECK_SLOW_PATH(h);
	if (steps_are_watched(h))
		steps_warn_of_state(h, false);
	return driver_is_dead(&h->driver) ? api_dead(h) : TRZ_OK;
}

trz_status trz_set_limit(trz_heap *h, size_t limit)
{
	trz_status usable = api_check_heap("trz_set_limit", h);
	if (usable != TRZ_OK)
		return usable;
	atomic_store_explicit(&h->limit, limit, memory_order_relaxed);
	return TRZ_OK;
}

trz_status trz_get_limit(trz_heap *h, size_t *limit)
{
	if (!h || !limit)
		return api_is_null("trz_get_limit", h ? "limit" : "heap");
	*limit = atomic_load_explicit(&h->limit, memory_order_relaxed);
	return TRZ_OK;
}

trz_status trz_last_oom(trz_heap *h, trz_oom_info *info)
{
	if (!h || !info)
		return api_is_null("trz_last_oom", h ? "info" : "heap");
	trz_status usable = api_check_process(h);
	if (usable != TRZ_OK)
		return usable;
	pthread_mutex_lock(&h->oom_lock);
	trz_oom_info last = h->last_oom;
	pthread_mutex_unlock(&h->oom_lock);
	if (!last.requested)
		return trz_fail(TRZ_ERROR_NOT_FOUND, "no allocation of this heap has run out of memory");
	*info = last;
	return TRZ_OK;
}

trz_status trz_set_oom_callback(trz_heap *h, trz_oom_callback *callback, void *user)
{
	trz_status usable = api_check_heap("trz_set_oom_callback", h);
	if (usable != TRZ_OK)
		return usable;
	pthread_mutex_lock(&h->oom_lock);
	h->oom_callback = callback;
	h->oom_user = user;
	pthread_mutex_unlock(&h->oom_lock);
	return TRZ_OK;
}

trz_status trz_set_shared_limit(trz_shared_limit_callback *callback, void *user)
{
	shared_set(callback, user);
	return TRZ_OK;
}

trz_status trz_set_map_callback(trz_heap *h, trz_map_callback *callback, void *user)
{
	trz_status usable = api_check_heap("trz_set_map_callback", h);
	if (usable != TRZ_OK)
		return usable;
	if (!heap_lock_growth(h))
		return heap_not_permitted("trz_set_map_callback");
	notice_set(h, callback, user);
	heap_unlock_growth(h);
	return TRZ_OK;
}

trz_status trz_stats(trz_heap *h, trz_stat_value *values, size_t capacity, size_t *count)
{
	if (!h)
		return api_is_null("trz_stats", "heap");
	inspect_stats(h, values, capacity, count);
	return TRZ_OK;
}

trz_status trz_stat(trz_heap *h, const char *name, uint64_t *value)
{
	trz_stat_value found;
	if (!h || !name || !value)
		return api_is_null("trz_stat", !h ? "heap" : !name ? "name" : "value");
	if (!inspect_stat(h, name, &found))
		return trz_fail(TRZ_ERROR_NOT_FOUND, "unknown statistic \"%s\"; trz_stats lists all of them", name);
	if (strcmp(found.unit, "ratio") == 0)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "\"%s\" is a ratio: read it with trz_stats", name);
	*value = found.value;
	return TRZ_OK;
}

trz_status trz_reset_peaks(trz_heap *h)
{
	trz_status usable = api_check_heap("trz_reset_peaks", h);
	if (usable != TRZ_OK)
		return usable;
	inspect_reset_peaks(h);
	return TRZ_OK;
}

enum { HISTORY_MOST = 1 << 24 };  /* as for the option history */

trz_status trz_history_start(trz_heap *h, size_t events)
{
	trz_status usable = api_check_heap("trz_history_start", h);
	if (usable != TRZ_OK)
		return usable;
	if (events == 0 || events > HISTORY_MOST)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "a history of %zu events requested: 1 to %d are possible", events,
		                HISTORY_MOST);
	return inspect_history(h, events);
}

trz_status trz_history_stop(trz_heap *h)
{
	trz_status usable = api_check_heap("trz_history_stop", h);
	if (usable != TRZ_OK)
		return usable;
	return inspect_history(h, 0);
}

trz_status trz_set_frame_callback(trz_heap *h, trz_frame_callback *callback, trz_frame_text_callback *text, void *user)
{
	trz_status usable = api_check_heap("trz_set_frame_callback", h);
	if (usable != TRZ_OK)
		return usable;
	frames_set(h, callback, text, user);
	return TRZ_OK;
}

trz_status trz_set_site_callback(trz_heap *h, trz_frame_callback *callback, trz_frame_text_callback *text, void *user)
{
	trz_status usable = api_check_heap("trz_set_site_callback", h);
	if (usable != TRZ_OK)
		return usable;
	frames_set_sites(h, callback, text, user);
	return TRZ_OK;
}

trz_status trz_holders(trz_heap *h, trz_holder_kind by, trz_holder *holders, size_t capacity, size_t *count)
{
	trz_status usable = api_check_heap("trz_holders", h);
	if (usable != TRZ_OK)
		return usable;
	if (by < TRZ_BY_SITE || by > TRZ_BY_CATEGORY)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "trz_holders: %d is none of TRZ_BY_SITE, TRZ_BY_TAG and "
		                "TRZ_BY_CATEGORY", (int)by);
	size_t all = holders_read(h, by, holders, holders ? capacity : 0);
	if (count)
		*count = all;
	return TRZ_OK;
}

trz_status trz_site_frames(trz_heap *h, uint64_t stack, trz_frame *frames, size_t capacity, size_t *count)
{
	if (!h || !count)
		return api_is_null("trz_site_frames", h ? "count" : "heap");
	trz_status usable = api_check_process(h);
	if (usable != TRZ_OK)
		return usable;
	*count = frames_of_site(h, stack, frames, frames ? capacity : 0);
	return TRZ_OK;
}

trz_status trz_set_category(trz_category category)
{
	if ((unsigned)category >= SITES_CATEGORIES)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "%d is not a trz_category", (int)category);
	heap_thread.category = category;
	heap_thread.marked = heap_thread.tag || heap_thread.category;
	return TRZ_OK;
}

trz_status trz_categorize(trz_heap *h, void *ptr, trz_category category)
{
	trz_status usable = api_check_heap("trz_categorize", h);
	if (usable != TRZ_OK || !ptr)
		return usable;
	if ((unsigned)category >= SITES_CATEGORIES)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "%d is not a trz_category", (int)category);
	return holders_categorize(h, (trz_addr)ptr, category)
	           ? TRZ_OK
	           : trz_fail(TRZ_ERROR_UNKNOWN_POINTER, "%p is not the first byte of a live allocation of the heap of "
	                      "device %d", ptr, h->driver.device);
}

trz_status trz_report(trz_heap *h, unsigned flags, trz_report_callback *write, void *user)
{
	if (!h || !write)
		return api_is_null("trz_report", h ? "write" : "heap");
	trz_status usable = api_check_process(h);
	if (usable != TRZ_OK)
		return usable;
	if (flags & ~(unsigned)(TRZ_REPORT_FAILURE | TRZ_REPORT_JSON))
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "trz_report: unknown flags in %#x", flags);
	return postmortem_report(h, flags, write, user);
}

void trz_hold_reports(bool hold)
{
	heap_thread.holds_reports = hold;
}

void trz_print_failure(trz_heap *h)
{
	if (h && !heap_is_inherited(h))
		postmortem_print(h);
}

void trz_set_tag(const char *tag)
{
	heap_thread.tag = tag && *tag ? tag : NULL;
	heap_thread.tag_heap = 0;
	heap_thread.marked = heap_thread.tag || heap_thread.category;
}

trz_status trz_snapshot(trz_heap *h, const char *path)
{
	if (!h || !path)
		return api_is_null("trz_snapshot", h ? "path" : "heap");
	trz_status usable = api_check_process(h);
	if (usable != TRZ_OK)
		return usable;
	if (!*path)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "trz_snapshot: the path is empty: name a file");
	return inspect_snapshot(h, path);
}

trz_status trz_walk(trz_heap *h, const trz_visitor *visitor)
{
	if (!h || !visitor)
		return api_is_null("trz_walk", h ? "visitor" : "heap");
	trz_status usable = api_check_process(h);
	if (usable != TRZ_OK)
		return usable;
	return inspect_walk(h, visitor);
}

trz_status trz_check(trz_heap *h)
{
	trz_status usable = api_check_heap("trz_check", h);
	if (usable != TRZ_OK)
		return usable;
	return check_heap(h);
}
