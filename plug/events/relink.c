/* SPDX-License-Identifier: Apache-2.0
 *
 * Imports of loaded ELF objects. Another thread may be loading an object meanwhile: dl_iterate_phdr shows it before its
 * imports are written. So this writes no import that the loader has yet to write, and changes no page's protection
 * before the loader has set it for the last time.
 */
#include "relink.h"

#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { IMPORT_CALL = R_X86_64_JUMP_SLOT, IMPORT_ADDRESS = R_X86_64_GLOB_DAT, IMPORT_WORD = R_X86_64_64 };
#elif defined(__aarch64__)
enum { IMPORT_CALL = R_AARCH64_JUMP_SLOT, IMPORT_ADDRESS = R_AARCH64_GLOB_DAT, IMPORT_WORD = R_AARCH64_ABS64 };
#else
enum { IMPORT_CALL = -1, IMPORT_ADDRESS = -2, IMPORT_WORD = -3 };
#endif

struct object {
	const struct dl_phdr_info *info;
	const ElfW(Sym) *symbols;
	const char *names;
	const ElfW(Rela) *calls, *others;
	size_t call_count, other_count;
	size_t relative;             /* the first of `others` name no symbol */
	uintptr_t extent;            /* where its addresses end, as an offset */
	uintptr_t relro, relro_end;  /* pages that the loader makes read-only when it is done with the object */
};

struct walk {
	const struct relink *list;
	size_t count;
	struct relink_scan scan;
	uintptr_t page;              /* the last one whose protection was looked up */
	int protection;
};

/* ---- the object ---- */

/* glibc turns the addresses of the dynamic section into absolute ones, other loaders do not. */
static const void *located(const struct dl_phdr_info *info, ElfW(Addr) address)
{
	return (const void *)(address >= info->dlpi_addr ? address : address + info->dlpi_addr);
}

static void read_dynamic(struct object *o, const ElfW(Dyn) *d)
{
	for (; d->d_tag != DT_NULL; d++)
		switch (d->d_tag) {
		case DT_SYMTAB:
			o->symbols = located(o->info, d->d_un.d_ptr);
			break;
		case DT_STRTAB:
			o->names = located(o->info, d->d_un.d_ptr);
			break;
		case DT_JMPREL:
			o->calls = located(o->info, d->d_un.d_ptr);
			break;
		case DT_PLTRELSZ:
			o->call_count = d->d_un.d_val / sizeof *o->calls;
			break;
		case DT_RELA:
			o->others = located(o->info, d->d_un.d_ptr);
			break;
		case DT_RELASZ:
			o->other_count = d->d_un.d_val / sizeof *o->others;
			break;
		case DT_RELACOUNT:
			o->relative = d->d_un.d_val;
			break;
		}
}

static struct object read_object(const struct dl_phdr_info *info)
{
	struct object o = {.info = info};
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + p->p_vaddr;
		if (p->p_type == PT_LOAD && p->p_vaddr + p->p_memsz > o.extent)
			o.extent = p->p_vaddr + p->p_memsz;
		if (p->p_type == PT_DYNAMIC) {
			read_dynamic(&o, (const ElfW(Dyn) *)start);
		} else if (p->p_type == PT_GNU_RELRO) {
			o.relro = start / page * page;
			o.relro_end = (start + p->p_memsz) / page * page;
		}
	}
	return o;
}

static bool contains(const struct dl_phdr_info *info, uintptr_t address)
{
	for (size_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && address - info->dlpi_addr - p->p_vaddr < p->p_memsz)
			return true;
	}
	return false;
}

/* ---- one import ---- */

/* A page's protection; -1: not mapped, or unknown. */
static int protection_of(uintptr_t address)
{
	int protection = -1;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "re");
	while (maps && protection < 0 && fgets(line, sizeof line, maps)) {
		unsigned long start, end;
		char mode[5];
		if (sscanf(line, "%lx-%lx %4s", &start, &end, mode) == 3 && address >= start && address < end)
			protection = (mode[0] == 'r' ? PROT_READ : 0) | (mode[1] == 'w' ? PROT_WRITE : 0) |
			             (mode[2] == 'x' ? PROT_EXEC : 0);
	}
	if (maps)
		fclose(maps);
	return protection;
}

static bool write_import(struct walk *w, const struct object *o, uintptr_t *slot, uintptr_t value)
{
	const uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), page = (uintptr_t)slot / size * size;
	bool in_relro = page >= o->relro && page < o->relro_end;
	if (!in_relro) {
		atomic_store_explicit((_Atomic(uintptr_t) *)slot, value, memory_order_release);
		return true;
	}
	if (w->page != page || w->protection != PROT_READ) {
		w->page = page;
		w->protection = protection_of(page);
	}
	if (w->protection != PROT_READ || mprotect((void *)page, size, PROT_READ | PROT_WRITE) != 0)
		return false;
	atomic_store_explicit((_Atomic(uintptr_t) *)slot, value, memory_order_release);
	mprotect((void *)page, size, PROT_READ);
	return true;
}

/* Replaces one import. An import that has not been called yet leads to code of the object itself, which asks the
 * loader. An offset in it has yet to be turned into an address by the loader. */
static void relink(struct walk *w, const struct object *o, const struct relink *function, const ElfW(Rela) *r)
{
	const uintptr_t base = o->info->dlpi_addr;
	uintptr_t *slot = (uintptr_t *)(base + r->r_offset);
	uintptr_t value = atomic_load_explicit((_Atomic(uintptr_t) *)slot, memory_order_acquire);
	bool uncalled = (int)ELF64_R_TYPE(r->r_info) == IMPORT_CALL && contains(o->info, value);
	if (value == (uintptr_t)function->replacement)
		w->scan.done++;
	else if (value != (uintptr_t)function->real && !uncalled && value >= o->extent)
		w->scan.strange++;
	else if ((value == (uintptr_t)function->real || uncalled) &&
	         write_import(w, o, slot, (uintptr_t)function->replacement))
		w->scan.replaced++;
	else
		w->scan.unready++;
}

static const struct relink *wanted(const struct walk *w, const struct object *o, const ElfW(Rela) *r)
{
	const ElfW(Sym) *symbol = &o->symbols[ELF64_R_SYM(r->r_info)];
	if (symbol->st_shndx != SHN_UNDEF)
		return NULL;
	const char *name = o->names + symbol->st_name;
	for (size_t i = 0; i < w->count; i++)
		if (w->list[i].name[0] == name[0] && w->list[i].real && strcmp(w->list[i].name, name) == 0)
			return &w->list[i];
	return NULL;
}

/* ---- all ---- */

static void relink_some(struct walk *w, const struct object *o, const ElfW(Rela) *r, size_t count)
{
	for (const ElfW(Rela) *end = r + count; r < end; r++) {
		int type = (int)ELF64_R_TYPE(r->r_info);
		if (type != IMPORT_CALL && type != IMPORT_ADDRESS && (type != IMPORT_WORD || r->r_addend != 0))
			continue;
		const struct relink *function = wanted(w, o, r);
		if (function)
			relink(w, o, function, r);
	}
}

static int visit(struct dl_phdr_info *info, size_t size, void *data)
{
	struct walk *w = data;
	(void)size;
	w->scan.loaded = info->dlpi_adds;
	for (size_t i = 0; i < w->count; i++)
		if (contains(info, (uintptr_t)w->list[i].replacement) ||
		    (w->list[i].real && contains(info, (uintptr_t)w->list[i].real)))
			return 0;
	struct object o = read_object(info);
	if (!o.symbols || !o.names)
		return 0;
	if (o.calls)
		relink_some(w, &o, o.calls, o.call_count);
	if (o.others && o.other_count > o.relative)
		relink_some(w, &o, o.others + o.relative, o.other_count - o.relative);
	return 0;
}

struct relink_scan relink_all(const struct relink *list, size_t count)
{
	struct walk w = {.list = list, .count = count};
	dl_iterate_phdr(visit, &w);
	return w.scan;
}

/* ---- looking only ---- */

struct look {
	const char *const *names;
	size_t count;
	const char *unless;
};

static bool imports_any(const struct object *o, const ElfW(Rela) *r, size_t relocations, const char *const *names,
                        size_t count)
{
	for (const ElfW(Rela) *end = r + relocations; r && r < end; r++) {
		const ElfW(Sym) *symbol = &o->symbols[ELF64_R_SYM(r->r_info)];
		for (size_t i = 0; i < count && symbol->st_shndx == SHN_UNDEF; i++)
			if (strcmp(o->names + symbol->st_name, names[i]) == 0)
				return true;
	}
	return false;
}

static bool object_imports(const struct object *o, const char *const *names, size_t count)
{
	return imports_any(o, o->calls, o->call_count, names, count) ||
	       imports_any(o, o->others, o->other_count, names, count);
}

static int look_at(struct dl_phdr_info *info, size_t size, void *data)
{
	const struct look *l = data;
	(void)size;
	struct object o = read_object(info);
	return o.symbols && o.names && object_imports(&o, l->names, l->count) && !object_imports(&o, &l->unless, 1);
}

bool relink_imports(const char *const *names, size_t count, const char *unless)
{
	struct look look = {names, count, unless};
	return dl_iterate_phdr(look_at, &look) != 0;
}

static int read_loaded(struct dl_phdr_info *info, size_t size, void *loaded)
{
	(void)size;
	*(uint64_t *)loaded = info->dlpi_adds;
	return 1;
}

uint64_t relink_loaded(void)
{
	uint64_t loaded = 0;
	dl_iterate_phdr(read_loaded, &loaded);
	return loaded;
}
