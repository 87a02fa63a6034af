/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of an out-of-memory error, or of a heap at a moment: for people, under OOM_REPORT_LINES lines of which the
 * first three say what happened, why, and what to do; and as a JSON object for programs. Asks for no host memory.
 */
#ifndef TRZ_EXPLAIN_OOM_REPORT_H
#define TRZ_EXPLAIN_OOM_REPORT_H

#include "jsonw.h"
#include "verdict.h"

enum { OOM_REPORT_LINES = 60 };

/* Takes the next bytes; false: they cannot be written, and it is not called again. */
typedef jsonw_sink oom_report_sink;

/* Both return false when the sink has refused. The text is whole lines, each handed over at once. */
bool oom_report_text(const struct evidence *e, const struct verdict *v, oom_report_sink *sink, void *owner);
bool oom_report_json(const struct evidence *e, const struct verdict *v, oom_report_sink *sink, void *owner);

/* The object alone, as a value of something larger; and its members alone. */
void oom_report_members(struct jsonw *j, const struct evidence *e, const struct verdict *v);
void oom_report_object(struct jsonw *j, const struct evidence *e, const struct verdict *v);

#endif
