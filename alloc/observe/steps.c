/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the sites at the ends of steps, and warnings. A callback runs with no lock held.
 */
#include "observe/steps.h"

#include <string.h>

#include "call_site.h"
#include "heap/ledger.h"
#include "observe/frames.h"
#include "leaks.h"
#include "observe/period.h"
#include "ticks.h"

enum {
	SITES_AT_ONCE = 64,
	LOOK_EVERY = 8,            /* steps between two looks for leaks */
	KEPT_LEAST = 4,            /* steps of a loop that keeps what it makes, before it is judged */
	LEVELS = 32,               /* of a stack that are looked at; the outer ones of a longer stack are not known */
	FILL_UNIT = 1 << 16,       /* bytes: fills are kept in multiples of it */
	STEPS_FINDINGS = 8,        /* sites that are found to grow, at most */
	LEAST_SHARE = 100          /* if less than this part of what could be reserved is, fragmentation is no concern */
};

/* A warning is given once the share is above `from`, and again after it was below `until`. */
static const struct threshold {
	trz_warning warning;
	double from, until;
} thresholds[] = {  /* the first is of use at any moment */
	{TRZ_WARNING_FULL, 0.90, 0.85},
	{TRZ_WARNING_FRAGMENTED, 0.20, 0.15},
	{TRZ_WARNING_VERY_FRAGMENTED, 0.30, 0.25},
};

_Static_assert(sizeof thresholds / sizeof *thresholds == STEPS_THRESHOLDS, "each has a flag");

/* ---- the ends of steps ------------------------------------------------------------------------------ */

static bool prepare(struct steps *s, struct meta *m)
{
	if (s->leaks)
		return true;
	void *memory = meta_alloc(m, leaks_bytes());
	s->leaks = memory ? leaks_start(memory) : NULL;
	return memory != NULL;
}

/* Calls `visit` for each site under the heap lock, which other threads get in between. */
static void visit_sites(trz_heap *h, void (*visit)(void *owner, uint32_t number, struct site *site), void *owner)
{
	uint32_t next = 1, count;
	do {
		heap_lock(h);
		count = h->sites.count;
		for (int i = 0; i < SITES_AT_ONCE && next <= count; i++, next++)
			visit(owner, next, sites_at(&h->sites, next));
		heap_unlock(h);
	} while (next <= count);
}

struct reading {
	struct leaks *leaks;
	uint64_t sum;
};

static void read_site(void *owner, uint32_t number, struct site *site)
{
	struct reading *r = owner;
	leaks_site(r->leaks, number, site->held.bytes);
	leaks_count(r->leaks, number, site->held.count / SITES_COUNT_UNIT);
	r->sum += site->held.bytes;
}

/* Tells the leaks what each site holds; returns the sum. */
static uint64_t read_sites(trz_heap *h, struct leaks *leaks)
{
	struct reading r = {.leaks = leaks};
	visit_sites(h, read_site, &r);
	return r.sum;
}

static struct leaks_fills fills_of(const struct site *s)
{
	return (struct leaks_fills){.from = (uint64_t)s->filled_from * FILL_UNIT, .count = s->fills};
}

/* Notes that a site has been filled and emptied, as a list is, if it held something since the newest step that was
 * told, and holds next to nothing now. */
static void note_fill(struct site *s)
{
	struct leaks_fills f = fills_of(s);
	if (!leaks_is_emptied(s->held.bytes, s->most))
		return;
	leaks_note_emptied(&f, s->most);
	s->filled_from = (uint32_t)min_u64(f.from / FILL_UNIT, UINT32_MAX);
	s->fills = (uint32_t)min_u64(f.count, UINT32_MAX);
}

static void end_fill(void *is_long, uint32_t number, struct site *site)
{
	(void)number;
	if (*(const bool *)is_long)
		note_fill(site);
	site->most = site->held.bytes;
}

/* The program has told a step. `is_long`: more than a step has passed since the one before; only then are fills noted,
 * since they are not a step's own but an evaluation's, for example. */
static void end_fills(trz_heap *h, bool is_long)
{
	visit_sites(h, end_fill, &is_long);
}

static uint64_t room(const trz_heap *h)
{
	return min_u64(heap_limit(h), counter_get(&h->attainable));
}

/* The most that the heap held in the step. Exact where that is a new peak; else what it holds at the end, plus how far
 * the newest step with a new peak rose above that. */
static uint64_t most_of_step(struct steps *s, uint64_t low, uint64_t peak)
{
	if (peak != s->last_peak)
		s->passing = peak - min_u64(peak, low);
	s->last_peak = peak;
	return low + s->passing;
}

static void read_step(trz_heap *h)
{
	struct steps *s = &h->steps;
	struct counters c;
	heap_read_counters(h, &c);
	uint64_t low = flow_all(&c.allocated_bytes), sites = read_sites(h, s->leaks), live = flow_all(&c.requested_bytes);
	s->most = most_of_step(s, low, counter_get(&c.allocated_bytes.peak[2]));
	leaks_rest(s->leaks, live > sites ? live - sites : 0);
	leaks_all(s->leaks, low, s->most);
	leaks_room(s->leaks, room(h));
	leaks_step(s->leaks, monotonic_ns());
}

/* ---- findings --------------------------------------------------------------------------------------- */

static trz_growth_info describe(trz_heap *h, const struct leaks_finding *f)
{
	trz_growth_info g = {.site = f->site == LEAKS_REST ? 0 : (unsigned)f->site,
	                     .tag = "",
	                     .suspect = f->suspect,
	                     .live = f->live,
	                     .grown = f->bytes,
	                     .since_step = f->since_step,
	                     .bytes_per_step = f->bytes_per_step,
	                     .bytes_per_step_low = f->bytes_per_step_low,
	                     .bytes_per_step_high = f->bytes_per_step_high,
	                     .confidence = f->confidence};
	if (!g.site)
		return g;
	heap_lock(h);  /* a new callback for sites forgets the stacks */
	const struct site *site = sites_at(&h->sites, g.site);
	g.stack = site->stack;
	g.tag = history_tag_text(&h->tags, site_tag(site));
	g.category = (trz_category)site_category(site);
	heap_unlock(h);
	return g;
}

static size_t growth(trz_heap *h, trz_growth_info *out, size_t capacity)
{
	struct leaks *leaks = h->steps.leaks;
	struct leaks_finding found[STEPS_FINDINGS];
	size_t count = leaks ? leaks_findings(leaks, found, min_u64(capacity, STEPS_FINDINGS)) : 0;
	for (size_t i = 0; i < count; i++)
		out[i] = describe(h, &found[i]);
	return count;
}

size_t steps_growth(trz_heap *h, bool failed, trz_growth_info *out, size_t capacity)
{
	struct steps *s = &h->steps;
	pthread_mutex_lock(&s->lock);
	if (s->leaks)
		leaks_failed(s->leaks, failed);
	size_t count = growth(h, out, capacity);
	if (s->leaks)
		leaks_failed(s->leaks, false);
	pthread_mutex_unlock(&s->lock);
	return count;
}

uint64_t steps_told(trz_heap *h)
{
	pthread_mutex_lock(&h->steps.lock);
	uint64_t steps = h->steps.leaks ? leaks_steps(h->steps.leaks) : 0;
	pthread_mutex_unlock(&h->steps.lock);
	return steps;
}

/* Leaves out what is no suspect. */
static double most_allocations(const struct leaks_finding *found, size_t count)
{
	double most = 0;
	for (size_t i = 0; i < count && found[i].suspect; i++)
		most = found[i].allocations_per_step > most ? found[i].allocations_per_step : most;
	return most;
}

uint64_t steps_recognised(trz_heap *h, double *allocations)
{
	struct steps *s = &h->steps;
	struct leaks_finding found[STEPS_FINDINGS];
	uint64_t steps = 0;
	pthread_mutex_lock(&s->lock);
	if (s->leaks && !s->told) {
		leaks_failed(s->leaks, true);
		*allocations = most_allocations(found, leaks_findings(s->leaks, found, STEPS_FINDINGS));
		leaks_failed(s->leaks, false);
		steps = leaks_steps(s->leaks);
	}
	pthread_mutex_unlock(&s->lock);
	return steps;
}

static bool forecast(const struct steps *s, trz_forecast_info *out)
{
	struct leaks_forecast f;
	if (!s->leaks || !leaks_forecast(s->leaks, &f))
		return false;
	*out = (trz_forecast_info){.steps = f.steps,
	                           .steps_low = f.steps_low,
	                           .steps_high = f.steps_high,
	                           .seconds = f.ns / 1e9,
	                           .seconds_low = f.ns_low / 1e9,
	                           .seconds_high = f.ns_high / 1e9};
	return true;
}

bool steps_forecast(trz_heap *h, trz_forecast_info *out)
{
	pthread_mutex_lock(&h->steps.lock);
	bool known = forecast(&h->steps, out);
	pthread_mutex_unlock(&h->steps.lock);
	return known;
}

/* ---- warnings --------------------------------------------------------------------------------------- */

enum { WARNINGS_MAX = STEPS_THRESHOLDS + STEPS_FINDINGS };

struct warnings {
	trz_warning_info list[WARNINGS_MAX];
	size_t count;
};

static void add_warning(const trz_heap *h, struct warnings *w, trz_warning warning, double share)
{
	w->list[w->count++] = (trz_warning_info){.warning = warning,
	                                         .share = share,
	                                         .allocated = heap_held(h, ALLOCATED_BYTES),
	                                         .reserved = heap_reserved(h),
	                                         .room = room(h)};
}

/* `most`: what callers have held at most lately. `busy`: all that is reserved might have been of use then. */
static void check_thresholds(trz_heap *h, uint64_t most, bool busy, struct warnings *w)
{
	uint64_t all = room(h), reserved = heap_reserved(h);
	double full = all ? (double)most / (double)all : 0;
	bool matters = reserved >= all / LEAST_SHARE;
	double spread = matters && reserved > most ? (double)(reserved - most) / (double)reserved : 0;
	for (size_t i = 0; i < (busy ? STEPS_THRESHOLDS : 1); i++) {
		const struct threshold *t = &thresholds[i];
		double share = t->warning == TRZ_WARNING_FULL ? full : spread;
		bool *given = &h->steps.given[i];
		if (share > t->from && !*given)
			add_warning(h, w, t->warning, share);
		*given = share > (*given ? t->until : t->from);
	}
}

/* Notes that a warning names a site; true: one has before. */
static bool is_known(struct steps *s, uint32_t site)
{
	uint64_t bit = (uint64_t)1 << site % 64;
	bool known = s->named[site / 64] & bit;
	s->named[site / 64] |= bit;
	return known;
}

static void forget_named(struct steps *s)
{
	memset(s->named, 0, sizeof s->named);
}

static void check_growth(trz_heap *h, struct warnings *w)
{
	trz_growth_info found[STEPS_FINDINGS];
	size_t count = growth(h, found, STEPS_FINDINGS);
	for (size_t i = 0; i < count && found[i].suspect; i++) {
		if (is_known(&h->steps, found[i].site))
			continue;
		add_warning(h, w, TRZ_WARNING_GROWTH, 0);
		w->list[w->count - 1].growth = found[i];
		if (!forecast(&h->steps, &w->list[w->count - 1].forecast))
			w->list[w->count - 1].forecast = (trz_forecast_info){0};
	}
}

/* With no lock held. */
static void warn(trz_warning_callback *callback, void *user, const struct warnings *w)
{
	int cancel = uncancelled_begin();
	for (size_t i = 0; callback && i < w->count; i++)
		callback(user, &w->list[i]);
	uncancelled_end(cancel);
}

void steps_set_callback(trz_heap *h, trz_warning_callback *callback, void *user)
{
	struct steps *s = &h->steps;
	pthread_mutex_lock(&s->lock);
	s->callback = callback;
	s->user = user;
	forget_named(s);
	for (size_t i = 0; i < STEPS_THRESHOLDS; i++)
		s->given[i] = false;
	atomic_store_explicit(&s->watched, callback != NULL, memory_order_relaxed);
	pthread_mutex_unlock(&s->lock);
}

void steps_warn_of_state(trz_heap *h, bool busy)
{
	struct steps *s = &h->steps;
	struct warnings w = {.count = 0};
	pthread_mutex_lock(&s->lock);
	trz_warning_callback *callback = s->callback;
	void *user = s->user;
	if (callback)
		check_thresholds(h, max_u64(heap_held(h, ALLOCATED_BYTES), s->most), busy, &w);
	pthread_mutex_unlock(&s->lock);
	warn(callback, user, &w);
}

/* With the steps' lock. When the program tells its first step, what was learned from recognised steps is dropped. */
static bool begin_step(trz_heap *h, bool told)
{
	struct steps *s = &h->steps;
	if (told && !s->told && s->leaks) {
		leaks_start(s->leaks);
		forget_named(s);
	}
	s->told |= told;
	return (told || !s->told) && prepare(s, &h->meta);
}

/* false: there is no host memory for it, or it was recognised, but the program tells its steps. */
static bool end_step(trz_heap *h, bool told)
{
	struct steps *s = &h->steps;
	struct warnings w = {.count = 0};
	pthread_mutex_lock(&s->lock);
	bool ready = begin_step(h, told);
	trz_warning_callback *callback = s->callback;
	void *user = s->user;
	if (ready)
		read_step(h);
	if (ready && callback) {
		check_thresholds(h, s->most, true, &w);
		if (leaks_steps(s->leaks) % LOOK_EVERY == 0)
			check_growth(h, &w);
	}
	pthread_mutex_unlock(&s->lock);
	warn(callback, user, &w);
	return ready;
}

trz_status steps_end(trz_heap *h)
{
	end_fills(h, period_told(h));
	heap_lock(h);
	history_note(&h->history, HISTORY_STEP, .frames = 0);
	heap_unlock(h);
	return end_step(h, true) ? TRZ_OK : meta_exhausted();
}

/* ---- loops that keep what they make ---- */

/* With the steps' lock. false: there is no host memory for it. */
static bool begin_kept(trz_heap *h)
{
	struct steps *s = &h->steps;
	void *memory = s->kept ? (void *)s->kept : meta_alloc(&h->meta, leaks_bytes());
	s->kept = memory ? leaks_start(memory) : NULL;
	return memory != NULL;
}

/* Whether a place begins steps, rather than layers, as far as its stack tells. *in_model: it lies in a model. */
static bool begins_steps(trz_heap *h, const struct period_proposal *proposal, bool *in_model)
{
	struct call_frame frames[LEVELS];
	size_t count = frames_python_calls(h, proposal->stack, frames, LEVELS);
	*in_model = call_modules(frames, count) > 0;
	return count > 0 && count < LEVELS && call_begins_step(frames, count);
}

bool steps_may_be_within_a_model(trz_heap *h)
{
	struct call_frame frames[LEVELS];
	struct period_proposal marked;
	if (!period_marked(h, &marked) || marked.usual > PERIOD_NEWEST ||
	    !call_modules(frames, frames_python_calls(h, marked.stack, frames, LEVELS)))
		return false;
	for (size_t i = 0; i < marked.inner; i++) {
		size_t count = frames_python_calls(h, marked.stacks[i], frames, LEVELS);
		if (!count || !call_modules(frames, count))
			return false;
	}
	return true;
}

/* Whether at least half of what the place's newest interval has allocated, freed or not, is a model's. */
static bool calls_models(trz_heap *h, const struct period_proposal *proposal)
{
	struct call_frame frames[LEVELS];
	uint64_t all = 0, of_models = 0;
	for (size_t i = 0; i < proposal->inner; i++) {
		bool own = call_is_of_model(frames, frames_python_calls(h, proposal->stacks[i], frames, LEVELS));
		all += proposal->sizes[i];
		of_models += own ? proposal->sizes[i] : 0;
	}
	return of_models > 0 && of_models >= all / 2;
}

enum fill { FILL_NONE, FILL_USUAL, FILL_MORE };

struct filled {
	struct leaks_fills fills;
	uint64_t stack, now;         /* of the site, and what it holds */
};

/* false: there is no such site. */
static bool read_filled(trz_heap *h, uint64_t number, struct filled *out)
{
	heap_lock(h);
	bool found = number <= h->sites.count;
	if (found) {
		const struct site *s = sites_at(&h->sites, (unsigned)number);
		*out = (struct filled){fills_of(s), s->stack, s->held.bytes};
	}
	heap_unlock(h);
	return found;
}

/* How much the list held when it was emptied before; 0: it was not. Before, the same loop may have been called from
 * other lines, so other sites are looked at, too. No lock is held. */
static uint64_t filled_from(trz_heap *h, const struct filled *own)
{
	struct call_frame frames[LEVELS], others[LEVELS];
	struct filled other;
	if (leaks_is_filled_anew(&own->fills, own->now))
		return own->fills.from;
	size_t levels = frames_python_calls(h, own->stack, frames, LEVELS);
	for (uint64_t i = 1; levels && read_filled(h, i, &other); i++)
		if (leaks_is_filled_anew(&other.fills, own->now) &&
		    call_is_same_loop(frames, levels, others, frames_python_calls(h, other.stack, others, LEVELS)))
			return other.fills.from;
	return 0;
}

/* Whether a site's growth is the filling of a list that is filled and emptied again and again, and with more than
 * before. */
static enum fill fill_of(trz_heap *h, uint64_t site)
{
	struct filled own;
	if (site == LEAKS_REST || !read_filled(h, site, &own))
		return FILL_NONE;
	uint64_t from = filled_from(h, &own);
	return !from ? FILL_NONE : own.now > from ? FILL_MORE : FILL_USUAL;
}

static void judge_proposal(trz_heap *h)
{
	struct steps *s = &h->steps;
	struct period_proposal proposal;
	bool in_model;
	if (!period_proposed(h, &proposal))
		return;
	if (!begins_steps(h, &proposal, &in_model)) {
		period_refuse(h, &proposal, in_model);
		return;
	}
	bool calls = calls_models(h, &proposal);
	pthread_mutex_lock(&s->lock);
	s->kept_calls_models = calls;
	if (begin_kept(h))
		period_accept(h, &proposal);
	pthread_mutex_unlock(&s->lock);
}

static void end_kept_step(trz_heap *h)
{
	struct steps *s = &h->steps;
	pthread_mutex_lock(&s->lock);
	if (s->kept) {
		uint64_t live = heap_held(h, REQUESTED_BYTES), all = heap_held(h, ALLOCATED_BYTES);
		uint64_t sites = read_sites(h, s->kept);
		leaks_rest(s->kept, live > sites ? live - sites : 0);
		leaks_all(s->kept, all, all);
		leaks_room(s->kept, room(h));
		leaks_step(s->kept, monotonic_ns());
	}
	pthread_mutex_unlock(&s->lock);
}

/* Converts a finding to the loop's own steps, `row` of which were noted as one. */
static void in_own_steps(struct leaks_finding *f, uint64_t row)
{
	f->since_step *= row;
	f->bytes_per_step /= (double)row;
	f->bytes_per_step_low /= (double)row;
	f->bytes_per_step_high /= (double)row;
	f->allocations_per_step /= (double)row;
}

/* With the steps' lock. Finds up to `capacity` suspects; returns how many. */
static size_t read_kept(trz_heap *h, struct kept_loop *loop, struct leaks_finding *found, size_t capacity)
{
	struct leaks *leaks = h->steps.kept;
	uint64_t row = period_keeps(h);
	size_t suspects = 0;
	loop->steps = leaks ? leaks_steps(leaks) * row : 0;
	loop->calls_models = h->steps.kept_calls_models;
	if (loop->steps < KEPT_LEAST * row || !row)
		return 0;
	leaks_failed(leaks, true);
	size_t count = leaks_findings(leaks, found, capacity);
	for (; suspects < count && found[suspects].suspect; suspects++)
		in_own_steps(&found[suspects], row);
	loop->allocations = most_allocations(found, suspects);
	return suspects;
}

/* fill_of asks for texts, so it is called once the steps' lock has been given back. */
struct kept_loop steps_kept(trz_heap *h, trz_growth_info *out, size_t capacity)
{
	struct steps *s = &h->steps;
	struct leaks_finding found[STEPS_FINDINGS];
	struct kept_loop loop = {.sites = 0};
	pthread_mutex_lock(&s->lock);
	size_t count = read_kept(h, &loop, found, min_u64(capacity, STEPS_FINDINGS));
	pthread_mutex_unlock(&s->lock);
	for (size_t i = 0; i < count; i++) {
		enum fill fill = fill_of(h, found[i].site);
		if (fill == FILL_USUAL)
			continue;
		out[loop.sites] = describe(h, &found[i]);
		out[loop.sites++].suspect = fill == FILL_NONE;
	}
	return loop;
}

/* ---- what is due ---- */

/* Recognised steps are not noted in the history: a reader of that sees more of the period than the heap has so far. */
void steps_end_recognised(trz_heap *h)
{
	uint64_t frames = heap_thread.frames, stack = heap_thread.stack;  /* callbacks may allocate */
	unsigned due = atomic_exchange_explicit(&h->period.due, 0, memory_order_relaxed);
	if (due & PERIOD_DUE_STEP)
		end_step(h, false);
	if (due & PERIOD_DUE_KEEPER)
		end_kept_step(h);
	if (due & PERIOD_DUE_PROPOSAL)
		judge_proposal(h);
	heap_thread.frames = frames;
	heap_thread.stack = stack;
}
