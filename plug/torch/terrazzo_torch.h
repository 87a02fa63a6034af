/* SPDX-License-Identifier: Apache-2.0
 *
 * libterrazzo_torch.so: one heap per device behind PyTorch's CUDAPluggableAllocator. Usable by itself:
 *
 *     allocator = torch.cuda.memory.CUDAPluggableAllocator("libterrazzo_torch.so", "trz_torch_alloc", "trz_torch_free")
 *     torch.cuda.memory.change_current_allocator(allocator)
 *
 * The hooks trz_torch_init .. trz_torch_release_pool are set through allocator.allocator() (python/terrazzo/torch
 * does); the rest serves that package and the shim.
 *
 * A heap is opened at the first use of its device and never closed: tensors are freed until the very end of a
 * process. A child made by fork() cannot use the device: frees and the ends of pools are silent, everything else fails
 * with TRZ_ERROR_SHUTDOWN. All functions are safe to call from any thread.
 */
#ifndef TERRAZZO_TORCH_H
#define TERRAZZO_TORCH_H

#include "terrazzo.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
	TRZ_TORCH_DEVICES = 64,
	TRZ_TORCH_HANDLE_BYTES = 48   /* of a handle of shared memory */
};

/* PyTorch's MempoolId_t. {0, 0} is the default pool. */
typedef struct trz_torch_pool_id {
	unsigned long long first, second;
} trz_torch_pool_id;

/* ---- what CUDAPluggableAllocator is given --------------------------------------------------------------------- */

/* NULL for size 0. Throws a failure as PyTorch's own exception: torch.OutOfMemoryError if memory ran out, else
 * RuntimeError; std::bad_alloc if PyTorch's classes cannot be found. */
TRZ_API void *trz_torch_alloc(size_t size, int device, trz_stream stream);

/* `stream` is that of the allocation; frees take effect in its order. An unknown pointer is reported on stderr,
 * once. */
TRZ_API void trz_torch_free(void *ptr, size_t size, int device, trz_stream stream);

/* As trz_torch_alloc, but NULL on a failure: what a torch.cuda.MemPool of PyTorch's own allocator expects. */
TRZ_API void *trz_torch_segment_alloc(size_t size, int device, trz_stream stream);

TRZ_API void trz_torch_init(int device_count);
TRZ_API void trz_torch_reset(void);
TRZ_API void trz_torch_memory_fraction(double fraction, int device);
TRZ_API void *trz_torch_base_alloc(void *ptr, size_t *size);
TRZ_API void trz_torch_record_stream(void *ptr, trz_stream stream);
TRZ_API void trz_torch_end_allocate_to_pool(int device, trz_torch_pool_id id);
TRZ_API void trz_torch_release_pool(int device, trz_torch_pool_id id);
/* void trz_torch_begin_allocate_to_pool(int device, trz_torch_pool_id id, std::function<bool(trz_stream)> filter) */

/* ---- for the shim and the Python package ---------------------------------------------------------------------- */

/* From now on terrazzo sees the events that the program records and waits for by the CUDA runtime: PyTorch's imports of
 * these calls lead here first. Call this before the program uses streams; opening a heap calls it as well. Returns how
 * many imports lead here; 0: it is not possible in this process, so streams learn of each other only by asking the
 * device. */
TRZ_API size_t trz_torch_follow_events(void);

/* The heap of a device. `open`: opens it if need be; otherwise *out can be NULL with TRZ_OK. Errors: those of trz_open,
 * INVALID_ARGUMENT (no such ordinal), SHUTDOWN (a forked child). */
TRZ_API trz_status trz_torch_heap(int device, bool open, trz_heap **out);

/* Sets a callback, which the thread that opens a heap calls afterwards; for heaps that are open it is called at
 * once. */
TRZ_API void trz_torch_on_open(void (*callback)(int device, trz_heap *heap));

/* Sets the callbacks for call sites (trz_set_site_callback) of all heaps, also of those opened later. `stack` gives
 * numbers below 2^62. Where it gives 0, call sites are native stacks, if libunwind is installed. */
TRZ_API void trz_torch_set_sites(trz_frame_callback *stack, trz_frame_text_callback *text);

/* Starts a history of the newest `events` in all heaps, also in those opened later, with these callbacks for stacks
 * (trz_set_frame_callback; NULL: none). 0 events: ends all of them. Errors: those of trz_history_start. */
TRZ_API trz_status trz_torch_history(size_t events, trz_frame_callback *stack, trz_frame_text_callback *text);

/* As trz_torch_alloc and trz_torch_free, without exceptions. Searches for the heap of `ptr`, from `device` on. */
TRZ_API trz_status trz_torch_try_alloc(size_t size, int device, trz_stream stream, void **out);
TRZ_API trz_status trz_torch_try_free(void *ptr, int device);

/* As trz_torch_try_alloc, in a tile that holds no other allocation. */
TRZ_API trz_status trz_torch_try_alloc_alone(size_t size, int device, trz_stream stream, void **out);

/* As trz_torch_try_alloc, at an address. NO_ROOM: not all of it is free there. */
TRZ_API trz_status trz_torch_try_alloc_at(size_t size, int device, trz_stream stream, void *address, void **out);

/* The heap that holds an address, NULL if none does. */
TRZ_API trz_heap *trz_torch_owner(const void *ptr);

/* Pools by PyTorch's ids. Open takes a reference, and makes the pool with the first; close gives one up. Begin diverts
 * allocations that the filter accepts (NULL: those of the calling thread), end ends that. Find returns NULL for an
 * unknown id. Errors: those of trz_pool_create, trz_pool_begin and trz_pool_end, NOT_FOUND. */
TRZ_API trz_status trz_torch_pool_open(int device, trz_torch_pool_id id);
TRZ_API trz_status trz_torch_pool_close(int device, trz_torch_pool_id id);
TRZ_API trz_status trz_torch_pool_end(int device, trz_torch_pool_id id);
/* PyTorch before 2.14 does not end the diversion to a pool if a call has broken the capture that it was for. This ends
 * such a diversion of the calling thread, from which the capture has allocated, and closes its pool once. False: there
 * is none (any more). Call it when the thread begins another diversion, empties the cache, or has run out of memory. */
TRZ_API bool trz_torch_pool_end_broken(int *device, trz_torch_pool_id *id);
/* From now on the hooks trz_torch_begin_allocate_to_pool and trz_torch_reset end all such diversions. */
TRZ_API void trz_torch_watch_captures(void);
TRZ_API trz_pool *trz_torch_pool_find(int device, trz_torch_pool_id id);
/* How many references PyTorch holds; 0: there is no such pool. */
TRZ_API unsigned trz_torch_pool_references(int device, trz_torch_pool_id id);
/* Writes up to `capacity` ids of open pools and returns their full number. */
TRZ_API size_t trz_torch_pool_list(int device, trz_torch_pool_id *ids, size_t capacity);
/* The id of a pool by its number in snapshots; {0, 0}: there is none. */
TRZ_API trz_torch_pool_id trz_torch_pool_by_number(int device, unsigned number);

/* 0 <= fraction <= 1 of the device's memory, for the heap and what trz_torch_take_elsewhere counts; 1: no limit. Opens
 * no heap: one that is opened later has the limit. Errors: INVALID_ARGUMENT, NO_DEVICE, SHUTDOWN. */
TRZ_API trz_status trz_torch_set_fraction(int device, double fraction);
TRZ_API double trz_torch_get_fraction(int device);

/* Counts `size` bytes that another allocator takes from the device, or has given back, towards the fraction: the heap's
 * free memory goes back to the device to make room. Errors: LIMIT (the fraction does not allow it; nothing is counted
 * then), those of trz_torch_heap. */
TRZ_API trz_status trz_torch_take_elsewhere(int device, size_t size);
TRZ_API void trz_torch_give_elsewhere(int device, size_t size);

/* Returns free memory of all heaps to the driver until each keeps at most `keep` bytes; returns the bytes returned. */
TRZ_API size_t trz_torch_trim(size_t keep);

/* Between calls with `on` true and false, which nest, the calling thread's allocations get tiles of their own: each is
 * a multiple of 2 MiB, and never moved. If the device cannot do that, they are like any others. */
TRZ_API void trz_torch_shareable(bool on);

/* Writes the handle (TRZ_TORCH_HANDLE_BYTES) of the tiles that the allocation of `ptr` lies in, and the offset of `ptr`
 * in them. Allocations in the same tiles have the same handle. A process of the same user and network namespace can
 * receive the tiles, with everything in them, as long as this process lives and has not freed the allocation; freeing
 * it states that others' work with it has completed. The first share starts a thread, which answers.
 * Errors: UNKNOWN_POINTER, IO, HOST_MEMORY, and those of trz_export_tile: NOT_SUPPORTED (a plain driver allocation),
 * INVALID_ARGUMENT (exportable:off, and it was not allocated to be shareable). */
TRZ_API trz_status trz_torch_share(const void *ptr, size_t *offset, void *handle);

/* Maps the tiles of a handle: *out is the first byte of the tiles, to be used and freed like an allocation of
 * `stream`. Asks the process that shares them, for up to a minute. Errors: INVALID_ARGUMENT (no such handle), NOT_FOUND
 * (the other process has ended, or freed the memory), IO, those of trz_import_tiles. */
TRZ_API trz_status trz_torch_receive(const void *handle, size_t bytes, int device, trz_stream stream, void **out);

/* Whether these bytes are a handle of trz_torch_share. */
TRZ_API bool trz_torch_is_handle(const void *handle, size_t bytes);

/* Whether PyTorch's users see the failure as torch.OutOfMemoryError. */
static inline bool trz_torch_is_want_of_memory(trz_status status)
{
	return status == TRZ_ERROR_OUT_OF_MEMORY || status == TRZ_ERROR_LIMIT || status == TRZ_ERROR_SIZE ||
	       status == TRZ_ERROR_ADDRESS_SPACE;
}

/* PyTorch refuses sizes from here on without looking at memory, and does not count that as a failure of its
 * allocator. */
#define TRZ_TORCH_TOO_LARGE ((size_t)1 << 60)

/* The figures of the calling thread's allocation of `size` bytes that has run out of memory. If the heap has not looked
 * at its memory, since no device has that much, they are those of now. trz_torch_last_error() stays. Calls the driver:
 * yes. */
TRZ_API void trz_torch_oom_info(int device, size_t size, trz_oom_info *info);

/* The error text for PyTorch's users, after the calling thread's allocation of `size` bytes has run out of memory:
 * PyTorch's own sentences without the first one, "CUDA out of memory. ", then trz_torch_last_error(). Valid until the
 * thread's next call. Calls the driver: yes. */
TRZ_API const char *trz_torch_oom_text(int device, size_t size);

/* As trz_last_error, for the calls of this header alone. */
TRZ_API const char *trz_torch_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
