/* SPDX-License-Identifier: Apache-2.0
 *
 * The contents of a pickle of plain data, kept compactly: only the parts that a PyTorch snapshot's history needs.
 * Private to trace/.
 *
 * A value is one 64-bit word: a tag in the low 4 bits, a payload above. Strings are kept as the number of a
 * known word; of a dict only the entries under the known keys are kept; what is neither a number, a known
 * word nor a container (floats, bytes, None, integers beyond 60 bits) is PICKLE_OTHER. So the input's length bounds
 * everything that is built, and the input cannot run code.
 */
#ifndef TRZ_TRACE_PICKLE_H
#define TRZ_TRACE_PICKLE_H

#include "trace_input.h"

/* X(NAME, text): dict keys first, they are slots of a dict; then the actions of trace entries. */
#define PICKLE_KEYS(X)                                                                                       \
	X(ACTION, "action")                                                                                      \
	X(ADDR, "addr")                                                                                          \
	X(SIZE, "size")                                                                                          \
	X(STREAM, "stream")                                                                                      \
	X(POOL_ID, "pool_id")                                                                                    \
	X(DEVICE_TRACES, "device_traces")
#define PICKLE_ACTIONS(X)                                                                                    \
	X(ALLOC, "alloc")                                                                                        \
	X(FREE_REQUESTED, "free_requested")                                                                      \
	X(FREE_COMPLETED, "free_completed")

enum pickle_word {
#define PICKLE_WORD_ENUM(name, text) PICKLE_##name,
	PICKLE_KEYS(PICKLE_WORD_ENUM)
	PICKLE_KEY_COUNT,
	PICKLE_LAST_KEY = PICKLE_KEY_COUNT - 1,
	PICKLE_ACTIONS(PICKLE_WORD_ENUM)
#undef PICKLE_WORD_ENUM
	PICKLE_UNKNOWN_WORD
};

typedef uint64_t pickle_value;

enum pickle_tag {
	PICKLE_UNSET = 0,  /* no value: an absent dict entry */
	PICKLE_OTHER,
	PICKLE_INT,        /* payload: signed */
	PICKLE_WORD,       /* payload: enum pickle_word */
	PICKLE_PAIR,       /* a tuple of two numbers < 2^30 */
	PICKLE_LIST,       /* payload: index of the list's cells */
	PICKLE_TUPLE,      /* as a list */
	PICKLE_DICT,       /* payload: index of the dict's cells, one for each key */
	PICKLE_SET         /* its items are dropped */
};

/* Lists are a head {count, first chunk, last chunk} and chunks {count, next chunk, item, ...}; 0: none. */
enum { LIST_COUNT, LIST_FIRST, LIST_LAST, LIST_CELLS };
enum { CHUNK_COUNT, CHUNK_NEXT, CHUNK_ITEMS };

struct pickle_words {
	uint64_t *items;
	size_t count;
	size_t capacity;
};

struct pickle {
	struct pickle_words cells;  /* all containers; they refer to each other by index */
	pickle_value root;
};

/* Walks a list: for (it = pickle_items(p, list); pickle_next(p, &it, &value);). */
struct pickle_items {
	uint64_t chunk;
	uint64_t at;
};

/* Reads one pickle, protocol 2 to 5. Errors: BAD_INPUT (with the byte), IO, HOST_MEMORY; free it anyhow. */
trz_status pickle_read(struct trace_input *in, struct pickle *out);
void pickle_free(struct pickle *pickle);

static inline enum pickle_tag pickle_tag(pickle_value value)
{
	return (enum pickle_tag)(value & 15);
}

static inline int64_t pickle_int(pickle_value value)
{
	return (int64_t)value >> 4;
}

static inline uint64_t pickle_index(pickle_value value)
{
	return value >> 4;
}

static inline bool pickle_is_list(pickle_value value)
{
	return pickle_tag(value) == PICKLE_LIST || pickle_tag(value) == PICKLE_TUPLE;
}

/* The entry of a dict under a known key; 0 if there is none. */
static inline pickle_value pickle_entry(const struct pickle *p, pickle_value dict, enum pickle_word key)
{
	return p->cells.items[pickle_index(dict) + key];
}

static inline uint64_t pickle_count(const struct pickle *p, pickle_value list)
{
	return p->cells.items[pickle_index(list) + LIST_COUNT];
}

static inline struct pickle_items pickle_items(const struct pickle *p, pickle_value list)
{
	return (struct pickle_items){ .chunk = p->cells.items[pickle_index(list) + LIST_FIRST] };
}

static inline bool pickle_next(const struct pickle *p, struct pickle_items *it, pickle_value *value)
{
	const uint64_t *cells = p->cells.items;
	while (it->chunk != 0 && it->at == cells[it->chunk + CHUNK_COUNT])
		*it = (struct pickle_items){ .chunk = cells[it->chunk + CHUNK_NEXT] };
	if (it->chunk == 0)
		return false;
	*value = cells[it->chunk + CHUNK_ITEMS + it->at++];
	return true;
}

#endif
