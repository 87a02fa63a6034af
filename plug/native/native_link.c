/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a program that is linked with libterrazzo_cuda finds the driver.
 */
#include <dlfcn.h>
#include <stdatomic.h>

#include "native_driver.h"

void *native_symbol(const char *exported)
{
	static _Atomic(void *) library;
	void *found = library;
	if (!found)
		library = found = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	return found ? dlsym(found, exported) : NULL;
}
