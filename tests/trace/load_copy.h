/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads traces from memory, for the tests of their readers.
 */
#ifndef TRZ_TESTS_LOAD_COPY_H
#define TRZ_TESTS_LOAD_COPY_H

#include "trace.h"

/* From a heap copy of exactly that size, so that a reader that goes too far is caught. */
trz_status load_copy(const void *bytes, size_t size, int device, struct trace *trace);

/* Loading fails as bad input, with this text, and leaves no trace. */
void assert_refused(const void *bytes, size_t size, const char *text);

#endif
