/* SPDX-License-Identifier: Apache-2.0
 *
 * Native call stacks by number. libunwind finds the levels, and remembers how to unwind each function; where it is not
 * installed, libc does it, in some twenty times as long. The process has one table of stacks. An entry, once published,
 * never changes, so finding a known stack takes no lock. Stacks beyond the table's size share the last number.
 *
 *     slots[hash]  ->  number - 1  ->  stacks[]: where in levels[], how many
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bits.h"
#include "file_symbol.h"
#include "prng.h"
#include "native_stack.h"
#include "runtime_name.h"

enum {
	STACKS = 1 << 14,
	SLOTS = 2 * STACKS,
	LEVELS = 48,                 /* PyTorch's autograd engine is up to 43 deep */
	OWN_LEVELS = 16,             /* levels of the library itself, above the caller */
	LEVELS_IN_ALL = 24 * STACKS,
	NAME_BYTES = 192
};

struct stack {
	uint64_t hash;
	uint32_t first, count;       /* levels[first .. first + count) */
};

static struct {
	pthread_mutex_t lock;        /* for adding */
	uint32_t count, levels_count;
	_Atomic uint32_t slots[SLOTS];   /* a number; 0: none */
	struct stack stacks[STACKS];
	void *levels[LEVELS_IN_ALL];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t hash_of(void *const *levels, uint32_t count)
{
	uint64_t hash = count;
	for (uint32_t i = 0; i < count; i++)
		hash = (hash << 7 ^ hash >> 57 ^ (uint64_t)levels[i]) * 0x9e3779b97f4a7c15u;
	return prng_mix(hash);
}

/* The number of a stack; 0: it is not in the table, and belongs into *slot. */
static uint32_t find(uint64_t hash, void *const *levels, uint32_t count, uint32_t *slot)
{
	for (*slot = hash % SLOTS;; *slot = (*slot + 1) % SLOTS) {
		uint32_t number = atomic_load_explicit(&table.slots[*slot], memory_order_acquire);
		if (!number)
			return 0;
		const struct stack *s = &table.stacks[number - 1];
		if (s->hash == hash && s->count == count &&
		    memcmp(&table.levels[s->first], levels, count * sizeof *levels) == 0)
			return number;
	}
}

static uint32_t add(uint64_t hash, void *const *levels, uint32_t count)
{
	uint32_t slot, number;
	pthread_mutex_lock(&table.lock);
	number = find(hash, levels, count, &slot);
	if (!number) {
		bool room = table.count < STACKS - 1 && table.levels_count + count <= LEVELS_IN_ALL;
		number = room ? ++table.count : STACKS;
		if (room) {
			table.stacks[number - 1] = (struct stack){hash, table.levels_count, count};
			memcpy(&table.levels[table.levels_count], levels, count * sizeof *levels);
			table.levels_count += count;
			atomic_store_explicit(&table.slots[slot], number, memory_order_release);
		}
	}
	pthread_mutex_unlock(&table.lock);
	return number;
}

typedef int unwinder(void **levels, int most);

/* Looks a function up in a library, which stays loaded; `fallback` if it is not there. No lock may be held, nor one be
 * waited for: threads that come at the same time each look it up by themselves (docs/lock-order.md). */
static void *look_up(const char *library, const char *name, void *fallback)
{
	void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	void *found = loaded ? dlsym(loaded, name) : NULL;
	return found ? found : fallback;
}

/* Under ThreadSanitizer libunwind is not used: it locks a mutex when a thread ends, too late for that tool. */
static unwinder *find_unwinder(void)
{
	static void *_Atomic found;
	void *symbol = atomic_load_explicit(&found, memory_order_acquire);
	if (!symbol) {
		symbol = (void *)backtrace;
		if (!dlsym(RTLD_DEFAULT, "__tsan_init"))
			symbol = look_up("libunwind.so.8", "unw_backtrace", symbol);
		atomic_store_explicit(&found, symbol, memory_order_release);
	}
	unwinder *function;
	memcpy(&function, &symbol, sizeof function);
	return function;
}

static uint64_t number_of(void *const *levels, uint32_t count)
{
	uint32_t slot;
	if (!count)
		return 0;
	uint64_t hash = hash_of(levels, count);
	uint32_t number = find(hash, levels, count, &slot);
	return number ? number : add(hash, levels, count);
}

enum { LEVELS_FOUND = 1 + OWN_LEVELS + LEVELS };

/* Unwinds the stack; returns how many levels it has found. *first: the one that returns to `caller`, as above. The
 * function that calls this is the first level, and skipped. */
static inline __attribute__((always_inline)) int unwind(const void *caller, void **levels, int *first)
{
	int found = find_unwinder()(levels, LEVELS_FOUND);
	*first = 1;
	while (caller && *first < found && levels[*first] != caller)
		++*first;
	if (*first >= found)
		*first = 1;
	return found;
}

NOINLINE uint64_t native_frames_from(const void *caller)
{
	void *levels[LEVELS_FOUND];
	int first, found = unwind(caller, levels, &first);
	return found > first ? number_of(levels + first, (uint32_t)min_u64((uint64_t)(found - first), LEVELS)) : 0;
}

uint64_t trz_native_frames(void *user)
{
	(void)user;
	return native_frames_from(NULL);
}

/* ---- names ---- */

/* The dynamic linker takes up to a millisecond to name an address in a library as large as PyTorch's. So the newest
 * names are kept by address, with copies of the libraries' paths, since the linker's are unmapped with the
 * libraries. */
enum { NAMES = 512, LIBRARIES = 64, LIBRARY_BYTES = 256 };

static struct {
	atomic_flag busy;            /* a thread that finds it held asks the linker */
	unsigned long long unloads;  /* libraries unloaded so far: others may have come to the same addresses since */
	unsigned libraries;
	char library[LIBRARIES][LIBRARY_BYTES];
	struct found {
		const char *address, *library;
		char name[NAME_BYTES];
	} list[NAMES];
} names = {.busy = ATOMIC_FLAG_INIT};

/* A copy of a library's path; NULL: it is too long, or there are too many. */
static const char *keep_library(const char *path)
{
	size_t size = strlen(path) + 1;
	for (unsigned i = 0; i < names.libraries; i++)
		if (!strcmp(names.library[i], path))
			return names.library[i];
	if (names.libraries == LIBRARIES || size > LIBRARY_BYTES)
		return NULL;
	return memcpy(names.library[names.libraries++], path, size);
}

typedef char *demangler(const char *mangled, char *into, size_t *room, int *status);

static char *no_name(const char *mangled, char *into, size_t *room, int *status)
{
	(void)mangled;
	(void)into;
	(void)room;
	(void)status;
	return NULL;
}

/* A C++ name as in the source; NULL: it is none. To be freed. */
static char *demangle(const char *name)
{
	static void *_Atomic found;
	demangler *function;
	int status;
	if (strncmp(name, "_Z", 2) != 0)
		return NULL;
	void *symbol = atomic_load_explicit(&found, memory_order_acquire);
	if (!symbol) {
		symbol = look_up("libstdc++.so.6", "__cxa_demangle", (void *)no_name);
		atomic_store_explicit(&found, symbol, memory_order_release);
	}
	memcpy(&function, &symbol, sizeof function);
	return function(name, NULL, NULL, &status);
}

static void write_name(char *name, const char *symbol, uint64_t inside)
{
	char *plain = demangle(symbol);
	snprintf(name, NAME_BYTES, "%.160s+%#llx", plain ? plain : symbol, (unsigned long long)inside);
	free(plain);
}

/* Names an address; returns its library, NULL: unknown. A return address lies behind its call, and can be the beginning
 * of another function, so the byte before it is asked about. */
static const char *ask_linker(const char *address, char *name)
{
	Dl_info info;
	char own[NAME_BYTES - 20];
	uint64_t inside;
	if (!dladdr(address - 1, &info) || !info.dli_fname)
		snprintf(name, NAME_BYTES, "%p", (const void *)address);
	else if (info.dli_sname)
		write_name(name, info.dli_sname, (uint64_t)(address - (const char *)info.dli_saddr));
	else if (file_symbol(address - 1, own, sizeof own, &inside))
		write_name(name, own, inside + 1);
	else
		snprintf(name, NAME_BYTES, "+%#tx", address - (const char *)info.dli_fbase);
	return info.dli_fname;
}

/* Keeps what the linker has said, unless there is no room for its library. */
static void keep(struct found *f, const char *address, const char *library, const char *name)
{
	const char *kept = library ? keep_library(library) : NULL;
	if (!kept)
		return;
	f->address = address;
	f->library = kept;
	memcpy(f->name, name, NAME_BYTES);
}

static int take_unloads(struct dl_phdr_info *info, size_t size, void *out)
{
	(void)size;
	*(unsigned long long *)out = info->dlpi_subs;
	return 1;  /* every library reports the same count, so the first is enough */
}

static void forget_after_unloads(void)
{
	unsigned long long now = names.unloads;
	dl_iterate_phdr(take_unloads, &now);
	for (unsigned i = 0; now != names.unloads && i < NAMES; i++)
		names.list[i].address = NULL;
	names.unloads = now;
}

static trz_frame describe(const char *address, char *name)
{
	struct found *f = &names.list[prng_mix((uint64_t)address) % NAMES];
	const char *library;
	if (atomic_flag_test_and_set_explicit(&names.busy, memory_order_acquire))
		return (trz_frame){.filename = ask_linker(address, name), .name = name};
	forget_after_unloads();
	if (f->address == address) {
		library = f->library;
		memcpy(name, f->name, NAME_BYTES);
	} else {
		library = ask_linker(address, name);
		keep(f, address, library, name);
	}
	atomic_flag_clear_explicit(&names.busy, memory_order_release);
	return (trz_frame){.filename = library, .name = name};
}

static bool is_of_runtime(const char *address)
{
	char name[NAME_BYTES];
	const char *library = describe(address, name).filename;
	return library && (strstr(library, "/libcudart") || strstr(library, "/libcuda.so") || is_runtime_name(name));
}

NOINLINE const void *native_asker(const void *caller)
{
	void *levels[LEVELS_FOUND];
	int first, found;
	if (!is_of_runtime(caller))
		return caller;
	found = unwind(caller, levels, &first);
	if (first < found && levels[first] != caller)
		return caller;
	while (first < found && is_of_runtime(levels[first]))
		first++;
	return first < found ? levels[first] : caller;
}

size_t native_frame_of_address(const void *address, trz_frame *frame, size_t capacity)
{
	static _Thread_local char name[NAME_BYTES];
	if (capacity)
		*frame = describe(address, name);
	return capacity > 0;
}

/* Room for the names of a thread's newest stack. As a thread-local array it would take part of every thread's stack,
 * which may be as small as 16 KiB; so a thread gets it when it first asks, and has it until it ends. */
enum { ROOM_BYTES = LEVELS * NAME_BYTES };

static pthread_key_t room_key;
static bool has_rooms;

static void give_room_back(void *room)
{
	munmap(room, ROOM_BYTES);
}

static void begin_rooms(void)
{
	has_rooms = pthread_key_create(&room_key, give_room_back) == 0;
}

/* The thread's room; NULL: there is no host memory. */
static char *room_of_thread(void)
{
	static pthread_once_t begun = PTHREAD_ONCE_INIT;
	pthread_once(&begun, begin_rooms);
	char *room = has_rooms ? pthread_getspecific(room_key) : NULL;
	if (room || !has_rooms)
		return room;
	room = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED)
		return NULL;
	if (pthread_setspecific(room_key, room) == 0)
		return room;
	give_room_back(room);
	return NULL;
}

size_t trz_native_frame_text(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	(void)user;
	if (id == STACKS && capacity) {
		frames[0] = (trz_frame){.name = "(not recorded: the table of stacks was full)"};
		return 1;
	}
	char *room = id && id <= STACKS ? room_of_thread() : NULL;
	if (!room)
		return 0;
	const struct stack *s = &table.stacks[id - 1];
	size_t count = min_u64(s->count, capacity);
	for (size_t i = 0; i < count; i++)
		frames[i] = describe(table.levels[s->first + i], room + i * NAME_BYTES);
	return count;
}
