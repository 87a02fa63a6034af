/* SPDX-License-Identifier: Apache-2.0
 *
 * Evidence: what is known about a request that ran out of memory, or about a heap at a moment. It comes from a running
 * heap, a snapshot or a text in a log, as far as each can tell: a figure that the source does not tell stays
 * EVIDENCE_UNKNOWN, and no judgement rests on it.
 *
 *     struct evidence e;
 *     evidence_init(&e, EVIDENCE_HEAP, "process 1234");
 *     e.requested = ...; e.holders[e.holder_count++] = ...;
 *     verdict_find(&e, &verdict); report_text(&e, &verdict, sink, owner);
 *
 * Everything is of fixed size, so that it works when host memory is short. Texts belong to whoever fills it in, and
 * must live as long as the evidence; evidence_keep copies those that would not.
 */
#ifndef TRZ_EXPLAIN_EVIDENCE_H
#define TRZ_EXPLAIN_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EVIDENCE_UNKNOWN UINT64_MAX

enum {
	EVIDENCE_HOLDERS_MAX = 16,
	EVIDENCE_GROWTH_MAX = 8,
	EVIDENCE_RUNGS_MAX = 16,
	EVIDENCE_SHARERS_MAX = 8,
	EVIDENCE_TEXTS_BYTES = 8192
};

/* X(field, what it says): all in bytes. Invariant where known: reserved = allocated + pending + cached, up to edges
 * lost to alignment; cached = free_own + free_streams + free_pools; free_partly and releasable are parts of cached.
 * What "may serve this request" is its stream's and its pool's; without a request, the default stream's and pool's. */
#define EVIDENCE_FIGURES(X)                                                                                  \
	X(requested, "asked for")                                                                                \
	X(needed, "what the request takes, rounded up and with its segment; unknown: as requested")              \
	X(limit, "the most that the allocator may reserve; unknown: none is set, or none is told")               \
	X(limit_held, "of the limit, what all who share it hold; unknown: it is the allocator's own")            \
	X(limit_others, "of limit_held: other processes")                                                        \
	X(device_total, "the device's memory")                                                                   \
	X(device_free, "what the driver has left, for any process")                                              \
	X(withheld, "of device_free: what the driver has refused to give")                                       \
	X(other_processes, "what other processes have of the device")                                            \
	X(context, "this process has outside the allocator: the driver's context, libraries")                    \
	X(reserved, "what the allocator has from the driver")                                                    \
	X(allocated, "held by the program, rounding included")                                                   \
	X(live_requested, "of allocated: what the program asked for")                                            \
	X(kept_failed, "of allocated: made for requests that failed before, and live although the program tries again")  \
	X(kept_passes, "of allocated: activations of more passes through models than a step keeps at a time")      \
	X(loaded_twice, "of allocated: read from files of tensors in the sizes of weights that were not")         \
	X(pending, "freed by the program, but other streams' work on it is not done")                            \
	X(cached, "free memory of the allocator")                                                                \
	X(free_own, "of cached: what may serve this request")                                                    \
	X(free_streams, "of cached: free memory of other streams, which cannot serve this request")              \
	X(free_pools, "of cached: free memory of private pools, which cannot serve this request")                \
	X(free_partly, "of cached: beside live blocks in the same tile or segment")                              \
	X(releasable, "of cached: whole tiles or segments outside pools, which could return to the driver")      \
	X(releasable_pools, "of free_pools: whole tiles or segments")                                            \
	X(largest, "the largest request that could have been served, new memory included")                       \
	X(largest_free, "the largest piece of free_own")                                                         \
	X(largest_streams, "the largest piece of free_streams")                                                  \
	X(largest_pools, "the largest piece of free_pools")                                                      \
	X(peak_allocated, "the most that was allocated")                                                         \
	X(peak_reserved, "the most that was reserved")

enum evidence_source {
	EVIDENCE_HEAP,             /* a heap in a running process */
	EVIDENCE_SNAPSHOT,         /* a snapshot of terrazzo */
	EVIDENCE_PICKLE,           /* a snapshot of PyTorch's own allocator */
	EVIDENCE_TEXT              /* the text of an error */
};

/* What the program keeps memory for, see docs/oom.md; a source that cannot tell says CATEGORY_UNKNOWN. */
enum evidence_category {
	CATEGORY_UNKNOWN,
	CATEGORY_WEIGHTS,
	CATEGORY_GRADIENTS,
	CATEGORY_OPTIMIZER,
	CATEGORY_ACTIVATIONS,
	CATEGORY_KV_CACHE,
	CATEGORY_TEMPORARY,
	CATEGORY_OTHER,
	CATEGORY_COUNT
};

/* One holder of memory. Texts may be NULL. A holder with neither site nor tag is the sum of its category. */
struct evidence_holder {
	enum evidence_category category;
	const char *tag;
	const char *site;          /* where it was allocated, the program's innermost line: "train.py:31 forward" */
	const char *stack;         /* the program's lines of the stack, innermost first, separated by '\n' */
	uint64_t bytes, peak, count;
	bool loaded;               /* by code that reads a file of tensors, such as a checkpoint */
	uint64_t error;            /* the standard error of `bytes`, if sampled; 0: exact */
};

/* Another process that shares the limit. */
struct evidence_sharer {
	uint64_t process;
	const char *name;          /* NULL: unknown */
	uint64_t bytes;
};

/* Memory of one site that grows with the steps. */
struct evidence_growth {
	const char *site;
	const char *loop;          /* the loop's line that it is allocated for; NULL: unknown, or it is the site */
	enum evidence_category category;
	bool leak;                 /* suspected; false: it grows for a better reason */
	bool overfilled;           /* a list that was emptied before with less in it: no leak */
	bool goes_on;              /* a list that was put together before, and then went on growing */
	double per_step, per_step_low, per_step_high;
	uint64_t live;             /* its live bytes at the end */
	uint64_t steps;            /* over which it was seen to grow */
};

/* When memory runs out at this rate. steps == 0: no forecast. */
struct evidence_forecast {
	double steps, steps_low, steps_high;
	double seconds;            /* 0: unknown */
};

/* What the allocator tried before it gave up, in its order. */
struct evidence_rung {
	const char *name;
	uint64_t tries;
	uint64_t gave;
};

struct evidence {
	enum evidence_source source;
	const char *source_name;   /* a file, a process */
	const char *allocator;     /* "terrazzo", "PyTorch" */
	bool failed;               /* a request failed; false: a heap at a moment */
	bool peak;                 /* the moment at which most was allocated: nobody asks why, but for what */
	bool too_large;            /* refused by its size alone, before the device was asked */
	bool joins;                /* the allocator lays free pieces side by side, so that their sum counts */
	bool expandable;           /* PyTorch's allocator with expandable segments: it joins whole pages */
	bool has_history;          /* growth would have been seen */
	bool limit_refused;        /* the source says that the limit refused the request */
	bool limit_inferred;       /* no source told it, but the device had room: it is at least this */
	bool likely;               /* the error mostly, but not always, means that memory ran out */
	const char *asker;         /* the library that asked the driver itself ("cuDNN"); NULL: the allocator */
	int device, rank;          /* -1: unknown */
	uint64_t process;          /* EVIDENCE_UNKNOWN: unknown */
	const char *writer;        /* what a log calls the process, such as a pod or a node; NULL: unknown */
	uint64_t stream, pool;     /* of the request; EVIDENCE_UNKNOWN: unknown; pool 0: the default pool */
	uint64_t time_ns;          /* since the epoch; 0: unknown */
	uint64_t inexact;          /* how far any figure may be off, since texts round */
	enum evidence_category category;  /* of the request, as are the next two */
	const char *site, *stack;  /* NULL: unknown */

#define EVIDENCE_FIELD(name, what) uint64_t name;
	EVIDENCE_FIGURES(EVIDENCE_FIELD)
#undef EVIDENCE_FIELD

	struct evidence_holder holders[EVIDENCE_HOLDERS_MAX];     /* most bytes first */
	struct evidence_growth growth[EVIDENCE_GROWTH_MAX];       /* suspected leaks first */
	struct evidence_rung rungs[EVIDENCE_RUNGS_MAX];
	struct evidence_sharer sharers[EVIDENCE_SHARERS_MAX];     /* most bytes first; there may be more */
	uint64_t categories[CATEGORY_COUNT];                      /* live bytes; EVIDENCE_UNKNOWN: unknown */
	unsigned holder_count, growth_count, rung_count, sharer_count;
	struct evidence_forecast forecast;

	char texts[EVIDENCE_TEXTS_BYTES];
	size_t texts_used;
};

/* Begins with nothing known. `source_name` is not copied. */
void evidence_init(struct evidence *e, enum evidence_source source, const char *source_name);

/* Copies a text into the evidence. Returns the copy; "": there is no room left. */
const char *evidence_keep(struct evidence *e, const char *text);

/* Whether both sites are known, and are the same. */
bool evidence_same_site(const char *a, const char *b);

/* Whether both come from one process, as far as the sources tell. */
bool evidence_same_writer(const struct evidence *a, const struct evidence *b);

/* Whether a tensor of `tensor` bytes may be what a list of `list` bytes is put together into. */
bool evidence_is_together(uint64_t list, uint64_t tensor);

/* Adds growth; all of one site, category and kind is added up. */
void evidence_add_growth(struct evidence *e, const struct evidence_growth *growth);

/* Whether a line holds more than twice as many weights as all others do: it has copied a model again and again. The
 * holders must be known. */
bool evidence_are_copies(const struct evidence *e, const char *site);

/* Counts a line's activations, and a request of that line, as KV cache: the way they grow has shown it. */
void evidence_is_cache(struct evidence *e, const char *site);

/* Copies evidence with the texts that it keeps. Both share all other texts. */
void evidence_copy(struct evidence *to, const struct evidence *from);

/* "optimizer state" */
const char *evidence_category_text(enum evidence_category category);

/* Whether growth may be a leak: weights and KV caches are meant to grow, as they are loaded and used. */
static inline bool evidence_may_leak(enum evidence_category category)
{
	return category != CATEGORY_WEIGHTS && category != CATEGORY_KV_CACHE;
}

static inline bool evidence_known(uint64_t figure)
{
	return figure != EVIDENCE_UNKNOWN;
}

/* The figure; 0 if it is unknown. */
static inline uint64_t evidence_or_zero(uint64_t figure)
{
	return evidence_known(figure) ? figure : 0;
}

#endif
