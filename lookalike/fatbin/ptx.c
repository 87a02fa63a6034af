/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads PTX text. Parameters are laid out as the PTX manual says: in order, each at its alignment.
 */
#include "ptx.h"

#include <stdlib.h>

#include "bits.h"
#include "error.h"

/* A word (name, directive, number), or one character of punctuation. Length 0: the end of the text. */
struct token {
	const char *at;
	size_t length;
};

struct ptx {
	const char *text, *at, *end;
	struct token now;  /* the token to be read next */
	struct code_index *index;
};

/* A declaration `.space .align 8 .b8 name[40]`, as far as sizes go. */
struct declaration {
	struct token name;
	uint64_t align;    /* as declared, else the type's */
	uint64_t bytes;
	bool managed;
};

enum { MAX_ALIGN = 1 << 16 };
static const uint64_t max_bytes = UINT32_MAX;

/* ---- words ----------------------------------------------------------------------------------------------- */

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
	       c == '%' || c == '.';
}

static bool is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool skip_comment(struct ptx *p)
{
	if (p->end - p->at < 2 || p->at[0] != '/' || (p->at[1] != '/' && p->at[1] != '*'))
		return false;
	bool line = p->at[1] == '/';
	const char *end = line ? memchr(p->at, '\n', (size_t)(p->end - p->at))
	                       : memmem(p->at + 2, (size_t)(p->end - p->at) - 2, "*/", 2);
	p->at = !end ? p->end : line ? end : end + 2;
	return true;
}

static void advance(struct ptx *p)
{
	while (p->at < p->end && (is_space(*p->at) || skip_comment(p)))
		p->at += p->at < p->end && is_space(*p->at);
	const char *start = p->at;
	if (p->at < p->end && *p->at == '"') {
		for (p->at++; p->at < p->end && *p->at != '"' && *p->at != '\n';)
			p->at++;
		p->at += p->at < p->end;
	} else if (p->at < p->end && is_word(*p->at)) {
		/* A dot begins a word, so that ".s32.foo" is two. */
		for (p->at++; p->at < p->end && is_word(*p->at) && *p->at != '.';)
			p->at++;
	} else {
		p->at += p->at < p->end;
	}
	p->now = (struct token){ start, (size_t)(p->at - start) };
}

static bool is(const struct ptx *p, const char *word)
{
	return p->now.length == strlen(word) && memcmp(p->now.at, word, p->now.length) == 0;
}

static bool at_end(const struct ptx *p)
{
	return p->now.length == 0;
}

static trz_status bad(const struct ptx *p, const char *what)
{
	size_t line = 1;
	for (const char *c = p->text; c < p->now.at; c++)
		line += *c == '\n';
	return trz_fail(TRZ_ERROR_BAD_INPUT, "PTX line %zu: %s, not %.*s", line, what,
	                (int)(at_end(p) ? strlen("the end") : min_u64(p->now.length, 80)),
	                at_end(p) ? "the end" : p->now.at);
}

static bool at_name(const struct ptx *p)
{
	return !at_end(p) && is_word(p->now.at[0]) && p->now.at[0] != '.';
}

static bool accept(struct ptx *p, const char *word)
{
	bool yes = is(p, word);
	if (yes)
		advance(p);
	return yes;
}

/* Skips from an opening bracket to behind its partner. */
static trz_status skip_nested(struct ptx *p, const char *open, const char *close)
{
	size_t depth = 0;
	do {
		depth += is(p, open);
		depth -= is(p, close);
		advance(p);
	} while (depth > 0 && !at_end(p));
	return depth > 0 ? bad(p, "a closing bracket is missing") : TRZ_OK;
}

static trz_status read_number(struct ptx *p, uint64_t limit, uint64_t *number)
{
	char text[32], *end;
	if (p->now.length == 0 || p->now.length >= sizeof text || p->now.at[0] < '0' || p->now.at[0] > '9')
		return bad(p, "a number is expected");
	memcpy(text, p->now.at, p->now.length);
	text[p->now.length] = '\0';
	*number = strtoull(text, &end, 0);
	if ((*end && strcmp(end, "U") != 0) || *number > limit)
		return bad(p, "a smaller number is expected");
	advance(p);
	return TRZ_OK;
}

/* ---- declarations ---------------------------------------------------------------------------------------- */

/* Bytes of a type's word, 0 for any other word. */
static uint64_t type_bytes(struct token word)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} types[] = {
		{ ".b8", 1 }, { ".u8", 1 }, { ".s8", 1 }, { ".e4m3", 1 }, { ".e5m2", 1 }, { ".b16", 2 }, { ".u16", 2 },
		{ ".s16", 2 }, { ".f16", 2 }, { ".bf16", 2 }, { ".b32", 4 }, { ".u32", 4 }, { ".s32", 4 }, { ".f32", 4 },
		{ ".f16x2", 4 }, { ".bf16x2", 4 }, { ".b64", 8 }, { ".u64", 8 }, { ".s64", 8 }, { ".f64", 8 },
		{ ".texref", 8 }, { ".samplerref", 8 }, { ".surfref", 8 }, { ".b128", 16 },
	};
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (word.length == strlen(types[i].name) && memcmp(word.at, types[i].name, word.length) == 0)
			return types[i].bytes;
	return 0;
}

/* The attributes before the type, and the type: `.attribute(.managed) .align 16 .v4 .f32`. */
static trz_status read_type(struct ptx *p, struct declaration *d)
{
	uint64_t lanes = 1, type;
	trz_status status = TRZ_OK;
	*d = (struct declaration){ 0 };
	while ((type = type_bytes(p->now)) == 0 && status == TRZ_OK) {
		if (accept(p, ".align")) {
			status = read_number(p, MAX_ALIGN, &d->align);
			if (status == TRZ_OK && !is_power_of_two(d->align))
				status = bad(p, "an alignment before this must be a power of two");
		} else if (accept(p, ".v2")) {
			lanes = 2;
		} else if (accept(p, ".v4")) {
			lanes = 4;
		} else if (accept(p, ".attribute")) {
			for (; !at_end(p) && !is(p, ")"); advance(p))
				d->managed |= is(p, ".managed");
			advance(p);
		} else {
			status = bad(p, "a type is expected");
		}
	}
	if (status != TRZ_OK)
		return status;
	advance(p);
	d->bytes = type * lanes;
	if (d->align == 0)
		d->align = d->bytes;
	return TRZ_OK;
}

/* The name and what may follow it: `name[2][40]`. */
static trz_status read_name(struct ptx *p, struct declaration *d)
{
	if (!at_name(p))
		return bad(p, "a name is expected");
	d->name = p->now;
	advance(p);
	while (accept(p, "[")) {
		uint64_t count = 0;
		trz_status status = read_number(p, max_bytes, &count);
		if (status != TRZ_OK)
			return status;
		if (count > max_bytes / d->bytes)
			return bad(p, "an array before this is too large");
		d->bytes = max_u64(count * d->bytes, 1);
		if (!accept(p, "]"))
			return bad(p, "] is expected");
	}
	return TRZ_OK;
}

/* `.param .u64 .ptr .global .align 16 name`: what follows .ptr describes the memory pointed to. */
static trz_status read_param(struct ptx *p, struct declaration *d)
{
	if (!accept(p, ".param"))
		return bad(p, ".param is expected");
	trz_status status = read_type(p, d);
	if (status == TRZ_OK && accept(p, ".ptr")) {
		uint64_t align = 0;
		while (status == TRZ_OK && !at_end(p) && p->now.at[0] == '.') {
			if (accept(p, ".align"))
				status = read_number(p, max_bytes, &align);
			else
				advance(p);
		}
	}
	return status == TRZ_OK ? read_name(p, d) : status;
}

/* Reads the parameters in brackets into `list`; NULL: only counts them. */
static trz_status read_params(struct ptx *p, struct kernel_params *params, struct kernel_param *list)
{
	uint64_t end = 0;
	params->count = 0;
	if (!accept(p, "(") || accept(p, ")"))
		return TRZ_OK;
	do {
		struct declaration d;
		trz_status status = read_param(p, &d);
		if (status != TRZ_OK)
			return status;
		uint64_t offset = align_up(end, d.align);
		end = offset + d.bytes;
		if (end > max_bytes)
			return bad(p, "the parameters before this are too large");
		if (list)
			list[params->count] = (struct kernel_param){ (uint32_t)offset, (uint32_t)d.bytes };
		params->count++;
	} while (accept(p, ","));
	params->bytes = (uint32_t)end;
	params->list = list;
	return accept(p, ")") ? TRZ_OK : bad(p, ") is expected");
}

/* `.maxntid 16, 8, 1`; a missing number counts as 1. */
static trz_status read_threads(struct ptx *p, uint32_t *threads)
{
	uint64_t product = 1, number = 0;
	do {
		trz_status status = read_number(p, UINT32_MAX, &number);
		if (status != TRZ_OK)
			return status;
		product = min_u64(product * number, UINT32_MAX);
	} while (accept(p, ","));
	*threads = (uint32_t)product;
	return TRZ_OK;
}

static trz_status read_entry(struct ptx *p)
{
	struct token name = p->now;
	if (!at_name(p))
		return bad(p, "an entry's name is expected");
	advance(p);
	struct ptx list = *p;
	struct kernel_params params = { 0 };
	trz_status status = read_params(p, &params, NULL);
	if (status == TRZ_OK && params.count > 0) {
		struct kernel_param *places = index_bytes(p->index, params.count * sizeof *places);
		status = places ? read_params(&list, &params, places) : index_no_memory();
	}
	uint32_t threads = 0;
	while (status == TRZ_OK && !at_end(p) && !is(p, "{") && !is(p, ";")) {
		if (accept(p, ".maxntid") || accept(p, ".reqntid"))
			status = read_threads(p, &threads);
		else
			advance(p);
	}
	if (status != TRZ_OK)
		return status;
	if (at_end(p))
		return bad(p, "an entry's body is expected");
	if (is(p, ";"))
		return TRZ_OK;  /* declared here, defined elsewhere */
	struct fatbin_kernel *kernel = index_add_kernel(p->index, name.at, name.length);
	if (!kernel)
		return index_no_memory();
	kernel->params = params;
	kernel->max_threads = threads;
	return skip_nested(p, "{", "}");
}

/* After .global or .const, up to the semicolon. */
static trz_status read_variables(struct ptx *p, bool constant, bool elsewhere)
{
	struct declaration d;
	trz_status status = read_type(p, &d);
	if (status != TRZ_OK)
		return status;
	uint64_t each = d.bytes;
	do {
		d.bytes = each;
		/* An array without a length has its definition elsewhere. */
		status = read_name(p, &d);
		if (status != TRZ_OK)
			return elsewhere ? TRZ_OK : status;
		while (!at_end(p) && !is(p, ",") && !is(p, ";")) {
			if (!is(p, "{"))
				advance(p);
			else if ((status = skip_nested(p, "{", "}")) != TRZ_OK)
				return status;
		}
		struct fatbin_variable *variable =
			elsewhere ? NULL : index_add_variable(p->index, d.name.at, d.name.length);
		if (!variable && !elsewhere)
			return index_no_memory();
		if (variable) {
			variable->bytes = d.bytes;
			variable->constant = constant;
			variable->managed = d.managed;
		}
	} while (accept(p, ","));
	return is(p, ";") ? TRZ_OK : bad(p, "; is expected");
}

/* ---- the module ------------------------------------------------------------------------------------------ */

static void read_target(struct ptx *p)
{
	if (p->now.length > 3 && memcmp(p->now.at, "sm_", 3) == 0)
		for (size_t i = 3; i < p->now.length && i < 7 && p->now.at[i] >= '0' && p->now.at[i] <= '9'; i++)
			p->index->sm = 10 * p->index->sm + (unsigned)(p->now.at[i] - '0');
}

static trz_status read_module(struct ptx *p)
{
	bool elsewhere = false;
	while (!at_end(p)) {
		trz_status status = TRZ_OK;
		if (accept(p, ".extern")) {
			elsewhere = true;
			continue;
		}
		if (accept(p, ".entry"))
			status = read_entry(p);
		else if (accept(p, ".global"))
			status = read_variables(p, false, elsewhere);
		else if (accept(p, ".const"))
			status = read_variables(p, true, elsewhere);
		else if (accept(p, ".target"))
			read_target(p);
		else if (is(p, "{"))
			status = skip_nested(p, "{", "}");
		else if (is(p, "("))
			status = skip_nested(p, "(", ")");
		else
			advance(p);
		if (status != TRZ_OK)
			return status;
		elsewhere = false;
	}
	return TRZ_OK;
}

bool ptx_is_text(struct span image)
{
	return image.bytes > 0 && (is_space((char)image.at[0]) || (image.at[0] > ' ' && image.at[0] < 0x7f));
}

trz_status ptx_index(struct span image, struct code_index *index)
{
	const char *text = (const char *)image.at;
	struct ptx p = { .text = text, .at = text, .end = text + strnlen(text, image.bytes), .index = index };
	advance(&p);
	if (!is(&p, ".version"))
		return bad(&p, "PTX begins with .version");
	return read_module(&p);
}
