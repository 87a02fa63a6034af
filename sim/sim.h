/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated device: a second implementation of the driver table, stricter than hardware.
 *
 * Physical memory is a sparse memfd, so that aliases really alias and untouched memory costs nothing. Ranges without
 * a mapping or without access really fault. Streams are queues whose work runs late, in an order that a seed
 * decides. A call that the driver documents as illegal is a *violation*: counted, described, and by default fatal.
 * Every driver call is counted, can be made to fail, and is charged virtual time from a cost table.
 *
 * One `sim` is one process's view of a machine, which other processes may attach to: they share its devices'
 * memory and nothing else. All functions are thread-safe unless noted. Nothing here is linked into the shipped
 * allocator.
 */
#ifndef TRZ_SIM_H
#define TRZ_SIM_H

#include "terrazzo_driver.h"

typedef struct sim sim;

/* Which ready stream runs its next item. */
typedef enum sim_schedule {
	SIM_RANDOM,     /* any, by seed */
	SIM_FIFO,       /* the item enqueued first: the kindest order */
	SIM_LIFO,       /* the stream with the newest work: run-ahead */
	SIM_STARVE,     /* one stream (by seed, changing now and then) runs only when the host blocks on it */
	SIM_SCHEDULES
} sim_schedule;

/* Rules that no GPU has confirmed, or that some GPU does not have, one bit each: a set bit means that the rule is
 * enforced (breaking it is a violation or an error), a clear one that the simulator is lenient. */
enum sim_rule {
	SIM_RULE_CREATE_IN_CAPTURE = 1 << 0,   /* create, release, map, unmap and set_access are refused with CAPTURE
	                                        * while a capture forbids them to the thread, and invalidate it.
	                                        * Stricter than an H200 with driver 580, which allows them */
	SIM_RULE_SYNC_MAYBE = 1 << 1,          /* unmap, set_access and mem_free wait for the device, by seed */
	SIM_RULE_UNMAP_IN_USE = 1 << 2,        /* unmap of a range that unfinished work names is a violation
	                                        * (a clear bit: the work faults when it runs) */
	SIM_RULE_HANDLE_REUSE = 1 << 3,        /* stream and event handles are reused at once, newest first */
	SIM_RULE_CAPTURED_EVENT = 1 << 4,      /* [unverified] query or sync of an event recorded in a capture
	                                        * invalidates that capture (a clear bit: it only returns CAPTURE) */
	SIM_RULE_WAIT_NO_EDGE = 1 << 5,        /* [unverified] a wait for another stream's event lets a dependent item
	                                        * start while items before the wait are resident, as a wait for one of
	                                        * its own stream does (measured: H200, driver 580) */
	SIM_RULE_PLAIN_IN_CAPTURE = 1 << 6,    /* CREATE_IN_CAPTURE for mem_alloc, mem_free, event_query, event_sync */
	SIM_RULE_TOUCH_RACE = 1 << 7,          /* a touch or a meeting, and a write to what it uses, on two streams and
	                                        * in no order, are a violation when the younger one runs first */
	SIM_RULE_HOST_CALLS = 1 << 8,          /* inside a host function of a stream every slot but clock_ns is refused
	                                        * with NOT_PERMITTED: CUDA may do so, but need not */
	SIM_RULE_INFO_OF_LEGACY = 1 << 9,      /* sim_capture_info of the legacy stream is a use of it, and invalidates
	                                        * the captures of blocking streams (a clear bit: it only returns CAPTURE,
	                                        * as on an H200 with driver 580) */
	SIM_RULES_ALL = (1 << 10) - 1
};

enum { SIM_MAX_DEVICES = 16 };

/* This process's figures of a machine. */
typedef struct sim_figures {
	uint64_t driver_time_ns, violations, misuses, suspicions;
	uint64_t peak_bytes[SIM_MAX_DEVICES];  /* the most that the process had of each device */
} sim_figures;

/* The cost table that applies where none is named: its name in costs/. */
#define SIM_DEFAULT_COSTS "h200"

typedef struct sim_config {
	int devices;                 /* 1 .. 16; 0: 1 */
	uint64_t capacity;           /* bytes per device; 0: 80 GiB */
	uint64_t context_overhead;   /* bytes that a context takes from its device */
	uint64_t withheld;           /* bytes of a device that mem_info calls free and that it gives to nobody */
	uint64_t granularity;        /* 0: 2 MiB */
	uint64_t va_bytes;           /* size of the device window; 0: 48 TiB (1 TiB under TSan), or less where other
	                              * machines are open */
	bool no_vmm;                 /* the device lacks virtual memory management */
	bool no_peers;               /* no device reaches the memory of another */
	bool peers_full;             /* each device could reach others, but accepts no more peers */
	int attach_fd;               /* from sim_machine_fd, in any process: this process joins that machine, whose
	                              * devices, capacity, withheld and granularity count instead of those here; 0: a new
	                              * machine. The caller keeps and closes it */
	bool timed;                  /* sim_host_ticks works, at the cost of two readings of the host's clock per call */
	bool host_faults;            /* the host may not read or write what `map` made, nor read stamps in plain memory: so
	                              * neither needs host memory or a host mapping until work other than stamps uses it */
	bool poison;                 /* fresh physical memory holds garbage instead of zeros (makes it resident) */
	bool continue_on_violation;  /* count and describe violations instead of aborting */
	bool answer_misuse;          /* the machine runs programs, which make mistakes: a call that a driver refuses by
	                              * itself is an error and counts as misuse. Else it is a violation: an allocator
	                              * never makes such calls */
	unsigned lenient_rules;      /* sim_rule bits to clear */
	sim_schedule schedule;
	uint64_t seed;
	const char *costs;           /* name of a shipped table or path of a file; NULL: SIM_DEFAULT_COSTS */
	void (*on_violation)(const char *text);  /* called for each; NULL: none. It may not call the simulator */
	uint64_t memory_rate;        /* of a device's memory, in bytes per microsecond of virtual time; */
	uint64_t link_rate;          /* and of its link to the host and other devices; 0: copies take no time */
	sim_figures *figures;        /* where the figures are kept, for others to read at any time; NULL: inside */
} sim_config;

/* Opens a machine. Errors: INVALID_ARGUMENT, BAD_INPUT / IO (cost table: trz_last_error has file and line),
 * ADDRESS_SPACE, HOST_MEMORY. */
trz_status sim_open(const sim_config *config, sim **out);

/* Closes it. Leaks of handles, reservations, mappings, events are reported by sim_leaks before this. */
void sim_close(sim *s);

/* A new file descriptor that stands for the machine: other processes inherit it, or are sent it, to attach to the
 * machine. The caller closes it. -1: the process has no descriptor left. */
int sim_machine_fd(sim *s);

/* From here on this process's device i is the machine's device order[i]; each device appears once. Other processes have
 * orders of their own. Only before anything is done with a device. */
void sim_order_devices(sim *s, const int *order);

/* A descriptor of a machine that has no process yet: the first process to attach configures the machine. Closed on
 * exec; the caller closes it. -1: the process has no descriptor left. */
int sim_machine_make(void);

/* The most that all processes of the machine together had of one device, contexts included. */
uint64_t sim_machine_peak(int fd);

/* The driver table over this machine; valid until sim_close. */
const trz_driver *sim_driver(sim *s);

/* Names of the shipped cost tables, NULL-terminated. */
const char *const *sim_cost_tables(void);

/* ---- contexts and streams ------------------------------------------------------------------------------ */

/* Makes a user's context on a device (cuCtxCreate without making it current), and ends it: work queued in it
 * runs first, then its streams, events and plain memory end. */
trz_status sim_context_create(sim *s, int device, trz_context *out);
trz_status sim_context_destroy(sim *s, trz_context context);

/* The calling thread's current context; NULL: none. */
void sim_context_set_current(sim *s, trz_context context);
trz_context sim_context_current(sim *s);

/* The device's primary context, retained once for the caller; the table's context_release releases it. */
trz_status sim_context_primary(sim *s, int device, trz_context *out);

/* Sets whether `peer` reaches `device`'s plain memory; at first it does not. */
trz_status sim_plain_peer(sim *s, int device, int peer, bool on);

/* Plain memory at places of the caller's choice, as the driver's pools have it: a range of addresses without memory, of
 * a context, with which it ends; and memory in it, in multiples of the granularity and of 2 MiB. To lay memory counts
 * and costs as mem_alloc, and has its errors; to lift it, as mem_free, but it never waits for work. */
trz_status sim_plain_range(sim *s, trz_context context, uint64_t size, trz_addr *address);
trz_status sim_plain_lay(sim *s, trz_context context, trz_addr address, uint64_t size);
trz_status sim_plain_lift(sim *s, trz_context context, trz_addr address);
/* Gives up a range, in which no memory is left. */
void sim_plain_unrange(sim *s, trz_addr address);

/* As mem_alloc, but the memory moves to the host, and counts for no device from then on, when its device has no room
 * for it or for other memory of this process. */
trz_status sim_managed_alloc(sim *s, trz_context context, uint64_t size, trz_addr *address);

/* The context that plain memory was allocated in; NULL: the address is in none. */
trz_context sim_plain_context(sim *s, trz_addr address);

/* Shares plain memory with the machine's other processes. A token is good in each of them as long as one still has the
 * memory. Importing returns a handle, as import_handle does, for memory of token->size bytes in which the allocation
 * lies at token->inside. Errors: INVALID_ARGUMENT (no plain memory; a token of another machine, or of memory that is
 * gone), DRIVER (too much is exported, no host memory). */
struct sim_token {
	uint64_t machine, offset, size, inside;
};
trz_status sim_plain_export(sim *s, trz_addr address, struct sim_token *token);
trz_status sim_plain_import(sim *s, const struct sim_token *token, trz_handle *handle);

/* Streams. `blocking` ones synchronise with the legacy default stream as CUDA's do. Destroying returns at
 * once; queued work goes on; the next create may return the same handle value. */
trz_status sim_stream_create(sim *s, trz_context context, bool blocking, trz_stream *out);
trz_status sim_stream_destroy(sim *s, trz_context context, trz_stream stream);

/* ---- work: enqueued here, executed by sim_run* ---------------------------------------------------- */

/* Writes a sparse stamp of `tag` over [address, address + size): first and last word, one word per granule
 * and a few by seed, so that checking 64 GiB does not touch 64 GiB. size >= 8, address a multiple of 8. */
trz_status sim_stamp(sim *s, trz_context c, trz_stream st, trz_addr address, uint64_t size, uint64_t tag);

/* A stamp by a grid that may be resident together with the items before it on its stream (programmatic dependent
 * launch) and does not wait for them (griddepcontrol.wait); one that does is any other item: sim_stamp. If it reaches
 * memory that one of those uses, through whatever address, that is a violation, "overlap without wait", unless a
 * completion edge lies between the two: an item that is not dependent, or an event after the earlier item that the host
 * has seen pass before it enqueues this one. An event that the stream records, and waits for itself, is none. */
trz_status sim_stamp_dependent(sim *s, trz_context c, trz_stream st, trz_addr address, uint64_t size,
                               uint64_t tag);

/* Checks that the stamp of `tag` over exactly this range is intact; else it is a violation that names the range,
 * the offset, the tag found and the tag expected. */
trz_status sim_verify(sim *s, trz_context c, trz_stream st, trz_addr address, uint64_t size, uint64_t tag);

/* Real bytes: memset and copies (host or device on either side); the bytes of a host source are read when the
 * copy executes, as with pinned memory. */
trz_status sim_fill(sim *s, trz_context c, trz_stream st, trz_addr address, uint64_t size, uint8_t value);
trz_status sim_copy(sim *s, trz_context c, trz_stream st, uint64_t to, uint64_t from, uint64_t size);

/* A copy reaches another device's plain memory without peer access, through the host. It reaches memory that `map` made
 * only with access rights for the stream's device; a copy whose caller names both devices, as this one, needs the
 * rights of each side's own device instead. */
trz_status sim_copy_peer(sim *s, trz_context c, trz_stream st, uint64_t to, uint64_t from, uint64_t size);

/* Writes a pattern of `unit` bytes (1, 2, 4 or 8) `count` times. */
trz_status sim_fill_pattern(sim *s, trz_context c, trz_stream st, trz_addr address, uint64_t count,
                            uint64_t pattern, unsigned unit);

/* A copy that reads its source like any other but writes zeros. */
trz_status sim_copy_blank(sim *s, trz_context c, trz_stream st, uint64_t to, uint64_t from, uint64_t size);

/* A stand-in for a kernel: it computes nothing and takes cost_ns of virtual time on its stream. Words that are mapped
 * device addresses now must still be mapped, by the same mapping, whenever it runs, in each launch of a graph, too;
 * else it is an illegal access whose text has the name. `name` outlives the machine. The first `known` words are
 * arguments. The kernel may ignore the others: a mistake with one of those is a suspicion, which is counted but has no
 * effect. `parts`: it works on parts of what its arguments name, who knows which, so races are suspicions, too. */
struct sim_words {
	const uint64_t *word;
	size_t known, count;
	bool parts;
};
trz_status sim_touch(sim *s, trz_context c, trz_stream st, struct sim_words words, const char *name, uint64_t cost_ns);

/* Takes `ns` of virtual time on its stream, which it holds up until the host waits, or has asked whether the work is
 * done once for each 0.1 ms, or 256 times: so a host that only asks comes to an end. */
trz_status sim_sleep(sim *s, trz_context c, trz_stream st, uint64_t ns);

/* Work that completes only when others have come to the same point, in any process: a collective. `uses` is the memory
 * that it reads and writes, which must be there when the stream arrives and when the item completes; the array is
 * copied. The functions are called with the machine's lock held, except `wait`, and may not call the machine. */
typedef enum sim_meet_state { SIM_MEET_AWAITS, SIM_MEET_COMPLETE, SIM_MEET_FAILED } sim_meet_state;
struct sim_use {
	trz_addr address;
	uint64_t size;
	bool write;
};
struct sim_meeting {
	const char *name;            /* outlives the machine */
	const struct sim_use *uses;
	size_t count;
	uint64_t real_bytes;         /* the functions read and write uses of up to so many bytes */
	uint64_t cost_ns;
	bool (*can_arrive)(void *arg);
	void (*arrive)(void *arg);   /* the stream has reached the item; source bytes can be read */
	int (*met)(void *arg);       /* a sim_meet_state */
	/* After `met` has said anything but AWAITS: target bytes can be written. FAILED, with a text: a violation. */
	int (*finish)(void *arg, char *text, size_t size);
	void (*drop)(void *arg);     /* the item is gone, completed or not */
	/* In a capture the item becomes a node: then none of these is called except `drop`, when the graph ends, and this
	 * one, for each launch: it returns the argument of the launch's item. NULL, with a text: a violation. */
	void *(*again)(void *arg, char *text, size_t size);
	/* A host that blocks on the item takes a ticket from `tell` and calls `wait` with it, without the lock: that
	 * returns when something has changed since `mark` returned this number, or after some time. */
	uint32_t (*mark)(void);
	void *(*tell)(void *arg);
	void (*wait)(void *ticket, uint32_t mark);
	void *arg;
};
trz_status sim_meet(sim *s, trz_context c, trz_stream st, const struct sim_meeting *m);

/* Takes device memory without an address, as for a library's own use; and gives it back. OUT_OF_MEMORY: there is not so
 * much. */
trz_status sim_take(sim *s, int device, uint64_t bytes);
void sim_give(sim *s, int device, uint64_t bytes);

/* Counts and describes a violation that the caller found. */
trz_status sim_report(sim *s, const char *text);

/* Calls fn(arg) in stream order, from the thread that runs the item, without the simulator's lock. fn may use this
 * interface, but not the driver's table (SIM_RULE_HOST_CALLS). */
trz_status sim_host(sim *s, trz_context c, trz_stream st, void (*fn)(void *), void *arg);

/* Whether the calling thread runs such a function, and the rule is enforced: CUDA's functions then refuse the call. */
bool sim_called_back(sim *s);

/* Keeps the stream busy until *flag is non-zero (a spinning kernel, cuStreamWaitValue). When only such items
 * remain and the host blocks on one of them, that is a deadlock: a violation, and the blocking call returns
 * ERROR_DRIVER. */
trz_status sim_spin(sim *s, trz_context c, trz_stream st, const uint32_t *flag);

/* Keeps the stream busy until the value of 4 or 8 bytes at an address, a device's or the host's, compares so with
 * `value` (cuStreamWaitValue). Another thread of the host may yet write it, so a host that blocks on such an item looks
 * again for ten seconds; then that is a deadlock, too. */
typedef enum sim_comparison {
	SIM_AT_LEAST,                /* their difference, with its sign, is not negative */
	SIM_EQUAL,
	SIM_COMMON_BIT,              /* a bit is set in both */
	SIM_CLEAR_BIT                /* a bit is clear in both */
} sim_comparison;
trz_status sim_wait_value(sim *s, trz_context c, trz_stream st, uint64_t address, unsigned bytes, uint64_t value,
                          sim_comparison how);

/* ---- captures and graphs: what is enqueued on a captured stream becomes a node, and does not run ------- */

/* A captured graph, ready to be launched; 0 is none. */
typedef uint64_t sim_graph;

/* Begins a capture on a stream that is not the legacy one. A stream that waits for an event recorded in the
 * capture joins it. Captures are invalidated silently: stream_capture and the end of the capture report it. */
trz_status sim_capture_begin(sim *s, trz_context c, trz_stream st, trz_capture_mode mode);

/* cuStreamGetCaptureInfo. No documentation says what it does to captures of blocking streams when it is asked of the
 * legacy stream; the table's stream_capture is cuStreamIsCapturing, which leaves them as they are. */
trz_status sim_capture_info(sim *s, trz_context c, trz_stream st, trz_capture_status *status, uint64_t *id);
/* The number of the capture that the stream is part of, even an invalidated one; 0: none. */
uint64_t sim_capture_of(sim *s, trz_context c, trz_stream st);

/* Asks for a call that no slot of the table is for whether captures forbid it to the thread, as they do mem_alloc.
 * CAPTURE: one does, and is invalidated. */
trz_status sim_capture_check(sim *s, const char *call_name);
/* Whether a stream of the device is part of a capture. */
bool sim_is_captured(sim *s, int device);

/* Ends a capture, on the stream and (except in relaxed mode) in the thread that it began in. CAPTURE, and no graph: it
 * was invalidated, or a stream that had joined it was not joined back. The capture is over in either case. */
trz_status sim_capture_end(sim *s, trz_context c, trz_stream st, sim_graph *out);

/* Enqueues the graph's nodes, each in the order of its own stream and after the waits that were captured. Nodes name
 * the mappings of the time of their capture: if one's addresses have been mapped again since, its execution is a
 * violation, unless that mapping fills a reservation and each later one has filled it, too. Launches of one graph run
 * one after the other. */
trz_status sim_graph_launch(sim *s, trz_context c, sim_graph graph, trz_stream st);

/* What a program can see of a node. The nodes of a lane, one captured stream, follow one another; waits between lanes
 * are edges, not nodes. */
typedef enum sim_node_kind {
	SIM_NODE_KERNEL, SIM_NODE_COPY, SIM_NODE_FILL, SIM_NODE_HOST, SIM_NODE_AWAIT, SIM_NODE_RECORD
} sim_node_kind;

/* The nodes of a graph or (graph 0) of a capture under way, by lasting numbers, in the order of their capture. These
 * three return how many there are, and write up to `room` of them. */
size_t sim_graph_nodes(sim *s, sim_graph graph, uint64_t capture, size_t *nodes, size_t room);
/* The nodes directly before node `node`; at most one of each captured stream. */
size_t sim_graph_node(sim *s, sim_graph graph, uint64_t capture, size_t node, sim_node_kind *kind, size_t *before,
                      size_t room);
/* The nodes directly before the captured stream's next node. */
size_t sim_stream_tail(sim *s, trz_context c, trz_stream st, size_t *before, size_t room);

/* The context of the stream that a node was captured on; NULL: there is no such node. */
trz_context sim_graph_context(sim *s, sim_graph graph, size_t node);

/* Orders what comes next on a captured stream after these nodes of its capture, too; and adds a node that does nothing
 * after them, as a place for what the caller keeps itself. *node is its number; NULL: no node is added. */
trz_status sim_capture_follow(sim *s, trz_context c, trz_stream st, const size_t *after, size_t count, size_t *node);

/* Adds a copy of a graph's node to the capture of a stream. It names the same mappings as the original. NOT_SUPPORTED:
 * it is a meeting. */
trz_status sim_capture_copy(sim *s, trz_context c, trz_stream st, sim_graph graph, size_t node);

/* Record of and wait for an event as nodes of the capture's graph: each launch records the event again, or waits for
 * what it covers when the launch is made. INVALID_ARGUMENT: the stream is not captured. */
trz_status sim_event_record_external(sim *s, trz_context c, trz_event event, trz_stream st);
trz_status sim_stream_wait_external(sim *s, trz_context c, trz_stream st, trz_event event);

/* Ends the graph; launches under way go on. */
trz_status sim_graph_destroy(sim *s, trz_context c, sim_graph graph);

/* ---- letting work run ----------------------------------------------------------------------------- */

/* Runs up to `items` ready items in scheduled order; returns how many ran. */
uint64_t sim_run(sim *s, uint64_t items);

/* sim_run that runs a starved stream, too: for a host that polls and never blocks. */
uint64_t sim_nudge(sim *s, uint64_t items);

/* Ends the sleeps that streams are in: for a host that waits without being seen to block. */
void sim_wake(sim *s);

/* Advances the trace clock by one event and runs, in scheduled order, every item enqueued more than `lag`
 * events ago (lag 0: all that is ready). Items still stay in order within their stream and behind waits. */
void sim_tick(sim *s, uint64_t lag);

/* The stream's id, which the driver would not tell of a captured one; 0: it does not exist. */
uint64_t sim_stream_id(sim *s, trz_context c, trz_stream st);

/* What a question about a stream other than for its capture and priority does to captures: that of the stream itself
 * ends, in any mode; one about the legacy stream is a use of it. CAPTURE: so it was. */
trz_status sim_stream_ask(sim *s, trz_context c, trz_stream st);

/* TRZ_OK: the stream is idle; NOT_READY: it is not. */
trz_status sim_stream_idle(sim *s, trz_context c, trz_stream st);

/* An event that keeps the virtual time at which its newest record was reached, and the time between two such events
 * in ns. Errors: NOT_READY; INVALID_ARGUMENT: one keeps no time or was never recorded, or they are of two devices;
 * CAPTURE: one was recorded in a capture. */
trz_status sim_event_create_timed(sim *s, trz_context c, trz_event *out);
trz_status sim_event_elapsed(sim *s, trz_event from, trz_event to, int64_t *ns);

/* Blocks until a stream / a whole device is idle. Neither may be part of a capture. */
trz_status sim_stream_sync(sim *s, trz_context c, trz_stream st);
trz_status sim_device_sync(sim *s, int device);

/* ---- faults, counts, time ------------------------------------------------------------------------- */

/* A slot of the table by its place in TRZ_DRIVER_SLOTS. */
typedef enum sim_slot {
#define SIM_SLOT_ENUM(slot) SIM_SLOT_##slot,
	TRZ_DRIVER_SLOTS(SIM_SLOT_ENUM)
#undef SIM_SLOT_ENUM
	SIM_SLOTS
} sim_slot;
const char *sim_slot_name(sim_slot slot);

/* Fails calls with `status`: the `nth` call from now on (1 = the next) among the slots of `slot_mask` (bit i
 * = slot i; ~0: all that can fail), once or, with `persistent`, from then on. nth 0 switches faults off.
 * clock_ns, device_count and context_release never fail. */
void sim_fault_nth(sim *s, uint64_t slot_mask, uint64_t nth, bool persistent, trz_status status);

/* Fails each such call with the given probability (0 .. 1), by seed. */
void sim_fault_probability(sim *s, uint64_t slot_mask, double probability, trz_status status);

/* Faults injected so far. */
uint64_t sim_faults(sim *s);

/* Makes the device fail as after an illegal access: every later call of its contexts, or about its memory, is
 * CONTEXT_DEAD, and queued work is forgotten. It recovers when its last context has ended. */
void sim_kill_context(sim *s, trz_context context);

uint64_t sim_calls(sim *s, sim_slot slot);
void sim_reset_calls(sim *s);

/* Virtual time that all threads spent in driver calls, in ns (the table's clock adds 1 us per sim_tick and 1 ns per
 * reading, so that it never stands still); and real time that the calling thread spent in the simulator's driver slots,
 * measuring included, in ticks of base/ticks.h (subtract it to get an allocator's own time); 0 on a machine that is not
 * `timed`. */
uint64_t sim_driver_time_ns(sim *s);
uint64_t sim_host_ticks(sim *s);

/* From here on the machine also sums the driver's time by the table `name`; its clock goes on by that of its config.
 * sim_driver_time_by: the sum by the i-th table added, from 0. Errors: INVALID_ARGUMENT (no room for more than
 * SIM_MORE_COSTS tables), BAD_INPUT and IO as for sim_open. */
enum { SIM_MORE_COSTS = 3 };
trz_status sim_add_costs(sim *s, const char *name);
uint64_t sim_driver_time_by(sim *s, unsigned i);

/* While `on`, sim_calls and the driver's time leave out the calling thread's calls: a measured program's own, beside
 * its allocator's. What they take passes on the clock. */
void sim_leave_out(sim *s, bool on);

/* Violations so far, and the text of the first (NULL: none). */
uint64_t sim_violations(sim *s);
const char *sim_first_violation(sim *s);

/* Calls that were refused as a driver refuses them, if `answer_misuse` is set; and the first. */
uint64_t sim_misuses(sim *s);
const char *sim_first_misuse(sim *s);

/* A driver's result (a CUresult of base/cuda_abi.h) for the calling thread's newest failure; 0: the one of its
 * status. */
int sim_result(sim *s);

/* Items of work that broke a rule if a certain word, which may be an argument, is one; and the first. */
uint64_t sim_suspicions(sim *s);
const char *sim_first_suspicion(sim *s);

/* ---- looking -------------------------------------------------------------------------------------- */

/* Physical bytes taken by all processes of the machine, context overhead included. */
uint64_t sim_device_used(sim *s, int device);
uint64_t sim_device_peak(sim *s, int device);
/* The most that this process had, including exported memory that it held. */
uint64_t sim_process_peak(sim *s, int device);
uint64_t sim_resident_bytes(sim *s);               /* host memory that device memory really takes */
uint64_t sim_unfinished(sim *s);                   /* items enqueued and not executed */

/* Names what is still alive ("3 handles, 1 reservation") and returns how many that is; text may be NULL.
 * Streams and contexts that the table's user did not make are not counted. */
uint64_t sim_leaks(sim *s, char *text, size_t text_size);

/* The memory at a device address. */
struct sim_place {
	trz_addr address;            /* of the allocation, or of the mapping */
	uint64_t size;
	int device;
	bool plain;                  /* from mem_alloc */
	uint64_t generation;         /* no other mapping or plain allocation ever has the same */
	unsigned export_kinds;
	uint32_t access;             /* one bit per device that reaches it */
};
bool sim_place_at(sim *s, trz_addr address, struct sim_place *out);

/* Whether an event's newest record is on the stream; and whether what the stream is given next comes after that record,
 * by waits of streams for events or for a default stream. A wait that a stream has completed counts, too, and so may
 * one for what came before it there. */
bool sim_event_is_on(sim *s, trz_context c, trz_stream st, trz_event event);
bool sim_stream_follows(sim *s, trz_context c, trz_stream st, trz_event event);

/* Whether the address lies in the device window, mapped or not. */
bool sim_is_device(const sim *s, trz_addr address);

/* Another handle of the memory mapped at an address; INVALID_ARGUMENT: nothing is, or plain memory. */
trz_status sim_handle_at(sim *s, trz_addr address, trz_handle *out);

/* The properties that a handle was created with. */
trz_status sim_handle_props(sim *s, trz_handle handle, trz_tile_props *props, uint64_t *size);

/* The context that a stream or an event belongs to; NULL: it is a default stream, or does not exist. */
trz_context sim_stream_context(sim *s, trz_stream stream);
trz_context sim_event_context(sim *s, trz_event event);

/* The device of a context; -1: it is dead. */
int sim_context_device(sim *s, trz_context c);

/* The machine's processes that have memory of a device, without exported memory. Returns how many there are, and
 * writes up to `room` of them. */
struct sim_process {
	uint64_t pid, bytes;
};
unsigned sim_processes(sim *s, int device, struct sim_process *out, unsigned room);

/* Reads device memory as a debugger would, regardless of streams; false: part of it is not mapped. */
bool sim_peek(sim *s, trz_addr address, void *to, uint64_t size);

/* Writes it in the same way. Part of it may have been written if the rest is not mapped. */
bool sim_poke(sim *s, trz_addr address, const void *from, uint64_t size);

#endif
