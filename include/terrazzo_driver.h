/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver seam: the one table through which terrazzo reaches a device. There are two, the CUDA driver's
 * (trz_driver_cuda) and the simulated device's (sim/). Tests wrap them to count calls, make them fail or trace them.
 * Experimental: the table may change between minor versions; `version` guards against a mismatch.
 *
 * Contract of all slots
 *  - `self` is the table's own `self`. Out-pointers are never NULL and are written only on TRZ_OK.
 *  - Thread-safe. A slot that needs a context takes one as argument and makes it current during the call; afterwards
 *    the calling thread's current context, or none, is as before.
 *  - Foreign error codes end here. A slot returns TRZ_OK or one of its documented statuses. Any slot may also return
 *    ERROR_CONTEXT_DEAD (a sticky error: every later call of that context fails too), ERROR_SHUTDOWN (the driver has
 *    been torn down), ERROR_INVALID_ARGUMENT (the call breaks the slot's contract) or ERROR_DRIVER (anything else); a
 *    "capture: no" slot also ERROR_CAPTURE. Inside a host function of a stream every slot except clock_ns may refuse
 *    with ERROR_NOT_PERMITTED; CUDA leaves open which do. trz_driver_last_error() has the text.
 *  - A failed call has no effect.
 *  - Locks: the heap may call a slot with its growth lock held, never with the heap lock (docs/lock-order.md).
 *  - "capture: no" means that the CUDA driver may refuse the call, or silently invalidate a capture, while a
 *    stream capture in any mode except relaxed is under way in the thread.
 *  - "may block: maybe" means that the driver documents neither: callers must be correct either way.
 *
 * Rules marked [unverified] have not been confirmed on hardware; the simulated device has a switch for each
 * (sim/sim.h, enum sim_rule).
 */
#ifndef TERRAZZO_DRIVER_H
#define TERRAZZO_DRIVER_H

#include "terrazzo.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRZ_DRIVER_VERSION 3

typedef uint64_t trz_addr;    /* a device virtual address; 0 is none */
typedef uint64_t trz_handle;  /* physical memory (CUmemGenericAllocationHandle); 0 is none */

typedef struct trz_device_info {
	char name[96];
	uint64_t total_bytes;            /* physical memory of the device */
	uint64_t granularity;            /* unit of create, map and reserve: a power of two, 2 MiB on GPUs to date */
	bool vmm;                        /* create/map and the rest of the virtual memory slots work */
	bool rdma_with_vmm;              /* created memory may be marked for GPUDirect RDMA */
	bool export_fd;                  /* handles export as POSIX file descriptors */
	bool export_fabric;              /* handles export as fabric handles */
	int compute_major, compute_minor;
} trz_device_info;

/* Kinds of export, also a bit set in trz_tile_props. Fixed when memory is created. */
enum { TRZ_EXPORT_NONE = 0, TRZ_EXPORT_FD = 1, TRZ_EXPORT_FABRIC = 8 };

/* Properties of physical memory. */
typedef struct trz_tile_props {
	int device;
	unsigned export_kinds;  /* TRZ_EXPORT_* or'ed; asking for a kind that the device lacks is NOT_SUPPORTED */
	bool rdma;              /* may be registered with a network card */
} trz_tile_props;

/* cuStreamIsCapturing's answers. */
typedef enum trz_capture_status {
	TRZ_CAPTURE_NONE = 0,
	TRZ_CAPTURE_ACTIVE = 1,
	TRZ_CAPTURE_INVALIDATED = 2
} trz_capture_status;

/* cuThreadExchangeStreamCaptureMode's modes. */
typedef enum trz_capture_mode {
	TRZ_CAPTURE_GLOBAL = 0,
	TRZ_CAPTURE_THREAD_LOCAL = 1,
	TRZ_CAPTURE_RELAXED = 2
} trz_capture_mode;

/* Slot names in table order, for overlays and counters: X(slot). */
#define TRZ_DRIVER_SLOTS(X)                                                                                    \
	X(device_count) X(device_info) X(context_retain) X(context_release) X(mem_info)                        \
	X(create) X(release) X(reserve) X(unreserve) X(map) X(unmap) X(set_access)                             \
	X(mem_alloc) X(mem_free)                                                                               \
	X(event_create) X(event_destroy) X(event_record) X(context_record) X(event_query) X(event_sync)        \
	X(stream_wait) X(stream_id) X(stream_context) X(stream_capture) X(capture_mode)                       \
	X(peer_access) X(export_handle) X(import_handle) X(clock_ns)

typedef struct trz_driver {
	uint32_t version;  /* TRZ_DRIVER_VERSION */
	uint32_t size;     /* sizeof(trz_driver) */
	const char *name;  /* "cuda", "sim", ... */
	void *self;

	/* -- devices and contexts --------------------------------------------------------------------- */

	/* Number of devices. capture: yes; may block: the first call, while the driver starts.
	 * NO_DRIVER: there is no driver library, or it is too old. */
	trz_status (*device_count)(void *self, int *count);

	/* Facts of one device. capture: yes. NO_DEVICE. */
	trz_status (*device_info)(void *self, int device, trz_device_info *info);

	/* The context to bind to: `wanted` if not NULL (WRONG_DEVICE if it is not on `device`); else the thread's current
	 * one if it is on `device`; else the primary context. A primary context is retained however it was found. Undo with
	 * context_release in every case. capture: no. NO_DEVICE, OUT_OF_MEMORY, INVALID_ARGUMENT (`wanted` is no context,
	 * or has failed). */
	trz_status (*context_retain)(void *self, int device, trz_context wanted, trz_context *context);

	/* Gives back a context of context_retain. Releases it if it is the primary context. */
	trz_status (*context_release)(void *self, int device, trz_context context);

	/* Free and total bytes as the operating system sees them; racy if other processes allocate, and not all free memory
	 * can be allocated. Needs a context. capture: yes. */
	trz_status (*mem_info)(void *self, trz_context context, uint64_t *free_bytes, uint64_t *total_bytes);

	/* -- virtual memory management: none of these waits for work on the device. They take no context; a table
	 *    whose driver needs a current one [unverified] makes one current ------------------------------------ */

	/* Physical memory: `size` is a multiple of the granularity and > 0. capture: no, but see `unmap`.
	 * May block: yes (host side). OUT_OF_MEMORY, INVALID_ARGUMENT, NOT_SUPPORTED. */
	trz_status (*create)(void *self, const trz_tile_props *props, uint64_t size, trz_handle *handle);

	/* Drops the handle. The memory returns to the device when its last mapping is gone, too. A handle may be released
	 * while mapped. capture: no, but see `unmap`. */
	trz_status (*release)(void *self, trz_handle handle);

	/* A virtual range: size is a multiple of the granularity; alignment 0 or a power of two; `hint` 0 or a preferred
	 * address. ADDRESS_SPACE: no free range is that large (32 GiB can be too much on small devices). */
	trz_status (*reserve)(void *self, uint64_t size, uint64_t alignment, trz_addr hint, trz_addr *address);

	/* Ends a reservation: address and size exactly as from reserve, with nothing mapped inside. */
	trz_status (*unreserve)(void *self, trz_addr address, uint64_t size);

	/* Lays the whole of `handle` (size = its size) at an address inside a reservation, where nothing is
	 * mapped. A handle may be mapped at several addresses; a write through one becomes visible through another when the
	 * writing operation has completed, no sooner. The new mapping has no access rights, even if an earlier mapping at
	 * this address had. NOT_SUPPORTED: a wrong size of an imported handle, since the caller cannot ask for its size.
	 * capture: no, but see `unmap`. */
	trz_status (*map)(void *self, trz_addr address, uint64_t size, trz_handle handle);

	/* Undoes whole mappings: the range starts and ends at borders of mappings and has no holes. Does not wait for work:
	 * the caller ensures that no work in flight uses the range. May block: maybe; on an H200 (driver 580) neither this
	 * nor create, release, map or set_access waited for running kernels. capture: no; that driver allowed all five. */
	trz_status (*unmap)(void *self, trz_addr address, uint64_t size);

	/* Grants read and write access to each listed device. The range is wholly mapped and starts and ends at borders of
	 * mappings. May block: maybe. Cost grows with the number of mappings in it. capture: no, but see `unmap`. */
	trz_status (*set_access)(void *self, trz_addr address, uint64_t size, const int *devices, int count);

	/* -- plain memory, for devices without virtual memory management --------------------------------- */

	/* cuMemAlloc: at least 256-byte aligned. Needs a context. May block: maybe. capture: no.
	 * OUT_OF_MEMORY. */
	trz_status (*mem_alloc)(void *self, trz_context context, uint64_t size, trz_addr *address);

	/* cuMemFree: an address of mem_alloc. May block: maybe (it may wait for the device). capture: no. */
	trz_status (*mem_free)(void *self, trz_context context, trz_addr address);

	/* -- events and streams: all need a context. It decides which streams NULL, 1 and 2 are, and owns a new event.
	 *    Other streams, and events, may belong to any context; an event is recorded only on streams of its own
	 *    context, but a stream may wait for any event ------------------------------------------------------- */

	trz_status (*event_create)(void *self, trz_context context, trz_event *event);

	/* May be called before the event has completed. */
	trz_status (*event_destroy)(void *self, trz_context context, trz_event event);

	/* Captures all work on `stream` at the moment of the call. On a capturing stream it becomes part of the graph and
	 * covers no earlier work: ask stream_capture first. On the legacy stream it invalidates captures of blocking
	 * streams. `stream` must be alive. Blocks: no. INVALID_ARGUMENT: event and stream belong to different contexts. */
	trz_status (*event_record)(void *self, trz_context context, trz_event event, trz_stream stream);

	/* Captures all work on every stream of the context at the moment of the call, whoever made the stream, and launches
	 * of graphs. Blocks: no. NOT_SUPPORTED: drivers before CUDA 12.5. CAPTURE: some stream of the context is being
	 * captured; all of these captures are invalidated, in any mode: the caller cannot ask first. */
	trz_status (*context_record)(void *self, trz_context context, trz_event event);

	/* TRZ_OK: all captured work has completed (or the event was never recorded: callers keep track).
	 * NOT_READY: it has not. CAPTURE: the event was recorded during a capture. capture: no. */
	trz_status (*event_query)(void *self, trz_context context, trz_event event);

	/* Blocks the thread until the event has completed. No lock of the heap may be held. capture: no. */
	trz_status (*event_sync)(void *self, trz_context context, trz_event event);

	/* Later work of `stream` waits for the event, but for dependent launches if it is its own. Blocks: no. CAPTURE. */
	trz_status (*stream_wait)(void *self, trz_context context, trz_stream stream, trz_event event);

	/* An id that is never used again in this process, unlike the handle; below 1 << 62. The stream must be alive. NULL
	 * and 1 have the legacy stream's id, 2 that of the calling thread's stream. Drivers before CUDA 12.0 have no ids:
	 * the handle's value stands in, which can repeat. CAPTURE: the stream is being captured, or it is the legacy stream
	 * and a blocking stream of the context is; that capture is invalidated, in any mode: ask stream_capture first. */
	trz_status (*stream_id)(void *self, trz_context context, trz_stream stream, uint64_t *id);

	/* The context in which to create events for the stream: its own; the primary one for streams of a green context,
	 * which has no events of its own. For NULL, 1 and 2 it is `context` or, where that is NULL, the one that is
	 * current in the calling thread, perhaps NULL. The stream must be alive. capture: yes. */
	trz_status (*stream_context)(void *self, trz_context context, trz_stream stream, trz_context *of);

	/* Whether the stream is being captured, and the capture's id. capture: yes, on every stream; on the legacy stream
	 * the status is CAPTURE while a blocking stream of the context is being captured; that capture is not harmed. */
	trz_status (*stream_capture)(void *self, trz_context context, trz_stream stream,
	                             trz_capture_status *status, uint64_t *id);

	/* Sets the calling thread's capture mode; `mode` then has the old one. */
	trz_status (*capture_mode)(void *self, trz_capture_mode *mode);

	/* -- sharing --------------------------------------------------------------------------------------- */

	/* Whether `device` can reach memory of `peer`. */
	trz_status (*peer_access)(void *self, int device, int peer, bool *can);

	/* Exports a handle that was created for `kind`: TRZ_EXPORT_FD writes an int (the caller closes it),
	 * TRZ_EXPORT_FABRIC 64 bytes. */
	trz_status (*export_handle)(void *self, trz_handle handle, unsigned kind, void *shareable);

	/* The other side: a new handle on the same memory; release it like a created one. */
	trz_status (*import_handle)(void *self, unsigned kind, const void *shareable, trz_handle *handle);

	/* -- time -------------------------------------------------------------------------------------------- */

	/* A monotonic clock in nanoseconds; virtual on a simulated device. Never fails (returns TRZ_OK). */
	trz_status (*clock_ns)(void *self, uint64_t *ns);
} trz_driver;

/* This machine's CUDA driver: the first call loads libcuda.so.1, which is never unloaded. NO_DRIVER with the reason if
 * that fails, NO_DEVICE if the driver sees no device. Thread-safe. After this call trz_open asks the dynamic linker for
 * nothing more, unless the heap's own configuration says nvtx:on: so call it first if you open heaps under a lock. */
TRZ_API trz_status trz_driver_cuda(const trz_driver **out);

/* Text of the calling thread's newest driver failure ("CUDA_ERROR_ILLEGAL_ADDRESS (700) from cuEventQuery"),
 * as set by the table in use; "" when there was none. Tables set it with trz_driver_note. */
TRZ_API const char *trz_driver_last_error(void);
TRZ_API void trz_driver_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif

#endif
