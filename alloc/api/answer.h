/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports that somebody asks a running process for, by a signal or by `terrazzo explain PID`. A thread makes them, so
 * that they come whatever the program does meanwhile; there is one only where an option asks for it.
 *
 * The socket has the abstract name "terrazzo-PID", so no file is left behind. Whoever connects sends two bytes:
 * ANSWER_TEXT or ANSWER_JSON, and a device or ANSWER_ANY_DEVICE. Only the process's own user, and root, get an answer.
 */
#ifndef TRZ_ALLOC_ANSWER_H
#define TRZ_ALLOC_ANSWER_H

#include "answer_words.h"
#include "heap/heap.h"

/* A heap is about to be opened: begins what its options ask for. Errors: IN_USE (the signal has a handler of the
 * program's), HOST_MEMORY. */
trz_status answer_begin(const struct config *config);

#endif
