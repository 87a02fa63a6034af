/* SPDX-License-Identifier: Apache-2.0
 *
 * Goes back from the failure as long as stacks pass through the same call of a module. In a row of such calls the
 * outermost function whose lines differ begins each at the same line: where it comes back to that line, a call begins.
 */
#include "dump_running.h"

#include <stdlib.h>
#include <string.h>

#include "dump_sites.h"
#include "error.h"
#include "trace_map.h"

/* All but 1 / OLDER of what a line holds is from the pass that runs. */
enum { OLDER = 8 };

enum { LEVELS_MAX = 200 };

/* The lines of Python in a stack, outermost first: compiled code lies between them in other ways from call to call. */
struct lines {
	uint32_t at[LEVELS_MAX];
	size_t count;
};

/* The stacks of the allocations from `begin` on share `depth` lines with the failure's; lines of one function
 * follow. */
struct run {
	const struct dump *d;
	bool *python;              /* of each frame: it is a line of Python */
	struct lines failed;
	size_t begin, depth;
	bool one_function;
	bool trains;
};

static void lines_of(const struct run *r, uint32_t stack, struct lines *out)
{
	const struct dump_stack *s = &r->d->stacks[stack];
	out->count = 0;
	for (uint32_t i = s->count; i > 0 && out->count < LEVELS_MAX; i--) {
		uint32_t frame = r->d->stack_frames[s->first + i - 1];
		if (r->python[frame])
			out->at[out->count++] = frame;
	}
}

/* The line at which the stack leaves what all share; UINT32_MAX: it does not. */
static uint32_t line_in_run(const struct run *r, uint32_t stack)
{
	struct lines lines;
	lines_of(r, stack, &lines);
	return r->depth < lines.count ? lines.at[r->depth] : UINT32_MAX;
}

static bool same_function(const struct dump *d, uint32_t a, uint32_t b)
{
	bool known = a != UINT32_MAX && b != UINT32_MAX;
	return known && strcmp(d->frames[a].name, d->frames[b].name) == 0 &&
	       strcmp(d->frames[a].file, d->frames[b].file) == 0;
}

/* How many lines lead to the outermost module's code; 0: the stack is in none. */
static size_t lines_to_module(const struct dump *d, const struct lines *lines)
{
	for (size_t i = 0; i < lines->count; i++)
		if (dump_is_call_of_module(&d->frames[lines->at[i]]))
			return i + 1;
	return 0;
}

static size_t common(const struct run *r, uint32_t stack)
{
	struct lines lines;
	size_t i = 0;
	lines_of(r, stack, &lines);
	while (i < r->depth && i < lines.count && lines.at[i] == r->failed.at[i])
		i++;
	return i;
}

/* Autograd's threads have no stack where Python's lines alone are recorded. */
static bool is_told(const struct dump *d, const struct dump_event *e)
{
	return e->action == DUMP_ALLOC && dump_site(d, e->stack)->has_python;
}

static void find_run(struct run *r, size_t first, size_t event, size_t least)
{
	const struct dump *d = r->d;
	r->begin = event;
	for (size_t i = event; i > first; i--) {
		const struct dump_event *e = &d->events[i - 1];
		if (!is_told(d, e))
			continue;
		size_t shared = common(r, e->stack);
		if (shared < least)
			break;
		const struct dump_site *site = dump_site(d, e->stack);
		r->trains |= site->optimizer != CALL_NO_OPTIMIZER || site->gradients == CALL_SETS_GRADIENTS;
		r->depth = shared < r->depth ? shared : r->depth;
		r->begin = i - 1;
	}
	uint32_t failed = r->depth < r->failed.count ? r->failed.at[r->depth] : UINT32_MAX;
	r->one_function = true;
	for (size_t i = r->begin; i < event; i++)
		if (is_told(d, &d->events[i]))
			r->one_function &= same_function(d, line_in_run(r, d->events[i].stack), failed);
}

/* Where the run comes back for the last time to the line that it began with. */
static size_t find_newest(const struct run *r, size_t event)
{
	const struct dump *d = r->d;
	uint32_t first = line_in_run(r, d->events[r->begin].stack), last = first;
	size_t newest = r->begin;
	bool left = false;
	for (size_t i = r->begin; i < event; i++) {
		if (!is_told(d, &d->events[i]))
			continue;
		uint32_t line = line_in_run(r, d->events[i].stack);
		newest = line == first && last != first ? i : newest;
		left |= line != first;
		last = line;
	}
	return left ? newest : event;
}

trz_status dump_running(const struct dump *d, int device, size_t event, size_t *begin)
{
	const struct dump_trace *t = &d->traces[device];
	struct run r = { .d = d };
	*begin = event;
	if (event >= t->first + t->count || d->events[event].action != DUMP_OOM)
		return TRZ_OK;
	r.python = calloc(d->frame_count + 1, sizeof *r.python);
	if (!r.python)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to look for the pass that runs");
	for (size_t i = 0; i < d->frame_count; i++)
		r.python[i] = dump_is_line_of_python(&d->frames[i]);
	lines_of(&r, d->events[event].stack, &r.failed);
	r.depth = r.failed.count;
	size_t least = lines_to_module(d, &r.failed);
	if (least > 0)
		find_run(&r, t->first, event, least);
	if (least > 0 && r.begin < event && !r.trains && r.one_function)
		*begin = find_newest(&r, event);
	free(r.python);
	return TRZ_OK;
}

/* What a line holds, in all and of what has been made since `since`. */
static void sum_line(const struct dump *d, const struct dump_moment *m, const struct trace_map *made, const char *site,
                     uint64_t *held, uint64_t *recent)
{
	char text[DUMP_SITE_BYTES];
	uint32_t at;
	*held = *recent = 0;
	for (size_t i = 0; i < m->block_count; i++) {
		const struct dump_block *b = &m->blocks[i];
		if (b->state != DUMP_HELD || !dump_site_text(d, b->stack, text) || !evidence_same_site(text, site))
			continue;
		*held += b->size;
		*recent += map_get(made, b->address, &at) ? b->size : 0;
	}
}

trz_status dump_pardon_since(const struct dump *d, size_t since, size_t event, const struct dump_moment *m,
                             struct evidence *e)
{
	struct trace_map made = { 0 };
	trz_status status = TRZ_OK;
	uint64_t held, recent;
	for (size_t i = since; i < event && status == TRZ_OK; i++)
		if (d->events[i].action == DUMP_ALLOC)
			status = map_set(&made, d->events[i].address, 0);
	for (unsigned i = 0; i < e->growth_count && status == TRZ_OK && since < event; i++) {
		struct evidence_growth *g = &e->growth[i];
		if (!g->leak)
			continue;
		sum_line(d, m, &made, g->site, &held, &recent);
		bool pardoned = recent > 0 && held - recent <= held / OLDER;
		g->leak &= !pardoned;
		g->overfilled |= pardoned;
	}
	map_free(&made);
	return status == TRZ_OK ? TRZ_OK : trz_fail(status, "no memory to look at the pass that runs");
}
