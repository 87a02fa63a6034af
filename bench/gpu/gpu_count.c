/* SPDX-License-Identifier: Apache-2.0
 *
 * Each callback id of the driver's domain has a counter; its name is that of its first call.
 */
#include "gpu_count.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>

enum { MOST_CALLS = 1024, DOMAIN_DRIVER = 1, SITE_ENTER = 0 };

/* The head of CUpti_CallbackData. */
struct callback_data {
	int site;
	const char *name;
};

_Thread_local int gpu_count_on;

static struct {
	_Atomic uint64_t calls;
	const char *_Atomic name;
} counted[MOST_CALLS];

static void called(void *self, int domain, uint32_t id, const struct callback_data *data)
{
	(void)self;
	if (!gpu_count_on || domain != DOMAIN_DRIVER || data->site != SITE_ENTER || id >= MOST_CALLS)
		return;
	atomic_store(&counted[id].name, data->name);
	atomic_fetch_add(&counted[id].calls, 1);
}

const char *gpu_count_start(const char *library)
{
	int (*subscribe)(void **, void (*)(void *, int, uint32_t, const struct callback_data *), void *);
	int (*enable)(uint32_t, void *, int);
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL), *subscriber;
	if (!handle)
		return dlerror();
	*(void **)&subscribe = dlsym(handle, "cuptiSubscribe");
	*(void **)&enable = dlsym(handle, "cuptiEnableDomain");
	if (!subscribe || !enable)
		return "it is not CUPTI";
	if (subscribe(&subscriber, called, NULL) || enable(1, subscriber, DOMAIN_DRIVER))
		return "it does not subscribe to the driver's calls";
	return NULL;
}

void gpu_count_print(FILE *to)
{
	const char *comma = "";
	fputc('{', to);
	for (int i = 0; i < MOST_CALLS; i++) {
		unsigned long long calls = atomic_exchange(&counted[i].calls, 0);
		if (!calls)
			continue;
		fprintf(to, "%s\"%s\": %llu", comma, atomic_load(&counted[i].name), calls);
		comma = ", ";
	}
	fputc('}', to);
}
