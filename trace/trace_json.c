/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON to plain data. jansson parses values; a tree of its nodes takes some ten times the bytes of the text, so the
 * long lists of a snapshot are walked here, and only one of their items at a time is such a tree.
 */
#include "trace_json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "error.h"

/* The text is read whole. */
#define TEXT_MAX GIB(8)

/* The lists that are walked lie this deep at most: a block in a segment in the list of the snapshot. */
enum { WALK_DEPTH = 6 };

struct reader {
	const char *name;
	const char *text;
	size_t size, at;
	struct plain *out;
};

static trz_status bad(const struct reader *r, const char *what)
{
	return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: byte %zu: %s", r->name, r->at, what);
}

static trz_status read_whole(struct trace_input *in, char **text, size_t *size)
{
	size_t capacity = 0;
	*text = NULL;
	*size = 0;
	for (;;) {
		trz_status status = input_fill(in, INPUT_WINDOW);
		size_t got = (size_t)(in->end - in->at);
		if (status != TRZ_OK || got == 0)
			return status;
		if (*size + got > capacity) {
			capacity = max_u64(*size + got, 2 * capacity);
			char *grown = *size + got > TEXT_MAX ? NULL : realloc(*text, capacity);
			if (!grown)
				return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no memory to read it", in->name);
			*text = grown;
		}
		memcpy(*text + *size, in->at, got);
		*size += got;
		in->at = in->end;
	}
}

/* ---- from jansson's tree -------------------------------------------------------------------------------- */

static trz_status convert(struct reader *r, const json_t *from, plain_value *out);

static trz_status convert_array(struct reader *r, const json_t *from, plain_value *out)
{
	size_t i;
	json_t *item;
	plain_value value;
	trz_status status = plain_new(r->out, PLAIN_LIST, r->name, out);
	json_array_foreach(from, i, item) {
		if (status == TRZ_OK)
			status = convert(r, item, &value);
		if (status == TRZ_OK)
			status = plain_extend(r->out, *out, &value, 1, r->name);
	}
	/* Two numbers name a pool. */
	if (status == TRZ_OK && json_array_size(from) == 2) {
		json_int_t a = json_integer_value(json_array_get(from, 0)), b = json_integer_value(json_array_get(from, 1));
		if (json_is_integer(json_array_get(from, 0)) && json_is_integer(json_array_get(from, 1)) && a >= 0 &&
		    b >= 0 && a < 1 << 30 && b < 1 << 30)
			*out = plain_make(PLAIN_PAIR, (int64_t)a << 30 | (int64_t)b);
	}
	return status;
}

enum { PAIRS_AT_ONCE = 16 };

static trz_status convert_object(struct reader *r, const json_t *from, plain_value *out)
{
	plain_value pairs[2 * PAIRS_AT_ONCE];
	size_t count = 0;
	trz_status status = plain_new(r->out, PLAIN_DICT, r->name, out);
	for (void *it = json_object_iter((json_t *)from); it && status == TRZ_OK;
	     it = json_object_iter_next((json_t *)from, it)) {
		const char *key = json_object_iter_key(it);
		status = plain_add_text(r->out, key, strlen(key), r->name, &pairs[count]);
		if (status != TRZ_OK || plain_word(pairs[count]) == PLAIN_UNKNOWN_WORD)
			continue;
		status = convert(r, json_object_iter_value(it), &pairs[count + 1]);
		count += 2;
		if (status == TRZ_OK && count == 2 * PAIRS_AT_ONCE) {
			status = plain_update(r->out, *out, pairs, count, r->name);
			count = 0;
		}
	}
	return status == TRZ_OK ? plain_update(r->out, *out, pairs, count, r->name) : status;
}

static trz_status convert(struct reader *r, const json_t *from, plain_value *out)
{
	switch (json_typeof(from)) {
	case JSON_OBJECT:
		return convert_object(r, from, out);
	case JSON_ARRAY:
		return convert_array(r, from, out);
	case JSON_STRING:
		return plain_add_text(r->out, json_string_value(from), json_string_length(from), r->name, out);
	case JSON_INTEGER:
		*out = plain_make_int(json_integer_value(from));
		return TRZ_OK;
	case JSON_TRUE:
	case JSON_FALSE:
		*out = plain_make(PLAIN_BOOL, json_is_true(from));
		return TRZ_OK;
	default:
		*out = plain_make(PLAIN_OTHER, 0);
		return TRZ_OK;
	}
}

/* ---- the walk --------------------------------------------------------------------------------------- */

static void skip_space(struct reader *r)
{
	while (r->at < r->size && memchr(" \t\r\n", r->text[r->at], 4))
		r->at++;
}

/* Passes over `c`, if that is next. */
static bool take(struct reader *r, char c)
{
	skip_space(r);
	if (r->at == r->size || r->text[r->at] != c)
		return false;
	r->at++;
	return true;
}

static trz_status parse(struct reader *r, plain_value *out)
{
	json_error_t error;
	skip_space(r);
	json_t *tree = json_loadb(r->text + r->at, r->size - r->at,
	                          JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
	if (!tree)
		return bad(r, error.text);
	r->at += (size_t)error.position;
	trz_status status = convert(r, tree, out);
	json_decref(tree);
	return status;
}

/* How a value is read: by jansson, or walked; what a walked list's items are. */
static bool is_walked(enum plain_word key)
{
	return key == PLAIN_SEGMENTS || key == PLAIN_DEVICE_TRACES || key == PLAIN_BLOCKS;
}

static trz_status walk(struct reader *r, enum plain_word key, int depth, plain_value *out);

static trz_status walk_object(struct reader *r, int depth, plain_value *out)
{
	trz_status status = plain_new(r->out, PLAIN_DICT, r->name, out);
	if (status != TRZ_OK || take(r, '}'))
		return status;
	do {
		plain_value pair[2];
		skip_space(r);
		if (r->at == r->size || r->text[r->at] != '"')
			return bad(r, "a key is missing");
		status = parse(r, &pair[0]);
		if (status == TRZ_OK && !take(r, ':'))
			return bad(r, "a colon is missing");
		enum plain_word key = plain_word(pair[0]);
		if (status == TRZ_OK)
			status = is_walked(key) ? walk(r, key, depth, &pair[1]) : parse(r, &pair[1]);
		if (status == TRZ_OK)
			status = plain_update(r->out, *out, pair, 2, r->name);
		if (status != TRZ_OK)
			return status;
	} while (take(r, ','));
	return take(r, '}') ? TRZ_OK : bad(r, "a brace is missing");
}

static trz_status walk_array(struct reader *r, enum plain_word key, int depth, plain_value *out)
{
	trz_status status = plain_new(r->out, PLAIN_LIST, r->name, out);
	if (status != TRZ_OK || take(r, ']'))
		return status;
	do {
		plain_value item;
		bool inner = key == PLAIN_SEGMENTS || key == PLAIN_DEVICE_TRACES;
		status = inner ? walk(r, key == PLAIN_DEVICE_TRACES ? PLAIN_ACTION : PLAIN_UNKNOWN_WORD, depth, &item)
		               : parse(r, &item);
		if (status == TRZ_OK)
			status = plain_extend(r->out, *out, &item, 1, r->name);
		if (status != TRZ_OK)
			return status;
	} while (take(r, ','));
	return take(r, ']') ? TRZ_OK : bad(r, "a bracket is missing");
}

/* `key`: what the value is under; PLAIN_ACTION: the list of one device. */
static trz_status walk(struct reader *r, enum plain_word key, int depth, plain_value *out)
{
	if (depth == WALK_DEPTH)
		return parse(r, out);
	if (take(r, '{'))
		return walk_object(r, depth + 1, out);
	if (take(r, '['))
		return walk_array(r, key, depth + 1, out);
	return parse(r, out);
}

/* A list on top is one of segments, as torch.cuda.memory_snapshot() makes. */
trz_status json_read(struct trace_input *in, struct plain *out)
{
	char *text;
	struct reader r = { .name = in->name, .out = out };
	trz_status status = read_whole(in, &text, &r.size);
	r.text = text;
	if (status == TRZ_OK)
		status = walk(&r, PLAIN_SEGMENTS, 0, &out->root);
	skip_space(&r);
	if (status == TRZ_OK && r.at < r.size)
		status = bad(&r, "there is something behind the end");
	free(text);
	return status;
}
