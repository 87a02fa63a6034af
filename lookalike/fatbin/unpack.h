/* SPDX-License-Identifier: Apache-2.0
 *
 * Unpacks the compressed payload of a fatbin's entry.
 */
#ifndef TRZ_LOOKALIKE_UNPACK_H
#define TRZ_LOOKALIKE_UNPACK_H

#include "span.h"
#include "terrazzo.h"

enum packing {
	PACKED_NOT,
	PACKED_LZ4,   /* one block, no frame */
	PACKED_ZSTD,  /* one frame */
};

/* Unpacks a payload to `bytes`, in a buffer that the caller frees. Errors: BAD_INPUT, HOST_MEMORY. */
trz_status unpack(enum packing packing, struct span payload, uint64_t bytes, uint8_t **unpacked);

#endif
