/* SPDX-License-Identifier: Apache-2.0
 *
 * Handmade device code: cubins and fatbins with as little in them as a reader needs.
 */
#ifndef TRZ_TESTS_IMAGE_H
#define TRZ_TESTS_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image {
	uint8_t *data;
	size_t bytes;
};

/* Appends; `data` NULL appends zeros. Returns where it begins. */
size_t image_append(struct image *image, const void *data, size_t bytes);
void image_free(struct image *image);

/* A cubin under way. Sections are numbered from 1 as they are added. */
struct cubin_maker {
	struct image file, names, strings, symbols, sections;
	unsigned sm;
	unsigned abi;
};

void cubin_begin(struct cubin_maker *m, unsigned sm);
unsigned cubin_section(struct cubin_maker *m, const char *name, uint32_t type, uint32_t info, const void *data,
                       size_t bytes);
unsigned cubin_symbol(struct cubin_maker *m, const char *name, unsigned type, unsigned other, unsigned section,
                      uint64_t value, uint64_t bytes);
/* The code section and symbol of a kernel and its .nv.info.<name>; returns the symbol. */
unsigned cubin_kernel(struct cubin_maker *m, const char *name, const struct image *info);
/* The finished file; the maker is empty again. */
struct image cubin_end(struct cubin_maker *m);

/* A record of .nv.info with bytes of its own, one with a 16-bit value, and those of a parameter. */
void info_record(struct image *info, unsigned attribute, const void *data, uint16_t bytes);
void info_value(struct image *info, unsigned attribute, uint16_t value);
void info_param(struct image *info, uint16_t ordinal, uint16_t offset, uint16_t size);
void info_param_large(struct image *info, uint16_t ordinal, uint16_t offset, uint16_t size);

enum { ENTRY_PTX = 1, ENTRY_CUBIN = 2, ENTRY_LTO = 8 };
enum { ENTRY_LZ4 = 0x2000, ENTRY_ZSTD = 0x8000, ENTRY_ONE_SM = 0x100000 };

/* A fatbin grows by entries; `unpacked` is what the header claims where `flags` says that it is packed. */
struct image fatbin_empty(void);
void fatbin_add(struct image *fatbin, unsigned kind, unsigned sm, uint64_t flags, const struct image *payload,
                uint64_t unpacked);
struct image image_lz4(const struct image *from);
struct image image_zstd(const struct image *from);

/* A cubin of one kernel without parameters. */
struct image cubin_of_one(unsigned sm, const char *kernel);

#endif
