/* SPDX-License-Identifier: Apache-2.0
 *
 * Evidence from a report in JSON (explain/oom_report_json.c), which terrazzo's snapshots of failures have.
 */
#ifndef TRZ_TRACE_REPORT_EVIDENCE_H
#define TRZ_TRACE_REPORT_EVIDENCE_H

#include "evidence.h"

/* `report` is a json_t. What it lacks stays unknown; the verdict is not read but worked out again. false: it tells of
 * no failure. */
bool report_evidence(const void *report, struct evidence *e);

#endif
