/* SPDX-License-Identifier: Apache-2.0
 *
 * The public functions about steps: growth, forecasts, warnings.
 */
#include "api/api.h"
#include "error.h"
#include "observe/steps.h"

trz_status trz_step(trz_heap *h)
{
	trz_status usable = api_check_heap("trz_step", h);
	return usable == TRZ_OK ? steps_end(h) : usable;
}

trz_status trz_growth(trz_heap *h, trz_growth_info *list, size_t capacity, size_t *count)
{
	if (!h || !count || (capacity && !list))
		return api_is_null("trz_growth", !h ? "heap" : !count ? "count" : "list");
	trz_status usable = api_check_process(h);
	if (usable == TRZ_OK)
		*count = steps_growth(h, false, list, capacity);
	return usable;
}

trz_status trz_forecast(trz_heap *h, trz_forecast_info *out)
{
	if (!h || !out)
		return api_is_null("trz_forecast", h ? "out" : "heap");
	trz_status usable = api_check_process(h);
	if (usable != TRZ_OK)
		return usable;
	return steps_forecast(h, out) ? TRZ_OK : trz_fail(TRZ_ERROR_NOT_FOUND, "no call site of the heap of device %d is "
	                                                  "known to leak: call trz_step at the end of each step",
	                                                  h->driver.device);
}

trz_status trz_set_warning_callback(trz_heap *h, trz_warning_callback *callback, void *user)
{
	trz_status usable = api_check_heap("trz_set_warning_callback", h);
	if (usable == TRZ_OK)
		steps_set_callback(h, callback, user);
	return usable;
}
