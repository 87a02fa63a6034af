/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLAS: its handle. The products themselves are generated.
 */
#include <stdlib.h>

#include "standin.h"

STANDIN_HANDLE(cublasCreate_v2, cublasDestroy_v2)

int cublasSetStream_v2(void *handle, void *stream)
{
	standin_set_stream(handle, stream);
	return 0;
}

int cublasGetStream_v2(void *handle, void **stream)
{
	*stream = standin_stream(handle);
	return 0;
}

/* A handle of ours is always in the default modes: what it was set to changes nothing. */
int cublasGetMathMode(void *handle, int *mode)
{
	(void)handle;
	*mode = 0;
	return 0;
}

int cublasGetPointerMode_v2(void *handle, int *mode)
{
	(void)handle;
	*mode = 0;
	return 0;
}

int cublasGetVersion_v2(void *handle, int *version)
{
	(void)handle;
	*version = 130200;
	return 0;
}

const char *cublasGetStatusString(int status)
{
	return status ? "refused by terrazzo's stand-in for cuBLAS" : "success";
}
