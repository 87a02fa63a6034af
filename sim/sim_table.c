/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver table: one thin function per slot between sim_enter, which counts the call, charges it and
 * injects faults, and sim_leave.
 */
#include "sim_machine.h"

#include <stdio.h>
#include <string.h>

const char *sim_slot_name(sim_slot slot)
{
	static const char *const names[] = {
#define SLOT_NAME(slot) #slot,
		TRZ_DRIVER_SLOTS(SLOT_NAME)
#undef SLOT_NAME
	};
	return slot < SIM_SLOTS ? names[slot] : "";
}

/* ---- devices and contexts ------------------------------------------------------------------------- */

static trz_status slot_device_count(void *self, int *count)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_device_count);
	if (call.status == TRZ_OK)
		*count = call.s->config.devices;
	return sim_leave(&call);
}

static trz_status check_device(sim *s, int device)
{
	if (device >= 0 && device < s->config.devices)
		return TRZ_OK;
	return sim_refuse(s, TRZ_ERROR_NO_DEVICE, "there is no device %d", device);
}

static trz_status slot_device_info(void *self, int device, trz_device_info *info)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_device_info);
	const sim_config *c = &call.s->config;
	if (call.status == TRZ_OK)
		call.status = check_device(call.s, device);
	if (call.status == TRZ_OK) {
		*info = (trz_device_info){
			.total_bytes = c->capacity,
			.granularity = c->granularity,
			.vmm = !c->no_vmm,
			.rdma_with_vmm = !c->no_vmm,
			.export_fd = !c->no_vmm,
			.compute_major = 9,
		};
		snprintf(info->name, sizeof info->name, "Simulated GPU %llu GiB",
		         (unsigned long long)(c->capacity >> 30));
	}
	return sim_leave(&call);
}

static trz_status slot_context_retain(void *self, int device, trz_context wanted, trz_context *context)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_context_retain);
	if (call.status == TRZ_OK)
		call.status = sim_context_bind(call.s, device, wanted, context);
	return sim_leave(&call);
}

static trz_status slot_context_release(void *self, int device, trz_context context)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_context_release);
	if (call.status == TRZ_OK)
		call.status = sim_context_unbind(call.s, device, context);
	return sim_leave(&call);
}

static trz_status slot_mem_info(void *self, trz_context context, uint64_t *free_bytes, uint64_t *total_bytes)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_mem_info);
	struct sim_context *c = NULL;
	if (call.status == TRZ_OK)
		call.status = sim_context_find(call.s, context, &c);
	if (call.status == TRZ_OK) {
		*total_bytes = call.s->config.capacity;
		*free_bytes = *total_bytes - sim_memory_used(call.s, c->device);
	}
	return sim_leave(&call);
}

/* ---- memory --------------------------------------------------------------------------------------- */

static trz_status slot_create(void *self, const trz_tile_props *props, uint64_t size, trz_handle *handle)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_create);
	if (call.status == TRZ_OK)
		call.status = sim_create(call.s, props, size, handle);
	return sim_leave(&call);
}

static trz_status slot_release(void *self, trz_handle handle)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_release);
	if (call.status == TRZ_OK)
		call.status = sim_release(call.s, handle);
	return sim_leave(&call);
}

static trz_status slot_reserve(void *self, uint64_t size, uint64_t alignment, trz_addr hint,
                               trz_addr *address)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_reserve);
	if (call.status == TRZ_OK)
		call.status = sim_reserve(call.s, size, alignment, hint, address);
	return sim_leave(&call);
}

static trz_status slot_unreserve(void *self, trz_addr address, uint64_t size)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_unreserve);
	if (call.status == TRZ_OK)
		call.status = sim_unreserve(call.s, address, size);
	return sim_leave(&call);
}

static trz_status slot_map(void *self, trz_addr address, uint64_t size, trz_handle handle)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_map);
	if (call.status == TRZ_OK)
		call.status = sim_map(call.s, address, size, handle);
	return sim_leave(&call);
}

static trz_status slot_unmap(void *self, trz_addr address, uint64_t size)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_unmap);
	if (call.status == TRZ_OK)
		call.status = sim_unmap(call.s, address, size);
	return sim_leave(&call);
}

static trz_status slot_set_access(void *self, trz_addr address, uint64_t size, const int *devices, int count)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_set_access);
	if (call.status == TRZ_OK)
		call.status = sim_set_access(call.s, address, size, devices, count);
	return sim_leave(&call);
}

static trz_status slot_mem_alloc(void *self, trz_context context, uint64_t size, trz_addr *address)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_mem_alloc);
	struct sim_context *c = NULL;
	if (call.status == TRZ_OK)
		call.status = sim_context_find(call.s, context, &c);
	if (call.status == TRZ_OK)
		call.status = sim_plain_alloc(call.s, c, size, address);
	return sim_leave(&call);
}

static trz_status slot_mem_free(void *self, trz_context context, trz_addr address)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_mem_free);
	struct sim_context *c = NULL;
	if (call.status == TRZ_OK)
		call.status = sim_context_find(call.s, context, &c);
	if (call.status == TRZ_OK)
		call.status = sim_plain_free(call.s, c, address);
	return sim_leave(&call);
}

/* ---- events and streams --------------------------------------------------------------------------- */

static trz_status slot_event_create(void *self, trz_context context, trz_event *event)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_event_create);
	if (call.status == TRZ_OK)
		call.status = sim_event_new(call.s, context, event);
	return sim_leave(&call);
}

static trz_status slot_event_destroy(void *self, trz_context context, trz_event event)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_event_destroy);
	if (call.status == TRZ_OK)
		call.status = sim_event_end(call.s, context, event);
	return sim_leave(&call);
}

static trz_status slot_event_record(void *self, trz_context context, trz_event event, trz_stream stream)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_event_record);
	if (call.status == TRZ_OK)
		call.status = sim_event_mark(call.s, context, event, stream);
	return sim_leave(&call);
}

static trz_status slot_context_record(void *self, trz_context context, trz_event event)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_context_record);
	if (call.status == TRZ_OK)
		call.status = sim_event_mark_all(call.s, context, event);
	return sim_leave(&call);
}

static trz_status slot_event_query(void *self, trz_context context, trz_event event)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_event_query);
	if (call.status == TRZ_OK)
		call.status = sim_event_passed(call.s, context, event);
	return sim_leave(&call);
}

static trz_status slot_event_sync(void *self, trz_context context, trz_event event)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_event_sync);
	if (call.status == TRZ_OK)
		call.status = sim_event_wait(call.s, context, event);
	return sim_leave(&call);
}

static trz_status slot_stream_wait(void *self, trz_context context, trz_stream stream, trz_event event)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_stream_wait);
	if (call.status == TRZ_OK)
		call.status = sim_stream_await(call.s, context, stream, event);
	return sim_leave(&call);
}

static trz_status slot_stream_id(void *self, trz_context context, trz_stream stream, uint64_t *id)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_stream_id);
	struct sim_stream *st = NULL;
	if (call.status == TRZ_OK)
		call.status = sim_stream_find_any(call.s, context, stream, &st);
	if (call.status == TRZ_OK)
		call.status = sim_capture_question(call.s, st);
	if (call.status == TRZ_OK)
		*id = st->id;
	return sim_leave(&call);
}

static trz_status slot_stream_context(void *self, trz_context context, trz_stream stream, trz_context *of)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_stream_context);
	struct sim_stream *st = NULL;
	bool current = !context && (uintptr_t)stream <= 2;
	if (call.status == TRZ_OK && !current)
		call.status = sim_stream_find_any(call.s, context, stream, &st);
	if (call.status == TRZ_OK)
		*of = current ? sim_thread_context(call.thread) : (trz_context)st->context->value;
	return sim_leave(&call);
}

static trz_status slot_stream_capture(void *self, trz_context context, trz_stream stream,
                                      trz_capture_status *status, uint64_t *id)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_stream_capture);
	struct sim_stream *st = NULL;
	if (call.status == TRZ_OK)
		call.status = sim_stream_find_any(call.s, context, stream, &st);
	if (call.status == TRZ_OK)
		call.status = sim_capture_status(call.s, st, status, id);
	return sim_leave(&call);
}

static trz_status slot_capture_mode(void *self, trz_capture_mode *mode)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_capture_mode);
	if (call.status == TRZ_OK) {
		trz_capture_mode old = call.thread->capture_mode;
		call.thread->capture_mode = *mode;
		*mode = old;
	}
	return sim_leave(&call);
}

/* ---- sharing, time -------------------------------------------------------------------------------- */

static trz_status slot_peer_access(void *self, int device, int peer, bool *can)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_peer_access);
	if (call.status == TRZ_OK)
		call.status = check_device(call.s, device);
	if (call.status == TRZ_OK)
		call.status = check_device(call.s, peer);
	if (call.status == TRZ_OK)
		*can = sim_reaches(call.s, device, peer);
	return sim_leave(&call);
}

static trz_status slot_export_handle(void *self, trz_handle handle, unsigned kind, void *shareable)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_export_handle);
	if (call.status == TRZ_OK)
		call.status = sim_export(call.s, handle, kind, shareable);
	return sim_leave(&call);
}

static trz_status slot_import_handle(void *self, unsigned kind, const void *shareable, trz_handle *handle)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_import_handle);
	if (call.status == TRZ_OK)
		call.status = sim_import(call.s, kind, shareable, handle);
	return sim_leave(&call);
}

/* Driver calls' virtual time, 1 us per tick of the trace clock, and 1 ns per reading, so that the clock never
 * stands still. */
static trz_status slot_clock_ns(void *self, uint64_t *ns)
{
	struct sim_call call = sim_enter(self, SIM_SLOT_clock_ns);
	call.s->clock_readings++;
	*ns = sim_now_ns(call.s);
	return sim_leave(&call);
}

const trz_driver sim_table = {
	.version = TRZ_DRIVER_VERSION,
	.size = sizeof(trz_driver),
	.name = "sim",
#define SLOT_ENTRY(slot) .slot = slot_##slot,
	TRZ_DRIVER_SLOTS(SLOT_ENTRY)
#undef SLOT_ENTRY
};
