/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap's side of the driver seam: the chosen table bound to one device and context. Each slot has one wrapper,
 * which counts the call; after a sticky error of the context it makes no call except to restore a capture mode. No
 * function here may be called with the heap lock held.
 */
#ifndef TRZ_ALLOC_DRIVER_H
#define TRZ_ALLOC_DRIVER_H

#include "counters.h"
#include "ground/types.h"

enum { ACCESS_MOST = 64 };

struct driver {
	const trz_driver *table;     /* what every call needs comes first: one cache line */
	struct counters *counters;
	trz_context context;
	int device;
	atomic_bool dead;            /* the context has answered CONTEXT_DEAD */
	bool vmm;                    /* the device has virtual memory management, and it is not switched off */
	uint64_t granule;            /* tiles and windows are multiples of it: the driver's granularity, at least GRANULE */
	trz_device_info info;
	int access[ACCESS_MOST];     /* devices that may access what is mapped: this one, then its peers; guarded by the */
	int access_count;            /* growth lock */
};

/* Checks the table, reads the device's facts and retains the context. `use_vmm` false: as if the device
 * lacked it. */
trz_status driver_bind(struct driver *d, const trz_driver *table, int device, trz_context context,
                       bool use_vmm, struct counters *counters);
void driver_unbind(struct driver *d);

static inline bool driver_is_dead(const struct driver *d)
{
	return atomic_load_explicit(&d->dead, memory_order_relaxed);
}

trz_status driver_mem_info(struct driver *d, uint64_t *free_bytes, uint64_t *total_bytes);
/* export_kinds: TRZ_EXPORT_*, a set. */
trz_status driver_create(struct driver *d, uint64_t size, unsigned export_kinds, trz_handle *handle);
trz_status driver_release(struct driver *d, trz_handle handle);
trz_status driver_export_handle(struct driver *d, trz_handle handle, unsigned kind, void *shareable);
trz_status driver_import_handle(struct driver *d, unsigned kind, const void *shareable, trz_handle *handle);
trz_status driver_reserve(struct driver *d, uint64_t size, trz_addr *address);
trz_status driver_unreserve(struct driver *d, trz_addr address, uint64_t size);
trz_status driver_map(struct driver *d, trz_addr address, uint64_t size, trz_handle handle);
trz_status driver_unmap(struct driver *d, trz_addr address, uint64_t size);
trz_status driver_set_access(struct driver *d, trz_addr address, uint64_t size);

/* driver_grant opens a range to one more device. driver_check_peer says whether that is possible at all: NO_DEVICE,
 * NOT_SUPPORTED, with the text. */
trz_status driver_grant(struct driver *d, trz_addr address, uint64_t size, int device);
trz_status driver_check_peer(struct driver *d, int device);
trz_status driver_mem_alloc(struct driver *d, uint64_t size, trz_addr *address);
trz_status driver_mem_free(struct driver *d, trz_addr address);

/* Calls in context `c`, which need not be the heap's: if another context has died, the call says so, and the heap lives
 * on. */
trz_status driver_event_create(struct driver *d, trz_context c, trz_event *event);
trz_status driver_event_destroy(struct driver *d, trz_context c, trz_event event);
trz_status driver_event_record(struct driver *d, trz_context c, trz_event event, trz_stream stream);
trz_status driver_context_record(struct driver *d, trz_context c, trz_event event);
trz_status driver_event_query(struct driver *d, trz_context c, trz_event event);
trz_status driver_event_sync(struct driver *d, trz_context c, trz_event event);
trz_status driver_stream_wait(struct driver *d, trz_context c, trz_stream stream, trz_event event);
/* Whether the stream is being captured, and in which capture (id may be NULL). */
trz_status driver_stream_capture(struct driver *d, trz_context c, trz_stream stream, trz_capture_status *status,
                                 uint64_t *id);

trz_status driver_stream_id(struct driver *d, trz_stream stream, uint64_t *id);

/* driver_stream_capture in the heap's context, and driver_stream_id, for allocations of slots. They count nothing: the
 * caller counts the call by itself, so that threads share no counter. */
trz_status driver_ask_capture(struct driver *d, trz_stream stream, trz_capture_status *status, uint64_t *id);
trz_status driver_ask_id(struct driver *d, trz_stream stream, uint64_t *id);
void driver_count(struct driver *d, enum driver_slot slot);

trz_status driver_stream_context(struct driver *d, trz_stream stream, trz_context *of);

/* Whether the heap's context is the one that handles of default streams mean in this thread. */
bool driver_is_current(struct driver *d);

/* Nanoseconds of a monotonic clock; virtual on a simulated device. */
uint64_t driver_clock(struct driver *d);

/* Sets the thread's capture mode; *mode then has the old one. If the driver refuses, nothing has changed. */
trz_status driver_capture_mode(struct driver *d, trz_capture_mode *mode);

/* Restores the mode from before it was relaxed, even if the context has died: the mode is the thread's. */
void driver_restore_capture_mode(struct driver *d, trz_capture_mode mode);

#endif
