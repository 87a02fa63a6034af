/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations to disturb: each scenario prepares a heap and does one public operation; the tests of this folder make it
 * fail at every point where it can.
 */
#ifndef TRZ_TESTS_SCENARIO_H
#define TRZ_TESTS_SCENARIO_H

#include "rig.h"

enum { STAGE_BLOCKS = 400, STAGE_TILES = 8 };

/* What a scenario works on. */
struct stage {
	struct rig rig;
	const char *conf;
	trz_stream a, b;             /* two streams of the test's own */
	void *held[STAGE_BLOCKS];    /* what the preparation left allocated */
	size_t count;
	trz_event event;             /* what could not be given with a free */
	void *imported;              /* what could not be freed: it counts as no allocation */
	void *p;                     /* what the operation frees, or gave */
	void *was;                   /* what has been freed before */
	bool frees;                  /* the operation gives p back */
};

/* A scenario. `run` returns the operation's status; on an error it has changed nothing that a caller can see.
 * `shows`: a statistic that the undisturbed operation raises, as a proof that it went the way it is to test. */
struct scenario {
	const char *name;
	uint64_t capacity;
	const char *conf;            /* NULL: as by default */
	void (*prepare)(struct stage *);
	trz_status (*run)(struct stage *);
	const char *shows;
	bool vmm_only;               /* says nothing about a heap of classic segments */
};

extern const struct scenario scenarios[];
extern const size_t scenario_count;

/* Machine, heap and preparation, undisturbed; without virtual memory management where `classic`. */
void stage_open(struct stage *g, const struct scenario *s, bool classic);

/* After a disturbed operation, with faults off: the status is one that the function documents, the counters say
 * what is held, the invariants hold, and the heap works on. Then everything is freed, trimmed and closed: nothing
 * may be left with the driver. */
void stage_judge(struct stage *g, const struct scenario *s, trz_status status);

#endif
