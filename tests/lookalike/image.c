/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the device code.
 */
#include "image.h"

#include <elf.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { CUDA_INFO = 0x70000000, STO_ENTRY = 0x10 };

static void *some(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

size_t image_append(struct image *image, const void *data, size_t bytes)
{
	size_t at = image->bytes;
	image->data = some(realloc(image->data, at + bytes + 1));
	if (data)
		memcpy(image->data + at, data, bytes);
	else
		memset(image->data + at, 0, bytes);
	image->bytes += bytes;
	return at;
}

void image_free(struct image *image)
{
	free(image->data);
	*image = (struct image){ 0 };
}

/* ---- cubins ---------------------------------------------------------------------------------------------- */

void cubin_begin(struct cubin_maker *m, unsigned sm)
{
	*m = (struct cubin_maker){ .sm = sm, .abi = 8 };
	image_append(&m->file, NULL, sizeof(Elf64_Ehdr));
	image_append(&m->names, NULL, 1);
	image_append(&m->strings, NULL, 1);
	image_append(&m->symbols, NULL, sizeof(Elf64_Sym));
	image_append(&m->sections, NULL, sizeof(Elf64_Shdr));
}

unsigned cubin_section(struct cubin_maker *m, const char *name, uint32_t type, uint32_t info, const void *data,
                       size_t bytes)
{
	Elf64_Shdr section = {
		.sh_name = (Elf64_Word)image_append(&m->names, name, strlen(name) + 1),
		.sh_type = type,
		.sh_info = info,
		.sh_offset = m->file.bytes,
		.sh_size = bytes,
	};
	if (type == SHT_SYMTAB)
		section.sh_link = (Elf64_Word)(m->sections.bytes / sizeof section - 1);
	if (type != SHT_NOBITS)
		image_append(&m->file, data, bytes);
	return (unsigned)(image_append(&m->sections, &section, sizeof section) / sizeof section);
}

unsigned cubin_symbol(struct cubin_maker *m, const char *name, unsigned type, unsigned other, unsigned section,
                      uint64_t value, uint64_t bytes)
{
	Elf64_Sym symbol = {
		.st_name = (Elf64_Word)image_append(&m->strings, name, strlen(name) + 1),
		.st_info = ELF64_ST_INFO(STB_GLOBAL, type),
		.st_other = (unsigned char)other,
		.st_shndx = (Elf64_Section)section,
		.st_value = value,
		.st_size = bytes,
	};
	return (unsigned)(image_append(&m->symbols, &symbol, sizeof symbol) / sizeof symbol);
}

unsigned cubin_kernel(struct cubin_maker *m, const char *name, const struct image *info)
{
	char section[256];
	snprintf(section, sizeof section, ".text.%s", name);
	unsigned code = cubin_section(m, section, SHT_PROGBITS, 0, NULL, 16);
	snprintf(section, sizeof section, ".nv.info.%s", name);
	if (info)
		cubin_section(m, section, CUDA_INFO, code, info->data, info->bytes);
	return cubin_symbol(m, name, STT_FUNC, STO_ENTRY, code, 0, 16);
}

struct image cubin_end(struct cubin_maker *m)
{
	cubin_section(m, ".strtab", SHT_STRTAB, 0, m->strings.data, m->strings.bytes);
	cubin_section(m, ".symtab", SHT_SYMTAB, 0, m->symbols.data, m->symbols.bytes);
	size_t name = image_append(&m->names, ".shstrtab", sizeof ".shstrtab");
	Elf64_Shdr names = { .sh_name = (Elf64_Word)name, .sh_type = SHT_STRTAB, .sh_size = m->names.bytes };
	names.sh_offset = image_append(&m->file, m->names.data, m->names.bytes);
	image_append(&m->sections, &names, sizeof names);
	Elf64_Ehdr header = {
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 0x41, (unsigned char)m->abi },
		.e_type = ET_EXEC,
		.e_machine = 190,
		.e_flags = m->abi >= 8 ? m->sm << 8 | 0x6000002 : m->sm << 16 | m->sm | 0x500,
		.e_ehsize = sizeof header,
		.e_shentsize = sizeof names,
		.e_shnum = (Elf64_Half)(m->sections.bytes / sizeof names),
		.e_shstrndx = (Elf64_Half)(m->sections.bytes / sizeof names - 1),
	};
	header.e_shoff = image_append(&m->file, m->sections.data, m->sections.bytes);
	memcpy(m->file.data, &header, sizeof header);
	struct image file = m->file;
	image_free(&m->names);
	image_free(&m->strings);
	image_free(&m->symbols);
	image_free(&m->sections);
	*m = (struct cubin_maker){ 0 };
	return file;
}

void info_record(struct image *info, unsigned attribute, const void *data, uint16_t bytes)
{
	uint8_t head[4] = { 4, (uint8_t)attribute, (uint8_t)bytes, (uint8_t)(bytes >> 8) };
	image_append(info, head, sizeof head);
	image_append(info, data, bytes);
}

void info_value(struct image *info, unsigned attribute, uint16_t value)
{
	uint8_t head[4] = { 3, (uint8_t)attribute, (uint8_t)value, (uint8_t)(value >> 8) };
	image_append(info, head, sizeof head);
}

void info_param(struct image *info, uint16_t ordinal, uint16_t offset, uint16_t size)
{
	uint32_t words[3] = { 0, ordinal | (uint32_t)offset << 16, (uint32_t)size << 18 | 0x1f000 };
	info_record(info, 0x17, words, sizeof words);
}

void info_param_large(struct image *info, uint16_t ordinal, uint16_t offset, uint16_t size)
{
	uint32_t words[3] = { 0, ordinal | (uint32_t)offset << 16, size | 0x05000000u };
	info_record(info, 0x45, words, sizeof words);
}

struct image cubin_of_one(unsigned sm, const char *kernel)
{
	struct cubin_maker m;
	struct image info = { 0 };
	cubin_begin(&m, sm);
	info_value(&info, 0x1b, 255);
	cubin_kernel(&m, kernel, &info);
	image_free(&info);
	return cubin_end(&m);
}

/* ---- fatbins --------------------------------------------------------------------------------------------- */

struct image fatbin_empty(void)
{
	struct image fatbin = { 0 };
	uint32_t header[4] = { 0xba55ed50, 1 | 16 << 16, 0, 0 };
	image_append(&fatbin, header, sizeof header);
	return fatbin;
}

void fatbin_add(struct image *fatbin, unsigned kind, unsigned sm, uint64_t flags, const struct image *payload,
                uint64_t unpacked)
{
	uint64_t stored = (payload->bytes + 7) / 8 * 8;
	bool packed = flags & (ENTRY_LZ4 | ENTRY_ZSTD);
	uint64_t header[9] = {
		kind | 0x01010000ull | 72ull << 32, stored, packed ? payload->bytes : 0, (uint64_t)sm << 32, 0,
		flags, 0, packed ? unpacked : 0, 0,
	};
	image_append(fatbin, header, sizeof header);
	image_append(fatbin, payload->data, payload->bytes);
	image_append(fatbin, NULL, stored - payload->bytes);
	uint64_t bytes = fatbin->bytes - 16;
	memcpy(fatbin->data + 8, &bytes, sizeof bytes);
}

struct image image_lz4(const struct image *from)
{
	struct image to = { 0 };
	image_append(&to, NULL, (size_t)LZ4_compressBound((int)from->bytes));
	to.bytes = (size_t)LZ4_compress_default((const char *)from->data, (char *)to.data, (int)from->bytes,
	                                        (int)to.bytes);
	return to;
}

struct image image_zstd(const struct image *from)
{
	struct image to = { 0 };
	image_append(&to, NULL, ZSTD_compressBound(from->bytes));
	to.bytes = ZSTD_compress(to.data, to.bytes, from->data, from->bytes, 3);
	return to;
}
