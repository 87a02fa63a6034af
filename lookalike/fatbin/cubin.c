/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads an ELF cubin, in the form that ptxas of CUDA 11 to 13 writes: a kernel is a function symbol whose st_other has
 * STO_CUDA_ENTRY; the sh_info of its .nv.info.<kernel> and .nv.shared.<kernel> names the kernel's code section; facts
 * by symbol (registers, stack) are in the section .nv.info.
 */
#include "cubin.h"

#include <elf.h>
#include <stdlib.h>

#include "bits.h"
#include "error.h"

enum {
	EM_CUDA_CUBIN = 190,
	SHT_CUDA_INFO = 0x70000000,
	STT_CUDA_OBJECT = 13,           /* a variable in a cubin that is still to be linked */
	STO_CUDA_MANAGED = 0x04,
	STO_CUDA_ENTRY = 0x10,
	ABI_SM_IN_SECOND_BYTE = 8,      /* EI_ABIVERSION from which e_flags has the architecture in bits 8..15 */
	SM_WITH_RESERVED_SHARED = 90,   /* from here .nv.shared.<kernel> includes the system's reserve */
	RESERVED_SHARED_BYTES = 1024,
};

/* A record of .nv.info: format, attribute, then a 16-bit value or the size of the bytes that follow. */
enum { FORMAT_SIZED = 4 };
enum {
	ATTR_MAX_THREADS = 0x05,       /* x, y, z */
	ATTR_REQUIRED_THREADS = 0x10,  /* x, y, z */
	ATTR_FRAME_SIZE = 0x11,        /* symbol, bytes */
	ATTR_PARAM = 0x17,             /* index:32 ordinal:16 offset:16, then size in bits 18..31 of 32 */
	ATTR_PARAM_BYTES = 0x19,       /* a 16-bit value */
	ATTR_REGISTERS = 0x2f,         /* symbol, count */
	ATTR_PARAM_V2 = 0x45,          /* index:32 ordinal:16 offset:16 size:16 flags:16, for large parameters */
};

struct info_record {
	uint8_t format, attribute;
	uint16_t value;
	struct span bytes;  /* FORMAT_SIZED: `value` of them */
};

/* The sections that belong to the code section of this number. */
struct code_section {
	uint32_t info;    /* section .nv.info.<kernel>, or 0 */
	uint32_t shared;  /* section .nv.shared.<kernel>, or 0 */
	uint32_t kernel;  /* 1 + place in the index, or 0 */
};

/* Invariant: symbol and section tables lie in `image`; the contents of other sections are unchecked. */
struct cubin {
	struct span image, section_names, names, sections, symbols;
	uint32_t section_count, symbol_count;
	uint32_t info;              /* section .nv.info, or 0 */
	uint32_t constants;         /* section .nv.constant3, the program's own constants, or 0 */
	struct code_section *code;  /* section_count of them */
	struct code_index *index;
};

static trz_status damaged(const char *what)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT, "cubin: %s: damaged or truncated; build the program again", what);
}

bool cubin_is(struct span image)
{
	return image.bytes >= SELFMAG && memcmp(image.at, ELFMAG, SELFMAG) == 0;
}

static Elf64_Shdr section_of(const struct cubin *c, uint32_t number)
{
	Elf64_Shdr section = { 0 };
	if (number < c->section_count)
		span_read(c->sections, (uint64_t)number * sizeof section, &section, sizeof section);
	return section;
}

static Elf64_Sym symbol_of(const struct cubin *c, uint32_t number)
{
	Elf64_Sym symbol = { 0 };
	if (number < c->symbol_count)
		span_read(c->symbols, (uint64_t)number * sizeof symbol, &symbol, sizeof symbol);
	return symbol;
}

static const char *section_name(const struct cubin *c, const Elf64_Shdr *section)
{
	const char *name = span_string(c->section_names, section->sh_name);
	return name ? name : "";
}

static bool contents_of(const struct cubin *c, const Elf64_Shdr *section, struct span *contents)
{
	return section->sh_type != SHT_NOBITS && span_part(c->image, section->sh_offset, section->sh_size, contents);
}

static trz_status read_header(struct cubin *c)
{
	Elf64_Ehdr header;
	if (!span_read(c->image, 0, &header, sizeof header))
		return damaged("its header is cut off");
	if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
	    header.e_machine != EM_CUDA_CUBIN)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "ELF file of class %u, machine %u: a cubin is of class 2, machine %u",
		                header.e_ident[EI_CLASS], header.e_machine, (unsigned)EM_CUDA_CUBIN);
	c->index->sm = header.e_ident[EI_ABIVERSION] >= ABI_SM_IN_SECOND_BYTE ? header.e_flags >> 8 & 0xff
	                                                                      : header.e_flags & 0xff;
	c->section_count = header.e_shnum;
	if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0)
		return damaged("it has no section table");
	if (!span_part(c->image, header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr), &c->sections))
		return damaged("its section table lies outside of it");
	Elf64_Shdr names = section_of(c, header.e_shstrndx);
	if (!contents_of(c, &names, &c->section_names))
		return damaged("its section names lie outside of it");
	return TRZ_OK;
}

static trz_status read_symbols(struct cubin *c, const Elf64_Shdr *table)
{
	Elf64_Shdr names = section_of(c, table->sh_link);
	if (!contents_of(c, table, &c->symbols) || !contents_of(c, &names, &c->names))
		return damaged("its symbols lie outside of it");
	uint64_t count = c->symbols.bytes / sizeof(Elf64_Sym);
	c->symbol_count = (uint32_t)min_u64(count, UINT32_MAX);
	return TRZ_OK;
}

/* Notes the sections that are needed later. */
static trz_status read_sections(struct cubin *c)
{
	bool symbols = false;
	for (uint32_t i = 1; i < c->section_count; i++) {
		Elf64_Shdr section = section_of(c, i);
		const char *name = section_name(c, &section);
		if (section.sh_type == SHT_SYMTAB) {
			trz_status status = read_symbols(c, &section);
			if (status != TRZ_OK)
				return status;
			symbols = true;
		} else if (section.sh_type == SHT_CUDA_INFO && strcmp(name, ".nv.info") == 0) {
			c->info = i;
		} else if (strcmp(name, ".nv.constant3") == 0) {
			c->constants = i;
		} else if (section.sh_type == SHT_CUDA_INFO && section.sh_info < c->section_count &&
		           strncmp(name, ".nv.info.", strlen(".nv.info.")) == 0) {
			c->code[section.sh_info].info = i;
		} else if (section.sh_info < c->section_count &&
		           strncmp(name, ".nv.shared.", strlen(".nv.shared.")) == 0) {
			c->code[section.sh_info].shared = i;
		}
	}
	return symbols ? TRZ_OK : damaged("it has no symbol table");
}

/* ---- .nv.info -------------------------------------------------------------------------------------------- */

/* Reads the record at `*at` and moves `*at` to the next; false at the end. A cut-off record sets `*broken`. */
static bool next_record(struct span info, size_t *at, struct info_record *record, bool *broken)
{
	uint8_t head[4];
	if (*at >= info.bytes)
		return false;
	if (!span_read(info, *at, head, sizeof head)) {
		*broken = true;
		return false;
	}
	*at += sizeof head;
	*record = (struct info_record){ .format = head[0], .attribute = head[1], .value = span_u16(head + 2) };
	if (record->format == FORMAT_SIZED) {
		*broken = !span_part(info, *at, record->value, &record->bytes);
		*at += align_up(record->value, 4);
	}
	return !*broken;
}

static bool is_param(const struct info_record *record)
{
	return (record->attribute == ATTR_PARAM || record->attribute == ATTR_PARAM_V2) && record->bytes.bytes >= 12;
}

static uint32_t threads_of(const struct info_record *record)
{
	uint64_t threads = 1;
	for (size_t i = 0; i < 3; i++)
		threads = min_u64(threads * span_u32(record->bytes.at + 4 * i), UINT32_MAX);
	return (uint32_t)threads;
}

/* Records come in any order; each ordinal must come once. */
static bool place_param(struct kernel_params *params, const struct info_record *record)
{
	const uint8_t *at = record->bytes.at;
	uint32_t size = record->attribute == ATTR_PARAM ? span_u32(at + 8) >> 18 : span_u16(at + 8);
	uint16_t ordinal = span_u16(at + 4), offset = span_u16(at + 6);
	if (ordinal >= params->count || params->list[ordinal].size || size == 0)
		return false;
	params->list[ordinal] = (struct kernel_param){ offset, size };
	params->bytes = (uint32_t)max_u64(params->bytes, offset + size);
	return true;
}

/* Reads the kernel's facts except its parameters, and counts these. */
static bool survey(struct span info, struct fatbin_kernel *kernel, uint32_t *count, uint32_t *bytes)
{
	struct info_record record;
	bool broken = false;
	for (size_t at = 0; next_record(info, &at, &record, &broken);) {
		if (is_param(&record))
			++*count;
		else if (record.attribute == ATTR_PARAM_BYTES)
			*bytes = record.value;
		else if ((record.attribute == ATTR_MAX_THREADS || record.attribute == ATTR_REQUIRED_THREADS) &&
		         record.bytes.bytes >= 12)
			kernel->max_threads = threads_of(&record);
	}
	return !broken;
}

static trz_status read_kernel_info(struct cubin *c, uint32_t section_number, struct fatbin_kernel *kernel)
{
	Elf64_Shdr section = section_of(c, section_number);
	struct span info;
	uint32_t count = 0, bytes = 0;
	if (!contents_of(c, &section, &info) || !survey(info, kernel, &count, &bytes))
		return damaged("a kernel's .nv.info is cut off");
	if (count == 0 && bytes > 0) {
		kernel->no_params = "its cubin has the size of its parameters but not their places";
		return TRZ_OK;
	}
	struct kernel_params params = { .count = count, .bytes = bytes };
	if (count > 0 && !(params.list = index_bytes(c->index, count * sizeof *params.list)))
		return index_no_memory();
	struct info_record record;
	bool broken = false;
	for (size_t at = 0; next_record(info, &at, &record, &broken);)
		if (is_param(&record) && !place_param(&params, &record)) {
			kernel->no_params = "its cubin numbers its parameters in a way that is not understood";
			return TRZ_OK;
		}
	kernel->params = params;
	return TRZ_OK;
}

/* The records of .nv.info name symbols; a kernel has one code section. */
static void read_facts_by_symbol(struct cubin *c)
{
	Elf64_Shdr section = section_of(c, c->info);
	struct span info;
	struct info_record record;
	bool broken = false;
	if (c->info == 0 || !contents_of(c, &section, &info))
		return;
	for (size_t at = 0; next_record(info, &at, &record, &broken);) {
		if (record.bytes.bytes < 8)
			continue;
		Elf64_Sym symbol = symbol_of(c, span_u32(record.bytes.at));
		uint32_t place = symbol.st_shndx < c->section_count ? c->code[symbol.st_shndx].kernel : 0;
		if (place == 0 || !(symbol.st_other & STO_CUDA_ENTRY))
			continue;
		struct fatbin_kernel *kernel = &c->index->kernels[place - 1];
		if (record.attribute == ATTR_REGISTERS)
			kernel->registers = span_u32(record.bytes.at + 4);
		else if (record.attribute == ATTR_FRAME_SIZE)
			kernel->local_bytes = span_u32(record.bytes.at + 4);
	}
}

/* ---- symbols --------------------------------------------------------------------------------------------- */

static uint32_t static_shared(const struct cubin *c, uint32_t section_number)
{
	Elf64_Shdr section = section_of(c, section_number);
	uint64_t bytes = section_number ? section.sh_size : 0;
	if (c->index->sm >= SM_WITH_RESERVED_SHARED && bytes >= RESERVED_SHARED_BYTES)
		bytes -= RESERVED_SHARED_BYTES;
	return (uint32_t)min_u64(bytes, UINT32_MAX);
}

static uint32_t constants_of(const struct cubin *c)
{
	Elf64_Shdr section = section_of(c, c->constants);
	return c->constants ? (uint32_t)min_u64(section.sh_size, UINT32_MAX) : 0;
}

static trz_status add_kernel(struct cubin *c, const Elf64_Sym *symbol, const char *name)
{
	struct fatbin_kernel *kernel = index_add_kernel(c->index, name, strlen(name));
	if (!kernel)
		return index_no_memory();
	struct code_section *code = &c->code[symbol->st_shndx];
	code->kernel = (uint32_t)c->index->kernel_count;
	kernel->shared_bytes = static_shared(c, code->shared);
	kernel->constant_bytes = constants_of(c);
	if (code->info)
		return read_kernel_info(c, code->info, kernel);
	kernel->no_params = "its cubin has no .nv.info section for it";
	return TRZ_OK;
}

static trz_status add_variable(struct cubin *c, const Elf64_Sym *symbol, const char *name)
{
	Elf64_Shdr section = section_of(c, symbol->st_shndx);
	const char *in = section_name(c, &section);
	bool constant = strcmp(in, ".nv.constant3") == 0;
	bool initialized = constant || strcmp(in, ".nv.global.init") == 0;
	if (!initialized && strcmp(in, ".nv.global") != 0)
		return TRZ_OK;
	struct fatbin_variable *variable = index_add_variable(c->index, name, strlen(name));
	if (!variable)
		return index_no_memory();
	variable->bytes = symbol->st_size;
	variable->constant = constant;
	variable->managed = symbol->st_other & STO_CUDA_MANAGED;
	struct span contents, value;
	if (!initialized || section.sh_type == SHT_NOBITS || symbol->st_size == 0)
		return TRZ_OK;
	if (!contents_of(c, &section, &contents) || !span_part(contents, symbol->st_value, symbol->st_size, &value))
		return damaged("a variable lies outside of it");
	if (value.at[0] == 0 && memcmp(value.at, value.at + 1, value.bytes - 1) == 0)
		return TRZ_OK;
	void *initial = index_bytes(c->index, value.bytes);
	if (!initial)
		return index_no_memory();
	variable->initial = memcpy(initial, value.at, value.bytes);
	return TRZ_OK;
}

static trz_status read_names(struct cubin *c)
{
	for (uint32_t i = 1; i < c->symbol_count; i++) {
		Elf64_Sym symbol = symbol_of(c, i);
		unsigned type = ELF64_ST_TYPE(symbol.st_info);
		bool kernel = type == STT_FUNC && symbol.st_other & STO_CUDA_ENTRY;
		bool variable = type == STT_OBJECT || type == STT_CUDA_OBJECT;
		if ((!kernel && !variable) || symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= c->section_count)
			continue;
		const char *name = span_string(c->names, symbol.st_name);
		if (!name)
			return damaged("a symbol's name lies outside of it");
		trz_status status = kernel ? add_kernel(c, &symbol, name) : add_variable(c, &symbol, name);
		if (status != TRZ_OK)
			return status;
	}
	read_facts_by_symbol(c);
	return TRZ_OK;
}

trz_status cubin_index(struct span image, struct code_index *index)
{
	struct cubin c = { .image = image, .index = index };
	trz_status status = read_header(&c);
	if (status != TRZ_OK)
		return status;
	c.code = calloc(c.section_count, sizeof *c.code);
	if (!c.code)
		return index_no_memory();
	status = read_sections(&c);
	if (status == TRZ_OK)
		status = read_names(&c);
	free(c.code);
	return status;
}
