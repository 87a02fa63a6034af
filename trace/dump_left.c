/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of the memory at the failure, by the step that made them.
 */
#include "dump_left.h"

#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "dump_loop.h"
#include "dump_needed.h"
#include "dump_sites.h"
#include "dump_steps.h"
#include "error.h"
#include "prng.h"
#include "trace_map.h"

enum {
	STEPS_LEAST = 2,           /* that of which the history begins with the end, or all, and one more */
	ALIKE = 8,                 /* the part of what a leak has left that each half of the steps has, at least */
	TIMES = 16,                /* as much as a step leaves a line holds, at least, if it leaks */
	MATTERS = 20,              /* the part of what is live that such a line holds, */
	TOGETHER = 4,              /* and that all of them do */
	SELDOM_TIMES = 64,         /* as much as all steps leave a line holds, at least, that leaks in few of them, */
	SELDOM_PART = 2,           /* and the part of what is live that it holds */
	PART_BYTES = 32 << 10,     /* smaller blocks, such as norms' weights, are no parts */
	VARIABLES = 4,             /* fewer blocks may be what variables hold until the loop sets them anew */
	LATE = 8,                  /* the newest such part of the steps shows whether the heap goes on growing, */
	LATE_STEPS = 2             /* if it is so many steps or more */
};

/* Of one line, numbered by its frame, + 1. */
struct line {
	uint64_t left[2];          /* bytes, of each half of the steps */
	uint64_t late;             /* bytes of them, of the newest steps */
	uint64_t count;            /* of blocks that are left */
	uint64_t held, held_count; /* but for what the unfinished step has made, which it may let go */
	uint64_t live;             /* with that */
	uint64_t least, most;      /* the sizes of blocks that it holds */
	struct dump_mix mix;       /* of what it holds */
	bool leaks;
};

/* What the heap has grown by in the steps and, beside those before them, in the newest. */
struct rise {
	uint64_t grown;
	int64_t late;
};

struct search {
	const struct dump *d;
	const struct dump_steps *steps;
	struct line *lines;
	struct trace_map made;     /* address: its newest allocation, counted from the first step */
	uint64_t alike;            /* weights of one line and size: the parts that a model may have */
};

static size_t begin_of(const struct search *s)
{
	return s->steps->at[0];
}

static size_t end_of(const struct search *s)
{
	return s->steps->at[s->steps->count - 1];
}

static struct line *line_of(const struct search *s, uint32_t stack)
{
	uint32_t frame = dump_site(s->d, stack)->frame;
	return frame == UINT32_MAX ? NULL : &s->lines[frame];
}

/* What comes before the first mark is of a step, too. Errors: HOST_MEMORY. */
static trz_status add_begin(struct dump_steps *s, size_t first)
{
	size_t *grown = realloc(s->at, (s->count + 1) * sizeof *grown);
	if (!grown)
		return TRZ_ERROR_HOST_MEMORY;
	s->at = grown;
	memmove(s->at + 1, s->at, s->count++ * sizeof *s->at);
	s->at[0] = first;
	return TRZ_OK;
}

static size_t middle_of(const struct search *s)
{
	return s->steps->at[s->steps->count / 2];
}

/* How many steps are the newest; 0: too few, so nothing tells whether the heap goes on growing. */
static size_t late_steps(const struct search *s)
{
	size_t part = (s->steps->count - 1) / LATE;
	return part >= LATE_STEPS ? part : 0;
}

/* Where the newest steps begin or, with `parts` 2, as many before them. */
static size_t late_of(const struct search *s, size_t parts)
{
	return s->steps->at[s->steps->count - 1 - parts * late_steps(s)];
}

/* What the heap has grown by in these steps: from the first event, or the first mark, to the last mark or, since a
 * history may begin in the middle of a step, from the least of the first half to that of the second. Errors:
 * HOST_MEMORY. */
static trz_status look_at_events(struct search *s, size_t event, struct rise *rise)
{
	int64_t now = 0, low[2] = { 0, INT64_MAX };  /* beside what was live at first */
	int64_t newest[2] = { INT64_MAX, INT64_MAX }, marked = 0;
	trz_status status = TRZ_OK;
	for (size_t i = begin_of(s); i < event && status == TRZ_OK; i++) {
		const struct dump_event *e = &s->d->events[i];
		if (e->action == DUMP_ALLOC)
			status = map_set(&s->made, e->address, (uint32_t)(i - begin_of(s)));
		if (i >= end_of(s))
			continue;
		if (i == s->steps->at[1])
			marked = now;
		now += e->action == DUMP_ALLOC ? (int64_t)e->size : 0;
		now -= e->action == DUMP_FREE_COMPLETED ? (int64_t)e->size : 0;
		int64_t *least = &low[i >= middle_of(s)];
		*least = now < *least ? now : *least;
		least = &newest[i >= late_of(s, 1)];
		*least = i >= late_of(s, 2) && now < *least ? now : *least;
	}
	*rise = (struct rise){ .late = late_steps(s) ? newest[1] - newest[0] : 0 };
	if (s->steps->count <= STEPS_LEAST)
		return status;
	int64_t rises[] = { now, now - marked, low[1] - low[0] };
	for (size_t i = 0; i < sizeof rises / sizeof *rises; i++)
		rise->grown = rises[i] > (int64_t)rise->grown ? (uint64_t)rises[i] : rise->grown;
	return status;
}

static void look_at_blocks(struct search *s, const struct dump_moment *m)
{
	for (size_t i = 0; i < m->block_count; i++) {
		const struct dump_block *b = &m->blocks[i];
		struct line *line = b->state == DUMP_HELD ? line_of(s, b->stack) : NULL;
		uint32_t at;
		if (!line)
			continue;
		line->live += b->size;
		bool made = map_get(&s->made, b->address, &at);
		if (made && begin_of(s) + at >= end_of(s))
			continue;
		dump_mix_add(s->d, &line->mix, b->stack, b->size);
		line->least = line->held ? min_u64(line->least, b->size) : b->size;
		line->most = max_u64(line->most, b->size);
		line->held += b->size;
		line->held_count++;
		if (!made)
			continue;
		line->left[begin_of(s) + at >= middle_of(s)] += b->size;
		line->late += begin_of(s) + at >= late_of(s, 1) ? b->size : 0;
		line->count++;
	}
}

static uint64_t left_of(const struct line *line)
{
	return line->left[0] + line->left[1];
}

/* Where optimizers of parts of a model step within its backward pass, what they leave is of one forward pass. */
static bool leaves_in_both_halves(const struct line *line)
{
	uint64_t least = min_u64(line->left[0], line->left[1]);
	return least > 0 && least >= left_of(line) / ALIKE;
}

/* A line that leaves something every so many steps, such as a copy of the model, may have done so once. */
static bool has_left_most(const struct line *line, const struct evidence *e)
{
	return line->count > 0 && line->held_count >= SELDOM_TIMES * line->count &&
	       line->held >= e->allocated / SELDOM_PART;
}

/* Of a model's activations a step of its optimizer needs none after; what only runs models may remember some. */
static bool is_over(const struct search *s, const struct line *line)
{
	const struct dump_site *site = dump_site(s->d, line->mix.stack);
	return line->held > 0 && !s->steps->calls && site->category == CATEGORY_ACTIVATIONS && site->of_model;
}

/* Whether activations have outlived steps: more than those of one pass, some of which a part of the model's may still
 * need, as where optimizers step within its backward pass. */
static bool outlives(const struct search *s, const struct line *line)
{
	return line->count > 0 && is_over(s, line) && line->held_count > DUMP_OF_A_PART * max_u64(s->alike, 1);
}

static bool leaks(const struct search *s, const struct line *line, const struct evidence *e)
{
	uint64_t steps = s->steps->count - 1;
	char site[DUMP_SITE_BYTES];
	bool several = s->steps->count > STEPS_LEAST && (leaves_in_both_halves(line) || has_left_most(line, e));
	if (line->held < e->allocated / MATTERS || !(several || outlives(s, line)))
		return false;
	/* Rounds may be over a model's parts, each of which leaves something in a pass. */
	if (s->steps->calls && line->held_count <= DUMP_OF_A_PART * s->alike)
		return false;
	enum evidence_category category = dump_category(s->d, line->mix.stack);
	bool over = is_over(s, line);
	if (!over && line->held_count * steps < TIMES * line->count)
		return false;
	bool named = dump_site_text(s->d, line->mix.stack, site);
	return evidence_may_leak(category) || (category == CATEGORY_WEIGHTS && named && evidence_are_copies(e, site));
}

static void tell(const struct search *s, const struct line *line, const char *loop, struct evidence *e)
{
	char site[DUMP_SITE_BYTES];
	double steps = (double)s->steps->count - 1, rate = (double)left_of(line) / steps;
	dump_site_text(s->d, line->mix.stack, site);
	evidence_add_growth(e, &(struct evidence_growth){ .site = evidence_keep(e, site),
	                                                  .loop = loop,
	                                                  .category = dump_category(s->d, line->mix.stack),
	                                                  .leak = true,
	                                                  .per_step = rate,
	                                                  .per_step_low = rate,
	                                                  .per_step_high = rate,
	                                                  .live = line->live,
	                                                  .steps = s->steps->count - 1 });
}

/* Errors: HOST_MEMORY. */
static trz_status tell_all(const struct search *s, const struct dump_moment *m, struct evidence *e)
{
	struct dump_loop loop;
	trz_status status = dump_loop(s->d, s->steps, &loop);
	e->growth_count = 0;
	for (size_t i = 0; i < s->d->frame_count && status == TRZ_OK; i++) {
		const char *line;
		if (!s->lines[i].leaks)
			continue;
		status = dump_loop_line(s->d, &loop, m, &s->d->frames[i], e, &line);
		tell(s, &s->lines[i], line, e);
	}
	dump_loop_free(&loop);
	return status;
}

/* What was freed from `first` on of older blocks, of sizes in the range of what leaks: a queue frees as much as it
 * takes. Errors: HOST_MEMORY. */
static trz_status sum_old_freed(const struct search *s, size_t first, size_t event, uint64_t *bytes)
{
	struct trace_map made = { 0 };
	uint64_t least = UINT64_MAX, most = 0;
	trz_status status = TRZ_OK;
	for (size_t i = 0; i < s->d->frame_count; i++) {
		least = s->lines[i].leaks ? min_u64(least, s->lines[i].least) : least;
		most = s->lines[i].leaks ? max_u64(most, s->lines[i].most) : most;
	}
	for (size_t i = first; i < event && status == TRZ_OK; i++) {
		const struct dump_event *e = &s->d->events[i];
		uint32_t at;
		if (e->action == DUMP_ALLOC)
			status = map_set(&made, e->address, 0);
		if (e->action == DUMP_FREE_COMPLETED && !map_get(&made, e->address, &at))
			*bytes += e->size >= least && e->size <= most ? e->size : 0;
	}
	map_free(&made);
	return status;
}

/* Whether lines let go less than half of what they leave, from `first` on. Errors: HOST_MEMORY. */
static trz_status keeps(const struct search *s, size_t first, size_t event, uint64_t left, bool *kept)
{
	uint64_t freed = 0;
	trz_status status = sum_old_freed(s, first, event, &freed);
	*kept = freed <= left / 2;
	return status;
}

/* Whether what lines have left is more than what they have let go. With one mark the heap's level tells nothing: it is
 * not known at the same moment of another step. A cache that has been full for a while neither makes the heap larger in
 * the newest steps, nor does it let go less than it takes. Errors: HOST_MEMORY. */
static trz_status look_for_rise(const struct search *s, size_t event, const struct rise *rise, const struct line *all,
                                bool *rises)
{
	if (s->steps->count <= STEPS_LEAST && all->count >= VARIABLES)
		return keeps(s, begin_of(s), event, left_of(all), rises);
	*rises = s->steps->count > STEPS_LEAST && rise->grown >= left_of(all) / 2;
	if (!*rises || late_steps(s) == 0 || rise->late >= (int64_t)(all->late / 2))
		return TRZ_OK;
	return keeps(s, late_of(s, 1), event, all->late, rises);
}

/* Adds a line to the sums of all. */
static void add_line(struct line *all, const struct line *line)
{
	all->left[0] += line->left[0];
	all->left[1] += line->left[1];
	all->late += line->late;
	all->held += line->held;
	all->count += line->count;
}

static trz_status judge(const struct search *s, size_t event, const struct rise *rise, const struct dump_moment *m,
                        struct evidence *e)
{
	struct line all = { 0 };
	bool rises = false;
	size_t newest = s->steps->at[s->steps->count - 2];
	trz_status status = TRZ_OK;
	for (size_t i = 0; i < s->d->frame_count && status == TRZ_OK; i++) {
		struct line *line = &s->lines[i];
		bool needed = false;
		line->leaks = leaks(s, line, e);
		if (line->leaks)
			status = dump_is_needed(s->d, m, line->mix.stack, newest, end_of(s), &needed);
		line->leaks &= !needed;
		if (line->leaks)
			add_line(&all, line);
	}
	if (status == TRZ_OK)
		status = look_for_rise(s, event, rise, &all, &rises);
	if (status != TRZ_OK || all.held < e->allocated / TOGETHER || !rises)
		return status;
	return tell_all(s, m, e);
}

/* A key for the line and size of what may be a weight. false: it is none. */
static bool may_be_part(const struct search *s, const struct dump_block *b, uint64_t *kind)
{
	struct line *line = line_of(s, b->stack);
	*kind = prng_mix(b->size ^ prng_mix(line ? (uint64_t)(line - s->lines) + 1 : 0));
	bool part = b->stack == 0 || dump_category(s->d, b->stack) == CATEGORY_WEIGHTS;
	return b->state == DUMP_HELD && b->size >= PART_BYTES && part;
}

/* The most possible weights of one line and size, but for those that steps make. Errors: HOST_MEMORY. */
static trz_status count_alike(struct search *s, const struct dump_moment *m)
{
	struct trace_map counts = { 0 }, kinds = { 0 };
	trz_status status = TRZ_OK;
	uint64_t kind;
	uint32_t at, count;
	for (size_t i = 0; i < m->block_count && status == TRZ_OK; i++) {
		const struct dump_block *b = &m->blocks[i];
		bool made = b->stack && map_get(&s->made, b->address, &at) && begin_of(s) + at >= s->steps->at[1];
		if (made && may_be_part(s, b, &kind))
			status = map_set(&kinds, kind, 0);
	}
	for (size_t i = 0; i < m->block_count && status == TRZ_OK; i++) {
		if (!may_be_part(s, &m->blocks[i], &kind) || map_get(&kinds, kind, &at))
			continue;
		status = map_count(&counts, kind, &count);
		s->alike = max_u64(s->alike, count);
	}
	map_free(&counts);
	map_free(&kinds);
	return status;
}

static trz_status search(struct search *s, size_t event, const struct dump_moment *m, struct evidence *e)
{
	struct rise rise;
	s->lines = calloc(s->d->frame_count + 1, sizeof *s->lines);
	trz_status status = s->lines ? look_at_events(s, event, &rise) : TRZ_ERROR_HOST_MEMORY;
	if (status == TRZ_OK) {
		look_at_blocks(s, m);
		status = count_alike(s, m);
	}
	if (status == TRZ_OK)
		status = judge(s, event, &rise, m, e);
	free(s->lines);
	map_free(&s->made);
	return status;
}

/* With one mark, what comes before it is all that there is to compare with. */
static bool lasts(const struct dump_steps *s, size_t first, size_t event)
{
	return s->count + 1 > STEPS_LEAST ? s->lasts : event - s->at[0] <= 2 * (s->at[0] - first);
}

trz_status dump_left(const struct dump *d, int device, size_t event, const struct dump_moment *m, struct evidence *e)
{
	struct dump_steps steps;
	trz_status status = dump_marks(d, device, d->traces[device].first, event, &steps);
	bool trains = evidence_or_zero(e->categories[CATEGORY_GRADIENTS]) ||
	              evidence_or_zero(e->categories[CATEGORY_OPTIMIZER]);
	bool found = steps.count > 0 && !(steps.calls && trains);
	if (status == TRZ_OK && found && lasts(&steps, d->traces[device].first, event)) {
		struct search s = { .d = d, .steps = &steps };
		status = add_begin(&steps, d->traces[device].first);
		status = status == TRZ_OK ? search(&s, event, m, e) : status;
	}
	dump_steps_free(&steps);
	return status == TRZ_OK ? TRZ_OK : trz_fail(status, "no memory to look at what steps leave");
}
