/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions in the forms of other CUDA versions, except those with addresses of 32 bits.
 */
#include "driver_lookalike.h"

#define X(name, exported, version, parameters, call) \
	cuda_result exported parameters                  \
	{                                                \
		return call;                                 \
	}
LOOKALIKE_DRIVER_FORMS(X)
#undef X
