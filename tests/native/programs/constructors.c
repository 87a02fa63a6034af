/* SPDX-License-Identifier: Apache-2.0
 *
 * A library's constructor uses CUDA inside dlopen, holding the dynamic linker's lock, while another thread is in a call
 * that must ask the linker: the thread waits for the constructor, and the constructor for nobody. The first argument
 * names what the process has done before, the second the library.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "cuda_calls.h"

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(device_pointer *ptr, size_t size);
int cuMemFree_v2(device_pointer ptr);

__attribute__((visibility("default"))) void in_constructor(void);

static void *context;
static int device;
static atomic_bool calling;

static void bind(void)
{
	if (!context) {
		MUST(cuInit(0));
		MUST(cuDevicePrimaryCtxRetain(&context, device));
	}
	MUST(cuCtxSetCurrent(context));
}

static void use(void)
{
	device_pointer p;
	MUST(cuMemAlloc_v2(&p, MIB));
	MUST(cuMemFree_v2(p));
}

static void *call(void *unused)
{
	device_pointer p;
	if (context)
		bind();
	atomic_store(&calling, true);
	if (cuMemAlloc_v2(&p, MIB) == SUCCESS)
		MUST(cuMemFree_v2(p));
	return unused;
}

static pthread_t thread;

void in_constructor(void)
{
	CHECK(pthread_create(&thread, NULL, call, NULL) == 0);
	while (!atomic_load(&calling))
		usleep(1000);
	usleep(100000);  /* now it waits for the linker */
	bind();
	use();
}

int main(int count, char **arguments)
{
	CHECK(count == 3);
	alarm(20);
	if (strcmp(arguments[1], "nothing") != 0)
		bind();
	if (strcmp(arguments[1], "a free") == 0)
		MUST(cuMemFree_v2(0));
	if (strcmp(arguments[1], "another device") == 0) {
		use();
		context = NULL;
		device = 1;
		bind();
	}
	CHECK(dlopen(arguments[2], RTLD_NOW));
	CHECK(pthread_join(thread, NULL) == 0);
	bind();
	use();
	puts("all right");
	return 0;
}
