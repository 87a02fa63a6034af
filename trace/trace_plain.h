/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain data, kept compactly: what a memory snapshot is made of, as a pickle or as JSON. Private to trace/.
 *
 * A value is one 64-bit word: a tag in the low 4 bits, a payload above. A dict keeps only the entries whose keys are
 * known words; a text becomes the number of a known word or, if texts are kept, lies in an arena, each once; all but
 * numbers, texts and containers (floats, bytes, None, integers beyond 60 bits) is PLAIN_OTHER. So the input's length
 * bounds everything that is built, and no input can run code.
 */
#ifndef TRZ_TRACE_PLAIN_H
#define TRZ_TRACE_PLAIN_H

#include "trace_input.h"

/* X(NAME, text): sizes in MiB as PyTorch's settings name them; their order counts. */
#define PLAIN_POWERS(X)                                                                                      \
	X(POWER_0, "1") X(POWER_1, "2") X(POWER_2, "4") X(POWER_3, "8") X(POWER_4, "16") X(POWER_5, "32")        \
	X(POWER_6, "64") X(POWER_7, "128") X(POWER_8, "256") X(POWER_9, "512") X(POWER_10, "1024")               \
	X(POWER_11, "2048") X(POWER_12, "4096") X(POWER_13, "8192") X(POWER_14, "16384") X(POWER_15, "32768")

/* X(NAME, text): keys of dicts, actions of events, states of blocks. */
#define PLAIN_WORDS(X)                                                                                       \
	X(ACTION, "action")                                                                                      \
	X(ADDR, "addr")                                                                                          \
	X(SIZE, "size")                                                                                          \
	X(STREAM, "stream")                                                                                      \
	X(POOL_ID, "pool_id")                                                                                    \
	X(DEVICE_TRACES, "device_traces")                                                                        \
	X(ALLOC, "alloc")                                                                                        \
	X(FREE_REQUESTED, "free_requested")                                                                      \
	X(FREE_COMPLETED, "free_completed")                                                                      \
	X(SEGMENT_ALLOC, "segment_alloc")                                                                        \
	X(SEGMENT_FREE, "segment_free")                                                                          \
	X(SEGMENT_MAP, "segment_map")                                                                            \
	X(SEGMENT_UNMAP, "segment_unmap")                                                                        \
	X(SNAPSHOT, "snapshot")                                                                                  \
	X(OOM, "oom")                                                                                            \
	X(SEGMENTS, "segments")                                                                                  \
	X(DEVICE, "device")                                                                                      \
	X(ADDRESS, "address")                                                                                    \
	X(TOTAL_SIZE, "total_size")                                                                              \
	X(SEGMENT_TYPE, "segment_type")                                                                          \
	X(SEGMENT_POOL_ID, "segment_pool_id")                                                                    \
	X(IS_EXPANDABLE, "is_expandable")                                                                        \
	X(BLOCKS, "blocks")                                                                                      \
	X(STATE, "state")                                                                                        \
	X(REQUESTED_SIZE, "requested_size")                                                                      \
	X(REAL_SIZE, "real_size")                                                                                \
	X(HISTORY, "history")                                                                                    \
	X(ACTIVE_ALLOCATED, "active_allocated")                                                                  \
	X(ACTIVE_PENDING_FREE, "active_pending_free")                                                            \
	X(ACTIVE_AWAITING_FREE, "active_awaiting_free")                                                          \
	X(INACTIVE, "inactive")                                                                                  \
	X(STACK, "stack")                                                                                        \
	X(FRAMES, "frames")                                                                                      \
	X(FILENAME, "filename")                                                                                  \
	X(LINE, "line")                                                                                          \
	X(NAME, "name")                                                                                          \
	X(TIME_US, "time_us")                                                                                    \
	X(DEVICE_FREE, "device_free")                                                                            \
	X(USER_METADATA, "user_metadata")                                                                        \
	X(CATEGORY, "category")                                                                                  \
	X(ALLOCATOR_SETTINGS, "allocator_settings")                                                              \
	X(EXPANDABLE_SEGMENTS, "expandable_segments")                                                            \
	X(ROUNDUP_POWER2_DIVISIONS, "roundup_power2_divisions")                                                  \
	X(MAX_SPLIT_SIZE, "max_split_size")                                                                      \
	X(EXTERNAL_ANNOTATIONS, "external_annotations")                                                          \
	X(STAGE, "stage")                                                                                        \
	X(TERRAZZO, "terrazzo")                                                                                  \
	X(AWAITED, "awaited")                                                                                    \
	X(STALLED_NS, "stalled_ns")                                                                              \
	X(TAG, "tag")                                                                                            \
	X(REPORT, "report")                                                                                      \
	X(VERSION, "version")                                                                                    \
	X(EVENTS, "events")                                                                                      \
	X(EVENTS_NOTED, "events_noted")                                                                          \
	X(EVENTS_KEPT, "events_kept")                                                                            \
	X(FROM, "from")                                                                                          \
	X(WINDOWS, "windows")                                                                                    \
	X(RESERVED, "reserved")                                                                                  \
	X(LAID, "laid")                                                                                          \
	X(KIND, "kind")                                                                                          \
	X(TILES, "tiles")                                                                                        \
	X(USED, "used")                                                                                          \
	X(IDLE, "idle")                                                                                          \
	X(ALIAS, "alias")                                                                                        \
	PLAIN_POWERS(X)

enum plain_word {
#define PLAIN_WORD_ENUM(name, text) PLAIN_##name,
	PLAIN_WORDS(PLAIN_WORD_ENUM)
#undef PLAIN_WORD_ENUM
	PLAIN_UNKNOWN_WORD
};

typedef uint64_t plain_value;

enum plain_tag {
	PLAIN_UNSET = 0,   /* no value: an absent dict entry */
	PLAIN_OTHER,
	PLAIN_INT,         /* payload: signed */
	PLAIN_BOOL,        /* payload: 0 or 1 */
	PLAIN_WORD,        /* payload: enum plain_word; PLAIN_UNKNOWN_WORD: a text that is not kept */
	PLAIN_TEXT,        /* payload: its offset in texts.bytes */
	PLAIN_PAIR,        /* a tuple of two numbers < 2^30 */
	PLAIN_LIST,        /* payload: index of the list's cells */
	PLAIN_TUPLE,       /* as a list */
	PLAIN_DICT,        /* a list of keys (words) and values in turn; of equal keys the last counts */
	PLAIN_SET          /* its items are dropped */
};

/* Containers are a head {count, first chunk, last chunk} and chunks {count, next chunk, item, ...}; 0: none. */
enum { LIST_COUNT, LIST_FIRST, LIST_LAST, LIST_CELLS };
enum { CHUNK_COUNT, CHUNK_NEXT, CHUNK_ITEMS };

struct plain_words {
	uint64_t *items;
	size_t count;
	size_t capacity;
};

/* Invariant: `table` has a power of two of slots, at least twice as many as there are texts; 0: free. */
struct plain_texts {
	char *bytes;
	size_t used, capacity;
	uint64_t *table;
	size_t slots, count;
};

struct plain {
	struct plain_words cells;   /* all containers; they refer to each other by index */
	struct plain_texts texts;
	bool keep_texts;
	void *report;               /* a json_t: the snapshot's report of a failure; NULL: none */
	plain_value root;
};

/* Walks a list: for (it = plain_items(p, list); plain_next(p, &it, &value);). */
struct plain_items {
	uint64_t chunk;
	uint64_t at;
};

/* `keep_texts`: other texts than known words become PLAIN_TEXT, not PLAIN_UNKNOWN_WORD. Errors: HOST_MEMORY; plain_free
 * it even then. */
trz_status plain_init(struct plain *p, bool keep_texts);
void plain_free(struct plain *p);

/* ---- building: errors are HOST_MEMORY, BAD_INPUT (more than the cells can hold) ------------------------- */

trz_status plain_words_reserve(struct plain_words *w, size_t more, const char *name);
trz_status plain_new(struct plain *p, enum plain_tag tag, const char *name, plain_value *out);

/* `values` must not lie in p->cells. */
trz_status plain_extend(struct plain *p, plain_value list, const plain_value *values, size_t count, const char *name);

/* Keeps the pairs whose keys are known words. */
trz_status plain_update(struct plain *p, plain_value dict, const plain_value *pairs, size_t count, const char *name);

/* A text of `size` bytes as a value; its first PLAIN_TEXT_MAX bytes are kept. */
enum { PLAIN_TEXT_MAX = 4096 };
trz_status plain_add_text(struct plain *p, const void *text, size_t size, const char *name, plain_value *out);

static inline plain_value plain_make(enum plain_tag tag, int64_t payload)
{
	return (uint64_t)payload << 4 | tag;
}

/* An integer as a value; PLAIN_OTHER if it needs more than 60 bits. */
plain_value plain_make_int(int64_t value);

/* ---- reading ---------------------------------------------------------------------------------------- */

static inline enum plain_tag plain_tag(plain_value value)
{
	return (enum plain_tag)(value & 15);
}

static inline int64_t plain_int(plain_value value)
{
	return (int64_t)value >> 4;
}

static inline uint64_t plain_index(plain_value value)
{
	return value >> 4;
}

static inline bool plain_is_list(plain_value value)
{
	return plain_tag(value) == PLAIN_LIST || plain_tag(value) == PLAIN_TUPLE;
}

/* The word that a value is; PLAIN_UNKNOWN_WORD: none. */
static inline enum plain_word plain_word(plain_value value)
{
	return plain_tag(value) == PLAIN_WORD ? (enum plain_word)plain_index(value) : PLAIN_UNKNOWN_WORD;
}

/* A kept text or a known word; NULL: the value is neither. Valid until the next text is added. */
const char *plain_text(const struct plain *p, plain_value value);

static inline uint64_t plain_count(const struct plain *p, plain_value list)
{
	return p->cells.items[plain_index(list) + LIST_COUNT];
}

static inline struct plain_items plain_items(const struct plain *p, plain_value list)
{
	return (struct plain_items){ .chunk = p->cells.items[plain_index(list) + LIST_FIRST] };
}

static inline bool plain_next(const struct plain *p, struct plain_items *it, plain_value *value)
{
	const uint64_t *cells = p->cells.items;
	while (it->chunk != 0 && it->at == cells[it->chunk + CHUNK_COUNT])
		*it = (struct plain_items){ .chunk = cells[it->chunk + CHUNK_NEXT] };
	if (it->chunk == 0)
		return false;
	*value = cells[it->chunk + CHUNK_ITEMS + it->at++];
	return true;
}

/* The entry of a dict under a known key; PLAIN_UNSET if there is none. */
plain_value plain_entry(const struct plain *p, plain_value dict, enum plain_word key);

#endif
