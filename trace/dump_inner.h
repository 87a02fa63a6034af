/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops within one step. Their rounds come as regularly as steps, and what they keep the step needs: the rows of a
 * Jacobian, the chunks of a vmap, the inner steps of a program that differentiates through them.
 */
#ifndef TRZ_TRACE_DUMP_INNER_H
#define TRZ_TRACE_DUMP_INNER_H

#include "trace_dump.h"

/* What the allocations of events first .. end - 1 show of their loop. */
struct dump_inner {
	bool rounds;               /* it is one of PyTorch's own functions, or only goes backward */
	bool unrolled;             /* it asks for gradients, trains nothing, and so may differentiate through them */
};

/* Without stacks nothing shows. */
struct dump_inner dump_inner(const struct dump *d, size_t first, size_t end);

#endif
