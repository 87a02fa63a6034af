/* SPDX-License-Identifier: Apache-2.0
 *
 * Which loaded objects have NVIDIA's runtime, which look-alike takes its place, and when.
 *
 * Objects that are loaded with the program are redirected in a constructor that runs before all others
 * (DF_1_INITFIRST), since programs register their kernels in constructors. Those that are opened later are redirected
 * before theirs run: the dynamic linker calls a function that does nothing for debuggers (r_brk of struct r_debug) when
 * it has mapped an object, and a jump over that function leads here. The linker's lock is held then, so nothing is
 * loaded here; a target is looked up when it is first called.
 */
#include "redirect.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LONGEST_PATH = 1024, MOST_FUNCTIONS = 2048 };

/* The runtimes, and their functions, sorted; read once. */
static struct runtime {
	const char *library;
	struct redirect_file file;             /* stays open: it has the names */
	const char **names;
	size_t count;
	void *loaded;
} runtimes[] = {
	{ .library = "libcudart.so.11.0" },
	{ .library = "libcudart.so.12" },
	{ .library = "libcudart.so.13" },
};
enum { RUNTIME_11, RUNTIME_12, RUNTIME_13, NO_RUNTIME };

/* ---- the look-alikes ---- */

/* Beside this library. */
static bool path_of(const struct runtime *r, char path[LONGEST_PATH])
{
	Dl_info own;
	if (!dladdr((void *)redirect_find, &own) || !own.dli_fname)
		return false;
	const char *slash = strrchr(own.dli_fname, '/');
	int length = slash ? (int)(slash + 1 - own.dli_fname) : 0;
	return snprintf(path, LONGEST_PATH, "%.*s%s", length, own.dli_fname, r->library) < LONGEST_PATH;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool read_runtime(struct runtime *r)
{
	char path[LONGEST_PATH];
	if (r->count)
		return true;
	if (!path_of(r, path) || !redirect_open(&r->file, path))
		return false;
	r->names = calloc(MOST_FUNCTIONS, sizeof *r->names);
	struct redirect_function f;
	for (size_t at = 0; r->names && r->count < MOST_FUNCTIONS && redirect_next(&r->file, &at, &f);)
		r->names[r->count++] = f.name;
	if (r->count)
		qsort(r->names, r->count, sizeof *r->names, by_name);
	return r->count > 0;
}

static const char *name_in(const struct runtime *r, const char *name)
{
	const char **found = bsearch(&name, r->names, r->count, sizeof *r->names, by_name);
	return found ? *found : NULL;
}

void *redirect_find(struct redirect_target *target)
{
	int kept = errno;
	char path[LONGEST_PATH];
	struct runtime *r = &runtimes[target->runtime];
	void *loaded = __atomic_load_n(&r->loaded, __ATOMIC_ACQUIRE);
	if (!loaded && path_of(r, path))
		loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	void *function = loaded ? dlsym(loaded, target->name) : NULL;
	if (!function) {
		fprintf(stderr, "terrazzo: %s of the look-alike %s cannot be used: %s\n", target->name, r->library, dlerror());
		abort();
	}
	__atomic_store_n(&r->loaded, loaded, __ATOMIC_RELEASE);
	__atomic_store_n(&target->function, function, __ATOMIC_RELEASE);
	errno = kept;
	return function;
}

/* ---- one object ---- */

/* What an object's functions tell of its runtime. Functions came and went with major versions. */
struct signs {
	size_t count;                          /* functions */
	bool registers;                        /* __cudaRegisterFatBinary: a runtime, not a program's own cudaMalloc */
	bool since_11, until_11, only_12, lookalike;
};

static struct signs read_signs(const struct redirect_file *file)
{
	struct signs s = { 0 };
	struct redirect_function f;
	for (size_t at = 0; redirect_next(file, &at, &f); s.count++) {
		s.registers |= strcmp(f.name, "__cudaRegisterFatBinary") == 0;
		s.since_11 |= strcmp(f.name, "cudaStreamSetAttribute") == 0;
		s.until_11 |= strcmp(f.name, "cudaBindTexture") == 0;
		s.only_12 |= strcmp(f.name, "cudaGetDeviceProperties_v2") == 0;
		s.lookalike |= strcmp(f.name, "__cudaTerrazzoLookalike") == 0;
	}
	return s;
}

/* The structs of an older runtime than 11 are not ours. */
static int runtime_of(const struct signs *s)
{
	if (!s->registers || s->lookalike || !s->since_11)
		return NO_RUNTIME;
	return s->until_11 ? RUNTIME_11 : s->only_12 ? RUNTIME_12 : RUNTIME_13;
}

/* Functions to redirect. */
struct patches {
	struct patch {
		uintptr_t at;
		const char *name;
	} *list;
	size_t count;
	uintptr_t low, high;                   /* all their addresses */
};

/* Those that the look-alike has, if they are in memory as in the file. false: no host memory. */
static bool find_patches(const struct redirect_file *file, uintptr_t base, const struct runtime *r, size_t most,
                         struct patches *p)
{
	struct redirect_function f;
	*p = (struct patches){ .list = calloc(most, sizeof *p->list), .low = UINTPTR_MAX };
	for (size_t at = 0; p->list && p->count < most && redirect_next(file, &at, &f);) {
		uintptr_t address = base + f.address;
		const char *name = name_in(r, f.name);
		if (!name || f.bytes < REDIRECT_JUMP_BYTES || memcmp((const void *)address, f.code, f.bytes) != 0)
			continue;
		p->list[p->count++] = (struct patch){ address, name };
		p->low = address < p->low ? address : p->low;
		p->high = address + f.bytes > p->high ? address + f.bytes : p->high;
	}
	return p->list != NULL;
}

static bool write_patches(const struct patches *p, int runtime)
{
	struct redirect_island island;
	if (!redirect_make_island(&island, p->low, p->high, p->count))
		return false;
	for (size_t i = 0; i < p->count; i++)
		redirect_add(&island, p->list[i].name, runtime);
	if (!redirect_close_island(&island) || !redirect_unlock(p->low, p->high))
		return false;
	for (size_t i = 0; i < p->count; i++)
		redirect_jump(p->list[i].at, redirect_entry(&island, i));
	return redirect_lock(p->low, p->high);
}

static void redirect_runtime(const struct redirect_file *file, uintptr_t base, const char *path)
{
	struct signs signs = read_signs(file);
	int runtime = runtime_of(&signs);
	struct patches patches;
	if (runtime == NO_RUNTIME)
		return;
	bool ok = read_runtime(&runtimes[runtime]) && find_patches(file, base, &runtimes[runtime], signs.count, &patches);
	if (!ok || (patches.count && !write_patches(&patches, runtime)))
		fprintf(stderr, "terrazzo: calls of the CUDA runtime in %s cannot be led to the look-alike: %s\n", path,
		        strerror(errno));
	if (ok)
		free(patches.list);
}

static void redirect_object(const struct link_map *object)
{
	const char *path = object->l_name && *object->l_name ? object->l_name : "/proc/self/exe";
	struct redirect_file file;
	if (!redirect_open(&file, path))
		return;
	if (redirect_is_loaded(&file, object->l_addr))
		redirect_runtime(&file, object->l_addr, path);
	redirect_close(&file);
}

/* ---- all objects, when they are loaded ---- */

static const struct link_map *last_seen;   /* of the linker's list, to whose end it adds */
static bool removing;

static void redirect_new(const struct link_map *object)
{
	for (; object; object = object->l_next) {
		redirect_object(object);
		last_seen = object;
	}
}

/* Takes the place of the dynamic linker's function for debuggers, which is called before and after it changes its list.
 * While it removes objects it adds none. */
static void on_loading(void)
{
	int kept = errno;
	if (_r_debug.r_state == RT_DELETE) {
		removing = true;
	} else if (_r_debug.r_state == RT_CONSISTENT && !removing) {
		redirect_new(last_seen->l_next);
	} else if (_r_debug.r_state == RT_CONSISTENT) {
		removing = false;
		for (const struct link_map *o = _r_debug.r_map; o; o = o->l_next)
			last_seen = o;
	}
	errno = kept;
}

/* Whether a function only returns, and has room for a jump: the next one begins 16 bytes later. */
static bool does_nothing(const uint8_t *code)
{
	static const uint8_t marked[] = { 0xf3, 0x0f, 0x1e, 0xfa, 0xc3 };   /* endbr64, ret */
	bool fills = code[1] == 0x66 || code[1] == 0x0f || code[1] == 0x90 || code[1] == 0xcc;
	return (uintptr_t)code % 16 == 0 && ((code[0] == 0xc3 && fills) || memcmp(code, marked, sizeof marked) == 0);
}

/* Where this fails, libraries that are opened later keep their runtime; cuGetExportTable says so then. */
static void follow_loading(void)
{
	uintptr_t at = _r_debug.r_brk;
	struct redirect_island island;
	if (!at || !does_nothing((const uint8_t *)at) || !redirect_make_island(&island, at, at, 1))
		return;
	redirect_add_known(&island, (void *)on_loading);
	if (!redirect_close_island(&island) || !redirect_unlock(at, at + REDIRECT_JUMP_BYTES))
		return;
	redirect_jump(at, redirect_entry(&island, 0));
	redirect_lock(at, at + REDIRECT_JUMP_BYTES);
}

__attribute__((constructor)) static void redirect_start(void)
{
	redirect_new(_r_debug.r_map);
	follow_loading();
}
