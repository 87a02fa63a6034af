/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's functions for arrays, textures, and copies and fills of rows. The lists have the form of those in
 * driver_symbols.h and driver_per_thread.h.
 */
#ifndef DRIVER_ARRAY_SYMBOLS_H
#define DRIVER_ARRAY_SYMBOLS_H

#define LOOKALIKE_DRIVER_ARRAYS(X)                                                                          \
	X(cuArrayCreate, cuArrayCreate_v2, 3020, (void **, const struct cuda_array_2d *))                       \
	X(cuArray3DCreate, cuArray3DCreate_v2, 3020, (void **, const struct cuda_array_3d *))                   \
	X(cuArrayDestroy, cuArrayDestroy, 2000, (void *))                                                       \
	X(cuArrayGetDescriptor, cuArrayGetDescriptor_v2, 3020, (struct cuda_array_2d *, void *))                \
	X(cuArray3DGetDescriptor, cuArray3DGetDescriptor_v2, 3020, (struct cuda_array_3d *, void *))            \
	X(cuArrayGetMemoryRequirements, cuArrayGetMemoryRequirements, 11060,                                    \
	  (struct cuda_array_need *, void *, cuda_device))                                                      \
	X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, (void **, const struct cuda_array_3d *, unsigned)) \
	X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (void *))                                     \
	X(cuMipmappedArrayGetLevel, cuMipmappedArrayGetLevel, 5000, (void **, void *, unsigned))                \
	X(cuMipmappedArrayGetMemoryRequirements, cuMipmappedArrayGetMemoryRequirements, 11060,                  \
	  (struct cuda_array_need *, void *, cuda_device))                                                      \
	X(cuTexObjectCreate, cuTexObjectCreate, 5000,                                                           \
	  (uint64_t *, const struct cuda_resource *, const struct cuda_texture *, const struct cuda_view *))    \
	X(cuTexObjectDestroy, cuTexObjectDestroy, 5000, (uint64_t))                                             \
	X(cuTexObjectGetResourceDesc, cuTexObjectGetResourceDesc, 5000, (struct cuda_resource *, uint64_t))     \
	X(cuTexObjectGetTextureDesc, cuTexObjectGetTextureDesc, 5000, (struct cuda_texture *, uint64_t))        \
	X(cuTexObjectGetResourceViewDesc, cuTexObjectGetResourceViewDesc, 5000, (struct cuda_view *, uint64_t)) \
	X(cuSurfObjectCreate, cuSurfObjectCreate, 5000, (uint64_t *, const struct cuda_resource *))             \
	X(cuSurfObjectDestroy, cuSurfObjectDestroy, 5000, (uint64_t))                                           \
	X(cuSurfObjectGetResourceDesc, cuSurfObjectGetResourceDesc, 5000, (struct cuda_resource *, uint64_t))   \
	X(cuDeviceGetTexture1DLinearMaxWidth, cuDeviceGetTexture1DLinearMaxWidth, 11010,                        \
	  (size_t *, int, unsigned, cuda_device))                                                               \
	X(cuMemcpy2D, cuMemcpy2D_v2, 3020, (const struct cuda_copy_2d *))                                       \
	X(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, 3020, (const struct cuda_copy_2d *))                     \
	X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, 3020, (const struct cuda_copy_2d *, void *))                     \
	X(cuMemcpy3D, cuMemcpy3D_v2, 3020, (const struct cuda_copy_3d *))                                       \
	X(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, 3020, (const struct cuda_copy_3d *, void *))                     \
	X(cuMemcpy3DPeer, cuMemcpy3DPeer, 4000, (const struct cuda_copy_3d *))                                  \
	X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000, (const struct cuda_copy_3d *, void *))                \
	X(cuMemcpyAtoA, cuMemcpyAtoA_v2, 3020, (void *, size_t, void *, size_t, size_t))                        \
	X(cuMemcpyAtoD, cuMemcpyAtoD_v2, 3020, (cuda_addr, void *, size_t, size_t))                             \
	X(cuMemcpyDtoA, cuMemcpyDtoA_v2, 3020, (void *, size_t, cuda_addr, size_t))                             \
	X(cuMemcpyAtoH, cuMemcpyAtoH_v2, 3020, (void *, void *, size_t, size_t))                                \
	X(cuMemcpyAtoHAsync, cuMemcpyAtoHAsync_v2, 3020, (void *, void *, size_t, size_t, void *))              \
	X(cuMemcpyHtoA, cuMemcpyHtoA_v2, 3020, (void *, size_t, const void *, size_t))                          \
	X(cuMemcpyHtoAAsync, cuMemcpyHtoAAsync_v2, 3020, (void *, size_t, const void *, size_t, void *))        \
	X(cuMemcpyBatchAsync, cuMemcpyBatchAsync, 12080,                                                        \
	  (const cuda_addr *, const cuda_addr *, const size_t *, size_t, const void *, const size_t *, size_t,  \
	   size_t *, void *))                                                                                   \
	X(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, 13000,                                                     \
	  (const cuda_addr *, const cuda_addr *, const size_t *, size_t, const void *, const size_t *, size_t,  \
	   void *))                                                                                             \
	X(cuMemsetD2D8, cuMemsetD2D8_v2, 3020, (cuda_addr, size_t, unsigned char, size_t, size_t))              \
	X(cuMemsetD2D16, cuMemsetD2D16_v2, 3020, (cuda_addr, size_t, unsigned short, size_t, size_t))           \
	X(cuMemsetD2D32, cuMemsetD2D32_v2, 3020, (cuda_addr, size_t, unsigned, size_t, size_t))                 \
	X(cuMemsetD2D8Async, cuMemsetD2D8Async, 3020, (cuda_addr, size_t, unsigned char, size_t, size_t, void *)) \
	X(cuMemsetD2D16Async, cuMemsetD2D16Async, 3020, (cuda_addr, size_t, unsigned short, size_t, size_t, void *)) \
	X(cuMemsetD2D32Async, cuMemsetD2D32Async, 3020, (cuda_addr, size_t, unsigned, size_t, size_t, void *))

#define PER_THREAD_ARRAYS(X)                                                                                    \
	X(cuMemcpy2DAsync_v2, (const struct cuda_copy_2d *a, void *s), (a, of_thread(s)))                           \
	X(cuMemcpy3DAsync_v2, (const struct cuda_copy_3d *a, void *s), (a, of_thread(s)))                           \
	X(cuMemcpy3DPeerAsync, (const struct cuda_copy_3d *a, void *s), (a, of_thread(s)))                          \
	X(cuMemcpyAtoHAsync_v2, (void *a, void *b, size_t c, size_t d, void *s), (a, b, c, d, of_thread(s)))        \
	X(cuMemcpyHtoAAsync_v2, (void *a, size_t b, const void *c, size_t d, void *s), (a, b, c, d, of_thread(s)))  \
	X(cuMemcpyBatchAsync,                                                                                       \
	  (const cuda_addr *a, const cuda_addr *b, const size_t *c, size_t d, const void *e, const size_t *f,       \
	   size_t g, size_t *h, void *s),                                                                           \
	  (a, b, c, d, e, f, g, h, of_thread(s)))                                                                   \
	X(cuMemcpyBatchAsync_v2,                                                                                    \
	  (const cuda_addr *a, const cuda_addr *b, const size_t *c, size_t d, const void *e, const size_t *f,       \
	   size_t g, void *s),                                                                                      \
	  (a, b, c, d, e, f, g, of_thread(s)))                                                                      \
	X(cuMemsetD2D8Async, (cuda_addr a, size_t b, unsigned char c, size_t d, size_t e, void *s),                 \
	  (a, b, c, d, e, of_thread(s)))                                                                            \
	X(cuMemsetD2D16Async, (cuda_addr a, size_t b, unsigned short c, size_t d, size_t e, void *s),               \
	  (a, b, c, d, e, of_thread(s)))                                                                            \
	X(cuMemsetD2D32Async, (cuda_addr a, size_t b, unsigned c, size_t d, size_t e, void *s),                     \
	  (a, b, c, d, e, of_thread(s)))

/* A copy on the legacy default stream may stand for one on the thread's own, since it waits for that. */
#define PER_THREAD_WAITING_ARRAYS(X)                                                                            \
	X(cuMemcpy2DUnaligned_v2, (const struct cuda_copy_2d *a), cuMemcpy2DAsync_v2(a, OF_THREAD))                 \
	X(cuMemcpy2D_v2, (const struct cuda_copy_2d *a), cuMemcpy2DAsync_v2(a, OF_THREAD))                          \
	X(cuMemcpy3D_v2, (const struct cuda_copy_3d *a), cuMemcpy3DAsync_v2(a, OF_THREAD))                          \
	X(cuMemcpy3DPeer, (const struct cuda_copy_3d *a), cuMemcpy3DPeerAsync(a, OF_THREAD))                        \
	X(cuMemcpyAtoA_v2, (void *a, size_t b, void *c, size_t d, size_t e), cuMemcpyAtoA_v2(a, b, c, d, e))        \
	X(cuMemcpyAtoD_v2, (cuda_addr a, void *b, size_t c, size_t d), cuMemcpyAtoD_v2(a, b, c, d))                 \
	X(cuMemcpyDtoA_v2, (void *a, size_t b, cuda_addr c, size_t d), cuMemcpyDtoA_v2(a, b, c, d))                 \
	X(cuMemcpyAtoH_v2, (void *a, void *b, size_t c, size_t d), cuMemcpyAtoHAsync_v2(a, b, c, d, OF_THREAD))     \
	X(cuMemcpyHtoA_v2, (void *a, size_t b, const void *c, size_t d), cuMemcpyHtoAAsync_v2(a, b, c, d, OF_THREAD)) \
	X(cuMemsetD2D8_v2, (cuda_addr a, size_t b, unsigned char c, size_t d, size_t e),                            \
	  cuMemsetD2D8Async(a, b, c, d, e, OF_THREAD))                                                              \
	X(cuMemsetD2D16_v2, (cuda_addr a, size_t b, unsigned short c, size_t d, size_t e),                          \
	  cuMemsetD2D16Async(a, b, c, d, e, OF_THREAD))                                                             \
	X(cuMemsetD2D32_v2, (cuda_addr a, size_t b, unsigned c, size_t d, size_t e),                                \
	  cuMemsetD2D32Async(a, b, c, d, e, OF_THREAD))

#endif
