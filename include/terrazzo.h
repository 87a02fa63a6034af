/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo: a caching GPU memory allocator.
 *
 * One `trz_heap` serves one device in one context. Memory given out belongs to a stream: it may be used by
 * work enqueued on that stream at once, and a free takes effect in the order of the stream, without waiting.
 *
 * Conventions
 *  - Every function returns a trz_status; results come back through out-parameters, which are written only
 *    on TRZ_OK (or where the comment says otherwise).
 *  - Sizes are bytes. Addresses are device addresses; the host must not dereference them.
 *  - Functions are safe to call from any thread, also one without a current CUDA context, unless noted.
 *  - "Calls the driver: no" means that not a single driver call is made, an event record included.
 *  - In a child made by fork() the heaps that its parent had open cannot be used: frees, ends and trz_close succeed
 *    and do nothing, statistics are those of the fork, all else fails with SHUTDOWN. A child may open heaps of its own
 *    if its parent had not used the driver.
 *  - Inside a host function (cuLaunchHostFunc, cuStreamAddCallback) CUDA permits no call of its own. Frees and
 *    trz_record_stream work there as anywhere: what they would ask the driver a later poll asks. An allocation on the
 *    legacy default stream works as far as the cache can serve it. All else that needs the driver fails with
 *    NOT_PERMITTED, changes nothing, and may wait for a lock whose holder waits for the stream: it is best not tried.
 *  - After a failure trz_last_error() has one line that names the thing and the remedy.
 */
#ifndef TERRAZZO_H
#define TERRAZZO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TRZ_API __attribute__((visibility("default")))
#else
#define TRZ_API
#endif

#define TRZ_VERSION_MAJOR 0
#define TRZ_VERSION_MINOR 1
#define TRZ_VERSION_PATCH 0

/* Every status: name, value, text. Values below 100 are pinned for good; gaps are for later neighbours. */
#define TRZ_STATUS_LIST(X) \
	X(OK, 0, "success") \
	X(ERROR_INVALID_ARGUMENT, 1, "an argument is outside the documented range") \
	X(ERROR_SIZE, 2, "the size is larger than any device could serve") \
	X(ERROR_ALIGNMENT, 3, "the alignment is not a power of two, or is too large") \
	X(ERROR_UNKNOWN_POINTER, 4, "the pointer was not allocated by this heap") \
	X(ERROR_DOUBLE_FREE, 5, "the pointer has been freed already") \
	X(ERROR_WRONG_DEVICE, 6, "the object belongs to another device or another heap") \
	X(ERROR_NOT_FOUND, 7, "no such name, key or entry") \
	X(ERROR_OUT_OF_MEMORY, 10, "the device has no memory left for the request") \
	X(ERROR_LIMIT, 11, "the heap's own limit refuses the request") \
	X(ERROR_HOST_MEMORY, 12, "the host has no memory left for metadata") \
	X(ERROR_ADDRESS_SPACE, 13, "no free range of virtual addresses is large enough") \
	X(ERROR_NO_ROOM, 14, "the memory wanted at an address is not free") \
	X(NOT_READY, 20, "the work has not completed yet") \
	X(ERROR_NO_DRIVER, 30, "the CUDA driver library cannot be loaded") \
	X(ERROR_NO_DEVICE, 31, "there is no such device") \
	X(ERROR_DRIVER, 32, "the driver refused a call for a reason that no other status names") \
	X(ERROR_NOT_SUPPORTED, 33, "the device or the driver does not support this") \
	X(ERROR_CONTEXT_DEAD, 34, "the device context has failed; every further call to it fails") \
	X(ERROR_CAPTURE, 35, "the call is not permitted while a stream capture is under way") \
	X(ERROR_SHUTDOWN, 36, "the driver or the process is shutting down") \
	X(ERROR_NOT_PERMITTED, 37, "the driver permits no call here: this thread runs a host function of a stream") \
	X(ERROR_CONFIG_KEY, 40, "the configuration has an unknown key") \
	X(ERROR_CONFIG_VALUE, 41, "a configuration key has an invalid value") \
	X(ERROR_IN_USE, 50, "the object still has users") \
	X(ERROR_BAD_INPUT, 60, "the input does not have the format that it claims") \
	X(ERROR_IO, 61, "a file cannot be read or written") \
	X(ERROR_CORRUPT, 90, "an invariant of the heap does not hold: this is a bug in terrazzo, or a stray write")

typedef enum trz_status {
#define TRZ_STATUS_ENUM(name, value, text) TRZ_##name = value,
	TRZ_STATUS_LIST(TRZ_STATUS_ENUM)
#undef TRZ_STATUS_ENUM
} trz_status;

/* The name ("TRZ_ERROR_SIZE") and the text of a status; "TRZ_UNKNOWN" / "unknown status" for any other
 * value. Never NULL; static storage. Calls the driver: no. */
TRZ_API const char *trz_status_name(trz_status status);
TRZ_API const char *trz_status_text(trz_status status);

/* One line about this thread's newest failure: what was asked, what stood in the way, what to do. "" when
 * nothing has failed. Valid until the next failing call of this thread. Calls the driver: no. */
TRZ_API const char *trz_last_error(void);

/* "MAJOR.MINOR.PATCH" of the library that runs (TRZ_VERSION_* are those of the header that was compiled). */
TRZ_API const char *trz_version(void);

/* A CUstream or cudaStream_t. NULL and CU_STREAM_LEGACY (1) are the context's legacy default stream,
 * CU_STREAM_PER_THREAD (2) the calling thread's. Others may be of another context, or of a device that reaches the
 * memory (trz_enable_peer). The first call that names one asks the driver for its context. */
typedef void *trz_stream;

/* A CUevent, best without timing. */
typedef void *trz_event;

/* A CUcontext. */
typedef void *trz_context;

/* The driver table of terrazzo_driver.h. */
struct trz_driver;

typedef struct trz_heap trz_heap;

/* ---- opening and closing -------------------------------------------------------------------------- */

typedef struct trz_open_params {
	/* Device ordinal, 0 .. device count - 1. */
	int device;
	/* Context to bind to. NULL: the calling thread's current context if it is on `device`, else the
	 * device's primary context, which the heap then retains until it is closed. */
	trz_context context;
	/* "key:value,..." as in TERRAZZO_CONF; keys given here override the environment's. NULL: environment
	 * only. `terrazzo config` lists the keys. */
	const char *config;
	/* NULL: the CUDA driver of this machine. Else this table, which must outlive the heap. */
	const struct trz_driver *driver;
} trz_open_params;

/* Opens a heap. `params` may be NULL (device 0, all defaults). Calls the driver: yes, but creates no device
 * memory before the first allocation.
 * Errors: NO_DRIVER, NO_DEVICE, NOT_SUPPORTED (the device has neither VMM nor plain allocation), CONFIG_KEY,
 * CONFIG_VALUE, HOST_MEMORY, INVALID_ARGUMENT (out is NULL, or the driver table is of another version). */
TRZ_API trz_status trz_open(const trz_open_params *params, trz_heap **out);

/* Waits for all work enqueued before the frees made so far, returns every byte to the driver and destroys the heap.
 * Where it cannot wait (a stream is being captured, the driver refuses) all memory stays with the driver. Streams may
 * have been destroyed before; a capture on one that the heap was not asked to allocate on meanwhile is broken.
 * No other thread may be inside a call with this heap. Live allocations are released too: their addresses
 * die; the caller sees to it that no work uses them. NULL is allowed and does nothing.
 * Errors: DRIVER, CAPTURE (what could be released was; the heap is gone all the same). */
TRZ_API trz_status trz_close(trz_heap *heap);

/* ---- allocation ------------------------------------------------------------------------------------- */

/* Allocates `size` bytes for use on `stream`. size 0 succeeds and gives NULL. `alignment` is a power of two
 * up to 2 MiB, or 0 for the default: 512. The content is undefined.
 * Cost, with the free: about 20 ns for small sizes, 50 to 90 ns for large ones out of the cache. Calls the driver when
 * the cache cannot serve, and, on other streams than the legacy default one, for the stream's id and capture status.
 * On a stream that is being captured an allocation needs a pool (trz_pool_begin_capture): else it is refused (CAPTURE),
 * since graphs use their memory again at every launch. Captures of other streams, under way in whatever thread and
 * mode, are not disturbed.
 * Errors: OUT_OF_MEMORY, LIMIT, CAPTURE, SIZE (>= 2^47), ALIGNMENT, ADDRESS_SPACE, HOST_MEMORY, CONTEXT_DEAD,
 * DRIVER. On an error *out is set to NULL and the heap is as it was. */
TRZ_API trz_status trz_alloc(trz_heap *heap, size_t size, size_t alignment, trz_stream stream, void **out);

/* Frees in the order of the stream that the memory was allocated on: work enqueued there before the call may
 * still use it. NULL is allowed. Waits for nothing. Calls the driver: for a large allocation on a heap that has
 * seen more than one stream, and for any on a per-thread stream, one event record (and the question whether the
 * stream is being captured; at first the making of an event); else no.
 * Errors: UNKNOWN_POINTER (never ours, or inside an allocation), DOUBLE_FREE, WRONG_DEVICE (another open heap's),
 * HOST_MEMORY. Nothing changes on an error. On a heap whose context has died frees still succeed: they keep the
 * books, nothing is reused. */
TRZ_API trz_status trz_free(trz_heap *heap, void *ptr);

/* As trz_free, but in the order of `stream`: the caller states that every use of the memory, on whatever stream, is
 * ordered before work that `stream` is given from now on, and so is all that the stream it was allocated on had been
 * given by the time of the allocation. The memory is then reusable on `stream` at once and elsewhere when `stream` has
 * passed this point. */
TRZ_API trz_status trz_free_on(trz_heap *heap, void *ptr, trz_stream stream);

/* Frees when an event has completed: the caller states that all uses of the memory, on whatever stream or device,
 * precede it, and so does all that the stream it was allocated on had been given by the time of the allocation. It is
 * then reusable on every stream; nobody waits, uses noted with trz_record_stream are forgotten.
 * The event has been recorded, in the heap's context and outside a capture. On TRZ_OK it is the heap's, which destroys
 * it when it has completed: it must not be used any more, not even waited for. On an error it stays the caller's.
 * Calls the driver: asks the event; where it has completed already, destroys it.
 * Errors: as trz_free; CAPTURE (the event belongs to a capture), INVALID_ARGUMENT, DRIVER. */
TRZ_API trz_status trz_free_after(trz_heap *heap, void *ptr, trz_event event);

/* The allocation that holds the address is in use on `stream` as well: a later free takes effect when that stream,
 * too, has passed the point of the free. May be called several times, for several streams. NULL, and addresses that
 * are not the heap's, are tolerated and ignored, as PyTorch's Tensor.record_stream needs. Calls the driver: the
 * stream's id. Errors: HOST_MEMORY. */
TRZ_API trz_status trz_record_stream(trz_heap *heap, void *ptr, trz_stream stream);

/* To be called before a stream is destroyed: records what the heap still has to know of it. Its cached memory goes
 * to other streams when its work has completed. Nothing may be allocated on it, freed in its order by name, or
 * recorded on it afterwards; allocations made on it may be freed at any time. Unknown streams are ignored. Calls the
 * driver: one event record. Errors: DRIVER, CAPTURE, CONTEXT_DEAD. */
TRZ_API trz_status trz_stream_retire(trz_heap *heap, trz_stream stream);

/* The largest request that `stream` would be served now, in bytes, from what is cached, what can be gathered and
 * what the device and the limit still allow. Other threads and processes can change it at any moment. Calls the
 * driver: yes. */
TRZ_API trz_status trz_largest_block(trz_heap *heap, trz_stream stream, size_t *size);

/* What the heap knows of an address. */
typedef struct trz_pointer_info {
	void *base;             /* first byte of the allocation that holds the address */
	size_t size;            /* bytes reserved for it (>= requested) */
	size_t requested;       /* bytes asked for */
	trz_stream stream;      /* the stream it was allocated on */
	int device;             /* ordinal */
	bool small;             /* at most of medium_limit (docs/options.md): counted as of the small pool */
} trz_pointer_info;

/* Makes an allocation `size` bytes long where it is: its address and content stay, and what is added may be used by
 * work that its stream is given from now on. That takes free memory behind it that the stream may have, or new memory
 * at the end of what the driver has been given addresses for; slots of slabs, memory of trz_alloc_with, and all that a
 * debugging option gives memory of its own grow within their rounding only. A size up to the present one changes
 * nothing. Waits for nothing; other streams that use the allocation need no new trz_record_stream.
 * Where the stream is another thread's per-thread default stream, which may be being captured, it grows within its
 * rounding only.
 * Calls the driver: where no free neighbour is large enough, and, on other streams than the legacy default one, for the
 * stream's capture status. Errors: NO_ROOM (allocate elsewhere and copy), UNKNOWN_POINTER, OUT_OF_MEMORY, LIMIT, SIZE,
 * CAPTURE (the stream is being captured, and it is not memory of a pool), HOST_MEMORY, CONTEXT_DEAD, DRIVER. On an
 * error nothing has changed. */
TRZ_API trz_status trz_grow(trz_heap *heap, void *ptr, size_t size);

/* Looks up any address inside a live allocation. Calls the driver: no. Errors: UNKNOWN_POINTER. */
TRZ_API trz_status trz_query(trz_heap *heap, const void *ptr, trz_pointer_info *out);

/* Returns free memory to the driver until at most `keep` bytes stay reserved, or nothing more can go: only
 * tiles that hold no live byte and whose last users have completed. 0 returns all that can be. `released`
 * (may be NULL) gets the bytes returned. Waits for nothing. Where other threads' per-thread streams hold freed memory,
 * which an allocation that finds the device full does as well, an event of the whole context is recorded: not while a
 * capture is under way that has been announced, or is on a stream that the heap has been given or that is a blocking
 * one; any other would be broken. Calls the driver: yes. Errors: DRIVER, CONTEXT_DEAD, CAPTURE, HOST_MEMORY. */
TRZ_API trz_status trz_trim(trz_heap *heap, size_t keep, size_t *released);

/* Does what a heap does now and then: asks which work has completed, gives freed memory that waited for it back to the
 * cache, and returns to the driver what the options trim_threshold and decay_ms, or a debugging option, want returned.
 * Allocations that the cache cannot serve do the same; a program that is idle, or wants it punctually, calls this from
 * a timer. Waits for nothing. Calls the driver: yes. Errors: CONTEXT_DEAD. */
TRZ_API trz_status trz_poll(trz_heap *heap);

/* Upper bound of reserved bytes; 0: none. A limit below what is reserved now stops growth only; use
 * trz_trim to get down to it. Calls the driver: no. */
TRZ_API trz_status trz_set_limit(trz_heap *heap, size_t limit);
TRZ_API trz_status trz_get_limit(trz_heap *heap, size_t *limit);

/* ---- private pools ------------------------------------------------------------------------------------ */

/* Memory that is given to nobody else while the pool lives. A pool that a capture has allocated from is pinned: its
 * graphs know its addresses, so that nothing of it is moved, returned or lent until the last reference has gone and
 * what all streams had been given by then has completed. A pool that is not pinned gives what is free of it back in
 * a trim, and to others when the device is full. Allocations outlive their pool: their memory is then the heap's. */
typedef struct trz_pool trz_pool;

/* A new pool, with one reference. Functions that are given a pool of another heap fail with WRONG_DEVICE. Calls the
 * driver: no. Errors: HOST_MEMORY. */
TRZ_API trz_status trz_pool_create(trz_heap *heap, trz_pool **out);

/* One more reference, one less. With the last the pool ends; `pool` must not be used afterwards. Where it is pinned,
 * launches of its graphs that are still under way are waited for, on whatever stream of the context, before any of its
 * memory is put to other use.
 * That takes an event of the whole context, and recording one invalidates captures. So it is put off, to later polls,
 * while a capture is under way that is announced (trz_pool_begin_capture, or trz_pool_begin with a filter), or on a
 * blocking stream, or on one that the heap has been given in whatever call: a capture on any other stream needs one of
 * these three. Drivers before CUDA 12.5 have no such event: launches are then waited for on streams that the heap has
 * been given, and on blocking ones where per-thread streams are in use; on others they must have completed before.
 * Calls the driver: with the last reference, event records and queries. */
TRZ_API trz_status trz_pool_retain(trz_heap *heap, trz_pool *pool);
TRZ_API trz_status trz_pool_release(trz_heap *heap, trz_pool *pool);

/* As trz_alloc, from the pool. On a stream that is being captured the pool becomes pinned; nothing is then waited
 * for or fenced, so that the capture stays as it is. trz_free frees. */
TRZ_API trz_status trz_pool_alloc(trz_heap *heap, trz_pool *pool, size_t size, size_t alignment, trz_stream stream,
                                  void **out);

/* Whether an allocation on `stream` is to be diverted. Called by allocating threads, several at a time; must not call
 * the heap, nor take a lock that a thread may hold while it calls trz_pool_begin, trz_pool_begin_capture or
 * trz_pool_end: those wait until no filter is running. */
typedef bool trz_pool_filter(void *user, trz_stream stream);

/* Until trz_pool_end, allocations that name no pool go to this one: those whose stream the filter accepts, or with
 * `filter` NULL those of the calling thread. Diversions nest: the newest that applies is obeyed. Each holds a
 * reference. With a filter it may be for a capture, and is an announcement as trz_pool_begin_capture is. Calls the
 * driver: without a filter, no. Errors: HOST_MEMORY. */
TRZ_API trz_status trz_pool_begin(trz_heap *heap, trz_pool *pool, trz_pool_filter *filter, void *user);

/* The same for a capture, to be called before it begins on `stream`: takes what is allocated on all streams that are
 * part of it, and pins the pool. With the per-thread default stream only this thread's allocations are taken.
 * Captured allocations get no memory that work outside the capture may still be using, so that the graph can be
 * launched at once, on any stream. From this call until it is part of the capture a stream must not be given work that
 * uses memory of the pool, nor made to wait for such. Where the streams have completed by then what they were given
 * before the call, all free memory of the pool is reused, and what is freed in the capture; else only what has
 * completed, and what the capture itself has allocated and freed: synchronise before, as PyTorch does.
 * Calls the driver: an event record on each stream that has memory of the pool. Errors: HOST_MEMORY, INVALID_ARGUMENT
 * (the legacy default stream cannot be captured). */
TRZ_API trz_status trz_pool_begin_capture(trz_heap *heap, trz_pool *pool, trz_stream stream);

/* Ends the newest diversion to the pool, of those that this thread began if there is one. Waits until no filter of it
 * is running. Errors: NOT_FOUND (none is under way). */
TRZ_API trz_status trz_pool_end(trz_heap *heap, trz_pool *pool);

typedef struct trz_pool_info {
	unsigned id;            /* > 0; the second number of segment_pool_id in snapshots */
	unsigned references;    /* diversions' included */
	bool pinned;
	size_t reserved;        /* bytes of memory in its windows */
	size_t allocated;       /* bytes of its blocks and slots that callers hold */
	size_t allocations;
} trz_pool_info;

/* What the pool holds now. Cost grows with the number of its blocks. Calls the driver: no. */
TRZ_API trz_status trz_pool_query(trz_heap *heap, trz_pool *pool, trz_pool_info *out);

/* The addresses that callers hold of the pool: writes up to `capacity` and their full number to `count`. */
TRZ_API trz_status trz_pool_live(trz_heap *heap, trz_pool *pool, void **list, size_t capacity, size_t *count);

/* A note of what callers hold of a pool, and where. */
typedef struct trz_pool_state trz_pool_state;

/* Takes such a note; it lives until trz_pool_state_free or the heap's end. Errors: HOST_MEMORY. */
TRZ_API trz_status trz_pool_checkpoint(trz_heap *heap, trz_pool *pool, trz_pool_state **out);

/* Puts the pool back into the noted state: all that is held of it is freed, what was held then is held again, at the
 * same addresses. Where the pool has served several streams, the work that used what is freed must have completed.
 * Calls the driver: event queries. Errors, nothing has changed then: NOT_READY (other streams' uses of freed memory are
 * unfinished; what goes to another stream than the one that freed it has not been passed; or something is held of which
 * trz_record_stream has noted uses, or which is exported: free it first, or end its exports), NOT_FOUND (memory has
 * gone back to the device; that of pinned pools never does), HOST_MEMORY. */
TRZ_API trz_status trz_pool_restore(trz_heap *heap, trz_pool *pool, const trz_pool_state *state);

/* The addresses of a note, as in trz_pool_live. */
TRZ_API trz_status trz_pool_state_live(const trz_pool_state *state, void **list, size_t capacity, size_t *count);
TRZ_API void trz_pool_state_free(trz_pool_state *state);

/* ---- memory of its own kind --------------------------------------------------------------------------- */

enum {
	TRZ_ALLOC_CONTIGUOUS = 1,    /* one physical tile: for libraries that register memory (NCCL, UCX, GDS) */
	TRZ_ALLOC_SHARE_FD = 2,      /* may be exported as a POSIX file descriptor */
	TRZ_ALLOC_SHARE_FABRIC = 4,  /* may be exported as a fabric handle */
	TRZ_ALLOC_RDMA = 8           /* a network card may reach it (GPUDirect RDMA) */
};

typedef struct trz_alloc_params {
	size_t struct_size;   /* sizeof(trz_alloc_params): what a shorter, older struct lacks counts as 0 */
	size_t size;          /* as in trz_alloc */
	size_t alignment;
	trz_stream stream;
	struct trz_pool *pool;  /* NULL: as in trz_alloc */
	unsigned flags;       /* TRZ_ALLOC_*, or'ed; 0: as in trz_alloc */
	void *address;        /* the allocation begins there, a multiple of 512; NULL: wherever the heap decides */
} trz_alloc_params;

/* As trz_alloc, with more to ask for. With any flag the memory is one physical tile of its own, a multiple of the
 * device's granularity (2 MiB): nothing else is ever in it, and it keeps its address and its mapping until it goes
 * back to the driver; it is freed with trz_free and reused for requests with the same flags that are at most a ninth
 * shorter. Cost: a driver allocation where none is kept; meant for buffers that live long.
 * Where the device has no virtual memory management contiguous memory comes from plain driver allocations.
 * With an address all of [address, address + size) has to be free memory of the pool that serves the request, and to be
 * the stream's own or passed; nothing is made or moved. It is for programs that put back at its address what they have
 * freed and a captured graph still uses: sizes up to 32 KiB can be had where such a slot lay, up to 1 MiB in windows of
 * small memory at multiples of 32 KiB. Cost: one look at the blocks around, under the growth lock; event queries.
 * Errors: as trz_alloc; NOT_SUPPORTED (the device lacks what a flag asks for); NO_ROOM (not all of it is free at that
 * address); ALIGNMENT (of the address); INVALID_ARGUMENT (an unknown flag, flags and an address, or a struct_size that
 * this library does not know). */
TRZ_API trz_status trz_alloc_with(trz_heap *heap, const trz_alloc_params *params, void **out);

/* ---- sharing memory with other processes -------------------------------------------------------------- */

/* Writes a handle of an allocation, made with the flag TRZ_ALLOC_SHARE_FD or TRZ_ALLOC_SHARE_FABRIC, which is given
 * again as `kind`: a file descriptor (an int, which the caller closes) or a fabric handle (64 bytes). Whoever has it
 * can read and write the allocation's whole tile. The importer needs the tile's size, too: trz_query tells it.
 * From now on the memory is pinned: freed, it is neither reused nor returned before each export of it has been ended;
 * until then it counts as pending. Closing the heap ends all exports; importers keep the memory alive.
 * Calls the driver: yes. Errors: UNKNOWN_POINTER, INVALID_ARGUMENT (it was not allocated for this kind), LIMIT
 * (65535 exports), and the driver's. */
TRZ_API trz_status trz_export(trz_heap *heap, void *ptr, unsigned kind, void *shareable);

/* A physical tile that has been exported: where it lies, and its bytes. */
typedef struct trz_exported_tile {
	void *base;
	size_t size;
} trz_exported_tile;

/* Exports the one tile that holds an address, as it is: with all that lies in it, now and later. Whoever has the handle
 * can read and write all of it. The address lies in any live allocation of the heap, however it was made, or in a tile
 * that is exported already; where an allocation goes on beyond `tile`'s end, the tiles behind it are asked for one by
 * one. `kind` and `shareable` are as in trz_export; shareable NULL: no handle is made, the tile is only pinned.
 * From now on the tile is pinned: until each of its exports has been ended (trz_export_end with `tile`'s base) it keeps
 * its address and is not returned to the device. The heap goes on using what is free in it: what importers use is to be
 * freed when they have done with it. Closing the heap ends all exports; importers keep the memory alive.
 * Calls the driver: yes, but with shareable NULL. Errors: UNKNOWN_POINTER, NOT_SUPPORTED (a plain driver allocation, or
 * the device cannot export tiles so), INVALID_ARGUMENT (the option exportable is off), and the driver's. */
TRZ_API trz_status trz_export_tile(trz_heap *heap, const void *address, unsigned kind, void *shareable,
                                   trz_exported_tile *tile);

/* Ends one export: of an allocation, freed or not, by its first byte, or of a tile, by its base. The caller states that
 * the importers' work with it has completed, since nothing of it can be seen from here. Calls the driver: no.
 * Errors: NOT_FOUND (nothing to end). */
TRZ_API trz_status trz_export_end(trz_heap *heap, void *ptr);

/* Maps memory that another process has exported: `size` bytes, exactly the size of its tile there. The memory is used
 * and freed like an allocation of `stream`; trz_record_stream and trz_free_on apply. Freed, it is unmapped at an
 * allocation, poll or trim after its uses have completed. It counts as imported, in no other statistic, and is not part
 * of snapshots. Peers of the heap may access it. A file descriptor stays the caller's, who may close it at once.
 * Calls the driver: yes. Errors: INVALID_ARGUMENT (the driver does not know the handle, or the size is not its),
 * NOT_SUPPORTED, ADDRESS_SPACE, HOST_MEMORY, CONTEXT_DEAD, DRIVER. On an error *out is set to NULL. */
TRZ_API trz_status trz_import(trz_heap *heap, unsigned kind, const void *shareable, size_t size, trz_stream stream,
                              void **out);

enum { TRZ_SHAREABLE_BYTES = 64 };  /* the longest handle */

/* Writes the handle of the next tile of an import, which begins `offset` bytes behind the first one's base, and its
 * size. Called in order, with no lock of the heap held; the handle is of use until the next call, or the import's end.
 * Any status but TRZ_OK ends the import with that. */
typedef trz_status trz_import_callback(void *user, size_t offset, void *shareable, size_t *size);

/* As trz_import, of memory that lies in several tiles there: maps them side by side, `size` bytes in all, as one
 * allocation. Errors: as of trz_import, and of `next`. */
TRZ_API trz_status trz_import_tiles(trz_heap *heap, unsigned kind, size_t size, trz_import_callback *next, void *user,
                                    trz_stream stream, void **out);

/* ---- peers --------------------------------------------------------------------------------------------- */

/* Opens all memory of the heap, mapped now or later, imports included, to another device; for the heap's own device
 * it does nothing. With `on` false memory that is mapped from then on is closed to it; what is mapped stays open.
 * Cost: setting access again on all that is mapped; each later mapping costs more for each peer. Where the driver
 * refuses half-way the call fails, part of the memory may be open already, and the call can be made again; allocations
 * are not concerned. Calls the driver: yes. Errors: NO_DEVICE, NOT_SUPPORTED (the devices cannot reach each other, or
 * there is no virtual memory management: use cuCtxEnablePeerAccess), LIMIT (63 peers), and the driver's. */
TRZ_API trz_status trz_enable_peer(trz_heap *heap, int device, bool on);

/* ---- out of memory ----------------------------------------------------------------------------------- */

enum { TRZ_OOM_AWAITED = 4 };

/* The newest allocation that failed with OUT_OF_MEMORY or LIMIT. Bytes, at the moment of the failure. */
typedef struct trz_oom_info {
	size_t requested;
	trz_stream stream;
	size_t device_free, device_total;  /* as the driver told */
	size_t limit;                      /* 0: none */
	size_t reserved, allocated, pending, cached;
	size_t pinned;                     /* of cached: free memory of private pools that graphs rely on, which serves
	                                    * nobody else */
	size_t largest;                    /* the largest request that would have been served */
	size_t missing;                    /* what is lacking even if all free memory lay in one piece: the device, or the
	                                    * limit, is full. 0: there is enough, but other streams' unfinished work or
	                                    * live blocks in the same tiles keep it apart */
	unsigned waits;                    /* the stream was made to wait so often, in vain, for what other streams still
	                                    * did with memory that they had freed (the option wait) */
	unsigned awaited_count;            /* those streams: so many of them are told */
	trz_stream awaited[TRZ_OOM_AWAITED];
} trz_oom_info;

/* Copies what is known of the newest failure. Errors: NOT_FOUND (nothing has failed yet). Calls the driver: no. */
TRZ_API trz_status trz_last_oom(trz_heap *heap, trz_oom_info *info);

/* Called before an allocation fails, by its thread, with no lock held: it may free memory of the heap, and returns
 * whether another attempt is worth while; at most one is made for an allocation. */
typedef bool trz_oom_callback(void *user, const trz_oom_info *info);

/* Sets the callback; NULL: none. Calls the driver: no. */
TRZ_API trz_status trz_set_oom_callback(trz_heap *heap, trz_oom_callback *callback, void *user);

/* ---- what is mapped ---------------------------------------------------------------------------------- */

typedef enum trz_map_event {
	TRZ_MAP = 1,    /* [address, address + size) has memory now; no allocation in it has been given out yet */
	TRZ_UNMAP = 2   /* the range loses its memory when all callbacks for it have returned */
} trz_map_event;

/* Tells what keeps registrations of addresses (of network cards, of NCCL, UCX, cuFile) what becomes of them. The range
 * of a TRZ_UNMAP is that of an earlier TRZ_MAP; neither is ever a part of the other's. Between the two the addresses
 * have the same physical memory behind them, whoever uses it; where that memory is put to use at other addresses as
 * well, they get a TRZ_MAP of their own. So a registration made after TRZ_MAP is right until TRZ_UNMAP.
 *
 * Called by the thread whose call maps or unmaps, in trz_alloc, trz_trim, trz_poll or trz_close, with no lock held: it
 * may take locks, allocate and free (in trz_close only free). Other threads may be inside the callback too, with
 * other ranges. */
typedef void trz_map_callback(void *user, trz_map_event event, void *address, size_t size);

/* Sets the callback, which is told at once of all that is mapped; NULL: none, and what is mapped is not told of any
 * more. Another thread may still be about to call the old callback, or inside it, for a while. Calls the driver: no. */
TRZ_API trz_status trz_set_map_callback(trz_heap *heap, trz_map_callback *callback, void *user);

/* ---- statistics ------------------------------------------------------------------------------------- */

/* One statistic. `name` follows torch.cuda.memory_stats() where the meaning is the same, for example
 * "allocated_bytes.all.peak". `unit` is "bytes", "count", "ns" or "ratio"; `value` holds all but ratios,
 * `ratio` those (0 .. 1). */
typedef struct trz_stat_value {
	const char *name;
	const char *unit;
	const char *help;
	uint64_t value;
	double ratio;
} trz_stat_value;

/* Writes up to `capacity` statistics to `values` and their full number to `count` (either may be NULL/0 to
 * ask for the other). Takes no lock that allocation takes: figures read while others allocate are of slightly
 * different moments. Calls the driver: no. */
TRZ_API trz_status trz_stats(trz_heap *heap, trz_stat_value *values, size_t capacity, size_t *count);

/* One statistic by name. Errors: NOT_FOUND. */
TRZ_API trz_status trz_stat(trz_heap *heap, const char *name, uint64_t *value);

/* Sets every peak to the current value. */
TRZ_API trz_status trz_reset_peaks(trz_heap *heap);

/* Walks the whole heap and checks every invariant of docs/invariants.md. Stops allocation meanwhile; cost
 * grows with the number of blocks. Errors: CORRUPT, with the invariant's number in trz_last_error(). */
TRZ_API trz_status trz_check(trz_heap *heap);

/* ---- history and snapshots ------------------------------------------------------------------------ */

/* Begins to keep the newest `events` (1 .. 2^24; 48 bytes of host memory each) of what happens to the heap:
 * allocations, frees, memory laid, moved and taken away, waits, failures. A history under way is forgotten; what is
 * live stays known with the stack of its allocation, where one was kept. Costs up to 10 ns an operation, and where
 * stacks are asked for (trz_set_frame_callback, option native_frames) what asking costs; off, one branch.
 * Errors: HOST_MEMORY, INVALID_ARGUMENT. Calls the driver: no. */
TRZ_API trz_status trz_history_start(trz_heap *heap, size_t events);

/* Forgets the history and keeps none. No stacks are asked for any more. */
TRZ_API trz_status trz_history_stop(trz_heap *heap);

/* One level of a call stack. The texts are UTF-8; NULL: not known. */
typedef struct trz_frame {
	const char *filename;
	const char *name;       /* of the function */
	unsigned line;          /* 0: not known */
} trz_frame;

/* Names the calling thread's stack by a number that the program keeps for it; 0: none. Called, while a history is kept,
 * before each allocation and free and each call that may return memory (trz_trim, trz_poll, trz_largest_block), with
 * no lock held: it may take any lock, also of an interpreter, and allocate and free of the heap, for which it is not
 * called again. */
typedef uint64_t trz_frame_callback(void *user);

/* Tells the stack of a number: writes up to `capacity` levels to `frames`, innermost first, and returns how many. The
 * texts must stay until the next call or the end of the snapshot. Called by trz_snapshot alone, with no lock held. */
typedef size_t trz_frame_text_callback(void *user, uint64_t id, trz_frame *frames, size_t capacity);

/* Sets both; NULL: no stacks, but native ones where the option native_frames is on. The number goes with the events of
 * allocations, frees, failures, and of what was mapped, moved and unmapped meanwhile; and with the live allocation,
 * so that a snapshot tells where each was made, whatever the history has forgotten since. Numbers of the callbacks
 * before are forgotten. Another thread may be inside the old callback for a while still.
 * Calls the driver: no. */
TRZ_API trz_status trz_set_frame_callback(trz_heap *heap, trz_frame_callback *callback,
                                          trz_frame_text_callback *text, void *user);

/* A pair for trz_set_frame_callback that knows native stacks, as option native_frames sets it: 24 levels, each told as
 * its library and "function+0x1a" or "+0x12af". `user` is not looked at. The process keeps the first 16,384 different
 * stacks; later ones have one number in common. Costs a few microseconds, by the number of levels. */
TRZ_API uint64_t trz_native_frames(void *user);
TRZ_API size_t trz_native_frame_text(void *user, uint64_t id, trz_frame *frames, size_t capacity);

/* The calling thread's allocations, and what is mapped and unmapped by its calls, carry this text in the history from
 * now on; NULL or "": none. At most 63 characters and about 250 different texts a heap are told apart. The text must
 * stay as it is until it is replaced. */
TRZ_API void trz_set_tag(const char *tag);

/* Writes the heap's state and history, both of the same moment, as JSON in the schema of PyTorch's memory
 * snapshots, which its viewer reads. The file appears whole or not at all. Allocation stops for the time of a copy
 * in memory, not for that of writing. Calls the driver: no. Errors: IO, HOST_MEMORY, CORRUPT. */
TRZ_API trz_status trz_snapshot(trz_heap *heap, const char *path);

/* The same, handed to callbacks instead of written: first each segment, by address, followed by its blocks, which
 * cover it; then the history, oldest first. Texts live until the callback returns. */
typedef struct trz_segment_info {
	uint64_t address, size;
	unsigned pool;          /* trz_pool_info.id; 0: none */
	bool small;             /* holds slots of slabs, and blocks of at most medium_limit */
	bool expandable;        /* false: a plain driver allocation */
} trz_segment_info;

typedef enum trz_block_state { TRZ_BLOCK_FREE, TRZ_BLOCK_HELD, TRZ_BLOCK_PENDING } trz_block_state;

typedef struct trz_block_info {
	uint64_t address, size, requested;
	trz_block_state state;
	trz_stream stream;      /* it was allocated on; NULL for a free one */
	const char *tag;        /* "" if it had none, or the history has forgotten */
	uint64_t frames;        /* the number that the frame callback gave; 0: none */
} trz_block_info;

typedef struct trz_event_info {
	const char *action;     /* as in PyTorch's traces: "alloc", "free_requested", "segment_map", "oom", ... */
	uint64_t address;       /* "oom": free bytes of the device */
	uint64_t size;          /* bytes; what was asked for, where somebody asked */
	uint64_t time_ns;       /* since the epoch */
	trz_stream stream;
	unsigned pool;
	const char *tag;
	uint64_t frames;
} trz_event_info;

/* NULL: not wanted. */
typedef struct trz_visitor {
	void (*segment)(void *user, const trz_segment_info *segment);
	void (*block)(void *user, const trz_block_info *block);
	void (*event)(void *user, const trz_event_info *event);
	void *user;
} trz_visitor;

/* Callbacks run without a lock of the heap. Calls the driver: no. Errors: HOST_MEMORY, CORRUPT. */
TRZ_API trz_status trz_walk(trz_heap *heap, const trz_visitor *visitor);

/* The mapping that covers an address, given out or not: its range, as a trz_map_callback is told of it, which may ask
 * here, and the rest as in a snapshot. Memory of other processes is not looked at. Waits for a driver call of another
 * thread that maps or unmaps. Calls the driver: no. Errors: NOT_FOUND. */
TRZ_API trz_status trz_query_mapping(trz_heap *heap, const void *address, trz_segment_info *out);

/* ---- configuration ------------------------------------------------------------------------------------ */

/* One option of TERRAZZO_CONF. */
typedef struct trz_option_info {
	const char *key;
	const char *type;     /* "bytes", "count", "bool" or "text" */
	const char *choices;  /* the range or the choices, as text */
	const char *initial;  /* the default, as text */
	const char *help;
} trz_option_info;

/* The i-th option, i from 0. `choices` and `initial` stay valid until the thread's next call.
 * Errors: NOT_FOUND past the last. Calls the driver: no. */
TRZ_API trz_status trz_option(size_t i, trz_option_info *out);

/* Parses `config` without opening anything; for programs that want to complain early. */
TRZ_API trz_status trz_config_check(const char *config);

#ifdef __cplusplus
}
#endif

#endif
