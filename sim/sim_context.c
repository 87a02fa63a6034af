/* SPDX-License-Identifier: Apache-2.0
 *
 * Contexts: primary ones, which live while they are retained, and users' own; the calling thread's current
 * one; the death of a device. A thread begins without a current context, and the driver table never changes
 * it.
 */
#include "sim_machine.h"

#include <stdlib.h>

trz_status sim_device_check(sim *s, int device)
{
	if (!s->device[device].dead)
		return TRZ_OK;
	return sim_refuse(s, TRZ_ERROR_CONTEXT_DEAD, "device %d has failed with a sticky error", device);
}

void sim_device_die(sim *s, int device)
{
	s->device[device].dead = true;
	sim_captures_forget(s, device, NULL);
	sim_streams_forget(s, device);
	sim_progress(s);
}

trz_status sim_context_find(sim *s, trz_context value, struct sim_context **out)
{
	struct sim_context *c = sim_registry_get(&s->contexts, (uint64_t)value);
	if (!c)
		return sim_violate(s, TRZ_ERROR_INVALID_ARGUMENT, "%p is not a context", value);
	if (c->destroyed)
		return sim_refuse(s, TRZ_ERROR_CONTEXT_DEAD, "context %p has been destroyed", value);
	*out = c;
	return sim_device_check(s, c->device);
}

static trz_status new_context(sim *s, int device, bool primary, struct sim_context **out)
{
	if (!sim_memory_take(s, device, s->config.context_overhead))
		return TRZ_ERROR_OUT_OF_MEMORY;
	struct sim_context *c = calloc(1, sizeof *c);
	uint64_t value = c ? sim_registry_add(&s->contexts, c) : 0;
	if (!value) {
		free(c);
		sim_memory_give(s, device, s->config.context_overhead);
		return sim_refuse(s, TRZ_ERROR_DRIVER, "no host memory for a context");
	}
	c->value = value;
	c->device = device;
	c->primary = primary;
	s->device[device].contexts++;
	*out = c;
	return TRZ_OK;
}

/* Work that can run is run first, so that a use of memory that is gone is still noticed. */
static void end_context(sim *s, struct sim_context *c)
{
	struct sim_device *d = &s->device[c->device];
	sim_streams_end_context(s, c);
	sim_plain_end(s, c);
	c->destroyed = true;
	if (d->primary == c)
		d->primary = NULL;
	if (--d->contexts == 0)
		d->dead = false;
	sim_memory_give(s, c->device, s->config.context_overhead);
}

static trz_status retain_primary(sim *s, int device, struct sim_context **out)
{
	if (device < 0 || device >= s->config.devices)
		return sim_refuse(s, TRZ_ERROR_NO_DEVICE, "there is no device %d", device);
	struct sim_device *d = &s->device[device];
	trz_status status = sim_device_check(s, device);
	if (status == TRZ_OK && !d->primary)
		status = new_context(s, device, true, &d->primary);
	if (status != TRZ_OK)
		return status;
	d->primary->references++;
	*out = d->primary;
	return TRZ_OK;
}

/* ---- for the driver table ------------------------------------------------------------------------------ */

trz_status sim_context_bind(sim *s, int device, trz_context wanted, trz_context *out)
{
	struct sim_context *c = NULL, *current = sim_thread_here(s)->current;
	trz_status status = TRZ_OK;
	if (device < 0 || device >= s->config.devices)
		return sim_refuse(s, TRZ_ERROR_NO_DEVICE, "there is no device %d", device);
	if (wanted) {
		status = sim_context_find(s, wanted, &c);
		if (status == TRZ_OK && c->device != device)
			return sim_refuse(s, TRZ_ERROR_WRONG_DEVICE, "context %p is on device %d, not on %d", wanted,
			                  c->device, device);
	} else if (current && current->device == device && !current->destroyed) {
		c = current;
		status = sim_device_check(s, device);
	}
	if (status == TRZ_OK && c)
		c->references++;
	else if (status == TRZ_OK)
		status = retain_primary(s, device, &c);
	if (status != TRZ_OK)
		return status;
	s->context_retains++;
	*out = (trz_context)c->value;
	return TRZ_OK;
}

trz_status sim_context_unbind(sim *s, int device, trz_context value)
{
	struct sim_context *c = sim_registry_get(&s->contexts, (uint64_t)value);
	if (!c || c->device != device || (c->references == 0 && !c->destroyed))
		return sim_misuse(s, TRZ_ERROR_INVALID_ARGUMENT, TRZ_CUDA_ERROR_INVALID_CONTEXT,
		                  "release of context %p, which is not retained on device %d",
		                   value, device);
	if (s->context_retains > 0)
		s->context_retains--;
	if (c->references > 0 && --c->references == 0 && c->primary && !c->destroyed)
		end_context(s, c);
	return TRZ_OK;
}

/* ---- sim.h ---------------------------------------------------------------------------------------- */

trz_status sim_context_create(sim *s, int device, trz_context *out)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_context *c = NULL;
	if (device < 0 || device >= s->config.devices)
		call.status = sim_refuse(s, TRZ_ERROR_NO_DEVICE, "there is no device %d", device);
	else
		call.status = sim_device_check(s, device);
	if (call.status == TRZ_OK)
		call.status = new_context(s, device, false, &c);
	if (call.status == TRZ_OK)
		*out = (trz_context)c->value;
	return sim_leave(&call);
}

trz_status sim_context_destroy(sim *s, trz_context context)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_context *c = sim_registry_get(&s->contexts, (uint64_t)context);
	if (!c || c->destroyed)
		call.status = sim_violate(s, TRZ_ERROR_INVALID_ARGUMENT,
		                          "end of context %p, which is dead or was never made",
		                          context);
	else
		end_context(s, c);
	return sim_leave(&call);
}

void sim_context_set_current(sim *s, trz_context context)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_context *c = NULL;
	if (!context || sim_context_find(s, context, &c) != TRZ_ERROR_INVALID_ARGUMENT)
		call.thread->current = c;
	sim_leave(&call);
}

trz_context sim_thread_context(const struct sim_thread *t)
{
	return t->current && !t->current->destroyed ? (trz_context)t->current->value : NULL;
}

trz_context sim_context_current(sim *s)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	trz_context value = sim_thread_context(call.thread);
	sim_leave(&call);
	return value;
}

trz_status sim_context_primary(sim *s, int device, trz_context *out)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_context *c = NULL;
	call.status = retain_primary(s, device, &c);
	if (call.status == TRZ_OK)
		*out = (trz_context)c->value;
	return sim_leave(&call);
}

void sim_kill_context(sim *s, trz_context context)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_context *c = sim_registry_get(&s->contexts, (uint64_t)context);
	if (c && !c->destroyed)
		sim_device_die(s, c->device);
	sim_leave(&call);
}

void sim_contexts_close(sim *s)
{
	sim_plain_end(s, NULL);
	for (uint32_t i = 0; i < s->contexts.count; i++)
		free(s->contexts.objects[i]);
	sim_registry_free(&s->contexts);
}
