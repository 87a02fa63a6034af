/* SPDX-License-Identifier: Apache-2.0
 *
 * The pickle builder: protocol 2, no memo.
 */
#include "pickle_builder.h"

#include <assert.h>
#include <string.h>

void build_bytes(struct pickle_builder *b, const void *bytes, size_t size)
{
	assert(sizeof b->bytes - b->size >= size);
	memcpy(b->bytes + b->size, bytes, size);
	b->size += size;
}

void build_string(struct pickle_builder *b, const char *text)
{
	uint8_t head[5] = { 'X', (uint8_t)strlen(text) };
	build_bytes(b, head, sizeof head);
	build_bytes(b, text, strlen(text));
}

void build_int(struct pickle_builder *b, int64_t value)
{
	uint8_t bytes[10] = { 0x8a, 8 };
	for (int i = 0; i < 8; i++)
		bytes[2 + i] = (uint8_t)((uint64_t)value >> (8 * i));
	build_bytes(b, bytes, sizeof bytes);
}

void build_begin(struct pickle_builder *b)
{
	b->size = 0;
	PUT(b, "\x80\x02}");
	build_string(b, "device_traces");
	PUT(b, "](](");
}

void build_entry(struct pickle_builder *b, const char *action, int64_t address, int64_t size, int64_t stream)
{
	PUT(b, "}(");
	build_string(b, "action");
	build_string(b, action);
	build_string(b, "addr");
	build_int(b, address);
	build_string(b, "size");
	build_int(b, size);
	build_string(b, "stream");
	build_int(b, stream);
	PUT(b, "u");
}

void build_end(struct pickle_builder *b)
{
	PUT(b, "ees.");
}
