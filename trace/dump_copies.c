/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks for a period in the sizes of the weights that each line has made, in their order.
 */
#include "dump_copies.h"

#include <stdlib.h>

#include "bits.h"
#include "dump_sites.h"
#include "error.h"
#include "trace_map.h"
#include "trace_room.h"

enum {
	MATTERS = 8,               /* the part of what is live that their weights are: gradients and state come on top */
	COPIES_LEAST = 3,          /* counting the one that failed; */
	TRAINED_LEAST = 2,         /* or so many, if the second has many weights, and the first has been trained before */
	COPIES_MOST = 8,           /* of a model of few weights that is not trained: layers come oftener */
	MANY_WEIGHTS = 32,         /* more than a layer has */
	WORK_LEAST = 8,            /* other allocations between two copies, */
	WORK_TIMES = 4             /* and so many times those within one */
};

/* A live weight, and the event that made it. */
struct weight {
	uint32_t frame, line;      /* its line is told by the first frame that is the same line */
	uint32_t stack;
	uint64_t size;
	size_t at;
};

struct list {
	struct weight *at;
	size_t count, room;
	size_t trained;            /* the event that made the first live gradient or optimizer state; SIZE_MAX: none */
};

/* A run of one line's weights. */
struct run {
	const struct weight *at;
	size_t count, period;
};

static trz_status note_made(const struct dump *d, size_t first, size_t event, struct trace_map *made)
{
	trz_status status = TRZ_OK;
	for (size_t i = first; i < event && status == TRZ_OK; i++)
		if (d->events[i].action == DUMP_ALLOC)
			status = map_set(made, d->events[i].address, (uint32_t)(i - first));
	return status;
}

/* Weights of one line come in rows. */
static uint32_t line_of(const struct dump *d, uint32_t frame, const struct list *before)
{
	const struct weight *last = before->count ? &before->at[before->count - 1] : NULL;
	uint32_t line = 0;
	if (frame == UINT32_MAX || (last && last->frame == frame))
		return last && last->frame == frame ? last->line : frame;
	while (line < frame && !dump_is_same_line(&d->frames[line], &d->frames[frame]))
		line++;
	return line;
}

/* What lines have made as weights, or have read from a file, and when training began. Errors: HOST_MEMORY. */
static trz_status gather(const struct dump *d, size_t first, const struct trace_map *made, const struct dump_moment *m,
                         struct list *out)
{
	for (size_t i = 0; i < m->block_count; i++) {
		const struct dump_block *b = &m->blocks[i];
		const struct dump_site *site = dump_site(d, b->stack);
		bool weights = site->category == CATEGORY_WEIGHTS || site->of_file;
		uint32_t at;
		if (b->state != DUMP_HELD || !map_get(made, b->address, &at))
			continue;
		bool trained = site->category == CATEGORY_OPTIMIZER || site->category == CATEGORY_GRADIENTS;
		if (trained && first + at < out->trained)
			out->trained = first + at;
		if (!weights)
			continue;
		if (!make_room(&out->at, out->count, &out->room, sizeof *out->at))
			return TRZ_ERROR_HOST_MEMORY;
		uint64_t size = b->requested ? b->requested : b->size;
		uint32_t line = line_of(d, site->frame, out);
		out->at[out->count++] = (struct weight){ site->frame, line, b->stack, size, first + at };
	}
	return TRZ_OK;
}

static int by_line(const void *a, const void *b)
{
	const struct weight *x = a, *y = b;
	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

/* The shortest period of a run's sizes: how far its longest border is from being all of it (Knuth, Morris, Pratt).
 * Errors: HOST_MEMORY. */
static trz_status find_period(struct run *r)
{
	size_t *border = malloc(r->count * sizeof *border), length = 0;
	if (!border)
		return TRZ_ERROR_HOST_MEMORY;
	border[0] = 0;
	for (size_t i = 1; i < r->count; i++) {
		while (length && r->at[i].size != r->at[length].size)
			length = border[length - 1];
		length += r->at[i].size == r->at[length].size;
		border[i] = length;
	}
	r->period = r->count - border[r->count - 1];
	free(border);
	return TRZ_OK;
}

/* Allocations between two weights of a run that are none of the run. */
static size_t others_between(const struct dump *d, const struct weight *from, const struct weight *to)
{
	size_t others = 0;
	for (size_t i = from->at + 1; i < to->at; i++)
		others += d->events[i].action == DUMP_ALLOC;
	return others;
}

/* A model of equal layers repeats within itself, too: a copy ends where the program does other things. */
static void widen_period(const struct dump *d, struct run *r)
{
	size_t end = r->period;
	while (end < r->count && others_between(d, &r->at[end - 1], &r->at[end]) < WORK_LEAST)
		end += r->period;
	r->period = end < r->count ? end : r->period;
}

/* Whether the program does other things between all copies, and hardly any within one. */
static bool works_between(const struct dump *d, const struct run *r)
{
	size_t within = 0, most_within = 0, least_between = SIZE_MAX;
	for (size_t i = 1; i < r->count; i++) {
		size_t others = others_between(d, &r->at[i - 1], &r->at[i]);
		bool between = i % r->period == 0;
		within = between ? 0 : within + others;
		most_within = within > most_within ? within : most_within;
		least_between = between && others < least_between ? others : least_between;
	}
	return least_between >= WORK_LEAST && least_between >= WORK_TIMES * most_within;
}

static uint64_t bytes_of(const struct run *r, size_t count)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < count; i++)
		bytes += r->at[i].size;
	return bytes;
}

/* Whether the first model has been trained before the second is made: at most a teacher is needed. */
static bool is_trained(const struct run *r, size_t trained)
{
	return r->count > r->period && trained > r->at->at && trained < r->at[r->period].at;
}

static bool are_copies(const struct dump *d, const struct run *r, size_t trained, const struct evidence *e)
{
	size_t whole = r->count / r->period, begun = (r->count + r->period - 1) / r->period;
	char site[DUMP_SITE_BYTES];
	bool fails = dump_site_text(d, r->at->stack, site) && evidence_same_site(site, e->site);
	bool after = is_trained(r, trained), second = after && r->count >= r->period + MANY_WEIGHTS;
	size_t least = second ? TRAINED_LEAST : COPIES_LEAST;
	if (whole < least - 1 || begun + (fails && begun == whole) < least)
		return false;
	bool model = after || r->period >= MANY_WEIGHTS || whole <= COPIES_MOST;
	return model && bytes_of(r, r->count) >= e->allocated / MATTERS && works_between(d, r);
}

static void tell(const struct dump *d, const struct run *r, struct evidence *e)
{
	char site[DUMP_SITE_BYTES];
	double each = (double)bytes_of(r, r->period);
	dump_site_text(d, r->at->stack, site);
	evidence_add_growth(e, &(struct evidence_growth){ .site = evidence_keep(e, site),
	                                                  .category = dump_category(d, r->at->stack),
	                                                  .leak = true,
	                                                  .per_step = each,
	                                                  .per_step_low = each,
	                                                  .per_step_high = each,
	                                                  .live = bytes_of(r, r->count),
	                                                  .steps = r->count / r->period });
}

/* What is no leak is not told beside one. */
static void keep_leaks(struct evidence *e)
{
	unsigned kept = 0;
	for (unsigned i = 0; i < e->growth_count; i++)
		if (e->growth[i].leak)
			e->growth[kept++] = e->growth[i];
	e->growth_count = kept;
}

static trz_status judge(const struct dump *d, const struct list *list, struct evidence *e)
{
	trz_status status = TRZ_OK;
	for (size_t i = 0, next; i < list->count && status == TRZ_OK; i = next) {
		for (next = i + 1; next < list->count && list->at[next].line == list->at[i].line; next++)
			;
		struct run run = { .at = &list->at[i], .count = next - i };
		status = find_period(&run);
		if (status != TRZ_OK)
			break;
		widen_period(d, &run);
		if (!are_copies(d, &run, list->trained, e))
			continue;
		keep_leaks(e);
		tell(d, &run, e);
	}
	return status;
}

trz_status dump_copies(const struct dump *d, int device, size_t event, const struct dump_moment *m, struct evidence *e)
{
	struct trace_map made = { 0 };
	struct list list = { .trained = SIZE_MAX };
	size_t first = d->traces[device].first;
	trz_status status = note_made(d, first, event, &made);
	if (status == TRZ_OK)
		status = gather(d, first, &made, m, &list);
	map_free(&made);
	if (status == TRZ_OK && list.count) {
		qsort(list.at, list.count, sizeof *list.at, by_line);
		status = judge(d, &list, e);
	}
	free(list.at);
	return status == TRZ_OK ? TRZ_OK : trz_fail(status, "no memory to look for copies of models");
}
