/* SPDX-License-Identifier: Apache-2.0
 *
 * The forms of functions that use the thread's own stream if the call names none, for programs compiled with
 * --default-stream per-thread.
 */
#ifndef DRIVER_PER_THREAD_H
#define DRIVER_PER_THREAD_H

#include "driver_symbols.h"

/* X(function, parameters, arguments): its form `function`_ptsz. */
#define PER_THREAD_FORMS(X)                                                                                     \
	X(cuEventRecord, (void *a, void *s), (a, of_thread(s)))                                                     \
	X(cuEventRecordWithFlags, (void *a, void *s, unsigned c), (a, of_thread(s), c))                             \
	X(cuGraphInstantiateWithParams, (void **a, void *b, struct cuda_instantiate *c), (a, b, c))                 \
	X(cuGraphLaunch, (void *a, void *s), (a, of_thread(s)))                                                     \
	X(cuGraphUpload, (void *a, void *s), (a, of_thread(s)))                                                     \
	X(cuLaunchCooperativeKernel,                                                                                \
	  (void *a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g, unsigned h, void *s,    \
	   void **j),                                                                                               \
	  (a, b, c, d, e, f, g, h, of_thread(s), j))                                                                \
	X(cuLaunchHostFunc, (void *s, cuda_function *b, void *c), (of_thread(s), b, c))                             \
	X(cuLaunchHostFunc_v2, (void *s, cuda_function *b, void *c, unsigned d), (of_thread(s), b, c, d))           \
	X(cuLaunchKernel,                                                                                           \
	  (void *a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g, unsigned h, void *s,    \
	   void **j, void **k),                                                                                     \
	  (a, b, c, d, e, f, g, h, of_thread(s), j, k))                                                             \
	X(cuMemAllocAsync, (cuda_addr *a, size_t b, void *s), (a, b, of_thread(s)))                                 \
	X(cuMemAllocFromPoolAsync, (cuda_addr *a, size_t b, void *c, void *s), (a, b, c, of_thread(s)))             \
	X(cuMemFreeAsync, (cuda_addr a, void *s), (a, of_thread(s)))                                                \
	X(cuMemPrefetchAsync, (cuda_addr a, size_t b, cuda_device c, void *s), (a, b, c, of_thread(s)))             \
	X(cuMemPrefetchAsync_v2, (cuda_addr a, size_t b, struct cuda_mem_location c, unsigned d, void *s),          \
	  (a, b, c, d, of_thread(s)))                                                                               \
	X(cuMemcpyAsync, (cuda_addr a, cuda_addr b, size_t c, void *s), (a, b, c, of_thread(s)))                    \
	X(cuMemcpyDtoDAsync_v2, (cuda_addr a, cuda_addr b, size_t c, void *s), (a, b, c, of_thread(s)))             \
	X(cuMemcpyDtoHAsync_v2, (void *a, cuda_addr b, size_t c, void *s), (a, b, c, of_thread(s)))                 \
	X(cuMemcpyHtoDAsync_v2, (cuda_addr a, const void *b, size_t c, void *s), (a, b, c, of_thread(s)))           \
	X(cuMemcpyPeerAsync, (cuda_addr a, void *b, cuda_addr c, void *d, size_t e, void *s),                       \
	  (a, b, c, d, e, of_thread(s)))                                                                            \
	X(cuMemsetD16Async, (cuda_addr a, unsigned short b, size_t c, void *s), (a, b, c, of_thread(s)))            \
	X(cuMemsetD32Async, (cuda_addr a, unsigned b, size_t c, void *s), (a, b, c, of_thread(s)))                  \
	X(cuMemsetD8Async, (cuda_addr a, unsigned char b, size_t c, void *s), (a, b, c, of_thread(s)))              \
	X(cuStreamAddCallback, (void *s, void (*b)(void *, cuda_result, void *), void *c, unsigned d),              \
	  (of_thread(s), b, c, d))                                                                                  \
	X(cuStreamBeginCapture, (void *s), (of_thread(s)))                                                          \
	X(cuStreamBeginCapture_v2, (void *s, int b), (of_thread(s), b))                                             \
	X(cuStreamEndCapture, (void *s, void **b), (of_thread(s), b))                                               \
	X(cuStreamGetCaptureInfo, (void *s, int *b, uint64_t *c), (of_thread(s), b, c))                             \
	X(cuStreamGetCaptureInfo_v2, (void *s, int *b, uint64_t *c, void **d, void *const **e, size_t *f),          \
	  (of_thread(s), b, c, d, e, f))                                                                            \
	X(cuStreamGetCaptureInfo_v3,                                                                                \
	  (void *s, int *b, uint64_t *c, void **d, void *const **e, const struct cuda_edge **f, size_t *g),         \
	  (of_thread(s), b, c, d, e, f, g))                                                                         \
	X(cuStreamGetCtx, (void *s, void **b), (of_thread(s), b))                                                   \
	X(cuStreamGetCtx_v2, (void *s, void **b, void **c), (of_thread(s), b, c))                                   \
	X(cuStreamGetDevice, (void *s, cuda_device *b), (of_thread(s), b))                                          \
	X(cuStreamGetFlags, (void *s, unsigned *b), (of_thread(s), b))                                              \
	X(cuStreamGetId, (void *s, uint64_t *b), (of_thread(s), b))                                                 \
	X(cuStreamGetPriority, (void *s, int *b), (of_thread(s), b))                                                \
	X(cuStreamIsCapturing, (void *s, int *b), (of_thread(s), b))                                                \
	X(cuStreamQuery, (void *s), (of_thread(s)))                                                                 \
	X(cuStreamSynchronize, (void *s), (of_thread(s)))                                                           \
	X(cuStreamWaitEvent, (void *s, void *b, unsigned c), (of_thread(s), b, c))                                  \
	X(cuStreamBatchMemOp, (void *s, unsigned b, const struct cuda_mem_op *c, unsigned d),                       \
	  (of_thread(s), b, c, d))                                                                                  \
	X(cuStreamBatchMemOp_v2, (void *s, unsigned b, const struct cuda_mem_op *c, unsigned d),                    \
	  (of_thread(s), b, c, d))                                                                                  \
	X(cuStreamWaitValue32, (void *s, cuda_addr b, uint32_t c, unsigned d), (of_thread(s), b, c, d))             \
	X(cuStreamWaitValue32_v2, (void *s, cuda_addr b, uint32_t c, unsigned d), (of_thread(s), b, c, d))          \
	X(cuStreamWaitValue64, (void *s, cuda_addr b, uint64_t c, unsigned d), (of_thread(s), b, c, d))             \
	X(cuStreamWaitValue64_v2, (void *s, cuda_addr b, uint64_t c, unsigned d), (of_thread(s), b, c, d))          \
	X(cuStreamWriteValue32, (void *s, cuda_addr b, uint32_t c, unsigned d), (of_thread(s), b, c, d))            \
	X(cuStreamWriteValue32_v2, (void *s, cuda_addr b, uint32_t c, unsigned d), (of_thread(s), b, c, d))         \
	X(cuStreamWriteValue64, (void *s, cuda_addr b, uint64_t c, unsigned d), (of_thread(s), b, c, d))            \
	X(cuStreamWriteValue64_v2, (void *s, cuda_addr b, uint64_t c, unsigned d), (of_thread(s), b, c, d))           \
	PER_THREAD_ARRAYS(X)                                                                                           \
	PER_THREAD_GRAPHS(X)

/* For functions that wait: X(function, parameters, the call that does not wait), its form `function`_ptds. */
#define PER_THREAD_WAITING_FORMS(X)                                                                             \
	X(cuMemcpy, (cuda_addr a, cuda_addr b, size_t c), cuMemcpyAsync(a, b, c, OF_THREAD))                        \
	X(cuMemcpyDtoD_v2, (cuda_addr a, cuda_addr b, size_t c), cuMemcpyDtoDAsync_v2(a, b, c, OF_THREAD))          \
	X(cuMemcpyDtoH_v2, (void *a, cuda_addr b, size_t c), cuMemcpyDtoHAsync_v2(a, b, c, OF_THREAD))              \
	X(cuMemcpyHtoD_v2, (cuda_addr a, const void *b, size_t c), cuMemcpyHtoDAsync_v2(a, b, c, OF_THREAD))        \
	X(cuMemcpyPeer,                                                                                             \
	  (cuda_addr a, void *b, cuda_addr c, void *d, size_t e), cuMemcpyPeerAsync(a, b, c, d, e, OF_THREAD))      \
	X(cuMemsetD16_v2, (cuda_addr a, unsigned short b, size_t c), cuMemsetD16Async(a, b, c, OF_THREAD))          \
	X(cuMemsetD32_v2, (cuda_addr a, unsigned b, size_t c), cuMemsetD32Async(a, b, c, OF_THREAD))                \
	X(cuMemsetD8_v2, (cuda_addr a, unsigned char b, size_t c), cuMemsetD8Async(a, b, c, OF_THREAD))           \
	PER_THREAD_WAITING_ARRAYS(X)

#define X(name, parameters, arguments) __attribute__((visibility("default"))) cuda_result name##_ptsz parameters;
PER_THREAD_FORMS(X)
#undef X
#define X(name, parameters, call) __attribute__((visibility("default"))) cuda_result name##_ptds parameters;
PER_THREAD_WAITING_FORMS(X)
#undef X
__attribute__((visibility("default"))) cuda_result cuLaunchKernelEx_ptsz(const struct cuda_launch *launch, void *f,
                                                                         void **parameters, void **extra);

#endif
