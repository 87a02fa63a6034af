/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads .symtab and its strings from a mapping of the whole file. Every offset is checked: the file may have been
 * replaced since it was loaded.
 */
#include "file_symbol.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "uncancelled.h"

struct image {
	const char *bytes;
	uint64_t size;
};

/* `count` things of `each` bytes at an offset; NULL: not all of them are in the file. */
static const void *part(const struct image *f, uint64_t offset, uint64_t count, uint64_t each)
{
	bool inside = offset <= f->size && count <= (f->size - offset) / each && offset % _Alignof(uint64_t) == 0;
	return inside ? f->bytes + offset : NULL;
}

static const Elf64_Shdr *sections_of(const struct image *f, unsigned *count)
{
	const Elf64_Ehdr *head = part(f, 0, 1, sizeof *head);
	if (!head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64 ||
	    head->e_shentsize != sizeof(Elf64_Shdr))
		return NULL;
	*count = head->e_shnum;
	return part(f, head->e_shoff, *count, sizeof(Elf64_Shdr));
}

static bool find_in(const struct image *f, const Elf64_Shdr *table, const Elf64_Shdr *strings, uint64_t place,
                    char *name, size_t room, uint64_t *inside)
{
	uint64_t count = table->sh_size / sizeof(Elf64_Sym);
	const Elf64_Sym *list = part(f, table->sh_offset, count, sizeof *list);
	bool has_text = strings->sh_offset <= f->size && strings->sh_size <= f->size - strings->sh_offset;
	for (uint64_t i = 0; list && has_text && i < count; i++) {
		const Elf64_Sym *s = &list[i];
		if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || place - s->st_value >= s->st_size ||
		    s->st_name >= strings->sh_size)
			continue;
		uint64_t most = strings->sh_size - s->st_name;
		snprintf(name, room, "%.*s", most < room ? (int)most : (int)room, f->bytes + strings->sh_offset + s->st_name);
		*inside = place - s->st_value;
		return true;
	}
	return false;
}

static bool find(const struct image *f, uint64_t place, char *name, size_t room, uint64_t *inside)
{
	unsigned count = 0;
	const Elf64_Shdr *sections = sections_of(f, &count);
	for (unsigned i = 0; sections && i < count; i++)
		if (sections[i].sh_type == SHT_SYMTAB && sections[i].sh_link < count)
			return find_in(f, &sections[i], &sections[sections[i].sh_link], place, name, room, inside);
	return false;
}

static bool map_file(const char *path, struct image *f)
{
	struct stat about = {0};
	int cancel = uncancelled_begin(), fd = open(path, O_RDONLY | O_CLOEXEC);
	void *bytes = fd >= 0 && fstat(fd, &about) == 0 && about.st_size > 0
	                  ? mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
	                  : MAP_FAILED;
	if (fd >= 0)
		close(fd);
	uncancelled_end(cancel);
	*f = (struct image){bytes, (uint64_t)about.st_size};
	return bytes != MAP_FAILED;
}

bool file_symbol(const void *address, char *name, size_t room, uint64_t *inside)
{
	Dl_info info;
	struct link_map *map = NULL;
	struct image f;
	if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
		return false;
	/* The program's own name is empty; it may have changed its folder since it was started by a relative path. */
	if (!map_file(*map->l_name ? map->l_name : "/proc/self/exe", &f))
		return false;
	bool found = find(&f, (uint64_t)(uintptr_t)address - map->l_addr, name, room, inside);
	munmap((void *)(uintptr_t)f.bytes, f.size);
	return found;
}
