/* SPDX-License-Identifier: Apache-2.0
 *
 * Building plain data. Every container is a chain of chunks, so that adding moves nothing.
 */
#include "trace_plain.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "error.h"

/* Data that needs more cells is refused: these are 8 GiB, some 300 million trace entries. */
#define CELLS_MAX ((size_t)1 << 30)

static const char *const words[] = {
#define WORD_TEXT(name, text) [PLAIN_##name] = text,
	PLAIN_WORDS(WORD_TEXT)
#undef WORD_TEXT
};

enum { WORD_BYTES_MAX = 24 };

static trz_status no_memory(const char *name)
{
	return trz_fail(TRZ_ERROR_HOST_MEMORY, "%s: no memory to read it", name);
}

trz_status plain_words_reserve(struct plain_words *w, size_t more, const char *name)
{
	if (w->capacity - w->count >= more)
		return TRZ_OK;
	size_t capacity = max_u64(w->count + more, max_u64(64, w->capacity + w->capacity / 2));
	if (capacity > CELLS_MAX)
		return trz_fail(TRZ_ERROR_BAD_INPUT, "%s: it needs more than 8 GiB of memory", name);
	uint64_t *items = realloc(w->items, capacity * sizeof *items);
	if (!items)
		return no_memory(name);
	w->items = items;
	w->capacity = capacity;
	return TRZ_OK;
}

trz_status plain_init(struct plain *p, bool keep_texts)
{
	*p = (struct plain){ .keep_texts = keep_texts, .root = PLAIN_UNSET };
	/* Index 0 means "no chunk", offset 0 "no text": keep them free. */
	trz_status status = plain_words_reserve(&p->cells, 1, "plain data");
	if (status != TRZ_OK)
		return status;
	p->cells.items[p->cells.count++] = 0;
	p->texts.bytes = calloc(1, 64);
	if (!p->texts.bytes)
		return no_memory("plain data");
	p->texts.capacity = 64;
	p->texts.used = 1;
	return TRZ_OK;
}

void plain_free(struct plain *p)
{
	json_decref(p->report);
	free(p->cells.items);
	free(p->texts.bytes);
	free(p->texts.table);
	*p = (struct plain){ .root = PLAIN_UNSET };
}

/* ---- containers ------------------------------------------------------------------------------------- */

trz_status plain_new(struct plain *p, enum plain_tag tag, const char *name, plain_value *out)
{
	trz_status status = plain_words_reserve(&p->cells, LIST_CELLS, name);
	if (status != TRZ_OK)
		return status;
	*out = plain_make(tag, (int64_t)p->cells.count);
	memset(p->cells.items + p->cells.count, 0, LIST_CELLS * sizeof(uint64_t));
	p->cells.count += LIST_CELLS;
	return TRZ_OK;
}

trz_status plain_extend(struct plain *p, plain_value list, const plain_value *values, size_t count, const char *name)
{
	if (count == 0)
		return TRZ_OK;
	trz_status status = plain_words_reserve(&p->cells, CHUNK_ITEMS + count, name);
	if (status != TRZ_OK)
		return status;
	uint64_t *cells = p->cells.items;
	uint64_t chunk = p->cells.count;
	cells[chunk + CHUNK_COUNT] = count;
	cells[chunk + CHUNK_NEXT] = 0;
	memcpy(cells + chunk + CHUNK_ITEMS, values, count * sizeof *values);
	p->cells.count += CHUNK_ITEMS + count;

	uint64_t *head = cells + plain_index(list);
	if (head[LIST_LAST] != 0)
		cells[head[LIST_LAST] + CHUNK_NEXT] = chunk;
	else
		head[LIST_FIRST] = chunk;
	head[LIST_LAST] = chunk;
	head[LIST_COUNT] += count;
	return TRZ_OK;
}

/* Filters in parts, into `kept`, and leaves `pairs` as they are. */
trz_status plain_update(struct plain *p, plain_value dict, const plain_value *pairs, size_t count, const char *name)
{
	plain_value kept[32];
	size_t kept_count = 0;
	for (size_t i = 0; i < count; i += 2) {
		if (plain_word(pairs[i]) == PLAIN_UNKNOWN_WORD)
			continue;
		kept[kept_count++] = pairs[i];
		kept[kept_count++] = pairs[i + 1];
		if (kept_count < sizeof kept / sizeof kept[0])
			continue;
		trz_status status = plain_extend(p, dict, kept, kept_count, name);
		if (status != TRZ_OK)
			return status;
		kept_count = 0;
	}
	return plain_extend(p, dict, kept, kept_count, name);
}

plain_value plain_entry(const struct plain *p, plain_value dict, enum plain_word key)
{
	plain_value word, value, found = PLAIN_UNSET;
	for (struct plain_items it = plain_items(p, dict); plain_next(p, &it, &word) && plain_next(p, &it, &value);)
		if (word == plain_make(PLAIN_WORD, key))
			found = value;
	return found;
}

plain_value plain_make_int(int64_t value)
{
	plain_value made = plain_make(PLAIN_INT, value);
	return plain_int(made) == value ? made : plain_make(PLAIN_OTHER, 0);
}

/* ---- texts ------------------------------------------------------------------------------------------ */

static enum plain_word find_word(const char *text, size_t size)
{
	for (unsigned i = 0; i < PLAIN_UNKNOWN_WORD; i++)
		if (words[i][0] == text[0] && strlen(words[i]) == size && memcmp(words[i], text, size) == 0)
			return (enum plain_word)i;
	return PLAIN_UNKNOWN_WORD;
}

static uint64_t hash(const char *text, size_t size)
{
	uint64_t h = 0xcbf29ce484222325u;
	for (size_t i = 0; i < size; i++)
		h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
	return h ^ h >> 29;
}

/* The slot of a text, or the free one where it would go. */
static uint64_t *text_slot(const struct plain_texts *t, const char *text, size_t size)
{
	for (size_t i = hash(text, size);; i++) {
		uint64_t *slot = &t->table[i & (t->slots - 1)];
		const char *there = t->bytes + *slot;
		if (*slot == 0 || (memcmp(there, text, size) == 0 && there[size] == '\0'))
			return slot;
	}
}

static bool grow_table(struct plain_texts *t)
{
	if (t->slots > 2 * t->count)
		return true;
	struct plain_texts grown = *t;
	grown.slots = max_u64(1024, 2 * t->slots);
	grown.table = calloc(grown.slots, sizeof *grown.table);
	if (!grown.table)
		return false;
	for (size_t i = 0; i < t->slots; i++)
		if (t->table[i])
			*text_slot(&grown, t->bytes + t->table[i], strlen(t->bytes + t->table[i])) = t->table[i];
	free(t->table);
	*t = grown;
	return true;
}

/* Room for one more text, and PLAIN_TEXT_MAX bytes after it that a comparison may read. */
static bool grow_bytes(struct plain_texts *t)
{
	size_t needed = t->used + 2 * (PLAIN_TEXT_MAX + 1);
	if (needed <= t->capacity)
		return true;
	size_t capacity = max_u64(needed, t->capacity + t->capacity / 2);
	char *bytes = realloc(t->bytes, capacity);
	if (!bytes)
		return false;
	memset(bytes + t->capacity, 0, capacity - t->capacity);
	t->bytes = bytes;
	t->capacity = capacity;
	return true;
}

static trz_status keep_text(struct plain *p, const char *text, size_t size, const char *name, plain_value *out)
{
	struct plain_texts *t = &p->texts;
	char kept[PLAIN_TEXT_MAX + 1];
	size = min_u64(size, PLAIN_TEXT_MAX);
	memcpy(kept, text, size);
	kept[size] = '\0';
	size = strlen(kept);
	if (!grow_table(t) || !grow_bytes(t))
		return no_memory(name);
	uint64_t *slot = text_slot(t, kept, size);
	if (*slot == 0) {
		*slot = t->used;
		memcpy(t->bytes + t->used, kept, size + 1);
		t->used += size + 1;
		t->count++;
	}
	*out = plain_make(PLAIN_TEXT, (int64_t)*slot);
	return TRZ_OK;
}

trz_status plain_add_text(struct plain *p, const void *text, size_t size, const char *name, plain_value *out)
{
	enum plain_word word = size > 0 && size <= WORD_BYTES_MAX ? find_word(text, size) : PLAIN_UNKNOWN_WORD;
	*out = plain_make(PLAIN_WORD, word);
	return word == PLAIN_UNKNOWN_WORD && p->keep_texts ? keep_text(p, text, size, name, out) : TRZ_OK;
}

const char *plain_text(const struct plain *p, plain_value value)
{
	if (plain_tag(value) == PLAIN_TEXT)
		return p->texts.bytes + plain_index(value);
	enum plain_word word = plain_word(value);
	return word != PLAIN_UNKNOWN_WORD ? words[word] : NULL;
}
