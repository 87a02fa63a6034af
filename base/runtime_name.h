/* SPDX-License-Identifier: Apache-2.0
 *
 * How functions of CUDA's runtime are named, where it is linked into a program.
 */
#ifndef TRZ_BASE_RUNTIME_NAME_H
#define TRZ_BASE_RUNTIME_NAME_H

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* The name itself in "cudaError cudaMalloc<float>(float**, unsigned long)". */
static inline const char *name_without_result(const char *name)
{
	const char *begin = name;
	int depth = 0;
	for (const char *p = name; *p && (*p != '(' || depth); p++) {
		depth += (*p == '<') - (*p == '>');
		begin = *p == ' ' && !depth ? p + 1 : begin;
	}
	return begin;
}

/* "cudaMalloc", an overload of CUDA's headers that is compiled into the program, or an inner function of the static
 * runtime. Where nothing demangles it, the overload is "_ZL10cudaMallocIfE...". */
static inline bool is_runtime_name(const char *name)
{
	if (!strncmp(name, "libcudart", 9))
		return true;
	if (!strncmp(name, "_Z", 2)) {
		name += name[2] == 'L' ? 3 : 2;
		name += strspn(name, "0123456789");
	}
	name = name_without_result(name);
	return !strncmp(name, "cuda", 4) && isupper((unsigned char)name[4]);
}

#endif
