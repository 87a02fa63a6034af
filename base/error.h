/* SPDX-License-Identifier: Apache-2.0
 *
 * The calling thread's last error: one line of text that names the thing and the remedy. Owns the storage
 * behind trz_last_error() and trz_driver_last_error().
 */
#ifndef TRZ_BASE_ERROR_H
#define TRZ_BASE_ERROR_H

#include "terrazzo.h"

enum { ERROR_TEXT_BYTES = 640 };  /* longer texts are cut off */

/* Formats the thread's last error and returns `status`, so that a failure is one statement:
 *     return trz_fail(TRZ_ERROR_SIZE, "%zu bytes asked for; the largest possible is %zu", ...); */
trz_status trz_fail(trz_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes one line to standard error, for what the user would not learn otherwise: "terrazzo: ", the text and a line
 * end. */
void trz_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes a text to standard error in one call, so that no other thread's lines come in between, unless the system takes
 * less at a time. A program whose standard error nobody reads goes on. */
void trz_tell_text(const char *text, size_t size);

#endif
