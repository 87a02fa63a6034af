/* SPDX-License-Identifier: Apache-2.0
 *
 * What collectives do on their streams. A gathering is one item of a stream: parts that end together, which are
 * messages, and collectives of different communicators. When the stream gets there, the rank brings its bytes, and its
 * call is compared with the first rank's; when all have come, it takes what it is to receive.
 *
 * Up to nccl_real_bytes() a rank, real bytes move. A message of up to that size leaves its sender at once, as if into
 * NCCL's own buffers; a larger one waits for its receiver.
 *
 * A captured gathering is a model: each launch of the graph makes a gathering of it, whose parts get the next numbers
 * then. So ranks agree if they issue graphs and other collectives in the same order.
 */
#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Those that have arrived and are not complete are in a list, which go_on() looks through. */
struct gathering {
	struct gathering *next;
	bool arrived, captured;
	size_t count;
	struct part parts[];
};

static struct {
	pthread_mutex_t lock;        /* the machine's comes before it, the hall's after */
	struct gathering *first;
} pending = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool is_letter(const struct part *p)
{
	return p->call.kind == STANDIN_SEND || p->call.kind == STANDIN_RECEIVE;
}

static bool has_failed(const struct part *p)
{
	return p->comm->shared && __atomic_load_n(&p->comm->shared->failed, __ATOMIC_ACQUIRE);
}

static struct table *place_of(const struct part *p)
{
	return &p->comm->shared->ring[p->call.sequence % RING];
}

/* ---- tables, with the hall's lock ------------------------------------------------------------ */

struct table *nccl_table(struct shared_comm *shared, uint64_t sequence)
{
	struct table *t = &shared->ring[sequence % RING];
	if (t->sequence && t->sequence != sequence)
		return NULL;
	if (!t->sequence) {
		t->arrived = t->left = 0;
		t->first = -1;
		t->sequence = sequence;
	}
	return t;
}

/* In what the calls of two ranks differ though they must not; NULL: in nothing. */
static const char *difference(const struct call *a, const struct call *b)
{
	if (a->kind != b->kind)
		return "kind";
	if (a->kind == SPLIT)
		return NULL;
	if (a->type != b->type)
		return "type";
	if (a->count != b->count)
		return "count";
	if (a->kind <= STANDIN_REDUCE_SCATTER && a->operation != b->operation)
		return "operation";
	return a->root != b->root ? "root" : NULL;
}

struct arrival *nccl_arrive(struct comm *c, struct table *t, const struct call *call)
{
	struct arrival *a = &t->arrival[c->rank];
	*a = (struct arrival){ .call = *call };
	if (t->first < 0) {
		t->first = c->rank;
	} else {
		const struct call *first = &t->arrival[t->first].call;
		const char *what = difference(first, call);
		if (what)
			nccl_disagree(c->shared, first, t->first, call, c->rank, what);
	}
	return a;
}

bool nccl_leave(struct comm *c, struct table *t)
{
	t->left |= 1ull << c->rank;
	if (t->left != nccl_everyone(c))
		return false;
	for (int r = 0; r < c->ranks; r++)
		hall_give(t->arrival[r].page, t->arrival[r].bytes);
	t->ended = t->sequence;
	__atomic_store_n(&t->sequence, 0, __ATOMIC_RELEASE);
	return true;
}

/* ---- letters, with the hall's lock ------------------------------------------------------------ */

static struct letter *find_letter(const struct part *p)
{
	int other = p->call.root, rank = p->comm->rank;
	bool sends = p->call.kind == STANDIN_SEND;
	struct letter *unused = NULL;
	for (int i = 0; i < hall->letters; i++) {
		struct letter *l = &hall->letter[i];
		if (l->comm == p->comm->number && l->from == (sends ? rank : other) && l->to == (sends ? other : rank) &&
		    l->index == p->call.sequence)
			return l;
		if (!l->comm && !unused)
			unused = l;
	}
	if (!unused && hall->letters < MOST_LETTERS)
		unused = &hall->letter[hall->letters++];
	if (!unused)
		return NULL;
	memset(unused, 0, sizeof *unused);
	unused->comm = p->comm->number;
	unused->from = sends ? rank : other;
	unused->to = sends ? other : rank;
	unused->index = p->call.sequence;
	return unused;
}

static void compare_letter(const struct part *p)
{
	const struct letter *l = p->letter;
	const struct call *a = &l->send.call, *b = &l->receive.call;
	const char *what = a->type != b->type ? "type" : a->count != b->count ? "count" : NULL;
	if (l->sent && l->received && what)
		nccl_disagree(p->comm->shared, a, l->from, b, l->to, what);
}

static void leave_letter(const struct part *p)
{
	struct letter *l = p->letter;
	if (!l)
		return;
	*(p->call.kind == STANDIN_SEND ? &l->sender_left : &l->receiver_left) = true;
	if (!l->sender_left || !l->receiver_left)
		return;
	hall_give(l->send.page, l->send.bytes);
	l->comm = 0;
}

/* ---- arriving ------------------------------------------------------------ */

static bool can_arrive(void *arg)
{
	const struct gathering *g = arg;
	for (size_t i = 0; i < g->count; i++) {
		const struct part *p = &g->parts[i];
		if (!p->comm->shared || p->comm->aborted || has_failed(p) || is_letter(p))
			continue;
		uint64_t sequence = __atomic_load_n(&place_of(p)->sequence, __ATOMIC_ACQUIRE);
		if (sequence && sequence != p->call.sequence)
			return false;
	}
	return true;
}

static bool brings_bytes(const struct part *p)
{
	bool is_roots = p->call.kind == STANDIN_BROADCAST || p->call.kind == STANDIN_SCATTER;
	return p->real && p->from && p->from_bytes && p->call.kind != STANDIN_RECEIVE &&
	       (!is_roots || p->call.root == p->comm->rank);
}

static void bring(const struct part *p, struct arrival *a)
{
	a->known = p->known;
	a->call.scale = p->call.scale;
	if (!brings_bytes(p))
		return;
	a->page = hall_take(p->from_bytes);
	a->bytes = p->from_bytes;
	if (a->page)
		memcpy(hall_bytes(a->page), p->from, p->from_bytes);
}

/* Reads a factor that lies on the device, when the stream gets to the collective. */
static void read_scale(struct part *p)
{
	if (p->real && p->scale.at)
		p->call.scale = nccl_value(p->scale.type, p->scale.at);
}

/* True: another rank may have been waiting for this one. */
static bool arrive_at_table(struct part *p)
{
	struct table *t = nccl_table(p->comm->shared, p->call.sequence);
	if (!t)
		return false;
	bring(p, nccl_arrive(p->comm, t, &p->call));
	__atomic_fetch_or(&t->arrived, 1ull << p->comm->rank, __ATOMIC_RELEASE);
	return t->arrived == nccl_everyone(p->comm);
}

static bool arrive_with_letter(struct part *p)
{
	struct letter *l = p->letter = find_letter(p);
	bool sends = p->call.kind == STANDIN_SEND;
	if (!l) {
		nccl_disagree(p->comm->shared, &p->call, p->comm->rank, &p->call, p->comm->rank, "number of messages");
		return true;
	}
	struct arrival *a = sends ? &l->send : &l->receive;
	a->call = p->call;
	bring(p, a);
	__atomic_store_n(sends ? &l->sent : &l->received, true, __ATOMIC_RELEASE);
	compare_letter(p);
	return true;
}

static void arrive(void *arg)
{
	struct gathering *g = arg;
	bool news = false;
	pthread_mutex_lock(&pending.lock);
	g->arrived = true;
	g->next = pending.first;
	pending.first = g;
	pthread_mutex_unlock(&pending.lock);
	for (size_t i = 0; i < g->count; i++)
		read_scale(&g->parts[i]);
	if (!hall)
		return;
	hall_lock();
	for (size_t i = 0; i < g->count; i++) {
		struct part *p = &g->parts[i];
		if (!p->comm->shared || p->comm->aborted)
			continue;
		p->arrived = true;
		news = (is_letter(p) ? arrive_with_letter(p) : arrive_at_table(p)) || news;
	}
	hall_unlock();
	if (news)
		hall_changed();
}

/* ---- the others ------------------------------------------------------------ */

static bool is_done(const struct part *p)
{
	if (!p->comm->shared || p->comm->aborted || !p->arrived)
		return true;
	if (!is_letter(p))
		return __atomic_load_n(&place_of(p)->arrived, __ATOMIC_ACQUIRE) == nccl_everyone(p->comm);
	const struct letter *l = p->letter;
	if (!l)
		return false;
	if (p->call.kind == STANDIN_SEND)
		return p->real || __atomic_load_n(&l->received, __ATOMIC_ACQUIRE);
	return __atomic_load_n(&l->sent, __ATOMIC_ACQUIRE);
}

static int met(void *arg)
{
	const struct gathering *g = arg;
	bool done = true;
	for (size_t i = 0; i < g->count; i++) {
		if (has_failed(&g->parts[i]) && !g->parts[i].comm->aborted)
			return STANDIN_FAILED;
		done = done && is_done(&g->parts[i]);
	}
	return done ? STANDIN_COMPLETE : STANDIN_AWAITS;
}

static uint32_t mark(void)
{
	return hall ? __atomic_load_n(&hall->change, __ATOMIC_ACQUIRE) : 0;
}

static void say_waiting(const struct part *p, struct waiting *w)
{
	const struct comm *c = p->comm;
	*w = (struct waiting){
		.comm = c->number, .place = (int32_t)(c->shared - hall->comm), .rank = c->rank,
		.peer = is_letter(p) ? p->call.root : -1, .sequence = is_letter(p) ? 0 : p->call.sequence,
		.index = is_letter(p) ? p->call.sequence : 0, .receives = p->call.kind == STANDIN_RECEIVE, .call = p->call,
	};
}

/* Finds the first part that is not done of a gathering that has arrived. */
static bool find_waiting(const struct gathering *g, const struct comm *of, struct waiting *w)
{
	for (size_t i = 0; i < g->count; i++) {
		const struct part *p = &g->parts[i];
		if (is_done(p) || (of && p->comm != of))
			continue;
		say_waiting(p, w);
		return true;
	}
	return false;
}

static void *tell(void *arg)
{
	static _Thread_local struct waiting ticket;
	const struct gathering *g = arg;
	if (!g->arrived)  /* the ring has no room for it yet */
		say_waiting(&g->parts[0], &ticket);
	return !g->arrived || find_waiting(g, NULL, &ticket) ? &ticket : NULL;
}

static void wait_with(void *ticket, uint32_t mark)
{
	if (ticket)
		nccl_wait(ticket, mark);
}

bool nccl_find_pending(const struct comm *of, struct waiting *w)
{
	bool found = false;
	pthread_mutex_lock(&pending.lock);
	for (const struct gathering *g = pending.first; g && !found; g = g->next)
		found = find_waiting(g, of, w);
	pthread_mutex_unlock(&pending.lock);
	return found;
}

void nccl_watch(void)
{
	struct waiting w;
	pthread_mutex_lock(&pending.lock);
	for (const struct gathering *g = pending.first; g && hall; g = g->next)
		if (find_waiting(g, NULL, &w))
			nccl_watch_one(&w);
	pthread_mutex_unlock(&pending.lock);
}

/* ---- taking ------------------------------------------------------------ */

/* What each rank has brought; NULL: nothing. Absent ranks bring what this one does. */
struct brought {
	const void **from;
	double *scale;
	bool all, known;
};

static void collect(const struct part *p, struct brought *b)
{
	const struct comm *c = p->comm;
	bool from_root = p->call.kind == STANDIN_BROADCAST || p->call.kind == STANDIN_SCATTER;
	b->from = standin_descriptor((size_t)c->ranks * sizeof *b->from);
	b->scale = standin_descriptor((size_t)c->ranks * sizeof *b->scale);
	b->all = b->known = true;
	for (int r = 0; r < c->ranks; r++) {
		const struct arrival *a = c->shared ? &place_of(p)->arrival[r] : NULL;
		bool counts = !from_root || r == p->call.root;
		b->from[r] = !a ? (p->from_bytes ? p->from : NULL) : a->page ? hall_bytes(a->page) : NULL;
		b->scale[r] = a ? a->call.scale : p->call.scale;
		b->all = b->all && (!counts || b->from[r]);
		b->known = b->known && (!counts || (a ? a->known : p->known));
	}
}

static void move(void *to, const void *from, uint64_t bytes)
{
	if (to != from && memcmp(to, from, bytes) != 0)  /* pages that are right stay untouched */
		memmove(to, from, bytes);
}

static void take(const struct part *p, const struct brought *b)
{
	const struct comm *c = p->comm;
	uint64_t each = p->call.count * nccl_type_bytes(p->call.type), rank = (uint64_t)c->rank;
	uint64_t mine = p->call.kind == STANDIN_REDUCE_SCATTER ? rank * p->call.count : 0;
	switch (p->call.kind) {
	case STANDIN_ALL_REDUCE:
	case STANDIN_REDUCE:
	case STANDIN_REDUCE_SCATTER:
		nccl_reduce(p->call.type, p->call.operation, p->to, b->from, b->scale, c->ranks, mine, p->call.count);
		break;
	case STANDIN_BROADCAST:
		move(p->to, b->from[p->call.root], each);
		break;
	case STANDIN_SCATTER:
		move(p->to, (const char *)b->from[p->call.root] + rank * each, each);
		break;
	default:  /* a part from each rank */
		for (int r = 0; r < c->ranks; r++)
			move((char *)p->to + (uint64_t)r * each,
			     (const char *)b->from[r] + (p->call.kind == STANDIN_ALL_TO_ALL ? rank * each : 0), each);
	}
}

static void finish_part(const struct part *p)
{
	struct brought b = { .all = false };
	if (p->comm->aborted || !p->to || !p->to_bytes)
		return;
	if (p->real && p->call.kind == STANDIN_RECEIVE) {
		const struct arrival *a = p->letter ? &p->letter->send : NULL;
		b.known = a && a->known;
		if (a && a->page)
			move(p->to, hall_bytes(a->page), a->bytes < p->to_bytes ? a->bytes : p->to_bytes);
	} else if (p->real) {
		collect(p, &b);
		if (b.all)
			take(p, &b);
		free(b.from);
		free(b.scale);
	}
	if (trz_lookalike_note_brought)
		trz_lookalike_note_brought((uintptr_t)p->to, p->to_bytes, b.known);
}

static int finish(void *arg, char *text, size_t size)
{
	struct gathering *g = arg;
	for (size_t i = 0; i < g->count; i++) {
		struct comm *c = g->parts[i].comm;
		if (!has_failed(&g->parts[i]) || c->aborted)
			continue;
		nccl_fail(c, NCCL_REMOTE_ERROR, c->shared->failure);
		strncpy(text, c->shared->failure, size - 1);
		return STANDIN_FAILED;
	}
	for (size_t i = 0; i < g->count; i++)
		finish_part(&g->parts[i]);
	return STANDIN_COMPLETE;
}

static void unlist(const struct gathering *g)
{
	pthread_mutex_lock(&pending.lock);
	struct gathering **at = &pending.first;
	while (*at && *at != g)
		at = &(*at)->next;
	if (*at)
		*at = g->next;
	pthread_mutex_unlock(&pending.lock);
}

static void drop(void *arg)
{
	struct gathering *g = arg;
	if (g->arrived)
		unlist(g);
	bool news = false;
	if (hall)
		hall_lock();
	for (size_t i = 0; i < g->count; i++) {
		struct part *p = &g->parts[i];
		if (hall && p->arrived && p->comm->shared->number == p->comm->number) {
			if (is_letter(p))
				leave_letter(p);
			else if (place_of(p)->sequence == p->call.sequence)
				news = nccl_leave(p->comm, place_of(p)) || news;
		}
		if (g->captured)
			__atomic_fetch_sub(&p->comm->captured, 1, __ATOMIC_RELEASE);
		nccl_release(p->comm);
	}
	if (hall)
		hall_unlock();
	if (hall && news)
		hall_changed();
	free(g);
}

/* ---- putting on a stream ------------------------------------------------------------ */

static size_t list_uses(const struct part *parts, size_t count, struct standin_use *uses)
{
	size_t n = 0;
	for (size_t i = 0; i < count; i++) {
		const struct part *p = &parts[i];
		if (p->scale.at)
			uses[n++] = (struct standin_use){ (uintptr_t)p->scale.at, nccl_type_bytes(p->scale.type), false };
		if (p->from && p->from_bytes)
			uses[n++] = (struct standin_use){ (uintptr_t)p->from, p->from_bytes, false };
		if (p->to && p->to_bytes)
			uses[n++] = (struct standin_use){ (uintptr_t)p->to, p->to_bytes, true };
	}
	return n;
}

static struct gathering *gather(const struct part *parts, size_t count)
{
	struct gathering *g = standin_descriptor(sizeof *g + count * sizeof g->parts[0]);
	g->count = count;
	memcpy(g->parts, parts, count * sizeof *parts);
	for (size_t i = 0; i < count; i++)
		nccl_keep(parts[i].comm);
	return g;
}

/* Counts the collectives of a gathering that has been put on a stream. */
static void count_calls(const struct gathering *g)
{
	for (size_t i = 0; i < g->count && trz_lookalike_collective; i++) {
		const struct part *p = &g->parts[i];
		trz_lookalike_collective(p->call.kind, p->from_bytes ? p->from_bytes : p->to_bytes);
	}
}

/* Makes the gathering for a launch of the graph. What the graph's kernels have made of its bytes is not known. */
static void *again(void *arg, char *text, size_t size)
{
	const struct gathering *model = arg;
	for (size_t i = 0; i < model->count; i++) {
		const struct part *p = &model->parts[i];
		char what[160];
		if (!p->comm->aborted && !p->comm->suspended)
			continue;
		nccl_describe(&p->call, what, sizeof what);
		snprintf(text, size, "rank %d launches a graph with %s, whose communicator of %d is %s", p->comm->rank, what,
		         p->comm->ranks, p->comm->aborted ? "no more" : "suspended");
		return NULL;
	}
	struct gathering *g = gather(model->parts, model->count);
	for (size_t i = 0; i < g->count; i++) {
		struct part *p = &g->parts[i];
		p->call.sequence = nccl_next_number(p->comm, p->call.kind, p->call.root);
		p->known = false;
	}
	count_calls(g);
	return g;
}

int nccl_meet(const struct part *parts, size_t count, void *stream)
{
	static const char *const names[] = {
#define KIND_NAME(kind, name) name,
		STANDIN_KINDS(KIND_NAME)
#undef KIND_NAME
	};
	struct standin_use *uses = standin_descriptor((3 * count + 1) * sizeof *uses);
	struct gathering *g = gather(parts, count);
	g->captured = parts[0].call.sequence == 0;
	for (size_t i = 0; i < count; i++) {
		struct part *p = &g->parts[i];
		p->known = trz_lookalike_is_known && p->from && trz_lookalike_is_known((uintptr_t)p->from, p->from_bytes);
		if (g->captured)
			__atomic_fetch_add(&p->comm->captured, 1, __ATOMIC_RELAXED);
	}
	if (!g->captured)
		count_calls(g);
	const struct standin_meeting m = {
		.name = names[parts[0].call.kind], .uses = uses, .count = list_uses(parts, count, uses),
		.real_bytes = nccl_real_bytes() * MOST_RANKS, .can_arrive = can_arrive, .arrive = arrive, .met = met,
		.finish = finish, .drop = drop, .again = again, .mark = mark, .tell = tell, .wait = wait_with, .arg = g,
	};
	int result = trz_lookalike_meet ? trz_lookalike_meet(stream, &m) : -1;
	free(uses);
	return result ? NCCL_UNHANDLED_CUDA_ERROR : NCCL_SUCCESS;
}
