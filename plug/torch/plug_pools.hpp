/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the plug's pools that C cannot declare.
 */
#ifndef TRZ_PLUG_POOLS_HPP
#define TRZ_PLUG_POOLS_HPP

#include <functional>

#include "terrazzo_torch.h"

using trz_torch_filter = std::function<bool(trz_stream)>;

/* Diverts allocations whose stream the filter accepts, until trz_torch_pool_end; the pool must be open. */
extern "C" TRZ_API trz_status trz_torch_pool_begin(int device, trz_torch_pool_id id, trz_torch_filter filter);

/* The hook: opens the pool and begins the diversion. */
extern "C" TRZ_API void trz_torch_begin_allocate_to_pool(int device, trz_torch_pool_id id, trz_torch_filter filter);

#endif
