/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of the plug and of heaps as the shim makes them: PyTorch's types go in, and a failure is PyTorch's exception.
 */
#ifndef TRZ_SHIM_CALLS_HPP
#define TRZ_SHIM_CALLS_HPP

#include "shim_versions.hpp"
#include "terrazzo_torch.h"

namespace shim {

using namespace versions;

trz_torch_pool_id pool_id(MempoolId_t id);
MempoolId_t pool_id(trz_torch_pool_id id);

/* Throws where the status is a failure, with the plug's words. */
void check(trz_status status);

/* A child made by fork(), where locks of the parent's threads may be held for ever: what ends there, ends silently. */
bool in_child();

/* A device's heap, opened if it is not. */
trz_heap *heap_of(int device);

} // namespace shim

#endif
