/* SPDX-License-Identifier: Apache-2.0
 *
 * Replays a trace through a heap on a simulated device, and reports the costs.
 *
 * After each allocation its stream writes a unique tag sparsely into the memory; before each free the tag is
 * checked on every stream that may still use the memory: the allocation's and those of TRACE_RECORD_STREAM;
 * for a free in the order of another stream, on that one alone. Work enqueued on a stream completes only
 * after `lag` further events of the trace. So memory that is given out twice, reused too early or lost on a
 * move shows up as a wrong tag: a violation.
 *
 * TRACE_EVENT_RECORD and TRACE_STREAM_WAIT are done on the device as the program did them. A trace without
 * waits does not show how its streams were ordered: there a stream that takes memory over waits for the one
 * that had it. These calls are the program's: no figure counts them. The heap makes the pools, the device the
 * captures and launches (replay_pools.h). All other events only let time pass.
 */
#ifndef TRZ_TRACE_REPLAY_H
#define TRZ_TRACE_REPLAY_H

#include "bits.h"
#include "sim.h"
#include "trace.h"

enum replay_policy {
	REPLAY_TERRAZZO,
	REPLAY_NAIVE, /* one driver allocation per request; each free waits for the device first */
	REPLAY_PEER   /* the caller's allocator, on the caller's device */
};

/* An allocator to replay a trace through instead of a heap. Work and tags are as with a heap; events of pools and
 * captures are skipped. The last four may be NULL: the allocator is not told of the program's events. */
struct replay_peer {
	void *self;
	sim *sim;               /* its device's capacity and costs count, those of the parameters do not */
	trz_context context;
	trz_status (*make_stream)(void *self, bool blocking, trz_stream *out);
	trz_status (*alloc)(void *self, uint64_t size, trz_stream stream, void **out);
	/* `own` is the stream that allocated it, `last` the one whose work used it last. */
	trz_status (*free)(void *self, void *pointer, uint64_t size, trz_stream own, trz_stream last);
	trz_status (*record_stream)(void *self, void *pointer, trz_stream stream);
	uint64_t (*driver_ticks)(void *self);  /* as sim_host_ticks */
	void (*close)(void *self);             /* called when all is freed and no work is left; streams still exist */
	uint64_t (*record_begin)(void *self, trz_event event, trz_stream stream);
	void (*record_end)(void *self, trz_event event, trz_stream stream, uint64_t token, bool done);
	uint64_t (*wait_begin)(void *self, trz_stream stream, trz_event event);
	void (*wait_end)(void *self, trz_stream stream, trz_event event, uint64_t token, bool done);
};

struct replay_params {
	enum replay_policy policy;
	const struct replay_peer *peer;  /* of REPLAY_PEER */
	uint64_t capacity;      /* bytes of the device; 0: 80 GiB */
	const char *conf;       /* as in TERRAZZO_CONF; NULL: none */
	const char *costs;      /* cost table; NULL: the default */
	uint64_t lag;
	uint64_t lag_most;      /* above `lag`: the lag varies between the two (docs/replay.md, Time); else it is fixed */
	uint64_t seed;
	sim_schedule schedule;
	unsigned timings;       /* replays; each operation's least host time among them counts; 0: 1 */
	unsigned repeat;        /* passes over the trace in one heap, all freed in between; 0: 1 */
	bool check;             /* check the whole heap every 64 events */
	bool stop_at_oom;       /* end at the first request that gets no memory */
	const char *snapshot;   /* file for trz_snapshot, taken after the last event, or where the first request got
	                         * no memory; NULL: none. Not with REPLAY_NAIVE */
	size_t history;         /* the most events that the snapshot has; 0: none */
	void (*progress)(void *arg, uint64_t done, uint64_t total);  /* every 1024 events; may be NULL */
	void *progress_arg;
};

/* With a policy that has no heap everything from `heap_valid` on is 0, except a peer's host times. */
struct replay_result {
	uint64_t events;                       /* replayed, over all passes */
	uint32_t streams;                      /* that allocations were made on */
	uint64_t operations;                   /* allocations and frees that the heap received */
	uint64_t peak_allocated_bytes;         /* requested sizes rounded up to 512 */
	uint64_t peak_requested_bytes;
	uint64_t peak_reserved_bytes;
	uint64_t end_reserved_bytes;           /* after the last event, with what is then live */
	uint64_t driver_calls[SIM_SLOTS];
	uint64_t driver_calls_in_frees[SIM_SLOTS];  /* event_record, event_query and stream_capture */
	uint64_t driver_calls_last_quarter;    /* of the events: calls that make, lay, take or give back memory */
	uint64_t driver_time_ns;               /* virtual */
	uint64_t driver_time_by[SIM_MORE_COSTS];    /* by the tables added to a peer's device (sim_add_costs), in ns */
	uint64_t max_driver_time_per_alloc_ns;
	double max_times_tiles;                /* the most driver time of one allocation, as a multiple of what creating
	                                        * its size in tiles of REPLAY_TILE costs, while the device had room */
	uint64_t skipped_events;               /* of captures and pools, where they could not be replayed */
	uint32_t pools;                        /* private ones made, those of captures included */
	uint32_t captures;
	uint64_t launches;
	uint64_t pool_reserved_bytes;          /* in the pools that exist after the last event */
	uint64_t ooms;                         /* requests that got no memory; their frees are left out */
	uint64_t violations;
	uint64_t leaks;                        /* driver objects left after the heap was closed */
	uint64_t events_before_oom;            /* events before the first request that got no memory */
	char oom[512];                         /* that request's explanation; "": there is none */
	char problem[256];                     /* the first violation or leak, as text */

	bool heap_valid;
	double external_fragmentation;         /* mean of samples evenly spread over the events */
	double host_ns_per_op;                 /* time inside the heap, without the driver's and the clock's */
	uint64_t host_ns_median;
	uint64_t host_ns_p999;
	uint64_t waits_inserted;
	uint64_t retries;
	uint64_t metadata_bytes;
};

/* Errors: as trz_open and sim_open (bad configuration, bad cost table), CORRUPT (the heap check failed), and
 * all errors of an allocation or a free except out of memory. */
trz_status replay_run(const struct trace *trace, const struct replay_params *params,
                      struct replay_result *out);

#define REPLAY_FIT_STEP MIB(64)
#define REPLAY_TILE MIB(20)  /* what PyTorch's expandable segments are made of */

struct replay_fit {
	uint64_t bytes;           /* the smallest device that serves every request; 0: above the capacity */
	uint64_t driver_time_ns;  /* of the run at that size */
	unsigned runs;
	bool verified;            /* tried once more, bytes - REPLAY_FIT_STEP was too small and bytes was enough */
	uint64_t violations;      /* over all runs */
	uint64_t leaks;
	char problem[256];        /* the first violation or leak, as text */
};

/* Searches, in steps of REPLAY_FIT_STEP, up from the trace's peak of allocated bytes to params->capacity.
 * Errors: as replay_run. */
trz_status replay_fit(const struct trace *trace, const struct replay_params *params, uint64_t peak_allocated,
                      struct replay_fit *out);

struct replay_bound {
	uint64_t bytes;                 /* what the model needs (replay_bound.c) */
	uint64_t peak_allocated_bytes;
	uint64_t frees;
	uint64_t batches;               /* of a stream's frees: 64 of them or 64 MiB each, whichever comes first */
};

/* What one pass over the trace needs of any allocator, if work completes `lag` events later. Errors: HOST_MEMORY. */
trz_status replay_bound(const struct trace *trace, uint64_t lag, struct replay_bound *out);

/* What one create, one map and one set_access of `size` bytes cost by a cost table, in virtual ns. */
struct replay_tile_cost {
	uint64_t create_ns;
	uint64_t map_ns;
	uint64_t set_access_ns;
};
trz_status replay_tile_cost(const char *costs, uint64_t size, struct replay_tile_cost *out);

#endif
