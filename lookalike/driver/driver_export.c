/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's undocumented tables, which do not exist here.
 */
#include "driver_lookalike.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILES = 16 };

static bool is_one_of(const char *name, const char *const names[], size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strncmp(name, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* Whether a file is a library that asks for tables but works without them. */
static bool works_without(const char *name)
{
	static const char *const names[] = {"libnvrtc.so", "libnvJitLink.so", "libnvvm.so", "libcupti.so"};
	return is_one_of(name, names, sizeof names / sizeof names[0]);
}

/* True once for each file. */
static bool is_news(const void *file)
{
	static const void *said[MOST_FILES];
	for (size_t i = 0; i < MOST_FILES; i++) {
		const void *none = NULL;
		if (__atomic_compare_exchange_n(&said[i], &none, file, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return true;
		if (none == file)
			return false;
	}
	return false;
}

static bool has_standin(const char *name)
{
	static const char *const names[] = {"libcublas", "libcudnn", "libcufft", "libcurand", "libcusolver", "libcusparse"};
	return is_one_of(name, names, sizeof names / sizeof names[0]);
}

/* Whether calls of NVIDIA's runtime are led to the look-alike where its functions have names (lookalike/redirect). */
static bool redirects(void)
{
	void *library = dlopen("libterrazzo_redirect.so", RTLD_LAZY | RTLD_NOLOAD);
	if (library)
		dlclose(library);
	return library != NULL;
}

static void say_how_to_redirect(void)
{
	Dl_info own;
	char *path = dladdr((void *)cuGetExportTable, &own) ? realpath(own.dli_fname, NULL) : NULL;
	const char *slash = path ? strrchr(path, '/') : NULL;
	fprintf(stderr, "Start the program by terrazzo sim, or with LD_PRELOAD=%.*slibterrazzo_redirect.so: its calls then "
	        "lead to the look-alike runtime\n", slash ? (int)(slash + 1 - path) : 0, slash ? path : "");
	free(path);
}

static void say(const Dl_info *caller)
{
	const char *slash = strrchr(caller->dli_fname, '/'), *name = slash ? slash + 1 : caller->dli_fname;
	if (works_without(name) || !is_news(caller->dli_fbase))
		return;
	fprintf(stderr, "terrazzo: %s has NVIDIA's own CUDA runtime, which checks the driver and does not run on a "
	        "simulated device. ", name);
	if (!redirects() && !has_standin(name))
		say_how_to_redirect();
	else if (has_standin(name))
		fputs("A stand-in can take the library's place: python3 -m terrazzo.sim standins PROGRAM DIR\n", stderr);
	else
		fputs("Its calls are led to the look-alike runtime only if it is of CUDA 11 or newer and the file has its "
		      "functions' names, of which a program can be stripped. Relink it with nvcc -cudart shared, or with "
		      "-cudart none and the look-alike libcudart_static.a\n", stderr);
}

/* NVIDIA's own runtime asks here for the means to check the driver. We respect that check. */
cuda_result cuGetExportTable(const void **table, const void *id)
{
	Dl_info caller;
	LOOK_COUNT(cuGetExportTable);
	LOOK_NEED(table, INVALID_VALUE);
	(void)id;
	*table = NULL;
	if (dladdr(__builtin_return_address(0), &caller) && caller.dli_fname)
		say(&caller);
	return TRZ_CUDA_ERROR_NOT_FOUND;
}
