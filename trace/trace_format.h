/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace formats: one reader each. Private to trace/.
 */
#ifndef TRZ_TRACE_FORMAT_H
#define TRZ_TRACE_FORMAT_H

#include "trace.h"
#include "trace_input.h"

/* First bytes of the compact format: not text, and damaged by whatever rewrites line ends. */
#define COMPACT_MAGIC "\x89TRZ\r\n\x1a\n"
enum { COMPACT_MAGIC_SIZE = 8 };

/* A PyTorch snapshot pickle (trace_pytorch.c). */
trz_status trace_read_pytorch(struct trace_input *in, int device, struct trace *out);

/* The compact format (trace_compact.c). */
trz_status trace_read_compact(struct trace_input *in, struct trace *out);

#endif
