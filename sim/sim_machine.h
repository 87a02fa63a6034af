/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated device's internals: the structures and functions that the files of this folder share. No file outside
 * the folder includes it.
 *
 * One lock guards a whole machine (the driver serialises its callers too). sim_enter takes it and sim_leave releases
 * it; every function below is called with it held unless it says otherwise. Only a stream's host function, and the wait
 * for one in another thread, release it in between: so a caller calls what can run work (sim_block, sim_drain) before
 * it makes its own checks, never after them.
 */
#ifndef TRZ_SIM_MACHINE_H
#define TRZ_SIM_MACHINE_H

#include <pthread.h>
#include <sys/queue.h>

#include "cuda_abi.h"
#include "sim.h"
#include "ticks.h"

enum { SIM_TEXT_BYTES = 512 };

/* ---- registry of handle values ----------------------------------------------------------------------- */

/* Users' handle values contain the kind, so that a value of the wrong kind is noticed. */
enum sim_kind { SIM_KIND_MEMORY = 1, SIM_KIND_CONTEXT, SIM_KIND_STREAM, SIM_KIND_EVENT, SIM_KIND_GRAPH };

/* Invariant: objects[i] is NULL exactly if the value of index i is dead; `unused` is a stack of dead indexes that may
 * be handed out again, newest last. */
struct sim_registry {
	enum sim_kind kind;
	bool reuse;
	void **objects;
	uint32_t *unused;
	uint32_t count, room, unused_count;
};

/* 0: the host has no memory. */
uint64_t sim_registry_add(struct sim_registry *r, void *object);
/* NULL: the value is dead, or of another kind. */
void *sim_registry_get(const struct sim_registry *r, uint64_t value);
/* The value of the object at an index. */
uint64_t sim_registry_value(const struct sim_registry *r, uint32_t index);
void sim_registry_remove(struct sim_registry *r, uint64_t value);
void sim_registry_free(struct sim_registry *r);

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Physical memory: [offset, offset + size) of the memfd. Offsets only grow, for each device and process in a part of
 * the file of its own: so memory created in sequence lies in sequence, the kernel can merge its mappings, and an offset
 * names one memory for ever. Invariant: handles + mappings > 0; its bytes are charged to the device as long as it
 * exists. */
struct sim_phys {
	LIST_ENTRY(sim_phys) link;
	uint64_t offset, size;
	int device, shared;         /* shared: its place in the ledger's `shared`; -1: it is this process's alone */
	unsigned export_kinds;
	uint32_t handles, mappings;
	struct sim_beside *beside;  /* what stamps wrote to it (sim_stamp.c); NULL: nothing lies there */
	bool bare;                  /* nothing ever will: stamps write into the memory */
	bool managed, on_host;      /* it moves to the host when its device is full; it has, and counts for none */
	uint64_t retained;          /* a handle that needs `retains` releases more than one */
	uint32_t retains;
};

/* A whole physical memory mapped at an address. The machine's table points to it from every granule that it covers. */
struct sim_mapping {
	LIST_ENTRY(sim_mapping) link;
	uint64_t address;
	struct sim_phys *phys;
	uint64_t handle;            /* it was mapped with; it may be dead */
	uint64_t generation;        /* the machine's `generation` when it was made */
	uint64_t stands_for;        /* for graphs: the generation of the first mapping that filled the reservation, if each
	                             * since then has filled it, too; else its own */
	uint32_t access;            /* one bit per device */
	bool present;               /* the host's page tables have it: since the first set_access, or use by work */
	struct sim_chunk *chunk;    /* of plain memory (sim_plain.c); NULL: made by `map` */
};

struct sim_range {
	uint64_t address, size;
};

/* Where one mapping after another fills a reservation, as when a program gives memory back for a while, graphs take the
 * newest for the one of their capture. */
struct sim_reservation {
	uint64_t address, size;
	uint64_t filled;            /* what a mapping that fills it stands for; 0: for itself */
};

struct sim_device {
	struct sim_context *primary;  /* NULL: not retained */
	unsigned contexts;
	uint32_t plain_access;        /* other devices that reach its plain memory, one bit each */
	bool dead;                    /* until its last context ends */
};

/* ---- contexts, streams, events ------------------------------------------------------------------------- */

/* Lives until sim_close, so that a destroyed one can be distinguished from a wrong value. */
struct sim_context {
	uint64_t value;
	int device;
	bool primary, destroyed;
	unsigned references;        /* of a primary context: it ends with the last */
	struct sim_stream *legacy;
	uint64_t blocking_ns;       /* virtual time when the newest item of a blocking stream ended */
	struct sim_stream *collector; /* waits for the others, for events of the whole context; NULL: none yet */
	LIST_HEAD(, sim_stream) streams;
	size_t ended_since, look_after; /* busy streams that ended since the last look for idle ones; when to look again */
};

enum sim_work_kind {
	SIM_WORK_STAMP, SIM_WORK_VERIFY, SIM_WORK_FILL, SIM_WORK_COPY, SIM_WORK_HOST, SIM_WORK_SPIN, SIM_WORK_WAIT,
	SIM_WORK_TOUCH, SIM_WORK_MARK, SIM_WORK_AWAIT, SIM_WORK_MEET, SIM_WORK_SLEEP
};

/* What a touch names: shared by the items of a graph's launches, freed with the last of them. */
struct sim_touched {
	unsigned references;
	const char *name;
	size_t known, count;        /* the first `known` addresses are arguments; the others may be */
	bool parts;                 /* the kernel works on parts of what they name */
	uint64_t address[];
};

/* One item of a stream. `kind` decides which fields count. */
struct sim_work {
	enum sim_work_kind kind;
	uint8_t value;              /* fill */
	bool dependent;             /* stamp: may be resident together with the items before it */
	bool blank;                 /* copy: zeros instead of the source's bytes */
	bool peer;                  /* copy: the caller named the device of each side */
	uint8_t unit;               /* fill: bytes of the pattern in `tag`; 0: `value` */
	uint64_t issued_ns, cost_ns; /* virtual time: when it can start at the earliest, and how long it takes */
	uint64_t tick, order;       /* when enqueued: the trace clock, and its number among all items; for a graph's node
	                             * its number among all that was captured */
	uint64_t generation;        /* newer mappings were made behind its back */
	uint64_t address, size;     /* stamp, verify, fill; copy: the destination. Of a sleep, questions until it ends */
	uint64_t from, tag;         /* copy: the source; stamp, verify: the tag. A mark has its event's value in `address`,
	                             * the event's number in `from`, the record's in `tag`; so has a graph's node that
	                             * awaits an event, which a launch turns into a wait */
	void (*fn)(void *);         /* host */
	void *arg;
	const uint32_t *flag;       /* spin; NULL: on `size` bytes at `address`, compared with `tag` as `unit` says */
	struct sim_touched *touched; /* touch; NULL: it only takes time */
	struct sim_attendance *attendance; /* meet */
	struct sim_stream *other;   /* wait: until `other` has completed `sequence` items; a graph's node has a lane's
	                             * number in `tag` instead */
	uint64_t sequence;          /* dependent: items of its stream that have completed when it starts */
};

/* Memory that an item uses, which may still be resident: [offset, offset + size) of the memfd, at an address. */
struct sim_extent {
	uint64_t offset, size, address;
	uint64_t sequence;          /* the item's number in its stream */
};

/* What a stream has waited for: the first `sequence` items of `stream`. */
struct sim_known {
	struct sim_stream *stream;
	uint64_t sequence;
};

/* A queue: items completed .. enqueued - 1 are in the ring `items` at (number & (room - 1)).
 * Invariant: it is in the machine's `active` array exactly while it is not empty. Lives until sim_close,
 * since events and waits point to it even when its handle is dead. */
struct sim_stream {
	LIST_ENTRY(sim_stream) link, in_context;
	struct sim_context *context;
	uint64_t value, id;
	uint64_t thread;            /* the thread whose default stream it is; 0: none */
	bool blocking;
	bool ended;                 /* its handle, or its graph's, is dead */
	struct sim_work *items;
	uint64_t room, enqueued, completed;
	size_t active_index;
	uint64_t last_order;        /* of the item enqueued last */
	uint64_t seen_legacy;       /* items of the legacy stream that this blocking stream waits for already */
	uint64_t seen_by_legacy;    /* items of this stream that the legacy stream waits for already */
	uint64_t search, searched;  /* the newest search for an order, and how many of the items that has seen */
	struct sim_thread *runner;  /* inside the host function at the head of the queue */
	struct sim_capture *capture; /* it is part of; NULL: none */
	unsigned lane;              /* in that capture */
	uint64_t graph;             /* number of the graph whose nodes it runs; 0: a user's stream */
	uint64_t now_ns;            /* virtual time when its newest completed item ended */
	uint64_t settled;           /* the first `settled` items complete before the next item enqueued starts */
	struct sim_extent *residents;
	size_t resident_count, resident_room;
	struct sim_known *known;    /* about users' streams, by its own waits and those of the streams it waited for */
	size_t known_count, known_room;
};

/* Covers the first `sequence` items of `stream`. Recorded in a capture: `capture` is that one's number, `sequence`
 * counts the nodes of `lane`, and `stream` is NULL. Never recorded: `stream` is NULL, `capture` 0. */
struct sim_event {
	uint64_t value, number;     /* the number is never used again */
	struct sim_context *context;
	struct sim_stream *stream;
	uint64_t sequence;
	uint64_t capture;           /* 0: recorded outside captures */
	unsigned lane;
	bool timed, marked;         /* it keeps a time; the newest record has been reached */
	uint64_t records, time_ns;  /* number of the newest record, and when it was reached */
};

/* ---- captures and graphs --------------------------------------------------------------------------- */

enum { SIM_MAX_LANES = 64 };

/* What one stream adds to a capture. */
struct sim_lane {
	struct sim_stream *stream;  /* the captured one */
	struct sim_stream *runner;  /* of a graph: runs the nodes */
	struct sim_work *nodes;
	uint64_t count, room;
};

/* A capture under way (in the machine's list `captures`), later the graph made of it (in `graphs`). Lane 0 is
 * the stream that it began on. */
struct sim_capture {
	LIST_ENTRY(sim_capture) link;
	uint64_t id;                /* from 1, never used again */
	trz_capture_mode mode;
	uint64_t thread;            /* number of the thread that began it */
	bool invalidated;
	unsigned lane_count;
	struct sim_lane lane[SIM_MAX_LANES];
	struct sim_node_place {
		unsigned lane;
		uint64_t at;
	} *place;                   /* of all nodes, including waits, by number: in the order of their capture */
	uint64_t count, room;
};

/* ---- what processes share ------------------------------------------------------------------------- */

enum { SIM_MAX_PROCESSES = 64, SIM_MAX_SHARED = 1024 };

/* Exported memory. Each holder, a process or an exported descriptor, has a file lock on its
 * range of the memfd, so that the kernel counts its references. */
struct sim_shared {
	uint64_t offset, size;      /* size 0: the place is free */
	int32_t device;
	uint32_t export_kinds;
};

/* Lies after the devices' memory in the memfd. A process owns the row of its place while it has a file lock on that
 * place; a row whose owner has died does not count. */
struct sim_ledger {
	char magic[8];              /* changes with the meaning of the rest */
	uint64_t bytes;             /* sizeof this struct in the build that made the machine */
	int32_t devices, processes, shared_count;  /* the latter two: places ever used */
	uint64_t capacity, withheld, granularity;
	uint64_t peak[SIM_MAX_DEVICES];
	struct sim_ledger_row {
		uint64_t pid;
		uint64_t used[SIM_MAX_DEVICES];         /* exported memory is charged to no process */
		uint64_t next_offset[SIM_MAX_DEVICES];
	} row[SIM_MAX_PROCESSES];
	struct sim_shared shared[SIM_MAX_SHARED];
};

/* ---- the machine ---------------------------------------------------------------------------------- */

struct sim_thread {
	LIST_ENTRY(sim_thread) link;
	struct sim *machine;
	uint64_t number;            /* from 1, never used again */
	struct sim_context *current;
	trz_capture_mode capture_mode;
	bool waiting;               /* in sim_block, for another thread's host function */
	unsigned depth;             /* of nested driver slots, for host functions that call the driver */
	unsigned called_back;       /* depth of nested host functions */
	bool left_out;              /* its calls are left out of the figures */
	uint64_t host_ticks;        /* spent in slots */
	int result;                 /* a driver's, for the newest call that failed; 0: the one of its status */
	char reason[SIM_TEXT_BYTES];
};

enum { SIM_COST_POINTS = 8 };

/* What a slot costs: call_ns, and for each handle at(size) + mib_ns * MiB, both increased by device_percent for
 * each device beyond the first. */
struct sim_cost {
	uint64_t call_ns, mib_ns, device_percent;
	unsigned points;            /* at(size): straight lines between these points, flat outside */
	uint64_t point_mib[SIM_COST_POINTS], point_ns[SIM_COST_POINTS];
};

struct sim_cost_table {
	struct sim_cost slot[SIM_SLOTS];
	uint64_t time_ns;           /* what calls took by it; unused in the first, whose time is a figure */
};

struct sim_fault {
	uint64_t mask;              /* of slots; 0: off */
	uint64_t countdown;         /* of the n-th call: matching calls until it strikes */
	bool persistent;
	double probability;
	trz_status status;
};

struct sim {
	sim_config config;
	trz_driver table;
	pthread_mutex_t lock;
	pthread_cond_t progress;    /* a host function has returned or begun to wait, or a device has died */
	pthread_key_t thread_key;
	LIST_HEAD(, sim_thread) threads;
	uint64_t thread_count;

	int memory_fd;                      /* sim_ledger.c */
	struct sim_ledger *ledger;
	int process;                        /* its place in the ledger */
	int number[SIM_MAX_DEVICES];        /* by device: its number in the ledger */
	bool holds[SIM_MAX_SHARED];         /* by place in the ledger's `shared`: this process has that memory */
	uint64_t window, window_bytes;
	unsigned granule_shift;
	struct sim_mapping **granules;      /* window_bytes >> granule_shift entries */
	struct sim_reservation *reservations; /* sorted by address, disjoint */
	size_t reservation_count, reservation_room;
	LIST_HEAD(, sim_phys) physical;
	LIST_HEAD(, sim_mapping) mappings;
	LIST_HEAD(, sim_chunk) chunks;
	LIST_HEAD(, sim_plain_range) plain_ranges;
	uint64_t mapping_count;             /* made by `map`, not by plain memory */
	uint64_t plain_reservations;        /* of chunks, one each, and of ranges that others lie in */
	uint64_t plain_count;               /* allocations in chunks */
	uint64_t generation;                /* from 1; grows with each mapping */
	struct sim_device device[SIM_MAX_DEVICES];

	struct sim_registry memory, contexts, streams, events, graphs;
	LIST_HEAD(, sim_capture) captures;
	uint64_t capture_ids;
	uint64_t live_handles, live_events, context_retains;
	LIST_HEAD(, sim_stream) all_streams, dead_streams; /* dead_streams: ended and idle, not in all_streams */
	struct sim_stream **active;
	size_t active_count, active_room;
	struct sim_stream *starved;
	uint64_t stream_ids, event_numbers, order, tick, unfinished;
	uint64_t searches;          /* for an order of streams, so far */
	uint64_t schedule_seed, sync_seed, fault_seed;
	uint32_t (*mark)(void);     /* the meetings'; NULL: there has been none */

	struct sim_cost_table costs[1 + SIM_MORE_COSTS];
	unsigned cost_tables;        /* of `costs`; the clock goes by the first */
	uint64_t clock_ns;           /* what all calls took, those left out of the figures included */
	bool left_out;               /* the call under way is */
	sim_figures own_figures, *figures;
	uint64_t clock_readings;
	struct ticks ticks;          /* the host's clock; not calibrated */
	uint64_t timing_ticks;       /* that timing a call adds to the call */
	uint64_t calls[SIM_SLOTS];
	struct sim_fault nth_fault, random_fault;
	uint64_t faults;

	char first_violation[SIM_TEXT_BYTES], first_misuse[SIM_TEXT_BYTES], first_suspicion[SIM_TEXT_BYTES];
};

/* A call into the machine, from a slot of the table or (slot SIM_SLOTS) from a function of sim.h. */
struct sim_call {
	sim *s;
	struct sim_thread *thread;
	sim_slot slot;
	trz_status status;
	uint64_t started;
};

/* sim_machine.c. sim_enter takes the lock; for a slot it also counts and charges the call, and injects a fault by
 * setting the status. sim_leave releases the lock, puts a failure's reason where callers look, returns the status. */
struct sim_call sim_enter(sim *s, sim_slot slot);
trz_status sim_leave(struct sim_call *call);
struct sim_thread *sim_thread_here(sim *s);
/* Keeps the reason of a failure for sim_leave; returns `status`. */
trz_status sim_refuse(sim *s, trz_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Counts and describes a call that the driver documents as illegal; aborts unless configured not to. */
trz_status sim_violate(sim *s, trz_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* A violation, with the result that a driver gives. */
trz_status sim_answer(sim *s, trz_status status, int result, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* A call that a driver refuses with this result (0: the status's): a misuse if the machine runs programs, else a
 * violation. */
trz_status sim_misuse(sim *s, trz_status status, int result, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Counts and describes a possible violation. */
void sim_suspect(sim *s, const char *text);
bool sim_enforces(const sim *s, enum sim_rule rule);

/* sim_fault.c: TRZ_OK, or the failure to inject into this call. */
trz_status sim_fault_strike(sim *s, sim_slot slot);

/* sim_cost.c */
/* Makes the named table the machine's next. */
trz_status sim_cost_load(sim *s, const char *name);
void sim_charge_call(sim *s, sim_slot slot);
void sim_charge_handle(sim *s, sim_slot slot, uint64_t size, int devices);

/* sim_ledger.c */
/* Makes the memory file, or attaches to another machine's and takes over its figures. */
trz_status sim_ledger_open(sim *s);
void sim_ledger_close(sim *s);
bool sim_memory_take(sim *s, int device, uint64_t bytes);
void sim_memory_give(sim *s, int device, uint64_t bytes);
/* How much all processes have taken of the device, and the most that they ever had. */
uint64_t sim_memory_used(sim *s, int device);
uint64_t sim_memory_peak(sim *s, int device);
/* The host's virtual time. */
uint64_t sim_now_ns(const sim *s);
/* Exports the memory: from here on it lives as long as any process holds it. */
trz_status sim_ledger_share(sim *s, struct sim_phys *p);
/* A descriptor that holds the shared memory; -1: the process has no descriptor left. */
int sim_ledger_hold(sim *s, const struct sim_phys *p);
/* The place of the shared memory that a descriptor holds; this process holds it, too, from now on. -1: none. */
int sim_ledger_find(sim *s, int fd);
/* The same by the memory's offset in the file; and a number that no other machine of this host has. */
int sim_ledger_find_at(sim *s, uint64_t offset);
uint64_t sim_ledger_number(const sim *s);
/* This process's device for a device number of the ledger. */
int sim_ledger_device(const sim *s, int number);
/* Takes the offset for a device's next physical memory, of `size` bytes. */
uint64_t sim_ledger_offset(sim *s, int device, uint64_t size);
void sim_ledger_drop(sim *s, const struct sim_phys *p);

/* sim_memory.c */
trz_status sim_memory_open(sim *s);
void sim_memory_close(sim *s);
struct sim_phys *sim_phys_new(sim *s, int device, uint64_t size);
/* Memory that another process has exported. */
struct sim_phys *sim_phys_adopt(sim *s, int shared);
void sim_phys_drop(sim *s, struct sim_phys *p);
trz_status sim_range_take(sim *s, uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *address);
void sim_range_give(sim *s, uint64_t address);
struct sim_mapping *sim_mapping_at(const sim *s, uint64_t address);
trz_status sim_mapping_add(sim *s, uint64_t address, struct sim_phys *p, struct sim_chunk *chunk);
trz_status sim_mapping_hide(sim *s, uint64_t address, uint64_t size);
trz_status sim_mapping_show(sim *s, uint64_t address, uint64_t size);
/* The same for a use of the bytes, which then hold all that stamps have written. */
trz_status sim_bytes_show(sim *s, uint64_t address, uint64_t size);
/* Reads mapped bytes, shown or not; false: something is not mapped. */
bool sim_bytes_read(const sim *s, uint64_t address, void *to, uint64_t size);
void sim_mapping_grant(sim *s, uint64_t address, uint64_t size, uint32_t access);
void sim_mapping_remove(sim *s, struct sim_mapping *m);
bool sim_in_window(const sim *s, uint64_t address);
bool sim_reaches(const sim *s, int device, int peer);
/* Whether the mapping is younger than the stream's item, or than the capture of a graph's node. */
bool sim_mapping_is_younger(const struct sim_mapping *m, const struct sim_stream *st, const struct sim_work *w);
/* Whether the stream's item may touch the range by the rights of `device`; else `why` says why not. */
bool sim_reachable(const sim *s, const struct sim_stream *st, const struct sim_work *w, int device, uint64_t address,
                   uint64_t size, char why[SIM_TEXT_BYTES]);
/* If unfinished work uses the range and the rule is enforced: a violation that names the work. */
void sim_check_unused(sim *s, const char *what, uint64_t address, uint64_t size);
/* Waits for the device or not, by seed (SIM_RULE_SYNC_MAYBE). `otherwise`: whether a lenient machine waits. */
void sim_maybe_drain(sim *s, int device, bool otherwise);

trz_status sim_create(sim *s, const trz_tile_props *props, uint64_t size, trz_handle *handle);
trz_status sim_release(sim *s, trz_handle handle);
trz_status sim_reserve(sim *s, uint64_t size, uint64_t alignment, trz_addr hint, trz_addr *address);
trz_status sim_unreserve(sim *s, trz_addr address, uint64_t size);
trz_status sim_map(sim *s, trz_addr address, uint64_t size, trz_handle handle);
trz_status sim_unmap(sim *s, trz_addr address, uint64_t size);
trz_status sim_set_access(sim *s, trz_addr address, uint64_t size, const int *devices, int count);

/* sim_share.c */
trz_status sim_export(sim *s, trz_handle handle, unsigned kind, void *shareable);
trz_status sim_import(sim *s, unsigned kind, const void *shareable, trz_handle *handle);

/* sim_plain.c */
trz_status sim_plain_alloc(sim *s, struct sim_context *c, uint64_t size, trz_addr *address);
trz_status sim_plain_free(sim *s, struct sim_context *c, trz_addr address);
/* Ends all plain memory of a context, or (NULL) of the machine. */
void sim_plain_end(sim *s, const struct sim_context *c);

/* sim_context.c */
/* The thread's current context; NULL: none. */
trz_context sim_thread_context(const struct sim_thread *t);
/* Finds a usable context. Errors: INVALID_ARGUMENT (a violation), CONTEXT_DEAD. */
trz_status sim_context_find(sim *s, trz_context value, struct sim_context **out);
trz_status sim_context_bind(sim *s, int device, trz_context wanted, trz_context *out);
trz_status sim_context_unbind(sim *s, int device, trz_context value);
void sim_contexts_close(sim *s);
/* All use of the device fails from now on; queued work is forgotten. */
void sim_device_die(sim *s, int device);
trz_status sim_device_check(sim *s, int device);

/* sim_stream.c */
struct sim_stream *sim_stream_new(sim *s, struct sim_context *c, bool blocking, uint64_t thread);
/* The stream of a handle, for work in the context: the stream has to be of that context. */
trz_status sim_stream_find(sim *s, trz_context context, trz_stream stream, struct sim_stream **out);
/* The stream of a handle, for calls about streams of any context; NULL, 1 and 2 mean this one's. */
trz_status sim_stream_find_any(sim *s, trz_context context, trz_stream stream, struct sim_stream **out);
void sim_streams_end_context(sim *s, struct sim_context *c);
void sim_streams_forget(sim *s, int device);
void sim_streams_close(sim *s);
trz_status sim_enqueue(sim *s, struct sim_stream *st, struct sim_work work);
/* Appends to the queue as it is, without regard to default streams and captures. */
trz_status sim_push(sim *s, struct sim_stream *st, struct sim_work work);
trz_status sim_push_wait(sim *s, struct sim_stream *st, struct sim_stream *other, uint64_t sequence);
/* Call this before enqueuing on a stream: it checks that no capture forbids that, and orders the stream after what the
 * other kind of stream has been given so far. */
trz_status sim_stream_prepare(sim *s, struct sim_stream *st);
/* The stream's handle dies; its queue goes on. */
void sim_stream_retire(sim *s, struct sim_stream *st);
trz_status sim_event_new(sim *s, trz_context context, trz_event *out);
trz_status sim_event_end(sim *s, trz_context context, trz_event event);
/* An event of any context, for a call in this one. */
trz_status sim_event_find(sim *s, trz_context context, trz_event event, struct sim_event **out);
trz_status sim_event_mark(sim *s, trz_context context, trz_event event, trz_stream stream);
/* Makes the event cover the stream's work so far, including a mark for its time. */
trz_status sim_event_place(sim *s, struct sim_event *e, struct sim_stream *st);
/* The event of a graph's node; NULL: it is dead. */
struct sim_event *sim_event_of(const sim *s, const struct sim_work *node);
/* sim_event_mark for all streams of the context. */
trz_status sim_event_mark_all(sim *s, trz_context context, trz_event event);
trz_status sim_event_passed(sim *s, trz_context context, trz_event event);
trz_status sim_event_wait(sim *s, trz_context context, trz_event event);
trz_status sim_stream_await(sim *s, trz_context context, trz_stream stream, trz_event event);

/* sim_capture.c */
/* Refuses a slot that a capture forbids to the thread, and invalidates that capture. */
trz_status sim_capture_guard(sim *s, const struct sim_thread *t, sim_slot slot);
/* Ends the captures that a question about a stream ends (sim_stream_ask). */
trz_status sim_capture_question(sim *s, const struct sim_stream *st);
/* Whether a stream may be given work. The legacy stream may not while a blocking one is captured. */
trz_status sim_capture_touch(sim *s, const struct sim_stream *st);
/* Whether the host may wait for a stream, or (NULL) for a whole device. */
trz_status sim_capture_sync(sim *s, int device, const struct sim_stream *st);
/* Whether an event may be recorded for a whole context. */
trz_status sim_capture_record_all(sim *s, const struct sim_context *context);
trz_status sim_capture_node(sim *s, struct sim_stream *st, struct sim_work work);
void sim_capture_record(struct sim_stream *st, struct sim_event *e);
/* The wait of a stream for an event, of which at least one is in a capture. */
trz_status sim_capture_await(sim *s, struct sim_stream *st, const struct sim_event *e);
/* The answer to a query or a wait for an event that was recorded in a capture. */
trz_status sim_capture_ask(sim *s, const struct sim_event *e);
trz_status sim_capture_status(sim *s, const struct sim_stream *st, trz_capture_status *status, uint64_t *id);
void sim_capture_invalidate(struct sim_capture *c);
/* Takes the streams out of the capture, and the capture out of the list. */
void sim_capture_detach(struct sim_capture *c);
void sim_capture_free(struct sim_capture *c);
/* Ends the captures that have a stream of the context or, if that is NULL, of the device. */
void sim_captures_forget(sim *s, int device, const struct sim_context *context);

/* sim_graph.c */
/* Turns a detached capture into a graph. */
trz_status sim_graph_new(sim *s, struct sim_capture *c, sim_graph *out);
/* Ends the graphs that have a stream of the context. */
void sim_graphs_end(sim *s, const struct sim_context *context);
void sim_graphs_close(sim *s);

/* sim_overlap.c */
/* Called before any item of the stream runs: notes what is resident now, and finds memory of it that the item uses. */
void sim_overlap_enter(sim *s, struct sim_stream *st, const struct sim_work *w);
/* What is enqueued from here on starts only when the first `sequence` items have completed. */
void sim_overlap_edge(struct sim_stream *st, uint64_t sequence);
/* `st` has completed a wait for the first `sequence` items of `other`, or need not wait for them any more. */
void sim_overlap_waited(struct sim_stream *st, struct sim_stream *other, uint64_t sequence);
/* Whether the stream has waited for the first `sequence` items of the other. */
bool sim_overlap_knows(const struct sim_stream *st, const struct sim_stream *other, uint64_t sequence);
/* The host has seen the first `sequence` items of the stream complete, and with them what they waited for. */
void sim_overlap_seen(struct sim_stream *st, uint64_t sequence);

/* sim_schedule.c */
bool sim_passed(const struct sim_stream *st, uint64_t sequence);
/* The host asks whether the stream has passed, and it has not: a sleep that holds it up comes closer to its end. */
void sim_doze(sim *s, struct sim_stream *st);
/* Whether what a spinning item waits for has come. */
bool sim_value_ready(const sim *s, const struct sim_work *w);
/* Wakes the threads that wait for a host function. */
void sim_progress(sim *s);
/* Takes the finished head off the queue. */
void sim_complete(sim *s, struct sim_stream *st);
/* Runs work until the first `sequence` items of the stream are complete. */
trz_status sim_block(sim *s, struct sim_stream *st, uint64_t sequence);
/* Runs all work that a device has been given so far. */
trz_status sim_drain(sim *s, int device);

/* sim_stamp.c */
void sim_stamp_execute(sim *s, const struct sim_stream *st, const struct sim_work *w);
/* Puts what stamps have written beside the memory into it; from here on they write into it. */
void sim_stamps_settle(const sim *s, struct sim_phys *p);

/* sim_copy.c: the addresses may be the device's or the host's; zeros become holes of the memory file, and holes are not
 * read. Device memory is mapped and accessible. */
void sim_bytes_copy(sim *s, uint64_t to, uint64_t from, uint64_t size);
void sim_bytes_fill(sim *s, uint64_t to, uint64_t size, const void *pattern, size_t unit);

/* sim_touch.c */
void sim_touch_check(sim *s, const struct sim_stream *st, const struct sim_work *w);
void sim_touch_drop(const struct sim_work *w);
/* Looks for a race: an older item of another stream, which nothing orders before this one since it has not run, uses
 * what this one uses; one of the two is a kernel or a collective, and the other writes. */
void sim_touch_race(sim *s, const struct sim_stream *st, const struct sim_work *w);
/* Names the mapping nearest to an address. */
void sim_describe_nearest(const sim *s, uint64_t address, char *text, size_t size);

/* sim_meet.c */
void sim_meet_drop(const struct sim_work *w);
/* Turns a copy of a graph's node into an item of a launch, which owns what it needs. */
trz_status sim_meet_again(sim *s, struct sim_work *w);
/* What the item reads and writes; returns how many. */
size_t sim_meet_uses(const struct sim_work *w, const struct sim_use **uses);
const char *sim_meet_name(const struct sim_work *w);
/* Whether the item can arrive or complete now. */
bool sim_meet_ready(const struct sim_work *w);
/* Whether the item has arrived and only awaits others. */
bool sim_meet_pending(const struct sim_work *w);
/* Arrives or completes; true: the caller takes the item off the queue. */
bool sim_meet_run(sim *s, struct sim_stream *st, const struct sim_work *w);
/* Releases the lock until something may have changed since the mark. */
void sim_meet_wait(sim *s, const struct sim_work *w, uint32_t mark);

/* sim_plain.c */
/* The allocation that an address lies in; false: the address is in no plain memory. */
bool sim_plain_at(const sim *s, uint64_t address, uint64_t *start, uint64_t *size);
/* The same with the requested bytes and the allocation's own generation. */
bool sim_plain_query(const sim *s, struct sim_place *place, uint64_t address);

/* sim_work.c */
struct sim_work *sim_head(const struct sim_stream *st);
/* Executes a stamp, verify, fill or copy. */
void sim_work_execute(sim *s, const struct sim_stream *st, const struct sim_work *w);
/* The first device range, of up to two, that the item uses and that overlaps the given one. */
bool sim_work_uses(const struct sim_work *w, uint64_t address, uint64_t size);
const char *sim_work_name(const struct sim_work *w);
/* Frees what the item owns. */
void sim_work_drop(const struct sim_work *w);

/* sim_table.c */
extern const trz_driver sim_table;

#endif
