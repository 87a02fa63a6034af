/* SPDX-License-Identifier: Apache-2.0
 *
 * Tracebacks of Python and of IPython in a log. Private to trace/.
 */
#ifndef TRZ_TRACE_LOG_TRACEBACK_H
#define TRZ_TRACE_LOG_TRACEBACK_H

#include "evidence.h"
#include "log_lines.h"

/* Sets e's site, stack and category by the traceback above the line in which `position`, as of log_line.begins, is, and
 * below that of `from`; 0: all lines. */
void log_traceback(const struct log_part *lines, size_t from, size_t position, struct evidence *e);

#endif
