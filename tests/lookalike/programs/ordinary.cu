/* SPDX-License-Identifier: Apache-2.0
 *
 * An ordinary CUDA program for test_lookalike_nvcc.py: allocation, streams, events, copies, graphs, variables, textures.
 * Prints "all right" and ends with 0 if every call succeeds and every copy comes back as it must.
 */
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define MUST(call)                                                                                  \
	do {                                                                                            \
		cudaError_t error = (call);                                                                 \
		if (error != cudaSuccess) {                                                                 \
			std::printf("%s:%d: %s: %s\n", #call, __LINE__, cudaGetErrorName(error),                \
			            cudaGetErrorString(error));                                                 \
			std::exit(1);                                                                           \
		}                                                                                           \
	} while (0)
#define EXPECT(condition)                                      \
	do {                                                       \
		if (!(condition)) {                                    \
			std::printf("%d: %s\n", __LINE__, #condition);     \
			std::exit(1);                                      \
		}                                                      \
	} while (0)

__device__ int numbers[8] = {1, 1, 2, 3, 5, 8, 13, 21};
__constant__ float factor[8];
__managed__ int counter = 41, many[100];

struct pair {
	const float *from;
	float *to;
};

__global__ void scale(pair p, int n, float by)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		p.to[i] = p.from[i] * by * factor[0];
}

static void graph_copies(cudaStream_t stream, float *device, float *pinned, int n)
{
	cudaGraph_t graph;
	cudaGraphExec_t instance;
	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	MUST(cudaMemcpyAsync(device, pinned, n * sizeof(float), cudaMemcpyHostToDevice, stream));
	scale<<<n / 256, 256, 0, stream>>>(pair{device, device}, n, 2.0f);
	MUST(cudaGetLastError());
	MUST(cudaMemcpyAsync(pinned + n, device, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
	MUST(cudaStreamEndCapture(stream, &graph));
	MUST(cudaGraphInstantiate(&instance, graph, 0));
	for (int round = 1; round < 4; round++) {
		for (int i = 0; i < n; i++)
			pinned[i] = (float)(i * round);
		MUST(cudaGraphLaunch(instance, stream));
		MUST(cudaStreamSynchronize(stream));
		for (int i = 0; i < n; i++)
			EXPECT(pinned[n + i] == (float)(i * round));
	}
	size_t nodes = 0;
	MUST(cudaGraphGetNodes(graph, nullptr, &nodes));
	EXPECT(nodes == 3);
	MUST(cudaGraphExecDestroy(instance));
	MUST(cudaGraphDestroy(graph));
}

static void built_graph(float *device, int n)
{
	cudaGraph_t graph;
	cudaGraphExec_t instance;
	cudaGraphNode_t scaled, read, set;
	pair p{device, device};
	float by = 2, constants[8] = {7, 7, 7, 7, 7, 7, 7, 7}, got[8];
	std::vector<float> host(n);
	void *arguments[] = {&p, &n, &by};
	cudaKernelNodeParams kernel{}, told{};
	kernel.func = (void *)scale;
	kernel.gridDim = dim3(n / 256);
	kernel.blockDim = dim3(256);
	kernel.kernelParams = arguments;
	MUST(cudaGraphCreate(&graph, 0));
	MUST(cudaGraphAddKernelNode(&scaled, graph, nullptr, 0, &kernel));
	MUST(cudaGraphAddMemcpyNode1D(&read, graph, &scaled, 1, host.data(), device, n * sizeof(float),
	                              cudaMemcpyDeviceToHost));
	MUST(cudaGraphAddMemcpyNodeToSymbol(&set, graph, &read, 1, factor, constants, sizeof constants, 0,
	                                    cudaMemcpyHostToDevice));
	MUST(cudaGraphKernelNodeGetParams(scaled, &told));
	EXPECT(told.func == (void *)scale && told.gridDim.x == kernel.gridDim.x);
	EXPECT(*(float *)told.kernelParams[2] == 2 && ((pair *)told.kernelParams[0])->to == device);
	MUST(cudaGraphInstantiate(&instance, graph, 0));
	by = 3;
	MUST(cudaGraphExecKernelNodeSetParams(instance, scaled, &kernel));
	MUST(cudaMemset(device, 0, n * sizeof(float)));
	host[n - 1] = 1;
	MUST(cudaGraphLaunch(instance, nullptr));
	MUST(cudaDeviceSynchronize());
	EXPECT(host[n - 1] == 0);
	MUST(cudaMemcpyFromSymbol(got, factor, sizeof got));
	EXPECT(got[7] == 7);
	MUST(cudaGraphExecDestroy(instance));
	MUST(cudaGraphDestroy(graph));
}

static void textures()
{
	cudaArray_t array;
	cudaTextureObject_t texture;
	cudaResourceDesc resource{};
	cudaTextureDesc description{};
	std::vector<float> data(64 * 32), back(64 * 32);
	for (size_t i = 0; i < data.size(); i++)
		data[i] = (float)i;
	cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
	MUST(cudaMallocArray(&array, &channel, 64, 32));
	MUST(cudaMemcpy2DToArray(array, 0, 0, data.data(), 256, 256, 32, cudaMemcpyHostToDevice));
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = array;
	MUST(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
	MUST(cudaMemcpy2DFromArray(back.data(), 256, array, 0, 0, 256, 32, cudaMemcpyDeviceToHost));
	EXPECT(back == data);
	MUST(cudaDestroyTextureObject(texture));
	MUST(cudaFreeArray(array));
}

static void managed_variables()
{
	cudaPointerAttributes attributes;
	counter++;
	many[99] = 3;
	EXPECT(counter == 42 && many[99] == 3 && many[0] == 0);
	MUST(cudaMemset(&many[98], 1, 2 * sizeof many[0]));
	MUST(cudaDeviceSynchronize());
	EXPECT(many[99] == 0x01010101);
	MUST(cudaPointerGetAttributes(&attributes, &counter));
	EXPECT(attributes.type == cudaMemoryTypeManaged);
}

static void variables()
{
	int seen[8];
	float set[8] = {2, 4, 6, 8}, got[8];
	size_t size = 0;
	MUST(cudaMemcpyFromSymbol(seen, numbers, sizeof seen));
	EXPECT(seen[0] == 1 && seen[7] == 21);
	MUST(cudaMemcpyToSymbol(factor, set, sizeof set));
	MUST(cudaMemcpyFromSymbol(got, factor, sizeof got));
	EXPECT(got[3] == 8);
	MUST(cudaGetSymbolSize(&size, numbers));
	EXPECT(size == sizeof seen);
}

static void kernels()
{
	cudaFuncAttributes attributes;
	int blocks = 0, grid = 0, block = 0;
	MUST(cudaFuncGetAttributes(&attributes, scale));
	EXPECT(attributes.maxThreadsPerBlock == 1024);
	MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, scale, 256, 0));
	EXPECT(blocks >= 1 && blocks <= 8);
	MUST(cudaOccupancyMaxPotentialBlockSize(&grid, &block, scale, 0, 0));
	EXPECT(grid > 0 && block > 0 && block % 32 == 0);
}

int main()
{
	const int n = 1 << 16;
	float *device, *pinned;
	cudaStream_t stream, other;
	cudaEvent_t start, end;
	MUST(cudaSetDevice(0));
	MUST(cudaMalloc(&device, n * sizeof(float)));
	MUST(cudaMallocHost(&pinned, 2 * n * sizeof(float)));
	MUST(cudaStreamCreate(&stream));
	MUST(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	MUST(cudaEventCreate(&start));
	MUST(cudaEventCreate(&end));
	graph_copies(stream, device, pinned, n);
	std::vector<float> pageable(n);
	MUST(cudaEventRecord(start, stream));
	MUST(cudaMemsetAsync(device, 0, n * sizeof(float), stream));
	scale<<<n / 256, 256, 0, stream>>>(pair{device, device}, n, 3.0f);
	MUST(cudaEventRecord(end, stream));
	MUST(cudaStreamWaitEvent(other, end, 0));
	MUST(cudaMemcpyAsync(pageable.data(), device, n * sizeof(float), cudaMemcpyDeviceToHost, other));
	MUST(cudaStreamSynchronize(other));
	for (float value : pageable)
		EXPECT(value == 0);
	float ms = -1;
	MUST(cudaEventElapsedTime(&ms, start, end));
	EXPECT(ms > 0);
	variables();
	kernels();
	built_graph(device, n);
	textures();
	managed_variables();
	MUST(cudaFree(device));
	MUST(cudaFreeHost(pinned));
	MUST(cudaDeviceSynchronize());
	std::puts("all right");
	return 0;
}
