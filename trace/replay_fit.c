/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest device on which a trace completes.
 */
#include <string.h>

#include "bisect.h"
#include "replay.h"

struct fit_search {
	const struct trace *trace;
	struct replay_params params;
	struct replay_fit *out;
};

static trz_status completes(void *arg, uint64_t size, bool *is_enough)
{
	struct fit_search *f = arg;
	struct replay_result result;
	f->params.capacity = size;
	trz_status status = replay_run(f->trace, &f->params, &result);
	if (status != TRZ_OK)
		return status;
	*is_enough = result.ooms == 0;
	f->out->driver_time_ns = result.driver_time_ns;
	f->out->violations += result.violations;
	f->out->leaks += result.leaks;
	if (result.problem[0] && !f->out->problem[0])
		memcpy(f->out->problem, result.problem, sizeof f->out->problem);
	return TRZ_OK;
}

trz_status replay_fit(const struct trace *trace, const struct replay_params *params, uint64_t peak_allocated,
                      struct replay_fit *out)
{
	struct fit_search f = { .trace = trace, .params = *params, .out = out };
	f.params.stop_at_oom = true;
	f.params.snapshot = NULL;
	f.params.timings = 1;
	f.params.history = 0;
	*out = (struct replay_fit){ 0 };
	struct bisect b = { .low = peak_allocated, .high = params->capacity, .step = REPLAY_FIT_STEP,
		                .enough = completes, .arg = &f };
	struct bisect_result found;
	trz_status status = bisect_run(&b, &found);
	out->bytes = found.size;
	out->runs = found.runs;
	out->verified = found.verified;
	return status;
}
