/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that stand before the driver's only for two purposes: to apply a limit, and to return the heaps' free
 * memory when the driver has none left. Otherwise they just call the driver's.
 */
#include "native.h"
#include "preload.h"

/* X(exported name, parameters, arguments) */
#define PLAIN_CALLS(X)                                                                                              \
	X(cuMemAllocManaged, (cuda_addr *a, size_t b, unsigned c), (a, b, c))                                           \
	X(cuMemCreate, (cuda_mem *a, size_t b, const struct cuda_mem_prop *c, uint64_t d), (a, b, c, d))                \
	X(cuMemRelease, (cuda_mem a), (a))                                                                              \
	X(cuMemMap, (cuda_addr a, size_t b, size_t c, cuda_mem d, uint64_t e), (a, b, c, d, e))                         \
	X(cuMemPoolDestroy, (void *a), (a))                                                                             \
	X(cuIpcOpenMemHandle, (cuda_addr *a, struct preload_ipc b, unsigned c), (a, b, c))                              \
	X(cuIpcOpenMemHandle_v2, (cuda_addr *a, struct preload_ipc b, unsigned c), (a, b, c))                           \
	X(cuIpcCloseMemHandle, (cuda_addr a), (a))                                                                      \
	X(cuArrayCreate_v2, (void **a, const struct preload_array_2d *b), (a, b))                                       \
	X(cuArray3DCreate_v2, (void **a, const struct preload_array_3d *b), (a, b))                                     \
	X(cuArrayDestroy, (void *a), (a))                                                                               \
	X(cuMipmappedArrayCreate, (void **a, const struct preload_array_3d *b, unsigned c), (a, b, c))                  \
	X(cuMipmappedArrayDestroy, (void *a), (a))                                                                      \
	X(cuGraphAddMemAllocNode, (void **a, void *b, const void *c, size_t d, struct preload_alloc_node *e),           \
	  (a, b, c, d, e))                                                                                              \
	X(cuGraphAddMemFreeNode, (void **a, void *b, const void *c, size_t d, cuda_addr e), (a, b, c, d, e))            \
	X(cuGraphInstantiate, (void **a, void *b, void **c, char *d, size_t e), (a, b, c, d, e))                        \
	X(cuGraphInstantiate_v2, (void **a, void *b, void **c, char *d, size_t e), (a, b, c, d, e))                     \
	X(cuGraphInstantiateWithFlags, (void **a, void *b, unsigned long long c), (a, b, c))                            \
	X(cuGraphInstantiateWithParams, (void **a, void *b, void *c), (a, b, c))                                        \
	X(cuGraphInstantiateWithParams_ptsz, (void **a, void *b, void *c), (a, b, c))                                   \
	X(cuGraphDestroy, (void *a), (a))                                                                               \
	X(cuGraphExecDestroy, (void *a), (a))                                                                           \
	X(cuCtxSetLimit, (int a, size_t b), (a, b))                                                                     \
	X(cuModuleLoad, (void **a, const char *b), (a, b))                                                              \
	X(cuModuleLoadData, (void **a, const void *b), (a, b))                                                          \
	X(cuModuleLoadDataEx, (void **a, const void *b, unsigned c, int *d, void **e), (a, b, c, d, e))                 \
	X(cuModuleLoadFatBinary, (void **a, const void *b), (a, b))

/* X(exported name, parameters, arguments, device) */
#define CONTEXT_CALLS(X)                                                                        \
	X(cuCtxCreate, (void **a, unsigned b, cuda_device c), (a, b, c), c)                         \
	X(cuCtxCreate_v2, (void **a, unsigned b, cuda_device c), (a, b, c), c)                      \
	X(cuCtxCreate_v3, (void **a, void *b, int c, unsigned d, cuda_device e), (a, b, c, d, e), e) \
	X(cuCtxCreate_v4, (void **a, void *b, unsigned c, cuda_device d), (a, b, c, d), d)

#define PLAIN_BODY(exported, arguments, then)                                     \
	{                                                                             \
		ENTER(exported);                                                          \
		cuda_result result = REAL(exported) arguments;                            \
		if (result == TRZ_CUDA_ERROR_OUT_OF_MEMORY && native_make_room())         \
			result = REAL(exported) arguments;                                    \
		then;                                                                     \
		return result;                                                            \
	}

#define PLAIN(exported, parameters, arguments) \
	cuda_result exported parameters PLAIN_BODY(exported, arguments, (void)0)
PLAIN_CALLS(PLAIN)

#define CONTEXT(exported, parameters, arguments, device) \
	cuda_result exported parameters                      \
	PLAIN_BODY(exported, arguments, if (result == TRZ_CUDA_SUCCESS) native_use_device(device))
CONTEXT_CALLS(CONTEXT)
