/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports that a running process makes on request, by a signal or by `terrazzo explain PID`. A thread of the library
 * makes them, so that they come whatever the program is doing; it exists only if an option asks for it.
 *
 * The socket has the abstract name "terrazzo-PID", so no file is left behind. A client sends two bytes: ANSWER_TEXT or
 * ANSWER_JSON, and a device or ANSWER_ANY_DEVICE. Only the process's own user, and root, get an answer.
 */
#ifndef TRZ_ALLOC_ANSWER_H
#define TRZ_ALLOC_ANSWER_H

#include "answer_words.h"
#include "heap/heap.h"

/* A heap is about to be opened: starts what its options ask for. Errors: IN_USE (the program handles or ignores the
 * signal, or no program can handle it), CONFIG_VALUE (a fault raises the signal), HOST_MEMORY. */
trz_status answer_begin(const struct config *config);

#endif
