/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads an ELF cubin into an index: which symbols are kernels and variables, and the kernels' facts in the .nv.info
 * sections.
 */
#ifndef TRZ_LOOKALIKE_CUBIN_H
#define TRZ_LOOKALIKE_CUBIN_H

#include "code_index.h"
#include "span.h"

bool cubin_is(struct span image);

/* Fills an empty index; on failure the caller clears it. Errors: BAD_INPUT, HOST_MEMORY. */
trz_status cubin_index(struct span image, struct code_index *index);

#endif
