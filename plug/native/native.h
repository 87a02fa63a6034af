/* SPDX-License-Identifier: Apache-2.0
 *
 * The heaps of a native process, one for each context, and CUDA's allocation calls over them, by the driver's names and
 * rules. What a heap cannot serve is passed on to the driver, so errors are the driver's own, except that memory which
 * a limit refuses is "out of memory".
 *
 * Order. Memory of cuMemAlloc may be used on every stream at once, so it is allocated on the heap's *host stream*: a
 * stream on which nothing is ever enqueued, whose order is therefore the host's. If the heap makes that stream wait for
 * others, the allocation waits as well before it returns. cuMemFree ends the uses on all streams of the context: it
 * waits for the context, as the driver's does (docs/native.md; the option free).
 */
#ifndef TRZ_NATIVE_H
#define TRZ_NATIVE_H

#include <stdatomic.h>

#include "native_driver.h"
#include "native_guard.h"
#include "terrazzo.h"
#include "terrazzo_driver.h"

enum { NATIVE_HEAPS = 64 };

/* Invariant: while `context` is not NULL, the rest is constant, except counts. */
struct native_heap {
	_Atomic(void *) context;  /* by which it is found; NULL: the place is free */
	void *own;                /* its context */
	trz_heap *heap;           /* NULL: the driver serves this context */
	_Atomic(void *) host;     /* its host stream, which others look for in all places; NULL: none */
	uint64_t host_id;         /* the driver's id of the host stream */
	void *pool;               /* the default pool of the device */
	int device;
	bool primary;             /* the context is the device's primary one */
	atomic_bool sync_memops;  /* the program has asked for CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
	_Atomic(struct native_late *) late;  /* what was freed during captures, and awaits its uses (native_late.c) */
	/* Bytes allocated in the order of streams: now; the most since the program last reset either of the pool's two
	 * peaks; and for each of the two, the most from its own reset until then. */
	atomic_size_t async, async_most, used_before, reserved_before;
};

/* Call the functions that find a heap, or look at all heaps, and use what they return, between native_enter and
 * native_leave; native_end_context and native_end_primary outside of these. */

/* The heap of the thread's current context, opened by the first request; NULL: the driver serves the context. */
struct native_heap *native_current(void);

/* The heap of a stream's context; NULL as above. */
struct native_heap *native_of_stream(void *stream);

/* The heap in whose memory an address may lie: the only one; of several the one in whose memory it does, or NULL. */
struct native_heap *native_owner(cuda_addr address);

/* The heap of a context; NULL as above. */
struct native_heap *native_of_context(void *context);

/* Whose memory an address is: a live allocation's, a heap's but no allocation's, or no heap's. */
enum native_place { NATIVE_ELSEWHERE, NATIVE_LIVE, NATIVE_DEAD };
enum native_place native_look(cuda_addr address, struct native_heap **heap, trz_pointer_info *info);

/* Calls `look` for each open heap. */
void native_each(void (*look)(struct native_heap *heap, void *argument), void *argument);

/* Closes the heap of a context that is about to end; the second, that of a device's primary context. Until the call of
 * native_ended, no heap is opened: another thread could open one for the context, which would then outlive it. */
void native_end_context(void *context);
void native_end_primary(int device);
void native_ended(void);

/* The process uses the device: it has a context there. CUDA can copy plain memory between all devices that a process
 * uses, mapped memory only between devices that may access it. So from here on this device may access the memory of all
 * heaps. If it cannot, native_devices_apart is set, and what cudaMalloc asks for is passed on to the driver. */
enum { NATIVE_DEVICES = 64 };
void native_use_device(int device);
extern atomic_bool native_devices_apart;

/* The driver's table, for callers that have a heap: trz_driver_cuda would read the environment at each call. */
const trz_driver *native_table(void);

/* Asked before the first heap is opened, if it is not NULL; false: the driver is to serve all. */
extern bool (*native_may_open)(void);

/* Options of the heaps, before those of TERRAZZO_CONF; NULL: none. */
extern const char *native_config;

/* Called with each heap that has been opened, without a lock, if it is not NULL. */
extern void (*native_on_open)(struct native_heap *heap);

/* Returns the heaps' free memory to the driver, which has no memory left for another request. false: there was none. */
bool native_make_room(void);

/* Waits for the host stream, if the calling thread's newest allocation has made it wait for others; false: in vain. */
bool native_settle(struct native_heap *heap);

/* From now on the driver serves everything. */
void native_stop(void);

/* ---- options: TERRAZZO_NATIVE=key:value,... --------------------------------------------------------------- */

struct native_options {
	bool on;             /* on:off leaves all to the driver */
	bool free_in_order;  /* free:order; else cuMemFree waits */
	bool report;         /* report:on */
	atomic_bool classic; /* ipc:classic: cuMemAlloc is passed on to the driver, whose memory other processes can open */
	bool refuse_ipc;     /* ipc:refuse: not on account of IPC */
};

extern struct native_options native_options;

/* Reads them, once. */
void native_read_options(void);

/* ---- the calls ------------------------------------------------------------------------------------------------- */

/* Whether all calls of the process to the driver come through here. If so, the next two are right: how many captures
 * are under way, and how often the program has given a device another pool. */
extern bool native_sees_all;
extern atomic_int native_captures;
extern atomic_int native_pools_chosen;

/* Where the program called the function that allocates next: the call site that the heap counts the memory for. */
extern _Thread_local const void *native_caller;
#define NATIVE_CALLER __builtin_return_address(0)

cuda_result native_alloc(cuda_addr *address, size_t size);
cuda_result native_alloc_pitch(cuda_addr *address, size_t *pitch, size_t width, size_t height, unsigned element);
cuda_result native_free(cuda_addr address);
cuda_result native_alloc_async(cuda_addr *address, size_t size, void *stream);
cuda_result native_alloc_from_pool(cuda_addr *address, size_t size, void *pool, void *stream);
cuda_result native_free_async(cuda_addr address, void *stream);
cuda_result native_mem_info(size_t *unused, size_t *total);
cuda_result native_stream_destroy(void *stream);
/* Before cudaIpcGetMemHandle, which works only for the driver's own allocations. NOT_SUPPORTED: the memory is a heap's;
 * a line says so, once, and from here on cuMemAlloc is passed on (ipc:auto). */
cuda_result native_may_export(cuda_addr address);
void native_stream_retire(void *stream);

/* Notes an allocation to be freed later, since a capture is under way. false: it is noted already, or the host has no
 * memory. */
bool native_late_add(struct native_heap *heap, void *ptr);
/* Frees what was noted during captures, once `wait` has waited for its uses, which the driver may refuse. */
void native_late_settle(struct native_heap *heap, cuda_result (*wait)(struct native_heap *heap));
/* The heap is about to be closed. */
void native_late_forget(struct native_heap *heap);

/* Bytes that the heap keeps for later. */
uint64_t native_cached(const struct native_heap *heap);

/* Counts what is allocated in the order of streams, for the default pool's attributes. */
void native_pool_take(struct native_heap *heap, size_t size);
void native_pool_give(struct native_heap *heap, const trz_pointer_info *info);

/* The heaps of the device whose default pool this is, one for each of its contexts, stand for the pool; nothing is done
 * for another pool. */
void native_pool_trim(void *pool, size_t keep);

/* Adds what the heaps have to the driver's answer about a pool. */
void native_pool_add(void *pool, int attribute, void *value);
void native_pool_reset(void *pool, int attribute);

/* Opens the memory of the pool's heaps to devices as well. It is never closed to one again, as copies need access. */
void native_pool_open(void *pool, const struct cuda_mem_access *access, size_t count);

/* Opens the memory of a context's heap to the current device. */
void native_open_to_current(void *context);

/* ---- what was served ---------------------------------------------------------------------------------------- */

#define NATIVE_COUNTED(X)                                                                                         \
	X(cuMemAlloc) X(cuMemAllocPitch) X(cuMemFree) X(cuMemAllocAsync) X(cuMemAllocFromPoolAsync) X(cuMemFreeAsync) \
	X(cuMemGetInfo) X(cuStreamDestroy)

enum native_call {
#define NATIVE_CALL_ENUM(name) NATIVE_##name,
	NATIVE_COUNTED(NATIVE_CALL_ENUM)
#undef NATIVE_CALL_ENUM
	NATIVE_CALLS
};

/* Served by a heap; passed on to the driver; refused by a limit. */
enum native_outcome { NATIVE_SERVED, NATIVE_PASSED, NATIVE_REFUSED, NATIVE_OUTCOMES };

void native_count_slow(enum native_call call, enum native_outcome outcome);

static inline void native_count(enum native_call call, enum native_outcome outcome)
{
	if (native_options.report)
		native_count_slow(call, outcome);
}

/* Prints the counts, a line for each call that was made. false: none was. */
bool native_report(void);

#endif
