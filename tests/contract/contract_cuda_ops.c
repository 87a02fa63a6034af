/* SPDX-License-Identifier: Apache-2.0
 *
 * Contract ops over whichever library serves libcuda.so.1: the functions that a user's program calls and the driver
 * table lacks.
 */
#include "contract.h"

#include <dlfcn.h>
#include <sched.h>
#include <string.h>

#include "base/cuda_abi.h"

enum { NON_BLOCKING = 1 };

/* X(name, exported name, parameters). */
#define WORK_SYMBOLS(X)                                                                                     \
	X(cuCtxCreate, cuCtxCreate_v2, (void **, unsigned, cuda_device))                                    \
	X(cuCtxDestroy, cuCtxDestroy_v2, (void *))                                                          \
	X(cuCtxGetCurrent, cuCtxGetCurrent, (void **))                                                      \
	X(cuCtxSetCurrent, cuCtxSetCurrent, (void *))                                                       \
	X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (void *))                                                  \
	X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (void **))                                                   \
	X(cuStreamCreate, cuStreamCreate, (void **, unsigned))                                              \
	X(cuStreamDestroy, cuStreamDestroy_v2, (void *))                                                    \
	X(cuStreamSynchronize, cuStreamSynchronize, (void *))                                               \
	X(cuStreamBeginCapture, cuStreamBeginCapture_v2, (void *, int))                                     \
	X(cuStreamEndCapture, cuStreamEndCapture, (void *, void **))                                        \
	X(cuGraphInstantiate, cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))           \
	X(cuGraphLaunch, cuGraphLaunch, (void *, void *))                                                   \
	X(cuGraphExecDestroy, cuGraphExecDestroy, (void *))                                                 \
	X(cuGraphDestroy, cuGraphDestroy, (void *))                                                         \
	X(cuMemsetD8Async, cuMemsetD8Async, (cuda_addr, unsigned char, size_t, void *))                     \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *, cuda_addr, size_t, void *))                     \
	X(cuLaunchHostFunc, cuLaunchHostFunc, (void *, void (*)(void *), void *))

static struct {
#define WORK_FIELD(name, exported, parameters) cuda_result(*name) parameters;
	WORK_SYMBOLS(WORK_FIELD)
#undef WORK_FIELD
} cu;

#define expect_success(call) assert_int_equal((call), TRZ_CUDA_SUCCESS)

static void push(trz_context context)
{
	expect_success(cu.cuCtxPushCurrent(context));
}

static void pop(void)
{
	void *popped;
	expect_success(cu.cuCtxPopCurrent(&popped));
}

static trz_context cuda_ops_context_create(void *self, int device)
{
	void *context = NULL;
	(void)self;
	expect_success(cu.cuCtxCreate(&context, 0, device));
	pop();
	return context;
}

static void cuda_ops_context_destroy(void *self, trz_context context)
{
	(void)self;
	expect_success(cu.cuCtxDestroy(context));
}

static trz_context cuda_ops_context_current(void *self)
{
	void *context = NULL;
	(void)self;
	expect_success(cu.cuCtxGetCurrent(&context));
	return context;
}

static void cuda_ops_context_set(void *self, trz_context context)
{
	(void)self;
	expect_success(cu.cuCtxSetCurrent(context));
}

static trz_stream cuda_ops_stream_create(void *self, trz_context context)
{
	void *stream = NULL;
	(void)self;
	push(context);
	expect_success(cu.cuStreamCreate(&stream, NON_BLOCKING));
	pop();
	return stream;
}

static void cuda_ops_stream_destroy(void *self, trz_context context, trz_stream stream)
{
	(void)self;
	push(context);
	expect_success(cu.cuStreamDestroy(stream));
	pop();
}

static void cuda_ops_stream_sync(void *self, trz_context context, trz_stream stream)
{
	(void)self;
	push(context);
	expect_success(cu.cuStreamSynchronize(stream));
	pop();
}

static void cuda_ops_fill(void *self, trz_context c, trz_stream s, trz_addr address, uint64_t size,
                          uint8_t value)
{
	(void)self;
	push(c);
	expect_success(cu.cuMemsetD8Async(address, value, size, s));
	pop();
}

static void cuda_ops_read(void *self, trz_context c, trz_stream s, void *to, trz_addr from, uint64_t size)
{
	(void)self;
	push(c);
	expect_success(cu.cuMemcpyDtoHAsync(to, from, size, s));
	pop();
}

static void cuda_ops_capture_begin(void *self, trz_context context, trz_stream stream, trz_capture_mode mode)
{
	(void)self;
	push(context);
	expect_success(cu.cuStreamBeginCapture(stream, (int)mode));
	pop();
}

static void *cuda_ops_capture_end(void *self, trz_context context, trz_stream stream)
{
	void *graph = NULL, *ready = NULL;
	(void)self;
	push(context);
	if (cu.cuStreamEndCapture(stream, &graph) == TRZ_CUDA_SUCCESS) {
		expect_success(cu.cuGraphInstantiate(&ready, graph, 0));
		expect_success(cu.cuGraphDestroy(graph));
	}
	pop();
	return ready;
}

static void cuda_ops_graph_launch(void *self, trz_context context, void *graph, trz_stream stream)
{
	(void)self;
	push(context);
	expect_success(cu.cuGraphLaunch(graph, stream));
	pop();
}

static void cuda_ops_graph_destroy(void *self, trz_context context, void *graph)
{
	(void)self;
	push(context);
	expect_success(cu.cuGraphExecDestroy(graph));
	pop();
}

static void spin_until_set(void *flag)
{
	while (!__atomic_load_n((uint32_t *)flag, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void cuda_ops_call_back(void *self, trz_context context, trz_stream stream, void (*function)(void *), void *arg)
{
	(void)self;
	push(context);
	expect_success(cu.cuLaunchHostFunc(stream, function, arg));
	pop();
}

static void cuda_ops_hold(void *self, trz_context context, trz_stream stream, uint32_t *flag)
{
	cuda_ops_call_back(self, context, stream, spin_until_set, flag);
}

static const struct contract_ops cuda_ops = {
	.context_create = cuda_ops_context_create,
	.context_destroy = cuda_ops_context_destroy,
	.context_current = cuda_ops_context_current,
	.context_set = cuda_ops_context_set,
	.stream_create = cuda_ops_stream_create,
	.stream_destroy = cuda_ops_stream_destroy,
	.stream_sync = cuda_ops_stream_sync,
	.fill = cuda_ops_fill,
	.read = cuda_ops_read,
	.capture_begin = cuda_ops_capture_begin,
	.capture_end = cuda_ops_capture_end,
	.graph_launch = cuda_ops_graph_launch,
	.graph_destroy = cuda_ops_graph_destroy,
	.hold = cuda_ops_hold,
	.call_back = cuda_ops_call_back,
};

static bool find(void *library, const char *name, void *field, size_t size)
{
	void *found = dlsym(library, name);
	memcpy(field, &found, size);
	return found != NULL;
}

const struct contract_ops *contract_cuda_ops(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	bool complete = library != NULL;
#define WORK_FIND(name, exported, parameters) \
	complete = complete && find(library, #exported, &cu.name, sizeof cu.name);
	WORK_SYMBOLS(WORK_FIND)
#undef WORK_FIND
	return complete ? &cuda_ops : NULL;
}
