/* SPDX-License-Identifier: Apache-2.0
 *
 * Host time that the calling thread has spent inside the simulated CUDA driver and runtime, from the outermost call
 * on, in ticks of base/ticks.h: an allocator's own time excludes it. The look-alikes' functions are compiled to report
 * when they begin and end.
 */
#ifndef TRZ_BENCH_DRIVER_CLOCK_H
#define TRZ_BENCH_DRIVER_CLOCK_H

#include <stdint.h>

uint64_t driver_clock_ticks(void);

#endif
