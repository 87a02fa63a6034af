/* SPDX-License-Identifier: Apache-2.0
 *
 * The internals of the look-alike libcuda.so.1: its list of functions, its state, and the declarations that its files
 * share. Every exported function translates to a few calls of the simulator's driver table or sim.h.
 */
#ifndef DRIVER_LOOKALIKE_H
#define DRIVER_LOOKALIKE_H

#include <jansson.h>
#include <stdbool.h>

#include <sys/queue.h>

#include "driver_abi.h"
#include "driver_symbols.h"
#include "lookalike/lookalike.h"
#include "sim/sim.h"
#include "sim/sim_profile.h"
#include "sim/sim_recording.h"

#pragma GCC visibility push(hidden)

enum { LOOK_DEVICES = 16, LOOK_NODES = 64 };

/* When enqueued work runs. */
enum look_work { LOOK_NOW, LOOK_LATE, LOOK_BLOCKED };

/* The machine; `sim`, `table` and `devices` are zero until cuInit has succeeded. */
struct look_machine {
	sim *machine;                /* the same as `sim`, but also open if only NVML is used */
	sim *sim;
	const trz_driver *table;
	const struct sim_profile *profile;
	enum look_work work;
	bool free_waits;          /* cuMemFree waits for the device, as a real driver does though it need not */
	bool real_scalars, abort_on_violation, nccl_memory;
	bool memory_needs_context;   /* create, map and the like are refused in a thread without a current context */
	bool violated;               /* set atomically */
	bool told;                   /* set atomically: the next violation has been told in full already */
	bool has_captured;           /* set atomically: a capture has begun */
	bool has_slept;              /* set atomically: a kernel has kept its stream busy */
	bool has_met;                /* set atomically: has met other ranks in a collective */
	uint64_t kernel_ns, overhead_bytes, capacity_bytes, seed;
	uint64_t collective_bytes;   /* collectives of up to this many bytes a rank move real bytes */
	uint64_t timeout;            /* seconds after which a rank stops waiting; 0: never */
	int devices, all_devices;    /* the visible ones, which come first; all of the machine's */
	int number[LOOK_DEVICES];    /* of each device on the machine (driver_visible.c) */
	int node;
	const char *report;          /* folder for reports; NULL: none */
};
extern struct look_machine look;

/* Exported functions by place in LOOKALIKE_DRIVER_SYMBOLS, for the count of calls. */
enum look_call {
#define LOOK_CALL_ENUM(name, exported, version, parameters) LOOK_CALL_##exported,
	LOOKALIKE_DRIVER_SYMBOLS(LOOK_CALL_ENUM)
#undef LOOK_CALL_ENUM
	LOOK_CALLS
};

enum { LOOK_PAGE = 4096, LOOK_OTHERS = 1024 };
enum { LOOK_MOST_COLLECTIVE_BYTES = 64 << 20 };

/* Priorities of streams: a smaller number is a higher priority. */
enum { LOOK_LEAST_PRIORITY = 0, LOOK_GREATEST_PRIORITY = -5 };

/* All counters, incremented atomically; whole pages. */
struct look_live {
	sim_figures sim;             /* by the machine, under its own lock */
	uint64_t kernels, library_calls, graph_launches, copied_bytes, blank_reads;
	struct {
		uint64_t calls, bytes;
	} collectives[STANDIN_KIND_COUNT];
	uint64_t calls[LOOK_CALLS];
	uint64_t others[LOOK_OTHERS];  /* calls of other libraries */
} __attribute__((aligned(LOOK_PAGE)));
extern struct look_live look_live;

/* driver_error.c */
/* The one function that turns a status into a driver's result. Ends the process if a rule was broken and violations
 * abort. */
cuda_result look_result(trz_status status);
/* driver_machine.c: what cuDriverGetVersion returns. */
int look_version(void);
/* Returns CUDA_ERROR_NOT_INITIALIZED; if fork is the reason, says so. */
cuda_result look_not_open(void);
const char *look_name(enum look_call call);

/* driver_visible.c: writes the numbers of all devices in this process's order, and returns how many of them it sees.
 * The device of a number; -1: there is none. */
int look_visible(int order[LOOK_DEVICES]);
int look_device_of(int number);

/* driver_context.c: the calling thread's current context (NULL: none); the context of a stream or an event. */
trz_context look_context(void);
trz_context look_stream_context(void *stream);

/* The context of a stream that works on memory of the device: a default stream may be another device's than the calling
 * thread's. */
trz_context look_memory_context(void *stream, uint64_t address);

/* The calling thread's context; a thread without one gets the first device's, as by the runtime that libraries use.
 * NULL: none can be made. */
trz_context look_bind(void);
/* A green context, which has a share of a device's multiprocessors. Here it is its device's primary context under
 * another handle. Never freed. */
struct look_green {
	struct look_green *next;
	trz_context primary;         /* NULL: it has been destroyed */
	cuda_device device;
	unsigned multiprocessors;
};
/* driver_green.c: the one of a handle; NULL: that is none, or destroyed. */
struct look_green *look_green_of(const void *context);
/* The one that is current in the thread, or that a stream was made in; NULL: none. */
void *look_green(void);
void *look_stream_green(void *stream);
trz_context look_event_context(void *event);
/* Whether `device` has been allowed to reach the plain memory of `peer`. */
bool look_peer_enabled(int device, int peer);

/* driver_per_thread.c: the form of a function that uses the thread's own stream if the call names none; the function
 * itself if it has no such form. */
void *look_per_thread(void *function);

/* driver_module.c: where a function keeps what driver_old.c knows of it. */
struct look_old_launch **look_function_old(void *function);

/* driver_ipc.c: an event for several processes has been made (false: no host memory), or any event destroyed. */
bool look_ipc_event_made(const void *event);
void look_ipc_event_gone(const void *event);

/* driver_link.c: answers options of the compiler (CUjit_option): no time, an empty log, and of errors `error`. */
void look_answer_jit(const char *error, unsigned count, const int *options, void **values);

/* driver_stream.c: after each call that enqueues or queries, runs as much work as the mode says. */
void look_progress(void);
cuda_result look_enqueued(trz_status status);

/* driver_idle.c: from here on late work completes when the program makes no call for a second. */
void look_idle_open(void);
/* A kernel keeps its stream busy: from here on work may be late, even if it is done at once otherwise. */
void look_sleeps(void);
bool look_is_late(void);

/* driver_host.c: whether a host address is pinned, and its flags. */
bool look_pinned(const void *address, uint64_t *start, uint64_t *size, unsigned *flags);

/* driver_live.c: from here on the figures lie in a file; detach: a child made by fork() keeps its own. */
void look_live_write(const char *path);
void look_live_detach(void);
/* The numbers of calls, by name; the forms of a function count together. */
json_t *look_live_calls(void);
/* Calls and bytes of collectives, by kind. */
json_t *look_live_collectives(void);
/* The place of each figure in the file: a list of [path, offset]. */
json_t *look_live_places(void);

/* driver_report.c */
void look_report_open(void);
/* `ended`: this is the last report. */
void look_report_write(bool ended);
void look_oom(const char *call, uint64_t bytes, int device);
/* The answer to a request for device memory. One that a thread makes again at once, as after freeing what it kept for
 * later, counts as one request: the last answer holds. */
void look_answered(const char *call, uint64_t bytes, int device, cuda_result result);
/* A short read from the device is about to give 0. */
void look_blank_read(uint64_t bytes);

/* driver_recording.c: from here on notes what `--record` asks for; detach: nothing in a child made by fork(). */
void look_recording_open(const char *folder);
void look_recording_detach(void);
/* Around a call whose place in the order counts: begin takes the lock, if anything is recorded; end notes the call if
 * it happened, and unlocks. The call must run no work, since work may call us. */
bool look_note_begin(void);
void look_note_end(bool begun, bool happened, enum sim_recorded_kind kind, trz_context context, void *stream,
                   uint64_t key);
void look_note(enum sim_recorded_kind kind, trz_context context, void *stream, uint64_t key);
/* Notes a request for the driver's memory; without a context it is in the order of the memory's own stream. */
void look_note_request(enum sim_recorded_kind kind, int device, trz_context context, void *stream, uint64_t address,
                       uint64_t size);
/* Notes that work is about to be enqueued on the stream. */
void look_note_work(trz_context context, void *stream);

/* driver_known.c: notes a copy to the device, or a fill; `known`: its bytes come from the host, and are there now. */
void look_note_known(uint64_t start, uint64_t size, bool known);
void look_note_filled(uint64_t start, uint64_t size, bool known);
/* Notes a copy within the device, or to it, which brings what a collective has brought. */
void look_note_copied(uint64_t to, uint64_t from, uint64_t size, bool known);
bool look_is_brought(uint64_t start, uint64_t size);
/* Whether this thread's short reads give a number, whatever lies there. */
bool look_answer(uint64_t *answer);

/* driver_copy.c */
bool look_is_captured(trz_context context, void *stream);
/* A row of `size` bytes; the program copies `whole` bytes in one call. */
struct look_piece {
	uint64_t to, from, size, whole;
	bool peer;                   /* the call names the device of each side */
	bool to_device, from_device; /* the call says that this side is the device's; pinned memory is, too */
};
cuda_result look_copy_piece(const struct look_piece *p, void *stream, bool wait);
cuda_result look_fill(cuda_addr address, uint64_t pattern, unsigned unit, size_t count, void *stream, bool wait);

/* driver_rows.c: a copy described as for cuMemcpy3D; `peer`: as for cuMemcpy3DPeer. */
cuda_result look_copy_rows(const struct cuda_copy_3d *c, bool peer, void *stream, bool wait);
/* Fills rows of `width` units. */
cuda_result look_fill_rows(cuda_addr address, size_t pitch, uint32_t pattern, unsigned unit, size_t width,
                           size_t height, void *stream, bool wait);

/* driver_memory.c: allocates plain memory in the current context; a report of its failure names `call`. */
cuda_result look_plain_alloc(const char *call, uint64_t size, cuda_addr *address);
cuda_result look_plain_free(trz_context context, cuda_addr address);

/* driver_array.c: plain memory; row r of slice s begins at s * slice + r * pitch. */
struct look_array {
	LIST_ENTRY(look_array) link;
	struct cuda_array_3d is;
	trz_context context;
	cuda_addr address;
	uint64_t size, pitch, slice, rows, slices;
	unsigned element;            /* bytes */
	bool is_level;               /* a level of a mipmapped array */
};
/* NULL: the handle is no array, or a destroyed one. */
struct look_array *look_array_find(const void *handle);
bool look_is_mipmap(const void *handle);
/* 0: an unknown format. */
unsigned look_channel_bytes(int format);

/* driver_ipc.c: makes a handle of plain memory for other processes; maps another process's memory at a new address
 * (`access`: one bit for each device that reaches it); unmaps it, false: it is not such memory. A pool's memory ends by
 * a free, other memory only by cuIpcCloseMemHandle. */
cuda_result look_ipc_export(struct cuda_ipc *handle, cuda_addr address);
cuda_result look_ipc_open(cuda_addr *address, const struct cuda_ipc *handle, uint32_t access, bool of_pool);
bool look_ipc_close(cuda_addr address, bool of_pool, cuda_result *result);

/* driver_managed.c: whether an address lies in managed memory; forgets memory about to be freed, and the memory of a
 * context that has ended. */
bool look_managed(cuda_addr address);
void look_managed_forget(cuda_addr address);
void look_managed_end_context(void);

/* driver_pool.c: whether a pool may be exported, and its device; whether it is imported, and the devices that reach it,
 * one bit each; whether memory is of a pool that may be exported; makes a pool that stands for another process's. */
bool look_pool_shared(const void *pool, int *device);
bool look_pool_imported(const void *pool, uint32_t *access);
bool look_pool_exports(cuda_addr address);
cuda_result look_pool_import(int device, void **pool);

/* driver_graph_memory.c: a context has ended, and the events in it. */
void look_blocks_end_context(trz_context context);

/* driver_pool.c: frees the memory that a device's pools keep beyond their thresholds, or `all` that they keep, if work
 * has finished with it; true: some was freed. */
bool look_pools_trim(int device, bool all);
/* Frees a pool's memory, or refuses a second free; false: the memory is not from a pool. */
bool look_pool_free(cuda_addr address, cuda_result *result);
/* As sim_place_at, but a pool's memory is told as the program knows it; *pool: the pool of what is live, or NULL. */
bool look_place_at(cuda_addr address, struct sim_place *place, void **pool);
/* The context has ended, and its plain memory with it. */
void look_pools_end_context(trz_context context);
/* Whether a pool of the device has been opened to another. */
bool look_pools_reach(int device, int peer);
/* Whether what the last launch of a capture's graph has left allocated has been freed; that graph has been launched on
 * a stream; it, or a capture that failed, has ended. */
bool look_pools_may_launch(uint64_t capture);
void look_pools_launched(uint64_t capture, trz_context context, void *stream);
void look_pools_end_graph(uint64_t capture);

#pragma GCC visibility pop

/* LOOK_ENTER begins every function: counts the call, and refuses it before cuInit and in a host function. */
#define LOOK_COUNT(name) __atomic_fetch_add(&look_live.calls[LOOK_CALL_##name], 1, __ATOMIC_RELAXED)
#define LOOK_ENTER(name)                                \
	do {                                                \
		LOOK_COUNT(name);                               \
		if (!look.sim)                                  \
			return look_not_open();                     \
		if (sim_called_back(look.sim))                  \
			return TRZ_CUDA_ERROR_NOT_PERMITTED;        \
	} while (0)
#define LOOK_NEED(condition, error)     \
	do {                                \
		if (!(condition))               \
			return TRZ_CUDA_ERROR_##error; \
	} while (0)

/* Calls a slot of the simulator's table. */
#define LOOK_SLOT(slot, ...) look_result(look.table->slot(look.table->self, __VA_ARGS__))

#endif
