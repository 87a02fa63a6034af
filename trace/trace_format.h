/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace formats: one reader each. Private to trace/.
 */
#ifndef TRZ_TRACE_FORMAT_H
#define TRZ_TRACE_FORMAT_H

#include "trace.h"
#include "trace_input.h"

/* First bytes of the compact format: not text, and visibly damaged by any program that rewrites line ends. */
#define COMPACT_MAGIC "\x89TRZ\r\n\x1a\n"
enum { COMPACT_MAGIC_SIZE = 8 };

/* A PyTorch snapshot pickle (trace_pytorch.c). */
trz_status trace_read_pytorch(struct trace_input *in, int device, struct trace *out);

/* The compact format (trace_compact.c). */
trz_status trace_read_compact(struct trace_input *in, struct trace *out);

/* Logs of RMM (trace_rmm.c) and STAlloc (trace_stalloc.c), and whether input that starts with `text` is one.
 * */
bool trace_is_rmm(const char *text, size_t size);
trz_status trace_read_rmm(struct trace_input *in, struct trace *out);
bool trace_is_stalloc(const char *text, size_t size);
trz_status trace_read_stalloc(struct trace_input *in, struct trace *out);

#endif
