/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a failed request, or of a heap at a moment (explain/): gathering the evidence, and who gets the report
 * when. Nothing here changes the heap, or what the program sees of a failure.
 */
#ifndef TRZ_ALLOC_POSTMORTEM_H
#define TRZ_ALLOC_POSTMORTEM_H

#include "heap/heap.h"
#include "jsonw.h"

/* Memory for reports, which is then there when the host has none left. */
trz_status postmortem_open(trz_heap *h);

/* The calling thread's request has failed for good: prints the report to standard error, if the option asks for it, the
 * thread does not hold reports back, and none has been printed for the call site and about that size. Returns the
 * status, whose text stays as it is. Takes locks: none may be held. Prints nothing while another thread's report is
 * made, which may wait for something that this thread holds. */
trz_status postmortem_failed(trz_heap *h, trz_status status);

/* The same, whether or not the thread holds reports back. */
void postmortem_print(trz_heap *h);

/* For the snapshot of a failure of the calling thread: the report as a JSON value. `owner` is the heap. */
void postmortem_write(struct jsonw *j, void *owner);

/* As trz_report. */
trz_status postmortem_report(trz_heap *h, unsigned flags, trz_report_callback *write, void *user);

#endif
