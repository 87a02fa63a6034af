/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps: marked, and recognised.
 */
#include "dump_steps.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "dump_sites.h"
#include "error.h"
#include "prng.h"
#include "trace_room.h"

enum {
	SIZES = 4096,              /* classes that sizes of allocations without a stack are told apart in */
	GAPS_MAX = 255,            /* looked at for one place */
	PART_REGULAR = 70,         /* per cent of the gaps must be near the median */
	PART_COVERED = 30,         /* per cent of the history must be covered by them */
	IN_STEP_MAX = 4,           /* allocations that a line may make in each step, if none makes just one */
	STACKLESS = 32,            /* times that the rarest size must recur, if there are no stacks */
	MODEL_DEPTH = 512,         /* no model has so many equal layers */
	CALLS_WANTED = 8,          /* rounds of a loop that only calls models, */
	CALLS_LEAST = 2,           /* or so many if no line has as many; */
	CALLS_MOST = 64,           /* of more, a trend shows what they leave */
	WORK_SHARE = 4             /* the part of the allocating that models do in such rounds, at least */
};

void dump_steps_free(struct dump_steps *s)
{
	free(s->at);
	*s = (struct dump_steps){ 0 };
}

/* ---- marked ----------------------------------------------------------------------------------------- */

/* `told`: look for the marks of trz_step, not of optimizers. */
static bool ends_step(const struct dump_mark *m, int device, bool told)
{
	bool known = told ? strcmp(m->name, DUMP_STEP_MARK) == 0 : strncmp(m->name, "Optimizer.step#", 15) == 0;
	return known && m->end && (m->device == device || m->device < 0);
}

/* Marks and events have times of the same clock. false: no memory. */
static bool find_marks(const struct dump *d, int device, size_t first, size_t end, bool told, struct dump_steps *s)
{
	size_t room = 0, event = first;
	for (size_t i = 0; i < d->mark_count; i++) {
		const struct dump_mark *m = &d->marks[i];
		if (!ends_step(m, device, told) || m->time_us < d->events[first].time_us)
			continue;
		while (event < end && d->events[event].time_us <= m->time_us)
			event++;
		if (event == end)
			break;
		if (s->count && s->at[s->count - 1] == event)
			continue;
		if (!make_room(&s->at, s->count, &room, sizeof *s->at))
			return false;
		s->at[s->count++] = event;
	}
	s->marked = true;
	return true;
}

/* ---- of optimizers ---------------------------------------------------------------------------------- */

/* Where the program goes on to allocate after an optimizer has done `what`, as stacks of what it allocated and freed
 * show. false: no memory. */
static bool find_optimizers(const struct dump *d, size_t first, size_t end, enum call_optimizer what,
                            struct dump_steps *s)
{
	size_t room = 0;
	bool inside = false;
	for (size_t i = first; i < end; i++) {
		const struct dump_event *e = &d->events[i];
		if (e->action != DUMP_ALLOC && e->action != DUMP_FREE_REQUESTED)
			continue;
		enum call_optimizer does = dump_site(d, e->stack)->optimizer;
		if (inside && e->action == DUMP_ALLOC && does == CALL_NO_OPTIMIZER) {
			if (!make_room(&s->at, s->count, &room, sizeof *s->at))
				return false;
			s->at[s->count++] = i;
			inside = false;
		}
		inside |= does == what;
	}
	return true;
}

/* The steps of optimizers or, of those that need no memory for a step, where they clear gradients. false: no memory. */
static bool find_best_optimizers(const struct dump *d, size_t first, size_t end, struct dump_steps *s)
{
	if (!find_optimizers(d, first, end, CALL_OPTIMIZER_STEPS, s))
		return false;
	return s->count > 0 || find_optimizers(d, first, end, CALL_OPTIMIZER_CLEARS, s);
}

/* ---- of calls --------------------------------------------------------------------------------------- */

/* Whether models do at least 1 / WORK_SHARE of the allocating, and nothing trains them. */
static bool only_runs_models(const struct dump *d, size_t first, size_t end)
{
	uint64_t bytes = 0, of_models = 0;
	for (size_t i = first; i < end; i++) {
		if (d->events[i].action != DUMP_ALLOC)
			continue;
		const struct dump_site *site = dump_site(d, d->events[i].stack);
		if (site->category == CATEGORY_GRADIENTS || site->category == CATEGORY_OPTIMIZER)
			return false;
		bytes += d->events[i].size;
		of_models += site->of_model ? d->events[i].size : 0;
	}
	return of_models > 0 && of_models >= bytes / WORK_SHARE;
}

/* The line outside of models that makes an allocation for no known purpose; UINT32_MAX: it is none. */
static uint32_t caller_of(const struct dump *d, const struct dump_event *e)
{
	const struct dump_site *site = dump_site(d, e->stack);
	return e->action == DUMP_ALLOC && site->begins_step ? site->frame : UINT32_MAX;
}

/* The line that has the fewest allocations, but `least` or more, CALLS_MOST at most; UINT32_MAX: there is none. */
static uint32_t rarest_caller(const struct dump *d, const uint32_t *counts, uint32_t least)
{
	uint32_t best = UINT32_MAX;
	for (uint32_t i = 0; i < d->frame_count; i++)
		if (counts[i] >= least && (best == UINT32_MAX || counts[i] < counts[best]))
			best = i;
	return best != UINT32_MAX && counts[best] <= CALLS_MOST ? best : UINT32_MAX;
}

/* The rounds of a loop that calls models. false: no memory. */
static bool find_calls(const struct dump *d, size_t first, size_t end, struct dump_steps *s)
{
	size_t room = 0;
	uint32_t *counts = calloc(d->frame_count + 1, sizeof *counts), chosen = UINT32_MAX, caller;
	bool done = counts;
	for (size_t i = first; i < end && done; i++)
		if ((caller = caller_of(d, &d->events[i])) != UINT32_MAX)
			counts[caller]++;
	for (uint32_t least = CALLS_WANTED; done && chosen == UINT32_MAX && least >= CALLS_LEAST; least /= 2)
		chosen = rarest_caller(d, counts, least);
	free(counts);
	for (size_t i = first; i < end && done && chosen != UINT32_MAX; i++) {
		if (caller_of(d, &d->events[i]) != chosen)
			continue;
		done = make_room(&s->at, s->count, &room, sizeof *s->at);
		if (done)
			s->at[s->count++] = i;
	}
	return done;
}

/* ---- recognised ------------------------------------------------------------------------------------- */

/* The allocations of each place, as indices from `first`: at[start[key]] .. at[start[key + 1] - 1]. Of several in a row
 * from one place, with no free in between, as when a list is filled, only the first counts. */
struct places {
	const struct dump *d;
	size_t first, end, keys;
	bool has_stacks;
	uint32_t *start, *at, *next;
};

/* A place is a stack or, for allocations without one, a class of sizes. */
static size_t key_of(const struct places *p, const struct dump_event *e)
{
	return p->d->stacks[e->stack].count ? e->stack : p->d->stack_count + prng_mix(e->size) % SIZES;
}

/* The next allocation that begins a row of its place, from `at` on; p->end: none. */
static size_t next_of_row(const struct places *p, size_t at, size_t *last)
{
	for (; at < p->end; at++) {
		enum dump_action action = p->d->events[at].action;
		size_t key = action == DUMP_ALLOC ? key_of(p, &p->d->events[at]) : SIZE_MAX;
		bool begins = action == DUMP_ALLOC && key != *last;
		if (action == DUMP_ALLOC || action == DUMP_FREE_REQUESTED || action == DUMP_FREE_COMPLETED)
			*last = key;
		if (begins)
			return at;
	}
	return p->end;
}

static bool gather(struct places *p)
{
	size_t rows = 0, last = SIZE_MAX;
	p->keys = p->d->stack_count + SIZES;
	p->start = calloc(p->keys + 1, sizeof *p->start);
	p->next = malloc((p->keys + 1) * sizeof *p->next);
	if (!p->start || !p->next)
		return false;
	for (size_t i = p->first; (i = next_of_row(p, i, &last)) < p->end; i++, rows++)
		p->start[last + 1]++;
	for (size_t key = 0; key < p->keys; key++)
		p->start[key + 1] += p->start[key];
	memcpy(p->next, p->start, (p->keys + 1) * sizeof *p->next);
	p->at = malloc((rows + 1) * sizeof *p->at);
	if (!p->at)
		return false;
	last = SIZE_MAX;
	for (size_t i = p->first; (i = next_of_row(p, i, &last)) < p->end; i++)
		p->at[p->next[last]++] = (uint32_t)(i - p->first);
	return true;
}

static size_t count_of(const struct places *p, size_t key)
{
	return p->start[key + 1] - p->start[key];
}

static int by_value(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

/* The median gap between n >= 2 ascending positions, each so many `apart` from the next, and whether most gaps are near
 * it. */
static bool regular(const uint32_t *at, size_t n, size_t apart, uint32_t *usual)
{
	uint32_t gaps[GAPS_MAX];
	size_t count = n - 1 < GAPS_MAX ? n - 1 : GAPS_MAX, near = 0;
	for (size_t i = 0; i < count; i++) {
		size_t k = i * (n - 1) / count;
		gaps[i] = at[(k + 1) * apart] - at[k * apart];
	}
	qsort(gaps, count, sizeof *gaps, by_value);
	*usual = gaps[count / 2];
	for (size_t i = 0; i < count; i++)
		near += gaps[i] >= *usual / 2 && gaps[i] <= *usual + *usual;
	return near * 100 >= count * PART_REGULAR;
}

/* Models' layers come as regularly as steps, and recur in each, however many steps there are; memory that one forward
 * pass keeps grows with each layer: a step is what calls the model. What autograd's threads allocate comes for each
 * layer, too, and so does the workspace of their products. Where Python's lines are recorded, but not C++'s, it has no
 * stack. */
static bool is_of_layers(const struct places *p, size_t key)
{
	if (key >= p->d->stack_count)
		return p->has_stacks;
	const struct dump_site *site = dump_site(p->d, (uint32_t)key);
	bool autograd = site->category == CATEGORY_GRADIENTS || site->category == CATEGORY_OTHER;
	return site->modules > 0 || (autograd && !site->of_program);
}

/* `least`: how often it must occur. */
static bool is_marker(const struct places *p, size_t key, size_t apart, size_t least)
{
	uint32_t usual;
	size_t n = count_of(p, key) / apart;
	return n >= least && regular(p->at + p->start[key], n, apart, &usual) &&
	       (uint64_t)usual * n * 100 >= (uint64_t)(p->end - p->first) * PART_COVERED;
}

/* The rarest marker that occurs at least `least` times, provided that one occurs `as` times; p->keys: none. Only each
 * `apart`th allocation of a place counts. Layers occur more often than steps; what is done only every few steps, less
 * often. */
static size_t rarest(const struct places *p, const bool *marker, size_t apart, size_t least, size_t as)
{
	size_t best = p->keys, most = 0;
	for (size_t key = 0; key < p->keys; key++) {
		size_t n = marker[key] ? count_of(p, key) / apart : 0;
		most = n > most ? n : most;
		if (n >= least && (best == p->keys || n < count_of(p, best) / apart))
			best = key;
	}
	return most >= as ? best : p->keys;
}

static size_t choose_of(const struct places *p, const bool *marker, size_t apart)
{
	static const size_t least[][2] = {{32, 64}, {8, 8}, {DUMP_STEPS_LEAST + 1, DUMP_STEPS_LEAST + 1}};
	size_t key = p->keys;
	/* Without stacks nothing tells a layer from a step: the rarest marker counts, if it is not too rare. */
	if (!p->has_stacks) {
		key = rarest(p, marker, apart, 8, STACKLESS);
		return key < p->keys && count_of(p, key) / apart >= STACKLESS ? key : p->keys;
	}
	for (size_t i = 0; i < sizeof least / sizeof *least && key == p->keys; i++)
		key = rarest(p, marker, apart, least[i][0], least[i][1]);
	return key;
}

/* Layers count only if nothing outside of models comes regularly, and if they recur more often than models have
 * any. */
static size_t choose(const struct places *p, bool *marker, size_t apart)
{
	for (size_t key = 0; key < p->keys; key++)
		marker[key] = !is_of_layers(p, key) && is_marker(p, key, apart, DUMP_STEPS_LEAST + 1);
	size_t chosen = choose_of(p, marker, apart);
	if (chosen < p->keys)
		return chosen;
	for (size_t key = 0; key < p->keys; key++)
		marker[key] = marker[key] || (is_of_layers(p, key) && is_marker(p, key, apart, MODEL_DEPTH));
	return choose_of(p, marker, apart);
}

/* Of the places in a step of a line that allocates several times in it, the one that comes after the longest gap. */
static size_t first_in_step(const uint32_t *at, size_t count, size_t apart)
{
	size_t best = 0;
	uint64_t longest = 0;
	for (size_t first = 0; first < apart && apart > 1; first++) {
		uint64_t gaps = 0;
		for (size_t i = first ? first : apart; i < count / apart * apart; i += apart)
			gaps += at[i] - at[i - 1];
		if (gaps > longest) {
			longest = gaps;
			best = first;
		}
	}
	return best;
}

/* false: no memory. */
static bool recognise(const struct dump *d, size_t first, size_t end, struct dump_steps *s)
{
	struct places p = { .d = d, .first = first, .end = end, .has_stacks = dump_history_has_stacks(d, first, end) };
	bool *marker = NULL, done = false;
	if (!gather(&p) || !(marker = calloc(p.keys + 1, sizeof *marker)))
		goto out;
	size_t key = p.keys, apart = 0;
	while (key == p.keys && apart < IN_STEP_MAX)
		key = choose(&p, marker, ++apart);
	size_t n = key < p.keys ? count_of(&p, key) : 0;
	const uint32_t *at = p.at + (n ? p.start[key] : 0);
	s->at = malloc((n + 1) * sizeof *s->at);
	if (!s->at)
		goto out;
	for (size_t i = first_in_step(at, n, apart); i < n; i += apart)
		s->at[s->count++] = first + at[i];
	done = true;
out:
	free(p.start);
	free(p.next);
	free(p.at);
	free(marker);
	return done;
}

/* ---- */

/* So many of the newest steps are alike; what is done only every few steps, such as evaluation, may be in none of
 * them. */
enum { NEWEST = 9 };

/* Whether the unfinished step is more than so many halves of the longest of the `newest` before it. */
static bool exceeds(const struct dump_steps *s, size_t end, size_t newest, size_t halves)
{
	size_t longest = 0, from = s->count > newest ? s->count - newest : 0;
	for (size_t i = from; i + 1 < s->count; i++)
		longest = s->at[i + 1] - s->at[i] > longest ? s->at[i + 1] - s->at[i] : longest;
	return 2 * (end - s->at[s->count - 1]) > halves * longest;
}

/* What failed may make the last step longer than others; if it is more than twice as long, the loop has ended. */
static bool still_lasts(const struct dump_steps *s, size_t end, size_t newest)
{
	return !exceeds(s, end, newest, 4);
}

/* Whether the program has done as much between earlier steps, if those do not begin in a model, as layers do. */
static bool did_as_much(const struct dump *d, const struct dump_steps *s, size_t end)
{
	const struct dump_site *begin = dump_site(d, d->events[s->at[0]].stack);
	return (s->marked || (begin->of_program && begin->modules == 0)) && still_lasts(s, end, s->count);
}

/* A program that has left its loop, or does far more than in its newest steps, may be in another, such as evaluation
 * after training: then that one's steps count. If it has none or few, the program may be doing what it did between
 * earlier steps. */
static bool find_newer(const struct dump *d, size_t end, struct dump_steps *s)
{
	struct dump_steps newer = { 0 };
	if (!recognise(d, s->at[s->count - 1], end, &newer)) {
		dump_steps_free(&newer);
		return false;
	}
	newer.lasts = newer.count > DUMP_STEPS_LEAST && still_lasts(&newer, end, NEWEST);
	s->lasts = s->lasts || did_as_much(d, s, end);
	bool better = newer.lasts && (newer.count >= NEWEST || !s->lasts);
	dump_steps_free(better ? s : &newer);
	if (better)
		*s = newer;
	return true;
}

/* The ends of steps that the program tells, if there are more than `least` of them; otherwise the marked ends of an
 * optimizer's steps. false: no memory. */
static bool find_best_marks(const struct dump *d, int device, size_t first, size_t end, size_t least, bool *told,
                            struct dump_steps *s)
{
	bool done = find_marks(d, device, first, end, true, s);
	*told = s->count > least;
	if (!done || *told)
		return done;
	dump_steps_free(s);
	return find_marks(d, device, first, end, false, s);
}

static trz_status no_memory(struct dump_steps *s, size_t first, size_t end)
{
	dump_steps_free(s);
	return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to look for steps in %zu events", end - first);
}

trz_status dump_marks(const struct dump *d, int device, size_t first, size_t end, struct dump_steps *out)
{
	bool told;
	*out = (struct dump_steps){ 0 };
	if (first == end)
		return TRZ_OK;
	bool done = find_best_marks(d, device, first, end, 0, &told, out);
	if (done && out->count == 0)
		done = find_best_optimizers(d, first, end, out);
	if (done && out->count == 0 && only_runs_models(d, first, end)) {
		done = find_calls(d, first, end, out);
		out->calls = true;
	}
	if (!done)
		return no_memory(out, first, end);
	out->lasts = out->count > 0 && still_lasts(out, end, out->count);
	return TRZ_OK;
}

trz_status dump_steps(const struct dump *d, int device, size_t first, size_t end, struct dump_steps *out)
{
	bool told;
	*out = (struct dump_steps){ 0 };
	if (first == end)
		return TRZ_OK;
	bool done = find_best_marks(d, device, first, end, DUMP_STEPS_LEAST, &told, out);
	if (done && out->count <= DUMP_STEPS_LEAST) {
		dump_steps_free(out);
		done = recognise(d, first, end, out);
	}
	if (!done)
		return no_memory(out, first, end);
	if (out->count <= DUMP_STEPS_LEAST) {
		dump_steps_free(out);
		return TRZ_OK;
	}
	out->lasts = still_lasts(out, end, told ? out->count : NEWEST);
	bool usual = told || !exceeds(out, end, NEWEST, 3);
	return usual || find_newer(d, end, out) ? TRZ_OK : no_memory(out, first, end);
}
