/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule: which stream runs its next item, which work runs when the host blocks, and deadlocks.
 *
 * Nothing runs by itself. sim_run and sim_tick run what the schedule picks; a host that blocks runs at least the work
 * that it waits for, even of a starved stream.
 */
#include "sim_machine.h"

#include <time.h>

#include "bits.h"
#include "prng.h"
#include "uncancelled.h"

bool sim_passed(const struct sim_stream *st, uint64_t sequence)
{
	return st->completed >= sequence;
}

void sim_complete(sim *s, struct sim_stream *st)
{
	sim_work_drop(sim_head(st));
	st->completed++;
	s->unfinished--;
	if (st->completed < st->enqueued)
		return;
	struct sim_stream *last = s->active[--s->active_count];
	s->active[st->active_index] = last;
	last->active_index = st->active_index;
}

/* A head is not ready while what it waits for has not come, while it spins or sleeps, or while its host function
 * runs. */
static bool is_ready(const sim *s, const struct sim_stream *st)
{
	const struct sim_work *w = sim_head(st);
	if (st->runner)
		return false;
	if (w->kind == SIM_WORK_WAIT)
		return sim_passed(w->other, w->sequence);
	if (w->kind == SIM_WORK_SPIN)
		return sim_value_ready(s, w);
	if (w->kind == SIM_WORK_SLEEP)
		return w->size == 0;
	return w->kind != SIM_WORK_MEET || sim_meet_ready(w);
}

/* A thread that has been woken no longer counts as waiting, although it may not run yet. */
void sim_progress(sim *s)
{
	struct sim_thread *t;
	LIST_FOREACH(t, &s->threads, link)
		t->waiting = false;
	pthread_cond_broadcast(&s->progress);
}

static void run_host_function(sim *s, struct sim_stream *st)
{
	struct sim_work work = *sim_head(st);
	uint64_t sequence = st->completed;
	st->runner = sim_thread_here(s);
	st->runner->called_back++;
	pthread_mutex_unlock(&s->lock);
	work.fn(work.arg);
	pthread_mutex_lock(&s->lock);
	st->runner->called_back--;
	st->runner = NULL;
	if (st->completed == sequence)  /* else its device has died meanwhile */
		sim_complete(s, st);
	sim_progress(s);
}

/* Virtual time: an item starts when it has been issued, its stream is free, and what it waits for has ended. */
static void pass_time(struct sim_stream *st, const struct sim_work *w)
{
	st->now_ns = max_u64(st->now_ns, w->issued_ns);
	if (w->kind == SIM_WORK_WAIT)
		st->now_ns = max_u64(st->now_ns, w->other->now_ns);
	st->now_ns += w->cost_ns;
	if (st->blocking)
		st->context->blocking_ns = max_u64(st->context->blocking_ns, st->now_ns);
}

static void run_head(sim *s, struct sim_stream *st)
{
	const struct sim_work *w = sim_head(st);
	sim_overlap_enter(s, st, w);
	if (w->kind != SIM_WORK_MEET || sim_meet_pending(w))
		pass_time(st, w);
	if (w->kind == SIM_WORK_HOST) {
		run_host_function(s, st);
		return;
	}
	if (w->kind == SIM_WORK_MEET) {
		if (!sim_meet_run(s, st, w))
			return;
	} else if (w->kind != SIM_WORK_WAIT) {
		uint64_t sequence = st->completed;
		sim_work_execute(s, st, w);
		if (st->completed != sequence)  /* an illegal access has killed the device */
			return;
	}
	if (w->kind == SIM_WORK_WAIT)
		sim_overlap_waited(st, w->other, w->sequence);
	sim_complete(s, st);
}

/* The starved stream changes now and then, so that every backlog ends. */
static const struct sim_stream *starved_stream(sim *s)
{
	if (s->config.schedule != SIM_STARVE)
		return NULL;
	if (s->active_count > 0 && (!s->starved || prng_below(&s->schedule_seed, 64) == 0))
		s->starved = s->active[prng_below(&s->schedule_seed, s->active_count)];
	return s->starved;
}

/* Whether `a` goes before `b` under FIFO or LIFO. */
static bool goes_first(sim_schedule schedule, const struct sim_stream *a, const struct sim_stream *b)
{
	return schedule == SIM_FIFO ? sim_head(a)->order < sim_head(b)->order : a->last_order > b->last_order;
}

/* A ready stream whose head was enqueued before `tick`; NULL: none. */
static struct sim_stream *pick(sim *s, uint64_t tick, bool starve)
{
	sim_schedule schedule = s->config.schedule;
	const struct sim_stream *spared = starve ? starved_stream(s) : NULL;
	struct sim_stream *best = NULL;
	uint64_t seen = 0;
	for (size_t i = 0; i < s->active_count; i++) {
		struct sim_stream *st = s->active[i];
		if (st == spared || sim_head(st)->tick >= tick || !is_ready(s, st))
			continue;
		seen++;
		if (!best)
			best = st;
		else if (schedule == SIM_FIFO || schedule == SIM_LIFO)
			best = goes_first(schedule, st, best) ? st : best;
		else if (prng_below(&s->schedule_seed, seen) == 0)
			best = st;
	}
	return best;
}

/* ---- running -------------------------------------------------------------------------------------- */

static uint64_t run_items(sim *s, uint64_t items, bool starve)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	uint64_t ran = 0;
	struct sim_stream *st;
	while (ran < items && (st = pick(s, UINT64_MAX, starve))) {
		run_head(s, st);
		ran++;
	}
	sim_leave(&call);
	return ran;
}

uint64_t sim_run(sim *s, uint64_t items)
{
	return run_items(s, items, true);
}

uint64_t sim_nudge(sim *s, uint64_t items)
{
	return run_items(s, items, false);
}

void sim_tick(sim *s, uint64_t lag)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	s->tick++;
	uint64_t due = s->tick > lag ? s->tick - lag : 0;
	struct sim_stream *st;
	while ((st = pick(s, due, true)))
		run_head(s, st);
	sim_leave(&call);
}

/* ---- blocking ------------------------------------------------------------------------------------- */

/* Waits while another thread runs a host function, unless that waits for one itself; false: no progress is possible. */
static bool await_other_threads(sim *s)
{
	struct sim_thread *here = sim_thread_here(s);
	bool possible = false;
	for (size_t i = 0; i < s->active_count; i++) {
		const struct sim_thread *runner = s->active[i]->runner;
		possible = possible || (runner && runner != here && !runner->waiting);
	}
	if (!possible)
		return false;
	int cancel = uncancelled_begin();
	here->waiting = true;
	while (here->waiting)
		pthread_cond_wait(&s->progress, &s->lock);
	uncancelled_end(cancel);
	return true;
}

/* Waits while a stream awaits others in a meeting, first of all the needed stream, which the host then counts as
 * waiting for; false: none does. Who makes meetings reports those that nobody comes to. */
static bool await_others(sim *s, const struct sim_stream *needed, uint32_t mark)
{
	for (size_t i = 0; i <= s->active_count; i++) {
		const struct sim_stream *st = i == 0 ? needed : s->active[i - 1];
		const struct sim_work *w = sim_head(st);
		if (st->completed == st->enqueued || w->kind != SIM_WORK_MEET)
			continue;
		sim_meet_wait(s, w, mark);
		return true;
	}
	return false;
}

/* Waits a moment for a value that another thread may write; false: the needed stream waits for none, or nobody has.
 * `looks`: so far, since an item has run. */
static bool await_value(sim *s, const struct sim_stream *needed, unsigned *looks)
{
	enum { MOST_LOOKS = 50000 };
	const struct timespec a_moment = {.tv_nsec = 200000};
	const struct sim_work *w = sim_head(needed);
	if (needed->completed == needed->enqueued || w->kind != SIM_WORK_SPIN || w->flag || (*looks)++ >= MOST_LOOKS)
		return false;
	pthread_mutex_unlock(&s->lock);
	int cancel = uncancelled_begin();
	nanosleep(&a_moment, NULL);
	uncancelled_end(cancel);
	pthread_mutex_lock(&s->lock);
	return true;
}

/* Follows the waits from `st` to the stream whose head can run, or that stops everything. */
static struct sim_stream *needed_for(const sim *s, struct sim_stream *st)
{
	while (!st->runner && !is_ready(s, st) && sim_head(st)->kind == SIM_WORK_WAIT)
		st = sim_head(st)->other;
	return st;
}

/* The sleep at the head of `st` has so many questions less to go, or none. */
static void pass_sleep(struct sim_stream *st, uint64_t questions)
{
	struct sim_work *w = sim_head(st);
	if (st->completed < st->enqueued && w->kind == SIM_WORK_SLEEP)
		w->size -= min_u64(w->size, questions);
}

void sim_doze(sim *s, struct sim_stream *st)
{
	pass_sleep(needed_for(s, st), 1);
}

void sim_wake(sim *s)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	for (size_t i = 0; i < s->active_count; i++)
		pass_sleep(s->active[i], UINT64_MAX);
	sim_leave(&call);
}

/* Runs one item on the way to what the host waits for; false: a deadlock. LIFO and STARVE run only the needed item,
 * RANDOM mixes others in, FIFO keeps to its order. */
static bool step_towards(sim *s, struct sim_stream *target, unsigned *looks)
{
	sim_schedule schedule = s->config.schedule;
	uint32_t mark = s->mark ? s->mark() : 0;
	bool others = schedule == SIM_FIFO || (schedule == SIM_RANDOM && (prng_next(&s->schedule_seed) & 1));
	struct sim_stream *st = others ? pick(s, UINT64_MAX, false) : NULL;
	if (!st)
		st = needed_for(s, target);
	pass_sleep(st, UINT64_MAX);
	if (!is_ready(s, st))
		st = pick(s, UINT64_MAX, false);
	if (!st)
		return await_other_threads(s) || await_others(s, needed_for(s, target), mark) ||
		       await_value(s, needed_for(s, target), looks);
	*looks = 0;
	run_head(s, st);
	return true;
}

trz_status sim_block(sim *s, struct sim_stream *st, uint64_t sequence)
{
	unsigned looks = 0;
	while (!sim_passed(st, sequence)) {
		if (step_towards(s, st, &looks))
			continue;
		const struct sim_stream *stuck = needed_for(s, st);
		return sim_violate(s, TRZ_ERROR_DRIVER,
		                   "deadlock: the host blocks on stream %llu, and stream %llu %s",
		                   (unsigned long long)st->id, (unsigned long long)stuck->id,
		                   stuck->runner ? "runs the host function that blocks"
		                                 : "spins on a flag that nothing left sets");
	}
	return sim_device_check(s, st->context->device);
}

trz_status sim_drain(sim *s, int device)
{
	uint64_t limit = s->order;
	for (;;) {
		struct sim_stream *oldest = NULL;
		for (size_t i = 0; i < s->active_count; i++) {
			struct sim_stream *st = s->active[i];
			if (st->context->device == device && sim_head(st)->order < limit &&
			    (!oldest || sim_head(st)->order < sim_head(oldest)->order))
				oldest = st;
		}
		if (!oldest)
			return sim_device_check(s, device);
		trz_status status = sim_block(s, oldest, oldest->completed + 1);
		if (status != TRZ_OK)
			return status;
	}
}

trz_status sim_stream_sync(sim *s, trz_context c, trz_stream stream)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	struct sim_stream *st = NULL;
	call.status = sim_stream_find(s, c, stream, &st);
	if (call.status == TRZ_OK)
		call.status = sim_capture_sync(s, st->context->device, st);
	uint64_t sequence = st ? st->enqueued : 0;
	if (call.status == TRZ_OK)
		call.status = sim_block(s, st, sequence);
	if (call.status == TRZ_OK)
		sim_overlap_seen(st, sequence);
	return sim_leave(&call);
}

/* The host has seen all work of the device complete. */
static void settle_device(sim *s, int device)
{
	struct sim_stream *st;
	LIST_FOREACH(st, &s->all_streams, link)
		if (st->context->device == device)
			sim_overlap_edge(st, st->completed);
}

trz_status sim_device_sync(sim *s, int device)
{
	struct sim_call call = sim_enter(s, SIM_SLOTS);
	if (device < 0 || device >= s->config.devices)
		call.status = sim_refuse(s, TRZ_ERROR_NO_DEVICE, "there is no device %d", device);
	else
		call.status = sim_capture_sync(s, device, NULL);
	if (call.status == TRZ_OK)
		call.status = sim_drain(s, device);
	if (call.status == TRZ_OK)
		settle_device(s, device);
	return sim_leave(&call);
}
