/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of NCCL that move data, and groups of them.
 */
#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The driver's own copy. */
WEAK int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream);

uint64_t nccl_real_bytes(void)
{
	return trz_lookalike_collective_bytes();
}

uint64_t nccl_type_bytes(int type)
{
	static const uint8_t sizes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };
	return sizes[type];
}

/* ---- groups ------------------------------------------------------------ */

struct entry {
	struct part part;
	void *context, *stream;               /* context: current at the call; a default stream belongs to it */
	bool placed;
};

static _Thread_local struct {
	int depth;
	struct entry *entries;
	size_t count, room;
} group;

static int note(const struct part *p, void *stream)
{
	if (group.count == group.room) {
		size_t room = group.room ? group.room * 2 : 16;
		struct entry *entries = realloc(group.entries, room * sizeof *entries);
		if (!entries)
			return NCCL_SYSTEM_ERROR;
		group.entries = entries;
		group.room = room;
	}
	void *context = NULL;
	if (cuCtxGetCurrent)
		cuCtxGetCurrent(&context);
	group.entries[group.count++] = (struct entry){ *p, context, stream, false };
	return NCCL_SUCCESS;
}

/* Whether an entry may end together with those chosen: messages may, and one collective of each communicator. */
static bool goes_with(const struct part *chosen, size_t count, const struct part *p)
{
	if (p->call.kind == STANDIN_SEND || p->call.kind == STANDIN_RECEIVE)
		return true;
	for (size_t i = 0; i < count; i++)
		if (chosen[i].comm == p->comm && chosen[i].call.kind != STANDIN_SEND &&
		    chosen[i].call.kind != STANDIN_RECEIVE)
			return false;
	return true;
}

static int meet_in(void *context, const struct part *parts, size_t count, void *stream)
{
	bool pushed = context && cuCtxPushCurrent_v2 && cuCtxPushCurrent_v2(context) == 0;
	int result = nccl_meet(parts, count, stream);
	if (pushed)
		cuCtxPopCurrent_v2(&context);
	return result;
}

/* Places what is left of the group, again and again: what goes together, on one stream. */
static int place_group(void)
{
	int result = NCCL_SUCCESS;
	struct part *chosen = standin_descriptor((group.count + 1) * sizeof *chosen);
	for (size_t left = group.count; left > 0 && result == NCCL_SUCCESS;) {
		size_t count = 0;
		void *context = NULL, *stream = NULL;
		for (size_t i = 0; i < group.count; i++) {
			struct entry *e = &group.entries[i];
			bool elsewhere = count > 0 && (e->context != context || e->stream != stream);
			if (e->placed || elsewhere || !goes_with(chosen, count, &e->part))
				continue;
			context = e->context;
			stream = e->stream;
			e->placed = true;
			chosen[count++] = e->part;
		}
		left -= count;
		result = meet_in(context, chosen, count, stream);
	}
	free(chosen);
	group.count = 0;
	return result;
}

static bool is_own(const struct part *p)
{
	return (p->call.kind == STANDIN_SEND || p->call.kind == STANDIN_RECEIVE) && p->call.root == p->comm->rank;
}

/* Refuses, as NCCL does, a rank's message to itself that its group does not both send and receive. */
static int check_own(const struct part *p)
{
	int sent = 0, received = 0;
	for (size_t i = 0; i < group.count; i++) {
		const struct part *other = &group.entries[i].part;
		if (is_own(other) && other->comm == p->comm)
			++*(other->call.kind == STANDIN_SEND ? &sent : &received);
	}
	if (!is_own(p) || (sent == received && sent > 0))
		return NCCL_SUCCESS;
	char what[160], text[FAILURE_BYTES];
	nccl_describe(&p->call, what, sizeof what);
	snprintf(text, sizeof text, "rank %d of a communicator of %d calls %s, which is itself: one group must send and "
	         "receive it", p->comm->rank, p->comm->ranks, what);
	return nccl_refuse_use(p->comm, text);
}

static int check_group(void)
{
	for (size_t i = 0; i < group.count; i++) {
		int wrong = check_own(&group.entries[i].part);
		if (wrong) {
			group.count = 0;
			return wrong;
		}
	}
	return NCCL_SUCCESS;
}

/* If the other ranks are absent, lets them send as roots what this rank sends as a root of the group, so that
 * broadcasts from each rank in turn gather. */
static void be_all_roots(void)
{
	for (size_t i = 0; i < group.count; i++) {
		struct part *p = &group.entries[i].part;
		bool needs = p->comm->alone && p->call.kind == STANDIN_BROADCAST && p->call.root != p->comm->rank;
		for (size_t k = 0; needs && k < group.count; k++) {
			const struct part *own = &group.entries[k].part;
			if (own->comm != p->comm || own->call.kind != STANDIN_BROADCAST || own->call.root != p->comm->rank ||
			    own->to_bytes != p->to_bytes)
				continue;
			p->from = own->from;
			p->from_bytes = own->from_bytes;
			break;
		}
	}
}

bool nccl_in_group(void)
{
	return group.depth > 0;
}

int ncclGroupStart(void)
{
	group.depth++;
	return NCCL_SUCCESS;
}

int ncclGroupEnd(void)
{
	if (group.depth == 0)
		return NCCL_INVALID_USAGE;
	if (--group.depth > 0)
		return NCCL_SUCCESS;
	int result = nccl_await_joins();
	result = result == NCCL_SUCCESS ? check_group() : result;
	be_all_roots();
	return group.count > 0 && result == NCCL_SUCCESS ? place_group() : result;
}

int ncclGroupSimulateEnd(void *info)
{
	(void)info;
	return standin_refuse("ncclGroupSimulateEnd", "times are not those of a network", NCCL_INVALID_USAGE);
}

/* ---- calls ------------------------------------------------------------ */

uint64_t nccl_next_number(struct comm *c, int kind, int peer)
{
	if (kind == STANDIN_SEND)
		return ++c->sends[peer];
	return kind == STANDIN_RECEIVE ? ++c->receives[peer] : ++c->sequence;
}

static uint64_t number(struct comm *c, int kind, int peer, void *stream)
{
	bool captured = trz_lookalike_is_captured && trz_lookalike_is_captured(stream);
	return captured ? 0 : nccl_next_number(c, kind, peer);
}

static int submit(struct part *p, void *stream)
{
	if (trz_lookalike_place)
		trz_lookalike_place(p->call.place, sizeof p->call.place);
	if (group.depth > 0)
		return note(p, stream);
	int wrong = check_own(p);
	return wrong ? wrong : nccl_meet(p, 1, stream);
}

struct buffers {
	const void *from;
	void *to;
	uint64_t count;
};

/* With one rank, a collective is a copy, unless it scales: what was known of the bytes still is. */
static int copy(const char *name, struct buffers b, uint64_t bytes, bool scales, void *stream)
{
	const uint64_t words[] = { (uintptr_t)b.from, (uintptr_t)b.to };
	bool known = !scales && trz_lookalike_is_known && trz_lookalike_is_known(words[0], bytes) &&
	             !trz_lookalike_is_captured(stream);
	if (b.from != b.to && bytes > 0 && cuMemcpyDtoDAsync_v2 &&
	    cuMemcpyDtoDAsync_v2(words[1], words[0], bytes, stream) != 0)
		return NCCL_UNHANDLED_CUDA_ERROR;
	if (standin_work(name, stream, words, 2))
		return NCCL_UNHANDLED_CUDA_ERROR;
	if (known)
		trz_lookalike_note_brought(words[1], bytes, true);
	return NCCL_SUCCESS;
}

static int check(struct comm *c, int type, int root)
{
	if (!c)
		return NCCL_INVALID_ARGUMENT;
	if (type < 0 || type >= NCCL_TYPES || root < 0 || root >= c->ranks) {
		nccl_fail(c, NCCL_SUCCESS, "there is no such type, or no such rank");
		return NCCL_INVALID_ARGUMENT;
	}
	if (c->suspended || c->aborted)
		return nccl_refuse_use(c, c->suspended ? "the communicator is suspended" : "the communicator is revoked");
	return c->error;
}

/* What a kind takes from each rank and gives it, in multiples of the count: `r` for all ranks' parts, '1' for one;
 * small letters at the root only. */
static const struct shape {
	char from, to;
} shapes[] = {
	[STANDIN_ALL_REDUCE] = { '1', '1' }, [STANDIN_REDUCE] = { '1', 'o' }, [STANDIN_REDUCE_SCATTER] = { 'R', '1' },
	[STANDIN_BROADCAST] = { 'o', '1' }, [STANDIN_ALL_GATHER] = { '1', 'R' }, [STANDIN_ALL_TO_ALL] = { 'R', 'R' },
	[STANDIN_GATHER] = { '1', 'r' }, [STANDIN_SCATTER] = { 'r', '1' },
};

static uint64_t times(char shape, const struct comm *c, bool is_root)
{
	switch (shape) {
	case 'R':
		return (uint64_t)c->ranks;
	case 'r':
		return is_root ? (uint64_t)c->ranks : 0;
	case 'o':
		return is_root;
	default:
		return 1;
	}
}

/* Whether real bytes move: decided by the bytes that a rank brings, if it brings any, and so alike for all ranks. */
static bool is_real(const struct comm *c, int kind, uint64_t each)
{
	char shape = shapes[kind].from;
	return each * (shape == 'R' || shape == 'r' ? (uint64_t)c->ranks : 1) <= nccl_real_bytes();
}

/* Refuses a NULL buffer: a tensor whose storage has been freed has no address. */
static int check_buffers(struct comm *c, const struct part *p)
{
	char what[160], text[FAILURE_BYTES];
	if ((p->from || !p->from_bytes) && (p->to || !p->to_bytes))
		return NCCL_SUCCESS;
	nccl_describe(&p->call, what, sizeof what);
	snprintf(text, sizeof text, "rank %d of a communicator of %d calls %s with a buffer at address 0: a tensor without "
	         "storage", c->rank, c->ranks, what);
	return nccl_refuse_use(c, text);
}

static int collective(int kind, const char *name, struct comm *c, struct buffers b, int type, int operation, int root,
                      void *stream)
{
	int wrong = check(c, type, root);
	if (wrong || b.count == 0)
		return wrong;
	if (kind <= STANDIN_REDUCE_SCATTER && !nccl_is_operation(c, operation)) {
		nccl_fail(c, NCCL_SUCCESS, "there is no such operation");
		return NCCL_INVALID_ARGUMENT;
	}
	bool is_root = root == c->rank;
	uint64_t each = b.count * nccl_type_bytes(type);
	if (c->ranks == 1)
		return copy(name, b, each, kind <= STANDIN_REDUCE_SCATTER && operation > NCCL_AVG, stream);
	wrong = nccl_take_memory(c, -1);
	if (wrong)
		return wrong;
	struct part p = {
		.comm = c, .from = b.from, .to = b.to, .from_bytes = each * times(shapes[kind].from, c, is_root),
		.to_bytes = each * times(shapes[kind].to, c, is_root), .real = is_real(c, kind, each),
		.call = { .kind = kind, .type = type, .root = root, .count = b.count,
		          .sequence = number(c, kind, 0, stream), .scale = 1 },
	};
	if (kind <= STANDIN_REDUCE_SCATTER) {
		bool is_made = operation > NCCL_AVG;
		p.call.operation = is_made ? NCCL_SCALED_SUM : operation;
		if (is_made)
			p.scale = nccl_scale(c, operation);
		p.call.scale = is_made ? p.scale.value : 1;
	}
	wrong = check_buffers(c, &p);
	return wrong ? wrong : submit(&p, stream);
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, void *comm, void *stream)
{
	return collective(STANDIN_ALL_REDUCE, "ncclAllReduce", comm, (struct buffers){ from, to, count }, type, operation,
	                  0, stream);
}

int ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root, void *comm, void *stream)
{
	return collective(STANDIN_REDUCE, "ncclReduce", comm, (struct buffers){ from, to, count }, type, operation, root,
	                  stream);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation, void *comm, void *stream)
{
	return collective(STANDIN_REDUCE_SCATTER, "ncclReduceScatter", comm, (struct buffers){ from, to, count }, type,
	                  operation, 0, stream);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream)
{
	return collective(STANDIN_BROADCAST, "ncclBroadcast", comm, (struct buffers){ from, to, count }, type, 0, root,
	                  stream);
}

int ncclBcast(void *both, size_t count, int type, int root, void *comm, void *stream)
{
	return collective(STANDIN_BROADCAST, "ncclBcast", comm, (struct buffers){ both, both, count }, type, 0, root,
	                  stream);
}

int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream)
{
	return collective(STANDIN_ALL_GATHER, "ncclAllGather", comm, (struct buffers){ from, to, count }, type, 0, 0,
	                  stream);
}

int ncclAlltoAll(const void *from, void *to, size_t count, int type, void *comm, void *stream)
{
	return collective(STANDIN_ALL_TO_ALL, "ncclAlltoAll", comm, (struct buffers){ from, to, count }, type, 0, 0,
	                  stream);
}

int ncclGather(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream)
{
	return collective(STANDIN_GATHER, "ncclGather", comm, (struct buffers){ from, to, count }, type, 0, root, stream);
}

int ncclScatter(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream)
{
	return collective(STANDIN_SCATTER, "ncclScatter", comm, (struct buffers){ from, to, count }, type, 0, root,
	                  stream);
}

/* ---- messages ------------------------------------------------------------ */

static int message(int kind, struct comm *c, struct buffers b, int type, int peer, void *stream)
{
	int wrong = check(c, type, peer);
	wrong = wrong ? wrong : nccl_take_memory(c, peer);
	if (wrong)
		return wrong;
	bool sends = kind == STANDIN_SEND;
	uint64_t bytes = b.count * nccl_type_bytes(type);
	struct part p = {
		.comm = c, .from = b.from, .to = b.to, .from_bytes = sends ? bytes : 0, .to_bytes = sends ? 0 : bytes,
		.real = bytes <= nccl_real_bytes(),
		.call = { .kind = kind, .type = type, .root = peer, .count = b.count,
		          .sequence = number(c, kind, peer, stream) },
	};
	wrong = check_buffers(c, &p);
	return wrong ? wrong : submit(&p, stream);
}

int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream)
{
	return message(STANDIN_SEND, comm, (struct buffers){ from, NULL, count }, type, peer, stream);
}

int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream)
{
	return message(STANDIN_RECEIVE, comm, (struct buffers){ NULL, to, count }, type, peer, stream);
}
