/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures COUNT graphs that allocate and free MIB, one after the other, while earlier work of the stream goes on, then
 * launches them all and prints how much of the device is in use: captures COUNT MIB.
 */
#include "cuda_calls.h"

int cudaMallocAsync(void **ptr, size_t size, void *stream);
int cudaFreeAsync(void *ptr, void *stream);
int cudaGraphInstantiate(void **exec, void *graph, unsigned long long flags);
int cudaGraphLaunch(void *exec, void *stream);
int cudaGraphExecDestroy(void *exec);

enum { MOST = 64 };

static void *capture(void *kernel, size_t size, void *stream)
{
	void *p, *graph, *exec;
	MUST(cudaStreamBeginCapture(stream, CAPTURE_RELAXED));
	MUST(cudaMallocAsync(&p, size, stream));
	touch(kernel, p, stream);
	MUST(cudaFreeAsync(p, stream));
	MUST(cudaStreamEndCapture(stream, &graph));
	MUST(cudaGraphInstantiate(&exec, graph, 0));
	MUST(cudaGraphDestroy(graph));
	return exec;
}

/* Work that the stream has yet to do, on memory that it has freed behind it. */
static void leave_work(void *kernel, size_t size, void *stream)
{
	void *p;
	MUST(cudaMallocAsync(&p, size, stream));
	touch(kernel, p, stream);
	MUST(cudaFreeAsync(p, stream));
}

int main(int count, char **arguments)
{
	CHECK(count == 3);
	const long graphs = atol(arguments[1]);
	const size_t size = (size_t)atol(arguments[2]) * MIB;
	void *execs[MOST], *stream;
	size_t before, after, total;
	CHECK(graphs <= MOST);
	MUST(cudaFree(NULL));
	MUST(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
	void *kernel = touching_kernel();
	MUST(cudaMemGetInfo(&before, &total));
	for (long i = 0; i < graphs; i++) {
		leave_work(kernel, size, stream);
		execs[i] = capture(kernel, size, stream);
	}
	for (long i = 0; i < graphs; i++)
		MUST(cudaGraphLaunch(execs[i], stream));
	MUST(cudaMemGetInfo(&after, &total));
	printf("%zu MiB in use\n", (before - after) / MIB);
	MUST(cudaStreamSynchronize(stream));
	for (long i = 0; i < graphs; i++)
		MUST(cudaGraphExecDestroy(execs[i]));
	MUST(cudaStreamDestroy(stream));
	puts("all right");
	return 0;
}
