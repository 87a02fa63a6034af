/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms for programs compiled with --default-stream per-thread: stream 0 is the calling thread's own.
 * X(name, suffix, parameters, call), where `call` passes the stream parameter through per_thread().
 */
#include "runtime_lookalike.h"

static void *per_thread(void *stream)
{
	return stream ? stream : (void *)2;
}

/* Asks for the entry point for the thread's stream, unless the program asks for the legacy one. */
static unsigned long long per_thread_entry(unsigned long long flags)
{
	return flags ? flags : TRZ_CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
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
	X(cudaGraphLaunch_ptsz, (void *g, void *s), cudaGraphLaunch(g, per_thread(s)))                          \
	X(cudaEventRecordWithFlags_ptsz, (void *e, void *s, unsigned f), cudaEventRecordWithFlags(e, per_thread(s), f)) \
	X(cudaGraphUpload_ptsz, (void *g, void *s), cudaGraphUpload(g, per_thread(s)))                          \
	X(cudaGraphInstantiateWithParams_ptsz, (void **g, void *t, struct cuda_instantiate *p),                 \
	  cudaGraphInstantiateWithParams(g, t, p))                                                              \
	X(cudaMallocFromPoolAsync_ptsz, (void **p, size_t n, void *o, void *s),                                 \
	  cudaMallocFromPoolAsync(p, n, o, per_thread(s)))                                                      \
	X(cudaMemcpy2DAsync_ptsz,                                                                               \
	  (void *t, size_t tp, const void *f, size_t fp, size_t w, size_t h, int k, void *s),                   \
	  cudaMemcpy2DAsync(t, tp, f, fp, w, h, k, per_thread(s)))                                              \
	X(cudaMemcpy3DAsync_ptsz, (const struct rt_copy_3d *c, void *s), cudaMemcpy3DAsync(c, per_thread(s)))   \
	X(cudaMemcpyToSymbolAsync_ptsz, (const void *t, const void *f, size_t n, size_t o, int k, void *s),     \
	  cudaMemcpyToSymbolAsync(t, f, n, o, k, per_thread(s)))                                                \
	X(cudaMemcpyFromSymbolAsync_ptsz, (void *t, const void *f, size_t n, size_t o, int k, void *s),         \
	  cudaMemcpyFromSymbolAsync(t, f, n, o, k, per_thread(s)))                                              \
	X(cudaMemset2DAsync_ptsz, (void *t, size_t p, int v, size_t w, size_t h, void *s),                      \
	  cudaMemset2DAsync(t, p, v, w, h, per_thread(s)))                                                      \
	X(cudaMemset3DAsync_ptsz, (struct rt_pitched t, int v, struct rt_extent e, void *s),                    \
	  cudaMemset3DAsync(t, v, e, per_thread(s)))                                                            \
	X(cudaStreamAddCallback_ptsz, (void *s, void (*f)(void *, int, void *), void *a, unsigned g),           \
	  cudaStreamAddCallback(per_thread(s), f, a, g))                                                        \
	X(cudaStreamAttachMemAsync_ptsz, (void *s, void *p, size_t n, unsigned f),                              \
	  cudaStreamAttachMemAsync(per_thread(s), p, n, f))                                                     \
	X(cudaStreamBeginCapture_ptsz, (void *s, int m), cudaStreamBeginCapture(per_thread(s), m))              \
	X(cudaStreamEndCapture_ptsz, (void *s, void **g), cudaStreamEndCapture(per_thread(s), g))               \
	X(cudaStreamGetDevice_ptsz, (void *s, int *d), cudaStreamGetDevice(per_thread(s), d))                   \
	X(cudaStreamGetFlags_ptsz, (void *s, unsigned *f), cudaStreamGetFlags(per_thread(s), f))                \
	X(cudaStreamGetId_ptsz, (void *s, unsigned long long *i), cudaStreamGetId(per_thread(s), i))            \
	X(cudaStreamGetPriority_ptsz, (void *s, int *p), cudaStreamGetPriority(per_thread(s), p))               \
	RT_THREAD_ARRAYS(X)                                                                                    \
	RT_THREAD_GRAPHS(X)                                                                                 \
	X(cudaGetDriverEntryPointByVersion_ptsz, (const char *n, void **f, unsigned v, unsigned long long o, int *s), \
	  cudaGetDriverEntryPointByVersion(n, f, v, per_thread_entry(o), s))                                    \
	PER_THREAD_OF_11(X)                                                                                     \
	PER_THREAD_VERSIONED(X)

/* Functions whose parameters differ between the majors: between 11 and 12, and between 12 and 13. */
#if RUNTIME_MAJOR < 12
#define PER_THREAD_OF_11(X)                                                                                 \
	X(cudaGetDriverEntryPoint_ptsz, (const char *n, void **f, unsigned long long o),                        \
	  cudaGetDriverEntryPoint(n, f, per_thread_entry(o)))
#else
#define PER_THREAD_OF_11(X)                                                                                 \
	X(cudaGetDriverEntryPoint_ptsz, (const char *n, void **f, unsigned long long o, int *s),                \
	  cudaGetDriverEntryPoint(n, f, per_thread_entry(o), s))
#endif
#if RUNTIME_MAJOR < 13
#define PER_THREAD_VERSIONED(X)                                                                             \
	X(cudaMemcpyBatchAsync_ptsz,                                                                            \
	  (void **t, void **f, size_t *n, size_t c, const void *a, size_t *i, size_t k, size_t *w, void *s),    \
	  cudaMemcpyBatchAsync(t, f, n, c, a, i, k, w, per_thread(s)))                                          \
	X(cudaMemPrefetchAsync_ptsz, (const void *p, size_t n, int d, void *s),                                 \
	  cudaMemPrefetchAsync(p, n, d, per_thread(s)))                                                         \
	X(cudaMemPrefetchAsync_v2_ptsz,                                                                         \
	  (const void *p, size_t n, struct cuda_mem_location l, unsigned f, void *s),                           \
	  cudaMemPrefetchAsync_v2(p, n, l, f, per_thread(s)))                                                   \
	X(cudaStreamGetCaptureInfo_ptsz, (void *s, int *c, unsigned long long *i),                              \
	  cudaStreamGetCaptureInfo(per_thread(s), c, i))                                                        \
	X(cudaStreamGetCaptureInfo_v2_ptsz,                                                                     \
	  (void *s, int *c, unsigned long long *i, void **g, void *const **d, size_t *n),                       \
	  cudaStreamGetCaptureInfo_v2(per_thread(s), c, i, g, d, n))                                            \
	X(cudaStreamGetCaptureInfo_v3_ptsz,                                                                     \
	  (void *s, int *c, unsigned long long *i, void **g, void *const **d, const struct cuda_edge **e, size_t *n), \
	  cudaStreamGetCaptureInfo_v3(per_thread(s), c, i, g, d, e, n))
#else
#define PER_THREAD_VERSIONED(X)                                                                             \
	X(cudaMemcpyBatchAsync_ptsz,                                                                            \
	  (void *const *t, const void *const *f, const size_t *n, size_t c, const void *a, const size_t *i, size_t k, \
	   void *s),                                                                                            \
	  cudaMemcpyBatchAsync(t, f, n, c, a, i, k, per_thread(s)))                                             \
	X(cudaMemPrefetchAsync_ptsz,                                                                            \
	  (const void *p, size_t n, struct cuda_mem_location l, unsigned f, void *s),                           \
	  cudaMemPrefetchAsync(p, n, l, f, per_thread(s)))                                                      \
	X(cudaStreamGetCaptureInfo_ptsz,                                                                        \
	  (void *s, int *c, unsigned long long *i, void **g, void *const **d, const struct cuda_edge **e, size_t *n), \
	  cudaStreamGetCaptureInfo(per_thread(s), c, i, g, d, e, n))
#endif

/* X(name_ptds, parameters, call): calls the asynchronous form on the thread's stream, and waits for the stream. */
#define PER_THREAD_WAITING_FORMS(X)                                                                         \
	X(cudaMemcpy_ptds, (void *t, const void *f, size_t n, int k), cudaMemcpyAsync(t, f, n, k, per_thread(NULL))) \
	X(cudaMemset_ptds, (void *t, int v, size_t n), cudaMemsetAsync(t, v, n, per_thread(NULL)))              \
	X(cudaMemcpy2D_ptds, (void *t, size_t tp, const void *f, size_t fp, size_t w, size_t h, int k),         \
	  cudaMemcpy2DAsync(t, tp, f, fp, w, h, k, per_thread(NULL)))                                           \
	X(cudaMemcpy3D_ptds, (const struct rt_copy_3d *c), cudaMemcpy3DAsync(c, per_thread(NULL)))              \
	X(cudaMemcpyToSymbol_ptds, (const void *t, const void *f, size_t n, size_t o, int k),                   \
	  cudaMemcpyToSymbolAsync(t, f, n, o, k, per_thread(NULL)))                                             \
	X(cudaMemcpyFromSymbol_ptds, (void *t, const void *f, size_t n, size_t o, int k),                       \
	  cudaMemcpyFromSymbolAsync(t, f, n, o, k, per_thread(NULL)))                                           \
	X(cudaMemset2D_ptds, (void *t, size_t p, int v, size_t w, size_t h),                                    \
	  cudaMemset2DAsync(t, p, v, w, h, per_thread(NULL)))                                                   \
	X(cudaMemset3D_ptds, (struct rt_pitched t, int v, struct rt_extent e),                                  \
	  cudaMemset3DAsync(t, v, e, per_thread(NULL)))                                                         \
	RT_THREAD_WAITING_ARRAYS(X)

#define PER_THREAD_FORM(name, parameters, call) \
	LOOKALIKE_API cuda_error name parameters;   \
	cuda_error name parameters                  \
	{                                           \
		return call;                            \
	}
PER_THREAD_FORMS(PER_THREAD_FORM)

#define PER_THREAD_WAITING_FORM(name, parameters, call)                      \
	LOOKALIKE_API cuda_error name parameters;                                \
	cuda_error name parameters                                               \
	{                                                                        \
		cuda_error error = call;                                             \
		return error ? error : cudaStreamSynchronize(per_thread(NULL));      \
	}
PER_THREAD_WAITING_FORMS(PER_THREAD_WAITING_FORM)

cuda_error __cudaLaunchKernel_ptsz(void *kernel, struct rt_dim3 grid, struct rt_dim3 block, void **arguments,
                                   size_t shared, void *stream)
{
	return __cudaLaunchKernel(kernel, grid, block, arguments, shared, per_thread(stream));
}

LOOKALIKE_API cuda_error cudaLaunchKernelExC_ptsz(const struct rt_launch *config, const void *symbol, void **arguments);

cuda_error cudaLaunchKernelExC_ptsz(const struct rt_launch *config, const void *symbol, void **arguments)
{
	if (!config)
		return rt_result(RT_INVALID_VALUE);
	struct rt_launch own = *config;
	own.stream = per_thread(config->stream);
	return cudaLaunchKernelExC(&own, symbol, arguments);
}
