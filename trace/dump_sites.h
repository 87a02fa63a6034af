/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call stack shows: the program's line, and what its memory is for.
 */
#ifndef TRZ_TRACE_DUMP_SITES_H
#define TRZ_TRACE_DUMP_SITES_H

#include "call_site.h"
#include "trace_dump.h"

enum { DUMP_SITE_BYTES = CALL_SITE_BYTES };

/* The level of the innermost frame that is the program's own, not PyTorch's, Python's or a library's; if none is, of
 * the innermost frame; -1: the stack is not known. */
int dump_site_level(const struct dump *d, uint32_t stack);

/* "train.py:31 forward": false if nothing is known. */
bool dump_site_text(const struct dump *d, uint32_t stack, char text[DUMP_SITE_BYTES]);

/* The same of one frame. */
void dump_frame_text(const struct dump_frame *f, char text[DUMP_SITE_BYTES]);

/* The program's lines of a stack, innermost first, separated by '\n'. */
void dump_stack_text(const struct dump *d, uint32_t stack, char *text, size_t room);

/* How many modules deep a stack is in a model; 0: outside of models. */
unsigned dump_modules(const struct dump *d, uint32_t stack);

/* call_is_line_of_program */
bool dump_is_line_of_program(const struct dump_frame *f);

/* call_is_of_file */
bool dump_is_of_file(const struct dump *d, uint32_t stack);

/* call_is_of_program */
bool dump_is_of_program(const struct dump *d, uint32_t stack);

/* call_is_of_model. One pass through a model leaves at most DUMP_OF_A_PART blocks of a line for each of its parts. */
enum { DUMP_OF_A_PART = 16 };
bool dump_is_of_model(const struct dump *d, uint32_t stack);

/* call_has_python, call_is_in_own_loop, call_gradients, call_optimizer */
bool dump_has_python(const struct dump *d, uint32_t stack);
bool dump_is_in_own_loop(const struct dump *d, uint32_t stack);
enum call_gradients dump_gradients(const struct dump *d, uint32_t stack);
enum call_optimizer dump_optimizer(const struct dump *d, uint32_t stack);

/* Whether any allocation among events first .. end - 1 has a stack. None has with context="state", where only the
 * blocks that are live at the end have stacks. */
bool dump_history_has_stacks(const struct dump *d, size_t first, size_t end);

/* The category, as far as the frames tell it. */
enum evidence_category dump_category(const struct dump *d, uint32_t stack);

#endif
