/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for other ranks, and what can go wrong: ranks disagree, are gone, or wait for each other.
 *
 * A host that blocks says in the hall what it waits for, again every TICK_MS. To find processes that wait for one
 * another, we start from all that block and take away, again and again, each that waits only for processes that may
 * still come; what is left is stuck. A process that is merely slow does not block, and nothing is said of it.
 */
#include "nccl.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 100, RECENT_MS = 1000, STUCK_MS = 2000, SUSPICION_MS = 3000, LONG_TEXT = 8192 };

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- words ------------------------------------------------------------ */

struct text {
	size_t used;
	char text[LONG_TEXT];
};

__attribute__((format(printf, 2, 3))) static void say(struct text *t, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int length = vsnprintf(t->text + t->used, sizeof t->text - t->used, format, args);
	va_end(args);
	t->used += length > 0 ? (size_t)length : 0;
	if (t->used >= sizeof t->text)
		t->used = sizeof t->text - 1;
}

static const char *kind_name(int kind)
{
	static const char *const names[] = {
#define KIND_NAME(kind, name) name,
		STANDIN_KINDS(KIND_NAME)
#undef KIND_NAME
		"split",
	};
	return names[kind];
}

void nccl_describe(const struct call *c, char *text, size_t size)
{
	static const char *const types[] = { "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32",
		                                 "float64", "bfloat16", "float8_e4m3", "float8_e5m2" };
	static const char *const operations[] = { "sum", "product", "maximum", "minimum", "average", "scaled sum" };
	int used = snprintf(text, size, "%s", kind_name(c->kind));
	if (c->kind == SPLIT)
		return;
	used += snprintf(text + used, size - (size_t)used, " of %llu %s", (unsigned long long)c->count, types[c->type]);
	if (c->kind <= STANDIN_REDUCE_SCATTER)
		used += snprintf(text + used, size - (size_t)used, ", %s", operations[c->operation]);
	if (c->kind == STANDIN_SEND || c->kind == STANDIN_RECEIVE)
		snprintf(text + used, size - (size_t)used, c->kind == STANDIN_SEND ? " to rank %d" : " from rank %d", c->root);
	else if (c->kind == STANDIN_REDUCE || c->kind == STANDIN_BROADCAST || c->kind == STANDIN_GATHER ||
	         c->kind == STANDIN_SCATTER)
		snprintf(text + used, size - (size_t)used, ", root %d", c->root);
}

/* Says the frames of a place, one to a line, indented. */
static void say_place(struct text *t, const char *place)
{
	while (*place) {
		size_t length = strcspn(place, "\n");
		say(t, "      %.*s\n", (int)length, place);
		place += length + (place[length] == '\n');
	}
}

static void say_rank(struct text *t, const struct shared_comm *shared, int rank)
{
	const struct process *p = &hall->process[shared->member[rank].process];
	say(t, "rank %d", rank);
	if (!(shared->joined >> rank & 1)) {
		say(t, " (not there yet)");
		return;
	}
	if (p->world_rank >= 0 && p->world_rank != rank)
		say(t, " (rank %d of the world, pid %d)", p->world_rank, p->pid);
	else
		say(t, " (pid %d)", p->pid);
}

static void say_call(struct text *t, const struct shared_comm *shared, int rank, const struct call *call)
{
	char what[200];
	nccl_describe(call, what, sizeof what);
	say(t, "  ");
	say_rank(t, shared, rank);
	say(t, ": %s\n", what);
	say_place(t, call->place);
}

/* The innermost frame of a place, as the end of a sentence. */
static void at_place(const char *place, char *text, size_t size)
{
	size_t length = strcspn(place, "\n");
	snprintf(text, size, "%s%.*s", length ? " at " : "", (int)length, place);
}

/* Gives all ranks of the communicator `text` as their error, and prints `more`, unless NULL, once. Each process says
 * one of the two. */
static void fail(struct shared_comm *shared, const char *text, const struct text *more)
{
	if (shared->failed)
		return;
	shared->failed = true;
	snprintf(shared->failure, sizeof shared->failure, "%s", text);
	for (int r = 0; r < shared->ranks; r++)
		if (shared->joined >> r & 1 && !(shared->gone >> r & 1))
			hall->process[shared->member[r].process].failing = true;
	if (more) {
		fprintf(stderr, "terrazzo: %s", more->text);
		fflush(stderr);
		if (trz_lookalike_told)
			trz_lookalike_told();
	}
	hall_changed();
}

void nccl_end(struct shared_comm *shared, const char *text)
{
	fail(shared, text, NULL);
}

void nccl_disagree(struct shared_comm *shared, const struct call *a, int rank_a, const struct call *b, int rank_b,
                   const char *what)
{
	struct text more = { 0 };
	char first[160], second[160], text[FAILURE_BYTES];
	nccl_describe(a, first, sizeof first);
	nccl_describe(b, second, sizeof second);
	snprintf(text, sizeof text, "ranks disagree on the %s of collective %llu of a communicator of %d: rank %d calls "
	         "%.120s, rank %d %.120s", what, (unsigned long long)a->sequence, shared->ranks, rank_a, first,
	         rank_b, second);
	say(&more, "ranks disagree on the %s of collective %llu of a communicator of %d\n", what,
	    (unsigned long long)a->sequence, shared->ranks);
	say_call(&more, shared, rank_a, a);
	say_call(&more, shared, rank_b, b);
	fail(shared, text, &more);
}

/* ---- what is waited for ------------------------------------------------------------ */

static struct shared_comm *comm_of(const struct waiting *w)
{
	struct shared_comm *shared = &hall->comm[w->place];
	return shared->number == w->comm ? shared : NULL;
}

static uint64_t all_of(const struct shared_comm *shared)
{
	return UINT64_MAX >> (64 - shared->ranks);
}

static const struct letter *letter_of(const struct waiting *w)
{
	int from = w->receives ? w->peer : w->rank, to = w->receives ? w->rank : w->peer;
	for (int i = 0; i < hall->letters; i++) {
		const struct letter *l = &hall->letter[i];
		if (l->comm == w->comm && l->from == from && l->to == to && l->index == w->index)
			return l;
	}
	return NULL;
}

/* The ranks that have not come. */
static uint64_t missing(const struct waiting *w)
{
	const struct shared_comm *shared = comm_of(w);
	if (!shared || shared->failed)
		return 0;
	if (w->peer >= 0) {
		const struct letter *l = letter_of(w);
		bool there = l && (w->receives ? l->sent : l->received);
		return there ? 0 : 1ull << w->peer;
	}
	if (!w->sequence)
		return all_of(shared) & ~shared->joined;
	const struct table *t = &shared->ring[w->sequence % RING];
	if (t->sequence > w->sequence || t->ended >= w->sequence)
		return 0;
	return t->sequence == w->sequence ? all_of(shared) & ~t->arrived : all_of(shared);
}

bool nccl_is_over(const struct waiting *w)
{
	return missing(w) == 0;
}

/* Fails the communicator if a missing rank will never come. */
static void look_for_the_gone(const struct waiting *w)
{
	struct shared_comm *shared = comm_of(w);
	uint64_t ranks = missing(w);
	for (int r = 0; shared && r < shared->ranks; r++) {
		bool joined = shared->joined >> r & 1, gone = shared->gone >> r & 1;
		if (!(ranks >> r & 1) || !joined || r == w->rank || (!gone && hall_is_alive(shared->member[r].process)))
			continue;
		struct text who = { 0 }, more = { 0 };
		char what[160], where[200], text[FAILURE_BYTES];
		say_rank(&who, shared, r);
		nccl_describe(&w->call, what, sizeof what);
		at_place(w->call.place, where, sizeof where);
		const char *how = gone ? "has left the communicator" : "has ended";
		snprintf(text, sizeof text, "%.80s %s, for which rank %d of %d waits in %.120s%.120s", who.text, how, w->rank,
		         shared->ranks, what, where);
		say(&more, "%s %s, and others wait for it\n", who.text, how);
		say_call(&more, shared, w->rank, &w->call);
		bool has_been_told = !gone && hall->process[shared->member[r].process].failing;
		fail(shared, text, has_been_told ? NULL : &more);
		return;
	}
}

void nccl_look_for_unreceived(struct comm *c, char *text, size_t size)
{
	for (int i = 0; i < hall->letters && !c->shared->failed; i++) {
		const struct letter *l = &hall->letter[i];
		bool for_none = l->to == c->rank || (l->from == c->rank && c->shared->gone >> l->to & 1);
		if (l->comm != c->number || !for_none || !l->sent || l->received)
			continue;
		struct text more = { 0 };
		char what[160];
		nccl_describe(&l->send.call, what, sizeof what);
		snprintf(text, size, "rank %d has left a communicator of %d and has not received what rank %d sends: %s",
		         l->to, c->ranks, l->from, what);
		say(&more, "rank %d has left a communicator of %d and has not received a message\n", l->to, c->ranks);
		say_call(&more, c->shared, l->from, &l->send.call);
		fail(c->shared, text, &more);
	}
}

/* ---- those that wait for each other ------------------------------------------------------------ */

/* Which processes are stuck, and how many live and block. */
struct blocked {
	bool stuck[MOST_PROCESSES];
	int live, blocking;
	bool all_there;              /* every process of the world is in the hall, and blocks */
};

static bool is_recent(const struct waiting *w, int64_t now)
{
	return w->active && now - w->seen_ms < RECENT_MS && now - w->since_ms >= STUCK_MS && !nccl_is_over(w);
}

/* Whether a process that this one waits for is stuck. */
static bool waits_for_stuck(const struct blocked *b, int process, int64_t now)
{
	for (int i = 0; i < MOST_WAITS; i++) {
		const struct waiting *w = &hall->process[process].waiting[i];
		const struct shared_comm *shared = is_recent(w, now) ? comm_of(w) : NULL;
		uint64_t ranks = shared ? missing(w) : 0;
		for (int r = 0; shared && r < shared->ranks; r++) {
			if (!(ranks >> r & 1))
				continue;
			bool joined = shared->joined >> r & 1;
			if (joined ? shared->member[r].process != process && b->stuck[shared->member[r].process] : b->all_there)
				return true;
		}
	}
	return false;
}

static void find_stuck(struct blocked *b, int64_t now)
{
	const char *world = getenv("WORLD_SIZE");
	*b = (struct blocked){ .live = 0 };
	for (int p = 0; p < hall->processes; p++) {
		if (!hall->process[p].pid || !hall_is_alive(p))
			continue;
		b->live++;
		for (int i = 0; i < MOST_WAITS; i++)
			b->stuck[p] = b->stuck[p] || is_recent(&hall->process[p].waiting[i], now);
		b->blocking += b->stuck[p];
	}
	b->all_there = world && atoi(world) > 0 && b->live >= atoi(world) && b->blocking == b->live;
	for (bool changed = true; changed;) {
		changed = false;
		for (int p = 0; p < hall->processes; p++)
			if (b->stuck[p] && !waits_for_stuck(b, p, now)) {
				b->stuck[p] = false;
				changed = true;
			}
	}
}

/* "rank 0 of 2 waits in all_reduce of 8 float32, sum, for rank 1" and its place. */
static void say_wait(struct text *t, const struct waiting *w)
{
	char what[160];
	const struct shared_comm *shared = comm_of(w);
	uint64_t ranks = missing(w);
	nccl_describe(&w->call, what, sizeof what);
	say(t, "  ");
	say_rank(t, shared, w->rank);
	if (w->peer < 0 && w->sequence)
		say(t, " waits in %s, number %llu of its communicator of %d, for", what, (unsigned long long)w->sequence,
		    shared->ranks);
	else
		say(t, " waits in %s, in a communicator of %d, for", w->sequence || w->peer >= 0 ? what : "its beginning",
		    shared->ranks);
	for (int r = 0; r < shared->ranks; r++)
		if (ranks >> r & 1) {
			say(t, " ");
			say_rank(t, shared, r);
		}
	say(t, "\n");
	say_place(t, w->call.place);
}

/* Whether all stuck hosts have repeated their waits since the suspicion: on a busy machine an old wait may be over. */
static bool is_confirmed(const struct blocked *b, int64_t now)
{
	for (int p = 0; p < hall->processes; p++)
		for (int i = 0; b->stuck[p] && i < MOST_WAITS; i++)
			if (is_recent(&hall->process[p].waiting[i], now) &&
			    hall->process[p].waiting[i].seen_ms <= hall->suspected_ms)
				return false;
	return true;
}

static void look_for_deadlock(const struct waiting *w)
{
	struct blocked b;
	int64_t now = now_ms();
	find_stuck(&b, now);
	if (!b.stuck[hall_process])
		return;
	if (!hall->suspected_ms || now - hall->suspected_ms > SUSPICION_MS)
		hall->suspected_ms = now;
	if (!is_confirmed(&b, now))
		return;
	struct text more = { 0 };
	char text[FAILURE_BYTES], what[160], where[160];
	nccl_describe(&w->call, what, sizeof what);
	at_place(w->call.place, where, sizeof where);
	say(&more, "deadlock: ranks wait for each other\n");
	snprintf(text, sizeof text, "deadlock: ranks wait for each other, rank %d of a communicator of %d in %s%s", w->rank,
	         hall->comm[w->place].ranks, what, where);
	for (int p = 0; p < hall->processes; p++)
		for (int i = 0; b.stuck[p] && i < MOST_WAITS; i++)
			if (is_recent(&hall->process[p].waiting[i], now))
				say_wait(&more, &hall->process[p].waiting[i]);
	const struct text *once = &more;
	for (int p = 0; p < hall->processes; p++)
		for (int i = 0; b.stuck[p] && i < MOST_WAITS; i++)
			if (is_recent(&hall->process[p].waiting[i], now)) {
				fail(&hall->comm[hall->process[p].waiting[i].place], text, once);
				once = NULL;
			}
}

static void look_at_the_clock(const struct waiting *w, int64_t since_ms)
{
	int64_t limit = (int64_t)trz_lookalike_timeout();
	struct shared_comm *shared = comm_of(w);
	if (!shared || limit == 0 || now_ms() - since_ms < limit * 1000)
		return;
	struct text more = { 0 };
	char text[FAILURE_BYTES], what[160];
	nccl_describe(&w->call, what, sizeof what);
	snprintf(text, sizeof text, "rank %d of a communicator of %d has waited for %" PRId64 " s (--timeout) in %s",
	         w->rank, shared->ranks, limit, what);
	say(&more, "no one has come for %" PRId64 " s (--timeout)\n", limit);
	say_wait(&more, w);
	fail(shared, text, &more);
}

/* ---- waiting ------------------------------------------------------------ */

static void futex_wait(uint32_t mark, int ms)
{
	const struct timespec limit = { ms / 1000, (long)(ms % 1000) * 1000000 };
	syscall(SYS_futex, &hall->change, FUTEX_WAIT, mark, &limit, NULL, 0);
}

static bool is_same(const struct waiting *a, const struct waiting *b)
{
	return a->active && a->comm == b->comm && a->rank == b->rank && a->peer == b->peer && a->sequence == b->sequence &&
	       a->index == b->index && a->receives == b->receives;
}

/* Says in the hall what this host waits for; returns the entry, which tells since when. */
static struct waiting *publish(const struct waiting *w)
{
	struct waiting *list = hall->process[hall_process].waiting, *entry = &list[0];
	for (int i = 0; i < MOST_WAITS; i++) {
		if (is_same(&list[i], w)) {
			list[i].seen_ms = now_ms();
			return &list[i];
		}
		if (list[i].seen_ms < entry->seen_ms)
			entry = &list[i];
	}
	*entry = *w;
	entry->active = true;
	entry->since_ms = entry->seen_ms = now_ms();
	return entry;
}

void nccl_wait(const struct waiting *w, uint32_t mark)
{
	__atomic_store_n(&hall->blocked_ms, now_ms(), __ATOMIC_RELAXED);
	hall_lock();
	int64_t since = publish(w)->since_ms;
	hall_unlock();
	futex_wait(mark, TICK_MS);
	if (__atomic_load_n(&hall->change, __ATOMIC_ACQUIRE) != mark)
		return;
	hall_lock();
	if (!nccl_is_over(w))
		look_for_the_gone(w);
	if (!nccl_is_over(w))
		look_for_deadlock(w);
	if (!nccl_is_over(w))
		look_at_the_clock(w, since);
	hall_unlock();
}

/* ---- the thread that lets streams go on ------------------------------------------------------------ */

static void *go_on(void *unused)
{
	(void)unused;
	while (hall) {
		uint32_t mark = __atomic_load_n(&hall->change, __ATOMIC_ACQUIRE);
		bool push = now_ms() - __atomic_load_n(&hall->blocked_ms, __ATOMIC_RELAXED) < RECENT_MS;
		if (trz_lookalike_progress && trz_lookalike_progress(push) > 0 && push)
			continue;
		futex_wait(mark, TICK_MS);
		nccl_watch();
	}
	return NULL;
}

void nccl_start_progress(void)
{
	pthread_t thread;
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&thread, NULL, go_on, NULL) == 0)
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void nccl_watch_one(const struct waiting *w)
{
	hall_lock();
	if (!nccl_is_over(w))
		look_for_the_gone(w);
	hall_unlock();
}
