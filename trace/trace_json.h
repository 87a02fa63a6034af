/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads JSON of plain data. Private to trace/.
 */
#ifndef TRZ_TRACE_JSON_H
#define TRZ_TRACE_JSON_H

#include "trace_plain.h"

/* Reads one JSON value into `out`, which plain_init has made. Errors: BAD_INPUT (with the byte), IO, HOST_MEMORY. */
trz_status json_read(struct trace_input *in, struct plain *out);

#endif
