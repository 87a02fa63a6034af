/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's runtime headers include this file for the words that they mark declarations with. NVIDIA's Python packages of
 * those headers leave it out: it comes with nvcc. Used if the compiler finds no other. To a host compiler the words
 * mean nothing, except alignment.
 */
#ifndef TRZ_CRT_HOST_DEFINES_H
#define TRZ_CRT_HOST_DEFINES_H

#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __align__(bytes)
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __no_return__ __attribute__((noreturn))

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __launch_bounds__(...)
#define __cudart_builtin__
#define __device_builtin__
#define __device_builtin_surface_type__
#define __device_builtin_texture_type__

#endif
