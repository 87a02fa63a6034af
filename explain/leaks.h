/* SPDX-License-Identifier: Apache-2.0
 *
 * Leaks: which call sites hold more memory with each step of the program, and when memory will run out at that rate.
 *
 * A step counts by the least that a site held at any moment of it: memory that comes and goes within a step is no
 * growth, however much it is. Each site keeps its newest 64 steps, the newest 64 minima over 4 steps, those over 16,
 * and so on: in bounded memory, a slow leak shows in a long series, one that began lately in a short one. The same test
 * looks at each series, at ends of several lengths.
 *
 * A suspicion needs more than a trend, since a cache grows in a straight line, too, until it is full. Growth becomes a
 * suspect after LEAKS_STEPS steps if by then it has added a quarter to what was live, or has taken a third of what was
 * left; otherwise once it has lasted LEAKS_LONG_STEPS; and earlier if it has taken most of what was left. When memory
 * has run out (leaks_failed) steady growth is suspect however short it was.
 *
 * And the memory must be kept, in ever more allocations. A batch that gets larger with each step, or a cache that is
 * copied into a longer one, is as many allocations as before, only larger: it is allocated anew each time.
 */
#ifndef TRZ_EXPLAIN_LEAKS_H
#define TRZ_EXPLAIN_LEAKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	LEAKS_SITES = 256,         /* followed at a time; if there are more, those with the most bytes */
	LEAKS_STEPS = 160,
	LEAKS_LONG_STEPS = 2000
};

struct leaks;

/* The site of a finding about what has no site, and the sites that are not followed. */
#define LEAKS_REST UINT64_MAX

struct leaks_finding {
	uint64_t site;
	bool suspect;              /* false: it grows steadily, but not for long or by much yet */
	double bytes_per_step, bytes_per_step_low, bytes_per_step_high;
	uint64_t bytes;            /* how much it has grown */
	double allocations_per_step;  /* how many it adds; 0: not told */
	uint64_t since_step;
	uint64_t live;             /* what the site holds, as told last */
	double confidence;         /* 0 .. 1 */
};

/* When memory runs out, in steps and in nanoseconds from the newest step on. */
struct leaks_forecast {
	double steps, steps_low, steps_high;
	double ns, ns_low, ns_high; /* 0: no times were given */
};

/* How often a list was filled and emptied, with about as much in it each time, and the most that it held then. */
struct leaks_fills {
	uint64_t from, count;
};

/* Whether a list that held `most` and holds `now` counts as emptied; notes that one was; and whether a list that holds
 * `now` is just being filled again, since it was emptied before and is not far larger than then. */
bool leaks_is_emptied(uint64_t now, uint64_t most);
void leaks_note_emptied(struct leaks_fills *f, uint64_t from);
bool leaks_is_filled_anew(const struct leaks_fills *f, uint64_t now);

/* How many bytes of host memory leaks_start needs. No two threads may use the same at once, to ask neither. */
size_t leaks_bytes(void);

/* Begins in leaks_bytes() bytes at `memory` (8-byte aligned). */
struct leaks *leaks_start(void *memory);

/* Tells what a site holds from now on, or the least that it has held since the newest step. The caller numbers sites;
 * one that is not mentioned holds what it held before, at first 0. Beyond LEAKS_SITES a site counts only if it is
 * mentioned in each step. */
void leaks_site(struct leaks *g, uint64_t site, uint64_t live_bytes);

/* Tells how many allocations that is. If a site's number is never told, all its growth is taken to be kept. */
void leaks_count(struct leaks *g, uint64_t site, uint64_t live_allocations);

/* Tells what the heap holds that has no site, at the same moments. */
void leaks_rest(struct leaks *g, uint64_t live_bytes);

/* Tells the least and the most that the whole heap has held since the newest step. */
void leaks_all(struct leaks *g, uint64_t low_bytes, uint64_t high_bytes);

/* Tells the most that the heap could hold; 0: not known. */
void leaks_room(struct leaks *g, uint64_t capacity_bytes);

/* A step has ended. `time_ns`: of any clock; 0: none. */
void leaks_step(struct leaks *g, uint64_t time_ns);

/* Memory has run out: findings are judged by what led to it. false: undoes it. */
void leaks_failed(struct leaks *g, bool failed);

uint64_t leaks_steps(const struct leaks *g);

/* Finds up to `capacity` sites that grow, suspects first, then by bytes a step. Returns how many. */
size_t leaks_findings(struct leaks *g, struct leaks_finding *out, size_t capacity);

/* When memory runs out at this rate. false: no site is suspect, the end is far off, or the room is not known. */
bool leaks_forecast(struct leaks *g, struct leaks_forecast *out);

/* Whether what was taken for steps may be the parts of a model in one pass through it: `alike` of its parts are alike,
 * and a step adds `allocations_per_step` at one place. In real steps every part would add its own. */
bool leaks_may_be_one_pass(uint64_t steps, double allocations_per_step, uint64_t alike);

#endif
