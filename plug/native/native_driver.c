/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's functions, found once.
 */
#include "native.h"

#include <pthread.h>
#include <stdatomic.h>

struct native_driver native_driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* guards changes of all here */
static atomic_bool tried, loaded;

/* Finds all functions, or uses none; those for graphs' memory are the newest, of CUDA 11.4. Several threads may look at
 * the same time, since no lock is held while the dynamic linker is asked (docs/lock-order.md). */
static void load(void)
{
	struct native_driver found;
	bool all = true;
	native_read_options();
#define NATIVE_FIND(name, parameters)                                                 \
	found.name = (cuda_result(*) parameters)native_symbol(#name);                     \
	all = all && found.name;
	NATIVE_DRIVER_CALLS(NATIVE_FIND)
#undef NATIVE_FIND
	found.cuStreamGetCtx_v2 = (cuda_result(*)(void *, void **, void **))native_symbol("cuStreamGetCtx_v2");
	pthread_mutex_lock(&lock);
	if (!atomic_load(&tried)) {
		native_driver = found;
		atomic_store_explicit(&loaded, all, memory_order_release);
		atomic_store_explicit(&tried, true, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
}

bool native_load(void)
{
	if (atomic_load_explicit(&loaded, memory_order_acquire))
		return true;
	if (!atomic_load_explicit(&tried, memory_order_acquire))
		load();
	return atomic_load_explicit(&loaded, memory_order_acquire);
}
