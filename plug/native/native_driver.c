/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's functions, found once.
 */
#include "native.h"

#include <pthread.h>
#include <stdatomic.h>

struct native_driver native_driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool loaded;

/* The memory of graphs came last, in CUDA 11.4: all is there, or nothing is used. */
static void load(void)
{
	bool all = true;
	native_read_options();
#define NATIVE_FIND(name, parameters)                                                 \
	native_driver.name = (cuda_result(*) parameters)native_symbol(#name);             \
	all = all && native_driver.name;
	NATIVE_DRIVER_CALLS(NATIVE_FIND)
#undef NATIVE_FIND
	atomic_store_explicit(&loaded, all, memory_order_release);
}

bool native_load(void)
{
	if (atomic_load_explicit(&loaded, memory_order_acquire))
		return true;
	pthread_once(&once, load);
	return atomic_load_explicit(&loaded, memory_order_acquire);
}
