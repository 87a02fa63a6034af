/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that the look-alike runtime lacks, by name.
 */
#include "runtime_lookalike.h"

#define X(name)                                \
	LOOKALIKE_API cuda_error name(void);       \
	cuda_error name(void)                      \
	{                                          \
		return rt_result(trz_lookalike_missing(#name)); \
	}
#include "runtime_missing.def"
#undef X
