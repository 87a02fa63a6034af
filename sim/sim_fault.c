/* SPDX-License-Identifier: Apache-2.0
 *
 * Injected failures: the n-th call, or each call with a probability, of a set of slots.
 */
#include "sim_machine.h"

#include "prng.h"

/* Calls whose contract has no failure. */
static const uint64_t never_fail =
	1ull << SIM_SLOT_clock_ns | 1ull << SIM_SLOT_device_count | 1ull << SIM_SLOT_context_release;

static trz_status strike(sim *s, sim_slot slot, trz_status status)
{
	s->faults++;
	return sim_refuse(s, status, "injected fault %llu, in call %llu of this slot",
	                  (unsigned long long)s->faults, (unsigned long long)s->calls[slot]);
}

trz_status sim_fault_strike(sim *s, sim_slot slot)
{
	uint64_t bit = 1ull << slot;
	struct sim_fault *nth = &s->nth_fault, *random = &s->random_fault;
	if (nth->mask & bit) {
		if (nth->countdown > 1) {
			nth->countdown--;
		} else {
			if (!nth->persistent)
				nth->mask = 0;
			return strike(s, slot, nth->status);
		}
	}
	if (random->mask & bit) {
		double unit = (double)(prng_next(&s->fault_seed) >> 11) * 0x1p-53;
		if (unit < random->probability)
			return strike(s, slot, random->status);
	}
	return TRZ_OK;
}

void sim_fault_nth(sim *s, uint64_t slot_mask, uint64_t nth, bool persistent, trz_status status)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	s->nth_fault = (struct sim_fault){
		.mask = nth ? slot_mask & ~never_fail : 0,
		.countdown = nth,
		.persistent = persistent,
		.status = status,
	};
	sim_leave(&call);
}

void sim_fault_probability(sim *s, uint64_t slot_mask, double probability, trz_status status)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	s->random_fault = (struct sim_fault){
		.mask = probability > 0 ? slot_mask & ~never_fail : 0,
		.probability = probability,
		.status = status,
	};
	sim_leave(&call);
}
