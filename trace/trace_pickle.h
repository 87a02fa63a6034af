/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads pickles of plain data. Private to trace/.
 */
#ifndef TRZ_TRACE_PICKLE_H
#define TRZ_TRACE_PICKLE_H

#include "trace_plain.h"

/* Reads one pickle, protocol 2 to 5, into `out`, which plain_init has made. Builds no objects and calls no code.
 * Errors: BAD_INPUT (with the byte), IO, HOST_MEMORY. */
trz_status pickle_read(struct trace_input *in, struct plain *out);

#endif
