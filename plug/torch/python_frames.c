/* SPDX-License-Identifier: Apache-2.0
 *
 * Python frames for histories, gathered in about the time of a hash look-up a level. A stack is a number: that of a
 * node in a tree, whose parent is the frame that called it and whose key is the code object and the instruction. A
 * node's text is made when it is first met, so that writing a snapshot needs no interpreter.
 *
 * PyTorch releases the interpreter's lock before it allocates, and taking it here could stall, or deadlock, a program.
 * The lock is not needed: while a thread is inside its allocation no other thread changes its frames, and the parts
 * that are read (code object, file name, line table) are constant. This file takes no reference and makes no Python
 * object.
 *
 * Compiled by python/terrazzo/torch for the interpreter that runs, since the layout of frames is its own. Needs
 * Python 3.11 or newer.
 */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <internal/pycore_frame.h>
#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe.h>
#endif

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "terrazzo.h"

enum { LEVELS = 32, NODES = 1 << 16, TABLE = 1 << 17 };

struct node {
	uint32_t parent;           /* 0: none */
	int instruction;
	int first_line, line;
	const PyCodeObject *code;  /* not a reference: see same() */
	const void *file_object;
	char *filename, *name;
};

/* Nodes are never removed: a program has only so many places. Below `count` they are constant. Guarded by `lock`. */
static struct node *nodes;
static uint32_t *table, count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A code object that took a dead one's address is a different one, unless file and place are equal. */
static bool same(const struct node *n, uint32_t parent, const PyCodeObject *code, int instruction)
{
	return n->parent == parent && n->code == code && n->instruction == instruction &&
	       n->file_object == code->co_filename && n->first_line == code->co_firstlineno;
}

/* Text that needs no conversion; only the interpreter could make other text. */
static char *copy_text(PyObject *text)
{
	if (!text || !PyUnicode_Check(text) || !PyUnicode_IS_COMPACT_ASCII(text))
		return strdup("(a name that is not ASCII)");
	return strdup((const char *)PyUnicode_1BYTE_DATA(text));
}

static unsigned read_number(const unsigned char **at)
{
	unsigned number = 0, shift = 0;
	do {
		number |= (**at & 0x3fu) << shift;
		shift += 6;
	} while (*(*at)++ & 0x40);
	return number;
}

/* The line of an instruction; -1: none. In the line table the first byte of an entry alone has its highest bit set: it
 * says how many code units the entry is for, and of which kind it is. PyCode_Addr2Line takes the code object's lock
 * where there is no global one, and crashes in a thread that has let go of the interpreter. */
static int line_of(const PyCodeObject *code, int instruction)
{
	enum { SAME = 10, PLAIN = 13, LONG = 14, NONE = 15 };
	const unsigned char *at = (const unsigned char *)PyBytes_AS_STRING(code->co_linetable);
	const unsigned char *end = at + PyBytes_GET_SIZE(code->co_linetable);
	int line = code->co_firstlineno, reached = 0;
	while (at < end) {
		unsigned first = *at++, kind = first >> 3 & 15;
		if (kind == PLAIN || kind == LONG) {
			unsigned step = read_number(&at);
			line += step & 1 ? -(int)(step >> 1) : (int)(step >> 1);
		} else if (kind >= SAME && kind < PLAIN) {
			line += (int)(kind - SAME);
		}
		while (at < end && !(*at & 0x80))
			at++;  /* columns */
		reached += (int)(((first & 7) + 1) * sizeof(_Py_CODEUNIT));
		if (instruction < reached)
			return kind == NONE ? -1 : line;
	}
	return -1;
}

static uint32_t add_node(uint32_t parent, PyCodeObject *code, int instruction, uint32_t slot)
{
	struct node made = {parent, instruction, code->co_firstlineno, line_of(code, instruction), code, code->co_filename,
	                    copy_text(code->co_filename), copy_text(code->co_name)};
	if (!made.filename || !made.name || count + 1 >= NODES) {
		free(made.filename);
		free(made.name);
		return parent;
	}
	nodes[++count] = made;
	table[slot] = count;
	return count;
}

static uint32_t node_of(uint32_t parent, PyCodeObject *code, int instruction)
{
	uint64_t h = ((uint64_t)(uintptr_t)code >> 4) * 0x9e3779b97f4a7c15u;
	h = (h ^ parent ^ (uint64_t)(unsigned)instruction << 32) * 0xd6e8feb86659fd93u;
	uint32_t slot = (uint32_t)(h >> 32) & (TABLE - 1);
	while (table[slot] && !same(&nodes[table[slot]], parent, code, instruction))
		slot = (slot + 1) & (TABLE - 1);
	return table[slot] ? table[slot] : add_node(parent, code, instruction, slot);
}

static _PyInterpreterFrame *innermost(const PyThreadState *thread)
{
#if PY_VERSION_HEX >= 0x030d0000
	return thread->current_frame;
#else
	return thread->cframe ? thread->cframe->current_frame : NULL;
#endif
}

/* Not a Python frame, but the interpreter's own, where it has been entered from C: without code. */
static bool is_mark(const _PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030e0000
	return frame->owner >= FRAME_OWNED_BY_INTERPRETER;
#elif PY_VERSION_HEX >= 0x030c0000
	return frame->owner == FRAME_OWNED_BY_CSTACK;
#else
	(void)frame;
	return false;
#endif
}

static PyCodeObject *code_of(_PyInterpreterFrame *frame)
{
#if PY_VERSION_HEX >= 0x030d0000
	return _PyFrame_GetCode(frame);
#else
	return frame->f_code;
#endif
}

/* The calling thread's newest stack, outermost level first: the next one mostly begins like it, and a level that is as
 * it was needs no look-up. Invariant: cache[i].number is the node of levels 0 .. i. */
struct cached {
	const PyCodeObject *code;
	const void *file_object;
	int instruction, first_line;
	uint32_t number;
};

static _Thread_local struct cached cache[LEVELS];
static _Thread_local size_t cached;

static bool is_cached(const struct cached *c, const PyCodeObject *code, int instruction)
{
	return c->code == code && c->instruction == instruction && c->file_object == code->co_filename &&
	       c->first_line == code->co_firstlineno;
}

/* The stack's number, from level `at` on; `number` is that of the levels before. */
static uint32_t look_up(struct cached *own, size_t at, uint32_t number, PyCodeObject *const *codes,
                        const int *instructions, size_t levels)
{
	pthread_mutex_lock(&lock);
	for (; at < levels; at++) {
		PyCodeObject *code = codes[levels - 1 - at];
		int instruction = instructions[levels - 1 - at];
		number = node_of(number, code, instruction);
		own[at] = (struct cached){code, code->co_filename, instruction, code->co_firstlineno, number};
	}
	pthread_mutex_unlock(&lock);
	cached = levels;
	return number;
}

TRZ_API uint64_t trz_torch_frames(void *user)
{
	PyCodeObject *codes[LEVELS];
	int instructions[LEVELS];
	size_t levels = 0, at = 0;
	uint32_t number = 0;
	struct cached *own = cache;
	(void)user;
	const PyThreadState *thread = PyGILState_GetThisThreadState();
	if (!thread || !nodes)
		return 0;
	for (_PyInterpreterFrame *f = innermost(thread); f && levels < LEVELS; f = f->previous) {
		if (is_mark(f))
			continue;
		codes[levels] = code_of(f);
		instructions[levels++] = _PyInterpreterFrame_LASTI(f) * (int)sizeof(_Py_CODEUNIT);
	}
	for (size_t known = cached; at < levels && at < known; at++) {
		if (!is_cached(&own[at], codes[levels - 1 - at], instructions[levels - 1 - at]))
			break;
		number = own[at].number;
	}
	return at < levels ? look_up(own, at, number, codes, instructions, levels) : number;
}

TRZ_API size_t trz_torch_frame_text(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	size_t told = 0;
	(void)user;
	pthread_mutex_lock(&lock);
	for (uint32_t at = (uint32_t)id; at && at <= count && told < capacity; at = nodes[at].parent)
		frames[told++] = (trz_frame){.filename = nodes[at].filename,
		                             .name = nodes[at].name,
		                             .line = nodes[at].line > 0 ? (unsigned)nodes[at].line : 0};
	pthread_mutex_unlock(&lock);
	return told;
}

/* Call this before the others. False: no host memory. */
TRZ_API bool trz_torch_frames_prepare(void)
{
	pthread_mutex_lock(&lock);
	if (!nodes) {
		table = calloc(TABLE, sizeof *table);
		nodes = table ? calloc(NODES, sizeof *nodes) : NULL;
	}
	bool ready = nodes != NULL;
	pthread_mutex_unlock(&lock);
	return ready;
}
