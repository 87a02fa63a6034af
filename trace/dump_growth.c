/* SPDX-License-Identifier: Apache-2.0
 *
 * Plays a history forward, step by step, and keeps what each site holds.
 */
#include "dump_growth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "dump_inner.h"
#include "dump_loop.h"
#include "dump_needed.h"
#include "dump_sites.h"
#include "dump_steps.h"
#include "error.h"
#include "leaks.h"
#include "prng.h"
#include "size_text.h"
#include "trace_map.h"

/* Recognised steps count only if at least so many per cent of their allocations are freed within their step: a loop
 * that only fills memory has no steps. */
enum { CHURN_LEAST = 10 };

/* Nor has a loop that loads data: models do less than 1 / WORK_SHARE of its allocating, and it keeps at least
 * 1 / KEPT_SHARE of what its steps rise by. */
enum { KEPT_SHARE = 4, WORK_SHARE = 4 };

/* The part of what steps keep that is gradients, and that is not, at least, where they are differentiated through. */
enum { KEPT_BOTH = 8 };

/* Neither test applies to at least so many steps that begin outside of models and call them: a loop that collects
 * outputs with their graphs keeps all that its models make, and frees nothing. */
enum { CALLS_LEAST = 8 };

/* Smaller blocks are not counted as weights of a model's parts: of norms' weights and biases it has many. */
enum { PART_LEAST = 32 << 10 };

/* When memory has run out, growth matters from 1 / MATTERS of the live memory on, unless other growth is more than
 * SLOWER times as fast. */
enum { MATTERS = 20, SLOWER = 4 };

/* What grows is made anew if its newest 1 / NEWEST of the time has made all but 1 / OLD of it: of a list that is kept,
 * that time has made about as much as any other. */
enum { NEWEST = 4, OLD = 8 };

/* Allocations without a stack are told apart by size, in so many classes. */
enum { SIZES = 4096 };

/* A site's number is the index of the frame that names it, + 1; the classes of sizes follow. 0: not known. */
struct site_sum {
	uint64_t now, low;         /* live bytes; the least since the newest step began */
	uint64_t count, few;       /* live allocations; the least since then */
	uint64_t before;           /* live allocations when the steps began */
	uint64_t size;             /* of its newest allocation; so is `stack` */
	uint32_t stack;
	bool told;                 /* `leaks` knows the site */
	uint64_t most, begun;      /* most bytes since it was last emptied; play.marks at that time */
	uint64_t most_count;       /* most allocations since then */
	struct leaks_fills fills;  /* those that took FILL_MARKS or more */
	struct leaks_fills count_fills;  /* the same in allocations */
	bool put_together;         /* the failing line put its memory together, when it was less, since it was emptied */
};

/* An earlier request of the failing line is compared with all sites only if it is between 1 / PUT_PART of the failed
 * request and as much less than it; and at most PUTS_MAX are, since each costs a look at all sites. */
enum { PUT_PART = 16, PUTS_MAX = 64 };

/* A list is filled anew, too, if it has so many times fewer parts than leaks_is_filled_anew() allows, whatever they
 * hold: with a larger batch each is larger. */
enum { MORE_PARTS = 4 };

/* What is gone after fewer marks was a step's own. Fills count over all of the history: if the last of several
 * evaluations is the longest, only its steps are found. */
enum { FILL_MARKS = 3 };

struct play {
	const struct dump *d;
	size_t first, end;
	struct dump_steps steps;
	struct leaks *leaks;
	struct site_sum *sites;
	struct trace_map live;     /* address: its allocation, counted from `first` */
	uint64_t now, low, high;
	const struct site_sum *begins;  /* where steps begin */
	const struct site_sum *failing;  /* the line that failed; NULL: not known */
	uint64_t asked;            /* by the failing line */
	unsigned puts;
	uint64_t marks;            /* allocations at `begins`, in all of the history, whoever calls the function */
	bool requests_told, has_stacks;
	size_t allocations, frees; /* in the steps; frees of what the same step allocated */
	size_t allocations_before, frees_before;  /* those in the first half of the steps */
	size_t made, unmade;       /* allocations and frees before the steps */
	uint64_t bytes, model_bytes;  /* allocated in the steps; by models */
	uint64_t work_bytes;       /* by models, by what else trains or runs them, or unknown */
	uint64_t at_first, at_last;  /* live bytes when the steps began, and at the end of the newest */
	uint64_t rises;            /* sum over all steps: the most live bytes less the least */
	bool inner;                /* what was taken for steps are rounds within one */
};

/* ---- sites ------------------------------------------------------------------------------------------ */

static size_t site_count(const struct play *p)
{
	return 1 + p->d->frame_count + SIZES;
}

/* `size`: as requested. */
static struct site_sum *site_at(struct play *p, uint32_t stack, uint64_t size)
{
	uint32_t frame = dump_site(p->d, stack)->frame;
	return &p->sites[1 + (frame != UINT32_MAX ? frame : p->d->frame_count + prng_mix(size) % SIZES)];
}

/* For an allocation: only these set a site's `stack` and `size`, not look-ups. */
static struct site_sum *note_at(struct play *p, uint32_t stack, uint64_t size)
{
	struct site_sum *site = site_at(p, stack, size);
	site->stack = stack;
	site->size = size;
	return site;
}

static void hold(struct play *p, struct site_sum *site, uint64_t bytes)
{
	site->now += bytes;
	site->most = max_u64(site->most, site->now);
	site->count++;
	site->most_count = max_u64(site->most_count, site->count);
	p->now += bytes;
	p->high = max_u64(p->high, p->now);
}

static void note_emptied(const struct play *p, struct site_sum *site)
{
	if (p->marks - site->begun >= FILL_MARKS) {
		leaks_note_emptied(&site->fills, site->most);
		leaks_note_emptied(&site->count_fills, site->most_count);
	}
	site->begun = p->marks;
	site->most = site->now;
	site->most_count = site->count;
	site->put_together = false;
}

static void let_go(struct play *p, struct site_sum *site, uint64_t bytes)
{
	site->now -= min_u64(site->now, bytes);
	site->count -= site->count > 0;
	if (leaks_is_emptied(site->now, site->most))
		note_emptied(p, site);
	site->low = min_u64(site->low, site->now);
	site->few = min_u64(site->few, site->count);
	p->now -= min_u64(p->now, bytes);
	p->low = min_u64(p->low, p->now);
}

/* ---- events ----------------------------------------------------------------------------------------- */

static bool is_free(const struct play *p, const struct dump_event *e)
{
	return e->action == (p->requests_told ? DUMP_FREE_REQUESTED : DUMP_FREE_COMPLETED);
}

/* The allocation that a free ends. false: it is older than the history. */
static bool ends(const struct play *p, const struct dump_event *e, const struct dump_event **allocation)
{
	uint32_t at;
	if (!map_get(&p->live, e->address, &at))
		return false;
	*allocation = &p->d->events[p->first + at];
	return true;
}

/* As requested. */
static uint64_t bytes_of(const struct dump_block *b)
{
	return b->requested ? b->requested : b->size;
}

/* What was live before the history began: all that is live at its end but was not allocated in it, and what was freed
 * in it but not allocated in it. */
static trz_status begin(struct play *p, const struct dump_moment *m)
{
	for (size_t i = p->first; i < p->end; i++)
		p->requests_told |= p->d->events[i].action == DUMP_FREE_REQUESTED;
	for (size_t i = p->first; i < p->end; i++) {
		const struct dump_event *e = &p->d->events[i], *allocation;
		if (e->action == DUMP_ALLOC && map_set(&p->live, e->address, (uint32_t)(i - p->first)) != TRZ_OK)
			return TRZ_ERROR_HOST_MEMORY;
		if (!is_free(p, e))
			continue;
		if (!ends(p, e, &allocation))
			hold(p, &p->sites[0], e->size);
		map_remove(&p->live, e->address);
	}
	for (size_t i = 0; i < m->block_count; i++) {
		const struct dump_block *b = &m->blocks[i];
		uint32_t at;
		if (b->state == DUMP_HELD && !map_get(&p->live, b->address, &at))
			hold(p, note_at(p, b->stack, bytes_of(b)), bytes_of(b));
	}
	map_free(&p->live);
	p->live = (struct trace_map){ 0 };
	return TRZ_OK;
}

static void count_in_step(struct play *p, const struct dump_event *e)
{
	const struct dump_site *site = dump_site(p->d, e->stack);
	bool data = site->category == CATEGORY_UNKNOWN || site->category == CATEGORY_WEIGHTS;
	p->allocations++;
	p->bytes += e->size;
	p->work_bytes += site->of_model || !data || site->frame == UINT32_MAX ? e->size : 0;
	p->model_bytes += site->of_model ? e->size : 0;
}

/* The failing line requested `size` before, when a list held less: it put the list together, and the list went on. */
static void note_put_together(struct play *p, uint64_t size)
{
	if (size < p->asked / PUT_PART || size > p->asked - p->asked / PUT_PART || p->puts++ >= PUTS_MAX)
		return;
	for (size_t i = 1; i < site_count(p); i++)
		p->sites[i].put_together |= evidence_is_together(p->sites[i].now, size);
}

static trz_status play_event(struct play *p, size_t i, size_t step_begin)
{
	const struct dump_event *e = &p->d->events[i], *allocation;
	if (e->action == DUMP_ALLOC) {
		struct site_sum *site = note_at(p, e->stack, e->size);
		if (site == p->failing)
			note_put_together(p, e->size);
		hold(p, site, e->size);
		p->marks += site == p->begins;
		if (step_begin < p->end)
			count_in_step(p, e);
		p->made += step_begin == p->end;
		return map_set(&p->live, e->address, (uint32_t)(i - p->first));
	}
	if (!is_free(p, e))
		return TRZ_OK;
	bool known = ends(p, e, &allocation);
	if (known)
		let_go(p, site_at(p, allocation->stack, allocation->size), allocation->size);
	else
		let_go(p, &p->sites[0], e->size);
	p->frees += known && (size_t)(allocation - p->d->events) >= step_begin;
	p->unmade += known && step_begin == p->end;
	map_remove(&p->live, e->address);
	return TRZ_OK;
}

static void end_step(struct play *p, uint64_t time_us)
{
	for (size_t i = 1; i < site_count(p); i++) {
		struct site_sum *site = &p->sites[i];
		if (site->low > 0 || site->told) {
			leaks_site(p->leaks, i, site->low);
			leaks_count(p->leaks, i, site->few);
			site->told = true;
		}
		site->low = site->now;
		site->few = site->count;
	}
	leaks_rest(p->leaks, p->sites[0].low);
	p->sites[0].low = p->sites[0].now;
	leaks_all(p->leaks, p->low, p->high);
	p->rises += p->high - p->low;
	p->at_last = p->now;
	leaks_step(p->leaks, time_us * 1000);
	p->low = p->high = p->now;
}

static void begin_steps(struct play *p)
{
	for (size_t i = 0; i < site_count(p); i++) {
		p->sites[i].low = p->sites[i].now;
		p->sites[i].few = p->sites[i].before = p->sites[i].count;
	}
	p->low = p->high = p->at_first = p->at_last = p->now;
}

static trz_status play(struct play *p)
{
	size_t step = 0;
	for (size_t i = p->first; i < p->end; i++) {
		if (step < p->steps.count && i == p->steps.at[step]) {
			if (step++ > 0)
				end_step(p, p->d->events[i].time_us);
			if (step == p->steps.count / 2) {
				p->allocations_before = p->allocations;
				p->frees_before = p->frees;
			}
			if (step == 1)
				begin_steps(p);
		}
		trz_status status = play_event(p, i, step ? p->steps.at[step - 1] : p->end);
		if (status != TRZ_OK)
			return status;
	}
	return TRZ_OK;
}

/* ---- findings --------------------------------------------------------------------------------------- */

static bool is_churn(size_t frees, size_t allocations)
{
	return frees * 100 >= allocations * CHURN_LEAST;
}

/* What was there before the steps is weights if the program did nothing but allocate until then. */
static bool may_be_of_weights(const struct play *p, const struct site_sum *site)
{
	bool makes = p->made == 0 || !is_churn(p->unmade, p->made);
	return !p->has_stacks && makes && site->count <= (1 + DUMP_BESIDE_WEIGHT) * site->before;
}

static const struct site_sum *site_found(const struct play *p, const struct leaks_finding *f)
{
	return f->site == LEAKS_REST ? &p->sites[0] : &p->sites[f->site];
}

/* What a site holds most of counts. */
static void settle_stacks(struct play *p, const struct dump_moment *m, const struct leaks_finding *found, size_t count)
{
	struct dump_mix mixes[EVIDENCE_GROWTH_MAX] = { 0 };
	for (size_t i = 0; i < m->block_count; i++) {
		const struct dump_block *b = &m->blocks[i];
		const struct site_sum *site = b->state == DUMP_HELD ? site_at(p, b->stack, bytes_of(b)) : NULL;
		for (size_t k = 0; site && k < count; k++)
			if (site == site_found(p, &found[k]))
				dump_mix_add(p->d, &mixes[k], b->stack, b->size);
	}
	for (size_t k = 0; k < count; k++)
		if (mixes[k].stack)
			p->sites[found[k].site].stack = mixes[k].stack;
}

/* Whether a finding's site makes anew, again and again, what it holds. */
static bool is_made_anew(struct play *p, const struct dump_moment *m, const struct leaks_finding *f)
{
	uint64_t steps = leaks_steps(p->leaks), bytes = 0, newest = 0;
	size_t from = p->steps.at[steps - (steps - f->since_step) / NEWEST];
	for (size_t i = 0; i < m->block_count; i++) {
		const struct dump_block *b = &m->blocks[i];
		uint32_t at;
		if (b->state != DUMP_HELD || site_at(p, b->stack, bytes_of(b)) != site_found(p, f))
			continue;
		bytes += b->size;
		newest += map_get(&p->live, b->address, &at) && p->first + at >= from ? b->size : 0;
	}
	return newest > 0 && newest >= bytes - bytes / OLD;
}

/* Where nothing is trained, what a model has made may be what it remembers of sequences: more than one tensor, or it is
 * its newest output, and sequences get longer. */
static bool may_be_cache(const struct play *p, const struct site_sum *site, const struct evidence *e)
{
	bool trains = evidence_or_zero(e->categories[CATEGORY_GRADIENTS]) ||
	              evidence_or_zero(e->categories[CATEGORY_OPTIMIZER]) || p->steps.marked;
	return dump_category(p->d, site->stack) == CATEGORY_ACTIVATIONS && !trains && site->few > 1;
}

/* It is, if it lasts from step to step, and is copied into something larger in each. */
static bool is_cache(const struct play *p, const struct leaks_finding *f, const struct site_sum *site,
                     const struct evidence *e)
{
	double steps = (double)(leaks_steps(p->leaks) - f->since_step);
	return may_be_cache(p, site, e) && !f->suspect && f->allocations_per_step * steps < 1;
}

/* The frame that names a site; NULL: it has none. */
static const struct dump_frame *frame_of(const struct play *p, const struct site_sum *site)
{
	size_t number = (size_t)(site - p->sites);
	return number > 0 && number <= p->d->frame_count ? &p->d->frames[number - 1] : NULL;
}

static void tell(struct play *p, const struct leaks_finding *f, const char *loop, struct evidence *e)
{
	const struct site_sum *site = site_found(p, f);
	char text[DUMP_SITE_BYTES];
	bool named = dump_site_text(p->d, site->stack, text);
	if (!named && site->size) {
		char size[SIZE_TEXT_BYTES];
		snprintf(text, sizeof text, "no call stack, blocks of %s", size_text(site->size, size));
		named = true;
	}
	struct evidence_growth g = { .site = named ? evidence_keep(e, text) : NULL,
		                     .loop = loop,
		                     .category = dump_category(p->d, site->stack),
		                     .per_step = f->bytes_per_step,
		                     .per_step_low = f->bytes_per_step_low,
		                     .per_step_high = f->bytes_per_step_high,
		                     .live = f->live,
		                     .steps = leaks_steps(p->leaks) - f->since_step };
	if (g.site && is_cache(p, f, site, e)) {
		g.category = CATEGORY_KV_CACHE;
		evidence_is_cache(e, g.site);
	}
	bool anew = leaks_is_filled_anew(&site->fills, site->now) ||
	            leaks_is_filled_anew(&site->count_fills, MORE_PARTS * site->count);
	bool copies = g.category == CATEGORY_WEIGHTS && evidence_are_copies(e, g.site);
	bool may_leak = f->suspect && (copies || evidence_may_leak(g.category)) && !may_be_of_weights(p, site);
	g.leak = may_leak && !anew && !p->inner;
	g.goes_on = site->put_together;
	g.overfilled = may_leak && (p->inner || (anew && site->now > site->fills.from));
	evidence_add_growth(e, &g);
}

/* Suspects first. Errors: HOST_MEMORY. */
static trz_status tell_all(struct play *p, const struct dump_moment *m, const struct leaks_finding *found, size_t count,
                           struct evidence *e)
{
	struct dump_loop loop;
	trz_status status = dump_loop(p->d, &p->steps, &loop);
	for (int leak = 1; leak >= 0; leak--)
		for (size_t i = 0; i < count && status == TRZ_OK; i++) {
			const struct dump_frame *frame = frame_of(p, site_found(p, &found[i]));
			const char *line = NULL;
			if (found[i].suspect != leak)
				continue;
			if (frame)
				status = dump_loop_line(p->d, &loop, m, frame, e, &line);
			tell(p, &found[i], line, e);
		}
	dump_loop_free(&loop);
	return status;
}

static void tell_forecast(struct play *p, struct evidence *e)
{
	struct leaks_forecast f;
	if (e->failed || !leaks_forecast(p->leaks, &f))
		return;
	e->forecast = (struct evidence_forecast){ .steps = f.steps,
		                                      .steps_low = f.steps_low,
		                                      .steps_high = f.steps_high,
		                                      .seconds = f.ns / 1e9 };
}

/* What the allocator could hold at most, as far as is known. */
static uint64_t room(const struct evidence *e)
{
	if (!evidence_known(e->reserved) || !evidence_known(e->device_free))
		return evidence_known(e->limit) ? e->limit : 0;
	return min_u64(e->limit, e->reserved + e->device_free);
}

/* A loop over a model's layers does not count: it begins in a model, or calls models without parts. */
static bool calls_models(const struct play *p)
{
	uint32_t begin = p->d->events[p->steps.at[0]].stack;
	return p->steps.count >= CALLS_LEAST && dump_site(p->d, begin)->modules == 0 && p->model_bytes >= p->bytes / 2 &&
	       p->model_bytes > 0;
}

/* Whether the loop has made a block that was live at the end. */
static bool is_of_loop(const struct play *p, const struct dump_block *b)
{
	uint32_t at;
	return map_get(&p->live, b->address, &at) && p->first + at >= p->steps.at[0];
}

/* Whether it may be a weight that was there before the loop: where models allocate in the loop, only a block that is
 * known to be a weight, or has no stack. */
static bool may_be_part(const struct play *p, const struct dump_block *b)
{
	if (b->state != DUMP_HELD || b->size < PART_LEAST || is_of_loop(p, b))
		return false;
	bool models = p->model_bytes >= p->bytes / 4 && p->model_bytes > 0;
	return !models || b->stack == 0 || dump_category(p->d, b->stack) == CATEGORY_WEIGHTS;
}

/* A key for a block's site and size. */
static uint64_t kind_of(struct play *p, const struct dump_block *b)
{
	return prng_mix((uint64_t)(site_at(p, b->stack, bytes_of(b)) - p->sites) ^ prng_mix(b->size));
}

/* Counts by site and size the blocks that the loop keeps. Errors: HOST_MEMORY. */
static trz_status count_kinds(struct play *p, const struct dump_moment *m, struct trace_map *kinds)
{
	trz_status status = TRZ_OK;
	uint32_t count;
	for (size_t i = 0; i < m->block_count && status == TRZ_OK; i++)
		if (m->blocks[i].state == DUMP_HELD && is_of_loop(p, &m->blocks[i]))
			status = map_count(kinds, kind_of(p, &m->blocks[i]), &count);
	return status;
}

/* Counts by size the blocks that the loop keeps, of one site; NULL: of all. Errors: HOST_MEMORY. */
static trz_status count_kept(struct play *p, const struct dump_moment *m, const struct site_sum *site,
                             struct trace_map *kept)
{
	trz_status status = TRZ_OK;
	uint32_t count;
	for (size_t i = 0; i < m->block_count && status == TRZ_OK; i++) {
		const struct dump_block *b = &m->blocks[i];
		if (b->state == DUMP_HELD && is_of_loop(p, b) && (!site || site_at(p, b->stack, bytes_of(b)) == site))
			status = map_count(kept, b->size, &count);
	}
	return status;
}

/* Whether the loop keeps blocks again and again that were counted by this key. */
static bool is_kept(const struct trace_map *counts, uint64_t key)
{
	uint32_t count;
	return map_get(counts, key, &count) && count > DUMP_STEPS_LEAST;
}

/* The most possible weights of one site and size. Blocks that the loop makes and keeps again and again are not counted,
 * nor is a block without a stack that is as large: it is rather from a step before the history, which may have only the
 * newest events. Errors: HOST_MEMORY. */
static trz_status parts_alike(struct play *p, const struct dump_moment *m, uint64_t *most)
{
	struct trace_map counts = { 0 }, kept = { 0 }, kinds = { 0 };
	trz_status status = count_kept(p, m, NULL, &kept);
	if (status == TRZ_OK)
		status = count_kinds(p, m, &kinds);
	*most = 0;
	for (size_t i = 0; i < m->block_count && status == TRZ_OK; i++) {
		const struct dump_block *b = &m->blocks[i];
		uint32_t count = 0;
		if (!may_be_part(p, b) || (b->stack == 0 ? is_kept(&kept, b->size) : is_kept(&kinds, kind_of(p, b))))
			continue;
		status = map_count(&counts, kind_of(p, b), &count);
		*most = max_u64(*most, count);
	}
	map_free(&kinds);
	map_free(&counts);
	map_free(&kept);
	return status;
}

static bool may_leak(const struct play *p, const struct leaks_finding *f)
{
	return f->site != LEAKS_REST && evidence_may_leak(dump_category(p->d, p->sites[f->site].stack));
}

static trz_status look_for_one_pass(struct play *p, const struct dump_moment *m, const struct leaks_finding *found,
                                    size_t count, bool *one)
{
	double allocations = 0;
	uint64_t alike = 0, held = 0;
	*one = false;
	if (p->steps.marked || !count)
		return TRZ_OK;
	for (size_t i = 0; i < count; i++) {
		if (found[i].allocations_per_step > allocations)
			allocations = found[i].allocations_per_step;
		if (p->has_stacks && may_leak(p, &found[i]))
			held = max_u64(held, p->sites[found[i].site].count);
	}
	trz_status status = parts_alike(p, m, &alike);
	*one = status == TRZ_OK && held <= DUMP_OF_A_PART * alike &&
	       leaks_may_be_one_pass(leaks_steps(p->leaks), allocations, alike);
	return status;
}

/* The range of sizes that a site keeps of the loop. false: it keeps too few blocks. */
static bool sizes_kept(const struct trace_map *kept, uint64_t *least, uint64_t *most)
{
	uint64_t count = 0;
	*least = UINT64_MAX;
	*most = 0;
	for (size_t i = 0; i < kept->capacity; i++) {
		if (!kept->slots[i].used)
			continue;
		count += kept->slots[i].value;
		*least = min_u64(*least, kept->slots[i].key);
		*most = max_u64(*most, kept->slots[i].key);
	}
	return count >= DUMP_STEPS_LEAST;
}

/* What a site may have kept before the loop: its own blocks of sizes between those that it keeps, and those without a
 * stack of the sizes that it keeps. Errors: HOST_MEMORY. */
static trz_status add_kept_before(struct play *p, const struct dump_moment *m, const struct site_sum *site,
                                  uint64_t *bytes)
{
	struct trace_map kept = { 0 };
	trz_status status = count_kept(p, m, site, &kept);
	uint64_t least, most;
	bool keeps = status == TRZ_OK && sizes_kept(&kept, &least, &most);
	for (size_t i = 0; i < m->block_count && keeps; i++) {
		const struct dump_block *b = &m->blocks[i];
		bool own = b->stack && site_at(p, b->stack, bytes_of(b)) == site;
		bool fits = own ? b->size >= least && b->size <= most : b->stack == 0 && is_kept(&kept, b->size);
		if (b->state == DUMP_HELD && !is_of_loop(p, b) && fits)
			*bytes += b->size;
	}
	map_free(&kept);
	return status;
}

/* Whether a growth that is no suspect may be one. */
static bool may_be_suspect(const struct play *p, const struct leaks_finding *f)
{
	double steps = (double)(leaks_steps(p->leaks) - f->since_step);
	return f->site != LEAKS_REST && f->allocations_per_step * steps >= DUMP_STEPS_LEAST;
}

/* A history of only the newest events shows only the end of a long leak, little of what is live: so what the site kept
 * before counts, too. Errors: HOST_MEMORY. */
static trz_status suspect_by_what_was_before(struct play *p, const struct dump_moment *m, struct leaks_finding *found,
                                             size_t count)
{
	trz_status status = TRZ_OK;
	double fastest = 0;
	for (size_t i = 0; i < count; i++)
		if (may_be_suspect(p, &found[i]) && found[i].bytes_per_step > fastest)
			fastest = found[i].bytes_per_step;
	for (size_t i = 0; i < count && status == TRZ_OK; i++) {
		uint64_t bytes = found[i].bytes;
		if (!may_be_suspect(p, &found[i]) || SLOWER * found[i].bytes_per_step < fastest)
			continue;
		status = add_kept_before(p, m, &p->sites[found[i].site], &bytes);
		found[i].suspect = bytes >= p->now / MATTERS;
	}
	return status;
}

static bool loads_data(const struct play *p)
{
	uint64_t kept = p->at_last - min_u64(p->at_last, p->at_first);
	return p->work_bytes < p->bytes / WORK_SHARE && kept * KEPT_SHARE >= p->rises;
}

/* Without stacks, layers being made and layers being run look alike: then both halves of the steps must churn. */
static bool churns(const struct play *p)
{
	bool halves = is_churn(p->frees_before, p->allocations_before) &&
	              is_churn(p->frees - p->frees_before, p->allocations - p->allocations_before);
	return is_churn(p->frees, p->allocations) && (halves || p->has_stacks);
}

static bool has_steps(const struct play *p)
{
	return p->steps.lasts && (p->steps.marked || (churns(p) && !loads_data(p)) || calls_models(p));
}

/* The caches of ever more sequences are more and more allocations, but each is copied again and again, so that none is
 * kept. Returns whether suspects remain. */
static bool find_kept(struct play *p, const struct dump_moment *m, const struct evidence *e,
                      struct leaks_finding *found, size_t count)
{
	bool suspects = false;
	for (size_t i = 0; i < count; i++) {
		if (may_be_cache(p, site_found(p, &found[i]), e) && is_made_anew(p, m, &found[i])) {
			found[i].allocations_per_step = 0;
			found[i].suspect = false;
		}
		suspects |= found[i].suspect;
	}
	return suspects;
}

/* What weights need is no suspect: they may be unfrozen one after the other. Errors: HOST_MEMORY. */
static trz_status except_needed(const struct play *p, const struct dump_moment *m, struct leaks_finding *found,
                                size_t count)
{
	const size_t *newest = &p->steps.at[leaks_steps(p->leaks) - 1];
	trz_status status = TRZ_OK;
	for (size_t i = 0; i < count && status == TRZ_OK; i++) {
		bool needed = false;
		if (found[i].suspect)
			status = dump_is_needed(p->d, m, site_found(p, &found[i])->stack, newest[0], newest[1], &needed);
		found[i].suspect &= !needed;
	}
	return status;
}

/* A live block, by the event that made it. */
struct kept {
	size_t at;
	uint64_t size;
};

static int oldest_first(const void *a, const void *b)
{
	const struct kept *x = a, *y = b;
	return (x->at > y->at) - (x->at < y->at);
}

static bool is_suspect(const struct play *p, const struct leaks_finding *found, size_t count,
                       const struct site_sum *site)
{
	for (size_t i = 0; i < count; i++)
		if (found[i].suspect && site_found(p, &found[i]) == site)
			return true;
	return false;
}

/* The event from which on all but 1 / OLD of what is live of suspects was made; p->end: none is. What a step before has
 * left, such as its gradients, says nothing of the loop. Errors: HOST_MEMORY. */
static trz_status find_begin(struct play *p, const struct dump_moment *m, const struct leaks_finding *found,
                             size_t count, size_t *begin)
{
	struct kept *kept = malloc((m->block_count + 1) * sizeof *kept);
	uint64_t bytes = 0, old = 0;
	size_t n = 0, i = 0;
	if (!kept)
		return TRZ_ERROR_HOST_MEMORY;
	for (size_t k = 0; k < m->block_count; k++) {
		const struct dump_block *b = &m->blocks[k];
		uint32_t at;
		if (b->state != DUMP_HELD || !is_of_loop(p, b) || !map_get(&p->live, b->address, &at) ||
		    !is_suspect(p, found, count, site_at(p, b->stack, bytes_of(b))))
			continue;
		kept[n++] = (struct kept){ p->first + at, b->size };
		bytes += b->size;
	}
	qsort(kept, n, sizeof *kept, oldest_first);
	while (i < n && old + kept[i].size <= bytes / OLD)
		old += kept[i++].size;
	*begin = i < n ? kept[i].at : p->end;
	free(kept);
	return TRZ_OK;
}

/* What is live of the events from `first` on: what backward passes have made, which have no stack where Python's lines
 * alone are recorded, and the rest. */
static void sum_kept(const struct play *p, const struct dump_moment *m, size_t first, uint64_t *backward,
                     uint64_t *other)
{
	for (size_t i = 0; i < m->block_count; i++) {
		const struct dump_block *b = &m->blocks[i];
		uint32_t at;
		if (b->state != DUMP_HELD || !map_get(&p->live, b->address, &at) || p->first + at < first)
			continue;
		bool passes = p->d->stacks[b->stack].count == 0 || dump_category(p->d, b->stack) == CATEGORY_GRADIENTS;
		*(passes ? backward : other) += b->size;
	}
}

/* Whether the loop is one within a step. One that differentiates through its own gradients keeps both these and what
 * they come from. Errors: HOST_MEMORY. */
static trz_status look_for_inner(struct play *p, const struct dump_moment *m, const struct leaks_finding *found,
                                 size_t count)
{
	uint64_t backward = 0, other = 0;
	size_t begin;
	if (p->steps.marked || !p->has_stacks)
		return TRZ_OK;
	trz_status status = find_begin(p, m, found, count, &begin);
	if (status != TRZ_OK || begin == p->end)
		return status;
	struct dump_inner inner = dump_inner(p->d, begin, p->end);
	sum_kept(p, m, begin, &backward, &other);
	bool both = min_u64(backward, other) >= (backward + other) / KEPT_BOTH && backward > 0;
	p->inner = inner.rounds || (inner.unrolled && both);
	return TRZ_OK;
}

static trz_status find(struct play *p, const struct dump_moment *m, struct evidence *e)
{
	struct leaks_finding found[EVIDENCE_GROWTH_MAX];
	trz_status status = begin(p, m);
	if (status == TRZ_OK)
		status = play(p);
	if (status != TRZ_OK || !has_steps(p))
		return status;
	leaks_failed(p->leaks, e->failed);
	leaks_room(p->leaks, room(e));
	size_t count = leaks_findings(p->leaks, found, EVIDENCE_GROWTH_MAX);
	settle_stacks(p, m, found, count);
	bool one_pass;
	status = look_for_one_pass(p, m, found, count, &one_pass);
	if (status != TRZ_OK || one_pass)
		return status;
	bool suspects = find_kept(p, m, e, found, count);
	if (e->failed && !suspects)
		status = suspect_by_what_was_before(p, m, found, count);
	if (status == TRZ_OK)
		status = except_needed(p, m, found, count);
	if (status == TRZ_OK)
		status = look_for_inner(p, m, found, count);
	if (status == TRZ_OK)
		status = tell_all(p, m, found, count, e);
	if (status == TRZ_OK)
		tell_forecast(p, e);
	return status;
}

trz_status dump_growth(const struct dump *d, int device, size_t event, const struct dump_moment *m,
                       struct evidence *e)
{
	if (device < 0 || (size_t)device >= d->trace_count)
		return TRZ_OK;
	const struct dump_trace *t = &d->traces[device];
	struct play p = { .d = d, .first = t->first, .end = min_u64(event, t->first + t->count) };
	if (event < t->first)
		return TRZ_OK;
	trz_status status = dump_steps(d, device, p.first, p.end, &p.steps);
	if (status != TRZ_OK || p.steps.count == 0)
		return status;
	p.has_stacks = dump_history_has_stacks(d, p.first, p.end);
	void *memory = malloc(leaks_bytes());
	p.sites = calloc(site_count(&p), sizeof *p.sites);
	status = TRZ_ERROR_HOST_MEMORY;
	if (memory && p.sites) {
		const struct dump_event *first_step = &d->events[p.steps.at[0]];
		p.leaks = leaks_start(memory);
		p.begins = site_at(&p, first_step->stack, first_step->size);
		bool told = event < t->first + t->count && d->events[event].action == DUMP_OOM;
		if (told && d->stacks[d->events[event].stack].count) {
			p.failing = site_at(&p, d->events[event].stack, 0);
			p.asked = d->events[event].size;
		}
		status = find(&p, m, e);
	}
	free(memory);
	free(p.sites);
	map_free(&p.live);
	dump_steps_free(&p.steps);
	return status == TRZ_OK ? TRZ_OK : trz_fail(status, "no memory to look for growth in %zu events", p.end - p.first);
}
