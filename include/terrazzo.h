/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo: a caching GPU memory allocator.
 *
 * One `trz_heap` serves one device in one context. Each allocation belongs to a stream: work enqueued on that stream
 * may use it at once, and a free takes effect in the stream's order, without waiting.
 *
 * Conventions
 *  - Functions return a trz_status. Results come back through out-parameters, which are written only on TRZ_OK unless
 *    the comment says otherwise.
 *  - Sizes are bytes. Addresses are device addresses; the host must not dereference them.
 *  - Unless noted, functions are safe to call from any thread, even one without a current CUDA context.
 *  - "Calls the driver: no" means that the function makes no driver call at all, not even an event record.
 *  - A child made by fork() cannot use the heaps that its parent had open. There, functions that free, release or end
 *    something, trz_record_stream and trz_close succeed and do nothing; statistics and the limit are those at the fork;
 *    all other calls fail with SHUTDOWN. A child may open heaps of its own if its parent had not used the driver.
 *  - As with malloc, a signal handler must not call any function if it may have interrupted another one in its thread,
 *    and must not leave one by longjmp. Nor may a thread be cancelled asynchronously inside one. Deferred cancellation
 *    (pthread_cancel) is safe: it waits until the call, callbacks included, holds nothing of the heap's.
 *  - Inside a host function (cuLaunchHostFunc, cuStreamAddCallback) CUDA permits no CUDA call. Frees and
 *    trz_record_stream still work on streams that the heap knows: a later poll makes their driver calls. An allocation
 *    on the legacy default stream works if the cache can serve it. Do not try any other call that needs the driver: it
 *    fails with NOT_PERMITTED, changes nothing, and may wait for a lock whose holder waits for the stream.
 *  - INVALID_ARGUMENT is possible even where a comment does not name it: NULL where a value is needed, or a stream that
 *    the driver does not know.
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

/* Every status: name, value, text. Values below 100 never change; gaps are for later neighbours. */
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

/* The name ("TRZ_ERROR_SIZE") and the text of a status; "TRZ_UNKNOWN" and "unknown status" for any other value. Never
 * NULL; static storage. Calls the driver: no. */
TRZ_API const char *trz_status_name(trz_status status);
TRZ_API const char *trz_status_text(trz_status status);

/* One line about this thread's newest failure: what was requested, why it failed, what to do. "" if no call has failed.
 * Valid until the next failing call of this thread. Calls the driver: no. */
TRZ_API const char *trz_last_error(void);

/* The version of the loaded library, "MAJOR.MINOR.PATCH" (TRZ_VERSION_* are those of the header that was compiled). */
TRZ_API const char *trz_version(void);

/* A CUstream or cudaStream_t. NULL and CU_STREAM_LEGACY (1) are the context's legacy default stream,
 * CU_STREAM_PER_THREAD (2) is the calling thread's. Any other stream may belong to another context, or to a device that
 * can reach the memory (trz_enable_peer). The first call that names a stream asks the driver for its context. */
typedef void *trz_stream;

/* A CUevent, preferably created without timing. */
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
	/* "key:value,..." as in TERRAZZO_CONF; keys given here override the environment's. NULL: the environment
	 * alone. `terrazzo config` lists the keys. */
	const char *config;
	/* NULL: this machine's CUDA driver. Otherwise this table, which must outlive the heap. */
	const struct trz_driver *driver;
} trz_open_params;

/* Opens a heap. `params` may be NULL (device 0, all defaults). Calls the driver: yes, but creates no device
 * memory before the first allocation.
 * Errors: NO_DRIVER, NO_DEVICE, NOT_SUPPORTED (the device has neither VMM nor plain allocation), CONFIG_KEY,
 * CONFIG_VALUE, HOST_MEMORY, INVALID_ARGUMENT (out is NULL, `context` is no context, or the driver table is of another
 * version), WRONG_DEVICE (`context` is another device's), IN_USE (the program handles the signal of the option
 * report_signal itself), OUT_OF_MEMORY (the device has no room for its primary context), DRIVER. */
TRZ_API trz_status trz_open(const trz_open_params *params, trz_heap **out);

/* Waits for all work enqueued before the frees made so far, returns every byte to the driver and destroys the heap. If
 * it cannot wait (a stream is being captured, or the driver refuses), all memory stays with the driver. The program may
 * have destroyed its streams before. Closing breaks captures that are not announced (trz_pool_begin_capture).
 * No other thread may be inside a call with this heap. A report requested from outside (options answer and
 * report_signal) is waited for, and so are the callbacks that it calls. Live allocations are released too: their
 * addresses become invalid, and the caller must ensure that no work uses them. NULL is allowed and does nothing.
 * Errors: DRIVER, CAPTURE, CONTEXT_DEAD (whatever could be released was released, and the heap is gone nevertheless),
 * NOT_PERMITTED (in a host function: the heap is unchanged). */
TRZ_API trz_status trz_close(trz_heap *heap);

/* ---- allocation ------------------------------------------------------------------------------------- */

/* Allocates `size` bytes for use on `stream`. size 0 succeeds and gives NULL. `alignment` is a power of two up to 2
 * MiB, or 0 for the default: 512. The content is undefined.
 * Cost, with the free: about 20 ns for small sizes, 50 to 90 ns for large ones out of the cache. Calls the driver when
 * the cache cannot serve the request and, on streams other than the legacy default one, for the stream's id and capture
 * status.
 * On a stream that is being captured, an allocation needs a pool (trz_pool_begin_capture) and otherwise fails
 * (CAPTURE), since graphs use their memory again at every launch. Captures of other streams, in any thread and mode,
 * are not disturbed.
 * Errors: OUT_OF_MEMORY, LIMIT, CAPTURE, SIZE (>= 2^47), ALIGNMENT, ADDRESS_SPACE, HOST_MEMORY, CONTEXT_DEAD,
 * DRIVER. On an error *out is set to NULL and the heap is unchanged. */
TRZ_API trz_status trz_alloc(trz_heap *heap, size_t size, size_t alignment, trz_stream stream, void **out);

/* Allocates on behalf of a caller further up the stack. For libraries that allocate for others, whose call sites would
 * otherwise all lie in the library: they pass __builtin_return_address(0) of their own function. `caller` NULL: the
 * place of this call. The rest as in trz_alloc. */
TRZ_API trz_status trz_alloc_from(trz_heap *heap, size_t size, size_t alignment, trz_stream stream, const void *caller,
                                  void **out);

/* Frees in the order of the stream that the memory was allocated on: work enqueued there before the call may still use
 * it. A kernel launched there to overlap with that work (programmatic stream serialization) must wait for it before it
 * uses memory allocated since (docs/order.md, Dependent launches). NULL is allowed. Waits for nothing. Calls the
 * driver: for a large allocation on a heap that has seen more than one stream, and for any allocation on a per-thread
 * stream, one event record (after asking for the stream's capture status and, at first, creating an event); for a large
 * allocation from a pool into which the stream has been captured, the capture status; otherwise no.
 * Errors: UNKNOWN_POINTER (never this heap's, or inside an allocation), DOUBLE_FREE, WRONG_DEVICE (another open
 * heap's), HOST_MEMORY. An error changes nothing. On a heap whose context has died, frees still succeed: the statistics
 * stay right, but the memory is not reused. */
TRZ_API trz_status trz_free(trz_heap *heap, void *ptr);

/* As trz_free, but in the order of `stream`: the caller guarantees that work enqueued on `stream` from now on comes
 * after every use of the memory, on any stream, and after all work enqueued on the allocation's stream before the
 * allocation. The memory is reusable on `stream` at once, and elsewhere when `stream` has passed this point.
 * If `stream` is being captured, it is enough that the capture's own work is ordered so: memory that this capture has
 * not allocated is reused only when what the allocation's stream had done outside of the capture has completed.
 * Errors: as trz_free; NOT_PERMITTED (in a host function, on a stream that is new to the heap), DRIVER. */
TRZ_API trz_status trz_free_on(trz_heap *heap, void *ptr, trz_stream stream);

/* Frees when an event has completed: the caller guarantees that all uses of the memory, on any stream or device,
 * precede the event, and so does all work enqueued on the allocation's stream before the allocation. The memory is then
 * reusable on every stream. No stream waits; uses noted with trz_record_stream are forgotten.
 * The caller must have recorded the event, in the heap's context and outside a capture. On TRZ_OK the heap owns the
 * event, and destroys it when it has completed: the caller must not use it again, not even wait for it. On an error it
 * stays the caller's.
 * Calls the driver: queries the event; destroys it if it has completed already.
 * Errors: as trz_free; CAPTURE (the event belongs to a capture), INVALID_ARGUMENT, DRIVER. */
TRZ_API trz_status trz_free_after(trz_heap *heap, void *ptr, trz_event event);

/* Notes that `stream` also uses the allocation that holds the address: a later free takes effect only when that stream,
 * too, has passed the point of the free. May be called several times, for several streams. NULL, and addresses that are
 * not the heap's, are ignored, as PyTorch's Tensor.record_stream requires. Calls the driver: the stream's id. Errors:
 * HOST_MEMORY, NOT_PERMITTED (in a host function, on a stream that is new to the heap), CONTEXT_DEAD, DRIVER. */
TRZ_API trz_status trz_record_stream(trz_heap *heap, void *ptr, trz_stream stream);

/* Announces that a stream is about to be destroyed: the heap records one last event on it, and other streams get its
 * cached memory when its work has completed. Afterwards the program must not allocate on the stream, name it in
 * trz_free_on, or record uses on it; it may free allocations made on it at any time. Unknown streams are ignored. Calls
 * the driver: one event record. Errors: INVALID_ARGUMENT (the legacy default stream, which cannot be destroyed),
 * DRIVER, CAPTURE, CONTEXT_DEAD. */
TRZ_API trz_status trz_stream_retire(trz_heap *heap, trz_stream stream);

/* ---- known order (docs/order.md) ----
 *
 * With these functions the program reports its own events to the heap. When stream A waits for an event of stream B,
 * memory that B freed before the event is reusable on A at once, however late B's work is, without asking the driver.
 *
 * The program reports each driver call by a pair of calls, from the thread that makes it: `begin` before it and `end`
 * after it, with the token that `begin` returned; `succeeded` is 0 if the driver refused. `heap` NULL: all heaps that
 * are open in this process; the default streams (NULL, 1, 2) are then those of the calling thread's current context.
 * The driver calls are cuEventRecord and cuStreamWaitEvent without flags (cudaEventRecord, cudaStreamWaitEvent).
 * Reporting is optional: what the heap does not know, it asks the driver. But a program that reports one record of an
 * event must report them all, and call trz_event_forget before it destroys the event. It must also call
 * trz_event_forget after each record made in another way (external, in another process, by a launch), and not report
 * waits for such a record. If other threads may wait for the event, or ask about it, during that record, forgetting it
 * afterwards comes too late: report such a record as one that the driver refused, or report nothing of the event.
 *
 * Any number of threads may call these functions, even for one event. They have no errors: what is uncertain, because
 * the host has no memory or two threads recorded the event at the same time, the heap does not learn. Nor does it learn
 * from streams that are being captured. Calls the driver: the stream's id; trz_event_record_end also asks whether the
 * stream is being captured; a report to all heaps on a default stream asks which context is current. */

/* Report the record of an event on a stream: `begin` before the driver's call, `end` after it (see "known order"). */
TRZ_API uint64_t trz_event_record_begin(trz_heap *heap, trz_event event, trz_stream stream);
TRZ_API void trz_event_record_end(trz_heap *heap, trz_event event, trz_stream stream, uint64_t token, int succeeded);

/* Report a stream's wait for an event. Call the driver only if there is something to learn. */
TRZ_API uint64_t trz_stream_wait_begin(trz_heap *heap, trz_stream stream, trz_event event);
TRZ_API void trz_stream_wait_end(trz_heap *heap, trz_stream stream, trz_event event, uint64_t token, int succeeded);

/* Report the host's wait for an event, or a query; a query has succeeded if it says that the event has completed. Never
 * call the driver. */
TRZ_API uint64_t trz_event_sync_begin(trz_heap *heap, trz_event event);
TRZ_API void trz_event_sync_end(trz_heap *heap, trz_event event, uint64_t token, int succeeded);

/* Report the host's wait for a stream, or for all streams of a context. A query that says that all work is complete
 * counts as a wait. trz_sync_end ends both. A thread may have one such wait under way at a time. */
TRZ_API uint64_t trz_stream_sync_begin(trz_heap *heap, trz_stream stream);
TRZ_API uint64_t trz_context_sync_begin(trz_heap *heap, trz_context context);
TRZ_API void trz_sync_end(trz_heap *heap, uint64_t token, int succeeded);

/* Makes the heap forget what it knows of the event (NULL: of all events). Call it before an event is destroyed, for a
 * new event, and after a record that is not reported. What streams have learned stays true. Never calls the driver. */
TRZ_API void trz_event_forget(trz_heap *heap, trz_event event);

/* Finds the largest request that would succeed on `stream` now, in bytes: out of cached memory, memory that can be
 * gathered, and what the device and the limit still allow. Holds for requests that no pool serves, while the stream is
 * not being captured. Other threads and processes can change it at any moment. Calls the driver: yes. Errors:
 * CONTEXT_DEAD, HOST_MEMORY, DRIVER. */
TRZ_API trz_status trz_largest_block(trz_heap *heap, trz_stream stream, size_t *size);

/* The heap's facts about an address. */
typedef struct trz_pointer_info {
	void *base;             /* first byte of the allocation that holds the address */
	size_t size;            /* bytes reserved for it (>= requested) */
	size_t requested;       /* bytes asked for */
	trz_stream stream;      /* the stream it was allocated on */
	int device;             /* ordinal */
	bool small;             /* at most medium_limit (docs/options.md): counted in the small pool */
} trz_pointer_info;

/* Grows an allocation in place to `size` bytes: its address and content stay, and work enqueued on its stream from now
 * on may use the added bytes. They come from free memory behind the allocation that the stream may use, or from new
 * memory at the top of its window. Slots of slabs, memory of trz_alloc_with, and allocations to which a debugging
 * option gives separate driver memory grow only within their rounding. A size up to the present one changes nothing.
 * Waits for nothing; other streams that use the allocation need no new trz_record_stream.
 * If the stream is another thread's per-thread default stream, which may be under capture, the allocation grows only
 * within its rounding.
 * Calls the driver: if no free neighbour is large enough, and, on streams other than the legacy default one, for the
 * stream's capture status. Errors: NO_ROOM (allocate elsewhere and copy), UNKNOWN_POINTER, OUT_OF_MEMORY, LIMIT, SIZE,
 * CAPTURE (the stream is being captured, and the memory belongs to no pool), HOST_MEMORY, CONTEXT_DEAD, DRIVER. An
 * error changes nothing. */
TRZ_API trz_status trz_grow(trz_heap *heap, void *ptr, size_t size);

/* Looks up any address inside a live allocation. Calls the driver: no. Errors: UNKNOWN_POINTER. */
TRZ_API trz_status trz_query(trz_heap *heap, const void *ptr, trz_pointer_info *out);

/* Returns free memory to the driver until at most `keep` bytes stay reserved, or no more can go: only tiles that hold
 * no live byte and whose last uses have completed can. 0 returns as much as possible. `released` (may be NULL) gets the
 * number of bytes returned, on an error too. Waits for nothing. If other threads' per-thread streams hold freed memory,
 * trim records an event of the whole context, and so does an allocation that finds the device full. Neither does so
 * during a capture that has been announced, or that is on a blocking stream or on a stream that a call has named to the
 * heap; any other capture breaks. Calls the driver: yes. Errors: DRIVER, CONTEXT_DEAD, CAPTURE, HOST_MEMORY. */
TRZ_API trz_status trz_trim(trz_heap *heap, size_t keep, size_t *released);

/* Does the heap's periodic work: asks which work has completed, moves freed memory that waited for it to the cache, and
 * returns to the driver what the options trim_threshold and decay_ms, or a debugging option, want returned. Allocations
 * that the cache cannot serve do this too; a program that is idle, or needs it done on time, calls this from a timer.
 * Waits for nothing. Calls the driver: yes. Errors: CONTEXT_DEAD. */
TRZ_API trz_status trz_poll(trz_heap *heap);

/* Set and read the upper bound of reserved bytes; 0: none. A limit below the bytes reserved now only stops growth; use
 * trz_trim to get down to it. Call the driver: no. */
TRZ_API trz_status trz_set_limit(trz_heap *heap, size_t limit);
TRZ_API trz_status trz_get_limit(trz_heap *heap, size_t *limit);

/* ---- private pools ------------------------------------------------------------------------------------ */

/* While a pool lives, its memory serves only requests to the pool. A pool that a capture has allocated from is pinned:
 * its graphs know its addresses, so the heap moves, returns and lends none of its memory until the last reference has
 * gone and all work enqueued on any stream before that has completed. From a pool that is not pinned, a trim returns
 * free memory, and when the device is full the heap takes it for other requests. Allocations outlive their pool: their
 * memory then belongs to the heap. */
typedef struct trz_pool trz_pool;

/* Makes a pool, with one reference. Functions given a pool of another heap fail with WRONG_DEVICE. Calls the driver:
 * no. Errors: HOST_MEMORY. */
TRZ_API trz_status trz_pool_create(trz_heap *heap, trz_pool **out);

/* Take one more reference to a pool, or drop one. With the last reference the pool ends; do not use `pool` afterwards.
 * If the pool is pinned, its memory is put to no other use before all running launches of its graphs, on any stream of
 * the context, have completed.
 * That takes an event of the whole context, and recording one invalidates captures. So the heap defers it to later
 * polls during a capture that is announced (trz_pool_begin_capture, or trz_pool_begin with a filter), or that is on a
 * blocking stream or on a stream that a call has named to the heap: announce any other capture. Drivers before CUDA
 * 12.5 have no such event: the heap then waits for launches on streams named to it, and on blocking ones if per-thread
 * streams are in use; launches on other streams must have completed before.
 * Calls the driver: with the last reference, event records and queries. */
TRZ_API trz_status trz_pool_retain(trz_heap *heap, trz_pool *pool);
TRZ_API trz_status trz_pool_release(trz_heap *heap, trz_pool *pool);

/* Allocates from the pool, as trz_alloc does otherwise. On a stream that is being captured this pins the pool, and
 * inserts no wait into the capture. Free with trz_free. */
TRZ_API trz_status trz_pool_alloc(trz_heap *heap, trz_pool *pool, size_t size, size_t alignment, trz_stream stream,
                                  void **out);

/* Whether an allocation on `stream` is to be diverted. Called by allocating threads, several at a time; must not call
 * the heap, nor take a lock that a thread may hold while it calls trz_pool_begin, trz_pool_begin_capture or
 * trz_pool_end: those wait until no filter is running. */
typedef bool trz_pool_filter(void *user, trz_stream stream);

/* Diverts allocations that name no pool to this one, until trz_pool_end: those whose stream the filter accepts or, with
 * `filter` NULL, those of the calling thread. Diversions nest: the newest that applies wins. Each holds a reference. A
 * diversion with a filter may be for a capture, so it announces one as trz_pool_begin_capture does. Calls the driver:
 * without a filter, no. Errors: HOST_MEMORY. */
TRZ_API trz_status trz_pool_begin(trz_heap *heap, trz_pool *pool, trz_pool_filter *filter, void *user);

/* Announces a capture that is about to begin on `stream`: until trz_pool_end, diverts to the pool the allocations on
 * all streams that are part of the capture, and pins the pool. With the per-thread default stream it diverts only this
 * thread's allocations. Captured allocations get no memory that work outside the capture may still be using, so the
 * graph can be launched at once, on any stream; but graphs of one pool share memory, so the program must order their
 * launches. From this call until a stream is part of the capture, the program must not enqueue work on it that uses
 * memory of the pool, nor make it wait for such work; and until trz_pool_end, other captures into the pool must be
 * announced, too. If the streams have by then completed all work enqueued before the call, the capture reuses all free
 * memory of the pool, including memory freed in the capture. Otherwise it reuses only memory whose work has completed,
 * and what captures of the same stream alone have used and freed; so it does on a stream that allocates from the pool,
 * or grows an allocation of it, between this call and its capture. So synchronize first, as PyTorch does, if the pool
 * also serves work outside of captures.
 * Calls the driver: an event record on each stream that has memory of the pool. Errors: HOST_MEMORY, INVALID_ARGUMENT
 * (the legacy default stream cannot be captured). */
TRZ_API trz_status trz_pool_begin_capture(trz_heap *heap, trz_pool *pool, trz_stream stream);

/* Ends this thread's newest diversion to the pool or, if it has none, the newest of any thread. Waits until no filter
 * of it is running. Errors: NOT_FOUND (there is no diversion to the pool). */
TRZ_API trz_status trz_pool_end(trz_heap *heap, trz_pool *pool);

typedef struct trz_pool_info {
	unsigned id;            /* > 0; the second number of segment_pool_id in snapshots */
	unsigned references;    /* including those of diversions */
	bool pinned;
	size_t reserved;        /* bytes of memory in its windows */
	size_t allocated;       /* bytes of its blocks and slots that callers hold */
	size_t allocations;
} trz_pool_info;

/* Gives the pool's present contents. Cost grows with the number of its blocks. Calls the driver: no. */
TRZ_API trz_status trz_pool_query(trz_heap *heap, trz_pool *pool, trz_pool_info *out);

/* Writes the addresses of up to `capacity` of the pool's live allocations to `list`, and how many there are to
 * `count`. */
TRZ_API trz_status trz_pool_live(trz_heap *heap, trz_pool *pool, void **list, size_t capacity, size_t *count);

/* A checkpoint: a pool's live allocations and their addresses. */
typedef struct trz_pool_state trz_pool_state;

/* Takes a checkpoint, which lives until trz_pool_state_free or the heap's end. Errors: HOST_MEMORY. */
TRZ_API trz_status trz_pool_checkpoint(trz_heap *heap, trz_pool *pool, trz_pool_state **out);

/* Restores the pool to a checkpoint: frees its live allocations, and makes those of the checkpoint live again, at their
 * old addresses. If the pool has served several streams, or the device has been full and the heap has made another
 * stream wait for the pool's free memory (never for a pinned pool's), the work that used the freed memory must have
 * completed. Calls the driver: event queries. Errors, which change nothing: NOT_READY (other streams' uses of freed
 * memory are unfinished, or memory that goes to a stream other than the one that freed it has not passed: synchronize
 * and call again; or a live allocation has uses noted by trz_record_stream, or is exported: free it first, or end its
 * exports), NOT_FOUND (memory has gone back to the device; that of pinned pools never does), INVALID_ARGUMENT (another
 * pool's checkpoint), HOST_MEMORY. */
TRZ_API trz_status trz_pool_restore(trz_heap *heap, trz_pool *pool, const trz_pool_state *state);

/* Write the addresses of a checkpoint, as trz_pool_live does those of a pool, and free a checkpoint. */
TRZ_API trz_status trz_pool_state_live(const trz_pool_state *state, void **list, size_t capacity, size_t *count);
TRZ_API void trz_pool_state_free(trz_pool_state *state);

/* ---- dedicated memory ------------------------------------------------------------------------------------- */

enum {
	TRZ_ALLOC_CONTIGUOUS = 1,    /* one physical tile: for libraries that register memory (NCCL, UCX, GDS) */
	TRZ_ALLOC_SHARE_FD = 2,      /* may be exported as a POSIX file descriptor */
	TRZ_ALLOC_SHARE_FABRIC = 4,  /* may be exported as a fabric handle */
	TRZ_ALLOC_RDMA = 8           /* a network card may reach it (GPUDirect RDMA) */
};

typedef struct trz_alloc_params {
	size_t struct_size;   /* sizeof(trz_alloc_params): fields that a shorter, older struct lacks count as 0 */
	size_t size;          /* as in trz_alloc */
	size_t alignment;
	trz_stream stream;
	struct trz_pool *pool;  /* NULL: as in trz_alloc */
	unsigned flags;       /* TRZ_ALLOC_*, or'ed; 0: as in trz_alloc */
	void *address;        /* the allocation begins there, a multiple of 512; NULL: wherever the heap decides */
} trz_alloc_params;

/* Allocates as trz_alloc does, with more choices. With any flag the memory is a physical tile of its own, a multiple of
 * the device's granularity (2 MiB): it never holds other allocations, and keeps its address and its mapping until it
 * goes back to the driver. Free it with trz_free; the tile then serves requests with equal flags that are at most a
 * ninth shorter. Cost: a driver allocation, unless a suitable tile is free; meant for long-lived buffers.
 * Where the device has no virtual memory management, contiguous memory comes from plain driver allocations.
 * With an address, all of [address, address + size) must be free memory of the pool that serves the request, and must
 * be the stream's own or have passed; the heap creates and moves nothing. This is for programs that reallocate, at its
 * old address, memory that they have freed and that a captured graph still uses: sizes up to 32 KiB fit where a slot of
 * that size was. Cost: a search of the blocks around, under the growth lock; event queries.
 * Errors: as trz_alloc; NOT_SUPPORTED (the device lacks a feature that a flag needs); NO_ROOM (not all of it is free at
 * that address); ALIGNMENT (of the address); INVALID_ARGUMENT (an unknown flag, flags and an address, or a struct_size
 * that this library does not know). */
TRZ_API trz_status trz_alloc_with(trz_heap *heap, const trz_alloc_params *params, void **out);

/* ---- sharing memory with other processes -------------------------------------------------------------- */

/* Writes a handle of an allocation to `shareable`. The allocation was made with the flag TRZ_ALLOC_SHARE_FD or
 * TRZ_ALLOC_SHARE_FABRIC; pass that flag again as `kind`. The handle is a file descriptor (an int, which the caller
 * closes) or a fabric handle (64 bytes). A process that has it can read and write the allocation's whole tile. The
 * importer also needs the tile's size, which trz_query gives.
 * The export pins the memory: once freed, it is neither reused nor returned before every export of it has ended; until
 * then it counts as pending. Closing the heap ends all exports; importers keep the memory alive.
 * Calls the driver: yes. Errors: UNKNOWN_POINTER, INVALID_ARGUMENT (it was not allocated for this kind), LIMIT
 * (65535 exports), and the driver's. */
TRZ_API trz_status trz_export(trz_heap *heap, void *ptr, unsigned kind, void *shareable);

/* An exported physical tile: its address and its bytes. */
typedef struct trz_exported_tile {
	void *base;
	size_t size;
} trz_exported_tile;

/* Exports the one tile that holds an address, with everything in it, now and later: a process that has the handle can
 * read and write all of it. The address may lie in any live allocation of the heap, however it was made, or in a tile
 * that is exported already. If an allocation extends beyond `tile`'s end, export the tiles behind it one by one. `kind`
 * and `shareable` are as in trz_export; with shareable NULL no handle is made, and the tile is only pinned.
 * The export pins the tile: until every export of it has ended (trz_export_end with `tile`'s base), the tile keeps its
 * address and does not return to the device. The heap goes on using the free memory in it, so do not free memory that
 * importers use before they have finished with it. Closing the heap ends all exports; importers keep the memory alive.
 * Calls the driver: yes, except with shareable NULL. Errors: UNKNOWN_POINTER, NOT_SUPPORTED (a plain driver allocation,
 * or the device cannot export tiles in this way), INVALID_ARGUMENT (the option exportable is off, or it is memory of
 * another process), LIMIT (65535 exports of a tile that one allocation has to itself), and the driver's. */
TRZ_API trz_status trz_export_tile(trz_heap *heap, const void *address, unsigned kind, void *shareable,
                                   trz_exported_tile *tile);

/* Ends one export: of an allocation, freed or not, by its first byte, or of a tile, by its base. The caller guarantees
 * that the importers' work with it has completed, which this process cannot see. Calls the driver: no. Errors:
 * NOT_FOUND (there is no such export). */
TRZ_API trz_status trz_export_end(trz_heap *heap, void *ptr);

/* Maps memory that another process has exported: `size` bytes, exactly the size of its tile there. The memory is used
 * and freed like an allocation of `stream`; trz_record_stream and trz_free_on apply. Once freed, it is unmapped at an
 * allocation, poll or trim after its uses have completed. It counts only as imported, and is not part of snapshots.
 * Peers of the heap may access it. A file descriptor stays the caller's, who may close it at once.
 * Calls the driver: yes. Errors: INVALID_ARGUMENT (the driver does not know the handle, or `size` is wrong),
 * NOT_SUPPORTED, ADDRESS_SPACE, HOST_MEMORY, CONTEXT_DEAD, DRIVER. On an error *out is set to NULL. */
TRZ_API trz_status trz_import(trz_heap *heap, unsigned kind, const void *shareable, size_t size, trz_stream stream,
                              void **out);

enum { TRZ_SHAREABLE_BYTES = 64 };  /* the longest handle */

/* Writes the handle and the size of the next tile of an import, which begins `offset` bytes after the first one's base.
 * Called in order, with no lock of the heap held; the handle must stay valid until the next call or the import's end.
 * Any status except TRZ_OK ends the import with that status. */
typedef trz_status trz_import_callback(void *user, size_t offset, void *shareable, size_t *size);

/* As trz_import, for memory that lies in several tiles in the exporting process: maps them side by side, `size` bytes
 * in all, as one allocation. Errors: those of trz_import, and of `next`. */
TRZ_API trz_status trz_import_tiles(trz_heap *heap, unsigned kind, size_t size, trz_import_callback *next, void *user,
                                    trz_stream stream, void **out);

/* ---- peers --------------------------------------------------------------------------------------------- */

/* Opens all memory of the heap, mapped now or later, imports included, to another device; for the heap's own device it
 * does nothing. With `on` false, memory mapped from then on is closed to the device; existing mappings stay open. Cost:
 * setting access again on every mapping; each later mapping costs more for each peer. If the driver refuses half-way,
 * the call fails, part of the memory may be open already, and the caller may try again; allocations are not affected.
 * Calls the driver: yes. Errors: NO_DEVICE, NOT_SUPPORTED (the devices cannot reach each other, or there is no virtual
 * memory management: use cuCtxEnablePeerAccess), LIMIT (63 peers), and the driver's. */
TRZ_API trz_status trz_enable_peer(trz_heap *heap, int device, bool on);

/* ---- out of memory ----------------------------------------------------------------------------------- */

enum { TRZ_OOM_AWAITED = 4 };

/* The newest allocation that failed with OUT_OF_MEMORY or LIMIT. Bytes, at the moment of the failure. */
typedef struct trz_oom_info {
	size_t requested;
	trz_stream stream;
	size_t device_free, device_total;  /* as the driver reported */
	size_t limit;                      /* 0: none */
	size_t reserved, allocated, pending, cached;
	size_t pinned;                     /* part of cached: free memory of private pools that graphs rely on, which
	                                    * serves no other requests */
	size_t largest;                    /* the largest request that would have been served */
	size_t missing;                    /* what would be lacking even if all free memory lay in one piece: the device,
	                                    * or the limit, is full. 0: there is enough, but other streams' unfinished work
	                                    * or live blocks in its tiles keep it from joining */
	unsigned waits;                    /* how often the stream waited, in vain, for other streams' work on memory that
	                                    * they had freed (the option wait) */
	unsigned awaited_count;            /* how many of those streams are listed */
	trz_stream awaited[TRZ_OOM_AWAITED];
} trz_oom_info;

/* Copies the facts of the newest failure. Errors: NOT_FOUND (no allocation has failed yet). Calls the driver: no. */
TRZ_API trz_status trz_last_oom(trz_heap *heap, trz_oom_info *info);

/* Called by the allocating thread before an allocation fails, with no lock held. It may free memory of the heap, and
 * returns whether another attempt is worthwhile; the heap makes at most one per allocation. */
typedef bool trz_oom_callback(void *user, const trz_oom_info *info);

/* Sets the callback for allocations that are about to fail; NULL: none. For a while another thread may still be inside
 * the old one. Calls the driver: no. */
TRZ_API trz_status trz_set_oom_callback(trz_heap *heap, trz_oom_callback *callback, void *user);

enum { TRZ_LIMIT_PROCESSES = 8 };

/* A limit that processes share, enforced in front of the driver, so that the heaps see only a full device: that of
 * `terrazzo run --limit`, or a program's own. Bytes, at one moment. */
typedef struct trz_shared_limit {
	size_t limit;                      /* of all its processes together; 0: there is none */
	size_t own, others;                /* what this process holds of it, and what all others hold */
	size_t device_free, device_total;  /* what the driver says without the limit; 0: unknown */
	unsigned process_count;            /* how many of the others are listed */
	struct trz_limit_process {
		uint64_t process;              /* its number */
		size_t bytes;
	} processes[TRZ_LIMIT_PROCESSES];  /* those that hold the most, largest first */
} trz_shared_limit;

/* Describes the limit that holds for a device; false: there is none. Called when an allocation fails, and for reports,
 * with locks held: it may call the driver, but no function of terrazzo. */
typedef bool trz_shared_limit_callback(void *user, int device, trz_shared_limit *limit);

/* Sets the callback that describes a shared limit, for all heaps of the process; NULL: none. A failure then says which
 * limit forbade the request, and who holds the rest. For a while another thread may still be inside the old one. Calls
 * the driver: no. */
TRZ_API trz_status trz_set_shared_limit(trz_shared_limit_callback *callback, void *user);

/* ---- what is mapped ---------------------------------------------------------------------------------- */

typedef enum trz_map_event {
	TRZ_MAP = 1,    /* [address, address + size) has memory now; no allocation in it has been given out yet */
	TRZ_UNMAP = 2   /* the range loses its memory when every callback for it has returned */
} trz_map_event;

/* Keeps registrations of addresses (network cards, NCCL, UCX, cuFile) up to date. The range of a TRZ_UNMAP is exactly
 * that of an earlier TRZ_MAP, never a part of it or more. Between the two, the addresses map one piece of physical
 * memory, whatever allocation uses it; if the heap also uses that memory at other addresses, those get a TRZ_MAP of
 * their own. So a registration made after TRZ_MAP is valid until TRZ_UNMAP.
 *
 * Called by the thread whose call maps or unmaps, in trz_alloc, trz_trim, trz_poll or trz_close, with no lock held: it
 * may take locks, allocate and free (in trz_close only free). Other threads may be inside the callback too, with
 * other ranges. */
typedef void trz_map_callback(void *user, trz_map_event event, void *address, size_t size);

/* Sets the callback for mappings, and announces all existing mappings to it. NULL: the heap announces nothing more. For
 * a while another thread may still be about to call the old callback, or inside it. Calls the driver: no. */
TRZ_API trz_status trz_set_map_callback(trz_heap *heap, trz_map_callback *callback, void *user);

/* ---- statistics ------------------------------------------------------------------------------------- */

/* One statistic. `name` follows torch.cuda.memory_stats() where the meanings agree, for example
 * "allocated_bytes.all.peak". `unit` is "bytes", "count", "ns" or "ratio"; a ratio is in `ratio` (0 .. 1), any other in
 * `value`. */
typedef struct trz_stat_value {
	const char *name;
	const char *unit;
	const char *help;
	uint64_t value;
	double ratio;
} trz_stat_value;

/* Writes up to `capacity` statistics to `values`, and how many there are to `count` (either may be NULL/0 to get only
 * the other). Takes no lock that allocation takes: figures read while other threads allocate are of slightly different
 * moments. Calls the driver: no. */
TRZ_API trz_status trz_stats(trz_heap *heap, trz_stat_value *values, size_t capacity, size_t *count);

/* Reads one statistic by name, except ratios. Calls the driver: no. Errors: NOT_FOUND, INVALID_ARGUMENT (it is a
 * ratio). */
TRZ_API trz_status trz_stat(trz_heap *heap, const char *name, uint64_t *value);

/* Sets every peak to the current value. */
TRZ_API trz_status trz_reset_peaks(trz_heap *heap);

/* Walks the whole heap and checks every invariant of docs/invariants.md. Stops allocation meanwhile; cost
 * grows with the number of blocks. Errors: CORRUPT, with the invariant's number in trz_last_error(). */
TRZ_API trz_status trz_check(trz_heap *heap);

/* ---- history and snapshots ------------------------------------------------------------------------ */

/* Starts a history of the heap's newest `events` (1 .. 2^24; 48 bytes of host memory each): allocations, frees, memory
 * laid, moved and taken away, waits, failures. It replaces any earlier history; live allocations keep the stack of
 * their allocation, if the heap has one. Costs up to 10 ns an operation, plus the cost of call stacks where they are on
 * (trz_set_frame_callback, option native_frames); off, one branch.
 * Errors: HOST_MEMORY, INVALID_ARGUMENT. Calls the driver: no. */
TRZ_API trz_status trz_history_start(trz_heap *heap, size_t events);

/* Forgets the history and keeps none. The heap stops asking for stacks. */
TRZ_API trz_status trz_history_stop(trz_heap *heap);

/* One level of a call stack. The texts are UTF-8; NULL: not known. */
typedef struct trz_frame {
	const char *filename;
	const char *name;       /* of the function */
	unsigned line;          /* 0: not known */
} trz_frame;

/* Returns a number that the program keeps for the calling thread's stack; 0: none. While the heap keeps a history, it
 * calls this before each allocation and free, trz_pool_restore, and each call that may return memory (trz_trim,
 * trz_poll, trz_largest_block). No lock is held: the callback may take any lock, even an interpreter's, and may
 * allocate from the heap and free, for which it is not called again. */
typedef uint64_t trz_frame_callback(void *user);

/* Looks up the stack of a number: writes up to `capacity` levels to `frames`, innermost first, and returns how many.
 * The texts must stay valid until the next call or the end of the snapshot. Snapshots call it and, if it belongs to the
 * call sites, trz_site_frames and reports do, too; no lock is held. */
typedef size_t trz_frame_text_callback(void *user, uint64_t id, trz_frame *frames, size_t capacity);

/* Sets the two callbacks for the history's call stacks; NULL: no stacks, or native ones if the option native_frames is
 * on. The heap keeps the number with the events of allocations, frees and failures, and of mappings, moves and
 * unmappings made meanwhile; and with the live allocation, so that a snapshot shows where each was made, even after the
 * history has forgotten it. It forgets the old callbacks' numbers. For a while another thread may still be inside the
 * old callback. Calls the driver: no. */
TRZ_API trz_status trz_set_frame_callback(trz_heap *heap, trz_frame_callback *callback,
                                          trz_frame_text_callback *text, void *user);

/* A pair of callbacks for trz_set_frame_callback that gathers native stacks; the option native_frames sets it. Stacks
 * have up to 48 levels, each given as its library and "function+0x1a" or "+0x12af". `user` is ignored. The process
 * keeps the first 16,383 different stacks; later ones share one number. Costs some 10 ns a level with libunwind
 * (libunwind.so.8, loaded if it is there), otherwise some 150. */
TRZ_API uint64_t trz_native_frames(void *user);
TRZ_API size_t trz_native_frame_text(void *user, uint64_t id, trz_frame *frames, size_t capacity);

/* Sets a text that the calling thread's allocations, and the mappings and unmappings of its calls, carry in the history
 * from now on; NULL or "": none. The heap keeps 63 bytes of it, in whole characters of UTF-8, and about 250 different
 * texts. The text must stay unchanged until it is replaced. */
TRZ_API void trz_set_tag(const char *tag);

/* ---- who holds memory ---------------------------------------------------------------------------------- */

/* What memory is for. */
typedef enum trz_category {
	TRZ_CATEGORY_NONE,
	TRZ_CATEGORY_WEIGHTS,
	TRZ_CATEGORY_GRADIENTS,
	TRZ_CATEGORY_OPTIMIZER,
	TRZ_CATEGORY_ACTIVATIONS,
	TRZ_CATEGORY_KV_CACHE,
	TRZ_CATEGORY_TEMPORARY,
	TRZ_CATEGORY_OTHER
} trz_category;

/* Sets what the calling thread's allocations are for, from now on. Calls the driver: no. Errors: INVALID_ARGUMENT
 * (there is no such category). */
TRZ_API trz_status trz_set_category(trz_category category);

/* Changes the category of the allocation that begins at `ptr`. NULL is ignored; a slot that the sample does not count
 * stays uncounted. Calls the driver: no. Errors: UNKNOWN_POINTER, INVALID_ARGUMENT. */
TRZ_API trz_status trz_categorize(trz_heap *heap, void *ptr, trz_category category);

typedef enum trz_holder_kind {
	TRZ_BY_SITE = 1,        /* by call site, tag and category, each combination by itself */
	TRZ_BY_TAG,             /* by tag, whatever the call site; leaves out what has no tag */
	TRZ_BY_CATEGORY         /* the same by category */
} trz_holder_kind;

/* Who holds memory. Bytes are as requested. Allocations above the option small_limit are counted one by one. Smaller
 * ones are sampled, on average one for each MiB requested, and each that is counted stands for others: the sums are
 * unbiased estimates, and `error` is their standard error. */
typedef struct trz_holder {
	unsigned site;          /* its number, the same as long as the heap is open; 0: this is a tag, or a category */
	uint64_t stack;         /* for trz_site_frames; 0: not known */
	const char *tag;        /* trz_set_tag; "": none */
	trz_category category;
	const char *category_name;  /* "weights", "kv_cache"; "": none */
	uint64_t bytes;         /* live now */
	uint64_t peak;          /* the most that `bytes` has been (trz_reset_peaks) */
	uint64_t count;         /* live allocations */
	uint64_t error;         /* standard error of `bytes`; 0: exact */
} trz_holder;

/* Writes up to `capacity` holders to `holders`, the one with the most live bytes first, and how many have held anything
 * since the last trz_reset_peaks to `count` (either may be NULL/0 to get only the other). The heap tells 3,840 sites
 * apart; later ones with the same tag and category share one. Texts live as long as the heap. Stops allocation only
 * briefly, several times: figures read while other threads allocate are of slightly different moments. With the option
 * sites:off there are none. Calls the driver: no. Errors: INVALID_ARGUMENT (no such kind). */
TRZ_API trz_status trz_holders(trz_heap *heap, trz_holder_kind by, trz_holder *holders, size_t capacity, size_t *count);

/* Writes up to `capacity` levels of a site's call stack to `frames`, innermost first, and how many it has written to
 * `count`. The texts are valid until the thread's next call. With neither a callback nor the option native_frames there
 * is one level: the place in the program that called the heap. Calls the driver: no. */
TRZ_API trz_status trz_site_frames(trz_heap *heap, uint64_t stack, trz_frame *frames, size_t capacity, size_t *count);

/* Sets the callbacks for the stacks of call sites; NULL: native stacks if the option native_frames is on, otherwise the
 * place of the call. As trz_set_frame_callback, with these differences: `callback` is called for allocations above
 * small_limit and for sampled smaller ones, before memory is taken; equal stacks must have equal numbers, below 2^63;
 * `text` is called by trz_site_frames, snapshots and reports and, rarely, before an allocation, with no lock held, to
 * judge a loop. Bytes counted so far stay with their sites, whose stacks are then no longer known. Calls the driver:
 * no. */
TRZ_API trz_status trz_set_site_callback(trz_heap *heap, trz_frame_callback *callback, trz_frame_text_callback *text,
                                         void *user);

/* ---- reports -------------------------------------------------------------------------------------------- */

/* Takes the next part of a report, in whole lines if it is text; returns false to stop. It may call the heap. */
typedef bool trz_report_callback(void *user, const char *text, size_t size);

enum {
	TRZ_REPORT_FAILURE = 1,  /* on the calling thread's newest request that ran out of memory, with the facts of that
	                          * moment and the present holders; without it: on the heap as it is now */
	TRZ_REPORT_JSON = 2      /* an object as `terrazzo explain --json -` prints it; without it: text, under 60 lines */
};

/* Reports where memory is, who holds it and, for a failure, why the request failed and what each remedy would give
 * (docs/oom.md). With the option oom_report the heap itself prints each failure to standard error, unless it has
 * printed one like it. `flags`: TRZ_REPORT_*, or'ed. Calls the driver: yes, except for a failure; asks NVIDIA's
 * management library, if it is there. Errors: NOT_FOUND (no such failure), NOT_READY (another thread's report is being
 * made), INVALID_ARGUMENT (unknown flags), IO (`write` has returned false), NOT_PERMITTED. */
TRZ_API trz_status trz_report(trz_heap *heap, unsigned flags, trz_report_callback *write, void *user);

/* Holds the calling thread's reports back, or no longer. Meanwhile its failures print none: the program may yet find
 * memory elsewhere. */
TRZ_API void trz_hold_reports(bool hold);

/* Prints the report on the calling thread's newest failure, as the heap would have if the thread had not held it back.
 * trz_last_error(), if it still tells of that failure, says what the report says. No errors. Calls the driver: no. */
TRZ_API void trz_print_failure(trz_heap *heap);

/* ---- steps: growth, forecasts, warnings ------------------------------------------------------------------ */

/* Says that a step of the program has ended: an iteration of a training loop, or a batch of requests. Call it at the
 * same place of each step, where little is live; any thread may. If the program never calls it, the heap recognises
 * steps of 0.2 ms or more by the period of the blocks that the program allocates; the first call ends that, and the
 * heap forgets what it has recognised. From the first step on the heap records what each call site holds at the ends of
 * steps, in 430 KB of host memory, and finds out which hold more and more (docs/leaks.md). With the option sites:off it
 * sees only that the heap grows. Cost: a walk over the call sites and, every eighth time, if there is a callback for
 * warnings, a search for leaks. The callback may run. Calls the driver: no. Errors: HOST_MEMORY. */
TRZ_API trz_status trz_step(trz_heap *heap);

/* Memory that grows steadily with the steps. */
typedef struct trz_growth_info {
	unsigned site;          /* its number, as in trz_holder; 0: all memory that has no call site, together */
	uint64_t stack;         /* for trz_site_frames; 0: not known */
	const char *tag;        /* "": none */
	trz_category category;
	bool suspect;           /* probably a leak: it has grown long enough and by enough. false: too early to tell */
	uint64_t live;          /* bytes at the end of the newest step */
	uint64_t grown;         /* how many of them it has grown by */
	uint64_t since_step;    /* growing since this step, counted from 0 */
	double bytes_per_step, bytes_per_step_low, bytes_per_step_high;
	double confidence;      /* 0 .. 1 */
} trz_growth_info;

/* Writes up to `capacity` (8 are enough) growing call sites to `list`, suspects first, then by bytes a step, and how
 * many it has written to `count`. Memory that comes and goes within a step is no growth; nor is memory that warms up,
 * fills up, comes and goes every so many steps, or has stopped growing. There is none before the eighth step. Calls the
 * driver: no. */
TRZ_API trz_status trz_growth(trz_heap *heap, trz_growth_info *list, size_t capacity, size_t *count);

/* When memory will run out at this rate, counted from the newest step. The range from low to high is meant to contain
 * the truth in 19 of 20 cases. */
typedef struct trz_forecast_info {
	double steps, steps_low, steps_high;
	double seconds, seconds_low, seconds_high;
} trz_forecast_info;

/* Forecasts from the suspects' growth. Errors: NOT_FOUND (there are no suspects, or memory would last for more than a
 * thousand times the steps seen so far). Calls the driver: no. */
TRZ_API trz_status trz_forecast(trz_heap *heap, trz_forecast_info *out);

typedef enum trz_warning {
	TRZ_WARNING_FULL = 1,         /* callers hold more than 90 % of what the device, or the limit, allows */
	TRZ_WARNING_FRAGMENTED,       /* more than 20 % of reserved memory was free even when most was held */
	TRZ_WARNING_VERY_FRAGMENTED,  /* more than 30 % was */
	TRZ_WARNING_GROWTH            /* a call site is a suspect; once for each */
} trz_warning;

typedef struct trz_warning_info {
	trz_warning warning;
	double share;                 /* for the first three: the share that is too large, 0 .. 1 */
	size_t allocated, reserved;   /* now */
	size_t room;                  /* the most that could be reserved, as of the device's last answer */
	trz_growth_info growth;       /* for TRZ_WARNING_GROWTH, as is the next */
	trz_forecast_info forecast;   /* 0: not known */
} trz_warning_info;

/* Called by the thread whose trz_step, trz_poll or trz_alloc finds a reason to warn, with no lock held: it may call any
 * function of the heap. `info` lives until it returns. */
typedef void trz_warning_callback(void *user, const trz_warning_info *info);

/* Sets the callback for warnings; NULL: none. For a while another thread may still be inside the old one. The heap
 * looks at the shares in trz_step, in trz_poll, and in allocations that the cache could not serve. It repeats a warning
 * once the share has been 5 % lower in between. Calls the driver: no. */
TRZ_API trz_status trz_set_warning_callback(trz_heap *heap, trz_warning_callback *callback, void *user);

/* ---- snapshots ------------------------------------------------------------------------------------------ */

/* Writes the heap's state and history, at one moment, as JSON in the schema of PyTorch's memory snapshots, which
 * PyTorch's viewer reads. The file appears whole or not at all. Allocation stops while the state is copied in memory,
 * not while the file is written. Each call stack also has a number, "stack": in a long history later mentions have only
 * that number, and empty "frames".
 * Calls the driver: no. Errors: INVALID_ARGUMENT (the path is empty), IO, HOST_MEMORY, CORRUPT. */
TRZ_API trz_status trz_snapshot(trz_heap *heap, const char *path);

/* trz_walk hands a snapshot to callbacks instead of writing it: first the segments by address, each followed by the
 * blocks that cover it; then the history, oldest first. Texts live until the callback returns. */
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
	trz_stream stream;      /* the stream of the allocation; NULL for a free block */
	const char *tag;        /* "" if it had none, or the history has forgotten it */
	uint64_t frames;        /* the number that the frame callback returned; 0: none */
} trz_block_info;

typedef struct trz_event_info {
	const char *action;     /* as in PyTorch's traces: "alloc", "free_requested", "segment_map", "oom", ... */
	uint64_t address;       /* "oom": free bytes of the device */
	uint64_t size;          /* bytes; of a request, as requested */
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

/* Hands a snapshot to a visitor, whose callbacks run without a lock of the heap. Calls the driver: no. Errors:
 * HOST_MEMORY, CORRUPT. */
TRZ_API trz_status trz_walk(trz_heap *heap, const trz_visitor *visitor);

/* Finds the mapping that covers an address, allocated or not: its range as a trz_map_callback gets it (such a callback
 * may call this function), and the rest as in a snapshot. Knows nothing of imported memory. Waits while another
 * thread's driver call maps or unmaps. Calls the driver: no. Errors: NOT_FOUND. */
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

/* Gives the i-th option, i from 0. `choices` and `initial` stay valid until the thread's next call.
 * Errors: NOT_FOUND past the last. Calls the driver: no. */
TRZ_API trz_status trz_option(size_t i, trz_option_info *out);

/* Parses `config` without opening anything, for programs that report errors early. */
TRZ_API trz_status trz_config_check(const char *config);

#ifdef __cplusplus
}
#endif

#endif
