/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that use the thread's own stream if the call names none.
 */
#include "driver_per_thread.h"
#include "driver_lookalike.h"

#define OF_THREAD ((void *)2)  /* CU_STREAM_PER_THREAD */

static void *of_thread(void *stream)
{
	return stream ? stream : OF_THREAD;
}

#define X(name, parameters, arguments) \
	cuda_result name##_ptsz parameters \
	{                                  \
		return name arguments;         \
	}
PER_THREAD_FORMS(X)
#undef X

#define X(name, parameters, call)                                               \
	cuda_result name##_ptds parameters                                          \
	{                                                                           \
		cuda_result result = call;                                              \
		return result == TRZ_CUDA_SUCCESS ? cuStreamSynchronize(OF_THREAD) : result; \
	}
PER_THREAD_WAITING_FORMS(X)
#undef X

cuda_result cuLaunchKernelEx_ptsz(const struct cuda_launch *launch, void *f, void **parameters, void **extra)
{
	LOOK_NEED(launch, INVALID_VALUE);
	struct cuda_launch here = *launch;
	here.stream = of_thread(launch->stream);
	return cuLaunchKernelEx(&here, f, parameters, extra);
}

void *look_per_thread(void *function)
{
	static void *const forms[][2] = {
#define X(name, parameters, arguments) {(void *)name, (void *)name##_ptsz},
		PER_THREAD_FORMS(X)
#undef X
#define X(name, parameters, call) {(void *)name, (void *)name##_ptds},
		PER_THREAD_WAITING_FORMS(X)
#undef X
		{(void *)cuLaunchKernelEx, (void *)cuLaunchKernelEx_ptsz},
	};
	for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
		if (forms[i][0] == function)
			return forms[i][1];
	return function;
}
