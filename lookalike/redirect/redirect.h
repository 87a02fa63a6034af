/* SPDX-License-Identifier: Apache-2.0
 *
 * The internals of libterrazzo_redirect.so, which is preloaded into programs on a simulated device: calls of NVIDIA's
 * own CUDA runtime, be it linked into the program or a library, lead to the look-alike runtime. Nothing of NVIDIA's
 * runtime runs then. It is found by its functions' names, which a file has unless it was stripped of its symbols.
 */
#ifndef TRZ_REDIRECT_H
#define TRZ_REDIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lookalike/fatbin/span.h"

#pragma GCC visibility push(hidden)

/* ---- redirect_file.c: the runtime's functions in an ELF file ---- */

struct redirect_file {
	struct span image;                     /* the whole file, mapped */
	struct span segments, symbols, names;
};

struct redirect_function {
	const char *name;                      /* in the image */
	uint64_t address;                      /* as the file has it, before loading moves it */
	const uint8_t *code;                   /* `bytes` of it in the image */
	uint64_t bytes;
};

/* Maps a file that may have functions of the runtime. false: it has none, or is no readable ELF file of this kind. */
bool redirect_open(struct redirect_file *f, const char *path);
void redirect_close(struct redirect_file *f);
/* Whether what was loaded at `base` is this file, by its header; no, if the file was replaced since. */
bool redirect_is_loaded(const struct redirect_file *f, uintptr_t base);
/* The next function of the runtime from symbol `*at` on, which moves; false: there is none. */
bool redirect_next(const struct redirect_file *f, size_t *at, struct redirect_function *found);

/* ---- redirect_code.c: machine code ---- */

/* Where calls of a function lead. It is looked up at the first call, when the program can load libraries. */
struct redirect_target {
	void *function;                        /* at first code that calls redirect_find and goes on to what that returns */
	const char *name;
	int runtime;
};

/* Code that leads to targets, close enough to what it is called from. */
struct redirect_island {
	uint8_t *code;                         /* room for `room` entries; NULL: no island */
	struct redirect_target *targets;
	size_t count, room;
	size_t bytes;
};

/* An island within reach of all addresses from `low` to `high`. false: there is no room. */
bool redirect_make_island(struct redirect_island *island, uintptr_t low, uintptr_t high, size_t room);
/* Adds an entry that goes to a function of a runtime, or to `function`. */
void redirect_add(struct redirect_island *island, const char *name, int runtime);
void redirect_add_known(struct redirect_island *island, void *function);
const void *redirect_entry(const struct redirect_island *island, size_t entry);
/* Ends the making: from now on the code can run. */
bool redirect_close_island(struct redirect_island *island);

enum { REDIRECT_JUMP_BYTES = 5 };
/* Makes the pages of [low, high) writable, or code again; false, and errno: the system refuses. */
bool redirect_unlock(uintptr_t low, uintptr_t high);
bool redirect_lock(uintptr_t low, uintptr_t high);
/* Writes a jump to code of an island over what is unlocked. */
void redirect_jump(uintptr_t from, const void *to);

/* ---- redirect.c ---- */

void *redirect_find(struct redirect_target *target);

#pragma GCC visibility pop

#endif
