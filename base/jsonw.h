/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes JSON to a sink, without host memory: its only state is a buffer. The caller pairs brackets.
 *
 *     struct jsonw j = {.sink = ..., .owner = ...};
 *     jsonw_open(&j, '{'); jsonw_put_number(&j, "size", 3); jsonw_close(&j, '}'); jsonw_flush(&j);
 *     if (j.failed) ...
 */
#ifndef TRZ_BASE_JSONW_H
#define TRZ_BASE_JSONW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Readers take numbers as doubles. */
#define JSONW_NUMBER_MAX (((uint64_t)1 << 53) - 1)

/* Takes the next bytes; false: they cannot be written, and it is not called again. */
typedef bool jsonw_sink(void *owner, const char *bytes, size_t size);

struct jsonw {
	jsonw_sink *sink;
	void *owner;
	size_t used;
	bool separate;             /* a comma is due before the next value or key */
	bool failed;
	char buffer[8192];
};

void jsonw_flush(struct jsonw *j);
void jsonw_byte(struct jsonw *j, char byte);
void jsonw_raw(struct jsonw *j, const char *text);
void jsonw_open(struct jsonw *j, char bracket);
void jsonw_close(struct jsonw *j, char bracket);

/* An object on a line of its own. */
void jsonw_open_line(struct jsonw *j);

/* Numbers that some reader could not hold become the largest that every reader can. */
void jsonw_number(struct jsonw *j, uint64_t value);

/* What is not UTF-8 becomes U+FFFD. */
void jsonw_string(struct jsonw *j, const char *text);
void jsonw_key(struct jsonw *j, const char *key);

void jsonw_put_number(struct jsonw *j, const char *key, uint64_t value);
void jsonw_put_string(struct jsonw *j, const char *key, const char *value);

/* A word of JSON: a boolean, an empty list, a number below 0. */
void jsonw_put_word(struct jsonw *j, const char *key, const char *word);

#endif
