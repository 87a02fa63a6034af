/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a program that is linked with libterrazzo_cuda finds the driver.
 */
#include <dlfcn.h>

#include "native_driver.h"

void *native_symbol(const char *exported)
{
	static void *library;
	if (!library)
		library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	return library ? dlsym(library, exported) : NULL;
}
