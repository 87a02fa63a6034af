/* SPDX-License-Identifier: Apache-2.0
 *
 * Two streams pass batches on: one uploads, the other works on what has arrived and downloads it. No call waits for the
 * device before the end, and from the second batch on none allocates from the driver.
 */
#include <cuda_runtime_api.h>
#include <terrazzo.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

static void must(cudaError_t result)
{
	if (result == cudaSuccess)
		return;
	std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(result));
	std::exit(1);
}

/* A batch on its way. */
static void pass_on(terrazzo::heap &heap, cudaStream_t upload, cudaStream_t work, cudaEvent_t arrived,
                    const std::vector<char> &in, std::vector<char> &out)
{
	terrazzo::buffer batch(heap, in.size(), upload);
	must(cudaMemcpyAsync(batch.data(), in.data(), in.size(), cudaMemcpyHostToDevice, upload));
	must(cudaEventRecord(arrived, upload));
	must(cudaStreamWaitEvent(work, arrived, 0));
	terrazzo::buffer result(heap, in.size(), work);
	must(cudaMemcpyAsync(result.data(), batch.data(), in.size(), cudaMemcpyDeviceToDevice, work));
	must(cudaMemcpyAsync(out.data(), result.data(), in.size(), cudaMemcpyDeviceToHost, work));
	/* The last use is on `work`, which has waited for all earlier uses. */
	batch.set_stream(work);
}

int main()
try {
	const int batches = 20;
	terrazzo::heap heap;
	cudaStream_t upload, work;
	cudaEvent_t arrived;
	must(cudaStreamCreate(&upload));
	must(cudaStreamCreate(&work));
	must(cudaEventCreateWithFlags(&arrived, cudaEventDisableTiming));
	std::vector<std::vector<char>> in(batches, std::vector<char>(8 << 20)), out(in);
	for (int i = 0; i < batches; i++) {
		in[i].assign(in[i].size(), static_cast<char>('a' + i));
		pass_on(heap, upload, work, arrived, in[i], out[i]);
	}
	must(cudaDeviceSynchronize());
	std::printf("%d batches of 8 MiB, %s, %llu MiB reserved at most\n", batches, in == out ? "all right" : "WRONG",
	            static_cast<unsigned long long>(heap.statistic("reserved_bytes.all.peak") >> 20));
	return in != out;
} catch (const terrazzo::failure &failed) {
	std::fprintf(stderr, "%s\n", failed.message());
	return 1;
}
