/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap: everything that terrazzo keeps for one device in one context. Two locks order all access
 * (docs/lock-order.md). Functions named *_locked need the heap lock; those that may call the driver need the growth
 * lock and must not have the heap lock.
 */
#ifndef TRZ_ALLOC_HEAP_H
#define TRZ_ALLOC_HEAP_H

#include <assert.h>

#include "counters.h"
#include "ground/config.h"
#include "history.h"
#include "lock.h"
#include "memory/pagemap.h"
#include "memory/window.h"
#include "order/clock.h"
#include "order/pool.h"
#include "order/stream.h"
#include "sites.h"
#include "uncancelled.h"

enum { DECAY_STEPS = 4, EXPORTED_LISTS = 256 };

/* The least that was free in each of the last steps of a decay period: memory not needed in all of it. */
struct decay {
	uint64_t least[DECAY_STEPS];
	unsigned next;               /* the oldest */
	uint64_t step_end;           /* when the current step ends; 0: none has begun */
};

/* A wholly free tile that could move. */
struct candidate {
	struct tile *tile;
	struct block *block;         /* the free block that it lies in, or one before that in the window */
	trz_addr address;            /* where it is owned */
	uint64_t size;
	uint32_t found;              /* its number in the order of the search */
};

enum { STEPS_THRESHOLDS = 3 };

/* The program's steps (observe/steps.h). */
struct steps {
	pthread_mutex_t lock;
	atomic_bool watched;         /* there is a callback; read without a lock */
	/* guarded by `lock` */
	bool told;                   /* the program tells its steps */
	struct leaks *leaks;         /* NULL: no step has ended yet */
	struct leaks *kept;          /* the same for the loop that keeps what it makes; NULL: there has been none */
	bool kept_calls_models;      /* that loop's steps allocate mostly in models */
	uint64_t last_peak;          /* the peak of allocated bytes at the end of the newest step */
	uint64_t passing;            /* how far the newest step with a new peak rose above what it held at its end */
	uint64_t most;               /* the most that the newest step held */
	trz_warning_callback *callback;
	void *user;
	bool given[STEPS_THRESHOLDS];    /* the threshold's warning was given, and the share has not fallen since */
	uint64_t named[SITES_MAX / 64];  /* a bit for each site that a warning has named; 0 is one, too */
};

/* Whether views repeat (supply/policy.c). */
enum { VIEW_SIZES = 16 };

struct views_record {
	uint64_t debt;               /* bytes mapped for views that flips into views have not made up for, ... */
	uint64_t peak;               /* ... counted since the peak of allocated bytes was this */
	uint64_t moved;              /* moved_bytes when a view was last mapped */
	uint64_t sizes[VIEW_SIZES];  /* the newest sizes of large requests that memory was moved for, ... */
	unsigned sizes_count;        /* ... and how many have been added so far */
};

/* How the heap recognises steps that the program does not tell (observe/period.h). Guarded by `lock`, except `due`. */
enum { PERIOD_KEYS = 256, PERIOD_CANDIDATES = 8, PERIOD_INTERVALS = 24, PERIOD_KINDS = 2, PERIOD_NEWEST = 64 };

enum period_state {
	PERIOD_RESTS,                /* it found nothing, or nothing worth following */
	PERIOD_WATCHES,
	PERIOD_FOUND,
	PERIOD_TOLD                  /* the program tells its steps */
};

struct period_key {
	uint32_t key, failures;
	int seen;                    /* its allocations so far; < 0: so many more are left alone */
	bool refused, in_model;      /* its stack says that no steps begin there; and that it lies in a model */
};

struct period_block {
	uint64_t size;
	uint32_t site;
};

/* A place that may mark the steps, and the intervals between its allocations so far. */
struct period_candidate {
	uint32_t key, site;
	unsigned intervals;
	uint64_t begun, begun_ns;
	uint64_t last, live;         /* the clock at its newest allocation, and what was held then */
	uint64_t overdue_at;         /* once the clock is past this, another candidate may replace it */
	uint64_t gaps[PERIOD_INTERVALS], rises[PERIOD_INTERVALS], changes[PERIOD_INTERVALS];
};

struct period {
	enum period_state state;
	uint32_t marker, marker_site, last_keys[PERIOD_KINDS];
	uint64_t clock;              /* blocks allocated */
	uint64_t usual, marked_at;   /* the marker's usual gap, and the clock at its last allocation */
	uint64_t last_live, seen, growths, growths_least;
	uint64_t rests_until;        /* at rest: it does not watch again before the clock is here */
	uint64_t step_ns_least;      /* constant, but for tests */
	/* The loop that keeps what it makes, which reports of failures judge: */
	uint32_t keeper, keeper_site;    /* the place whose allocations end its steps; 0: none */
	uint32_t proposed, proposed_site;  /* a place that may become this, once its stack has been judged; 0: none */
	uint64_t keeper_usual, keeper_at, proposed_usual;
	bool proposed_last;          /* when the place has been judged the heap rests, unless it lies in a model */
	uint64_t keeper_row, keeper_seen, proposed_row;  /* row: so many of its steps, if they are short, count as one */
	uint64_t told, told_at;      /* steps that the program has told: how many; the clock at the last; */
	uint64_t told_longest, told_usual;  /* the longest and the usual gap between two */
	struct period_block newest[PERIOD_NEWEST];  /* the newest blocks watched: the i-th at [i % PERIOD_NEWEST] */
	uint64_t newest_count;
	struct period_key keys[PERIOD_KEYS];
	/* What every block that is seen reads and writes of the candidates: */
	uint32_t listed[PERIOD_CANDIDATES];  /* the key of list[i] while that is a candidate; else 0 */
	uint64_t low[PERIOD_CANDIDATES], high[PERIOD_CANDIDATES];  /* least and most held since its newest allocation */
	uint64_t vacant_at;          /* until the clock is past this, no candidate can be replaced */
	struct period_candidate list[PERIOD_CANDIDATES];
	atomic_uint due;             /* of enum period_due; read without a lock */
};

/* What is to be done before the next allocation, with no lock held. */
enum period_due {
	PERIOD_DUE_STEP = 1,         /* a step has ended */
	PERIOD_DUE_KEEPER = 2,       /* a step of the loop that keeps what it makes has ended */
	PERIOD_DUE_PROPOSAL = 4      /* a place that may end the steps of such a loop is to be judged */
};

struct leaks;

/* What every operation reads lies on cache lines apart from what operations under the heap lock write. */
struct trz_heap {
	/* changes seldom; each member says below who guards it */
	struct pagemap pagemap;      /* by `lock`; read without it */
	_Atomic(struct stream *) legacy;  /* by `lock`: the legacy default stream, once seen; read without it */
	atomic_bool watched;         /* by `lock`: gathers, annotates, or inherited: no operation takes the shortest way */
	atomic_uint diverting;       /* by `divert_lock`: the number of diversions; read without it */
	struct driver driver;        /* constant, mostly */
	struct config config;        /* constant */
	struct streams streams;      /* by `lock` */

	/* guarded by `lock` */
	_Alignas(64) struct spinlock lock;
	struct node_pool blocks, slabs, pendings;
	struct event_clocks clocks;  /* of the program's events */
	struct event_pool events;    /* of the heap's context; by next: of other contexts whose streams have been seen */
	struct event_pool undestroyed;  /* callers' events that the driver has so far refused to destroy */
	struct node_pool uses;
	struct pool *pools;          /* the private ones; the list changes under the growth lock, except for additions */
	uint64_t announcements;      /* of captures, so far */
	uint64_t unknown_streams;    /* new ones in captures, so far */
	uint32_t pool_ids;           /* the last one given */
	struct pending *given;       /* memory freed with an event; only the holder of the growth lock removes entries */
	atomic_uint given_count;     /* of those; read without the lock */
	unsigned imports_freed;      /* imports that callers have given back and that are still mapped */
	struct block *holes;         /* all of them; every writer also holds the growth lock */
	counter burst_bytes;         /* large bytes allocated since the last large free; read without the lock */
	atomic_bool poll_wanted;     /* some queue of events is long, or there is more to return or to end */
	atomic_bool short_of_memory; /* memory has run short, or nearly: any free may have to be waited for */
	uint64_t trim_again;         /* after so many bytes freed by callers a trim looks again at what the last one left */
	struct counters counters;    /* without what streams hold in slots (ledger.h) */
	uint64_t block_limit[KINDS][MEASURES];
	uint64_t limits[MEASURES];   /* the sums of all streams' limits */
	struct stream *listed;       /* the streams that may hold less than their limit */
	struct history history;
	bool keeps_frames;           /* slots carry frames */
	bool notes;                  /* slots carry frames, or the history is on: slots stay in */
	struct node_pool slot_frames, slot_sites;
	struct history_tags tags;
	struct sites sites;          /* of memory that callers hold */
	uint64_t cached_least;       /* of cached bytes, in the current step of decay */
	struct tile *exported[EXPORTED_LISTS];  /* by address; ending an export must not wait for a driver call */

	/* guarded by `growth_lock` */
	pthread_mutex_t growth_lock;
	int growth_cancel;              /* whether its holder could be cancelled before (base/uncancelled.h) */
#ifndef NDEBUG
	lock_owner growth_owner;
#endif
	struct tiles tiles;
	struct window *windows[KINDS];  /* all; each lane has one of its own that grows */
	struct window *imports;         /* those with memory of other processes, which are in no other list */
	struct candidate *candidates;
	struct tile **lay_list;
	struct block **moved;
	size_t candidates_capacity, lay_capacity;
	uint64_t tile_least[KINDS];     /* no tile of the kind is smaller */
	uint64_t tile_most;                  /* nor is any tile larger than this */
	counter attainable;                  /* what could be reserved in all, by the device's last answer about its free
	                                      * memory; other processes take and free memory meanwhile. Read without it */
	uint64_t withheld;                   /* what the device calls free and does not give: so much was free when it
	                                      * last refused a granule; 0: less than a granule */
	uint64_t moved_bytes;                /* bytes mapped at other places so far, ... */
	uint64_t moved_for_ended;            /* ... and those of them for pools that have ended */
	uint64_t peak_before;                /* the highest peak of allocated bytes that the program has reset */
	struct views_record views;
	uint64_t flip_runs;                  /* runs that searches for flips have scanned */
	trz_capture_mode growth_mode;        /* the capture mode that the lock's holder came with */
	trz_map_callback *map_callback;      /* NULL: mappings are not announced */
	void *map_user;
	struct decay decay;
	bool closing;                        /* streams' handles may be dead */

	/* guarded by `divert_lock` */
	pthread_rwlock_t divert_lock;
	struct diversion *diversions;        /* the newest first */
	atomic_uint capturing;               /* the number of those that may be for a capture ... */
	atomic_uint announced;               /* ... and of those that are: it is about to begin, or has begun */

	/* constant */
	uint64_t serial;             /* its number among all heaps of the process */
	struct meta meta;
	struct dumps *dumps;         /* for snapshots that options ask for (dump.c); NULL: no option does */
	struct reporter *reporter;   /* serve/postmortem.c */
	bool annotates;              /* a tool receives allocations (nvtx.c) */
	bool dedicates;              /* requests above small_limit get dedicated memory, once each: a debugging option */

	_Atomic uint64_t limit;
	pthread_mutex_t oom_lock;    /* guards last_oom and the callbacks below; nothing is locked or called under it */
	trz_oom_info last_oom;       /* requested 0: none yet */
	trz_oom_callback *oom_callback;
	void *oom_user;
	trz_frame_callback *frame_callback;  /* for callers' stacks */
	trz_frame_text_callback *frame_text;
	void *frame_user;
	trz_frame_callback *site_callback;   /* for the stacks of call sites */
	trz_frame_text_callback *site_text;
	void *site_user;
	atomic_bool site_stacks;     /* stacks of call sites are asked for; read without a lock */
	atomic_bool gathers;         /* the history is on and stacks are asked for; read without a lock */
	atomic_bool inherited;       /* this process is a child made by fork(): locks may be held for ever, and structures
	                              * be half-changed; read without a lock */
	struct steps steps;
	struct period period;
	_Atomic(trz_heap *) next_open;  /* in the list of open heaps; changes under that list's lock (init.c) */
	atomic_uint holders;         /* threads that need it to stay open for now */
};

/* Functions that need a lock assert it; nothing in builds without assertions. */
#define HEAP_LOCKED(h) assert(spinlock_is_mine(&(h)->lock))
#define HEAP_GROWTH_LOCKED(h) assert(lock_is_mine(&(h)->growth_owner))

static inline void heap_lock(trz_heap *h)
{
	spinlock_take(&h->lock);
}

static inline void heap_unlock(trz_heap *h)
{
	spinlock_give(&h->lock);
}

/* How often the lock has been taken. A thread that gives it up, takes it again and finds one take more knows that
 * nobody has had it meanwhile, so that all that it guards is as it was. */
static inline unsigned heap_lock_takes(const trz_heap *h)
{
	HEAP_LOCKED(h);
	return atomic_load_explicit(&h->lock.takes, memory_order_relaxed);
}

/* The newest private pool; the others follow by `next`. Who holds the growth lock may walk them: none goes
 * meanwhile. */
static inline struct pool *heap_first_pool(trz_heap *h)
{
	heap_lock(h);
	struct pool *p = h->pools;
	heap_unlock(h);
	return p;
}

enum { HOLD_STEPS = 256 };

/* Counts the steps of a walk under the heap lock and gives the lock up briefly after each HOLD_STEPS, so that no thread
 * waits for the whole of a long walk. true: the lock was given up, and other threads may have freed and taken
 * memory. */
static inline bool heap_rest(trz_heap *h, unsigned *steps, unsigned done)
{
	HEAP_LOCKED(h);
	*steps += done;
	if (*steps < HOLD_STEPS)
		return false;
	*steps = 0;
	spinlock_rest(&h->lock);
	return true;
}

/* Relaxes the thread's capture mode, for calls that may come in the middle of a capture; heap_tighten restores it.
 * *mode becomes the old one. false: the thread runs a host function of a stream, where the driver permits no call. */
static inline bool heap_relax(trz_heap *h, trz_capture_mode *mode)
{
	*mode = TRZ_CAPTURE_RELAXED;
	return driver_capture_mode(&h->driver, mode) != TRZ_ERROR_NOT_PERMITTED;
}

static inline void heap_tighten(trz_heap *h, trz_capture_mode mode)
{
	driver_restore_capture_mode(&h->driver, mode);
}

/* The failure of an operation that needs the driver in a host function of a stream. */
trz_status heap_not_permitted(const char *function);

/* Takes the growth lock alone, for operations that make no driver call. A thread that holds it is not cancelled. */
static inline void heap_take_growth(trz_heap *h)
{
	assert(!lock_is_mine(&h->growth_owner) && !spinlock_is_mine(&h->lock));
	int cancel = uncancelled_begin();
	pthread_mutex_lock(&h->growth_lock);
	LOCK_OWN(&h->growth_owner);
	h->growth_cancel = cancel;
}

static inline void heap_give_growth(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	int cancel = h->growth_cancel;
	LOCK_DISOWN(&h->growth_owner);
	pthread_mutex_unlock(&h->growth_lock);
	uncancelled_end(cancel);
}

/* Takes the growth lock and relaxes the thread's capture mode: else creating, mapping and querying events would fail,
 * or invalidate a capture somewhere. false: the thread runs a host function of a stream. It does not get the lock,
 * whose holder may be waiting for just that stream. */
static inline bool heap_lock_growth(trz_heap *h)
{
	trz_capture_mode mode;
	if (!heap_relax(h, &mode))
		return false;
	heap_take_growth(h);
	h->growth_mode = mode;
	return true;
}

/* heap_lock_growth, if no other thread holds the lock. */
static inline bool heap_try_growth(trz_heap *h)
{
	trz_capture_mode mode;
	int cancel = uncancelled_begin();
	if (pthread_mutex_trylock(&h->growth_lock)) {
		uncancelled_end(cancel);
		return false;
	}
	LOCK_OWN(&h->growth_owner);
	h->growth_cancel = cancel;
	if (heap_relax(h, &mode)) {
		h->growth_mode = mode;
		return true;
	}
	heap_give_growth(h);
	return false;
}

/* Takes the lock again after this thread has given it back for a while. */
static inline void heap_relock_growth(trz_heap *h)
{
	trz_capture_mode mode;
	heap_relax(h, &mode);
	heap_take_growth(h);
	h->growth_mode = mode;
}

static inline void heap_unlock_growth(trz_heap *h)
{
	heap_tighten(h, h->growth_mode);
	heap_give_growth(h);
}

static inline bool heap_is_inherited(const trz_heap *h)
{
	return atomic_load_explicit(&h->inherited, memory_order_relaxed);
}

/* Asks how much the device has free, less what it withholds, and notes the answer. 0: the driver did not answer, and
 * *total (may be NULL) is as it was. Growth lock held. */
uint64_t heap_ask_device(trz_heap *h, uint64_t *total);

/* The window in which an address is laid, an import's too; NULL: none. Growth lock held. */
struct window *heap_window_at(const trz_heap *h, trz_addr address);

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

/* Whether the limit allows this much more. */
static inline bool heap_limit_allows(const trz_heap *h, uint64_t bytes)
{
	uint64_t limit = heap_limit(h), reserved = heap_reserved(h);
	return bytes <= limit && reserved <= limit - bytes;
}

/* Opens and closes the structures; requests no device memory. */
trz_status heap_open(trz_heap *h, const trz_open_params *params, const trz_driver *table);
void heap_close(trz_heap *h);

/* What the calling thread's allocations carry. */
struct heap_thread {
	uint64_t frames;             /* the number of its operation's stack, for the history; 0: not known */
	uint64_t stack;              /* the same for the call site (sites.h); 0: not known */
	bool marked;                 /* there is a tag or a category */
	bool holds_reports;          /* its failures print no report */
	unsigned category;           /* trz_category */
	const char *tag;             /* NULL: none */
	uint64_t tag_heap;           /* the serial of the heap in whose table the text has ... */
	uint32_t tag_number;         /* ... this number */
};

extern _Thread_local struct heap_thread heap_thread;

static inline uint32_t heap_tag_locked(trz_heap *h)
{
	HEAP_LOCKED(h);
	struct heap_thread *t = &heap_thread;
	if (LIKELY(!t->tag))
		return 0;
	if (t->tag_heap != h->serial) {
		t->tag_number = history_tag(&h->tags, t->tag);
		t->tag_heap = h->serial;
	}
	return t->tag_number;
}

/* The number of the stack of a slot's allocation. */
static inline uint64_t slot_frames(const struct slab *s, unsigned slot)
{
	return s->frames ? s->frames[slot] : 0;
}

#endif
