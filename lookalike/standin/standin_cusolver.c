/* SPDX-License-Identifier: Apache-2.0
 *
 * cuSOLVER: handles. functions.txt has the sizes of workspaces. The status that a factorisation leaves on the device
 * reads as 0, success.
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

STANDIN_DESCRIPTOR(cusolverDnIRSParamsCreate, cusolverDnIRSParamsDestroy)
STANDIN_DESCRIPTOR(cusolverDnIRSInfosCreate, cusolverDnIRSInfosDestroy)
STANDIN_STREAM(cusolverDnSetStream, cusolverDnGetStream)
STANDIN_STREAM(cusolverSpSetStream, cusolverSpGetStream)
STANDIN_VERSION(cusolverGetVersion)
STANDIN_PROPERTY(cusolverGetProperty)
