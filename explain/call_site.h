/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call stack says: the line of the program, and what its memory is for.
 */
#ifndef TRZ_EXPLAIN_CALL_SITE_H
#define TRZ_EXPLAIN_CALL_SITE_H

#include "evidence.h"

enum { CALL_SITE_BYTES = 160 };

/* One level of a stack. The texts are never NULL; "": not known. */
struct call_frame {
	const char *file, *name;
	unsigned line;             /* 0: not known */
};

/* Stacks are innermost first. */

/* The level of the innermost frame of the program itself, rather than of PyTorch, Python or their libraries; if there
 * is none, of autograd's operation, else of another frame outside the allocator; -1: the stack is not known. */
int call_site_level(const struct call_frame *frames, size_t count);

/* "train.py:31 forward": false if nothing is known. */
bool call_site_text(const struct call_frame *frames, size_t count, char text[CALL_SITE_BYTES]);

/* The same of one frame. */
void call_frame_text(const struct call_frame *frame, char text[CALL_SITE_BYTES]);

/* The program's lines of a stack, separated by '\n'. */
void call_stack_text(const struct call_frame *frames, size_t count, char *text, size_t room);

/* Whether a frame is compiled code without line numbers, rather than a line of an interpreted language. */
bool call_is_native(const struct call_frame *frame);

/* Whether a frame is Python's own compiled code, or has neither a file nor a name: between the lines of a program it
 * says nothing, and from Python 3.11 on it differs from run to run of one line. */
bool call_is_of_interpreter(const struct call_frame *frame);

/* Whether a frame is compiled code of PyTorch's, which says what it does. */
bool call_is_operation(const struct call_frame *frame);

/* How many modules deep the stack is in a model; 0: outside models. */
unsigned call_modules(const struct call_frame *frames, size_t count);

/* Whether a frame is a line of Python, anybody's. */
bool call_is_line_of_python(const struct call_frame *frame);

/* Whether a frame is PyTorch's call of a module: the module's own code follows. */
bool call_is_call_of_module(const struct call_frame *frame);

/* Whether a frame is a line of the program's own Python. */
bool call_is_line_of_program(const struct call_frame *frame);

/* Whether the call site is one. */
bool call_is_of_program(const struct call_frame *frames, size_t count);

/* Whether two frames are one line. A notebook numbers each run of a cell: "<ipython-input-12-0a1b2c>". */
bool call_is_same_line(const struct call_frame *a, const struct call_frame *b);

/* Whether the stack reads a file of tensors, such as a checkpoint. */
bool call_is_of_file(const struct call_frame *frames, size_t count);

/* Whether a step may begin here: at a line of the program, outside models, whose memory is for no known purpose. Loops
 * over a model's layers are inside the model. */
bool call_begins_step(const struct call_frame *frames, size_t count);

/* Whether two stacks are at one place of one loop, wherever the loop was called from: they are equal from the innermost
 * level out to the program's line that calls the model, or allocates. */
bool call_is_same_loop(const struct call_frame *a, size_t count_a, const struct call_frame *b, size_t count_b);

/* Whether the stack is in a model with parts or in a module of the program's own, not just in a layer of PyTorch's. */
bool call_is_of_model(const struct call_frame *frames, size_t count);

/* Whether a stack has lines of Python; a stack of autograd's threads has none. */
bool call_has_python(const struct call_frame *frames, size_t count);

/* Whether the stack passes through a function of PyTorch's that loops for one result: a Jacobian by rows, a vmap by
 * chunks, a pipeline's schedule. */
bool call_is_in_own_loop(const struct call_frame *frames, size_t count);

/* How a stack comes to compute gradients: backward() sets .grad, torch.autograd.grad() returns them. */
enum call_gradients { CALL_NO_GRADIENTS, CALL_SETS_GRADIENTS, CALL_ASKS_GRADIENTS };
enum call_gradients call_gradients(const struct call_frame *frames, size_t count);

/* What an optimizer does in the stack: its step, or clearing gradients. */
enum call_optimizer { CALL_NO_OPTIMIZER, CALL_OPTIMIZER_STEPS, CALL_OPTIMIZER_CLEARS };
enum call_optimizer call_optimizer(const struct call_frame *frames, size_t count);

/* What the memory is for, as far as the frames tell. */
enum evidence_category call_category(const struct call_frame *frames, size_t count);

#endif
