/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes with a known end: every read of an image goes through these, so that a damaged image never leads outside.
 */
#ifndef TRZ_LOOKALIKE_SPAN_H
#define TRZ_LOOKALIKE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct span {
	const uint8_t *at;
	size_t bytes;
};

/* Copies `bytes` from `offset`; false, and nothing copied: the span ends before. */
static inline bool span_read(struct span s, uint64_t offset, void *to, size_t bytes)
{
	if (offset > s.bytes || bytes > s.bytes - offset)
		return false;
	memcpy(to, s.at + offset, bytes);
	return true;
}

static inline bool span_part(struct span s, uint64_t offset, uint64_t bytes, struct span *part)
{
	if (offset > s.bytes || bytes > s.bytes - offset)
		return false;
	*part = (struct span){ s.at + offset, bytes };
	return true;
}

/* The NUL-terminated string at `offset`, or NULL. */
static inline const char *span_string(struct span s, uint64_t offset)
{
	if (offset >= s.bytes || !memchr(s.at + offset, '\0', s.bytes - offset))
		return NULL;
	return (const char *)(s.at + offset);
}

static inline uint16_t span_u16(const uint8_t *at)
{
	return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t span_u32(const uint8_t *at)
{
	return span_u16(at) | (uint32_t)span_u16(at + 2) << 16;
}

#endif
