/* SPDX-License-Identifier: Apache-2.0
 *
 * The search, in units of the step.
 */
#include "bisect.h"

static trz_status try_size(const struct bisect *b, uint64_t units, struct bisect_result *out, bool *is_enough)
{
	out->runs++;
	return b->enough(b->arg, units * b->step, is_enough);
}

/* Goes up from `*enough` to a size that is enough: *too_small is then the largest tried, or assumed, that is not.
 * *enough is 0 if no size up to `most` is enough. */
static trz_status climb(const struct bisect *b, uint64_t most, uint64_t *too_small, uint64_t *enough,
                        struct bisect_result *out)
{
	uint64_t at = *enough;
	bool is_enough = false;
	*enough = 0;
	for (uint64_t stride = 1; at <= most; stride *= 2) {
		trz_status status = try_size(b, at, out, &is_enough);
		if (status != TRZ_OK)
			return status;
		if (is_enough)
			*enough = at;
		if (is_enough || at == most)
			break;
		*too_small = at;
		at = most - at < stride ? most : at + stride;
	}
	return TRZ_OK;
}

static trz_status halve(const struct bisect *b, uint64_t too_small, uint64_t *enough,
                        struct bisect_result *out)
{
	while (*enough - too_small > 1) {
		uint64_t middle = too_small + (*enough - too_small) / 2;
		bool is_enough = false;
		trz_status status = try_size(b, middle, out, &is_enough);
		if (status != TRZ_OK)
			return status;
		if (is_enough)
			*enough = middle;
		else
			too_small = middle;
	}
	return TRZ_OK;
}

static trz_status verify(const struct bisect *b, uint64_t units, struct bisect_result *out)
{
	bool less_is_enough = false, is_enough = false;
	trz_status status = units > 1 ? try_size(b, units - 1, out, &less_is_enough) : TRZ_OK;
	if (status == TRZ_OK)
		status = try_size(b, units, out, &is_enough);
	out->size = units * b->step;
	out->verified = is_enough && !less_is_enough;
	return status;
}

trz_status bisect_run(const struct bisect *b, struct bisect_result *out)
{
	*out = (struct bisect_result){ 0 };
	uint64_t least = b->low / b->step + (b->low % b->step != 0);
	uint64_t enough = least ? least : 1;
	uint64_t too_small = enough - 1;
	trz_status status = climb(b, b->high / b->step, &too_small, &enough, out);
	if (status != TRZ_OK || enough == 0)
		return status;
	status = halve(b, too_small, &enough, out);
	return status == TRZ_OK ? verify(b, enough, out) : status;
}
