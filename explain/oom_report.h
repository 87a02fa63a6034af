/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of an out-of-memory error, or of a heap at a moment: for people, in fewer than OOM_REPORT_LINES lines, of
 * which the first three say what happened, why, and what to do; for programs, as JSON. It allocates no host memory.
 */
#ifndef TRZ_EXPLAIN_OOM_REPORT_H
#define TRZ_EXPLAIN_OOM_REPORT_H

#include "jsonw.h"
#include "verdict.h"

enum { OOM_REPORT_LINES = 60 };

/* Takes the next bytes; false: they cannot be written, and it is not called again. */
typedef jsonw_sink oom_report_sink;

/* Both return false if the sink has refused. The sink gets the text line by line. */
bool oom_report_text(const struct evidence *e, const struct verdict *v, oom_report_sink *sink, void *owner);
bool oom_report_json(const struct evidence *e, const struct verdict *v, oom_report_sink *sink, void *owner);

/* The object's members, and the whole object, as parts of a larger JSON value. */
void oom_report_members(struct jsonw *j, const struct evidence *e, const struct verdict *v);
void oom_report_object(struct jsonw *j, const struct evidence *e, const struct verdict *v);

#endif
