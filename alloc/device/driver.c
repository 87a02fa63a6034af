/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding a driver table, and one wrapper per slot that the heap uses.
 */
#include "device/driver.h"

#include "bits.h"
#include "error.h"

void driver_count(struct driver *d, enum driver_slot slot)
{
	atomic_fetch_add_explicit(&d->counters->driver_calls[slot], 1, memory_order_relaxed);
}

/* Passes a call's status on, and marks the heap's context dead if that is what it says. */
static trz_status answer_of(struct driver *d, trz_context c, trz_status status)
{
	if (status == TRZ_ERROR_CONTEXT_DEAD && c == d->context)
		atomic_store_explicit(&d->dead, true, memory_order_relaxed);
	return status;
}

static trz_status answer(struct driver *d, trz_status status)
{
	return answer_of(d, d->context, status);
}

#define MAKE(d, slot, ...) answer((d), (d)->table->slot((d)->table->self, __VA_ARGS__))

/* Counts and makes one call of the table. */
#define CALL(d, slot, ...) \
	(driver_is_dead(d) ? TRZ_ERROR_CONTEXT_DEAD : (driver_count((d), DRIVER_SLOT_##slot), MAKE(d, slot, __VA_ARGS__)))

/* Counts and makes one call in a context that need not be the heap's. */
#define CALL_IN(d, c, slot, ...) \
	(driver_is_dead(d) ? TRZ_ERROR_CONTEXT_DEAD \
	                   : (driver_count((d), DRIVER_SLOT_##slot), \
	                      answer_of((d), (c), (d)->table->slot((d)->table->self, (c), __VA_ARGS__))))

/* Counts and makes one call about memory. The growth lock guards the counter, which saves an atomic addition: one
 * growth makes many calls. */
#define CALL_ALONE(d, slot, ...) \
	(driver_is_dead(d) ? TRZ_ERROR_CONTEXT_DEAD \
	                   : (counter_add(&(d)->counters->driver_calls[DRIVER_SLOT_##slot], 1), MAKE(d, slot, __VA_ARGS__)))

static trz_status check_table(const trz_driver *t)
{
	if (t->version != TRZ_DRIVER_VERSION || t->size != sizeof *t)
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT,
		                "driver table \"%s\" has version %u and size %u, this library needs %d and %zu: "
		                "rebuild it against this terrazzo_driver.h",
		                t->name ? t->name : "?", t->version, t->size, TRZ_DRIVER_VERSION, sizeof *t);
#define CHECK_SLOT(slot)                                                                                       \
	if (!t->slot)                                                                                           \
		return trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "driver table \"%s\" lacks the slot " #slot, t->name);
	TRZ_DRIVER_SLOTS(CHECK_SLOT)
#undef CHECK_SLOT
	return TRZ_OK;
}

static trz_status check_device(struct driver *d, int device)
{
	int devices = 0;
	trz_status status = CALL(d, device_count, &devices);
	if (status != TRZ_OK)
		return trz_fail(status, "the driver cannot count its devices: %s", trz_driver_last_error());
	if (device < 0 || device >= devices)
		return trz_fail(TRZ_ERROR_NO_DEVICE, "device %d does not exist: this machine has %d", device, devices);
	status = CALL(d, device_info, device, &d->info);
	if (status != TRZ_OK)
		return trz_fail(status, "reading the properties of device %d failed: %s", device,
		                trz_driver_last_error());
	return TRZ_OK;
}

trz_status driver_bind(struct driver *d, const trz_driver *table, int device, trz_context context,
                       bool use_vmm, struct counters *counters)
{
	trz_status status = check_table(table);
	if (status != TRZ_OK)
		return status;
	*d = (struct driver){.table = table, .counters = counters, .device = device, .access = {device}, .access_count = 1};
	status = check_device(d, device);
	if (status != TRZ_OK)
		return status;
	d->vmm = d->info.vmm && use_vmm;
	d->granule = max_u64(d->info.granularity, GRANULE);
	if (d->vmm && !is_power_of_two(d->granule))
		return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "device %d has an allocation granularity of %llu bytes, "
		                "which is not a power of two: set vmm:off",
		                device, (unsigned long long)d->granule);
	status = CALL(d, context_retain, device, context, &d->context);
	if (status != TRZ_OK)
		return trz_fail(status, "retaining a context of device %d failed: %s", device, trz_driver_last_error());
	return TRZ_OK;
}

void driver_unbind(struct driver *d)
{
	driver_count(d, DRIVER_SLOT_context_release);
	d->table->context_release(d->table->self, d->device, d->context);
}

trz_status driver_mem_info(struct driver *d, uint64_t *free_bytes, uint64_t *total_bytes)
{
	return CALL(d, mem_info, d->context, free_bytes, total_bytes);
}

trz_status driver_create(struct driver *d, uint64_t size, unsigned export_kinds, trz_handle *handle)
{
	const trz_tile_props props = {
	    .device = d->device, .export_kinds = export_kinds, .rdma = d->info.rdma_with_vmm};
	return CALL_ALONE(d, create, &props, size, handle);
}

trz_status driver_release(struct driver *d, trz_handle handle)
{
	return CALL_ALONE(d, release, handle);
}

trz_status driver_export_handle(struct driver *d, trz_handle handle, unsigned kind, void *shareable)
{
	return CALL(d, export_handle, handle, kind, shareable);
}

trz_status driver_import_handle(struct driver *d, unsigned kind, const void *shareable, trz_handle *handle)
{
	return CALL(d, import_handle, kind, shareable, handle);
}

trz_status driver_reserve(struct driver *d, uint64_t size, trz_addr *address)
{
	return CALL_ALONE(d, reserve, size, 0, 0, address);
}

trz_status driver_unreserve(struct driver *d, trz_addr address, uint64_t size)
{
	return CALL_ALONE(d, unreserve, address, size);
}

trz_status driver_map(struct driver *d, trz_addr address, uint64_t size, trz_handle handle)
{
	return CALL_ALONE(d, map, address, size, handle);
}

trz_status driver_unmap(struct driver *d, trz_addr address, uint64_t size)
{
	return CALL_ALONE(d, unmap, address, size);
}

trz_status driver_set_access(struct driver *d, trz_addr address, uint64_t size)
{
	return CALL_ALONE(d, set_access, address, size, d->access, d->access_count);
}

trz_status driver_grant(struct driver *d, trz_addr address, uint64_t size, int device)
{
	return CALL_ALONE(d, set_access, address, size, &device, 1);
}

trz_status driver_check_peer(struct driver *d, int device)
{
	int devices = 0;
	bool can = false;
	trz_device_info info;
	trz_status status = CALL(d, device_count, &devices);
	if (status == TRZ_OK && (device < 0 || device >= devices))
		return trz_fail(TRZ_ERROR_NO_DEVICE, "device %d does not exist: this machine has %d", device, devices);
	if (status == TRZ_OK)
		status = CALL(d, device_info, device, &info);
	if (status == TRZ_OK)
		status = CALL(d, peer_access, device, d->device, &can);
	if (status != TRZ_OK)
		return trz_fail(status, "asking whether device %d can access device %d failed: %s", device, d->device,
		                trz_driver_last_error());
	if (!can || !info.vmm || info.granularity > d->granule)
		return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "device %d cannot access memory of device %d: %s", device, d->device,
		                !can ? "there is no path between them, or the driver forbids it"
		                     : "its allocation granularity is larger, or it lacks virtual memory management");
	return TRZ_OK;
}

trz_status driver_mem_alloc(struct driver *d, uint64_t size, trz_addr *address)
{
	return CALL_ALONE(d, mem_alloc, d->context, size, address);
}

trz_status driver_mem_free(struct driver *d, trz_addr address)
{
	return CALL_ALONE(d, mem_free, d->context, address);
}

trz_status driver_event_create(struct driver *d, trz_context c, trz_event *event)
{
	return CALL_IN(d, c, event_create, event);
}

trz_status driver_event_destroy(struct driver *d, trz_context c, trz_event event)
{
	return CALL_IN(d, c, event_destroy, event);
}

trz_status driver_event_record(struct driver *d, trz_context c, trz_event event, trz_stream stream)
{
	return CALL_IN(d, c, event_record, event, stream);
}

trz_status driver_context_record(struct driver *d, trz_context c, trz_event event)
{
	return CALL_IN(d, c, context_record, event);
}

trz_status driver_event_query(struct driver *d, trz_context c, trz_event event)
{
	return CALL_IN(d, c, event_query, event);
}

trz_status driver_event_sync(struct driver *d, trz_context c, trz_event event)
{
	return CALL_IN(d, c, event_sync, event);
}

trz_status driver_stream_wait(struct driver *d, trz_context c, trz_stream stream, trz_event event)
{
	return CALL_IN(d, c, stream_wait, stream, event);
}

trz_status driver_stream_capture(struct driver *d, trz_context c, trz_stream stream, trz_capture_status *status,
                                 uint64_t *id)
{
	uint64_t unused;
	return CALL_IN(d, c, stream_capture, stream, status, id ? id : &unused);
}

trz_status driver_stream_id(struct driver *d, trz_stream stream, uint64_t *id)
{
	return CALL(d, stream_id, d->context, stream, id);
}

trz_status driver_ask_capture(struct driver *d, trz_stream stream, trz_capture_status *status, uint64_t *id)
{
	return MAKE(d, stream_capture, d->context, stream, status, id);
}

trz_status driver_ask_id(struct driver *d, trz_stream stream, uint64_t *id)
{
	return MAKE(d, stream_id, d->context, stream, id);
}

trz_status driver_stream_context(struct driver *d, trz_stream stream, trz_context *of)
{
	return CALL(d, stream_context, d->context, stream, of);
}

bool driver_is_current(struct driver *d)
{
	trz_context current = NULL;
	return CALL(d, stream_context, NULL, NULL, &current) == TRZ_OK && current == d->context;
}

uint64_t driver_clock(struct driver *d)
{
	uint64_t ns = 0;
	CALL(d, clock_ns, &ns);
	return ns;
}

trz_status driver_capture_mode(struct driver *d, trz_capture_mode *mode)
{
	return CALL(d, capture_mode, mode);
}

void driver_restore_capture_mode(struct driver *d, trz_capture_mode mode)
{
	if (mode == TRZ_CAPTURE_RELAXED)
		return;  /* it was relaxed before, or could not be set */
	driver_count(d, DRIVER_SLOT_capture_mode);
	MAKE(d, capture_mode, &mode);
}
