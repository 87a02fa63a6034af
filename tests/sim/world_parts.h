/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the simulated world share.
 */
#ifndef TRZ_TESTS_WORLD_PARTS_H
#define TRZ_TESTS_WORLD_PARTS_H

#include "prng.h"
#include "world.h"

enum {
	WORLD_SIZE_PROFILES = 7,
	WORLD_GONE = 1 << WORLD_STREAMS  /* among the streams that a pool has served: one that has ended */
};

#define TRY(call) \
	do { \
		const char *text = (call); \
		if (text) \
			return text; \
	} while (0)

/* A call that must succeed. */
#define MUST(w, call) \
	do { \
		trz_status must = (call); \
		if (must != TRZ_OK) \
			return world_failed((w), #call, must); \
	} while (0)

/* Keeps the first text that says what is wrong, with seed and event, and returns it. */
const char *world_wrong(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *world_failed(struct world *w, const char *call, trz_status status);

static inline uint64_t world_below(struct world *w, uint64_t bound)
{
	return prng_below(&w->random, bound);
}

static inline uint64_t below(struct actor *a, uint64_t bound)
{
	return prng_below(&a->random, bound);
}

/* True one time in `n`. */
static inline bool chance(struct actor *a, uint64_t n)
{
	return below(a, n) == 0;
}

/* Checks only the balance. */
const char *world_check_balance(struct world *w);

/* Shows all streams to a heap that has just been opened, if there will be graphs: it waits only for those that it has
 * seen, and asks them alone whether they are captured, and graphs may be launched on any. */
const char *world_show_streams(struct world *w);

/* ---- world.c: streams ---- */

static inline trz_stream handle_of(const struct world *w, unsigned stream)
{
	return w->streams[stream].handle;
}

static inline trz_context context_of(const struct world *w, unsigned stream)
{
	return w->streams[stream].of;
}

/* Lets the actor give the stream work until world_leave; false: it may not now. */
bool world_enter(struct actor *a, unsigned stream);
void world_leave(struct actor *a, unsigned stream);

/* Enters any stream that the actor may enter; WORLD_STREAMS: none. */
unsigned world_enter_any(struct actor *a);

/* Acts on any such stream, if there is one, and leaves it. */
const char *world_on_any(struct actor *a, const char *(*act)(struct actor *a, unsigned stream));

/* Enters all streams of a set except `to`, makes `to` wait for them, and leaves them. *done false: one could not be
 * entered, and nothing was done. */
const char *world_join(struct actor *a, unsigned set, unsigned to, bool *done);

/* ---- world.c: memory ---- */

/* Makes a random block busy that was not. false: found none. */
bool world_take(struct actor *a, struct live *l);
bool world_take_shareable(struct actor *a, struct live *l);

/* The same, for a block of a pool, or of a set of streams. */
bool world_take_of_pool(struct actor *a, struct live *l, unsigned pool);
bool world_take_of_streams(struct actor *a, struct live *l, unsigned streams);

/* A block that only the caller touches; but its stream may end and pass it on, unless that has been entered or is
 * captured. */
struct live world_look_up(struct world *w, trz_addr address);

/* Looks up such a block and enters its stream. false: that cannot be entered, or has just passed the block on. */
bool world_enter_of(struct actor *a, trz_addr address, struct live *l);

/* Ends being busy with a block, and stores what has changed. */
void world_give(struct world *w, const struct live *l);

/* Removes a block from the shadow map and the sums, before the heap may give it to somebody else. */
void world_drop(struct world *w, const struct live *l);

/* Adds what the heap has given to the shadow map, stamps it on its stream if that has been entered, and leaves it busy
 * in *l. `pool`: the id of the pool that it must be from. */
const char *world_receive(struct actor *a, void *p, const struct live *asked, uint64_t alignment, unsigned pool,
                          struct live *l);

/* The same, without the stamp, for any stream. */
const char *world_accept(struct actor *a, void *p, const struct live *asked, uint64_t alignment, unsigned pool,
                         struct live *l);

/* Checks that a refusal is a legal one. */
const char *world_refused(struct actor *a, trz_status status, const void *p);

const char *world_stamp(struct actor *a, struct live *l, unsigned stream);
const char *world_verify(struct actor *a, const struct live *l, unsigned stream);

/* Updates the sums of what callers hold. */
void world_hold(struct world *w, const struct live *l, uint64_t sign);

/* Whether a call of the heap may fail like this, since failures are injected. */
bool world_tolerates(const struct world *w, trz_status status);

/* Injects failures into driver calls, at random, until world_disarm. */
void world_arm(struct actor *a);
void world_disarm(struct actor *a);

/* ---- world_watch.c ---- */

void world_watch(struct world *w);

/* Checks that the heap has said that there is memory. */
const char *world_check_registered(struct world *w, trz_addr address, uint64_t size);

/* ---- world_disturb.c ---- */

/* Whether a world's actors are stopped, which takes longer; stops them now and then, from now on; and lets them be. */
bool world_is_disturbed(const struct world *w);
void world_disturb(struct world *w);
void world_calm(struct world *w);

/* ---- world_uses.c ---- */

uint64_t world_random_size(struct actor *a);
const char *world_allocate(struct actor *a);

/* On a stream that has been entered. */
const char *world_allocate_on(struct actor *a, uint64_t size, unsigned stream);
const char *world_free_any(struct actor *a);
const char *world_free_one(struct actor *a, struct live *l, bool *done);

/* Frees a busy block in the order of its stream, which has been entered, or is about to be captured. */
const char *world_free_here(struct actor *a, struct live *l);
const char *world_free_elsewhere(struct actor *a);
const char *world_free_in_callback(struct actor *a);

/* Frees what host functions that will never run have been given. */
void world_forget_parcels(struct world *w);
const char *world_lend(struct actor *a);
const char *world_share(struct actor *a);
const char *world_use_with_foreign_lock(struct actor *a);
const char *world_replace_stream(struct actor *a);

/* Makes all blocks of a stream busy, or none, if an actor is busy with one; ends that, and gives them to `to`. */
bool world_take_all_of(struct world *w, unsigned stream);
void world_pass_on(struct world *w, unsigned stream, unsigned to);

/* ---- world_order.c ---- */

/* Makes the work that `to` gets from now on wait for the work that `from` has. */
const char *world_order(struct world *w, unsigned from, unsigned to);

/* Records a mark, an event that is NULL at first, where a stream is now; makes the work that a stream gets from now on
 * wait for a mark, if there is one; and ends a mark. */
const char *world_mark(struct world *w, unsigned stream, trz_event *mark);
const char *world_follow(struct world *w, trz_event mark, unsigned stream);
const char *world_end_mark(struct world *w, trz_event *mark);

const char *world_signal(struct actor *a);
const char *world_heed(struct actor *a);
const char *world_signal_abroad(struct actor *a);
const char *world_ask_signal(struct actor *a);
const char *world_replace_signal(struct actor *a);
const char *world_open_signals(struct world *w);
const char *world_end_signals(struct world *w);

/* ---- world_pool.c ---- */

/* Notes that a stream uses a pool's memory; in the actor's capture, or outside. */
void world_note_user(struct actor *a, unsigned pool, unsigned stream);

/* Notes that a stream waits for work of another one. */
void world_note_wait(struct world *w, unsigned stream);

/* The number of the actor that has the pool; 0: none any more. */
unsigned world_owner_of(struct world *w, unsigned pool);

/* The actor's pool with this id; NULL: it has none. */
struct world_pool *world_own_pool(struct actor *a, unsigned pool);

/* The id of the pool that an allocation on the stream must come from, or 0. */
unsigned world_expected_pool(struct actor *a, unsigned stream);

/* The id of the pool that an address comes from, as the heap says. */
unsigned world_pool_of(struct world *w, trz_addr address);

const char *world_make_pool(struct actor *a);

/* Makes a pool in this place, unless there is one. */
const char *world_make_pool_in(struct actor *a, struct world_pool *p);
const char *world_drop_pool(struct actor *a);
const char *world_drop_one(struct actor *a, struct world_pool *p);
const char *world_allocate_from_pool(struct actor *a);

/* Allocates from a pool, on a stream that has been entered or is about to be captured. */
const char *world_pool_alloc(struct actor *a, struct world_pool *p, uint64_t size, unsigned stream);
const char *world_divert(struct actor *a);
const char *world_undivert(struct actor *a);
const char *world_checkpoint(struct actor *a);
const char *world_restore(struct actor *a);
void world_forget_note(struct world_pool *p);

/* Drops a reference; the last one frees the pool's place. */
const char *world_pool_release(struct actor *a, struct world_pool *p);

/* ---- world_graph.c ---- */

const char *world_begin_capture(struct actor *a);
const char *world_begin_capture_in(struct actor *a, struct world_pool *p);
const char *world_capture_step(struct actor *a);
const char *world_set_aside(struct actor *a);
const char *world_capture_two(struct actor *a);

/* The actor's capture has ended: others may use its streams. */
void world_unlock_lanes(struct actor *a);
const char *world_end_capture(struct actor *a);
const char *world_capture_at_once(struct actor *a);
const char *world_capture_series(struct actor *a);
const char *world_launch(struct actor *a);

/* Whether the pool has a graph other than `own` whose capture was among the first `begun`: it may use memory that was
 * allocated since as its own. */
bool world_may_be_overwritten(const struct actor *a, const struct world_pool *p, const struct world_graph *own,
                              unsigned begun);

/* Whether the actor captures into the pool; and whether it captures at all. */
bool world_captures_into(const struct actor *a, const struct world_pool *p);
bool world_captures(const struct actor *a);
const char *world_destroy_graph(struct actor *a);
const char *world_destroy_one(struct actor *a, struct world_graph *g);

/* ---- world_share.c ---- */

const char *world_allocate_dedicated(struct actor *a);
const char *world_allocate_at(struct actor *a);
const char *world_grow(struct actor *a);
const char *world_grow_one(struct actor *a, struct live *l);

/* Grows a busy block, if its stream may do that, on its stream, which has been entered or is about to be captured. */
const char *world_grow_here(struct actor *a, struct live *l);
const char *world_free_after(struct actor *a);
const char *world_export(struct actor *a);
const char *world_end_export(struct actor *a);
const char *world_end_one_export(struct actor *a, struct world_export *e);

/* Whether the other process has got a tile that is mapped in the range. */
bool world_is_exported(struct world *w, trz_addr address, uint64_t size);
const char *world_enable_peer(struct actor *a);
const char *world_read_by_peer(struct actor *a);

/* ---- world_rare.c ---- */

const char *world_crowd(struct actor *a);
const char *world_visit(struct actor *a);
const char *world_fork(struct actor *a);
const char *world_replace_context(struct actor *a);

/* The device has been lost: each actor ends what it has begun; then all is freed, and the heap closed. */
const char *world_abandon(struct actor *a, uint64_t arg);
const char *world_end_dead(struct world *w);

/* ---- world_actions.c ---- */

/* The host waits for a stream that has been entered. */
const char *world_await(struct actor *a, unsigned stream);

/* One event, without the checks. */
const char *world_act(struct actor *a);

/* Asks the heap something in some events, in world_ask.c. */
const char *world_ask(struct actor *a);

#endif
