/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking a running process for a report (alloc/api/answer.h).
 */
#ifndef TRZ_CLI_LIVE_H
#define TRZ_CLI_LIVE_H

#include <stdio.h>

#include "terrazzo.h"

/* The process whose number a word is; 0: it is none. */
int live_process(const char *word);

/* Copies a process's report, ANSWER_TEXT or ANSWER_JSON, on one device or, < 0, on any. Waits a few seconds at most.
 * Errors: NOT_FOUND (there is no such process, or device), NOT_SUPPORTED (it does not answer), NOT_READY (not in time),
 * IO. */
trz_status live_report(int process, int mode, int device, FILE *to);

#endif
