/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the table over libcuda.so.1.
 */
#ifndef TRZ_ALLOC_DRIVER_CUDA_H
#define TRZ_ALLOC_DRIVER_CUDA_H

#include "cuda_abi.h"
#include "terrazzo_driver.h"

/* The status for a result of the driver. */
trz_status driver_cuda_status(cuda_result result);

/* The table; the first call loads the driver. */
trz_status driver_cuda_table(const trz_driver **out);

#endif
