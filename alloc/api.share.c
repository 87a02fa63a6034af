/* SPDX-License-Identifier: Apache-2.0
 *
 * The public functions about memory apart, sharing and growing in place.
 */
#include <string.h>

#include "apart.h"
#include "api.h"
#include "error.h"

trz_status trz_alloc_with(trz_heap *h, const trz_alloc_params *params, void **out)
{
	trz_alloc_params p = {0};
	unsigned apart = 0;
	if (!h || !params || !out)
		return api_is_null("trz_alloc_with", !h ? "heap" : !params ? "params" : "out");
	*out = NULL;
	if (params->struct_size < sizeof p.struct_size || params->struct_size > sizeof p)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT,
		                "trz_alloc_with: struct_size is %zu, this library knows up to %zu bytes: set it to "
		                "sizeof(trz_alloc_params)",
		                params->struct_size, sizeof p);
	memcpy(&p, params, params->struct_size);
	trz_status status = apart_sort(h, p.flags, &apart);
	if (status != TRZ_OK)
		return status;
	return api_alloc_apart(h, (struct pool *)(void *)p.pool, apart, p.size, p.alignment, p.stream, out);
}
