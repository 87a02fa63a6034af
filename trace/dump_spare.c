/* SPDX-License-Identifier: Apache-2.0
 *
 * An attempt begins where the program allocates at the line at which it begins to try again.
 */
#include "dump_spare.h"

#include <string.h>

#include "bits.h"
#include "dump_sites.h"
#include "error.h"
#include "trace_map.h"

/* ---- attempts --------------------------------------------------------------------------------------- */

/* The program's next request; `end`: it is that event. */
static size_t next_request(const struct dump *d, size_t from, size_t end)
{
	while (from < end && d->events[from].action != DUMP_ALLOC && d->events[from].action != DUMP_OOM)
		from++;
	return from;
}

/* What a program goes on needing, whatever it tries again. */
static bool is_needed(const struct dump *d, uint32_t stack)
{
	enum evidence_category c = dump_category(d, stack);
	return c == CATEGORY_WEIGHTS || c == CATEGORY_GRADIENTS || c == CATEGORY_OPTIMIZER || c == CATEGORY_KV_CACHE;
}

/* Where the attempt that failed at `failure` began: at the line at which the program tries again. `failure`: unknown.
 * At the failing line itself models make layers, and libraries make do with less. */
static size_t find_attempt(const struct dump *d, size_t first, size_t failure, size_t end)
{
	uint32_t again = d->events[next_request(d, failure + 1, end)].stack;
	uint32_t line = dump_site(d, again)->frame;
	uint32_t failing = dump_site(d, d->events[failure].stack)->frame;
	if (line == UINT32_MAX || line == failing || is_needed(d, again))
		return failure;
	for (size_t i = failure; i > first; i--)
		if (d->events[i - 1].action == DUMP_ALLOC && dump_site(d, d->events[i - 1].stack)->frame == line)
			return i - 1;
	return failure;
}

static uint32_t frame_from_outside(const struct dump *d, uint32_t stack, uint32_t depth)
{
	return d->stack_frames[d->stacks[stack].first + d->stacks[stack].count - 1 - depth];
}

/* How many frames two stacks share, from the outermost on. */
static uint32_t shared_frames(const struct dump *d, uint32_t a, uint32_t b)
{
	uint32_t depth = 0, most = (uint32_t)min_u64(d->stacks[a].count, d->stacks[b].count);
	while (depth < most && frame_from_outside(d, a, depth) == frame_from_outside(d, b, depth))
		depth++;
	return depth;
}

/* Whether the function that made the failing call goes on, elsewhere: another thread would tell nothing. */
static bool goes_on(const struct dump *d, uint32_t failing, uint32_t again, uint32_t shared)
{
	if (shared >= min_u64(d->stacks[failing].count, d->stacks[again].count))
		return false;
	const struct dump_frame *left = &d->frames[frame_from_outside(d, failing, shared)];
	return strcmp(left->name, d->frames[frame_from_outside(d, again, shared)].name) == 0;
}

/* Whether an event is of a call that was `left` frames deep. What a call makes for models, its caller hardly keeps. */
static bool is_of_call(const struct dump *d, const struct dump_event *e, uint32_t failing, uint32_t left)
{
	enum evidence_category c = dump_category(d, e->stack);
	return (c == CATEGORY_ACTIVATIONS || c == CATEGORY_TEMPORARY) && shared_frames(d, failing, e->stack) >= left;
}

/* Notes by address what an attempt has allocated. If the program goes on elsewhere, as in a notebook's next cell, it is
 * what the failing call has, whose frames the program has left since. Errors: HOST_MEMORY. */
static trz_status note_attempt(const struct dump *d, size_t first, size_t failure, size_t end, struct trace_map *made)
{
	size_t from = find_attempt(d, first, failure, end);
	uint32_t failing = d->events[failure].stack, again = d->events[next_request(d, failure + 1, end)].stack;
	uint32_t shared = shared_frames(d, failing, again), left = from < failure ? 0 : shared + 1;
	trz_status status = TRZ_OK;
	if (again == failing || (left && !goes_on(d, failing, again, shared)))
		return TRZ_OK;
	for (size_t i = left ? first : from; i < failure && status == TRZ_OK; i++)
		if (d->events[i].action == DUMP_ALLOC && (!left || is_of_call(d, &d->events[i], failing, left)))
			status = map_set(made, d->events[i].address, (uint32_t)i);
	return status;
}

/* Of all attempts before `end`, what has not been freed since. Errors: HOST_MEMORY. */
static trz_status note_attempts(const struct dump *d, size_t first, size_t end, struct trace_map *made)
{
	trz_status status = TRZ_OK;
	size_t after = first;
	for (size_t i = first; i < end && status == TRZ_OK; i++) {
		if (d->events[i].action != DUMP_OOM)
			continue;
		status = note_attempt(d, after, i, end, made);
		after = i + 1;
	}
	for (size_t i = first; i < end; i++) {
		uint32_t at;
		if (d->events[i].action == DUMP_FREE_REQUESTED && map_get(made, d->events[i].address, &at) && at < i)
			map_remove(made, d->events[i].address);
	}
	return status;
}

static trz_status find_kept(const struct dump *d, size_t first, size_t event, const struct dump_moment *m,
                            struct evidence *e)
{
	struct trace_map made = { 0 };
	uint32_t at;
	trz_status status = note_attempts(d, first, event, &made);
	e->kept_failed = 0;
	for (size_t i = 0; i < m->block_count && status == TRZ_OK; i++) {
		const struct dump_block *b = &m->blocks[i];
		if (b->state == DUMP_HELD && map_get(&made, b->address, &at) && !is_needed(d, b->stack))
			e->kept_failed += b->size;
	}
	map_free(&made);
	return status;
}

/* ---- checkpoints ------------------------------------------------------------------------------------ */

/* What was read from files in the sizes of weights that were not. Errors: HOST_MEMORY. */
static trz_status find_loaded(const struct dump *d, const struct dump_moment *m, struct evidence *e)
{
	struct trace_map weights = { 0 };
	trz_status status = TRZ_OK;
	uint32_t count;
	e->loaded_twice = 0;
	for (size_t i = 0; i < m->block_count && status == TRZ_OK; i++) {
		const struct dump_block *b = &m->blocks[i];
		const struct dump_site *site = dump_site(d, b->stack);
		if (b->state == DUMP_HELD && site->category == CATEGORY_WEIGHTS && !site->of_file)
			status = map_count(&weights, b->size, &count);
	}
	for (size_t i = 0; i < m->block_count && status == TRZ_OK; i++) {
		const struct dump_block *b = &m->blocks[i];
		if (b->state != DUMP_HELD || !dump_site(d, b->stack)->of_file || !map_get(&weights, b->size, &count) || !count)
			continue;
		e->loaded_twice += b->size;
		status = map_set(&weights, b->size, count - 1);
	}
	map_free(&weights);
	return status;
}

trz_status dump_spare(const struct dump *d, int device, size_t event, const struct dump_moment *m, struct evidence *e)
{
	trz_status status = find_kept(d, d->traces[device].first, event, m, e);
	if (status == TRZ_OK)
		status = find_loaded(d, m, e);
	return status == TRZ_OK ? TRZ_OK : trz_fail(status, "no memory to look for what is kept without need");
}
