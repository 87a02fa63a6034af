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
/* Keeps the thread's last error. */
cuda_error rt_result(int result);
/* cuInit; and besides, that the thread has a context. */
int rt_init(void);
int rt_bind(void);
int rt_device(void);

/* runtime_code.c: the function of a kernel by the program's name for it; NULL: not registered. */
void *rt_function(const void *symbol);
/* The program's name for a function; itself, where it has none. */
const void *rt_symbol(void *function);
/* The address of a variable of the program on the device. */
int rt_variable(const void *symbol, cuda_addr *address, size_t *size);

/* runtime_copy.c: a copy as the driver describes it; the bytes of an element, 1 where there is no array. */
struct cuda_copy_3d rt_copy_of(const struct rt_copy_3d *p);
struct rt_copy_3d rt_copy_back(const struct cuda_copy_3d *c);
size_t rt_element_bytes(void *array);

#pragma GCC visibility pop

/* Begins every function; RT_ENTER where it needs a context. A query of an event needs none: PyTorch's threads that
 * watch collectives ask for events of all devices and have chosen none (up to 2.6), and its test_extra_cuda_context
 * finds no context of theirs on device 0. With cudaThreadExchangeStreamCaptureMode they get one
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
