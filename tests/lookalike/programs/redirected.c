/* SPDX-License-Identifier: Apache-2.0
 *
 * Uses a runtime of its own (fake_runtime.c), or that of the libraries that it is given, opened one after the other,
 * from several threads with "threads" before them.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifdef FAKE_MAJOR
int use_runtime(const char *who);
#endif

typedef int use_function(const char *who);

static void *use_library(void *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
	if (!library) {
		printf("%s\n", dlerror());
		return NULL;
	}
	use_function *use;
	*(void **)&use = dlsym(library, "use_runtime");
	use("library");
	dlclose(library);
	return NULL;
}

static void use_in_threads(char **paths, int count)
{
	enum { MOST = 16 };
	pthread_t threads[MOST];
	for (int i = 0; i < count && i < MOST; i++)
		pthread_create(&threads[i], NULL, use_library, paths[i]);
	for (int i = 0; i < count && i < MOST; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
#ifdef FAKE_MAJOR
	use_runtime("program");
#endif
	if (argc > 1 && strcmp(argv[1], "threads") == 0)
		use_in_threads(argv + 2, argc - 2);
	else
		for (int i = 1; i < argc; i++)
			use_library(argv[i]);
	return 0;
}
