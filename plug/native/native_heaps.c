/* SPDX-License-Identifier: Apache-2.0
 *
 * The heaps of the process: opened by the first request of a context, closed when the context is about to end.
 *
 * A heap's table is the driver's, except for its host stream, about which the driver need not be asked: its id is
 * known, and it is never captured. A wait of that stream is noted for native_settle.
 */
#include "native.h"

#include <pthread.h>
#include <stdio.h>

enum { STREAM_NON_BLOCKING = 1 };

/* Stands for the context in the place of a heap that is being closed. */
#define ENDING ((void *)1)

static struct native_heap places[NATIVE_HEAPS];
static atomic_uint place_count;   /* places that have ever been used; the others are free */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* guards changes of both, and `endings` */
static unsigned endings;          /* contexts that are about to end: meanwhile no heap is opened */
static atomic_bool stopped;

static const trz_driver *cuda;    /* the driver's table */
static trz_driver table;          /* the heaps' */
static _Thread_local bool waited; /* the thread has made a host stream wait */

bool (*native_may_open)(void);
const char *native_config;
void (*native_on_open)(struct native_heap *heap);

static unsigned used_places(void)
{
	return atomic_load_explicit(&place_count, memory_order_acquire);
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static const struct native_heap *heap_of_host(const void *stream)
{
	for (unsigned i = 0; stream && i < used_places(); i++)
		if (atomic_load_explicit(&places[i].host, memory_order_relaxed) == stream)
			return &places[i];
	return NULL;
}

static trz_status ask_id(void *self, trz_context context, trz_stream stream, uint64_t *id)
{
	const struct native_heap *h = heap_of_host(stream);
	if (!h)
		return cuda->stream_id(self, context, stream, id);
	*id = h->host_id;
	return TRZ_OK;
}

static trz_status ask_capture(void *self, trz_context context, trz_stream stream, trz_capture_status *status,
                              uint64_t *id)
{
	if (!heap_of_host(stream))
		return cuda->stream_capture(self, context, stream, status, id);
	*status = TRZ_CAPTURE_NONE;
	*id = 0;
	return TRZ_OK;
}

static trz_status wait_for_event(void *self, trz_context context, trz_stream stream, trz_event event)
{
	trz_status status = cuda->stream_wait(self, context, stream, event);
	if (status == TRZ_OK && heap_of_host(stream))
		waited = true;
	return status;
}

static bool make_table(void)
{
	if (cuda)
		return true;
	if (trz_driver_cuda(&cuda) != TRZ_OK)
		return false;
	table = *cuda;
	table.stream_id = ask_id;
	table.stream_capture = ask_capture;
	table.stream_wait = wait_for_event;
	return true;
}

const trz_driver *native_table(void)
{
	return cuda;
}

bool native_settle(struct native_heap *heap)
{
	if (!waited)
		return true;
	waited = false;
	return native_driver.cuStreamSynchronize(heap->host) == TRZ_CUDA_SUCCESS;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static void note_fork(void)
{
	native_stop();
}

void native_stop(void)
{
	atomic_store(&stopped, true);
}

static bool is_off(void)
{
	return atomic_load_explicit(&stopped, memory_order_relaxed) || !native_load();
}

static bool is_primary(int device, const void *context)
{
	unsigned flags;
	int active = 0;
	void *primary = NULL;
	if (native_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != TRZ_CUDA_SUCCESS || !active ||
	    native_driver.cuDevicePrimaryCtxRetain(&primary, device) != TRZ_CUDA_SUCCESS)
		return false;
	native_driver.cuDevicePrimaryCtxRelease_v2(device);
	return primary == context;
}

/* If the heap cannot be opened, the driver serves the program, which must go on; but whoever asked for terrazzo wants
 * to know. */
static bool open_or_tell(const trz_open_params *params, trz_heap **heap)
{
	static bool told;  /* guarded by `lock` */
	if (trz_open(params, heap) == TRZ_OK)
		return true;
	if (!told)
		fprintf(stderr, "terrazzo: device %d has no heap, so the driver serves its allocations: %s\n", params->device,
		        trz_last_error());
	told = true;
	return false;
}

/* The context of a stream; *green: the green context, a share of the device, whose stream it is, or NULL. What is
 * allocated there is the primary context's, which is the stream's context then. */
static cuda_result context_of(void *stream, void **context, void **green)
{
	*green = NULL;
	return native_driver.cuStreamGetCtx_v2 ? native_driver.cuStreamGetCtx_v2(stream, context, green)
	                                       : native_driver.cuStreamGetCtx(stream, context);
}

static bool is_green(void *stream)
{
	void *context, *green;
	return context_of(stream, &context, &green) == TRZ_CUDA_SUCCESS && green;
}

/* Makes the host stream the first that the heap knows, by a question about it. The heap's entry of a stream that has
 * ended serves another one, and with it what is still allocated there: that would pass for memory of cuMemAlloc if the
 * host stream came later (native_pool_give). */
static void introduce_host(struct native_heap *h)
{
	size_t largest;
	trz_largest_block(h->heap, h->host, &largest);
}

/* Opens a heap, but not in a green context, which may end while its memory lives. It needs its host stream before its
 * first allocation; none of the calls may disturb a capture of this thread. */
static bool open_heap(struct native_heap *h, void *context)
{
	trz_capture_mode mode = TRZ_CAPTURE_RELAXED;
	cuda_device device;
	void *host = NULL;
	if (!make_table() || native_driver.cuCtxGetDevice(&device) != TRZ_CUDA_SUCCESS ||
	    cuda->capture_mode(cuda->self, &mode) != TRZ_OK)
		return false;
	const trz_open_params params = {.device = device, .context = context, .config = native_config,
	                                .driver = &table};
	h->device = device;
	h->primary = is_primary(device, context);
	native_driver.cuDeviceGetDefaultMemPool(&h->pool, device);
	bool opened = native_driver.cuStreamCreate(&host, STREAM_NON_BLOCKING) == TRZ_CUDA_SUCCESS && !is_green(host) &&
	              cuda->stream_id(cuda->self, context, host, &h->host_id) == TRZ_OK &&
	              open_or_tell(&params, &h->heap);
	if (opened) {
		atomic_store(&h->host, host);
		introduce_host(h);
	} else if (host) {
		native_driver.cuStreamDestroy_v2(host);
	}
	cuda->capture_mode(cuda->self, &mode);
	return opened;
}

static struct native_heap *find(const void *context)
{
	for (unsigned i = 0; i < used_places(); i++)
		if (atomic_load_explicit(&places[i].context, memory_order_acquire) == context)
			return &places[i];
	return NULL;
}

static struct native_heap *free_place(void)
{
	unsigned i = 0;
	while (i < used_places() && atomic_load(&places[i].context))
		i++;
	return i < NATIVE_HEAPS ? &places[i] : NULL;
}

static void begin(void)
{
	static bool begun;
	if (begun)
		return;
	begun = true;
	pthread_atfork(NULL, NULL, note_fork);
	if (native_may_open && !native_may_open())
		native_stop();
}

/* Clears a place, except its host stream, which the heap before has given up. */
static void clear(struct native_heap *h)
{
	h->heap = NULL;
	h->host_id = 0;
	h->pool = NULL;
	atomic_store(&h->sync_memops, false);
	atomic_store(&h->async, 0);
	atomic_store(&h->async_most, 0);
	atomic_store(&h->used_before, 0);
	atomic_store(&h->reserved_before, 0);
}

/* ---- devices ---------------------------------------------------------------------------------------------------- */

static _Atomic(uint64_t) used_devices;
atomic_bool native_devices_apart;

/* From here on the driver allocates what all devices are to reach. */
static void keep_apart(void)
{
	atomic_store(&native_devices_apart, true);
	atomic_store(&native_options.classic, true);
}

/* Plain allocations of the driver's, without virtual memory management, it copies between all devices itself. */
static void open_to(struct native_heap *h, void *device)
{
	trz_status status = h->device == *(const int *)device ? TRZ_OK
	                                                       : trz_enable_peer(h->heap, *(const int *)device, true);
	if (status != TRZ_OK && status != TRZ_ERROR_NOT_SUPPORTED)
		keep_apart();
}

static bool reach_each_other(int a, int b)
{
	int forth = 0, back = 0;
	return native_driver.cuDeviceCanAccessPeer(&forth, a, b) == TRZ_CUDA_SUCCESS && forth &&
	       native_driver.cuDeviceCanAccessPeer(&back, b, a) == TRZ_CUDA_SUCCESS && back;
}

void native_use_device(int device)
{
	if (device < 0 || device >= NATIVE_DEVICES)
		return;
	uint64_t before = atomic_fetch_or(&used_devices, 1ull << device);
	if (before == 0 || before >> device & 1 || is_off())
		return;
	for (int other = 0; other < NATIVE_DEVICES; other++)
		if (before >> other & 1 && !reach_each_other(device, other))
			keep_apart();
	native_enter();
	native_each(open_to, &device);
	native_leave();
}

/* Opens a new heap to all devices that the process uses. */
static void open_to_used(struct native_heap *h)
{
	native_use_device(h->device);
	uint64_t used = atomic_load(&used_devices);
	for (int device = 0; h->heap && device < NATIVE_DEVICES; device++)
		if (used >> device & 1)
			open_to(h, &device);
}

/* ---- finding one ------------------------------------------------------------------------------------------------ */

/* Adds the heap of `context`, which is current. A context whose heap cannot be opened gets a place without a heap. The
 * driver's table is asked for before the lock is taken, since that asks the dynamic linker (docs/lock-order.md). */
static struct native_heap *add(void *context)
{
	const trz_driver *loaded;
	bool made = false;
	trz_driver_cuda(&loaded);
	pthread_mutex_lock(&lock);
	begin();
	struct native_heap *h = find(context);
	if (!h && !endings && !atomic_load(&stopped) && (h = free_place())) {
		clear(h);
		h->own = context;
		made = open_heap(h, context);
		atomic_store_explicit(&h->context, context, memory_order_release);
		if (h == &places[used_places()])
			atomic_fetch_add(&place_count, 1);
	}
	pthread_mutex_unlock(&lock);
	if (made) {
		open_to_used(h);
		if (native_on_open)
			native_on_open(h);
	}
	return h;
}

static struct native_heap *heap_of(void *context)
{
	struct native_heap *h = find(context);
	if (!h)
		h = add(context);
	return h && h->heap ? h : NULL;
}

struct native_heap *native_current(void)
{
	void *context = NULL;
	if (is_off() || native_driver.cuCtxGetCurrent(&context) != TRZ_CUDA_SUCCESS || !context)
		return NULL;
	return heap_of(context);
}

/* A heap can be opened only while its context is current. */
struct native_heap *native_of_context(void *context)
{
	void *popped;
	if (is_off())
		return NULL;
	struct native_heap *h = find(context);
	if (!h && native_driver.cuCtxPushCurrent_v2(context) == TRZ_CUDA_SUCCESS) {
		h = add(context);
		native_driver.cuCtxPopCurrent_v2(&popped);
	}
	return h && h->heap ? h : NULL;
}

struct native_heap *native_of_stream(void *stream)
{
	void *context = NULL, *green;
	if ((uintptr_t)stream <= 2)
		return native_current();
	if (is_off() || context_of(stream, &context, &green) != TRZ_CUDA_SUCCESS || !context)
		return NULL;
	return native_of_context(context);
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static void trim(struct native_heap *heap, void *sum)
{
	size_t released = 0;
	trz_trim(heap->heap, 0, &released);
	*(size_t *)sum += released;
}

bool native_make_room(void)
{
	size_t sum = 0;
	native_enter();
	native_each(trim, &sum);
	native_leave();
	return sum > 0;
}

static bool is_open(const struct native_heap *h)
{
	const void *context = atomic_load_explicit(&h->context, memory_order_acquire);
	return context && context != ENDING && h->heap;
}

struct native_heap *native_owner(cuda_addr address)
{
	struct native_heap *found;
	trz_pointer_info info;
	unsigned count = used_places();
	if (count == 0 || is_off())
		return NULL;
	if (count == 1)
		return is_open(&places[0]) ? &places[0] : NULL;
	for (unsigned i = 0; i < count; i++)
		if (is_open(&places[i]) &&
		    trz_query(places[i].heap, (const void *)address, &info) == TRZ_OK)
			return &places[i];
	return native_look(address, &found, &info) == NATIVE_ELSEWHERE ? NULL : found;
}

enum native_place native_look(cuda_addr address, struct native_heap **heap, trz_pointer_info *info)
{
	trz_segment_info segment;
	for (unsigned i = 0; i < used_places() && !is_off(); i++) {
		struct native_heap *h = &places[i];
		if (!is_open(h))
			continue;
		*heap = h;
		if (trz_query(h->heap, (const void *)address, info) == TRZ_OK)
			return NATIVE_LIVE;
		if (trz_query_mapping(h->heap, (const void *)address, &segment) == TRZ_OK)
			return NATIVE_DEAD;
	}
	return NATIVE_ELSEWHERE;
}

void native_each(void (*look)(struct native_heap *heap, void *argument), void *argument)
{
	for (unsigned i = 0; i < used_places() && !is_off(); i++)
		if (is_open(&places[i]))
			look(&places[i], argument);
}

/* From here on no thread finds the heap. false: another thread is ending it. */
static bool take_away(struct native_heap *h, void *context)
{
	return context && context != ENDING && atomic_compare_exchange_strong(&h->context, &context, ENDING);
}

/* Waits for the work of a context. The driver ends a context's work together with its memory; a heap's memory goes
 * before that, so nothing may still run. */
static void wait_for_work(const struct native_heap *h)
{
	void *popped;
	if (native_driver.cuCtxPushCurrent_v2(h->own) != TRZ_CUDA_SUCCESS)
		return;
	native_driver.cuCtxSynchronize();
	native_driver.cuCtxPopCurrent_v2(&popped);
}

/* Closes a heap once the threads that have found it have left it. They may have to open another heap meanwhile, so the
 * lock is not held. */
static void end(struct native_heap *h)
{
	native_wait_for_readers();
	native_late_forget(h);
	if (h->heap) {
		wait_for_work(h);
		trz_close(h->heap);
	}
	h->heap = NULL;
	void *host = atomic_exchange(&h->host, NULL);  /* before another stream can get the handle */
	if (host)
		native_driver.cuStreamDestroy_v2(host);
	atomic_store(&h->context, NULL);
}

/* Where the driver serves everything there is nothing to wait for; in the child of a fork the lock may be its parent's
 * for ever. */
static void count_endings(unsigned more)
{
	if (atomic_load(&stopped))
		return;
	pthread_mutex_lock(&lock);
	endings += more;
	pthread_mutex_unlock(&lock);
}

/* A heap that another thread is opening is there when this returns. */
static void begin_ending(void)
{
	count_endings(1);
}

void native_ended(void)
{
	count_endings(-1u);
}

void native_end_context(void *context)
{
	begin_ending();
	struct native_heap *h = is_off() || !context ? NULL : find(context);
	if (h && take_away(h, context))
		end(h);
}

void native_end_primary(int device)
{
	begin_ending();
	for (unsigned i = 0; i < used_places() && !is_off(); i++) {
		void *context = atomic_load(&places[i].context);
		if (places[i].primary && places[i].device == device && take_away(&places[i], context))
			end(&places[i]);
	}
}
