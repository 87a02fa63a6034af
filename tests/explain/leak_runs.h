/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of programs by seed, as explain/leaks.h sees them: what each call site and the heap hold at the ends of steps,
 * and which sites really leak. A run has weights and transient memory, and a mixture of what programs do.
 */
#ifndef TRZ_TESTS_LEAK_RUNS_H
#define TRZ_TESTS_LEAK_RUNS_H

#include <stdbool.h>
#include <stdint.h>

enum site_kind {
	SITE_CONSTANT,
	SITE_WARM_UP,              /* arrives in the first steps, at once or in up to 10 parts */
	SITE_FILLS,                /* a cache: less is new the more is in it */
	SITE_FILLS_STRAIGHT,       /* a cache, in a straight line, for at most 140 steps */
	SITE_STOPS,                /* grows like a leak, for at most 140 steps, then no more */
	SITE_EVALUATION,           /* more in a few steps every k steps */
	SITE_EPOCH,                /* grows for an epoch of at most 140 steps, then is empty again */
	SITE_LENGTHS,              /* varies from step to step */
	SITE_STAIRS,               /* at most 4 jumps */
	SITE_LOG,                  /* new shapes get ever rarer */
	SITE_LEAK,                 /* so much a step */
	SITE_LEAK_RARE,            /* one step of up to 5, so much more */
	SITE_LEAK_LENGTHS,         /* by varying amounts */
	SITE_LEAK_FASTER,          /* up to twice as fast at the end */
	SITE_LEAK_NOISY,           /* in a site that also varies */
	SITE_KINDS
};

static inline bool site_leaks(enum site_kind kind)
{
	return kind >= SITE_LEAK;
}

enum { RUN_SITES = 12 };

struct run_site {
	enum site_kind kind;
	double size;               /* bytes: all that it comes to; of a leak: a step */
	double noise;              /* standard deviation, in bytes */
	int begin, length, every;
	double sum;                /* of a leak so far */
	double live;
};

struct run {
	uint64_t random;
	double base;               /* bytes: weights and the like, allocated in the first steps */
	double activations;        /* most that comes and goes in a step */
	double capacity;
	double rate;               /* of the leak, in parts of base; 0: none */
	int steps;
	int leak;                  /* the number of the site that leaks; -1: none */
	int sites;
	struct run_site site[RUN_SITES];
	double low, high;          /* of the heap, in the newest step */
};

/* `rate`: of the leak in parts of what is live without it; 0: no leak. */
struct run run_make(uint64_t seed, double rate, int steps);

/* Works out the next step. */
void run_step(struct run *r, int step);

/* In [0, 1), and normally distributed. */
double run_uniform(struct run *r);
double run_normal(struct run *r);

#endif
