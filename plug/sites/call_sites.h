/* SPDX-License-Identifier: Apache-2.0
 *
 * Call sites of programs that have Python: the Python stack if the thread has one, else the native stack.
 */
#ifndef TRZ_CALL_SITES_H
#define TRZ_CALL_SITES_H

#include <stdbool.h>

#include "terrazzo.h"

/* From now on stacks are Python's where `stack` gives a number, from 1 to 2^62 - 1. Returns whether heaps that are open
 * have to join: sites_join had nothing to tell them before. */
bool sites_set_python(trz_frame_callback *stack, trz_frame_text_callback *text);

/* Makes a heap count its memory by these call sites, with `history` also keep them in its history; not if there are
 * neither Python's stacks nor libunwind, without which a native stack takes microseconds. Call it for a process's first
 * heap without a lock: it asks the dynamic linker. */
void sites_join(trz_heap *heap, bool history);

#endif
