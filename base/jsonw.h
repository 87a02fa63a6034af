/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes JSON piece by piece through the caller's buffer, without other memory: the library may have no host memory
 * when it reports a failure. The caller pairs the brackets; commas are set here. No name here is one of jansson's,
 * which the command uses.
 */
#ifndef TRZ_BASE_JSONW_H
#define TRZ_BASE_JSONW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Readers take numbers as doubles. */
#define JSONW_NUMBER_MAX (((uint64_t)1 << 53) - 1)

/* Takes the next bytes; false: they cannot be written, and it is not called again. */
typedef bool jsonw_sink(void *owner, const char *bytes, size_t size);

enum { JSONW_SHORT = 256, JSONW_BUFFER = 2048 };  /* the latter for buffers on stacks, which may be small */

struct jsonw {
	jsonw_sink *sink;
	void *owner;
	char *buffer;
	size_t room, used;         /* room: at least JSONW_SHORT */
	bool separate;             /* a comma is due before the next value or key */
	bool failed;
};

void jsonw_flush(struct jsonw *j);

/* Bytes as they are; no comma is set. */
void jsonw_bytes(struct jsonw *j, const char *bytes, size_t size);
void jsonw_byte(struct jsonw *j, char byte);
void jsonw_raw(struct jsonw *j, const char *text);

void jsonw_open(struct jsonw *j, char bracket);
void jsonw_close(struct jsonw *j, char bracket);

/* An object on a line of its own. */
void jsonw_open_line(struct jsonw *j);

/* A number too large for some reader becomes the largest that every reader can hold. */
void jsonw_number(struct jsonw *j, uint64_t value);

/* Bytes that are not UTF-8 become U+FFFD. */
void jsonw_string(struct jsonw *j, const char *text);

/* A word of JSON as it is: a boolean, an empty list, a negative number. */
void jsonw_word(struct jsonw *j, const char *word);

/* A key that may need escapes. */
void jsonw_text_key(struct jsonw *j, const char *key);

/* Makes `size` <= JSONW_SHORT bytes of room, and returns where they begin; the caller adds to `used` what it fills. */
static inline char *jsonw_room(struct jsonw *j, size_t size)
{
	if (j->room - j->used < size)
		jsonw_flush(j);
	return j->buffer + j->used;
}

/* A key of at most JSONW_SHORT - 4 characters that need no escapes: in most calls a literal, whose length the compiler
 * knows. */
static inline void jsonw_key(struct jsonw *j, const char *key)
{
	size_t length = strlen(key);
	char *begin = jsonw_room(j, length + 4), *p = begin;
	if (j->separate)
		*p++ = ',';
	*p++ = '"';
	memcpy(p, key, length);
	p += length;
	*p++ = '"';
	*p++ = ':';
	j->used += (size_t)(p - begin);
	j->separate = false;
}

static inline void jsonw_put_number(struct jsonw *j, const char *key, uint64_t value)
{
	jsonw_key(j, key);
	jsonw_number(j, value);
}

static inline void jsonw_put_string(struct jsonw *j, const char *key, const char *value)
{
	jsonw_key(j, key);
	jsonw_string(j, value);
}

static inline void jsonw_put_word(struct jsonw *j, const char *key, const char *word)
{
	jsonw_key(j, key);
	jsonw_word(j, word);
}

#endif
