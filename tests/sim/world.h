/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole-heap simulation: one seed decides everything about a machine, a heap and a program. The program has up to four
 * threads, the actors, eight streams, private pools, captures and graphs. It stamps every live allocation on its stream
 * and verifies it before it frees it; a shadow map proves that no byte has two owners; the balance is checked after
 * each event, and the whole heap after every 64.
 *
 * Actors either take turns, in an order that the seed decides, so that a run repeats exactly; or they run freely, and
 * now and then all stop for the checks that need a standing world.
 *
 * Functions return NULL, or a text that says what is wrong, so that tests can look for planted bugs.
 */
#ifndef TRZ_TESTS_WORLD_H
#define TRZ_TESTS_WORLD_H

#include <pthread.h>
#include <stdatomic.h>

#include "bits.h"
#include "shadow.h"
#include "sim.h"

enum {
	WORLD_EVENTS = 20000,
	WORLD_STREAMS = 8,
	WORLD_ACTORS = 4,
	WORLD_POOLS = 3,       /* of each actor, like the next two */
	WORLD_GRAPHS = 5,
	WORLD_DIVERSIONS = 2,
	WORLD_BLOCKS = 12,     /* of a capture or a graph */
	WORLD_EXPORTS = 3,
	WORLD_EXPORT_TILES = 16,
	WORLD_TILES = 8,       /* of the other process */
	WORLD_SIGNALS = 4,
	WORLD_PROFILES = 3,
	WORLD_TEXT = 700
};

/* An actor that gives the stream work holds `lock` for reading; one that captures or ends it, for writing: only the
 * capturing actor uses a captured stream. */
struct world_stream {
	trz_stream handle;
	trz_context of;
	bool blocking;
	int owner;             /* the one actor that can reach a per-thread stream; -1: all can; WORLD_ACTORS: nobody can */
	atomic_uint serial;    /* counts the streams that have had this place */
	atomic_uint filters;   /* how many diversions divert it */
	pthread_rwlock_t lock;
};

/* What a pool held at a checkpoint. */
struct world_note {
	trz_pool_state *state;  /* NULL: there is none */
	struct live *list;
	unsigned *serials;      /* their streams' serials then */
	size_t count;
	unsigned graphs;        /* how many had been made before */
	bool pinned;            /* the memory that it names cannot return to the device */
};

/* The graphs of a pool are launched one after the other, and write to its free memory. So what the program allocates
 * from the pool beside them comes after the launches so far; before a launch, the program frees what it has allocated
 * since the capture, and the launch comes after its uses. Nothing orders launches behind what was done before their
 * capture: the heap answers for that. */
struct world_pool {
	trz_pool *pool;         /* NULL: none is here */
	atomic_uint id;
	bool ours;              /* the program still holds its own reference */
	bool captured;
	bool filtered;          /* threads that do not know its actor may have got memory of it */
	unsigned diversions;
	unsigned graphs;        /* graphs that hold a reference */
	unsigned graphs_made;
	int origin;             /* the stream of the newest capture; -1: none yet */
	trz_event launched;     /* a mark behind the newest launch; NULL: there has been none */
	atomic_uint since[WORLD_GRAPHS];  /* by a graph's place, the streams, as bits, that its next launch must come after,
	                                   * for uses since its capture was announced, or its last launch */
	atomic_uint lately;     /* those that have used it since a capture was announced, or may wait for a use */
	atomic_uint served;     /* streams that have ever used it outside of graphs */
	struct world_note note;
};

/* A capture under way, and the graph that it becomes. The blocks that it keeps are live; each launch writes them. */
struct world_graph {
	sim_graph graph;        /* 0: none yet */
	struct world_pool *pool;
	unsigned number;        /* among the pool's graphs, in the order in which their captures began; */
	unsigned sealed;        /* so many had begun when its own ended */
	bool launched;
	bool stale;             /* the pool was restored to a time before it: it can only be destroyed */
	trz_addr blocks[WORLD_BLOCKS];
	unsigned count;
};

struct world_capture {
	struct world_graph *graph;  /* NULL: none is under way */
	unsigned lanes[WORLD_STREAMS];
	unsigned lane_count;
	bool legacy;                /* the legacy stream is locked meanwhile */
	bool silent;                /* it has not been announced, so each allocation names the pool */
	bool begun;                 /* unless it is silent it has been announced, and it has begun */
};

/* Whether the program synchronizes between the announcement of a capture and the capture. */
enum world_haste { SOME_HASTE, NO_HASTE, ALL_HASTE };

struct world_diversion {
	struct world_pool *pool;
	unsigned order;
	int stream;                 /* diverts this stream's allocations; -1: the thread's */
};

/* Memory that the other process also has. */
struct world_export {
	trz_addr address;           /* 0: none */
	uint64_t size, tag;         /* tag: of the stamp that the other process has left there */
	bool freed;                 /* freed here meanwhile */
	trz_addr there;
	uint64_t there_size;        /* of all its tiles */
	trz_handle handles[WORLD_EXPORT_TILES];  /* the other process's */
	trz_addr tiles[WORLD_EXPORT_TILES];      /* where they are here */
	uint64_t tile_sizes[WORLD_EXPORT_TILES];
	unsigned tile_count;        /* guarded by the world's lock */
};

/* Addresses that have memory, as the heap has said. */
struct world_span {
	trz_addr begin, end;
};

struct world;

struct actor {
	struct world *w;
	unsigned index;
	uint64_t random;
	uint64_t burst;
	bool burst_allocates;
	struct world_pool pools[WORLD_POOLS];
	struct world_graph graphs[WORLD_GRAPHS];
	struct world_capture capture, aside;  /* the one that it is at, and another one, of the same pool or not */
	enum world_haste haste;
	struct world_diversion diversions[WORLD_DIVERSIONS];
	unsigned diversion_count;
	struct world_export exports[WORLD_EXPORTS];
	/* its thread */
	pthread_t thread;
	const char *(*work)(struct actor *a, uint64_t arg);  /* NULL: it waits for work */
	uint64_t arg;
	const char *result;
};

struct world {
	uint64_t seed, random, events;
	/* decided by the seed */
	uint64_t capacity, fill_target, lag, run_most;
	unsigned live_most, stream_count, actor_count, profiles[WORLD_PROFILES];
	bool vmm, exportable, aided, graphs, faulty, shared, waits, peers;
	bool refuses;                    /* the driver takes no call from host functions */
	bool captures;                   /* the program captures graph after graph */
	bool dies;                       /* the device is lost at the end */
	int legacy;                      /* index of the legacy default stream; -1: none */
	char conf[320];
	/* what is there */
	sim *s, *other;                  /* `other`: another process on the device; NULL: there is none */
	const trz_driver *d;             /* the machine's */
	trz_driver watch;                /* what the heap is given instead (world_watch.c) */
	trz_context c, other_context, peer;  /* `peer`: of a second device; NULL: there is none */
	trz_context far;                 /* some streams' context, of either device; NULL: all streams are of `c` */
	trz_heap *heap;
	atomic_bool peer_enabled;
	struct world_stream streams[WORLD_STREAMS];
	struct actor actors[WORLD_ACTORS];
	pthread_rwlock_t capture_lock;   /* for reading: something is captured; for writing: the host waits for all work */
	pthread_mutex_t foreign;         /* a lock of the program's; its host functions take it, too */
	unsigned diversions_made;
	pthread_rwlock_t signal_lock;    /* for writing: an event is replaced */
	trz_event signals[WORLD_SIGNALS];  /* in the context `c` */
	atomic_uint_fast64_t orders;     /* how often a stream has waited for another */
	/* guarded by `lock` */
	pthread_mutex_t lock;            /* never held across a call of the heap or the machine */
	struct shadow shadow;
	uint64_t count[2], requested[2], allocated[2], rounding, occupied;  /* what callers hold, by [small, large] */
	trz_handle tiles[WORLD_TILES];   /* the other process's */
	uint64_t tile_sizes[WORLD_TILES], other_used;
	struct world_span *spans;        /* by address, disjoint */
	size_t span_count, span_room;
	struct parcel *parcels;          /* what host functions are to free */
	uint64_t limit, reserved;        /* the heap's limit, and what was reserved after the last event; only in turns */
	uint64_t ooms;
	char wrong[WORLD_TEXT];
	/* the conductor */
	bool free_running, quitting, ended;  /* ended: the threads have */
	pthread_mutex_t stage;
	pthread_cond_t changed;
	atomic_uint_fast64_t tags;
	atomic_bool failed;
	pthread_t disturber;             /* world_disturb.c */
	atomic_bool calm;
};

/* A world with its heap open and nothing allocated. */
const char *world_open(struct world *w, uint64_t seed);

/* Opens its heap, over the given driver or the world's watched one. */
const char *world_open_heap(struct world *w, const trz_driver *driver);

/* In one world of four: the last of the device, up to an eighth of it, to the byte, which it gives to nobody. */
uint64_t world_withheld(const struct world *w);

/* Lets all work run. */
trz_status world_sync(struct world *w);

/* One event of the first actor, in this thread, and the checks after it. */
const char *world_step(struct world *w);

/* Events of all actors, in turns or all at a time; if there are several, each has a thread. Then the threads end, and
 * all that they hold is freed, as by world_end. */
const char *world_run(struct world *w, uint64_t events, bool freely);

/* Frees everything. Nothing may stay reserved or be left with the driver, and no rule may have been broken. */
const char *world_end(struct world *w);

/* Closes what is still open, and checks nothing. */
void world_close(struct world *w);

/* The parts of a step that tests use on their own. `stream` is an index. */
const char *world_alloc(struct world *w, uint64_t size, uint64_t alignment, unsigned stream);
const char *world_free(struct world *w, size_t index);

/* Checks all: heap, driver, device. No other actor may be at work. */
const char *world_check(struct world *w);

/* Bytes of the tiles, found through the windows, that hold a byte of a live allocation; `slabs`: or of its slab. */
uint64_t world_touched(const struct world *w, bool slabs);

#endif
