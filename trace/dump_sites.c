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
	uint32_t count = d->stacks[stack].count < LEVELS_MAX ? d->stacks[stack].count : LEVELS_MAX;
	for (uint32_t i = 0; i < count; i++)
		frames[i] = frame_of(dump_frame(d, stack, i));
	return count;
}

static struct dump_site look_up(const struct dump *d, uint32_t stack)
{
	struct call_frame frames[LEVELS_MAX];
	size_t count = frames_of(d, stack, frames);
	int level = call_site_level(frames, count);
	return (struct dump_site){
		.frame = level < 0 ? UINT32_MAX : d->stack_frames[d->stacks[stack].first + (uint32_t)level],
		.category = call_category(frames, count),
		.gradients = call_gradients(frames, count),
		.optimizer = call_optimizer(frames, count),
		.modules = call_modules(frames, count),
		.known = true,
		.begins_step = call_begins_step(frames, count),
		.of_program = call_is_of_program(frames, count),
		.of_file = call_is_of_file(frames, count),
		.of_model = call_is_of_model(frames, count),
		.has_python = call_has_python(frames, count),
		.in_own_loop = call_is_in_own_loop(frames, count),
	};
}

const struct dump_site *dump_site(const struct dump *d, uint32_t stack)
{
	struct dump_site *site = &d->sites[stack];
	if (!site->known)
		*site = look_up(d, stack);
	return site;
}

bool dump_site_text(const struct dump *d, uint32_t stack, char text[DUMP_SITE_BYTES])
{
	uint32_t frame = dump_site(d, stack)->frame;
	text[0] = '\0';
	if (frame != UINT32_MAX)
		dump_frame_text(&d->frames[frame], text);
	return frame != UINT32_MAX;
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

bool dump_is_same_line(const struct dump_frame *a, const struct dump_frame *b)
{
	struct call_frame one = frame_of(a), other = frame_of(b);
	return call_is_same_line(&one, &other);
}

bool dump_is_line_of_python(const struct dump_frame *f)
{
	struct call_frame frame = frame_of(f);
	return call_is_line_of_python(&frame);
}

bool dump_is_call_of_module(const struct dump_frame *f)
{
	struct call_frame frame = frame_of(f);
	return call_is_call_of_module(&frame);
}

bool dump_is_line_of_program(const struct dump_frame *f)
{
	struct call_frame frame = frame_of(f);
	return call_is_line_of_program(&frame);
}

bool dump_history_has_stacks(const struct dump *d, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		if (d->events[i].action == DUMP_ALLOC && d->stacks[d->events[i].stack].count)
			return true;
	return false;
}

void dump_mix_add(const struct dump *d, struct dump_mix *mix, uint32_t stack, uint64_t bytes)
{
	enum evidence_category category = dump_category(d, stack);
	mix->bytes[category] += bytes;
	if (mix->stack == 0 || mix->bytes[category] > mix->bytes[dump_category(d, mix->stack)])
		mix->stack = stack;
}
