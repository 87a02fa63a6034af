/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole-heap simulation: a machine, a heap and a program of which one seed decides everything. The program has up to
 * four threads, the actors, eight streams, private pools, captures and graphs. Every live allocation is stamped on its
 * stream and verified before it is freed; a shadow map proves that no byte has two owners; the balance is checked
 * after each event and the whole heap every 64.
 *
 * Actors either take turns, in an order that the seed decides, so that all repeats exactly; or they run freely, and
 * what needs a standing world is checked now and then, while all stand.
 *
 * Functions return NULL, or the text of what is wrong, so that planted bugs can be looked for.
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
	WORLD_POOLS = 3,       /* of an actor, as the next two */
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

/* Whoever gives the stream something holds the lock for reading, whoever captures or ends it for writing: only the
 * capturing actor uses a captured stream. */
struct world_stream {
	trz_stream handle;
	trz_context of;
	bool blocking;
	int owner;             /* the one actor that can reach a per-thread stream; -1: all can; WORLD_ACTORS: nobody can */
	atomic_uint serial;    /* grows with each stream that takes this place */
	atomic_uint filters;   /* that divert it */
	pthread_rwlock_t lock;
};

/* What a pool held at a checkpoint. */
struct world_note {
	trz_pool_state *state;  /* NULL: there is none */
	struct live *list;
	unsigned *serials;      /* of their streams, then */
	size_t count;
	unsigned graphs;        /* made before */
	bool pinned;            /* what it names cannot go back to the device */
};

/* The graphs of a pool are launched one after the other. While it has one, it is used by captures alone: its free
 * memory is what launches write to. Launches are ordered behind nothing that was freed before they were captured: the
 * heap answers for that. */
struct world_pool {
	trz_pool *pool;         /* NULL: none is here */
	atomic_uint id;
	bool ours;              /* the reference of its making is still held */
	bool captured;
	bool filtered;          /* threads may have been given memory of it that do not know its actor */
	unsigned diversions;
	unsigned graphs;        /* that hold a reference */
	unsigned graphs_made;
	atomic_uint users;      /* streams, as bits, that the next launch has to come after */
	atomic_uint lately;     /* that have used it, or may wait for such a use, since a capture was announced */
	atomic_uint served;     /* streams that have ever used it outside of graphs */
	struct world_note note;
};

/* A capture under way, and the graph that comes of it. What it keeps is live, and written by each launch. */
struct world_graph {
	sim_graph graph;        /* 0: none yet */
	struct world_pool *pool;
	unsigned number;        /* of the pool's graphs */
	bool launched;
	bool stale;             /* the pool has been put back to before it: it can only be destroyed */
	trz_addr blocks[WORLD_BLOCKS];
	unsigned count;
};

struct world_capture {
	struct world_graph *graph;  /* NULL: none is under way */
	unsigned lanes[WORLD_STREAMS];
	unsigned lane_count;
	bool legacy;                /* the legacy stream is locked meanwhile */
};

struct world_diversion {
	struct world_pool *pool;
	unsigned order;
	int stream;                 /* whose allocations; -1: those of the thread */
};

/* Memory that the other process has, too. */
struct world_export {
	trz_addr address;           /* 0: none */
	uint64_t size, tag;         /* the tag is of the stamp that the other process has left there */
	bool freed;                 /* here, meanwhile */
	trz_addr there;
	uint64_t there_size;        /* of the tiles */
	trz_handle handles[WORLD_EXPORT_TILES];  /* the other process's */
	trz_addr tiles[WORLD_EXPORT_TILES];      /* here, */
	uint64_t tile_sizes[WORLD_EXPORT_TILES];
	unsigned tile_count;        /* guarded by the world's lock */
};

/* Addresses that the heap has said to have memory. */
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
	struct world_capture capture;
	struct world_diversion diversions[WORLD_DIVERSIONS];
	unsigned diversion_count;
	struct world_export exports[WORLD_EXPORTS];
	/* its thread */
	pthread_t thread;
	const char *(*work)(struct actor *a, uint64_t arg);  /* NULL: waits for some */
	uint64_t arg;
	const char *result;
};

struct world {
	uint64_t seed, random, events;
	/* decided by the seed */
	uint64_t capacity, fill_target, lag, run_most;
	unsigned live_most, stream_count, actor_count, profiles[WORLD_PROFILES];
	bool vmm, exportable, aided, graphs, dependent, faulty, shared, waits, peers;
	bool refuses;                    /* the driver takes no call from host functions */
	int legacy;                      /* index of the legacy default stream; -1: none */
	char conf[320];
	/* what is there */
	sim *s, *other;                  /* `other`: another process on the device; NULL: there is none */
	const trz_driver *d;             /* the machine's */
	trz_driver watch;                /* what the heap is given instead (world_watch.c) */
	trz_context c, other_context, peer;  /* `peer`: of a second device; NULL: there is none */
	trz_context far;                 /* some streams are of this one, of either device; NULL: all are of `c` */
	trz_heap *heap;
	atomic_bool peer_enabled;
	struct world_stream streams[WORLD_STREAMS];
	struct actor actors[WORLD_ACTORS];
	pthread_rwlock_t capture_lock;   /* for reading: something is captured; for writing: the host waits for all */
	pthread_mutex_t foreign;         /* of the program: its host functions take it, too */
	unsigned diversions_made;
	pthread_rwlock_t signal_lock;    /* for writing: an event is replaced */
	trz_event signals[WORLD_SIGNALS];  /* of the context `c` */
	atomic_uint_fast64_t orders;     /* waits of streams for each other, so far */
	/* guarded by `lock` */
	pthread_mutex_t lock;            /* never held across a call of the heap or the machine */
	struct shadow shadow;
	uint64_t count[2], requested[2], allocated[2], rounding, occupied;  /* what callers hold, by [small, large] */
	trz_handle tiles[WORLD_TILES];   /* of the other process */
	uint64_t tile_sizes[WORLD_TILES], other_used;
	struct world_span *spans;        /* by address, disjoint */
	size_t span_count, span_room;
	uint64_t ooms;
	char wrong[WORLD_TEXT];
	/* the conductor */
	bool free_running, quitting, ended;  /* the threads have ended */
	pthread_mutex_t stage;
	pthread_cond_t changed;
	atomic_uint_fast64_t tags;
	atomic_bool failed;
};

/* A world with its heap open and nothing allocated. */
const char *world_open(struct world *w, uint64_t seed);

/* Opens its heap, over the driver given, or the watched one of the world. */
const char *world_open_heap(struct world *w, const trz_driver *driver);

/* Lets all work run. */
trz_status world_sync(struct world *w);

/* One event of the first actor, in this thread, and the checks after it. */
const char *world_step(struct world *w);

/* Events of all actors, each in a thread of its own where there are several: in turns, or all at a time. Then the
 * threads end, and all that they hold is given back, as by world_end. */
const char *world_run(struct world *w, uint64_t events, bool freely);

/* Frees everything; nothing may stay reserved, nothing be left with the driver, no rule have been broken. */
const char *world_end(struct world *w);

/* Closes what is still open, without a word. */
void world_close(struct world *w);

/* The parts of a step that tests use on their own. `stream` is an index. */
const char *world_alloc(struct world *w, uint64_t size, uint64_t alignment, unsigned stream);
const char *world_free(struct world *w, size_t index);

/* The whole check: heap, driver, device. Nobody else may be at work. */
const char *world_check(struct world *w);

/* Bytes of the tiles, found through the windows, that hold a byte of a live allocation (with whole slabs where
 * `slabs`). */
uint64_t world_touched(const struct world *w, bool slabs);

#endif
