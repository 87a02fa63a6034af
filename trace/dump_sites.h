/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call stack shows: the program's line, and what its memory is for.
 */
#ifndef TRZ_TRACE_DUMP_SITES_H
#define TRZ_TRACE_DUMP_SITES_H

#include "call_site.h"
#include "trace_dump.h"

enum { DUMP_SITE_BYTES = CALL_SITE_BYTES };

/* What explain/call_site.h finds in a stack, looked up when it is first asked for. No two threads may ask at once. */
const struct dump_site *dump_site(const struct dump *d, uint32_t stack);

static inline enum evidence_category dump_category(const struct dump *d, uint32_t stack)
{
	return dump_site(d, stack)->category;
}

/* "train.py:31 forward": false if nothing is known. */
bool dump_site_text(const struct dump *d, uint32_t stack, char text[DUMP_SITE_BYTES]);

/* The same of one frame. */
void dump_frame_text(const struct dump_frame *f, char text[DUMP_SITE_BYTES]);

/* The program's lines of a stack, innermost first, separated by '\n'. */
void dump_stack_text(const struct dump *d, uint32_t stack, char *text, size_t room);

/* call_is_same_line */
bool dump_is_same_line(const struct dump_frame *a, const struct dump_frame *b);

/* call_is_line_of_python, call_is_call_of_module */
bool dump_is_line_of_python(const struct dump_frame *f);
bool dump_is_call_of_module(const struct dump_frame *f);

/* call_is_line_of_program */
bool dump_is_line_of_program(const struct dump_frame *f);

/* One pass through a model leaves at most so many blocks of a line for each of the model's parts. */
enum { DUMP_OF_A_PART = 16 };

/* Whether any allocation among events first .. end - 1 has a stack. None has with context="state", where only the
 * blocks that are live at the end have stacks. */
bool dump_history_has_stacks(const struct dump *d, size_t first, size_t end);

/* What a line holds, by category: it may make memory of several, such as the workspace of a product beside a gradient.
 * That which it holds most of counts. */
struct dump_mix {
	uint64_t bytes[CATEGORY_COUNT];
	uint32_t stack;            /* of that category; 0: the line holds nothing */
};
void dump_mix_add(const struct dump *d, struct dump_mix *mix, uint32_t stack, uint64_t bytes);

#endif
