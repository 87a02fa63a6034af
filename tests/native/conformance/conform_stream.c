/* SPDX-License-Identifier: Apache-2.0
 *
 * cudaMallocAsync and its kin: frees, the order of streams, pools and their attributes, captures.
 */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

static void *new_stream(void)
{
	void *stream;
	must("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&stream, 1));
	return stream;
}

static void *allocate(size_t size, void *stream)
{
	void *ptr = NULL;
	must("cudaMallocAsync", cudaMallocAsync(&ptr, size, stream));
	return ptr;
}

void check_async(void)
{
	void *ptr = NULL, *stream = new_stream(), *legacy = NULL, *host = malloc(64);
	int supported = 0;
	size_t unused, total;
	must("cudaMemGetInfo", cudaMemGetInfo(&unused, &total));
	cudaDeviceGetAttribute(&supported, 115, 0);
	is("async/supported", supported, 1);
	is("async/one_byte", cudaMallocAsync(&ptr, 1, stream), SUCCESS);
	holds("async/aligned", ptr && (uintptr_t)ptr % 256 == 0);
	is("async/usable_on_its_stream", cudaMemsetAsync(ptr, 1, 1, stream), SUCCESS);
	is("async/freed", cudaFreeAsync(ptr, stream), SUCCESS);
	is("async/freed_twice", cudaFreeAsync(ptr, stream), INVALID_VALUE);
	is("async/last_error", cudaGetLastError(), INVALID_VALUE);
	is("async/nowhere_to_put_it", cudaMallocAsync(NULL, 64, stream), INVALID_VALUE);
	is("async/more_than_there_is", cudaMallocAsync(&ptr, 2 * total, stream), OUT_OF_MEMORY);
	is("async/works_after_failure", cudaMallocAsync(&ptr, 50000, stream), SUCCESS);
	is("async/inside", cudaFreeAsync((char *)ptr + 512, stream), INVALID_VALUE);
	is("async/host_memory", cudaFreeAsync(host, stream), INVALID_VALUE);
	is("async/still_there", cudaMemsetAsync(ptr, 2, 50000, stream), SUCCESS);
	cudaStreamSynchronize(stream);
	is("async/freed_by_cudaFree", cudaFree(ptr), SUCCESS);
	is("async/freed_by_cudaFree_twice", cudaFree(ptr), INVALID_VALUE);
	must("cudaMalloc", cudaMalloc(&legacy, 5000));
	is("async/frees_what_cudaMalloc_gave", cudaFreeAsync(legacy, stream), SUCCESS);
	cudaStreamSynchronize(stream);
	is("async/which_is_gone_then", cudaFree(legacy), INVALID_VALUE);
	is("async/default_stream", cudaMallocAsync(&ptr, 1 * MIB, NULL), SUCCESS);
	is("async/freed_on_another_stream", cudaFreeAsync(ptr, stream), SUCCESS);
	is("async/stream_of_the_thread", cudaMallocAsync(&ptr, 1 * MIB, (void *)2), SUCCESS);
	is("async/freed_there", cudaFreeAsync(ptr, (void *)2), SUCCESS);
	cudaGetLastError();
	ptr = NULL;
	says("async/zero", cudaMallocAsync(&ptr, 0, stream));
	says("async/zero_is_null", ptr == NULL);
	says("async/null_freed", cudaFreeAsync(NULL, stream));
	cudaGetLastError();
	is("async/streams_end", cudaStreamDestroy(stream), SUCCESS);
	is("async/nothing_failed_behind", cudaDeviceSynchronize(), SUCCESS);
	free(host);
}

/* Each round's memory is likely the last one's: what was enqueued before the free must not see the next. */
static bool rounds_keep_apart(void *stream, size_t size)
{
	enum { ROUNDS = 20 };
	unsigned char *out = NULL;
	bool right = true;
	must("cudaMallocHost", cudaMallocHost((void **)&out, size * ROUNDS));
	for (int i = 0; i < ROUNDS; i++) {
		void *ptr = allocate(size, stream);
		cudaMemsetAsync(ptr, i + 1, size, stream);
		cudaMemcpyAsync(out + (size_t)i * size, ptr, size, TO_HOST, stream);
		must("cudaFreeAsync", cudaFreeAsync(ptr, stream));
	}
	must("cudaStreamSynchronize", cudaStreamSynchronize(stream));
	for (size_t i = 0; i < size * ROUNDS; i++)
		right = right && out[i] == i / size + 1;
	cudaFreeHost(out);
	return right;
}

/* Work of a second stream, ordered by an event, reads what the first wrote, and the memory is freed there. */
static bool passes_on(void *from, void *to, size_t size)
{
	unsigned char *out = NULL;
	void *ptr = allocate(size, from), *event, *next;
	must("cudaMallocHost", cudaMallocHost((void **)&out, size));
	must("cudaEventCreateWithFlags", cudaEventCreateWithFlags(&event, 2));
	cudaMemsetAsync(ptr, 0x77, size, from);
	must("cudaEventRecord", cudaEventRecord(event, from));
	must("cudaStreamWaitEvent", cudaStreamWaitEvent(to, event, 0));
	cudaMemcpyAsync(out, ptr, size, TO_HOST, to);
	must("cudaFreeAsync", cudaFreeAsync(ptr, to));
	next = allocate(size, from);
	cudaMemsetAsync(next, 0x11, size, from);
	must("cudaFreeAsync", cudaFreeAsync(next, from));
	must("cudaDeviceSynchronize", cudaDeviceSynchronize());
	bool right = out[0] == 0x77 && out[size - 1] == 0x77 && memcmp(out, out + 1, size - 1) == 0;
	cudaFreeHost(out);
	return right;
}

/* cudaFree of cudaMalloc's memory may be called while work that uses it is pending: the work comes first. */
static bool free_follows_work(void *stream)
{
	enum { SIZE = 4 * 1024 * 1024 };
	unsigned char *out = NULL;
	void *ptr = NULL, *next = NULL;
	must("cudaMallocHost", cudaMallocHost((void **)&out, SIZE));
	must("cudaMalloc", cudaMalloc(&ptr, SIZE));
	cudaMemsetAsync(ptr, 0x33, SIZE, stream);
	cudaMemcpyAsync(out, ptr, SIZE, TO_HOST, stream);
	must("cudaFree", cudaFree(ptr));
	must("cudaMalloc", cudaMalloc(&next, SIZE));
	must("cudaMemset", cudaMemset(next, 0x44, SIZE));
	must("cudaDeviceSynchronize", cudaDeviceSynchronize());
	bool right = out[0] == 0x33 && memcmp(out, out + 1, SIZE - 1) == 0;
	cudaFree(next);
	cudaFreeHost(out);
	return right;
}

/* Work that is not ready is not considered an error, whether or not the queries find it so. */
static void a_query_is_no_error(void *stream)
{
	void *event, *ptr = allocate(8 * MIB, stream);
	must("cudaEventCreateWithFlags", cudaEventCreateWithFlags(&event, 2));
	cudaMemsetAsync(ptr, 1, 8 * MIB, stream);
	must("cudaEventRecord", cudaEventRecord(event, stream));
	status queried = cudaStreamQuery(stream), asked = cudaEventQuery(event);
	holds("order/stream_is_queried", queried == SUCCESS || queried == NOT_READY);
	holds("order/event_is_queried", asked == SUCCESS || asked == NOT_READY);
	is("order/a_query_is_no_error", cudaPeekAtLastError(), SUCCESS);
	must("cudaFreeAsync", cudaFreeAsync(ptr, stream));
	must("cudaStreamSynchronize", cudaStreamSynchronize(stream));
}

void check_order(void)
{
	void *one = new_stream(), *two = new_stream();
	holds("order/small", rounds_keep_apart(one, 700));
	holds("order/large", rounds_keep_apart(one, 3 * MIB));
	holds("order/default_stream", rounds_keep_apart(NULL, 700));
	holds("order/stream_of_the_thread", rounds_keep_apart((void *)2, 700));
	holds("order/by_event_small", passes_on(one, two, 900));
	holds("order/by_event_large", passes_on(one, two, 9 * MIB));
	holds("order/by_event_and_back", passes_on(two, one, 9 * MIB));
	holds("order/free_while_work_is_pending", free_follows_work(one));
	a_query_is_no_error(one);
	void *ptr = allocate(5 * MIB, one);
	is("order/free_without_use", cudaFreeAsync(ptr, one), SUCCESS);
	ptr = allocate(5 * MIB, one);
	is("order/stream_destroyed_with_memory_live", cudaStreamDestroy(one), SUCCESS);
	is("order/freed_afterwards", cudaFreeAsync(ptr, two), SUCCESS);
	is("order/nothing_failed_behind", cudaDeviceSynchronize(), SUCCESS);
}

static const struct pool_props ordinary = {.type = 1, .location = {1, 0}};

static uint64_t of_pool(void *pool, int attribute)
{
	uint64_t value = 0;
	must("cudaMemPoolGetAttribute", cudaMemPoolGetAttribute(pool, attribute, &value));
	return value;
}

static void pool_life(void *stream)
{
	void *pool = NULL, *usual = NULL, *current = NULL, *ptr = NULL;
	is("pools/default", cudaDeviceGetDefaultMemPool(&usual, 0), SUCCESS);
	must("cudaDeviceGetMemPool", cudaDeviceGetMemPool(&current, 0));
	holds("pools/default_is_current", usual && usual == current);
	is("pools/default_destroyed", cudaMemPoolDestroy(usual), INVALID_VALUE);
	is("pools/created", cudaMemPoolCreate(&pool, &ordinary), SUCCESS);
	holds("pools/another", pool && pool != usual);
	is("pools/made_current", cudaDeviceSetMemPool(0, pool), SUCCESS);
	must("cudaDeviceGetMemPool", cudaDeviceGetMemPool(&current, 0));
	holds("pools/is_current", current == pool);
	ptr = allocate(3 * MIB, stream);
	holds("pools/current_serves", of_pool(pool, USED) >= 3 * MIB);
	must("cudaFreeAsync", cudaFreeAsync(ptr, stream));
	must("cudaStreamSynchronize", cudaStreamSynchronize(stream));
	is("pools/current_destroyed", cudaMemPoolDestroy(pool), SUCCESS);
	must("cudaDeviceGetMemPool", cudaDeviceGetMemPool(&current, 0));
	holds("pools/default_is_current_again", current == usual);
	must("cudaMemPoolCreate", cudaMemPoolCreate(&pool, &ordinary));
	must("cudaMallocFromPoolAsync", cudaMallocFromPoolAsync(&ptr, 1 * MIB, pool, stream));
	is("pools/destroyed_with_memory_live", cudaMemPoolDestroy(pool), SUCCESS);
	is("pools/memory_outlives_it", cudaMemsetAsync(ptr, 1, 1 * MIB, stream), SUCCESS);
	is("pools/and_is_freed", cudaFreeAsync(ptr, stream), SUCCESS);
	is("pools/nothing_failed_behind", cudaStreamSynchronize(stream), SUCCESS);
}

static void pool_attributes(void *stream)
{
	void *pool = NULL, *ptr = NULL;
	uint64_t number = 5 * MIB;
	int off = 0, value = -1;
	must("cudaMemPoolCreate", cudaMemPoolCreate(&pool, &ordinary));
	is("pools/threshold", (long long)of_pool(pool, THRESHOLD), 0);
	is("pools/reserved_at_first", (long long)of_pool(pool, RESERVED), 0);
	is("pools/used_at_first", (long long)of_pool(pool, USED), 0);
	static const char *const names[] = {"pools/follow_events", "pools/opportunistic", "pools/internal_dependencies"};
	for (int attribute = FOLLOW_EVENTS; attribute <= INTERNAL_DEPENDENCIES; attribute++) {
		cudaMemPoolGetAttribute(pool, attribute, &value);
		is(names[attribute - 1], value, 1);
	}
	is("pools/switched_off", cudaMemPoolSetAttribute(pool, OPPORTUNISTIC, &off), SUCCESS);
	cudaMemPoolGetAttribute(pool, OPPORTUNISTIC, &value);
	is("pools/is_off", value, 0);
	is("pools/threshold_set", cudaMemPoolSetAttribute(pool, THRESHOLD, &number), SUCCESS);
	is("pools/threshold_is_set", (long long)of_pool(pool, THRESHOLD), 5 * MIB);
	is("pools/used_set", cudaMemPoolSetAttribute(pool, USED, &number), INVALID_VALUE);
	is("pools/high_set", cudaMemPoolSetAttribute(pool, USED_HIGH, &number), INVALID_VALUE);
	is("pools/no_such_attribute", cudaMemPoolGetAttribute(pool, 99, &number), INVALID_VALUE);
	cudaGetLastError();
	is("pools/allocated", cudaMallocFromPoolAsync(&ptr, 8 * MIB, pool, stream), SUCCESS);
	holds("pools/used", of_pool(pool, USED) >= 8 * MIB);
	holds("pools/used_of_reserved", of_pool(pool, RESERVED) >= of_pool(pool, USED));
	is("pools/freed", cudaFreeAsync(ptr, stream), SUCCESS);
	must("cudaStreamSynchronize", cudaStreamSynchronize(stream));
	is("pools/used_no_more", (long long)of_pool(pool, USED), 0);
	holds("pools/high_stays", of_pool(pool, USED_HIGH) >= 8 * MIB && of_pool(pool, RESERVED_HIGH) >= 8 * MIB);
	number = 0;
	is("pools/high_reset", cudaMemPoolSetAttribute(pool, USED_HIGH, &number), SUCCESS);
	is("pools/high_is_reset", (long long)of_pool(pool, USED_HIGH), 0);
	must("cudaMemPoolDestroy", cudaMemPoolDestroy(pool));
}

static void pool_keeps(void *stream)
{
	void *pool = NULL, *ptr = NULL, *live = NULL;
	uint64_t all = UINT64_MAX, reserved;
	must("cudaMemPoolCreate", cudaMemPoolCreate(&pool, &ordinary));
	must("cudaMallocFromPoolAsync", cudaMallocFromPoolAsync(&ptr, 40 * MIB, pool, stream));
	must("cudaFreeAsync", cudaFreeAsync(ptr, stream));
	must("cudaStreamSynchronize", cudaStreamSynchronize(stream));
	is("pools/keeps_nothing_by_itself", (long long)of_pool(pool, RESERVED), 0);
	must("cudaMemPoolSetAttribute", cudaMemPoolSetAttribute(pool, THRESHOLD, &all));
	must("cudaMallocFromPoolAsync", cudaMallocFromPoolAsync(&ptr, 40 * MIB, pool, stream));
	must("cudaMallocFromPoolAsync", cudaMallocFromPoolAsync(&live, 40 * MIB, pool, stream));
	must("cudaFreeAsync", cudaFreeAsync(ptr, stream));
	must("cudaStreamSynchronize", cudaStreamSynchronize(stream));
	reserved = of_pool(pool, RESERVED);
	holds("pools/keeps_what_the_threshold_allows", reserved >= 80 * MIB);
	is("pools/trimmed_to_more_than_it_has", cudaMemPoolTrimTo(pool, 1024 * MIB), SUCCESS);
	is("pools/which_does_nothing", (long long)of_pool(pool, RESERVED), (long long)reserved);
	is("pools/trimmed", cudaMemPoolTrimTo(pool, 0), SUCCESS);
	holds("pools/live_memory_stays", of_pool(pool, RESERVED) >= 40 * MIB && of_pool(pool, RESERVED) < reserved);
	is("pools/live_memory_works", cudaMemsetAsync(live, 1, 40 * MIB, stream), SUCCESS);
	must("cudaFreeAsync", cudaFreeAsync(live, stream));
	must("cudaStreamSynchronize", cudaStreamSynchronize(stream));
	must("cudaMemPoolTrimTo", cudaMemPoolTrimTo(pool, 0));
	is("pools/trimmed_to_nothing", (long long)of_pool(pool, RESERVED), 0);
	must("cudaMemPoolDestroy", cudaMemPoolDestroy(pool));
}

static void access_of_another_device(void *pool)
{
	int flags = -1;
	must("cudaMemPoolGetAccess", cudaMemPoolGetAccess(&flags, pool, &(struct location){1, 1}));
	is("pools/other_device_has_none", flags, 0);
	is("pools/access_set", cudaMemPoolSetAccess(pool, &(struct access){{1, 1}, 3}, 1), SUCCESS);
	must("cudaMemPoolGetAccess", cudaMemPoolGetAccess(&flags, pool, &(struct location){1, 1}));
	is("pools/other_device_has_access", flags, 3);
}

static void pool_errors(void *stream)
{
	void *pool = NULL, *ptr = NULL;
	struct pool_props props = ordinary;
	int flags = -1, devices = 0;
	is("pools/nowhere_to_put_it", cudaMemPoolCreate(NULL, &ordinary), INVALID_VALUE);
	props.type = 0;
	is("pools/of_no_type", cudaMemPoolCreate(&pool, &props), INVALID_VALUE);
	props = ordinary;
	props.location.type = 0;
	is("pools/nowhere", cudaMemPoolCreate(&pool, &props), INVALID_VALUE);
	is("pools/none_to_allocate_from", cudaMallocFromPoolAsync(&ptr, 64, NULL, stream), INVALID_VALUE);
	props = ordinary;
	props.max_size = 32 * MIB;
	is("pools/of_limited_size", cudaMemPoolCreate(&pool, &props), SUCCESS);
	is("pools/within_its_size", cudaMallocFromPoolAsync(&ptr, 8 * MIB, pool, stream), SUCCESS);
	must("cudaFreeAsync", cudaFreeAsync(ptr, stream));
	must("cudaStreamSynchronize", cudaStreamSynchronize(stream));
	is("pools/beyond_its_size", cudaMallocFromPoolAsync(&ptr, 64 * MIB, pool, stream), OUT_OF_MEMORY);
	cudaGetLastError();
	must("cudaMemPoolGetAccess", cudaMemPoolGetAccess(&flags, pool, &(struct location){1, 0}));
	is("pools/own_device_has_access", flags, 3);
	must("cudaGetDeviceCount", cudaGetDeviceCount(&devices));
	if (devices > 1)
		access_of_another_device(pool);
	must("cudaMemPoolDestroy", cudaMemPoolDestroy(pool));
}

void check_pools(void)
{
	void *stream = new_stream();
	pool_life(stream);
	pool_attributes(stream);
	pool_keeps(stream);
	pool_errors(stream);
}

struct capturing {
	void *stream, *ptr;
	status result;
};

static void malloc_there(void *argument)
{
	struct capturing *c = argument;
	c->result = cudaMalloc(&c->ptr, 1 * MIB);
	cudaFree(NULL);
}

/* Memory that outlives its stream, in a process that allocates in no other way. */
void check_ended(void)
{
	void *one = new_stream(), *two = new_stream(), *pool = NULL, *outlives = allocate(3 * MIB, one), *other;
	must("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&pool, 0));
	must("cudaStreamSynchronize", cudaStreamSynchronize(one));
	must("cudaStreamDestroy", cudaStreamDestroy(one));
	other = allocate(5 * MIB, two);
	is("ended/freed_on_no_stream", cudaFree(other), SUCCESS);
	holds("ended/other_memory_is_used", of_pool(pool, USED) >= 3 * MIB && of_pool(pool, USED) < 5 * MIB);
	is("ended/freed_on_another_stream", cudaFreeAsync(outlives, two), SUCCESS);
	must("cudaStreamSynchronize", cudaStreamSynchronize(two));
	is("ended/used_no_more", (long long)of_pool(pool, USED), 0);
}

void check_capture(void)
{
	void *stream = new_stream(), *ptr = NULL, *graph = NULL, *executable = NULL, *outside = allocate(1 * MIB, stream);
	struct capturing other = {.stream = stream};
	must("cudaStreamSynchronize", cudaStreamSynchronize(stream));
	must("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, CAPTURE_GLOBAL));
	is("capture/malloc", cudaMalloc(&ptr, 32 * MIB), CAPTURE_UNSUPPORTED);
	is("capture/is_broken_by_it", cudaStreamEndCapture(stream, &graph), CAPTURE_INVALIDATED);
	cudaGetLastError();
	is("capture/malloc_afterwards", cudaMalloc(&ptr, 32 * MIB), SUCCESS);
	must("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
	is("capture/relaxed_free", cudaFree(ptr), SUCCESS);
	is("capture/relaxed_malloc", cudaMalloc(&ptr, 48 * MIB), SUCCESS);
	must("cudaMemsetAsync", cudaMemsetAsync(ptr, 1, 100, stream));
	is("capture/relaxed_ends_well", cudaStreamEndCapture(stream, &graph), SUCCESS);
	must("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, CAPTURE_THREAD_LOCAL));
	in_thread(malloc_there, &other);
	is("capture/malloc_of_another_thread", other.result, SUCCESS);
	must("cudaMemsetAsync", cudaMemsetAsync(ptr, 1, 100, stream));
	is("capture/of_the_thread_ends_well", cudaStreamEndCapture(stream, &graph), SUCCESS);
	must("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
	is("capture/frees_only_the_graphs_own", cudaFreeAsync(outside, stream), INVALID_VALUE);
	cudaStreamEndCapture(stream, &graph);
	cudaGetLastError();
	is("capture/which_stays_usable", cudaMemset(outside, 1, 1 * MIB), SUCCESS);
	must("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, CAPTURE_GLOBAL));
	void *of_graph = NULL;
	is("capture/allocates_by_a_node", cudaMallocAsync(&of_graph, 2 * MIB, stream), SUCCESS);
	is("capture/uses_it", cudaMemsetAsync(of_graph, 7, 2 * MIB, stream), SUCCESS);
	is("capture/frees_by_a_node", cudaFreeAsync(of_graph, stream), SUCCESS);
	is("capture/with_nodes_ends_well", cudaStreamEndCapture(stream, &graph), SUCCESS);
	is("capture/instantiated", cudaGraphInstantiate(&executable, graph, 0), SUCCESS);
	is("capture/launched", cudaGraphLaunch(executable, stream), SUCCESS);
	is("capture/launched_again", cudaGraphLaunch(executable, stream), SUCCESS);
	is("capture/nothing_failed_behind", cudaStreamSynchronize(stream), SUCCESS);
	cudaFree(ptr);
	cudaFree(other.ptr);
	is("capture/outside_freed", cudaFreeAsync(outside, stream), SUCCESS);
	cudaStreamSynchronize(stream);
}
