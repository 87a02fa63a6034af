/* SPDX-License-Identifier: Apache-2.0
 *
 * The verdict: why a request ran out of memory, by how much, and what each remedy would give. docs/oom.md has the
 * decision list with its arithmetic; its order is that of the enum.
 */
#ifndef TRZ_EXPLAIN_VERDICT_H
#define TRZ_EXPLAIN_VERDICT_H

#include "evidence.h"

enum verdict_kind {
	VERDICT_TOO_LARGE,         /* no device of this size could serve it */
	VERDICT_LIMIT,             /* the device could have served it; the limit forbade it */
	VERDICT_OTHER_PROCESS,     /* it would have been served without the other processes' memory */
	VERDICT_LEAK,              /* memory that grows with the steps holds at least what is missing */
	VERDICT_POOL,              /* free memory of private pools would have sufficed */
	VERDICT_OTHER_STREAM,      /* free memory of other streams would have sufficed */
	VERDICT_FRAGMENTED,        /* enough was free, but in no piece */
	VERDICT_ROUNDING,          /* without rounding there would have been enough */
	VERDICT_FULL,              /* none of these: all memory is in use */
	VERDICT_UNKNOWN,           /* the source cannot tell */
	VERDICT_COUNT
};

enum remedy_kind {
	REMEDY_TRIM,               /* return wholly free memory to the driver */
	REMEDY_STREAMS,            /* use other streams' free memory: one stream, or synchronise before the peak */
	REMEDY_POOLS,              /* release private pools */
	REMEDY_JOIN,               /* lay free pieces side by side: terrazzo, or expandable segments */
	REMEDY_LIMIT,              /* lift the limit */
	REMEDY_OTHER_PROCESS,      /* end the other processes */
	REMEDY_LEAK,               /* free what grows */
	REMEDY_OVERFILLED,         /* collect less in a loop */
	REMEDY_ATTEMPT,            /* drop what an attempt that failed before keeps */
	REMEDY_PASSES,             /* keep the activations of no more passes than a step of training does */
	REMEDY_LOADED,             /* load a checkpoint to the host */
	REMEDY_ROUNDING,           /* ask for sizes that need no rounding */
	REMEDY_GROWTH,             /* bound what gets larger with each step */
	REMEDY_FEWER,              /* keep fewer of the many blocks that one line holds */
	REMEDY_BATCH,              /* a smaller batch: what activations have to give up */
	REMEDY_CHECKPOINT,         /* recompute activations */
	REMEDY_OFFLOAD_OPTIMIZER,  /* shard or offload optimizer state */
	REMEDY_OFFLOAD_WEIGHTS,    /* shard or offload weights */
	REMEDY_KV_CACHE,           /* fewer tokens in flight */
	REMEDY_COUNT
};

enum { VERDICT_REMEDIES_MAX = REMEDY_COUNT };

struct verdict_remedy {
	enum remedy_kind kind;
	uint64_t bytes;            /* what it would give */
	bool enough;               /* it suffices alone, for this request */
	bool at_least;             /* the source does not tell what it would give: `bytes` is what would be enough */
	double lasts;              /* steps, until the leaks have taken all of it; VERDICT_LASTS: no leak does */
};

#define VERDICT_LASTS 1e300

struct verdict {
	enum verdict_kind kind;
	enum verdict_kind also[VERDICT_COUNT];  /* others that apply, in the order of the list */
	unsigned also_count;
	bool presumed;             /* no request is on record: the verdict is by what fills the device */
	/* EVIDENCE_UNKNOWN where the evidence cannot tell */
	uint64_t need;             /* what the request takes */
	uint64_t device_room;      /* new memory that the driver had for it, */
	uint64_t limit_room;       /* and that the limit allowed; unknown: there is no limit */
	uint64_t room;             /* the lesser of the two */
	uint64_t usable;           /* free memory of the allocator that could serve it, as a sum */
	uint64_t piece;            /* the largest piece that it could have had */
	bool untold;               /* `piece` is only room: the source tells no pieces of usable memory */
	uint64_t others;           /* what other processes have; may be estimated from what the device lacks */
	uint64_t rounding;         /* what rounding takes: the request's, and live memory's if that is much */
	uint64_t short_bytes;      /* see verdict_find, as for the next */
	uint64_t missing;
	bool short_at_most;        /* the limit is only inferred, or what is free is unknown, or its pieces */
	bool together;             /* the request is as large as what has grown: it puts the parts together */
	bool caches;               /* most of what is live is KV cache */
	struct verdict_remedy remedies[VERDICT_REMEDIES_MAX];  /* the best first */
	unsigned remedy_count;
	bool choice;               /* either of the first two: what the verdict suggests, and what may be the better one */
};

/* Judges. short_bytes: need - room - usable if that is above 0: what was short even if all usable memory had been in
 * one piece. Otherwise, or if the limit is only inferred, need - piece: what the largest piece lacked. missing: what
 * memory in use, or a limit, has to give back: short_bytes if free memory adds to that; need - room in PyTorch's
 * allocator, whose free pieces do not. */
void verdict_find(const struct evidence *e, struct verdict *v);

/* What shrinks with the batch: activations, and the request itself if it is for activations, temporaries or samples'
 * gradients, or if activations are live and its category is unknown. EVIDENCE_UNKNOWN: activations are unknown. */
uint64_t verdict_scaling(const struct evidence *e);

/* The leak that holds the most; NULL: there is none. */
const struct evidence_growth *verdict_leak(const struct evidence *e);

/* How fast all leaks grow, in bytes a step. */
double verdict_leak_rate(const struct evidence *e);

/* Of what gets larger with each step and is no leak, such as a cache that is copied or a batch, the one that holds the
 * most; NULL: there is none. */
const struct evidence_growth *verdict_larger(const struct evidence *e);

/* The line that holds half of what is live or more, in more blocks than a pass through the model could leave: results
 * that are kept, states of a long sequence, data; NULL: there is none. */
const struct evidence_holder *verdict_many(const struct evidence *e);

/* Whether the limit would refuse the request even to an empty process. */
bool verdict_exceeds_limit(const struct evidence *e, const struct verdict *v);

/* What an empty process could have of the device, whose size is known. */
uint64_t verdict_empty_device(const struct evidence *e);

/* "other_process", as in JSON. */
const char *verdict_name(enum verdict_kind kind);
const char *remedy_name(enum remedy_kind kind);

#endif
