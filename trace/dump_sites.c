/* SPDX-License-Identifier: Apache-2.0
 *
 * The frames of a dump's stacks, for explain/.
 */
#include "dump_sites.h"

/* Levels of a stack that are looked at. */
enum { LEVELS_MAX = 200 };

static struct call_frame frame_of(const struct dump_frame *f)
{
	return (struct call_frame){ .file = f->file, .name = f->name, .line = f->line };
}

static size_t frames_of(const struct dump *d, uint32_t stack, struct call_frame frames[LEVELS_MAX])
{
	uint32_t count = stack < d->stack_count ? d->stacks[stack].count : 0;
	if (count > LEVELS_MAX)
		count = LEVELS_MAX;
	for (uint32_t i = 0; i < count; i++)
		frames[i] = frame_of(dump_frame(d, stack, i));
	return count;
}

int dump_site_level(const struct dump *d, uint32_t stack)
{
	struct call_frame frames[LEVELS_MAX];
	return call_site_level(frames, frames_of(d, stack, frames));
}

bool dump_site_text(const struct dump *d, uint32_t stack, char text[DUMP_SITE_BYTES])
{
	struct call_frame frames[LEVELS_MAX];
	return call_site_text(frames, frames_of(d, stack, frames), text);
}

void dump_frame_text(const struct dump_frame *f, char text[DUMP_SITE_BYTES])
{
	struct call_frame frame = frame_of(f);
	call_frame_text(&frame, text);
}

void dump_stack_text(const struct dump *d, uint32_t stack, char *text, size_t room)
{
	struct call_frame frames[LEVELS_MAX];
	call_stack_text(frames, frames_of(d, stack, frames), text, room);
}

unsigned dump_modules(const struct dump *d, uint32_t stack)
{
	struct call_frame frames[LEVELS_MAX];
	return call_modules(frames, frames_of(d, stack, frames));
}

bool dump_is_line_of_program(const struct dump_frame *f)
{
	struct call_frame frame = frame_of(f);
	return call_is_line_of_program(&frame);
}

bool dump_is_of_file(const struct dump *d, uint32_t stack)
{
	struct call_frame frames[LEVELS_MAX];
	return call_is_of_file(frames, frames_of(d, stack, frames));
}

bool dump_is_of_program(const struct dump *d, uint32_t stack)
{
	struct call_frame frames[LEVELS_MAX];
	return call_is_of_program(frames, frames_of(d, stack, frames));
}

bool dump_is_of_model(const struct dump *d, uint32_t stack)
{
	struct call_frame frames[LEVELS_MAX];
	return call_is_of_model(frames, frames_of(d, stack, frames));
}

bool dump_has_python(const struct dump *d, uint32_t stack)
{
	struct call_frame frames[LEVELS_MAX];
	return call_has_python(frames, frames_of(d, stack, frames));
}

bool dump_is_in_own_loop(const struct dump *d, uint32_t stack)
{
	struct call_frame frames[LEVELS_MAX];
	return call_is_in_own_loop(frames, frames_of(d, stack, frames));
}

enum call_gradients dump_gradients(const struct dump *d, uint32_t stack)
{
	struct call_frame frames[LEVELS_MAX];
	return call_gradients(frames, frames_of(d, stack, frames));
}

enum call_optimizer dump_optimizer(const struct dump *d, uint32_t stack)
{
	struct call_frame frames[LEVELS_MAX];
	return call_optimizer(frames, frames_of(d, stack, frames));
}

bool dump_history_has_stacks(const struct dump *d, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		if (d->events[i].action == DUMP_ALLOC && d->stacks[d->events[i].stack].count)
			return true;
	return false;
}

enum evidence_category dump_category(const struct dump *d, uint32_t stack)
{
	struct call_frame frames[LEVELS_MAX];
	return call_category(frames, frames_of(d, stack, frames));
}
