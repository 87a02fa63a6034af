/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms that programs call which were compiled with --default-stream per-thread: stream 0 is the calling
 * thread's own. X(name, suffix, parameters, call), where `call` names the stream parameter by per_thread().
 */
#include "runtime_lookalike.h"

static void *per_thread(void *stream)
{
	return stream ? stream : (void *)2;
}

LOOKALIKE_API cuda_error __cudaLaunchKernel_ptsz(void *kernel, struct rt_dim3 grid, struct rt_dim3 block,
                                                 void **arguments, size_t shared, void *stream);
LOOKALIKE_API cuda_error __cudaLaunchKernel(void *kernel, struct rt_dim3 grid, struct rt_dim3 block, void **arguments,
                                            size_t shared, void *stream);

#define PER_THREAD_FORMS(X)                                                                                 \
	X(cudaLaunchKernel_ptsz,                                                                                \
	  (const void *f, struct rt_dim3 g, struct rt_dim3 b, void **a, size_t n, void *s),                     \
	  cudaLaunchKernel(f, g, b, a, n, per_thread(s)))                                                       \
	X(cudaLaunchCooperativeKernel_ptsz,                                                                     \
	  (const void *f, struct rt_dim3 g, struct rt_dim3 b, void **a, size_t n, void *s),                     \
	  cudaLaunchCooperativeKernel(f, g, b, a, n, per_thread(s)))                                            \
	X(cudaLaunchHostFunc_ptsz, (void *s, rt_host_function *f, void *a), cudaLaunchHostFunc(per_thread(s), f, a)) \
	X(cudaMemcpyAsync_ptsz, (void *t, const void *f, size_t n, int k, void *s),                             \
	  cudaMemcpyAsync(t, f, n, k, per_thread(s)))                                                           \
	X(cudaMemsetAsync_ptsz, (void *t, int v, size_t n, void *s), cudaMemsetAsync(t, v, n, per_thread(s)))   \
	X(cudaMallocAsync_ptsz, (void **p, size_t n, void *s), cudaMallocAsync(p, n, per_thread(s)))            \
	X(cudaFreeAsync_ptsz, (void *p, void *s), cudaFreeAsync(p, per_thread(s)))                              \
	X(cudaStreamSynchronize_ptsz, (void *s), cudaStreamSynchronize(per_thread(s)))                          \
	X(cudaStreamQuery_ptsz, (void *s), cudaStreamQuery(per_thread(s)))                                      \
	X(cudaStreamWaitEvent_ptsz, (void *s, void *e, unsigned f), cudaStreamWaitEvent(per_thread(s), e, f))   \
	X(cudaStreamIsCapturing_ptsz, (void *s, int *c), cudaStreamIsCapturing(per_thread(s), c))               \
	X(cudaEventRecord_ptsz, (void *e, void *s), cudaEventRecord(e, per_thread(s)))                          \
	X(cudaGraphLaunch_ptsz, (void *g, void *s), cudaGraphLaunch(g, per_thread(s)))

#define PER_THREAD_FORM(name, parameters, call) \
	LOOKALIKE_API cuda_error name parameters;   \
	cuda_error name parameters                  \
	{                                           \
		return call;                            \
	}
PER_THREAD_FORMS(PER_THREAD_FORM)

cuda_error __cudaLaunchKernel_ptsz(void *kernel, struct rt_dim3 grid, struct rt_dim3 block, void **arguments,
                                   size_t shared, void *stream)
{
	return __cudaLaunchKernel(kernel, grid, block, arguments, shared, per_thread(stream));
}

LOOKALIKE_API cuda_error cudaLaunchKernelExC_ptsz(const struct rt_launch *config, const void *symbol, void **arguments);
LOOKALIKE_API cuda_error cudaMemcpy_ptds(void *to, const void *from, size_t size, int kind);
LOOKALIKE_API cuda_error cudaMemset_ptds(void *to, int value, size_t size);

cuda_error cudaLaunchKernelExC_ptsz(const struct rt_launch *config, const void *symbol, void **arguments)
{
	struct rt_launch own = *config;
	own.stream = per_thread(config->stream);
	return cudaLaunchKernelExC(&own, symbol, arguments);
}

cuda_error cudaMemcpy_ptds(void *to, const void *from, size_t size, int kind)
{
	cuda_error error = cudaMemcpyAsync(to, from, size, kind, per_thread(NULL));
	return error ? error : cudaStreamSynchronize(per_thread(NULL));
}

cuda_error cudaMemset_ptds(void *to, int value, size_t size)
{
	cuda_error error = cudaMemsetAsync(to, value, size, per_thread(NULL));
	return error ? error : cudaStreamSynchronize(per_thread(NULL));
}
