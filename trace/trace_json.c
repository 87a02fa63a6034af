/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns JSON into plain data. A tree of jansson's nodes takes some ten times the bytes of the text: so lists and
 * objects are walked here, and jansson parses only values in them and what is nested deeper than snapshots are.
 */
#include "trace_json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "error.h"

/* The text is read whole. */
#define TEXT_MAX GIB(8)

/* The walk goes this deep at most: a frame of a block in a segment in a snapshot's list takes 8. */
enum { WALK_DEPTH = 8 };

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

/* Skips `c` if it is next. */
static bool take(struct reader *r, char c)
{
	skip_space(r);
	if (r->at == r->size || r->text[r->at] != c)
		return false;
	r->at++;
	return true;
}

/* Skips a text that is plain ASCII without escapes: it is then at [*from, r->at - 1). */
static bool take_plain_text(struct reader *r, size_t *from)
{
	size_t at = r->at + 1;
	while (at < r->size && r->text[at] >= 0x20 && r->text[at] < 0x7f && r->text[at] != '"' && r->text[at] != '\\')
		at++;
	if (r->at == r->size || r->text[r->at] != '"' || at == r->size || r->text[at] != '"')
		return false;
	*from = r->at + 1;
	r->at = at + 1;
	return true;
}

/* Skips a whole number of at most 18 digits that is not negative. */
static bool take_plain_number(struct reader *r, int64_t *number)
{
	size_t at = r->at;
	int64_t value = 0;
	while (at < r->size && at < r->at + 18 && r->text[at] >= '0' && r->text[at] <= '9')
		value = 10 * value + (r->text[at++] - '0');
	bool leading = at > r->at + 1 && r->text[r->at] == '0';
	if (at == r->at || leading || at == r->size || !memchr(",}] \n\r\t", r->text[at], 7))
		return false;
	*number = value;
	r->at = at;
	return true;
}

/* NULL: it is not JSON. */
static json_t *load_next(struct reader *r, json_error_t *error)
{
	json_t *tree = json_loadb(r->text + r->at, r->size - r->at,
	                          JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY | JSON_ALLOW_NUL, error);
	r->at += tree ? (size_t)error->position : 0;
	return tree;
}

/* A report is kept as jansson's tree. */
static trz_status keep_report(struct reader *r, plain_value *out)
{
	json_error_t error;
	json_decref(r->out->report);
	r->out->report = load_next(r, &error);
	*out = plain_make(PLAIN_OTHER, 0);
	return r->out->report ? TRZ_OK : bad(r, error.text);
}

/* Most values are texts and numbers that need no parser. */
static trz_status parse(struct reader *r, plain_value *out)
{
	json_error_t error;
	size_t from;
	int64_t number;
	skip_space(r);
	if (take_plain_text(r, &from))
		return plain_add_text(r->out, r->text + from, r->at - 1 - from, r->name, out);
	if (take_plain_number(r, &number)) {
		*out = plain_make_int(number);
		return TRZ_OK;
	}
	json_t *tree = load_next(r, &error);
	if (!tree)
		return bad(r, error.text);
	trz_status status = convert(r, tree, out);
	json_decref(tree);
	return status;
}

enum { VALUES_AT_ONCE = 32 };

/* Values that are read but not yet added to their list or dict. */
struct batch {
	plain_value values[VALUES_AT_ONCE];
	size_t count;
};

static trz_status flush(struct reader *r, struct batch *b, plain_value to)
{
	trz_status status = plain_extend(r->out, to, b->values, b->count, r->name);
	b->count = 0;
	return status;
}

static trz_status walk(struct reader *r, int depth, plain_value *out);

static trz_status walk_pair(struct reader *r, int depth, plain_value pair[2])
{
	skip_space(r);
	if (r->at == r->size || r->text[r->at] != '"')
		return bad(r, "a key is missing");
	trz_status status = parse(r, &pair[0]);
	if (status == TRZ_OK && !take(r, ':'))
		return bad(r, "a colon is missing");
	if (status == TRZ_OK && plain_word(pair[0]) == PLAIN_REPORT)
		return keep_report(r, &pair[1]);
	return status == TRZ_OK ? walk(r, depth, &pair[1]) : status;
}

static trz_status walk_object(struct reader *r, int depth, plain_value *out)
{
	struct batch b = { .count = 0 };
	trz_status status = plain_new(r->out, PLAIN_DICT, r->name, out);
	if (status != TRZ_OK || take(r, '}'))
		return status;
	do {
		plain_value *pair = &b.values[b.count];
		status = walk_pair(r, depth, pair);
		if (status != TRZ_OK)
			return status;
		b.count += plain_word(pair[0]) == PLAIN_UNKNOWN_WORD ? 0 : 2;
		if (b.count == VALUES_AT_ONCE && (status = flush(r, &b, *out)) != TRZ_OK)
			return status;
	} while (take(r, ','));
	return take(r, '}') ? flush(r, &b, *out) : bad(r, "a brace is missing");
}

/* Two numbers name a pool. */
static bool is_pair(const struct batch *b)
{
	for (size_t i = 0; i < 2; i++)
		if (plain_tag(b->values[i]) != PLAIN_INT || plain_int(b->values[i]) < 0 || plain_int(b->values[i]) >= 1 << 30)
			return false;
	return true;
}

static trz_status walk_array(struct reader *r, int depth, plain_value *out)
{
	struct batch b = { .count = 0 };
	size_t count = 0;
	trz_status status = plain_new(r->out, PLAIN_LIST, r->name, out);
	if (status != TRZ_OK || take(r, ']'))
		return status;
	do {
		status = walk(r, depth, &b.values[b.count++]);
		count++;
		if (status == TRZ_OK && b.count == VALUES_AT_ONCE)
			status = flush(r, &b, *out);
		if (status != TRZ_OK)
			return status;
	} while (take(r, ','));
	if (!take(r, ']'))
		return bad(r, "a bracket is missing");
	if (count == 2 && is_pair(&b)) {
		*out = plain_make(PLAIN_PAIR, plain_int(b.values[0]) << 30 | plain_int(b.values[1]));
		return TRZ_OK;
	}
	return flush(r, &b, *out);
}

static trz_status walk(struct reader *r, int depth, plain_value *out)
{
	if (depth < WALK_DEPTH && take(r, '{'))
		return walk_object(r, depth + 1, out);
	if (depth < WALK_DEPTH && take(r, '['))
		return walk_array(r, depth + 1, out);
	return parse(r, out);
}

/* A list at the top is one of segments, as torch.cuda.memory_snapshot() returns. */
trz_status json_read(struct trace_input *in, struct plain *out)
{
	char *text;
	struct reader r = { .name = in->name, .out = out };
	trz_status status = read_whole(in, &text, &r.size);
	r.text = text;
	if (status == TRZ_OK)
		status = walk(&r, 0, &out->root);
	skip_space(&r);
	if (status == TRZ_OK && r.at < r.size)
		status = bad(&r, "there is something behind the end");
	free(text);
	return status;
}
