/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes sizes as people read them.
 */
#ifndef TRZ_BASE_SIZE_TEXT_H
#define TRZ_BASE_SIZE_TEXT_H

#include <stdint.h>

enum { SIZE_TEXT_BYTES = 32 };

/* "1.50 GiB", "16.00 MiB", "512 bytes". Returns `text`. */
const char *size_text(uint64_t bytes, char text[SIZE_TEXT_BYTES]);

#endif
