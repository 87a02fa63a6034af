/* SPDX-License-Identifier: Apache-2.0
 *
 * What a scenario works on: a machine, a heap and what is held of it; and the checks after a disturbance.
 */
#ifndef TRZ_TESTS_STAGE_H
#define TRZ_TESTS_STAGE_H

#include "accounts.h"
#include "rig.h"

enum { STAGE_BLOCKS = 400, STAGE_TILES = 8, STAGE_RANGES = 512 };

struct scenario;

/* What a program that keeps registrations has been told to be mapped. */
struct told {
	bool listens;
	size_t count;
	uint64_t bytes;
	struct { trz_addr address; size_t size; } range[STAGE_RANGES];
};

struct stage {
	struct rig rig;
	trz_driver old;              /* the table of a driver before CUDA 12.5, if the scenario wants one */
	const char *conf;
	trz_stream a, b;             /* two streams of the test's own */
	void *held[STAGE_BLOCKS];    /* what is left allocated */
	size_t stamped[STAGE_BLOCKS];  /* bytes of each that have a stamp */
	size_t count;
	struct accounts before;      /* what an operation that fails has left as it was */
	size_t limit;
	trz_pool *pool;              /* to be released in the end */
	trz_event event;             /* what could not be given with a free */
	void *imported;              /* what could not be freed: it counts as no allocation */
	void *p;                     /* what the operation frees, or gave */
	void *was;                   /* what has been freed before */
	bool frees;                  /* the operation gives p back */
	uint64_t proof;              /* for the scenario's proof */
	struct told told;
};

/* Machine, heap and preparation, undisturbed; without virtual memory management where `classic`. */
void stage_open(struct stage *g, const struct scenario *s, bool classic);

/* After a disturbed operation, with faults off: a failure has changed nothing that a caller can see, the counters say
 * what is held, the invariants hold, what is held has its content, and the heap works on. Then everything is freed,
 * trimmed and closed: nothing may be left with the driver. */
void stage_judge(struct stage *g, const struct scenario *s, trz_status status);

/* What has been done so far is not undone if the operation fails later. */
void stage_note(struct stage *g);

/* Notes p as held, with a stamp on so many bytes. */
void stage_keep(struct stage *g, void *p, size_t stamped);

/* Allocates and uses; stage_hold also notes it as held. */
void *stage_take(struct stage *g, size_t size, trz_stream stream);
void stage_hold(struct stage *g, size_t size, trz_stream stream);

/* Frees what is held. */
void stage_drop(struct stage *g, size_t i);

/* Frees every second of what is held. */
void stage_perforate(struct stage *g);

/* Keeps g->told up to date from here on; stage_judge then asks whether it is right. */
trz_status stage_listen(struct stage *g);

/* Operations that allocate into g->p: of the default pool, of another, and dedicated memory. A failure leaves NULL. */
trz_status stage_alloc(struct stage *g, size_t size, trz_stream stream);
trz_status stage_alloc_of(struct stage *g, trz_pool *pool, size_t size, trz_stream stream);
trz_status stage_alloc_dedicated(struct stage *g, size_t size, trz_stream stream);

/* An operation that returns all that is free. */
trz_status stage_trim(struct stage *g);

/* Blocks of 16 MiB on stream a, every second one free; work on them is under way, or done. */
void stage_scatter(struct stage *g);
void stage_scatter_and_wait(struct stage *g);

#endif
