/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the driver calls that an allocator makes, its runtime's included, by CUPTI.
 */
#ifndef TRZ_BENCH_GPU_COUNT_H
#define TRZ_BENCH_GPU_COUNT_H

#include <stdio.h>

/* Set while the allocator runs: other calls do not count. */
extern _Thread_local int gpu_count_on;

/* `library`: CUPTI's file. NULL: calls are counted from now on; else what is missing. */
const char *gpu_count_start(const char *library);

/* Writes a JSON object of calls by name since the last time. */
void gpu_count_print(FILE *to);

#endif
