/* SPDX-License-Identifier: Apache-2.0
 *
 * Thrust and CUB over a heap: containers, algorithms' temporary memory, and the interface of CUB's own allocator.
 * On the simulated device kernels compute nothing, so this checks where memory comes from, and that none is left.
 */
#include <terrazzo/cub.hpp>
#include <terrazzo/thrust.hpp>

#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>

#include <cub/device/device_reduce.cuh>

#include <vector>

#include "check.hpp"

#define MUST(call) CHECK((call) == cudaSuccess)

template <class T> using vector = thrust::device_vector<T, terrazzo::thrust_allocator<T>>;

static std::uint64_t count(const terrazzo::heap &heap, const char *name)
{
	return heap.statistic(name);
}

static void containers(const terrazzo::heap &heap, cudaStream_t stream)
{
	terrazzo::thrust_allocator<int> allocator(heap, stream);
	vector<int> numbers(1000000, 7, allocator);
	void *data = thrust::raw_pointer_cast(numbers.data());
	CHECK(heap.query(data)->requested == 4000000 && heap.query(data)->stream == stream);
	numbers.resize(3000000);
	CHECK(count(heap, "allocation.all.current") == 1);
	vector<int> copy = numbers;
	CHECK(heap.query(thrust::raw_pointer_cast(copy.data())) && copy.get_allocator() == allocator);
	vector<int> moved = std::move(copy);
	CHECK(count(heap, "allocation.all.current") == 2 && moved.size() == 3000000);
	CHECK(terrazzo::thrust_allocator<char>(allocator) == terrazzo::thrust_allocator<char>(heap, stream));
	CHECK(allocator != terrazzo::thrust_allocator<int>(heap, cudaStreamPerThread));
	CHECK(throws<std::bad_alloc>([&] { allocator.allocate(allocator.max_size() + 1); }));
	CHECK(throws<terrazzo::out_of_memory>([&] { allocator.allocate(std::size_t(1) << 45); }));
	std::vector<int> host(1000, 3);
	vector<int> uploaded(host.begin(), host.end(), allocator);
	std::vector<int> back(1000);
	thrust::copy(uploaded.begin(), uploaded.end(), back.begin());
	CHECK(back == host);
}

static void algorithms(const terrazzo::heap &heap, cudaStream_t stream)
{
	terrazzo::thrust_allocator<char> temporary(heap, stream);
	vector<unsigned> keys(1 << 20, 1, terrazzo::thrust_allocator<unsigned>(heap, stream));
	vector<float> values(1 << 20, 1, terrazzo::thrust_allocator<float>(heap, stream));
	std::uint64_t before = count(heap, "allocation.all.allocated");
	thrust::sort(thrust::cuda::par(temporary).on(stream), keys.begin(), keys.end());
	std::uint64_t sorted = count(heap, "allocation.all.allocated");
	CHECK(sorted > before);
	thrust::sort_by_key(thrust::cuda::par_nosync(temporary).on(stream), keys.begin(), keys.end(), values.begin());
	CHECK(count(heap, "allocation.all.allocated") > sorted);
	sorted = count(heap, "allocation.all.allocated");
	thrust::reduce(thrust::cuda::par(temporary).on(stream), values.begin(), values.end());
	CHECK(count(heap, "allocation.all.allocated") > sorted);
	CHECK(count(heap, "allocation.all.current") == 2);
}

static void cub_of_its_own(const terrazzo::heap &heap, cudaStream_t stream)
{
	terrazzo::cub_allocator allocator(heap);
	float *in, *out;
	void *workspace = nullptr;
	std::size_t size = 0;
	MUST(allocator.DeviceAllocate(reinterpret_cast<void **>(&in), 4000000, stream));
	MUST(allocator.DeviceAllocate(reinterpret_cast<void **>(&out), 4, stream));
	MUST(cub::DeviceReduce::Sum(nullptr, size, in, out, 1000000, stream));
	MUST(allocator.DeviceAllocate(&workspace, size, stream));
	MUST(cub::DeviceReduce::Sum(workspace, size, in, out, 1000000, stream));
	MUST(allocator.DeviceFree(workspace));
	MUST(allocator.DeviceFree(out));
	MUST(allocator.DeviceFree(in));
	CHECK(allocator.DeviceFree(in) == cudaErrorInvalidValue);
	CHECK(allocator.DeviceAllocate(&workspace, std::size_t(1) << 45, stream) == cudaErrorMemoryAllocation);
	CHECK(!workspace);
	MUST(cudaStreamSynchronize(stream));
	MUST(allocator.FreeAllCached());
}

/* A program that tries again with less when memory is short must not take a dead context for that. */
static void a_context_has_died(const terrazzo::heap &heap)
{
	terrazzo::cub_allocator allocator(heap);
	void *before, *after;
	MUST(allocator.DeviceAllocate(&before, 1000));
	cudaMemset(reinterpret_cast<void *>(std::uintptr_t(1) << 45 | std::uintptr_t(7) << 40), 0, 100);
	CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
	CHECK(allocator.DeviceAllocate(&after, 64 << 20) == cudaErrorContextIsDestroyed);
	CHECK(!after);
	MUST(allocator.DeviceFree(before));
}

int main(int argc, char **)
{
	MUST(cudaFree(nullptr));
	terrazzo::heap heap(0, "oom_report:off");
	if (argc > 1) {
		a_context_has_died(heap);
		return all_checked();
	}
	cudaStream_t stream;
	MUST(cudaStreamCreate(&stream));
	for (cudaStream_t each : {stream, cudaStream_t(nullptr)}) {
		containers(heap, each);
		algorithms(heap, each);
		cub_of_its_own(heap, each);
		CHECK(count(heap, "allocation.all.current") == 0);
	}
	terrazzo::check(trz_check(heap.get()));
	return all_checked();
}
