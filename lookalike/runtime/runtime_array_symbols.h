/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime's functions for arrays, textures and surfaces. The lists have the form of those in
 * runtime_symbols.h and runtime_thread.c.
 */
#ifndef RUNTIME_ARRAY_SYMBOLS_H
#define RUNTIME_ARRAY_SYMBOLS_H

#define LOOKALIKE_RUNTIME_ARRAYS(X)                                                                         \
	X(cudaMallocArray, (void **, const struct rt_channel *, size_t, size_t, unsigned))                      \
	X(cudaMalloc3DArray, (void **, const struct rt_channel *, struct rt_extent, unsigned))                  \
	X(cudaFreeArray, (void *))                                                                              \
	X(cudaArrayGetInfo, (struct rt_channel *, struct rt_extent *, unsigned *, void *))                      \
	X(cudaGetChannelDesc, (struct rt_channel *, void *))                                                    \
	X(cudaArrayGetMemoryRequirements, (struct cuda_array_need *, void *, int))                              \
	X(cudaDeviceGetTexture1DLinearMaxWidth, (size_t *, const struct rt_channel *, int))                     \
	X(cudaMallocMipmappedArray, (void **, const struct rt_channel *, struct rt_extent, unsigned, unsigned)) \
	X(cudaFreeMipmappedArray, (void *))                                                                     \
	X(cudaGetMipmappedArrayLevel, (void **, void *, unsigned))                                              \
	X(cudaMipmappedArrayGetMemoryRequirements, (struct cuda_array_need *, void *, int))                     \
	X(cudaCreateTextureObject,                                                                              \
	  (uint64_t *, const struct cuda_resource *, const struct rt_texture *, const struct rt_view *))        \
	X(cudaDestroyTextureObject, (uint64_t))                                                                 \
	X(cudaGetTextureObjectResourceDesc, (struct cuda_resource *, uint64_t))                                 \
	X(cudaGetTextureObjectTextureDesc, (struct rt_texture *, uint64_t))                                     \
	X(cudaGetTextureObjectResourceViewDesc, (struct rt_view *, uint64_t))                                   \
	X(cudaCreateSurfaceObject, (uint64_t *, const struct cuda_resource *))                                  \
	X(cudaDestroySurfaceObject, (uint64_t))                                                                 \
	X(cudaGetSurfaceObjectResourceDesc, (struct cuda_resource *, uint64_t))                                 \
	X(cudaMemcpyToArray, (void *, size_t, size_t, const void *, size_t, int))                               \
	X(cudaMemcpyToArrayAsync, (void *, size_t, size_t, const void *, size_t, int, void *))                  \
	X(cudaMemcpyFromArray, (void *, void *, size_t, size_t, size_t, int))                                   \
	X(cudaMemcpyFromArrayAsync, (void *, void *, size_t, size_t, size_t, int, void *))                      \
	X(cudaMemcpyArrayToArray, (void *, size_t, size_t, void *, size_t, size_t, size_t, int))                \
	X(cudaMemcpy2DToArray, (void *, size_t, size_t, const void *, size_t, size_t, size_t, int))             \
	X(cudaMemcpy2DToArrayAsync, (void *, size_t, size_t, const void *, size_t, size_t, size_t, int, void *)) \
	X(cudaMemcpy2DFromArray, (void *, size_t, void *, size_t, size_t, size_t, size_t, int))                 \
	X(cudaMemcpy2DFromArrayAsync, (void *, size_t, void *, size_t, size_t, size_t, size_t, int, void *))    \
	X(cudaMemcpy2DArrayToArray, (void *, size_t, size_t, void *, size_t, size_t, size_t, size_t, int))      \
	X(cudaMemcpy3DPeer, (const struct rt_copy_peer *))                                                      \
	X(cudaMemcpy3DPeerAsync, (const struct rt_copy_peer *, void *))

#define RT_THREAD_ARRAYS(X)                                                                                \
	X(cudaMemcpyToArrayAsync_ptsz, (void *a, size_t x, size_t y, const void *f, size_t n, int k, void *s),  \
	  cudaMemcpyToArrayAsync(a, x, y, f, n, k, per_thread(s)))                                              \
	X(cudaMemcpyFromArrayAsync_ptsz, (void *t, void *a, size_t x, size_t y, size_t n, int k, void *s),      \
	  cudaMemcpyFromArrayAsync(t, a, x, y, n, k, per_thread(s)))                                            \
	X(cudaMemcpy2DToArrayAsync_ptsz,                                                                        \
	  (void *a, size_t x, size_t y, const void *f, size_t p, size_t w, size_t h, int k, void *s),           \
	  cudaMemcpy2DToArrayAsync(a, x, y, f, p, w, h, k, per_thread(s)))                                      \
	X(cudaMemcpy2DFromArrayAsync_ptsz,                                                                      \
	  (void *t, size_t p, void *a, size_t x, size_t y, size_t w, size_t h, int k, void *s),                 \
	  cudaMemcpy2DFromArrayAsync(t, p, a, x, y, w, h, k, per_thread(s)))                                    \
	X(cudaMemcpy3DPeerAsync_ptsz, (const struct rt_copy_peer *c, void *s), cudaMemcpy3DPeerAsync(c, per_thread(s)))

/* Copies between arrays run on the legacy default stream, which waits for the thread's. */
#define RT_THREAD_WAITING_ARRAYS(X)                                                                        \
	X(cudaMemcpyToArray_ptds, (void *a, size_t x, size_t y, const void *f, size_t n, int k),                \
	  cudaMemcpyToArrayAsync(a, x, y, f, n, k, per_thread(NULL)))                                           \
	X(cudaMemcpyFromArray_ptds, (void *t, void *a, size_t x, size_t y, size_t n, int k),                    \
	  cudaMemcpyFromArrayAsync(t, a, x, y, n, k, per_thread(NULL)))                                         \
	X(cudaMemcpyArrayToArray_ptds,                                                                          \
	  (void *t, size_t tx, size_t ty, void *f, size_t fx, size_t fy, size_t n, int k),                      \
	  cudaMemcpyArrayToArray(t, tx, ty, f, fx, fy, n, k))                                                   \
	X(cudaMemcpy2DToArray_ptds,                                                                             \
	  (void *a, size_t x, size_t y, const void *f, size_t p, size_t w, size_t h, int k),                    \
	  cudaMemcpy2DToArrayAsync(a, x, y, f, p, w, h, k, per_thread(NULL)))                                   \
	X(cudaMemcpy2DFromArray_ptds, (void *t, size_t p, void *a, size_t x, size_t y, size_t w, size_t h, int k), \
	  cudaMemcpy2DFromArrayAsync(t, p, a, x, y, w, h, k, per_thread(NULL)))                                 \
	X(cudaMemcpy2DArrayToArray_ptds,                                                                        \
	  (void *t, size_t tx, size_t ty, void *f, size_t fx, size_t fy, size_t w, size_t h, int k),            \
	  cudaMemcpy2DArrayToArray(t, tx, ty, f, fx, fy, w, h, k))                                              \
	X(cudaMemcpy3DPeer_ptds, (const struct rt_copy_peer *c), cudaMemcpy3DPeerAsync(c, per_thread(NULL)))

#endif
