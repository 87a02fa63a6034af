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
#include "trace_map.h"

enum {
	MARKS_LEAST = 2,           /* one step, beside the end of another, or all of it, that the history begins with */
	ALIKE = 8,                 /* the part of what a leak has left that each half of the steps has, at least */
	TIMES = 16,                /* as much as a step leaves a line holds, at least, if it leaks */
	MATTERS = 20,              /* the part of what is live that such a line holds, */
	TOGETHER = 4,              /* and that all of them do */
	SELDOM_TIMES = 64,         /* as much as all steps leave a line holds, at least, that leaks in few of them, */
	SELDOM_PART = 2,           /* and the part of what is live that it holds */
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
	uint32_t stack;
	bool leaks;
};

struct search {
	const struct dump *d;
	const struct dump_steps *steps;
	struct line *lines;
	struct trace_map made;     /* address: its newest allocation, counted from the first step */
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
	int level = dump_site_level(s->d, stack);
	return level < 0 ? NULL : &s->lines[dump_frame(s->d, stack, (uint32_t)level) - s->d->frames];
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

/* What the heap has grown by in these steps: from the first event to the last mark or, since a history may begin in the
 * middle of a step, from the least of the first half to that of the second. `late`: from the steps before the newest to
 * these. Errors: HOST_MEMORY. */
static trz_status look_at_events(struct search *s, size_t event, uint64_t *grown, int64_t *late)
{
	int64_t now = 0, low[2] = { 0, INT64_MAX };  /* beside what was live at first */
	int64_t newest[2] = { INT64_MAX, INT64_MAX };
	trz_status status = TRZ_OK;
	for (size_t i = begin_of(s); i < event && status == TRZ_OK; i++) {
		const struct dump_event *e = &s->d->events[i];
		if (e->action == DUMP_ALLOC)
			status = map_set(&s->made, e->address, (uint32_t)(i - begin_of(s)));
		if (i >= end_of(s))
			continue;
		now += e->action == DUMP_ALLOC ? (int64_t)e->size : 0;
		now -= e->action == DUMP_FREE_COMPLETED ? (int64_t)e->size : 0;
		int64_t *least = &low[i >= middle_of(s)];
		*least = now < *least ? now : *least;
		least = &newest[i >= late_of(s, 1)];
		*least = i >= late_of(s, 2) && now < *least ? now : *least;
	}
	*late = late_steps(s) ? newest[1] - newest[0] : 0;
	int64_t rise = low[1] - low[0];
	*grown = (uint64_t)(rise > now ? rise : now > 0 ? now : 0);
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
		line->stack = b->stack;
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

static bool leaks(const struct search *s, const struct line *line, const struct evidence *e)
{
	uint64_t steps = s->steps->count - 1;
	char site[DUMP_SITE_BYTES];
	if (line->held < e->allocated / MATTERS || !(leaves_in_both_halves(line) || has_left_most(line, e)))
		return false;
	enum evidence_category category = dump_category(s->d, line->stack);
	/* Of a model's activations a step of its optimizer needs none after. */
	bool over = category == CATEGORY_ACTIVATIONS && dump_is_of_model(s->d, line->stack);
	if (!over && line->held_count * steps < TIMES * line->count)
		return false;
	bool named = dump_site_text(s->d, line->stack, site);
	return evidence_may_leak(category) || (category == CATEGORY_WEIGHTS && named && evidence_are_copies(e, site));
}

static void tell(const struct search *s, const struct line *line, const char *loop, struct evidence *e)
{
	char site[DUMP_SITE_BYTES];
	double steps = (double)s->steps->count - 1, rate = (double)left_of(line) / steps;
	dump_site_text(s->d, line->stack, site);
	evidence_add_growth(e, &(struct evidence_growth){ .site = evidence_keep(e, site),
	                                                  .loop = loop,
	                                                  .category = dump_category(s->d, line->stack),
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

/* A cache that has been full for a while makes the heap no larger. */
static bool goes_on(const struct search *s, int64_t late, uint64_t left)
{
	return late_steps(s) == 0 || late >= (int64_t)(left / 2);
}

static trz_status judge(const struct search *s, uint64_t grown, int64_t late, const struct dump_moment *m,
                        struct evidence *e)
{
	uint64_t left = 0, held = 0, left_late = 0;
	size_t newest = s->steps->at[s->steps->count - 2];
	trz_status status = TRZ_OK;
	for (size_t i = 0; i < s->d->frame_count && status == TRZ_OK; i++) {
		struct line *line = &s->lines[i];
		bool needed = false;
		line->leaks = leaks(s, line, e);
		if (line->leaks)
			status = dump_is_needed(s->d, m, line->stack, newest, end_of(s), &needed);
		line->leaks &= !needed;
		left += line->leaks ? left_of(line) : 0;
		left_late += line->leaks ? line->late : 0;
		held += line->leaks ? line->held : 0;
	}
	if (status != TRZ_OK || held < e->allocated / TOGETHER || grown < left / 2 || !goes_on(s, late, left_late))
		return status;
	return tell_all(s, m, e);
}

static trz_status search(struct search *s, size_t event, const struct dump_moment *m, struct evidence *e)
{
	uint64_t grown = 0;
	int64_t late = 0;
	s->lines = calloc(s->d->frame_count + 1, sizeof *s->lines);
	trz_status status = s->lines ? look_at_events(s, event, &grown, &late) : TRZ_ERROR_HOST_MEMORY;
	if (status == TRZ_OK) {
		look_at_blocks(s, m);
		status = judge(s, grown, late, m, e);
	}
	free(s->lines);
	map_free(&s->made);
	return status;
}

trz_status dump_left(const struct dump *d, int device, size_t event, const struct dump_moment *m, struct evidence *e)
{
	struct dump_steps steps;
	trz_status status = dump_marks(d, device, d->traces[device].first, event, &steps);
	if (status == TRZ_OK && steps.count >= MARKS_LEAST && steps.lasts) {
		struct search s = { .d = d, .steps = &steps };
		status = add_begin(&steps, d->traces[device].first);
		status = status == TRZ_OK ? search(&s, event, m, e) : status;
	}
	dump_steps_free(&steps);
	return status == TRZ_OK ? TRZ_OK : trz_fail(status, "no memory to look at what steps leave");
}
