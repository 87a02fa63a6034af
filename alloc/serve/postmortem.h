/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a failed request, or of a heap at a moment (explain/): gathering the evidence, and who gets the report
 * when. Nothing here changes the heap, or what the program sees of a failure.
 */
#ifndef TRZ_ALLOC_POSTMORTEM_H
#define TRZ_ALLOC_POSTMORTEM_H

#include "heap/heap.h"
#include "jsonw.h"

/* Sets memory aside for reports, in case the host has none left by then. */
trz_status postmortem_open(trz_heap *h);

/* The calling thread's request has failed for good: prints the report to standard error, if the option asks for it, the
 * thread does not hold reports back, and none has been printed for this call site and about this size. Returns the
 * status; the error text then ends with the verdict's reason. Takes locks, so none may be held. Does nothing while
 * another thread's report is being made, which may wait for something that this thread holds. */
trz_status postmortem_failed(trz_heap *h, trz_status status);

/* The same, whether or not the thread holds reports back. */
void postmortem_print(trz_heap *h);

/* For the snapshot of a failure of the calling thread: the report as a JSON value. `owner` is the heap. */
void postmortem_write(struct jsonw *j, void *owner);

/* As trz_report. */
trz_status postmortem_report(trz_heap *h, unsigned flags, trz_report_callback *write, void *user);

#endif
