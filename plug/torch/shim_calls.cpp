/* SPDX-License-Identifier: Apache-2.0
 *
 * See shim_calls.hpp.
 */
#include "shim_calls.hpp"

#include <c10/cuda/CUDAFunctions.h>

namespace shim {

trz_torch_pool_id pool_id(MempoolId_t id)
{
	return {id.first, id.second};
}

MempoolId_t pool_id(trz_torch_pool_id id)
{
	return {id.first, id.second};
}

void check(trz_status status)
{
	TORCH_CHECK(status == TRZ_OK, "terrazzo: ", trz_torch_last_error());
}

void check_heap(trz_status status)
{
	TORCH_CHECK(status == TRZ_OK, "terrazzo: ", trz_last_error());
}

bool in_child()
{
	trz_heap *heap;
	return trz_torch_heap(0, false, &heap) == TRZ_ERROR_SHUTDOWN;
}

trz_heap *open_heap_of(int device)
{
	trz_heap *heap;
	int count = c10::cuda::device_count();
	TORCH_CHECK(device >= 0 && device < count, "Invalid device argument ", device, ": this machine has ", count,
	            count == 1 ? " device" : " devices");
	check(trz_torch_heap(device, false, &heap));
	return heap;
}

trz_heap *heap_of(int device)
{
	trz_heap *heap;
	check(trz_torch_heap(device, true, &heap));
	return heap;
}

} // namespace shim
