/* SPDX-License-Identifier: Apache-2.0
 *
 * cuSOLVER: handles. sizes.txt has the sizes of workspaces. The status that a factorisation leaves on the device reads
 * as 0, success.
 */
#include <stdlib.h>

#include "standin.h"

STANDIN_HANDLE(cusolverDnCreate, cusolverDnDestroy)
STANDIN_HANDLE(cusolverSpCreate, cusolverSpDestroy)
STANDIN_HANDLE(cusolverRfCreate, cusolverRfDestroy)
STANDIN_DESCRIPTOR(cusolverSpCreateCsrqrInfo, cusolverSpDestroyCsrqrInfo)
STANDIN_DESCRIPTOR(cusolverSpCreateCsrcholInfo, cusolverSpDestroyCsrcholInfo)
STANDIN_DESCRIPTOR(cusolverDnCreateParams, cusolverDnDestroyParams)
STANDIN_DESCRIPTOR(cusolverDnCreateGesvdjInfo, cusolverDnDestroyGesvdjInfo)
STANDIN_DESCRIPTOR(cusolverDnCreateSyevjInfo, cusolverDnDestroySyevjInfo)

int cusolverDnSetStream(void *handle, void *stream)
{
	standin_set_stream(handle, stream);
	return 0;
}

int cusolverSpSetStream(void *handle, void *stream)
{
	return cusolverDnSetStream(handle, stream);
}
