/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks NVIDIA's management library how much of a device's memory this process has, and how much all others have. The
 * CUDA driver tells only how much is free.
 */
#ifndef TRZ_ALLOC_NVML_H
#define TRZ_ALLOC_NVML_H

#include "device/driver.h"

struct nvml_usage {
	uint64_t own;                /* of this process, its context included */
	uint64_t others;             /* of all other processes together */
	unsigned processes;          /* the others */
};

/* false: the library is missing, the heap's driver is not CUDA's, or the library cannot tell this process from others,
 * as in a container with process numbers of its own. No lock is held: the library has its own. */
bool nvml_ask(const struct driver *d, struct nvml_usage *out);

#endif
