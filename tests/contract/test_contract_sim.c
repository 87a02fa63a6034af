/* SPDX-License-Identifier: Apache-2.0
 *
 * That the simulator keeps the contract, under every schedule and on a device without virtual memory.
 */
#include "contract.h"

#include <stdio.h>

#include "base/bits.h"
#include "sim/sim.h"

/* Refusals are violations to the simulator; here they must come back as statuses. */
static int run(const char *title, sim_schedule schedule, bool no_vmm)
{
	const sim_config config = {
		.devices = 2,
		.capacity = MIB(512),
		.no_vmm = no_vmm,
		.continue_on_violation = true,
		.schedule = schedule,
		.seed = 1,
	};
	sim *machine = NULL;
	char leaks[256];
	expect_ok(sim_open(&config, &machine));
	int failed = contract_run(title, sim_driver(machine), &contract_sim_ops, machine);
	if (sim_leaks(machine, leaks, sizeof leaks) != 0 && failed == 0) {
		print_error("%s: left over: %s\n", title, leaks);
		failed = 1;
	}
	sim_close(machine);
	return failed;
}

int main(void)
{
	int failed = run("sim, random", SIM_RANDOM, false);
	failed += run("sim, fifo", SIM_FIFO, false);
	failed += run("sim, lifo", SIM_LIFO, false);
	failed += run("sim, starve", SIM_STARVE, false);
	failed += run("sim, no vmm", SIM_RANDOM, true);
	return failed != 0;
}
