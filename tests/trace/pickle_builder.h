/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes pickles by hand, for the tests of their reader.
 */
#ifndef TRZ_TESTS_PICKLE_BUILDER_H
#define TRZ_TESTS_PICKLE_BUILDER_H

#include <stddef.h>
#include <stdint.h>

struct pickle_builder {
	uint8_t bytes[4096];
	size_t size;
};

/* The bytes of a string literal, zeros inside included. */
#define PUT(builder, literal) build_bytes(builder, literal, sizeof(literal) - 1)

void build_bytes(struct pickle_builder *b, const void *bytes, size_t size);
void build_string(struct pickle_builder *b, const char *text);
void build_int(struct pickle_builder *b, int64_t value);

/* A snapshot whose only device has the entries added between the two. */
void build_begin(struct pickle_builder *b);
void build_entry(struct pickle_builder *b, const char *action, int64_t address, int64_t size, int64_t stream);
void build_end(struct pickle_builder *b);

#endif
