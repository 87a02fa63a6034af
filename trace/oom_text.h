/* SPDX-License-Identifier: Apache-2.0
 *
 * Out-of-memory errors of PyTorch in a log: the texts of all versions since 0.4, of its asynchronous, HIP, XPU and MPS
 * allocators, and terrazzo's, among other lines, wrapped, prefixed by loggers, and from several ranks at once.
 */
#ifndef TRZ_TRACE_OOM_TEXT_H
#define TRZ_TRACE_OOM_TEXT_H

#include "evidence.h"
#include "terrazzo.h"

enum { OOM_TEXTS_MAX = 4096 };

/* Reads up to `capacity` errors, in the order of the log, each once; they keep copies of their texts, but not of
 * `name`. Errors: NOT_FOUND (there is none), HOST_MEMORY. */
trz_status oom_text_read(const char *name, const char *text, size_t size, struct evidence *list, size_t capacity,
                         size_t *count);

#endif
