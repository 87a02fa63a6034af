/* SPDX-License-Identifier: Apache-2.0
 *
 * Unpacks the compressed payload of a fatbin's entry, by liblz4 and libzstd.
 */
#include "unpack.h"

#include <limits.h>
#include <lz4.h>
#include <stdlib.h>
#include <zstd.h>

#include "code_index.h"
#include "error.h"

/* Whether a payload may unpack to so many bytes: a byte of LZ4 stands for at most 255, a frame of zstd mostly tells its
 * size. Asked before memory is allocated, since a damaged entry may claim any size. */
static bool believable(enum packing packing, struct span payload, uint64_t bytes)
{
	if (bytes > INT_MAX || payload.bytes > INT_MAX)
		return false;
	if (packing == PACKED_LZ4)
		return bytes / 255 <= payload.bytes;
	unsigned long long held = ZSTD_getFrameContentSize(payload.at, payload.bytes);
	return held == ZSTD_CONTENTSIZE_UNKNOWN || held == bytes;
}

trz_status unpack(enum packing packing, struct span payload, uint64_t bytes, uint8_t **unpacked)
{
	*unpacked = NULL;
	uint8_t *to = NULL;
	bool whole = believable(packing, payload, bytes);
	if (whole) {
		to = malloc(bytes ? bytes : 1);
		if (!to)
			return index_no_memory();
		whole = packing == PACKED_LZ4 ? LZ4_decompress_safe((const char *)payload.at, (char *)to, (int)payload.bytes,
		                                                    (int)bytes) == (int)bytes
		                              : ZSTD_decompress(to, bytes, payload.at, payload.bytes) == bytes;
	}
	if (!whole) {
		free(to);
		return trz_fail(TRZ_ERROR_BAD_INPUT,
		                "fatbin: %zu bytes packed by %s do not unpack to %llu: damaged; build the program again",
		                payload.bytes, packing == PACKED_LZ4 ? "LZ4" : "zstd", (unsigned long long)bytes);
	}
	*unpacked = to;
	return TRZ_OK;
}
