/* SPDX-License-Identifier: Apache-2.0
 *
 * A stretch of the history, such as a step, is cut into rounds at the place outside of models that allocates least
 * often in it, but twice or more: where batches are moved to the device, or losses are added up.
 */
#include "dump_passes.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "dump_sites.h"
#include "dump_steps.h"
#include "error.h"
#include "trace_map.h"

enum {
	STEPS = 16,                /* the newest steps are looked at */
	ROUNDS = 1024,             /* of a stretch; what later ones make counts for the last */
	LEAKS = 4,                 /* so many rounds that keep their activations leak, where a step keeps those of one */
	KEPT = 2,                  /* a round whose activations are live but for 1 / KEPT of their peak keeps them, */
	LARGE = 16,                /* if that peak is 1 / LARGE of the highest */
	FINER = 64                 /* rounds are counted whenever 1 / FINER more is live than ever before */
};

struct rounds {
	const struct dump *d;
	uint32_t *counts;          /* by stack: how often it begins a row of allocations; all 0 between stretches */
	bool *seen;                /* by stack: it has made activations in the steps */
	struct trace_map made;     /* address: the round that made an activation of this stretch */
	uint64_t live[ROUNDS], peak[ROUNDS];
	uint64_t highest;          /* of the peaks */
	uint64_t now, counted;     /* live in all rounds; when they were last counted */
	size_t count;
	size_t most;               /* rounds that have kept their activations at a time */
};

static bool is_outside(const struct dump *d, const struct dump_event *e)
{
	return e->action == DUMP_ALLOC && dump_site(d, e->stack)->begins_step;
}

static bool is_activation(const struct dump *d, const struct dump_event *e)
{
	const struct dump_site *site = dump_site(d, e->stack);
	return e->action == DUMP_ALLOC && site->category == CATEGORY_ACTIVATIONS && site->modules > 0;
}

/* The next allocation outside of models that begins a row of its place, from `at` on; `end`: none. */
static size_t next_row(const struct rounds *r, size_t at, size_t end, uint32_t *last)
{
	for (; at < end; at++) {
		const struct dump_event *e = &r->d->events[at];
		bool begins = is_outside(r->d, e) && e->stack != *last;
		if (e->action == DUMP_ALLOC)
			*last = e->stack;
		if (begins)
			return at;
	}
	return end;
}

/* The stack at which rounds begin; UINT32_MAX: there is but one round. */
static uint32_t find_border(struct rounds *r, size_t first, size_t end)
{
	uint32_t last = UINT32_MAX, best = UINT32_MAX;
	for (size_t i = first; (i = next_row(r, i, end, &last)) < end; i++)
		r->counts[r->d->events[i].stack]++;
	last = UINT32_MAX;
	for (size_t i = first; (i = next_row(r, i, end, &last)) < end; i++) {
		uint32_t stack = r->d->events[i].stack;
		if (r->counts[stack] > 1 && (best == UINT32_MAX || r->counts[stack] < r->counts[best]))
			best = stack;
	}
	for (size_t i = first; i < end; i++)
		r->counts[r->d->events[i].stack] = 0;
	return best;
}

static bool is_kept(const struct rounds *r, size_t round)
{
	return r->live[round] > 0 && r->live[round] >= r->peak[round] / KEPT && r->peak[round] >= r->highest / LARGE;
}

static size_t count_kept(const struct rounds *r)
{
	size_t kept = 0;
	for (size_t i = 0; i < r->count; i++)
		kept += is_kept(r, i);
	return kept;
}

static trz_status note_made(struct rounds *r, size_t event)
{
	const struct dump_event *e = &r->d->events[event];
	size_t round = r->count - 1;
	if (!is_activation(r->d, e))
		return TRZ_OK;
	r->live[round] += e->size;
	r->now += e->size;
	r->peak[round] = max_u64(r->peak[round], r->live[round]);
	r->highest = max_u64(r->highest, r->peak[round]);
	if (r->now - r->counted / FINER > r->counted) {
		size_t kept = count_kept(r);
		r->most = kept > r->most ? kept : r->most;
		r->counted = r->now;
	}
	return map_set(&r->made, e->address, (uint32_t)round);
}

static void note_freed(struct rounds *r, const struct dump_event *e)
{
	uint32_t round;
	if (!map_get(&r->made, e->address, &round))
		return;
	uint64_t size = min_u64(e->size, r->live[round]);
	r->live[round] -= size;
	r->now -= size;
	map_remove(&r->made, e->address);
}

/* Errors: HOST_MEMORY. */
static trz_status play(struct rounds *r, size_t first, size_t end)
{
	uint32_t border = find_border(r, first, end), last = UINT32_MAX;
	trz_status status = TRZ_OK;
	map_free(&r->made);
	r->count = 1;
	r->most = 1;
	r->live[0] = r->peak[0] = r->highest = r->now = r->counted = 0;
	for (size_t i = first; i < end && status == TRZ_OK; i++) {
		const struct dump_event *e = &r->d->events[i];
		if (e->action == DUMP_ALLOC && e->stack == border && last != border && r->count < ROUNDS) {
			r->live[r->count] = r->peak[r->count] = 0;
			r->count++;
		}
		last = e->action == DUMP_ALLOC ? e->stack : last;
		if (e->action == DUMP_ALLOC)
			status = note_made(r, i);
		else if (e->action == DUMP_FREE_COMPLETED)
			note_freed(r, e);
	}
	return status;
}

static void note_seen(struct rounds *r, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		r->seen[r->d->events[i].stack] |= is_activation(r->d, &r->d->events[i]);
}

/* Whether what ran last calls models where the steps did: then it may be a step that needs more passes. */
static bool is_like_steps(const struct rounds *r, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		if (is_activation(r->d, &r->d->events[i]))
			return r->seen[r->d->events[i].stack];
	return false;
}

/* What the oldest rounds keep, all but the newest `spared`. */
static uint64_t kept_beyond(const struct rounds *r, size_t spared)
{
	size_t beyond = count_kept(r);
	uint64_t bytes = 0;
	beyond -= spared < beyond ? spared : beyond;
	for (size_t i = 0; i < r->count && beyond; i++) {
		bytes += is_kept(r, i) ? r->live[i] : 0;
		beyond -= is_kept(r, i);
	}
	return bytes;
}

/* The line that holds most of what rounds keep. Errors: HOST_MEMORY. */
static trz_status tell_leak(const struct rounds *r, const struct dump_moment *m, uint64_t bytes, struct evidence *e)
{
	uint64_t *held = calloc(r->d->frame_count + 1, sizeof *held), most = 0;
	char site[DUMP_SITE_BYTES] = "";
	uint32_t round;
	if (!held)
		return TRZ_ERROR_HOST_MEMORY;
	for (size_t i = 0; i < m->block_count; i++) {
		const struct dump_block *b = &m->blocks[i];
		uint32_t frame = dump_site(r->d, b->stack)->frame;
		if (b->state != DUMP_HELD || frame == UINT32_MAX || !map_get(&r->made, b->address, &round))
			continue;
		held[frame] += b->size;
		if (held[frame] > most) {
			most = held[frame];
			dump_site_text(r->d, b->stack, site);
		}
	}
	free(held);
	double each = (double)bytes / (double)count_kept(r);
	if (most)
		evidence_add_growth(e, &(struct evidence_growth){ .site = evidence_keep(e, site),
		                                                  .category = CATEGORY_ACTIVATIONS,
		                                                  .leak = true,
		                                                  .per_step = each,
		                                                  .per_step_low = each,
		                                                  .per_step_high = each,
		                                                  .live = bytes,
		                                                  .steps = count_kept(r) });
	return TRZ_OK;
}

/* The most passes that a step has kept at a time. Errors: HOST_MEMORY. */
static trz_status look_at_steps(struct rounds *r, const struct dump_steps *steps, size_t *usual)
{
	trz_status status = TRZ_OK;
	*usual = 1;
	for (size_t i = steps->count > STEPS ? steps->count - STEPS : 0; i + 1 < steps->count && status == TRZ_OK; i++) {
		status = play(r, steps->at[i], steps->at[i + 1]);
		*usual = r->most > *usual ? r->most : *usual;
		note_seen(r, steps->at[i], steps->at[i + 1]);
	}
	return status;
}

static trz_status compare(struct rounds *r, const struct dump_steps *steps, size_t event, const struct dump_moment *m,
                          struct evidence *e)
{
	size_t usual, newest = steps->at[steps->count - 1];
	trz_status status = look_at_steps(r, steps, &usual);
	if (status == TRZ_OK)
		status = play(r, newest, event);
	if (status != TRZ_OK)
		return status;
	/* Where steps add up passes, a longer list of them is no mistake. */
	bool leaks = usual == 1 && count_kept(r) >= LEAKS;
	e->kept_passes = leaks || (usual == 1 && !is_like_steps(r, newest, event)) ? kept_beyond(r, 1) : 0;
	return leaks ? tell_leak(r, m, kept_beyond(r, 0), e) : TRZ_OK;
}

static void end_rounds(struct rounds *r)
{
	if (r) {
		map_free(&r->made);
		free(r->counts);
		free(r->seen);
	}
	free(r);
}

/* NULL: no memory. */
static struct rounds *begin_rounds(const struct dump *d)
{
	struct rounds *r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	*r = (struct rounds){ .d = d, .counts = calloc(d->stack_count + 1, sizeof *r->counts),
		              .seen = calloc(d->stack_count + 1, sizeof *r->seen) };
	if (r->counts && r->seen)
		return r;
	end_rounds(r);
	return NULL;
}

trz_status dump_passes(const struct dump *d, int device, size_t event, const struct dump_moment *m, struct evidence *e)
{
	struct dump_steps steps;
	trz_status status = dump_marks(d, device, d->traces[device].first, event, &steps);
	struct rounds *r = begin_rounds(d);
	if (!r)
		status = TRZ_ERROR_HOST_MEMORY;
	if (status == TRZ_OK && steps.count > 1 && !steps.calls)
		status = compare(r, &steps, event, m, e);
	end_rounds(r);
	dump_steps_free(&steps);
	return status == TRZ_OK ? TRZ_OK : trz_fail(status, "no memory to look for passes that leave activations");
}

trz_status dump_passes_of_step(const struct dump *d, int device, size_t event, size_t *begin)
{
	struct dump_steps steps;
	trz_status status = dump_marks(d, device, d->traces[device].first, event, &steps);
	struct rounds *r = begin_rounds(d);
	size_t usual = 1;
	if (!r)
		status = TRZ_ERROR_HOST_MEMORY;
	*begin = event;
	if (status == TRZ_OK && steps.count > 1 && !steps.calls) {
		size_t newest = steps.at[steps.count - 1];
		status = look_at_steps(r, &steps, &usual);
		if (status == TRZ_OK && usual > 1 && is_like_steps(r, newest, event))
			*begin = newest;
	}
	end_rounds(r);
	dump_steps_free(&steps);
	return status == TRZ_OK ? TRZ_OK : trz_fail(status, "no memory to look for passes of a step");
}
