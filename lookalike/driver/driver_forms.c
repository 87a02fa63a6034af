/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions' forms of other CUDA versions, except those with 32-bit addresses.
 */
#include "driver_lookalike.h"

#define X(name, exported, version, parameters, call) \
	cuda_result exported parameters                  \
	{                                                \
		return call;                                 \
	}
LOOKALIKE_DRIVER_FORMS(X)
#undef X
