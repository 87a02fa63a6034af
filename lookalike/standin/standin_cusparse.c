/* SPDX-License-Identifier: Apache-2.0
 *
 * cuSPARSE: handles and descriptors. Products whose number of non-zeros the device would decide are refused.
 */
#include <stdlib.h>

#include "standin.h"

STANDIN_HANDLE(cusparseCreate, cusparseDestroy)
STANDIN_DESCRIPTOR(cusparseCreateMatDescr, cusparseDestroyMatDescr)
STANDIN_DESCRIPTOR(cusparseCreateCsrilu02Info, cusparseDestroyCsrilu02Info)
STANDIN_DESCRIPTOR(cusparseCreateCsric02Info, cusparseDestroyCsric02Info)
STANDIN_DESCRIPTOR(cusparseCreateBsrsv2Info, cusparseDestroyBsrsv2Info)
STANDIN_DESCRIPTOR(cusparseCreateBsrsm2Info, cusparseDestroyBsrsm2Info)
STANDIN_DESCRIPTOR(cusparseSpSV_createDescr, cusparseSpSV_destroyDescr)
STANDIN_DESCRIPTOR(cusparseSpSM_createDescr, cusparseSpSM_destroyDescr)
STANDIN_DESCRIPTOR(cusparseSpGEMM_createDescr, cusparseSpGEMM_destroyDescr)
/* The functions that create these have more arguments after the first, which are ignored. */
STANDIN_DESCRIPTOR(cusparseCreateDnVec, cusparseDestroyDnVec)
STANDIN_DESCRIPTOR(cusparseCreateDnMat, cusparseDestroyDnMat)
STANDIN_DESCRIPTOR(cusparseCreateCsr, cusparseDestroySpMat)

int cusparseCreateCoo(void **made)
{
	return cusparseCreateCsr(made);
}

STANDIN_STREAM(cusparseSetStream, cusparseGetStream)

const char *cusparseGetErrorString(int status)
{
	return status ? "refused by terrazzo's stand-in for cuSPARSE" : "success";
}
