/* SPDX-License-Identifier: Apache-2.0
 *
 * The ways to the driver's functions: cuGetProcAddress, dlsym, and ours to the driver's own.
 *
 * The C library must see dlsym as called by the program, since RTLD_NEXT depends on the caller. So what stands before
 * it is a few instructions, which ask preload_dlsym and jump to the C library's function if that has no answer.
 * terrazzo's own libraries always get the driver's functions.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "event_order.h"
#include "limit.h"
#include "native.h"
#include "preload.h"
#include "terrazzo.h"

enum { FLAG_PER_THREAD = 2 };  /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

struct preload_call preload_calls[PRELOAD_COUNT] = {
#define PRELOAD_ENTRY(name, exported, version, thread, parameters) \
	{#name, #exported, version, thread, (preload_function *)exported, NULL, NULL},
	PRELOAD_CALLS(PRELOAD_ENTRY)
#undef PRELOAD_ENTRY
};

/* ---- the C library's ------------------------------------------------------------------------------------------- */

typedef void *dlsym_function(void *handle, const char *name);

__attribute__((visibility("hidden"))) dlsym_function *preload_real_dlsym;

static dlsym_function *real_dlsym(void)
{
	static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
	dlsym_function *found = __atomic_load_n(&preload_real_dlsym, __ATOMIC_ACQUIRE);
	for (size_t i = 0; !found && i < sizeof versions / sizeof versions[0]; i++)
		found = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	__atomic_store_n(&preload_real_dlsym, found, __ATOMIC_RELEASE);
	return found;
}

/* ---- the driver's ---------------------------------------------------------------------------------------------- */

static _Atomic(void *) library;
static atomic_bool loaded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note_found_locked(void *driver, preload_function *const *found)
{
	limit_begin();
	if (limit_on)
		limit_tell_heaps();
	atomic_store(&library, driver);
	for (size_t i = 0; i < PRELOAD_COUNT; i++)
		preload_calls[i].real = preload_calls[i].next = found[i];
#define LIMIT(exported)                                                   \
	if (limit_on && preload_calls[PRELOAD_AT_##exported].real)            \
		preload_calls[PRELOAD_AT_##exported].next = (preload_function *)limit_##exported;
	LIMITED_CALLS(LIMIT)
#undef LIMIT
	atomic_store_explicit(&loaded, true, memory_order_release);
}

/* Several threads may look at the same time, since no lock is held while the dynamic linker is asked
 * (docs/lock-order.md). */
bool preload_load(void)
{
	preload_function *found[PRELOAD_COUNT];
	if (atomic_load_explicit(&loaded, memory_order_acquire))
		return true;
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!driver)
		return false;
	for (size_t i = 0; i < PRELOAD_COUNT; i++)
		found[i] = (preload_function *)real_dlsym()(driver, preload_calls[i].exported);
	pthread_mutex_lock(&lock);
	if (!atomic_load(&loaded))
		note_found_locked(driver, found);
	pthread_mutex_unlock(&lock);
	preload_ask_python();
	return true;
}

static struct preload_call *find_exported(const char *exported)
{
	struct preload_call *c = preload_calls;
	while (c < preload_calls + PRELOAD_COUNT && strcmp(c->exported, exported) != 0)
		c++;
	return c < preload_calls + PRELOAD_COUNT ? c : NULL;
}

void *native_symbol(const char *exported)
{
	if (!preload_load())
		return NULL;
	const struct preload_call *c = find_exported(exported);
	return c ? (void *)c->next : real_dlsym()(atomic_load(&library), exported);
}

/* ---- cuGetProcAddress ---------------------------------------------------------------------------------------- */

/* The form of a function that the driver gives for a version: the newest that this version knows. */
static const struct preload_call *form_of(const char *name, int version, bool of_thread)
{
	const struct preload_call *best = NULL;
	for (const struct preload_call *c = preload_calls; c < preload_calls + PRELOAD_COUNT; c++)
		if (strcmp(c->name, name) == 0 && c->version <= version && (of_thread || !c->of_thread) &&
		    (!best || c->version > best->version || (c->version == best->version && c->of_thread)))
			best = c;
	return best;
}

/* Whether the driver gives a form newer than ours, which may record events unseen. */
static bool is_younger(const char *name, int version)
{
	static const struct {
		const char *name;
		int version;
	} younger[] = {{"cuGraphAddNode", 13040}, {"cuGraphNodeSetParams", 13040}};
	for (size_t i = 0; i < sizeof younger / sizeof younger[0]; i++)
		if (version >= younger[i].version && strcmp(name, younger[i].name) == 0)
			return true;
	return false;
}

/* Replaces a function that the driver has given by ours. `own`: for the heaps, which get the driver's functions, or
 * with a limit limit_NAME. */
static void replace(const char *name, void **function, int version, uint64_t flags, bool own)
{
	if (!name || strncmp(name, "cu", 2) != 0 || !function || !*function)
		return;
	if (strcmp(name, "cuGraphInstantiate") == 0 && version >= 12000)
		name = "cuGraphInstantiateWithFlags";
	const struct preload_call *form = form_of(name, version, flags & FLAG_PER_THREAD);
	if (form && is_younger(name, version))
		event_order_give_up();
	else if (form && form->real && !own)
		*function = (void *)form->hook;
	else if (form && form->next != form->real)
		*function = (void *)form->next;
}

static cuda_result look_up_own(const char *name, void **function, int version, uint64_t flags, int *why)
{
	cuda_result result = DRIVER(cuGetProcAddress_v2)(name, function, version, flags, why);
	if (result == TRZ_CUDA_SUCCESS)
		replace(name, function, version, flags, true);
	return result;
}

static cuda_result look_up_own_first(const char *name, void **function, int version, uint64_t flags)
{
	cuda_result result = DRIVER(cuGetProcAddress)(name, function, version, flags);
	if (result == TRZ_CUDA_SUCCESS)
		replace(name, function, version, flags, true);
	return result;
}

cuda_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *why)
{
	ENTER(cuGetProcAddress_v2);
	cuda_result result = REAL(cuGetProcAddress_v2)(name, function, version, flags, why);
	if (result == TRZ_CUDA_SUCCESS)
		replace(name, function, version, flags, false);
	return result;
}

cuda_result cuGetProcAddress(const char *name, void **function, int version, uint64_t flags)
{
	ENTER(cuGetProcAddress);
	cuda_result result = REAL(cuGetProcAddress)(name, function, version, flags);
	if (result == TRZ_CUDA_SUCCESS)
		replace(name, function, version, flags, false);
	return result;
}

/* ---- dlsym ------------------------------------------------------------------------------------------------------- */

/* Where the library with the heaps lies, and this one. */
static struct span {
	uintptr_t start, end;
} own[2];

static int find_span(struct dl_phdr_info *info, size_t size, void *count)
{
	const uintptr_t inside[2] = {(uintptr_t)trz_open, (uintptr_t)preload_load};
	struct span span = {UINTPTR_MAX, 0};
	(void)size;
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + p->p_vaddr;
		if (p->p_type != PT_LOAD)
			continue;
		span.start = start < span.start ? start : span.start;
		span.end = start + p->p_memsz > span.end ? start + p->p_memsz : span.end;
	}
	for (int i = 0; i < 2; i++)
		if (inside[i] >= span.start && inside[i] < span.end)
			own[(*(int *)count)++] = span;
	return *(int *)count == 2;
}

static void find_own(void)
{
	int count = 0;
	dl_iterate_phdr(find_span, &count);
}

static bool is_own(const void *caller)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, find_own);
	for (int i = 0; i < 2; i++)
		if ((uintptr_t)caller >= own[i].start && (uintptr_t)caller < own[i].end)
			return true;
	return false;
}

/* What the heaps get for one of the driver's functions. */
static void *for_own(const struct preload_call *c)
{
	if (!limit_on)
		return (void *)c->real;
	if (c == &preload_calls[PRELOAD_AT_cuGetProcAddress_v2])
		return (void *)look_up_own;
	return c == &preload_calls[PRELOAD_AT_cuGetProcAddress] ? (void *)look_up_own_first : (void *)c->next;
}

/* The answer of dlsym to `caller`; NULL: the C library is to answer. */
__attribute__((visibility("hidden"))) void *preload_dlsym(void *handle, const char *name, const void *caller);

void *preload_dlsym(void *handle, const char *name, const void *caller)
{
	dlsym_function *real = real_dlsym();
	if (!name || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT || handle == RTLD_DEFAULT)
		return NULL;
	const struct preload_call *c = find_exported(name);
	if (!c || !preload_load() || !c->real || real(handle, name) != (void *)c->real)
		return NULL;
	return is_own(caller) ? for_own(c) : (void *)c->hook;
}

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        "dlsym:\n"
        "	.cfi_startproc\n"
        "	endbr64\n"
        "	pushq %rdi\n"
        "	.cfi_adjust_cfa_offset 8\n"
        "	pushq %rsi\n"
        "	.cfi_adjust_cfa_offset 8\n"
        "	subq $8, %rsp\n"
        "	.cfi_adjust_cfa_offset 8\n"
        "	movq 24(%rsp), %rdx\n"
        "	call preload_dlsym\n"
        "	addq $8, %rsp\n"
        "	.cfi_adjust_cfa_offset -8\n"
        "	popq %rsi\n"
        "	.cfi_adjust_cfa_offset -8\n"
        "	popq %rdi\n"
        "	.cfi_adjust_cfa_offset -8\n"
        "	testq %rax, %rax\n"
        "	jz 1f\n"
        "	ret\n"
        "1:	movq preload_real_dlsym(%rip), %rax\n"
        "	jmp *%rax\n"
        "	.cfi_endproc\n"
        "	.size dlsym, .-dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        "dlsym:\n"
        "	.cfi_startproc\n"
        "	stp x29, x30, [sp, #-32]!\n"
        "	.cfi_def_cfa_offset 32\n"
        "	.cfi_offset x29, -32\n"
        "	.cfi_offset x30, -24\n"
        "	stp x0, x1, [sp, #16]\n"
        "	mov x2, x30\n"
        "	bl preload_dlsym\n"
        "	mov x9, x0\n"
        "	ldp x0, x1, [sp, #16]\n"
        "	ldp x29, x30, [sp], #32\n"
        "	.cfi_def_cfa_offset 0\n"
        "	.cfi_restore x29\n"
        "	.cfi_restore x30\n"
        "	cbz x9, 1f\n"
        "	mov x0, x9\n"
        "	ret\n"
        "1:	adrp x9, preload_real_dlsym\n"
        "	ldr x9, [x9, :lo12:preload_real_dlsym]\n"
        "	br x9\n"
        "	.cfi_endproc\n"
        "	.size dlsym, .-dlsym\n");
#else
#error "libterrazzo_preload.so needs a dlsym for this processor"
#endif
