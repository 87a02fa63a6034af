/* SPDX-License-Identifier: Apache-2.0
 *
 * cuSPARSE: handles and descriptors of the older interface. Products whose number of non-zeros the device would decide
 * are refused.
 */
#include <stdlib.h>

#include "standin.h"

STANDIN_HANDLE(cusparseCreate, cusparseDestroy)
STANDIN_DESCRIPTOR(cusparseCreateCsrilu02Info, cusparseDestroyCsrilu02Info)
STANDIN_DESCRIPTOR(cusparseCreateCsric02Info, cusparseDestroyCsric02Info)
STANDIN_DESCRIPTOR(cusparseCreateBsrilu02Info, cusparseDestroyBsrilu02Info)
STANDIN_DESCRIPTOR(cusparseCreateBsric02Info, cusparseDestroyBsric02Info)
STANDIN_DESCRIPTOR(cusparseCreateBsrsv2Info, cusparseDestroyBsrsv2Info)
STANDIN_DESCRIPTOR(cusparseCreateBsrsm2Info, cusparseDestroyBsrsm2Info)
STANDIN_DESCRIPTOR(cusparseCreateCsru2csrInfo, cusparseDestroyCsru2csrInfo)
STANDIN_DESCRIPTOR(cusparseCreatePruneInfo, cusparseDestroyPruneInfo)
STANDIN_DESCRIPTOR(cusparseCreateColorInfo, cusparseDestroyColorInfo)
STANDIN_DESCRIPTOR(cusparseSpSV_createDescr, cusparseSpSV_destroyDescr)
STANDIN_DESCRIPTOR(cusparseSpSM_createDescr, cusparseSpSM_destroyDescr)
STANDIN_DESCRIPTOR(cusparseSpGEMM_createDescr, cusparseSpGEMM_destroyDescr)
STANDIN_STREAM(cusparseSetStream, cusparseGetStream)
STANDIN_MODE(cusparseSetPointerMode, cusparseGetPointerMode, STANDIN_POINTER_MODE, 1)
STANDIN_PROPERTY(cusparseGetProperty)

int cusparseGetVersion(const void *handle, int *version)
{
	return standin_is_handle(handle) ? standin_tell_version(version) : STANDIN_NOT_INITIALIZED;
}

static const char *const statuses[][2] = {
	{ "CUSPARSE_STATUS_SUCCESS", "success" },
	{ "CUSPARSE_STATUS_NOT_INITIALIZED", "initialization error" },
	{ "CUSPARSE_STATUS_ALLOC_FAILED", "out of memory" },
	{ "CUSPARSE_STATUS_INVALID_VALUE", "invalid value" },
	{ "CUSPARSE_STATUS_ARCH_MISMATCH", "architecture mismatch" },
	{ "CUSPARSE_STATUS_MAPPING_ERROR", "mapping error" },
	{ "CUSPARSE_STATUS_EXECUTION_FAILED", "kernel launch failure" },
	{ "CUSPARSE_STATUS_INTERNAL_ERROR", "internal error" },
	{ "CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED", "matrix type not supported" },
	{ "CUSPARSE_STATUS_ZERO_PIVOT", "zero pivot" },
	{ "CUSPARSE_STATUS_NOT_SUPPORTED", "operation not supported by terrazzo's stand-in for cuSPARSE" },
	{ "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES", "insufficient resources" },
};

static const char *text_of(int status, int which)
{
	return status >= 0 && (size_t)status < sizeof statuses / sizeof statuses[0] ? statuses[status][which]
	                                                                            : "unrecognized error code";
}

const char *cusparseGetErrorName(int status)
{
	return text_of(status, 0);
}

const char *cusparseGetErrorString(int status)
{
	return text_of(status, 1);
}

/* ---- what a matrix is like ------------------------------------------------------------------------- */

enum { TYPE, FILL_MODE, DIAGONAL, BASE, TRAITS };

STANDIN_DESCRIPTOR_OF(cusparseCreateMatDescr, cusparseDestroyMatDescr, TRAITS * sizeof(int))

#define TRAIT(set, get, which, most) \
	int set(int *traits, int value) \
	{ \
		if (!traits || value < 0 || value > most) \
			return STANDIN_INVALID_VALUE; \
		traits[which] = value; \
		return 0; \
	} \
	int get(const int *traits) { return traits[which]; }

TRAIT(cusparseSetMatType, cusparseGetMatType, TYPE, 3)
TRAIT(cusparseSetMatFillMode, cusparseGetMatFillMode, FILL_MODE, 1)
TRAIT(cusparseSetMatDiagType, cusparseGetMatDiagType, DIAGONAL, 1)
TRAIT(cusparseSetMatIndexBase, cusparseGetMatIndexBase, BASE, 1)
