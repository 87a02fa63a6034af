/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads PTX text into an index: the declarations of entries and of module variables; it skips bodies.
 */
#ifndef TRZ_LOOKALIKE_PTX_H
#define TRZ_LOOKALIKE_PTX_H

#include "code_index.h"
#include "span.h"

/* Whether the image begins like text, of whatever kind. */
bool ptx_is_text(struct span image);

/* Fills an empty index; on failure the caller clears it. Ends at a NUL. Errors: BAD_INPUT, HOST_MEMORY. */
trz_status ptx_index(struct span image, struct code_index *index);

#endif
