/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums by site, and the least of each that a step has.
 */
#include "dump_play.h"

#include <stdlib.h>

#include "bits.h"
#include "error.h"
#include "prng.h"

/* Allocations without a stack, and workspaces, are told apart by size, in so many classes. */
enum { SIZES = 4096 };

/* An earlier request of the failing line is compared with all sites only if it is between 1 / PUT_PART of the failed
 * request and as much less than it; and at most PUTS_MAX are, since each costs a look at all sites. */
enum { PUT_PART = 16, PUTS_MAX = 64 };

/* What is gone after fewer marks was a step's own. Fills count over all of the history: if the last of several
 * evaluations is the longest, only its steps are found. */
enum { FILL_MARKS = 3 };

/* ---- sites ------------------------------------------------------------------------------------------ */

static size_t site_count(const struct dump_play *p)
{
	return 1 + p->d->frame_count + SIZES;
}

/* `size`: as requested. A workspace is not what the line holds that was the first to need it. */
static struct play_site *site_at(const struct dump_play *p, uint32_t stack, uint64_t size)
{
	const struct dump_site *site = dump_site(p->d, stack);
	bool line = site->frame != UINT32_MAX && site->category != CATEGORY_OTHER;
	return &p->sites[1 + (line ? site->frame : p->d->frame_count + prng_mix(size) % SIZES)];
}

/* As requested. */
static uint64_t bytes_of(const struct dump_block *b)
{
	return b->requested ? b->requested : b->size;
}

struct play_site *play_site_of(const struct dump_play *p, const struct dump_block *b)
{
	return site_at(p, b->stack, bytes_of(b));
}

/* For an allocation: only these set a site's `stack` and `size`, not look-ups. */
static struct play_site *note_at(struct dump_play *p, uint32_t stack, uint64_t size)
{
	struct play_site *site = site_at(p, stack, size);
	site->stack = stack;
	site->size = size;
	return site;
}

static void hold(struct dump_play *p, struct play_site *site, uint64_t bytes)
{
	site->now += bytes;
	site->most = max_u64(site->most, site->now);
	site->count++;
	site->most_count = max_u64(site->most_count, site->count);
	p->now += bytes;
	p->high = max_u64(p->high, p->now);
}

static void note_emptied(const struct dump_play *p, struct play_site *site, uint64_t most, uint64_t most_count)
{
	if (p->marks - site->begun >= FILL_MARKS) {
		leaks_note_emptied(&site->fills, most);
		leaks_note_emptied(&site->count_fills, most_count);
	}
	site->begun = p->marks;
	site->most = site->now;
	site->most_count = site->count;
	site->put_together = false;
	site->old = 0;
}

/* What lives as long as the program, such as a workspace, may be most of what a line holds at first: what it holds
 * later is looked at anew. `made`: the event that made it; `event`: the present one. */
static void note_old(const struct dump_play *p, struct play_site *site, uint64_t bytes, size_t made, size_t event)
{
	if (site->old == 0 || site->now >= 2 * site->most_old) {
		site->border = event;
		site->old = site->most_old = site->now;
		site->old_count = site->most_old_count = site->count;
	}
	if (site->old >= site->most_old / 2)
		site->whole = p->marks;
	if (made >= site->border)
		return;
	site->old -= min_u64(site->old, bytes);
	site->old_count -= site->old_count > 0;
}

/* `made`, `event`: as above. */
static void let_go(struct dump_play *p, struct play_site *site, uint64_t bytes, size_t made, size_t event)
{
	note_old(p, site, bytes, made, event);
	site->now -= min_u64(site->now, bytes);
	site->count -= site->count > 0;
	if (leaks_is_emptied(site->now, site->most))
		note_emptied(p, site, site->most, site->most_count);
	else if (leaks_is_emptied(site->old, site->most_old) && p->marks - site->whole <= FILL_MARKS)
		note_emptied(p, site, site->most_old, site->most_old_count);
	else if (leaks_is_emptied(site->old, site->most_old))
		site->old = 0;  /* one by one, as a queue is, which may grow for ever */
	site->low = min_u64(site->low, site->now);
	site->few = min_u64(site->few, site->count);
	p->now -= min_u64(p->now, bytes);
	p->low = min_u64(p->low, p->now);
}

/* ---- events ----------------------------------------------------------------------------------------- */

static bool is_free(const struct dump_play *p, const struct dump_event *e)
{
	return e->action == (p->requests_told ? DUMP_FREE_REQUESTED : DUMP_FREE_COMPLETED);
}

bool play_event_of(const struct dump_play *p, uint64_t address, size_t *event)
{
	uint32_t at;
	bool known = map_get(&p->live, address, &at);
	*event = known ? p->first + at : p->end;
	return known;
}

/* What was live before the history began: all that is live at its end but was not allocated in it, and what was freed
 * in it but not allocated in it. */
static trz_status begin(struct dump_play *p, const struct dump_moment *m)
{
	size_t made;
	for (size_t i = p->first; i < p->end; i++)
		p->requests_told |= p->d->events[i].action == DUMP_FREE_REQUESTED;
	for (size_t i = p->first; i < p->end; i++) {
		const struct dump_event *e = &p->d->events[i];
		if (e->action == DUMP_ALLOC && map_set(&p->live, e->address, (uint32_t)(i - p->first)) != TRZ_OK)
			return TRZ_ERROR_HOST_MEMORY;
		if (!is_free(p, e))
			continue;
		if (!play_event_of(p, e->address, &made))
			hold(p, &p->sites[0], e->size);
		map_remove(&p->live, e->address);
	}
	for (size_t i = 0; i < m->block_count; i++) {
		const struct dump_block *b = &m->blocks[i];
		if (b->state == DUMP_HELD && !play_event_of(p, b->address, &made))
			hold(p, note_at(p, b->stack, bytes_of(b)), bytes_of(b));
	}
	map_free(&p->live);
	p->live = (struct trace_map){ 0 };
	return TRZ_OK;
}

static void count_in_step(struct dump_play *p, const struct dump_event *e)
{
	const struct dump_site *site = dump_site(p->d, e->stack);
	bool data = site->category == CATEGORY_UNKNOWN || site->category == CATEGORY_WEIGHTS;
	p->allocations++;
	p->bytes += e->size;
	p->work_bytes += site->of_model || !data || site->frame == UINT32_MAX ? e->size : 0;
	p->model_bytes += site->of_model ? e->size : 0;
}

/* The failing line requested `size` before, when a list held less: it put the list together, and the list went on. */
static void note_put_together(struct dump_play *p, uint64_t size)
{
	if (size < p->asked / PUT_PART || size > p->asked - p->asked / PUT_PART || p->puts++ >= PUTS_MAX)
		return;
	for (size_t i = 1; i < site_count(p); i++)
		p->sites[i].put_together |= evidence_is_together(p->sites[i].now, size);
}

static trz_status play_event(struct dump_play *p, size_t i, size_t step_begin)
{
	const struct dump_event *e = &p->d->events[i];
	size_t made;
	if (e->action == DUMP_ALLOC) {
		struct play_site *site = note_at(p, e->stack, e->size);
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
	bool known = play_event_of(p, e->address, &made);
	if (known)
		let_go(p, site_at(p, p->d->events[made].stack, p->d->events[made].size), p->d->events[made].size, made,
		       i);
	else
		let_go(p, &p->sites[0], e->size, i, i);
	p->frees += known && made >= step_begin;
	p->unmade += known && step_begin == p->end;
	map_remove(&p->live, e->address);
	return TRZ_OK;
}

static void end_step(struct dump_play *p, uint64_t time_us)
{
	for (size_t i = 1; i < site_count(p); i++) {
		struct play_site *site = &p->sites[i];
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

static void begin_steps(struct dump_play *p)
{
	for (size_t i = 0; i < site_count(p); i++) {
		p->sites[i].low = p->sites[i].now;
		p->sites[i].few = p->sites[i].before = p->sites[i].count;
	}
	p->low = p->high = p->at_first = p->at_last = p->now;
}

static trz_status play(struct dump_play *p)
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

/* Where the program has failed, and steps begin. */
static void find_places(struct dump_play *p, const struct dump_trace *t, size_t event)
{
	const struct dump_event *step = &p->d->events[p->steps.at[0]], *failure = &p->d->events[event];
	p->begins = site_at(p, step->stack, step->size);
	if (event >= t->first + t->count || failure->action != DUMP_OOM || !p->d->stacks[failure->stack].count)
		return;
	p->failing = site_at(p, failure->stack, 0);
	p->asked = failure->size;
}

trz_status dump_play(const struct dump *d, int device, size_t event, const struct dump_moment *m,
                     struct dump_play *p)
{
	const struct dump_trace *t = &d->traces[device];
	*p = (struct dump_play){ .d = d, .first = t->first, .end = min_u64(event, t->first + t->count) };
	trz_status status = dump_steps(d, device, p->first, p->end, &p->steps);
	if (status != TRZ_OK || p->steps.count == 0)
		return status;
	p->has_stacks = dump_history_has_stacks(d, p->first, p->end);
	p->leaks = malloc(leaks_bytes());
	p->sites = calloc(site_count(p), sizeof *p->sites);
	status = p->leaks && p->sites ? TRZ_OK : TRZ_ERROR_HOST_MEMORY;
	if (status == TRZ_OK) {
		leaks_start(p->leaks);
		find_places(p, t, event);
		status = begin(p, m);
	}
	if (status == TRZ_OK)
		status = play(p);
	if (status == TRZ_OK)
		return TRZ_OK;
	dump_play_free(p);
	return trz_fail(status, "no memory to look for growth in %zu events", t->count);
}

void dump_play_free(struct dump_play *p)
{
	free(p->leaks);
	free(p->sites);
	map_free(&p->live);
	dump_steps_free(&p->steps);
	*p = (struct dump_play){ 0 };
}
