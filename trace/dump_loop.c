/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks from the outermost frame inwards, only the program's own frames.
 */
#include "dump_loop.h"

#include <stdlib.h>
#include <string.h>

#include "dump_sites.h"
#include "error.h"

/* Of the newest steps so many are looked at. */
enum { STEPS_MAX = 256 };

enum { LEVELS_MAX = 200 };

struct frames {
	uint32_t at[LEVELS_MAX];   /* outermost first */
	size_t count;
};

static void frames_of(const struct dump *d, uint32_t stack, struct frames *out)
{
	out->count = 0;
	for (uint32_t i = d->stacks[stack].count; i > 0 && out->count < LEVELS_MAX; i--)
		if (dump_is_line_of_program(dump_frame(d, stack, i - 1)))
			out->at[out->count++] = d->stack_frames[d->stacks[stack].first + i - 1];
}

static bool same_function(const struct dump *d, uint32_t a, uint32_t b)
{
	return strcmp(d->frames[a].name, d->frames[b].name) == 0 && strcmp(d->frames[a].file, d->frames[b].file) == 0;
}

/* How many levels of `a`, from the outermost on, may be the same calls in `b`: up to a function that both went through,
 * called from equal lines. */
static size_t common(const struct dump *d, const struct frames *a, const struct frames *b)
{
	size_t least = a->count < b->count ? a->count : b->count, i = 0;
	while (i < least && a->at[i] == b->at[i])
		i++;
	return i < least && same_function(d, a->at[i], b->at[i]) ? i + 1 : i;
}

/* The innermost function of a step: that of its first stack which all others have, too. `seen`: the number of the
 * newest step that each stack has been seen in. */
static void look_at_step(const struct dump *d, size_t first, size_t end, uint32_t number, uint32_t *seen,
                         struct frames *out)
{
	struct frames other;
	out->count = 0;
	for (size_t i = first; i < end; i++) {
		const struct dump_event *e = &d->events[i];
		if (e->action != DUMP_ALLOC || seen[e->stack] == number)
			continue;
		seen[e->stack] = number;
		frames_of(d, e->stack, &other);
		if (out->count == 0)
			*out = other;
		else if (other.count)
			out->count = common(d, out, &other);
	}
}

static bool same_loop(const struct dump *d, const struct frames *a, const struct frames *b)
{
	return a->count == b->count && a->count && common(d, a, b) == a->count;
}

/* What most of the newest steps have in common, by the vote of Boyer and Moore. */
static void vote(const struct dump *d, const struct dump_steps *s, uint32_t *seen, struct frames *chosen)
{
	size_t votes = 0, from = s->count - 1 > STEPS_MAX ? s->count - 1 - STEPS_MAX : 0;
	struct frames step;
	chosen->count = 0;
	for (size_t i = from; i + 1 < s->count; i++) {
		look_at_step(d, s->at[i], s->at[i + 1], (uint32_t)(i + 1), seen, &step);
		if (votes == 0)
			*chosen = step;
		if (same_loop(d, chosen, &step))
			votes++;
		else if (votes)
			votes--;
	}
}

trz_status dump_loop(const struct dump *d, const struct dump_steps *steps, struct dump_loop *out)
{
	struct frames chosen;
	uint32_t *seen = calloc(d->stack_count, sizeof *seen);
	*out = (struct dump_loop){ 0 };
	if (!seen)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to look for the loop of %zu steps", steps->count);
	vote(d, steps, seen, &chosen);
	free(seen);
	out->stack = malloc((chosen.count + 1) * sizeof *out->stack);
	if (!out->stack)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory for a loop %zu functions deep", chosen.count);
	memcpy(out->stack, chosen.at, chosen.count * sizeof *out->stack);
	out->depth = chosen.count;
	return TRZ_OK;
}

void dump_loop_free(struct dump_loop *l)
{
	free(l->stack);
	*l = (struct dump_loop){ 0 };
}

/* The loop's own frame in a stack: its line is where the loop has called what allocates. NULL: the stack is not of the
 * loop. */
static const struct dump_frame *frame_of_loop(const struct dump *d, const struct dump_loop *l, uint32_t stack)
{
	struct frames frames;
	frames_of(d, stack, &frames);
	if (l->depth == 0 || frames.count < l->depth)
		return NULL;
	for (size_t i = 0; i + 1 < l->depth; i++)
		if (frames.at[i] != l->stack[i])
			return NULL;
	uint32_t own = frames.at[l->depth - 1];
	return same_function(d, own, l->stack[l->depth - 1]) ? &d->frames[own] : NULL;
}

/* The line with the most bytes. `of_stack`: what each stack holds; `of_line`: zeros, one for each frame. */
static const struct dump_frame *find_line(const struct dump *d, const struct dump_loop *l,
                                          const struct dump_frame *site, const uint64_t *of_stack, uint64_t *of_line)
{
	const struct dump_frame *most = NULL;
	for (size_t i = 1; i < d->stack_count; i++) {
		bool of_site = of_stack[i] && dump_site(d, (uint32_t)i)->frame == site - d->frames;
		const struct dump_frame *line = of_site ? frame_of_loop(d, l, (uint32_t)i) : NULL;
		if (!line)
			continue;
		of_line[line - d->frames] += of_stack[i];
		if (!most || of_line[line - d->frames] > of_line[most - d->frames])
			most = line;
	}
	return most;
}

trz_status dump_loop_line(const struct dump *d, const struct dump_loop *l, const struct dump_moment *m,
                          const struct dump_frame *site, struct evidence *e, const char **line)
{
	char text[DUMP_SITE_BYTES];
	uint64_t *of_stack = calloc(d->stack_count, sizeof *of_stack), *of_line = calloc(d->frame_count, sizeof *of_line);
	const struct dump_frame *most = NULL;
	for (size_t i = 0; of_stack && i < m->block_count; i++)
		if (m->blocks[i].state == DUMP_HELD)
			of_stack[m->blocks[i].stack] += m->blocks[i].size;
	if (of_stack && of_line)
		most = find_line(d, l, site, of_stack, of_line);
	bool done = of_stack && of_line;
	free(of_stack);
	free(of_line);
	*line = NULL;
	if (!done)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to look for what called %zu stacks", d->stack_count);
	if (!most || most == site)
		return TRZ_OK;
	dump_frame_text(most, text);
	*line = evidence_keep(e, text);
	return TRZ_OK;
}
