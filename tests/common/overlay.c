/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens heaps over driver tables with replaced slots.
 */
#include "overlay.h"

void overlay_machine(struct overlay *o, uint64_t capacity)
{
	o->rig = rig_machine((sim_config){.capacity = capacity, .lenient_rules = SIM_RULE_SYNC_MAYBE});
	o->table = *o->rig.d;
}

void overlay_open_heap(struct overlay *o, const char *conf)
{
	trz_open_params params = {.config = conf, .driver = &o->table};
	assert_ok(trz_open(&params, &o->rig.heap));
}

static trz_status lacks_it(void *self, trz_context context, trz_event event)
{
	(void)self;
	(void)context;
	(void)event;
	return TRZ_ERROR_NOT_SUPPORTED;
}

void overlay_open_on_old_driver(struct overlay *o, uint64_t capacity)
{
	overlay_machine(o, capacity);
	o->table.context_record = lacks_it;
	overlay_open_heap(o, NULL);
}
