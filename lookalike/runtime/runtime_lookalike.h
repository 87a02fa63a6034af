/* SPDX-License-Identifier: Apache-2.0
 *
 * The internals of the look-alike libcudart: a thin layer over the look-alike driver, whose errors are also the
 * runtime's. It adds a current device for each thread, the last error, and the kernels that a program registers.
 */
#ifndef RUNTIME_LOOKALIKE_H
#define RUNTIME_LOOKALIKE_H

#include <stdbool.h>

#include "lookalike/driver/driver_symbols.h"
#include "lookalike/lookalike.h"
#include "runtime_symbols.h"

#pragma GCC visibility push(hidden)

enum rt_call {
#define RT_CALL_ENUM(name, parameters) RT_CALL_##name,
	LOOKALIKE_RUNTIME_SYMBOLS(RT_CALL_ENUM)
#undef RT_CALL_ENUM
	RT_CALLS
};
extern uint64_t *rt_calls;

/* runtime_device.c */
/* Keeps an error as the thread's last. */
cuda_error rt_result(int result);
/* rt_init calls cuInit; rt_bind also gives the thread a context. */
int rt_init(void);
int rt_bind(void);
int rt_device(void);

/* runtime_code.c: the function of a kernel by the program's name for it; NULL: not registered. */
void *rt_function(const void *symbol);
/* The program's name for a function; the function itself if there is none. */
const void *rt_symbol(void *function);
/* The device address of a variable of the program. */
int rt_variable(const void *symbol, cuda_addr *address, size_t *size);

/* runtime_copy.c: a copy as the driver describes it, and back; the bytes of an array's element, 1 without an array. */
struct cuda_copy_3d rt_copy_of(const struct rt_copy_3d *p);
struct rt_copy_3d rt_copy_back(const struct cuda_copy_3d *c);
size_t rt_element_bytes(void *array);

#pragma GCC visibility pop

/* Begin every function: RT_ENTER if it needs a context. A query of an event needs none: PyTorch's threads that watch
 * collectives query events of all devices without choosing one (up to 2.6), and its test_extra_cuda_context expects
 * that they get no context on device 0. cudaThreadExchangeStreamCaptureMode gives them one
 * (https://github.com/pytorch/pytorch/pull/148594). */
#define RT_COUNT(name) \
	__atomic_fetch_add(&__atomic_load_n(&rt_calls, __ATOMIC_ACQUIRE)[RT_CALL_##name], 1, __ATOMIC_RELAXED)
#define RT_INIT(name)                 \
	do {                              \
		RT_COUNT(name);               \
		int failed_ = rt_init();      \
		if (failed_)                  \
			return rt_result(failed_); \
	} while (0)
#define RT_ENTER(name)                \
	do {                              \
		RT_COUNT(name);               \
		int failed_ = rt_bind();      \
		if (failed_)                  \
			return rt_result(failed_); \
	} while (0)

#endif
