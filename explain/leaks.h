/* SPDX-License-Identifier: Apache-2.0
 *
 * Leaks: which call sites hold more memory with each step of the program, and when memory will run out at that rate.
 *
 * What counts of a step is the least that a site held at any moment of it: memory that comes and goes within a step is
 * no growth, however much it is. Of a site the newest 64 steps are kept, the newest 64 minima over 4 steps, those over
 * 16, and so on: so a slow leak shows in a long series, one that began lately in a short one, in bounded memory. The
 * same test looks at each of these, at several of their ends.
 *
 * A suspicion needs more than a trend, since caches that fill up grow in a straight line, too, until they are full:
 * growth is a suspect after LEAKS_STEPS steps, if by then it has added a quarter to what was live, or has taken a third
 * of the memory that was left; else when it has lasted LEAKS_LONG_STEPS. It is one earlier if it has taken most of what
 * was left. When memory has run out (leaks_failed) steady growth is the suspect however short it was.
 *
 * And it has to be kept: of ever more allocations. What is as many and larger, as a batch that grows with each step, or
 * a cache that is copied into a longer one, is asked for anew each time.
 */
#ifndef TRZ_EXPLAIN_LEAKS_H
#define TRZ_EXPLAIN_LEAKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	LEAKS_SITES = 256,         /* followed at a time; of more, those with most bytes */
	LEAKS_STEPS = 160,
	LEAKS_LONG_STEPS = 2000
};

struct leaks;

/* What the heap holds beside all sites, and the sites that are not followed. */
#define LEAKS_REST UINT64_MAX

struct leaks_finding {
	uint64_t site;
	bool suspect;              /* false: it grows steadily, but not for long or by much yet */
	double bytes_per_step, bytes_per_step_low, bytes_per_step_high;
	uint64_t bytes;            /* by which it has grown, */
	double allocations_per_step;  /* and by how many; 0: nobody has told */
	uint64_t since_step;
	uint64_t live;             /* of the site, as told last */
	double confidence;         /* 0 .. 1 */
};

/* In steps, and in nanoseconds, from the newest step on. */
struct leaks_forecast {
	double steps, steps_low, steps_high;
	double ns, ns_low, ns_high; /* 0: no times were given */
};

/* How often a list has been filled and emptied, from about as much each time, and the most that it was emptied from. */
struct leaks_fills {
	uint64_t from, count;
};

/* Whether so little is left of the most that it counts as emptied; one more; and whether what is there now will be
 * emptied once more, since it is not far more than usual. */
bool leaks_is_emptied(uint64_t now, uint64_t most);
void leaks_note_emptied(struct leaks_fills *f, uint64_t from);
bool leaks_is_filled_anew(const struct leaks_fills *f, uint64_t now);

/* Bytes of host memory for leaks_start. */
size_t leaks_bytes(void);

/* Begins in leaks_bytes() at `memory` (8-byte aligned). */
struct leaks *leaks_start(void *memory);

/* What a site holds from now on, or the least that it has held since the newest step. Sites are the caller's numbers;
 * a site that is not mentioned holds what it held before, at first 0. Beyond LEAKS_SITES only those count that are
 * mentioned in each step. */
void leaks_site(struct leaks *g, uint64_t site, uint64_t live_bytes);

/* How many allocations that is. Of a site for which it is never told all growth is taken to be kept. */
void leaks_count(struct leaks *g, uint64_t site, uint64_t live_allocations);

/* What the heap holds that has no site, at the same moments. */
void leaks_rest(struct leaks *g, uint64_t live_bytes);

/* The least and the most that the whole heap has held since the newest step. */
void leaks_all(struct leaks *g, uint64_t low_bytes, uint64_t high_bytes);

/* The most that the heap could hold; 0: not known. */
void leaks_room(struct leaks *g, uint64_t capacity_bytes);

/* A step has ended. `time_ns`: of any clock; 0: none. */
void leaks_step(struct leaks *g, uint64_t time_ns);

/* Memory has run out: findings are judged by what led to it. false: undoes it. */
void leaks_failed(struct leaks *g, bool failed);

uint64_t leaks_steps(const struct leaks *g);

/* Up to `capacity` of the sites that grow, suspects first, then by bytes a step. Returns how many. */
size_t leaks_findings(const struct leaks *g, struct leaks_finding *out, size_t capacity);

/* When memory runs out at this rate. false: the heap does not grow steadily, or its room is not known. */
bool leaks_forecast(const struct leaks *g, struct leaks_forecast *out);

/* Whether what was taken for steps may be one pass through a model, whose parts look like so many steps: `alike` of its
 * parts are, and a step adds so many allocations at one place. In steps every part would add its own. */
bool leaks_may_be_one_pass(uint64_t steps, double allocations_per_step, uint64_t alike);

#endif
