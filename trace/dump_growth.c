/* SPDX-License-Identifier: Apache-2.0
 *
 * Judges what a history that was played has found to grow.
 */
#include "dump_growth.h"

#include <stdio.h>
#include <stdlib.h>

#include "bits.h"
#include "dump_inner.h"
#include "dump_loop.h"
#include "dump_needed.h"
#include "error.h"
#include "prng.h"
#include "size_text.h"

/* Recognised steps count only if at least so many per cent of their allocations are freed within their step: a loop
 * that only fills memory has no steps. */
enum { CHURN_LEAST = 10 };

/* Nor has a loop that loads data: models do less than 1 / WORK_SHARE of its allocating, and it keeps at least
 * 1 / KEPT_SHARE of what its steps rise by. */
enum { KEPT_SHARE = 4, WORK_SHARE = 16 };

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

/* A list is filled anew, too, if it has so many times fewer parts than leaks_is_filled_anew() allows, whatever they
 * hold: with a larger batch each is larger. */
enum { MORE_PARTS = 4 };

/* What was played, and what of it grows. */
struct search {
	const struct dump *d;
	const struct dump_play *p;
	const struct dump_moment *m;
	struct evidence *e;
	struct leaks_finding found[EVIDENCE_GROWTH_MAX];
	size_t count;
	bool inner;                /* what was taken for steps are rounds within one */
};

/* ---- findings --------------------------------------------------------------------------------------- */

static bool is_churn(size_t frees, size_t allocations)
{
	return frees * 100 >= allocations * CHURN_LEAST;
}

/* What was there before the steps is weights if the program did nothing but allocate until then. */
static bool may_be_of_weights(const struct dump_play *p, const struct play_site *site)
{
	bool makes = p->made == 0 || !is_churn(p->unmade, p->made);
	return !p->has_stacks && makes && site->count <= (1 + DUMP_BESIDE_WEIGHT) * site->before;
}

static struct play_site *site_found(const struct search *s, const struct leaks_finding *f)
{
	return &s->p->sites[f->site == LEAKS_REST ? 0 : f->site];
}

static double steps_of(const struct search *s, const struct leaks_finding *f)
{
	return (double)(leaks_steps(s->p->leaks) - f->since_step);
}

/* What a site holds most of counts. */
static void settle_stacks(struct search *s)
{
	struct dump_mix mixes[EVIDENCE_GROWTH_MAX] = { 0 };
	for (size_t i = 0; i < s->m->block_count; i++) {
		const struct dump_block *b = &s->m->blocks[i];
		const struct play_site *site = b->state == DUMP_HELD ? play_site_of(s->p, b) : NULL;
		for (size_t k = 0; site && k < s->count; k++)
			if (site == site_found(s, &s->found[k]))
				dump_mix_add(s->d, &mixes[k], b->stack, b->size);
	}
	for (size_t k = 0; k < s->count; k++)
		if (mixes[k].stack)
			site_found(s, &s->found[k])->stack = mixes[k].stack;
}

/* Whether a finding's site makes anew, again and again, what it holds. */
static bool is_made_anew(const struct search *s, const struct leaks_finding *f)
{
	uint64_t steps = leaks_steps(s->p->leaks), bytes = 0, newest = 0;
	size_t at, from = s->p->steps.at[steps - (steps - f->since_step) / NEWEST];
	for (size_t i = 0; i < s->m->block_count; i++) {
		const struct dump_block *b = &s->m->blocks[i];
		if (b->state != DUMP_HELD || play_site_of(s->p, b) != site_found(s, f))
			continue;
		bytes += b->size;
		newest += play_event_of(s->p, b->address, &at) && at >= from ? b->size : 0;
	}
	return newest > 0 && newest >= bytes - bytes / OLD;
}

/* Where nothing is trained, what a model has made may be what it remembers of sequences: more than one tensor, or it is
 * its newest output, and sequences get longer. */
static bool may_be_cache(const struct search *s, const struct play_site *site)
{
	bool trains = evidence_or_zero(s->e->categories[CATEGORY_GRADIENTS]) ||
	              evidence_or_zero(s->e->categories[CATEGORY_OPTIMIZER]) || s->p->steps.marked;
	return dump_category(s->d, site->stack) == CATEGORY_ACTIVATIONS && !trains && site->few > 1;
}

/* It is, if it lasts from step to step, and is copied into something larger in each. */
static bool is_cache(const struct search *s, const struct leaks_finding *f)
{
	return may_be_cache(s, site_found(s, f)) && !f->suspect && f->allocations_per_step * steps_of(s, f) < 1;
}

static void tell(const struct search *s, const struct leaks_finding *f, const char *loop)
{
	const struct play_site *site = site_found(s, f);
	struct evidence *e = s->e;
	char text[DUMP_SITE_BYTES];
	bool named = dump_site_text(s->d, site->stack, text);
	if (!named && site->size) {
		char size[SIZE_TEXT_BYTES];
		snprintf(text, sizeof text, "no call stack, blocks of %s", size_text(site->size, size));
		named = true;
	}
	struct evidence_growth g = { .site = named ? evidence_keep(e, text) : NULL,
		                     .loop = loop,
		                     .category = dump_category(s->d, site->stack),
		                     .per_step = f->bytes_per_step,
		                     .per_step_low = f->bytes_per_step_low,
		                     .per_step_high = f->bytes_per_step_high,
		                     .live = f->live,
		                     .steps = leaks_steps(s->p->leaks) - f->since_step };
	if (g.site && is_cache(s, f)) {
		g.category = CATEGORY_KV_CACHE;
		evidence_is_cache(e, g.site);
	}
	bool anew = leaks_is_filled_anew(&site->fills, site->now) ||
	            leaks_is_filled_anew(&site->count_fills, MORE_PARTS * site->count);
	bool copies = g.category == CATEGORY_WEIGHTS && evidence_are_copies(e, g.site);
	bool emptied = leaks_is_emptied(site->now, f->live);  /* since the newest step */
	bool may_leak = f->suspect && !emptied && (copies || evidence_may_leak(g.category)) &&
	                !may_be_of_weights(s->p, site);
	g.leak = may_leak && !anew && !s->inner;
	g.goes_on = site->put_together;
	g.overfilled = may_leak && (s->inner || (anew && site->now > site->fills.from));
	evidence_add_growth(e, &g);
}

/* Whether a growth that is no suspect may be one. */
static bool may_be_suspect(const struct search *s, const struct leaks_finding *f)
{
	return f->site != LEAKS_REST && f->allocations_per_step * steps_of(s, f) >= DUMP_STEPS_LEAST;
}

/* The loop's line that each finding is allocated for. Errors: HOST_MEMORY. */
static trz_status find_lines(const struct search *s, const char *lines[EVIDENCE_GROWTH_MAX])
{
	struct dump_loop loop;
	trz_status status = dump_loop(s->d, &s->p->steps, &loop);
	for (size_t i = 0; i < s->count && status == TRZ_OK; i++) {
		uint32_t frame = dump_site(s->d, site_found(s, &s->found[i])->stack)->frame;
		lines[i] = NULL;
		if (frame != UINT32_MAX)
			status = dump_loop_line(s->d, &loop, s->m, &s->d->frames[frame], s->e, &lines[i]);
	}
	dump_loop_free(&loop);
	return status;
}

/* Growth that is no suspect may go with one that the same line of the loop makes. */
static bool goes_with(const struct search *s, const char *const *lines, size_t one, size_t suspect)
{
	const struct leaks_finding *f = &s->found[one], *of = &s->found[suspect];
	enum evidence_category category = dump_category(s->d, site_found(s, f)->stack);
	bool passes = category == CATEGORY_ACTIVATIONS || category == CATEGORY_UNKNOWN;
	return !f->suspect && of->suspect && evidence_same_site(lines[one], lines[suspect]) && passes &&
	       may_be_suspect(s, f) && SLOWER * f->bytes_per_step >= of->bytes_per_step && f->bytes >= s->p->now / MATTERS;
}

static void suspect_by_line(struct search *s, const char *const *lines)
{
	bool goes[EVIDENCE_GROWTH_MAX] = { false };
	for (size_t i = 0; i < s->count && s->e->failed; i++)
		for (size_t k = 0; k < s->count; k++)
			goes[i] |= goes_with(s, lines, i, k);
	for (size_t i = 0; i < s->count; i++)
		s->found[i].suspect |= goes[i];
}

/* Suspects first. Errors: HOST_MEMORY. */
static trz_status tell_all(struct search *s)
{
	const char *lines[EVIDENCE_GROWTH_MAX];
	trz_status status = find_lines(s, lines);
	if (status != TRZ_OK)
		return status;
	suspect_by_line(s, lines);
	for (int leak = 1; leak >= 0; leak--)
		for (size_t i = 0; i < s->count; i++)
			if (s->found[i].suspect == leak)
				tell(s, &s->found[i], lines[i]);
	return TRZ_OK;
}

static void tell_forecast(const struct search *s)
{
	struct leaks_forecast f;
	if (s->e->failed || !leaks_forecast(s->p->leaks, &f))
		return;
	s->e->forecast = (struct evidence_forecast){ .steps = f.steps,
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
static bool calls_models(const struct dump_play *p)
{
	unsigned modules = dump_site(p->d, p->d->events[p->steps.at[0]].stack)->modules;
	return p->steps.count >= CALLS_LEAST && modules == 0 && p->model_bytes >= p->bytes / 2 && p->model_bytes > 0;
}

/* Whether the loop has made a block that was live at the end. */
static bool is_of_loop(const struct dump_play *p, const struct dump_block *b)
{
	size_t at;
	return play_event_of(p, b->address, &at) && at >= p->steps.at[0];
}

/* Whether it may be a weight that was there before the loop: where models allocate in the loop, only a block that is
 * known to be a weight, or has no stack. */
static bool may_be_part(const struct dump_play *p, const struct dump_block *b)
{
	if (b->state != DUMP_HELD || b->size < PART_LEAST || is_of_loop(p, b))
		return false;
	bool models = p->model_bytes >= p->bytes / 4 && p->model_bytes > 0;
	return !models || b->stack == 0 || dump_category(p->d, b->stack) == CATEGORY_WEIGHTS;
}

/* A key for a block's site and size. */
static uint64_t kind_of(const struct dump_play *p, const struct dump_block *b)
{
	return prng_mix((uint64_t)(play_site_of(p, b) - p->sites) ^ prng_mix(b->size));
}

/* Counts by site and size the blocks that the loop keeps. Errors: HOST_MEMORY. */
static trz_status count_kinds(const struct search *s, struct trace_map *kinds)
{
	trz_status status = TRZ_OK;
	uint32_t count;
	for (size_t i = 0; i < s->m->block_count && status == TRZ_OK; i++)
		if (s->m->blocks[i].state == DUMP_HELD && is_of_loop(s->p, &s->m->blocks[i]))
			status = map_count(kinds, kind_of(s->p, &s->m->blocks[i]), &count);
	return status;
}

/* Counts by size the blocks that the loop keeps, of one site; NULL: of all. Errors: HOST_MEMORY. */
static trz_status count_kept(const struct search *s, const struct play_site *site, struct trace_map *kept)
{
	trz_status status = TRZ_OK;
	uint32_t count;
	for (size_t i = 0; i < s->m->block_count && status == TRZ_OK; i++) {
		const struct dump_block *b = &s->m->blocks[i];
		if (b->state == DUMP_HELD && is_of_loop(s->p, b) && (!site || play_site_of(s->p, b) == site))
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
static trz_status parts_alike(const struct search *s, uint64_t *most)
{
	struct trace_map counts = { 0 }, kept = { 0 }, kinds = { 0 };
	trz_status status = count_kept(s, NULL, &kept);
	if (status == TRZ_OK)
		status = count_kinds(s, &kinds);
	*most = 0;
	for (size_t i = 0; i < s->m->block_count && status == TRZ_OK; i++) {
		const struct dump_block *b = &s->m->blocks[i];
		uint32_t count = 0;
		if (!may_be_part(s->p, b) || (b->stack == 0 ? is_kept(&kept, b->size) : is_kept(&kinds, kind_of(s->p, b))))
			continue;
		status = map_count(&counts, kind_of(s->p, b), &count);
		*most = max_u64(*most, count);
	}
	map_free(&kinds);
	map_free(&counts);
	map_free(&kept);
	return status;
}

static bool may_leak(const struct search *s, const struct leaks_finding *f)
{
	return f->site != LEAKS_REST && evidence_may_leak(dump_category(s->d, site_found(s, f)->stack));
}

static trz_status look_for_one_pass(const struct search *s, bool *one)
{
	double allocations = 0;
	uint64_t alike = 0, held = 0;
	*one = false;
	if (s->p->steps.marked || !s->count)
		return TRZ_OK;
	for (size_t i = 0; i < s->count; i++) {
		const struct leaks_finding *f = &s->found[i];
		if (f->allocations_per_step > allocations)
			allocations = f->allocations_per_step;
		if (s->p->has_stacks && may_leak(s, f))
			held = max_u64(held, site_found(s, f)->count);
	}
	trz_status status = parts_alike(s, &alike);
	*one = status == TRZ_OK && held <= DUMP_OF_A_PART * alike &&
	       leaks_may_be_one_pass(leaks_steps(s->p->leaks), allocations, alike);
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
static trz_status add_kept_before(const struct search *s, const struct play_site *site, uint64_t *bytes)
{
	struct trace_map kept = { 0 };
	trz_status status = count_kept(s, site, &kept);
	uint64_t least, most;
	bool keeps = status == TRZ_OK && sizes_kept(&kept, &least, &most);
	for (size_t i = 0; i < s->m->block_count && keeps; i++) {
		const struct dump_block *b = &s->m->blocks[i];
		bool own = b->stack && play_site_of(s->p, b) == site;
		bool fits = own ? b->size >= least && b->size <= most : b->stack == 0 && is_kept(&kept, b->size);
		if (b->state == DUMP_HELD && !is_of_loop(s->p, b) && fits)
			*bytes += b->size;
	}
	map_free(&kept);
	return status;
}

/* A history of only the newest events shows only the end of a long leak, little of what is live: so what the site kept
 * before counts, too. Errors: HOST_MEMORY. */
static trz_status suspect_by_what_was_before(struct search *s)
{
	trz_status status = TRZ_OK;
	double fastest = 0;
	for (size_t i = 0; i < s->count; i++)
		if (may_be_suspect(s, &s->found[i]) && s->found[i].bytes_per_step > fastest)
			fastest = s->found[i].bytes_per_step;
	for (size_t i = 0; i < s->count && status == TRZ_OK; i++) {
		struct leaks_finding *f = &s->found[i];
		uint64_t bytes = f->bytes;
		if (!may_be_suspect(s, f) || SLOWER * f->bytes_per_step < fastest)
			continue;
		status = add_kept_before(s, site_found(s, f), &bytes);
		f->suspect = bytes >= s->p->now / MATTERS;
	}
	return status;
}

static bool loads_data(const struct dump_play *p)
{
	uint64_t kept = p->at_last - min_u64(p->at_last, p->at_first);
	return p->work_bytes < p->bytes / WORK_SHARE && kept * KEPT_SHARE >= p->rises;
}

/* Without stacks, layers being made and layers being run look alike: then both halves of the steps must churn. */
static bool churns(const struct dump_play *p)
{
	bool halves = is_churn(p->frees_before, p->allocations_before) &&
	              is_churn(p->frees - p->frees_before, p->allocations - p->allocations_before);
	return is_churn(p->frees, p->allocations) && (halves || p->has_stacks);
}

static bool has_steps(const struct dump_play *p)
{
	return p->steps.lasts && (p->steps.marked || (churns(p) && !loads_data(p)) || calls_models(p));
}

/* The caches of ever more sequences are more and more allocations, but each is copied again and again, so that none is
 * kept. Returns whether suspects remain. */
static bool find_kept(struct search *s)
{
	bool suspects = false;
	for (size_t i = 0; i < s->count; i++) {
		struct leaks_finding *f = &s->found[i];
		if (may_be_cache(s, site_found(s, f)) && is_made_anew(s, f)) {
			f->allocations_per_step = 0;
			f->suspect = false;
		}
		suspects |= f->suspect;
	}
	return suspects;
}

/* What weights need is no suspect: they may be unfrozen one after the other. Errors: HOST_MEMORY. */
static trz_status except_needed(struct search *s)
{
	const size_t *newest = &s->p->steps.at[leaks_steps(s->p->leaks) - 1];
	trz_status status = TRZ_OK;
	for (size_t i = 0; i < s->count && status == TRZ_OK; i++) {
		struct leaks_finding *f = &s->found[i];
		bool needed = false;
		if (f->suspect)
			status = dump_is_needed(s->d, s->m, site_found(s, f)->stack, newest[0], newest[1], &needed);
		f->suspect &= !needed;
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

static bool is_suspect(const struct search *s, const struct play_site *site)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->found[i].suspect && site_found(s, &s->found[i]) == site)
			return true;
	return false;
}

/* The event from which on all but 1 / OLD of what is live of suspects was made; the end: none is. What a step before
 * has left, such as its gradients, says nothing of the loop. Errors: HOST_MEMORY. */
static trz_status find_begin(const struct search *s, size_t *begin)
{
	struct kept *kept = malloc((s->m->block_count + 1) * sizeof *kept);
	uint64_t bytes = 0, old = 0;
	size_t n = 0, i = 0;
	if (!kept)
		return TRZ_ERROR_HOST_MEMORY;
	for (size_t k = 0; k < s->m->block_count; k++) {
		const struct dump_block *b = &s->m->blocks[k];
		size_t at;
		bool of_loop = b->state == DUMP_HELD && play_event_of(s->p, b->address, &at) && at >= s->p->steps.at[0];
		if (!of_loop || !is_suspect(s, play_site_of(s->p, b)))
			continue;
		kept[n++] = (struct kept){ at, b->size };
		bytes += b->size;
	}
	qsort(kept, n, sizeof *kept, oldest_first);
	while (i < n && old + kept[i].size <= bytes / OLD)
		old += kept[i++].size;
	*begin = i < n ? kept[i].at : s->p->end;
	free(kept);
	return TRZ_OK;
}

/* What is live of the events from `first` on: what backward passes have made, which have no stack where Python's lines
 * alone are recorded, and the rest. */
static void sum_kept(const struct search *s, size_t first, uint64_t *backward, uint64_t *other)
{
	for (size_t i = 0; i < s->m->block_count; i++) {
		const struct dump_block *b = &s->m->blocks[i];
		size_t at;
		if (b->state != DUMP_HELD || !play_event_of(s->p, b->address, &at) || at < first)
			continue;
		bool passes = b->stack == 0 || dump_category(s->d, b->stack) == CATEGORY_GRADIENTS;
		*(passes ? backward : other) += b->size;
	}
}

/* Whether the loop is one within a step. One that differentiates through its own gradients keeps both these and what
 * they come from. Errors: HOST_MEMORY. */
static trz_status look_for_inner(struct search *s)
{
	uint64_t backward = 0, other = 0;
	size_t begin;
	if (s->p->steps.marked || !s->p->has_stacks)
		return TRZ_OK;
	trz_status status = find_begin(s, &begin);
	if (status != TRZ_OK || begin == s->p->end)
		return status;
	struct dump_inner inner = dump_inner(s->d, begin, s->p->end);
	sum_kept(s, begin, &backward, &other);
	bool both = min_u64(backward, other) >= (backward + other) / KEPT_BOTH && backward > 0;
	s->inner = inner.rounds || (inner.unrolled && both);
	return TRZ_OK;
}

static trz_status judge(struct search *s)
{
	bool one_pass;
	leaks_failed(s->p->leaks, s->e->failed);
	leaks_room(s->p->leaks, room(s->e));
	s->count = leaks_findings(s->p->leaks, s->found, EVIDENCE_GROWTH_MAX);
	settle_stacks(s);
	trz_status status = look_for_one_pass(s, &one_pass);
	if (status != TRZ_OK || one_pass)
		return status;
	bool suspects = find_kept(s);
	if (s->e->failed && !suspects)
		status = suspect_by_what_was_before(s);
	if (status == TRZ_OK)
		status = except_needed(s);
	if (status == TRZ_OK)
		status = look_for_inner(s);
	if (status == TRZ_OK)
		status = tell_all(s);
	if (status == TRZ_OK)
		tell_forecast(s);
	return status;
}

trz_status dump_growth(const struct dump_play *p, const struct dump_moment *m, struct evidence *e)
{
	struct search s = { .d = p->d, .p = p, .m = m, .e = e };
	trz_status status = p->steps.count && has_steps(p) ? judge(&s) : TRZ_OK;
	if (status != TRZ_OK)
		return trz_fail(status, "no memory to look for growth in %zu events", p->end - p->first);
	return TRZ_OK;
}
