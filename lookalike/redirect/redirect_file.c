/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads an ELF file's symbols, from the full table if there is one, else from that of the dynamic linker. Files are
 * not trusted: every read is checked.
 */
#include "redirect.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool map_file(struct span *image, const char *path)
{
	struct stat about;
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return false;
	bool regular = fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
	void *at = regular ? mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
	close(file);
	*image = (struct span){ at, (size_t)about.st_size };
	return at != MAP_FAILED;
}

/* The first symbol table of this type, and its names. */
static bool find_symbols(struct redirect_file *f, const Elf64_Ehdr *header, uint32_t type)
{
	struct span sections;
	Elf64_Shdr s, names;
	if (header->e_shentsize != sizeof s ||
	    !span_part(f->image, header->e_shoff, (uint64_t)header->e_shnum * sizeof s, &sections))
		return false;
	for (size_t i = 0; i < header->e_shnum; i++) {
		span_read(sections, i * sizeof s, &s, sizeof s);
		if (s.sh_type == type)
			return span_part(f->image, s.sh_offset, s.sh_size, &f->symbols) &&
			       span_read(sections, (uint64_t)s.sh_link * sizeof names, &names, sizeof names) &&
			       span_part(f->image, names.sh_offset, names.sh_size, &f->names);
	}
	return false;
}

/* Few files have the name, so that few are read symbol by symbol. It may be the end of a longer one, such as
 * trz_cudaMalloc, since linkers store a name that ends another only once. */
static bool may_have_runtime(const struct redirect_file *f)
{
	static const char name[] = "cudaMalloc";
	return memmem(f->names.at, f->names.bytes, name, sizeof name) != NULL;
}

static bool read_file(struct redirect_file *f)
{
	Elf64_Ehdr header;
	if (!span_read(f->image, 0, &header, sizeof header) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64 ||
	    header.e_phentsize != sizeof(Elf64_Phdr) ||
	    !span_part(f->image, header.e_phoff, (uint64_t)header.e_phnum * sizeof(Elf64_Phdr), &f->segments))
		return false;
	return (find_symbols(f, &header, SHT_SYMTAB) && may_have_runtime(f)) ||
	       (find_symbols(f, &header, SHT_DYNSYM) && may_have_runtime(f));
}

bool redirect_open(struct redirect_file *f, const char *path)
{
	*f = (struct redirect_file){ 0 };
	if (!map_file(&f->image, path))
		return false;
	if (read_file(f))
		return true;
	redirect_close(f);
	return false;
}

void redirect_close(struct redirect_file *f)
{
	munmap((void *)f->image.at, f->image.bytes);
}

bool redirect_is_loaded(const struct redirect_file *f, uintptr_t base)
{
	Elf64_Phdr p;
	for (uint64_t at = 0; span_read(f->segments, at, &p, sizeof p); at += sizeof p)
		if (p.p_type == PT_LOAD && p.p_offset == 0)
			return memcmp((const void *)(base + p.p_vaddr), f->image.at, sizeof(Elf64_Ehdr)) == 0;
	return false;
}

/* The file's bytes at an address that holds code. */
static bool find_code(const struct redirect_file *f, uint64_t address, uint64_t bytes, struct span *code)
{
	Elf64_Phdr p;
	for (uint64_t at = 0; span_read(f->segments, at, &p, sizeof p); at += sizeof p)
		if (p.p_type == PT_LOAD && (p.p_flags & PF_X) && address >= p.p_vaddr && address - p.p_vaddr < p.p_filesz &&
		    bytes <= p.p_filesz - (address - p.p_vaddr))
			return span_part(f->image, p.p_offset + (address - p.p_vaddr), bytes, code);
	return false;
}

static bool is_runtime_name(const char *name)
{
	return strncmp(name, "cuda", 4) == 0 || strncmp(name, "__cuda", 6) == 0;
}

bool redirect_next(const struct redirect_file *f, size_t *at, struct redirect_function *found)
{
	Elf64_Sym s;
	while (span_read(f->symbols, *at * sizeof s, &s, sizeof s)) {
		++*at;
		const char *name = ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_shndx != SHN_UNDEF
		                 ? span_string(f->names, s.st_name) : NULL;
		struct span code;
		if (!name || !is_runtime_name(name) || !find_code(f, s.st_value, s.st_size, &code))
			continue;
		*found = (struct redirect_function){ name, s.st_value, code.at, code.bytes };
		return true;
	}
	return false;
}
