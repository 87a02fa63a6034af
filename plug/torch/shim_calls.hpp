/* SPDX-License-Identifier: Apache-2.0
 *
 * The shim's calls of the plug and of heaps: they take PyTorch's types, and throw a failure as PyTorch's exception.
 */
#ifndef TRZ_SHIM_CALLS_HPP
#define TRZ_SHIM_CALLS_HPP

#include "shim_versions.hpp"
#include "terrazzo_torch.h"

namespace shim {

using namespace versions;

trz_torch_pool_id pool_id(MempoolId_t id);
MempoolId_t pool_id(trz_torch_pool_id id);

/* Throw if the status of a call of the plug, or of terrazzo.h, is a failure, with its text. */
void check(trz_status status);
void check_heap(trz_status status);

/* Whether this is a child made by fork(), where locks of the parent's threads may be held for ever, so that objects
 * must end silently. */
bool in_child();

/* A device's heap, NULL if none is open. Throws for a device that the machine does not have. */
trz_heap *open_heap_of(int device);

/* A device's heap, opened if it is not. */
trz_heap *heap_of(int device);

} // namespace shim

#endif
