/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of a loaded file that the dynamic linker does not know: those of a program, which exports none, and the
 * local ones of a library. The file's own table of symbols has them, unless it has been stripped.
 */
#ifndef TRZ_STATS_FILE_SYMBOL_H
#define TRZ_STATS_FILE_SYMBOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The name of the function at an address of a loaded file, and how many bytes behind its begin the address lies. false:
 * the file is unknown, has no such table, or no function there. Reads the file: some 0.1 ms. */
bool file_symbol(const void *address, char *name, size_t room, uint64_t *inside);

#endif
