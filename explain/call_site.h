/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call stack says: the line of the program, and what its memory is for.
 */
#ifndef TRZ_EXPLAIN_CALL_SITE_H
#define TRZ_EXPLAIN_CALL_SITE_H

#include "evidence.h"

enum { CALL_SITE_BYTES = 160 };

/* One level. The texts are not NULL; "": not known. */
struct call_frame {
	const char *file, *name;
	unsigned line;             /* 0: not known */
};

/* Stacks are innermost first. */

/* The level of the innermost frame of the program itself, rather than of PyTorch, Python or their libraries; where
 * there is none, of the innermost frame outside the allocator; -1: the stack is not known. */
int call_site_level(const struct call_frame *frames, size_t count);

/* "train.py:31 forward": false if nothing is known. */
bool call_site_text(const struct call_frame *frames, size_t count, char text[CALL_SITE_BYTES]);

/* The program's lines of a stack, separated by '\n'. */
void call_stack_text(const struct call_frame *frames, size_t count, char *text, size_t room);

/* Of a library or a program without lines: not one of the interpreter's, of any language. */
bool call_is_native(const struct call_frame *frame);

/* How many modules deep the stack is in a model; 0: outside of models. */
unsigned call_modules(const struct call_frame *frames, size_t count);

/* Whether the site is a line of Python of the program itself. */
bool call_is_of_program(const struct call_frame *frames, size_t count);

/* Whether it reads a file of tensors, such as a checkpoint. */
bool call_is_of_file(const struct call_frame *frames, size_t count);

/* Whether a loop over steps may begin here: in a line of the program outside of models, and for none of their purposes.
 * A loop over a model's layers begins in the model. */
bool call_begins_step(const struct call_frame *frames, size_t count);

/* Whether two stacks are of one place of one loop, wherever that was called from: equal from the innermost level to the
 * program's own line that calls the model, or allocates. */
bool call_is_same_loop(const struct call_frame *a, size_t count_a, const struct call_frame *b, size_t count_b);

/* Whether it is in a model with parts, or in a module of the program's own: not in a layer that PyTorch has. */
bool call_is_of_model(const struct call_frame *frames, size_t count);

/* As far as frames tell. */
enum evidence_category call_category(const struct call_frame *frames, size_t count);

#endif
