/* SPDX-License-Identifier: Apache-2.0
 *
 * Python frames for histories, gathered in about the time of a hash look-up a level. A stack is the number of a node in
 * a tree: its parent is the frame that called it, its key the code object and the instruction. A node's texts are made
 * when it is first met, so that writing a snapshot needs no interpreter.
 *
 * PyTorch releases the interpreter's lock before it allocates, and taking it here could stall, or deadlock, a program.
 * The lock is not needed: while a thread is inside its allocation no other thread changes its frames, and the parts
 * that are read (code object, file name, line table) are constant. This file takes no reference and makes no Python
 * object. When the interpreter ends it frees the frames of threads that still run, so no stack is read from then on.
 *
 * Compiled by python/terrazzo/frames.py for the interpreter that runs, since the layout of frames is its own. Needs
 * Python 3.11 or newer.
 */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <internal/pycore_frame.h>
#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe.h>
#endif

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "terrazzo.h"

enum { LEVELS = 32, NODES = 1 << 16, TABLE = 1 << 17 };

struct node {
	uint32_t parent;           /* 0: none */
	int instruction, line;
	const PyCodeObject *code;  /* not a reference: see `deaths` */
	uint64_t seen;             /* `deaths` when the code last had these texts */
	char *filename, *name;
};

/* Nodes are never removed: a program has only so many places. Up to `count` they are constant, except `seen`. Guarded
 * by `lock`. */
static struct node *nodes;
static uint32_t *table, count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* How many code objects have died so far. Another one may have been made at the same address: then the texts are
 * compared. */
static _Atomic(uint64_t) deaths;

static void note_death(void)
{
	atomic_fetch_add_explicit(&deaths, 1, memory_order_relaxed);
}

#if PY_VERSION_HEX >= 0x030c0000
static int watch_code(PyCodeEvent event, PyCodeObject *code)
{
	(void)code;
	if (event == PY_CODE_EVENT_DESTROY)
		note_death();
	return 0;
}

/* Watches this interpreter; code of others may get the names of code that has died. */
static void watch_deaths(void)
{
	if (PyCode_AddWatcher(watch_code) < 0)
		PyErr_Clear();  /* there are eight watchers already: code may get the names of code that has died */
}
#else
static destructor code_dealloc;

static void dealloc_noted(PyObject *code)
{
	note_death();
	code_dealloc(code);
}

static void watch_deaths(void)
{
	code_dealloc = PyCode_Type.tp_dealloc;
	PyCode_Type.tp_dealloc = dealloc_noted;
}
#endif

/* ---- texts ---- */

enum { TEXT_BYTES = 512 };

static size_t put_utf8(char *to, Py_UCS4 c)
{
	if (c >= 0xd800 && c < 0xe000)
		c = '?';  /* a byte of a path that is not text, which UTF-8 has no form for */
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
	for (unsigned i = more; i > 0; i--, c >>= 6)
		to[i] = (char)(0x80 | (c & 0x3f));
	to[0] = (char)(0xffu << (7 - more) | c);
	return more + 1;
}

/* A text in UTF-8: as it lies there, or in `room`, which may cut it short. The interpreter's own functions would make
 * an object of it. */
static const char *text_of(PyObject *text, char room[TEXT_BYTES])
{
	size_t used = 0;
	if (!text || !PyUnicode_Check(text))
		return "(no name)";
	if (PyUnicode_IS_COMPACT_ASCII(text))
		return (const char *)PyUnicode_1BYTE_DATA(text);
	for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text) && used < TEXT_BYTES - 4; i++)
		used += put_utf8(room + used, PyUnicode_READ(PyUnicode_KIND(text), PyUnicode_DATA(text), i));
	room[used] = '\0';
	return room;
}

static bool is_text(const char *known, PyObject *text)
{
	char room[TEXT_BYTES];
	return strcmp(known, text_of(text, room)) == 0;
}

static char *copy_text(PyObject *text)
{
	char room[TEXT_BYTES];
	return strdup(text_of(text, room));
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

/* The line of an instruction; -1: none. In the line table only the first byte of an entry has its highest bit set; it
 * says how many code units the entry is for, and of which kind it is. PyCode_Addr2Line would not do: without a global
 * lock it takes the code object's, and crashes in a thread that has released the interpreter. */
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

static bool has_texts(const struct node *n, PyCodeObject *code)
{
	return is_text(n->name, code->co_name) && is_text(n->filename, code->co_filename) &&
	       n->line == line_of(code, n->instruction);
}

static bool same(struct node *n, uint32_t parent, PyCodeObject *code, int instruction, uint64_t now)
{
	if (n->parent != parent || n->code != code || n->instruction != instruction)
		return false;
	if (n->seen != now && !has_texts(n, code))
		return false;
	n->seen = now;
	return true;
}

static uint32_t add_node(uint32_t parent, PyCodeObject *code, int instruction, uint64_t now, uint32_t slot)
{
	if (count + 1 >= NODES)
		return parent;
	struct node made = {parent, instruction, line_of(code, instruction), code, now,
	                    copy_text(code->co_filename), copy_text(code->co_name)};
	if (!made.filename || !made.name) {
		free(made.filename);
		free(made.name);
		return parent;
	}
	nodes[++count] = made;
	table[slot] = count;
	return count;
}

static uint32_t node_of(uint32_t parent, PyCodeObject *code, int instruction, uint64_t now)
{
	uint64_t h = ((uint64_t)(uintptr_t)code >> 4) * 0x9e3779b97f4a7c15u;
	h = (h ^ parent ^ (uint64_t)(unsigned)instruction << 32) * 0xd6e8feb86659fd93u;
	uint32_t slot = (uint32_t)(h >> 32) & (TABLE - 1);
	while (table[slot] && !same(&nodes[table[slot]], parent, code, instruction, now))
		slot = (slot + 1) & (TABLE - 1);
	return table[slot] ? table[slot] : add_node(parent, code, instruction, now, slot);
}

static _PyInterpreterFrame *innermost(const PyThreadState *thread)
{
#if PY_VERSION_HEX >= 0x030d0000
	return thread->current_frame;
#else
	return thread->cframe ? thread->cframe->current_frame : NULL;
#endif
}

/* Whether a frame is not Python's but the interpreter's own, made where C has entered it; it has no code. */
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

/* The calling thread's newest stack, outermost level first. The next stack mostly begins like it, and levels that are
 * the same need no look-up. Invariant: levels[i].number is the node of levels 0 .. i; `seen` is as in nodes. */
struct cache {
	uint64_t seen;
	size_t count;
	struct {
		const PyCodeObject *code;
		int instruction;
		uint32_t number;
	} levels[LEVELS];
};

static _Thread_local struct cache cache;

/* A stack, innermost level first. */
struct stack {
	size_t count;
	PyCodeObject *codes[LEVELS];
	int instructions[LEVELS];
};

/* Looks up a stack's levels from `at` on; the cache has those before. */
static void look_up(struct cache *c, size_t at, const struct stack *s, uint64_t now)
{
	uint32_t number = at ? c->levels[at - 1].number : 0;
	pthread_mutex_lock(&lock);
	for (; at < s->count; at++) {
		size_t i = s->count - 1 - at;
		number = node_of(number, s->codes[i], s->instructions[i], now);
		c->levels[at].code = s->codes[i];
		c->levels[at].instruction = s->instructions[i];
		c->levels[at].number = number;
	}
	pthread_mutex_unlock(&lock);
	c->count = s->count;
	c->seen = now;
}

/* How many threads are reading their frames; ENDED on top: no other may begin. */
static _Atomic(uint32_t) readers;
#define ENDED ((uint32_t)1 << 31)

static bool begin_reading(void)
{
	if (!(atomic_fetch_add_explicit(&readers, 1, memory_order_acquire) & ENDED))
		return true;
	atomic_fetch_sub_explicit(&readers, 1, memory_order_relaxed);
	return false;
}

static void end_reading(void)
{
	atomic_fetch_sub_explicit(&readers, 1, memory_order_release);
}

/* The parent's other threads do not read in a child. */
static void note_fork(void)
{
	atomic_fetch_and(&readers, ENDED);
}

static struct stack read_stack(void)
{
	struct stack s;
	s.count = 0;
	const PyThreadState *thread = PyGILState_GetThisThreadState();
	for (_PyInterpreterFrame *f = thread ? innermost(thread) : NULL; f && s.count < LEVELS; f = f->previous) {
		if (is_mark(f))
			continue;
		s.codes[s.count] = code_of(f);
		s.instructions[s.count++] = _PyInterpreterFrame_LASTI(f) * (int)sizeof(_Py_CODEUNIT);
	}
	return s;
}

/* The number of the stack's node. Its code objects live as long as its frames. */
static uint32_t number_of(const struct stack *s)
{
	struct cache *c = &cache;
	size_t at = 0;
	uint64_t now = atomic_load_explicit(&deaths, memory_order_relaxed);
	size_t known = c->seen == now ? c->count : 0;
	for (; at < s->count && at < known; at++) {
		size_t i = s->count - 1 - at;
		if (c->levels[at].code != s->codes[i] || c->levels[at].instruction != s->instructions[i])
			break;
	}
	if (at < s->count)
		look_up(c, at, s, now);
	return s->count ? c->levels[s->count - 1].number : 0;
}

TRZ_API uint64_t trz_python_stack(void *user)
{
	uint64_t number = 0;
	(void)user;
	if (nodes && begin_reading()) {
		struct stack s = read_stack();
		number = number_of(&s);
		end_reading();
	}
	return number;
}

/* From now on there are no stacks. Call this before the interpreter ends. */
TRZ_API void trz_python_end(void)
{
	atomic_fetch_or(&readers, ENDED);
	while (atomic_load_explicit(&readers, memory_order_acquire) != ENDED)
		sched_yield();
}

TRZ_API size_t trz_python_text(void *user, uint64_t id, trz_frame *frames, size_t capacity)
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

/* Call this before the others, from a thread of Python. False: no host memory. */
TRZ_API bool trz_python_prepare(void)
{
	PyGILState_STATE state = PyGILState_Ensure();
	pthread_mutex_lock(&lock);
	if (!nodes) {
		table = table ? table : calloc(TABLE, sizeof *table);
		nodes = table ? calloc(NODES, sizeof *nodes) : NULL;
		if (nodes) {
			watch_deaths();
			pthread_atfork(NULL, NULL, note_fork);
		}
	}
	bool ready = nodes != NULL;
	pthread_mutex_unlock(&lock);
	PyGILState_Release(state);
	return ready;
}
