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

enum { DECAY_STEPS = 4, EXPORTED_LISTS = 256 };

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
	struct event_pool events;    /* of the heap's context; by next: of the others of which streams have been seen */
	struct event_pool undestroyed;  /* events of callers' making that the driver has refused to destroy so far */
	struct node_pool uses;
	struct pool *pools;          /* the private ones; the list changes under the growth lock, but for additions */
	uint64_t announcements;      /* of captures, so far */
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
	struct tile *exported[EXPORTED_LISTS];  /* by address; whoever ends an export is about to free */

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
	uint64_t attainable;                 /* what could be reserved in all, by what the device had free when it was last
	                                      * asked; others take and give memory of it meanwhile */
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

enum { HOLD_STEPS = 256 };

/* Counts the steps of a walk under the heap lock and gives the lock up for a moment after each HOLD_STEPS: nobody is to
 * wait for the whole of a long one. true: it has, and other threads may have freed and taken memory. */
static inline bool heap_rest(trz_heap *h, unsigned *steps, unsigned done)
{
	*steps += done;
	if (*steps < HOLD_STEPS)
		return false;
	*steps = 0;
	spinlock_rest(&h->lock);
	return true;
}

/* Sets the thread's capture mode to a relaxed one and back, for what may be done in the midst of a capture. The old one
 * comes back in *mode. false: the thread runs a host function of a stream, where the driver permits no call. */
static inline bool heap_relax(trz_heap *h, trz_capture_mode *mode)
{
	*mode = TRZ_CAPTURE_RELAXED;
	return driver_capture_mode(&h->driver, mode) != TRZ_ERROR_NOT_PERMITTED;
}

static inline void heap_tighten(trz_heap *h, trz_capture_mode mode)
{
	driver_restore_capture_mode(&h->driver, mode);
}

/* The failure of what needs the driver in a host function of a stream. */
trz_status heap_not_permitted(const char *function);

/* The growth lock, with the thread's capture mode relaxed: creating, mapping and asking events would otherwise be
 * refused, or invalidate a capture that is under way somewhere. false: in a host function of a stream the lock is not
 * taken, since its holder may wait for just that stream. */
static inline bool heap_lock_growth(trz_heap *h)
{
	trz_capture_mode mode;
	if (!heap_relax(h, &mode))
		return false;
	pthread_mutex_lock(&h->growth_lock);
	h->growth_mode = mode;
	return true;
}

/* The same if nobody else has it. */
static inline bool heap_try_growth(trz_heap *h)
{
	trz_capture_mode mode;
	if (pthread_mutex_trylock(&h->growth_lock))
		return false;
	if (heap_relax(h, &mode)) {
		h->growth_mode = mode;
		return true;
	}
	pthread_mutex_unlock(&h->growth_lock);
	return false;
}

/* Takes again what this thread had and has given back in between. */
static inline void heap_relock_growth(trz_heap *h)
{
	trz_capture_mode mode;
	heap_relax(h, &mode);
	pthread_mutex_lock(&h->growth_lock);
	h->growth_mode = mode;
}

static inline void heap_unlock_growth(trz_heap *h)
{
	heap_tighten(h, h->growth_mode);
	pthread_mutex_unlock(&h->growth_lock);
}

static inline bool heap_is_inherited(const trz_heap *h)
{
	return atomic_load_explicit(&h->inherited, memory_order_relaxed);
}

/* Asks how much the device has free, and keeps that in mind; 0, and *total (may be NULL) as it was: it does not say.
 * Growth lock held. */
uint64_t heap_ask_device(trz_heap *h, uint64_t *total);

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

/* The stream of a handle, added if it is new; its entry stays the stream's until heap_leave_stream. May call the driver
 * (its id); takes the growth lock where so many streams are known that room has to be made. */
trz_status heap_stream(trz_heap *h, trz_stream handle, struct stream **out);

/* The same for who takes a ticket of it and no memory: where the driver permits no call, in a host function, that is
 * the newest stream known by the handle. */
trz_status heap_stream_of_user(trz_heap *h, trz_stream handle, struct stream **out);

/* The entry of the legacy default stream is never another's. */
static inline void heap_leave_stream(struct stream *s, trz_stream handle)
{
	if (!is_legacy(handle))
		atomic_fetch_add_explicit(&s->left, 1, memory_order_release);
}

/* The legacy default stream, for who has the growth lock. */
trz_status heap_legacy_stream(trz_heap *h, struct stream **out);

/* A use of memory is over, or has been given up. */
void heap_drop_use_locked(trz_heap *h, struct use *u);

/* The stream's lane of a pool (NULL: the default one), for packed memory or for some sort apart, made if it is new.
 * NULL: no host memory. */
struct lane *heap_lane_apart_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned apart);

/* The same, or that for its captures; not the default pool's for packed memory. */
struct lane *heap_make_lane_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned apart, bool captured);

static inline struct lane *heap_lane_locked(trz_heap *h, struct stream *s, struct pool *p)
{
	return heap_lane_apart_locked(h, s, p, 0);
}

/* Announces a capture into a pool, which is to begin, by recording events (false: in a host function); and takes that
 * back. */
bool heap_announce_capture(trz_heap *h, struct pool *p);
void heap_end_announcement(trz_heap *h, struct pool *p);

/* Notes the capture, named by a number > 0, that an operation finds its stream in; 0: it is in none. */
void heap_note_capture(trz_heap *h, struct stream *s, uint64_t capture);

/* The same where it is a change, as is the driver's answer. */
static inline void heap_see_capture(trz_heap *h, struct stream *s, const struct capture *c)
{
	uint64_t capture = c->status == TRZ_CAPTURE_NONE ? 0 : c->id ? c->id : UINT64_MAX;
	if (UNLIKELY(capture != atomic_load_explicit(&s->capture, memory_order_relaxed) ||
	             atomic_load_explicit(&s->unsettled, memory_order_relaxed)))
		heap_note_capture(h, s, capture);
}

/* The lane that serves what the present capture of a stream allocates from a pool. NULL: no host memory. */
struct lane *heap_capture_lane_locked(trz_heap *h, struct stream *s, struct pool *p, unsigned apart);

/* Whether the free memory of a pool's lane may be used by the present capture of its stream. */
bool heap_serves_captures_locked(const struct lane *l);

/* Gives what a stream's captured lanes have of a pool to its other lanes. Growth lock held. */
void heap_merge_captured_lanes(trz_heap *h, struct pool *p, const struct stream *s);

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

/* Makes one busy block [address, address + size) of free ones, whosever, that lie side by side and the first of which
 * is `b`; what is left of them stays free. Two nodes have been reserved. */
struct block *heap_carve_locked(trz_heap *h, struct block *b, trz_addr address, uint64_t size);

/* Appends a busy block [window's end, window's end + size) at the end of a window, made of `node`, which the caller
 * has taken from h->blocks: a reservation would not last from one hold of the lock to the next. */
struct block *heap_append_block_locked(struct block *node, struct window *w, struct lane *home, uint64_t size);

/* Makes a busy block of the class's slab size the first slab of the lane's bin. A slab, and the pagemap's cells, have
 * been reserved. */
struct slab *heap_open_slab_locked(trz_heap *h, struct lane *l, unsigned size_class, struct block *b);

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

/* Gives back what waited for tickets that have passed. The lock is given up now and then. Growth lock held. */
void heap_drain_pending_locked(trz_heap *h, struct stream *s);

/* Covers the newest ticket of a stream by a late event, if no event does. Growth lock held. */
void heap_record_late(trz_heap *h, struct stream *s);

/* Asks the driver which tickets of each stream have passed, recording a late event where none covers the
 * newest, and drains what became free. Waits for nothing. */
void heap_poll(trz_heap *h);

/* Whether the handle, which is alive, means the stream in this thread. May ask the driver. */
bool heap_is_threads_own(trz_heap *h, const struct stream *s);

/* Whether it is alive, too. Growth lock held. */
bool heap_reaches_stream(trz_heap *h, const struct stream *s);

/* An event, of the pool or a new one. */
trz_status heap_take_event(trz_heap *h, struct event_pool *p, trz_event *event);

/* Whether a stream is being captured, has been in a capture that is broken, or the driver does not say: for the legacy
 * default stream (NULL, too), while a blocking stream of its context is captured. */
bool heap_is_captured(trz_heap *h, const struct stream *s);

/* Whether an event can be recorded on a stream without becoming part of a capture, or breaking one. */
bool heap_may_record(trz_heap *h, const struct stream *s);

/* An event recorded on a stream now, which is alive; NULL where it must not be, or the driver refuses. The growth lock
 * is held, or the stream has been told of a recorder. */
trz_event heap_record_event(trz_heap *h, const struct stream *s);

/* Waits for frees of other threads that are recording on a stream now: they hold no lock that is wanted here, and are
 * about to make one call of the driver, which waits for nothing. */
void heap_await_recorders(trz_heap *h, const struct stream *s);

/* Takes an event back into the pool; without host memory it is destroyed. */
void heap_return_event(trz_heap *h, struct event_pool *p, trz_event event);

/* Destroys an event that a caller has given; where the driver refuses, closing tries again. */
void heap_destroy_event(trz_heap *h, trz_event event);

/* Whether some stream of the context is being captured, or soon will be, as far as that can be known: where a
 * diversion has announced it, on blocking streams, on streams that the heap knows. Without `handles_live` none of those
 * is asked but the legacy one: what its last operation saw counts. Growth lock held, as below. */
bool heap_may_be_captured(trz_heap *h, bool handles_live);

/* An event of all streams of a context, recorded now. NOT_SUPPORTED: the driver has none. It breaks captures. */
trz_status heap_record_context(trz_heap *h, struct event_pool *p, trz_event *event);

/* The same, as the context's `whole`: it tells of the newest tickets of its streams that are out of reach, or of all.
 * TRZ_OK without one: there is no need of it. */
trz_status heap_cover_context(trz_heap *h, struct event_pool *p, bool all);

/* A poll that covers what is out of reach, too, in every context, unless that could break a capture: it or a later poll
 * finds it passed. */
void heap_poll_all(trz_heap *h);

/* Asks the events of contexts that are under way; and one of them has passed. */
void heap_collect_contexts(trz_heap *h);
void heap_end_cover(trz_heap *h, struct event_pool *p);

/* Takes to heart what a call about a stream's events has answered: the context may have gone before the heap, and all
 * work of its streams with it. Returns the status. */
trz_status heap_note_loss(trz_heap *h, struct event_pool *p, trz_status status);

static inline bool heap_has_lost(const struct event_pool *p)
{
	return atomic_load_explicit(&p->lost, memory_order_relaxed);
}

#endif
