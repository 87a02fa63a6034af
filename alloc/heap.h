/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap: everything that terrazzo keeps for one device in one context, and the basic moves of its blocks.
 * Two locks order all access (docs/lock-order.md). Functions named *_locked need the heap lock; those that may
 * call the driver need the growth lock and must not have the heap lock.
 */
#ifndef TRZ_ALLOC_HEAP_H
#define TRZ_ALLOC_HEAP_H

#include "config.h"
#include "counters.h"
#include "history.h"
#include "lock.h"
#include "pagemap.h"
#include "stream.h"
#include "window.h"

enum { DECAY_STEPS = 4 };

/* The least that was free in each of the last steps of a decay period: what nobody needed in all of it. */
struct decay {
	uint64_t least[DECAY_STEPS];
	unsigned next;               /* the oldest */
	uint64_t step_end;           /* when the present one ends; 0: none has begun */
};

/* A wholly free tile that could move. */
struct candidate {
	struct tile *tile;
	struct block *block;         /* the free block that it lies in, or one before that in the window */
	trz_addr address;            /* where it is owned */
	uint64_t size;
	uint32_t found;              /* its number in the order of the search */
	bool passed;                 /* its last use is ordered before whatever comes: it needs no fence */
};

struct trz_heap {
	/* guarded by `lock` */
	struct spinlock lock;
	struct pagemap pagemap;
	struct node_pool blocks, slabs, pendings;
	struct streams streams;
	struct event_pool events;
	struct node_pool uses;
	struct pool *pools;          /* the private ones; the list changes under the growth lock, but for additions */
	uint32_t pool_ids;           /* the last one given */
	struct pending *given;       /* what was freed with an event; only the holder of the growth lock takes any out */
	atomic_uint given_count;     /* of those; read without the lock */
	unsigned imports_freed;      /* imports that callers have given back and that are still mapped */
	struct block *holes;         /* all of them; every writer holds the growth lock, too */
	counter burst_bytes;         /* large bytes allocated since the last large free; read without the lock */
	_Atomic(struct stream *) legacy;  /* the legacy default stream, once seen; read without the lock */
	atomic_bool poll_wanted;     /* some queue of events is long */
	struct counters counters;
	struct history history;
	bool keeps_frames;           /* slots carry frames */
	bool notes;                  /* the history is on, or slots carry frames */
	struct node_pool slot_frames;
	struct history_tags tags;
	counter active_bytes_peak, active_peak;
	uint64_t cached_least;       /* of cached bytes, in the present step of decay */

	/* guarded by `growth_lock` */
	pthread_mutex_t growth_lock;
	struct tiles tiles;
	struct window *windows[KINDS];  /* all; each lane has one of its own that grows */
	struct window *imports;         /* those with memory of other processes, which are in no other list */
	struct candidate *candidates;
	struct tile **lay_list;
	struct block **moved;
	size_t candidates_capacity, lay_capacity;
	uint64_t tile_least[KINDS];     /* no tile of the kind is smaller */
	uint64_t tile_most;                  /* nor is any tile larger than this */
	uint64_t gathered_bytes;             /* moved to other places so far, by gathering and by flips */
	uint64_t flip_runs;                  /* runs that searches for flips have scanned */
	trz_capture_mode growth_mode;        /* the capture mode that the lock's holder came with */
	trz_map_callback *map_callback;      /* NULL: nobody is told of mappings */
	void *map_user;
	struct decay decay;

	/* guarded by `divert_lock` */
	pthread_rwlock_t divert_lock;
	struct diversion *diversions;        /* the newest first */
	atomic_uint diverting;               /* how many; read without the lock */
	atomic_uint capturing;               /* of those that may be for a capture ... */
	atomic_uint announced;               /* ... and of those that are: it begins, or has begun */

	/* constant */
	struct config config;
	struct meta meta;
	struct driver driver;
	bool annotates;              /* a tool is told of allocations (nvtx.c) */
	bool isolated;               /* requests above small_limit have driver memory of their own (isolate.c) */
	uint64_t capacity;           /* bytes that the device had free when the heap was opened */

	_Atomic uint64_t limit;
	pthread_mutex_t oom_lock;    /* of the callbacks below and last_oom; nothing is locked or called while it is held */
	trz_oom_info last_oom;       /* requested 0: none yet */
	trz_oom_callback *oom_callback;
	void *oom_user;
	trz_frame_callback *frame_callback;  /* these three, too: what names the stacks of callers */
	trz_frame_text_callback *frame_text;
	void *frame_user;
	atomic_bool gathers;         /* the history is on and stacks are asked for; read without a lock */
	atomic_bool watched;         /* so, or annotates, or inherited: operations are not to take the shortest way */
	atomic_bool inherited;       /* this process is a child made by fork(): locks may be held for ever, and structures
	                              * half-way; read without a lock */
	trz_heap *next_open;         /* of all open heaps; guarded by the list's own lock (init.c) */
};

static inline void heap_lock(trz_heap *h)
{
	spinlock_take(&h->lock);
}

static inline void heap_unlock(trz_heap *h)
{
	spinlock_give(&h->lock);
}

/* The growth lock, with the thread's capture mode relaxed: creating, mapping and asking events would otherwise be
 * refused, or invalidate a capture that is under way somewhere. Returns the mode to be restored. */
static inline trz_capture_mode heap_lock_growth(trz_heap *h)
{
	pthread_mutex_lock(&h->growth_lock);
	h->growth_mode = driver_capture_mode(&h->driver, TRZ_CAPTURE_RELAXED);
	return h->growth_mode;
}

static inline void heap_unlock_growth(trz_heap *h, trz_capture_mode mode)
{
	driver_capture_mode(&h->driver, mode);
	pthread_mutex_unlock(&h->growth_lock);
}

static inline bool heap_is_inherited(const trz_heap *h)
{
	return atomic_load_explicit(&h->inherited, memory_order_relaxed);
}

static inline uint64_t heap_reserved(const trz_heap *h)
{
	return flow_all(&h->counters.reserved_bytes);
}

/* The most that may be reserved; UINT64_MAX: no limit is set. */
static inline uint64_t heap_limit(const trz_heap *h)
{
	uint64_t limit = atomic_load_explicit(&h->limit, memory_order_relaxed);
	return limit ? limit : UINT64_MAX;
}

/* Whether so much more may be. */
static inline bool heap_limit_allows(const trz_heap *h, uint64_t bytes)
{
	uint64_t limit = heap_limit(h), reserved = heap_reserved(h);
	return bytes <= limit && reserved <= limit - bytes;
}

/* Opens and closes the structures; no device memory is asked for. */
trz_status heap_open(trz_heap *h, const trz_open_params *params, const trz_driver *table);
void heap_close(trz_heap *h);

static inline bool is_legacy(trz_stream handle)
{
	return (uintptr_t)handle <= (uintptr_t)STREAM_LEGACY;
}

/* The stream of a handle that can only ever mean one: the legacy default stream, once seen. Else NULL. */
static inline struct stream *heap_known_stream(trz_heap *h, trz_stream handle)
{
	return is_legacy(handle) ? atomic_load_explicit(&h->legacy, memory_order_acquire) : NULL;
}

/* The text that the calling thread tags its allocations with; NULL: none. */
extern _Thread_local const char *heap_thread_tag;

/* What the stack of the calling thread's operation is known by; 0: not known. */
extern _Thread_local uint64_t heap_thread_frames;

static inline uint32_t heap_tag_locked(trz_heap *h)
{
	return heap_thread_tag ? history_tag(&h->tags, heap_thread_tag) : 0;
}

/* What the stack of a slot's allocation is known by. */
static inline uint64_t slot_frames(const struct slab *s, unsigned slot)
{
	return s->frames ? s->frames[slot] : 0;
}

/* The stream of a handle, added if it is new. May call the driver (its id). */
trz_status heap_stream(trz_heap *h, trz_stream handle, struct stream **out);

/* The stream's lane of a pool (NULL: the default one), for packed memory or for some sort apart, made if it is new.
 * NULL: no host memory. */
struct lane *heap_lane_apart_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned apart);

static inline struct lane *heap_lane_locked(trz_heap *h, struct stream *s, struct pool *p)
{
	return heap_lane_apart_locked(h, s, p, 0);
}

/* A new private pool with one reference; and giving one up. Those still held by allocations under way count, too. */
trz_status heap_pool_create(trz_heap *h, struct pool **out);
void heap_pool_release(trz_heap *h, struct pool *p);

/* Notes what pools that have ended since the last poll have to await, and asks what has come. Growth lock held. */
void heap_end_pools(trz_heap *h);

/* Gives the memory of released pools, where nothing is awaited any more, to the default pool. Growth lock held. */
void heap_dissolve_pools(trz_heap *h);

/* To be called when what is free has been taken from. */
static inline void heap_note_least_locked(trz_heap *h)
{
	uint64_t cached = counter_get(&h->counters.cached_bytes.current);
	if (cached < h->cached_least)
		h->cached_least = cached;
}

/* Makes a block free in its home: joins it with free neighbours of the same home and indexes it.
 * `sequence` is the ticket of its last use. */
void heap_free_block_locked(trz_heap *h, struct block *b, uint64_t sequence);

/* Notes that a stream's handle is about to die: its newest ticket is covered by an event now, and no further one
 * will be recorded. Growth lock held. */
trz_status heap_retire_stream(trz_heap *h, trz_stream handle);

/* How much of the `available` bytes from its address on a block of `size` takes: what would be left of large memory can
 * be too short for any request, it then stays with the block, as rounding, instead of being indexed for nobody. */
static inline uint64_t heap_block_size(enum kind kind, uint64_t size, uint64_t available)
{
	return kind == LARGE && available - size <= CELL ? available : size;
}

/* Takes a free block out of its index, cut down to [address, address + size); what is left stays free. Two nodes
 * have been reserved. The result is BLOCK_BUSY. */
struct block *heap_cut_block_locked(trz_heap *h, struct block *b, trz_addr address, uint64_t size);

/* Turns a busy block into a hole and joins it with neighbouring holes. */
void heap_make_hole_locked(trz_heap *h, struct block *b);

/* Drops the blocks, all of them holes, of a window that is being given back. */
void heap_drop_holes_locked(trz_heap *h, struct block *first);

/* Cuts [address, address + size) out of a hole. Two nodes have been reserved. The result is BLOCK_BUSY, but has no
 * memory yet. */
struct block *heap_cut_hole_locked(trz_heap *h, struct block *hole, trz_addr address, uint64_t size);

/* Joins a busy block with a free or busy neighbour behind it; the whole is busy. */
void heap_join_busy_locked(trz_heap *h, struct block *b);

/* Appends a busy block [window's end, window's end + size) at the end of a window, made of `node`, which the caller
 * has taken from h->blocks: a reservation would not last from one hold of the lock to the next. */
struct block *heap_append_block_locked(struct block *node, struct window *w, struct lane *home, uint64_t size);

/* Takes a slab, all slots free, out of its bin and frees its block. */
void heap_retire_slab_locked(trz_heap *h, struct slab *s);

/* Retires every slab without held or pending slots. */
void heap_retire_empty_slabs(trz_heap *h);

/* Notes freed memory that waits for `sequence` of `s`: `p` has been filled in but for those. */
void heap_push_pending_locked(struct stream *s, struct pending *p, uint64_t sequence);

/* A pending block, whose tickets have all passed, becomes free with the ticket `sequence` of its home; or ended, where
 * other processes may still use it, or where it is theirs. */
void heap_end_block_locked(trz_heap *h, struct block *b, uint64_t sequence);

/* What a pending entry waited for has come, or is ordered before what its home is given from now on: its memory is
 * free, with `home_sequence` for its ticket there, or ended; the entry goes. */
void heap_end_pending_locked(trz_heap *h, struct pending *p);

/* Gives back what waited for tickets that have passed. */
void heap_drain_pending_locked(trz_heap *h, struct stream *s);

/* Asks the driver which tickets of each stream have passed, recording a late event where none covers the
 * newest, and drains what became free. Waits for nothing. */
void heap_poll(trz_heap *h);

/* Whether the handle, which is alive, means the stream in this thread. May ask the driver. */
bool heap_is_threads_own(trz_heap *h, const struct stream *s);

/* Whether it is alive, too. Growth lock held. */
bool heap_reaches_stream(trz_heap *h, const struct stream *s);

/* An event, of the pool or a new one. */
trz_status heap_take_event(trz_heap *h, trz_event *event);

/* Whether a stream is being captured, has been in a capture that is broken, or the driver does not say: for the legacy
 * default stream, while a blocking stream of its context is captured. */
bool heap_is_captured(trz_heap *h, trz_stream handle);

/* Whether an event can be recorded on a stream without becoming part of a capture, or breaking one. */
bool heap_may_record(trz_heap *h, trz_stream handle);

/* An event recorded on a stream now, which is alive; NULL where it must not be, or the driver refuses. The growth lock
 * is held, or the stream has been told of a recorder. */
trz_event heap_record_event(trz_heap *h, const struct stream *s);

/* Waits for frees of other threads that are recording on a stream now: they hold no lock that is wanted here, and are
 * about to make one call of the driver, which waits for nothing. */
void heap_await_recorders(trz_heap *h, const struct stream *s);

/* Takes an event back into the pool; without host memory it is destroyed. */
void heap_return_event(trz_heap *h, trz_event event);

/* Destroys an event that a caller has given; where the driver refuses it joins the pool. */
void heap_destroy_event(trz_heap *h, trz_event event);

#endif
