/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks that RMM makes of its own memory resources, written anew: allocations of many sizes, alone and at random,
 * on the default stream and on others, from four threads, and handed from one thread and stream to another. With
 * WITH_RMM the resource is terrazzo::rmm_resource behind RMM's reference, and RMM's containers work over it; else it is
 * terrazzo::memory_resource behind CCCL's reference.
 */
#ifdef WITH_RMM
#include <terrazzo/rmm.hpp>

#include <rmm/device_buffer.hpp>
#include <rmm/device_scalar.hpp>
#include <rmm/device_uvector.hpp>
#else
#include <terrazzo/memory_resource.hpp>
#endif

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"

#define MUST(call) CHECK((call) == cudaSuccess)

static const std::size_t KIB = 1 << 10, MIB = 1 << 20, GIB = 1 << 30;
static const std::size_t ALIGNMENT = 256;

#ifdef WITH_RMM
using reference = rmm::device_async_resource_ref;
using resource_type = terrazzo::rmm_resource;
using no_memory = rmm::out_of_memory;
#if TERRAZZO_RMM_BASE
using stream_type = rmm::cuda_stream_view;
#else
using stream_type = cuda::stream_ref;
#endif
#else
#if CCCL_VERSION >= 3001000
using reference = cuda::mr::resource_ref<cuda::mr::device_accessible>;
#else
using reference = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
#endif
using resource_type = terrazzo::memory_resource;
using no_memory = terrazzo::out_of_memory;
using stream_type = cuda::stream_ref;
#endif

/* The calls by the names of this CCCL: with `in_order` false the ones that name no stream. */
struct user {
	reference resource;
	cudaStream_t stream;
	bool in_order;

	void *allocate(std::size_t size)
	{
#if CCCL_VERSION >= 3001000
		return in_order ? resource.allocate(stream_type(stream), size, ALIGNMENT)
		                : resource.allocate_sync(size, ALIGNMENT);
#else
		return in_order ? resource.allocate_async(size, ALIGNMENT, stream_type(stream))
		                : resource.allocate(size, ALIGNMENT);
#endif
	}

	void deallocate(void *memory, std::size_t size)
	{
#if CCCL_VERSION >= 3001000
		in_order ? resource.deallocate(stream_type(stream), memory, size, ALIGNMENT)
		         : resource.deallocate_sync(memory, size, ALIGNMENT);
#else
		in_order ? resource.deallocate_async(memory, size, ALIGNMENT, stream_type(stream))
		         : resource.deallocate(memory, size, ALIGNMENT);
#endif
	}
};

struct piece {
	void *memory;
	std::size_t size;
};

static cudaPointerAttributes ask_about(void *memory, const char *when)
{
	cudaPointerAttributes about;
	MUST(cudaPointerGetAttributes(&about, memory));
	if (about.type != cudaMemoryTypeDevice || about.devicePointer != memory)
		std::printf("cudaPointerGetAttributes of %p %s: type %d, device %d, device pointer %p, host pointer %p\n",
		            memory, when, static_cast<int>(about.type), about.device, about.devicePointer, about.hostPointer);
	return about;
}

/* It is device memory, and work on the stream may use it at once. A thread that has not used CUDA yet has no context,
 * and a driver that knows nothing of mapped memory there: what it says without one is told, and what it says with one
 * counts. */
static void is_usable(const user &by, void *memory, std::size_t size)
{
	CHECK(memory && reinterpret_cast<std::uintptr_t>(memory) % ALIGNMENT == 0);
	cudaPointerAttributes about = ask_about(memory, "as it is");
	if (about.type != cudaMemoryTypeDevice || about.devicePointer != memory) {
		MUST(cudaSetDevice(0));
		about = ask_about(memory, "with the device set");
	}
	CHECK(about.type == cudaMemoryTypeDevice);
	CHECK(about.devicePointer == memory);
	MUST(cudaMemsetAsync(memory, 1, std::min(size, MIB), by.stream));
}

/* Who names no stream at a deallocation must have waited. */
static void before_deallocation(const user &by)
{
	if (!by.in_order)
		MUST(cudaStreamSynchronize(by.stream));
}

static void one_of(user by, std::size_t size)
{
	void *memory = by.allocate(size);
	is_usable(by, memory, size);
	before_deallocation(by);
	by.deallocate(memory, size);
}

static void various_sizes(user by)
{
	by.deallocate(by.allocate(0), 0);
	for (std::size_t size : {std::size_t(4), KIB, MIB, GIB})
		one_of(by, size);
	CHECK(throws<no_memory>([&] { by.allocate(GIB << 20); }));
#ifdef WITH_RMM
	try {
		by.allocate(GIB << 20);
	} catch (const rmm::out_of_memory &failed) {
		CHECK(std::strstr(failed.what(), "out_of_memory"));
	}
#endif
}

static void no_two_are_the_same(user by)
{
	void *one = by.allocate(8), *two = by.allocate(8);
	CHECK(one != two);
	by.deallocate(one, 8);
	by.deallocate(two, 8);
}

static void many_at_random(user by)
{
	std::default_random_engine random;
	std::uniform_int_distribution<std::size_t> sizes(1, 5 * MIB);
	std::vector<piece> pieces;
	for (int i = 0; i < 100; i++) {
		std::size_t size = sizes(random);
		pieces.push_back({by.allocate(size), size});
		is_usable(by, pieces.back().memory, size);
	}
	before_deallocation(by);
	for (const piece &each : pieces)
		by.deallocate(each.memory, each.size);
}

static void come_and_go_at_random(user by)
{
	std::default_random_engine random;
	std::uniform_int_distribution<std::size_t> sizes(1, 5 * MIB);
	std::vector<piece> pieces;
	for (int allocated = 0; allocated < 100 || !pieces.empty();) {
		if (allocated < 100 && (pieces.empty() || random() % 100 < 53)) {
			std::size_t size = sizes(random);
			pieces.push_back({by.allocate(size), size});
			is_usable(by, pieces.back().memory, size);
			allocated++;
		} else {
			auto chosen = pieces.begin() + random() % pieces.size();
			before_deallocation(by);
			by.deallocate(chosen->memory, chosen->size);
			pieces.erase(chosen);
		}
	}
}

static void alone(user by)
{
	various_sizes(by);
	no_two_are_the_same(by);
	many_at_random(by);
	come_and_go_at_random(by);
}

static void from_four_threads(user by)
{
	for (auto task : {various_sizes, many_at_random, come_and_go_at_random}) {
		std::vector<std::thread> threads;
		for (int i = 0; i < 4; i++)
			threads.emplace_back([=] {
				MUST(cudaSetDevice(0));
				task(by);
			});
		for (std::thread &thread : threads)
			thread.join();
	}
}

/* A thread allocates and writes in the order of one stream, another uses and frees in that of another, which waits by
 * an event. */
static void handed_on(reference resource, cudaStream_t from, cudaStream_t to)
{
	std::mutex mutex;
	std::condition_variable filled;
	std::deque<piece> queue;
	cudaEvent_t event;
	MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	std::thread producer([&, by = user{resource, from, true}]() mutable {
		std::default_random_engine random;
		for (int i = 0; i < 100; i++) {
			std::size_t size = 1 + random() % MIB;
			void *memory = by.allocate(size);
			is_usable(by, memory, size);
			std::lock_guard<std::mutex> lock(mutex);
			MUST(cudaEventRecord(event, from));
			queue.push_back({memory, size});
			filled.notify_one();
		}
		MUST(cudaEventSynchronize(event));
	});
	std::thread consumer([&, by = user{resource, to, true}]() mutable {
		for (int i = 0; i < 100; i++) {
			std::unique_lock<std::mutex> lock(mutex);
			filled.wait(lock, [&] { return !queue.empty(); });
			MUST(cudaStreamWaitEvent(to, event, 0));
			piece next = queue.front();
			queue.pop_front();
			is_usable(by, next.memory, next.size);
			by.deallocate(next.memory, next.size);
		}
		MUST(cudaEventSynchronize(event));
	});
	producer.join();
	consumer.join();
	MUST(cudaDeviceSynchronize());
	MUST(cudaEventDestroy(event));
}

#if !defined(WITH_RMM) || !TERRAZZO_RMM_BASE

/* What is for any stream at once waits for the heap's device, not for the current one. */
static void another_device_is_current(user by, terrazzo::heap_ref heap)
{
	const std::size_t size = 32 * MIB;
	int count;
	MUST(cudaGetDeviceCount(&count));
	if (count < 2) {
		std::puts("one device: what needs two is left out");  /* tests, which have two, expect nothing but the count */
		return;
	}
	void *busy = heap.allocate(size);
	MUST(cudaMemsetAsync(busy, 1, size, nullptr));
	heap.free(busy);
	MUST(cudaSetDevice(1));
	void *memory = by.allocate(size);
	int current;
	MUST(cudaGetDevice(&current));
	CHECK(memory == busy && current == 1);
	MUST(cudaSetDevice(0));
	MUST(cudaStreamQuery(nullptr));
	by.deallocate(memory, size);
}

#endif

static void is_equal_to_its_like(terrazzo::heap_ref heap)
{
	terrazzo::heap another;
	resource_type one(heap), same(heap), other{terrazzo::heap_ref(another)};
	CHECK(one == same && !(one == other) && one.heap() == heap);
	CHECK(reference(one) == reference(one) && reference(one) == reference(same));
}

#ifdef WITH_RMM

static void containers_work(resource_type &resource, cudaStream_t stream)
{
	const int count = 300000;
	std::vector<int> numbers(count), back(count);
	std::iota(numbers.begin(), numbers.end(), 1);
	rmm::device_buffer buffer(numbers.data(), count * sizeof(int), stream_type(stream), resource);
	CHECK(resource.heap().query(buffer.data())->requested == count * sizeof(int));
	rmm::device_buffer copy(buffer, stream_type(stream), resource);
	buffer.resize(3 * count * sizeof(int), stream_type(stream));
	CHECK(buffer.capacity() >= 3 * count * sizeof(int) && buffer.data() != copy.data());
	buffer.resize(count * sizeof(int), stream_type(stream));
	buffer.shrink_to_fit(stream_type(stream));
	rmm::device_buffer moved(std::move(buffer));
	for (const rmm::device_buffer *each : {&copy, &moved}) {
		std::fill(back.begin(), back.end(), 0);
		MUST(cudaMemcpyAsync(back.data(), each->data(), count * sizeof(int), cudaMemcpyDeviceToHost, stream));
		MUST(cudaStreamSynchronize(stream));
		CHECK(back == numbers);
	}
	rmm::device_uvector<double> vector(1000, stream_type(stream), resource);
	const double value = 2.5;
	vector.set_element_async(999, value, stream_type(stream));
	CHECK(vector.element(999, stream_type(stream)) == value);
	vector.resize(100000, stream_type(stream));
	CHECK(vector.element(999, stream_type(stream)) == value);
	rmm::device_uvector<double> other(vector, stream_type(stream), resource);
	CHECK(other.size() == 100000 && resource.heap().query(other.data()));
	const int seven = 7;
	rmm::device_scalar<int> scalar(seven, stream_type(stream), resource);
	CHECK(scalar.value(stream_type(stream)) == seven);
}

#endif

int main()
{
	MUST(cudaFree(nullptr));
	terrazzo::heap heap(0, "oom_report:off");
	cudaStream_t one, two;
	MUST(cudaStreamCreate(&one));
	MUST(cudaStreamCreate(&two));
	{
		resource_type resource{terrazzo::heap_ref(heap)};
		reference shared(resource);
		for (user by : {user{shared, nullptr, false}, user{shared, nullptr, true}, user{shared, one, true}}) {
			alone(by);
			from_four_threads(by);
		}
		handed_on(shared, nullptr, nullptr);
		handed_on(shared, cudaStreamPerThread, cudaStreamPerThread);
		handed_on(shared, one, one);
		handed_on(shared, one, two);
		is_equal_to_its_like(heap);
#if !defined(WITH_RMM) || !TERRAZZO_RMM_BASE
		another_device_is_current({shared, nullptr, false}, heap);
#endif
#ifdef WITH_RMM
		for (cudaStream_t stream : {one, cudaStream_t(nullptr)})
			containers_work(resource, stream);
#endif
	}
	MUST(cudaDeviceSynchronize());
	CHECK(heap.statistic("allocation.all.current") == 0);
	terrazzo::check(trz_check(heap.get()));
	heap.close();
	return all_checked();
}
