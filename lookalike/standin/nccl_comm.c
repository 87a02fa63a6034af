/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators: how ranks find one another by a key, how communicators end, and how they are made from others.
 */
#include "nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

WEAK int cuCtxGetDevice(int *device);
WEAK int cuDevicePrimaryCtxRetain(void **context, int device);

struct unique_id {
	char magic[8];
	uint64_t key[2];
	char rest[104];
};

static const char id_magic[8] = "trzncl1";

uint64_t nccl_everyone(const struct comm *c)
{
	return UINT64_MAX >> (64 - c->ranks);
}

void nccl_fail(struct comm *c, int error, const char *text)
{
	if (error && !c->error)
		c->error = error;
	snprintf(c->text, sizeof c->text, "%s", text);
}

int nccl_refuse_use(struct comm *c, const char *text)
{
	nccl_fail(c, NCCL_SUCCESS, text);
	fprintf(stderr, "terrazzo: NCCL: %s\n", text);
	return NCCL_INVALID_USAGE;
}

/* ---- lives ------------------------------------------------------------ */

void nccl_keep(struct comm *c)
{
	__atomic_fetch_add(&c->references, 1, __ATOMIC_RELAXED);
}

void nccl_release(struct comm *c)
{
	if (__atomic_sub_fetch(&c->references, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	free(c->sends);
	free(c->receives);
	free(c->scales);
	free(c->has_peer);
	free(c);
}

/* Whether no rank is left: communicators of a killed program make room when there is none. */
static bool is_deserted(const struct shared_comm *shared)
{
	for (int r = 0; r < shared->ranks; r++)
		if (shared->joined >> r & 1 && !(shared->gone >> r & 1) && hall_is_alive(shared->member[r].process))
			return false;
	return true;
}

static void clear(struct shared_comm *shared)
{
	for (int i = 0; i < RING; i++) {
		struct table *t = &shared->ring[i];
		for (int r = 0; t->sequence && r < shared->ranks; r++)
			if (t->arrived >> r & 1)
				hall_give(t->arrival[r].page, t->arrival[r].bytes);
		t->sequence = t->ended = 0;
	}
	for (int i = 0; i < hall->letters; i++) {
		struct letter *l = &hall->letter[i];
		if (l->comm != shared->number)
			continue;
		hall_give(l->send.page, l->send.bytes);
		l->comm = 0;
	}
	shared->number = 0;
}

static struct shared_comm *find(const uint64_t key[2], int ranks)
{
	struct shared_comm *unused = NULL;
	for (int i = 0; i < hall->comms; i++) {
		struct shared_comm *s = &hall->comm[i];
		if (s->number && s->key[0] == key[0] && s->key[1] == key[1])
			return s;
		if (!s->number && !unused)
			unused = s;
	}
	if (!unused && hall->comms < MOST_COMMS)
		unused = &hall->comm[hall->comms++];
	for (int i = 0; !unused && i < MOST_COMMS; i++)
		if (is_deserted(&hall->comm[i])) {
			unused = &hall->comm[i];
			clear(unused);
		}
	if (!unused)
		return NULL;
	unused->key[0] = key[0];
	unused->key[1] = key[1];
	unused->number = ++hall->comm_numbers;
	unused->ranks = ranks;
	unused->joined = unused->gone = 0;
	unused->failed = false;
	return unused;
}

/* ---- joining ------------------------------------------------------------ */

/* Two ranks of a communicator on one device: NCCL refuses it. */
static bool shares_device(const struct shared_comm *shared, const struct comm *c, int *other)
{
	for (int r = 0; r < shared->ranks; r++)
		if (shared->joined >> r & 1 && shared->member[r].device == c->device_number) {
			*other = r;
			return true;
		}
	return false;
}

static int join(struct comm *c)
{
	char text[FAILURE_BYTES] = "";
	int other;
	if (!hall_open())
		return NCCL_SYSTEM_ERROR;
	hall_lock();
	struct shared_comm *shared = find(c->key, c->ranks);
	if (!shared)
		snprintf(text, sizeof text, "there are more than %d communicators", MOST_COMMS);
	else if (shared->ranks != c->ranks)
		snprintf(text, sizeof text, "rank %d says that its communicator has %d ranks, another said %d", c->rank,
		         c->ranks, shared->ranks);
	else if (shared->joined >> c->rank & 1)
		snprintf(text, sizeof text, "two processes are rank %d of a communicator of %d", c->rank, c->ranks);
	else if (shares_device(shared, c, &other))
		snprintf(text, sizeof text, "ranks %d and %d of a communicator of %d are both on device %d: each needs one of "
		         "its own (terrazzo sim --devices %d, and torch.cuda.set_device)",
		         other < c->rank ? other : c->rank, other < c->rank ? c->rank : other, c->ranks,
		         c->device_number % NODE_DEVICES, c->ranks);
	if (text[0]) {
		if (shared)
			nccl_end(shared, text);
		hall_unlock();
		return nccl_refuse_use(c, text);
	}
	c->shared = shared;
	c->number = shared->number;
	shared->member[c->rank].process = hall_process;
	shared->member[c->rank].device = c->device_number;
	shared->joined |= 1ull << c->rank;
	bool full = shared->joined == nccl_everyone(c);
	hall_unlock();
	if (full)
		hall_changed();
	return NCCL_SUCCESS;
}

/* Waits until nothing is missing any more. */
static int await(struct comm *c, const struct waiting *w)
{
	for (;;) {
		uint32_t mark = __atomic_load_n(&hall->change, __ATOMIC_ACQUIRE);
		hall_lock();
		bool over = nccl_is_over(w), failed = c->shared->failed;
		hall_unlock();
		if (failed) {
			nccl_fail(c, NCCL_REMOTE_ERROR, c->shared->failure);
			if (trz_lookalike_violation)
				trz_lookalike_violation(c->shared->failure);
			return NCCL_REMOTE_ERROR;
		}
		if (over)
			return NCCL_SUCCESS;
		nccl_wait(w, mark);
	}
}

static int await_all(struct comm *c)
{
	struct waiting w = { .comm = c->number, .place = (int32_t)(c->shared - hall->comm), .rank = c->rank, .peer = -1 };
	w.call.kind = SPLIT;
	if (trz_lookalike_place)
		trz_lookalike_place(w.call.place, sizeof w.call.place);
	return await(c, &w);
}

static _Thread_local struct {
	struct comm *comm[MOST_RANKS];
	int count;
} begun;

int nccl_await_joins(void)
{
	int result = NCCL_SUCCESS;
	for (int i = 0; i < begun.count; i++) {
		int one = await_all(begun.comm[i]);
		result = result ? result : one;
	}
	begun.count = 0;
	return result;
}

static bool others_are_absent(void)
{
	const char *text = getenv("TERRAZZO_SIM_ALONE");
	return text && *text == '1';
}

static int make(void **made, int ranks, int rank, const uint64_t key[2])
{
	NCCL_NEED(made);
	*made = NULL;
	if (ranks < 1 || rank < 0 || rank >= ranks)
		return NCCL_INVALID_ARGUMENT;
	struct comm *c = standin_descriptor(sizeof *c);
	*c = (struct comm){ .rank = rank, .ranks = ranks, .references = 1, .alone = others_are_absent(),
		                .key = { key[0], key[1] } };
	c->sends = standin_descriptor((size_t)ranks * sizeof *c->sends);
	c->receives = standin_descriptor((size_t)ranks * sizeof *c->receives);
	c->has_peer = standin_descriptor((size_t)ranks * sizeof *c->has_peer);
	if (cuCtxGetDevice)
		cuCtxGetDevice(&c->device);
	c->device_number = trz_lookalike_device_number ? trz_lookalike_device_number(c->device) : c->device;
	int result = NCCL_SUCCESS;
	if (ranks > MOST_RANKS && !c->alone)
		result = nccl_refuse_use(c, "a communicator has 64 ranks at most, unless the others are absent (--world-size)");
	else if (ranks > 1 && !c->alone)
		result = join(c);
	if (result == NCCL_SUCCESS && c->shared && nccl_in_group() && begun.count < MOST_RANKS)
		begun.comm[begun.count++] = c;
	else if (result == NCCL_SUCCESS && c->shared)
		result = await_all(c);
	if (result != NCCL_SUCCESS) {
		nccl_release(c);
		return result;
	}
	if (trz_lookalike_rank && ranks > 1)
		trz_lookalike_rank(rank, ranks);
	*made = c;
	return NCCL_SUCCESS;
}

/* ---- keys ------------------------------------------------------------ */

/* Makes a new key from an old one and a number, the same in all ranks. */
static void derive(const uint64_t from[2], uint64_t number, uint64_t to[2])
{
	for (int i = 0; i < 2; i++) {
		uint64_t x = from[i] + (number + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)i;
		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
		x = (x ^ x >> 27) * 0x94d049bb133111ebull;
		to[i] = x ^ x >> 31;
	}
}

int ncclGetUniqueId(struct unique_id *id)
{
	NCCL_NEED(id);
	memset(id, 0, sizeof *id);
	memcpy(id->magic, id_magic, sizeof id_magic);
	return getrandom(id->key, sizeof id->key, 0) == sizeof id->key ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
}

int ncclCommInitRankConfig(void **comm, int ranks, struct unique_id id, int rank, void *config)
{
	(void)config;
	return make(comm, ranks, rank, id.key);
}

int ncclCommInitRank(void **comm, int ranks, struct unique_id id, int rank)
{
	return make(comm, ranks, rank, id.key);
}

/* Makes one rank for each device of the list (NULL: the first ones), all in this process. Their contexts stay. */
int ncclCommInitAll(void **comms, int devices, const int *list)
{
	struct unique_id id;
	void *context;
	if (!comms || devices < 1 || devices > MOST_RANKS || !cuDevicePrimaryCtxRetain)
		return NCCL_INVALID_ARGUMENT;
	int result = ncclGetUniqueId(&id);
	ncclGroupStart();
	for (int i = 0; i < devices && result == NCCL_SUCCESS; i++) {
		if (cuDevicePrimaryCtxRetain(&context, list ? list[i] : i) != 0 || cuCtxPushCurrent_v2(context) != 0) {
			result = NCCL_INVALID_ARGUMENT;
			break;
		}
		result = make(&comms[i], devices, i, id.key);
		cuCtxPopCurrent_v2(&context);
	}
	int joined = ncclGroupEnd();
	return result == NCCL_SUCCESS ? joined : result;
}

int ncclCommInitRankScalable(void **comm, int ranks, int rank, int ids, struct unique_id *id, void *config)
{
	NCCL_NEED(id);
	(void)config;
	return ids < 1 ? NCCL_INVALID_ARGUMENT : make(comm, ranks, rank, id->key);
}

/* ---- communicators of a communicator ------------------------------------------------------------ */

/* Which ranks have the caller's color, in the order of their keys; returns the caller's place among them. */
static int order_by_key(const struct comm *c, const struct table *t, int *size)
{
	const struct call *own = &t->arrival[c->rank].call;
	int place = 0;
	*size = 0;
	for (int r = 0; r < c->ranks; r++) {
		const struct call *other = &t->arrival[r].call;
		if (other->root != own->root)
			continue;
		++*size;
		int64_t key = (int64_t)other->count, mine = (int64_t)own->count;
		place += key < mine || (key == mine && r < c->rank);
	}
	return place;
}

/* Tells all ranks of the parent this one's color and key, and learns theirs. */
static int exchange(struct comm *c, const struct call *call, int *place, int *size)
{
	struct waiting w = { .comm = c->number, .place = (int32_t)(c->shared - hall->comm), .rank = c->rank, .peer = -1,
		                 .sequence = call->sequence, .call = *call };
	struct table *t = NULL;
	while (!t) {
		uint32_t mark = __atomic_load_n(&hall->change, __ATOMIC_ACQUIRE);
		hall_lock();
		t = nccl_table(c->shared, call->sequence);
		if (t) {
			nccl_arrive(c, t, call);
			__atomic_fetch_or(&t->arrived, 1ull << c->rank, __ATOMIC_RELEASE);
		}
		hall_unlock();
		if (!t)
			nccl_wait(&w, mark);
	}
	hall_changed();
	int result = await(c, &w);
	hall_lock();
	*place = result == NCCL_SUCCESS ? order_by_key(c, t, size) : 0;
	nccl_leave(c, t);
	hall_unlock();
	return result;
}

/* If the other ranks are absent, python/terrazzo/sim/ranks.py, which knows the groups, tells how many ranks this one's
 * part will have, and its place there. */
static bool is_told_of_split(int *size, int *place)
{
	const char *text = getenv("TERRAZZO_SIM_SPLIT");
	return text && sscanf(text, "%d:%d", size, place) == 2;
}

int ncclCommSplit(void *comm, int color, int key, void **made, void *config)
{
	NCCL_NEED(comm && made);
	struct comm *c = comm;
	uint64_t derived[2];
	int place = 0, size = 1;
	(void)config;
	*made = NULL;
	if (c->aborted)
		return nccl_refuse_use(c, "the communicator is revoked");
	struct call call = { .kind = SPLIT, .root = color, .count = (uint64_t)(int64_t)key };
	if (trz_lookalike_place)
		trz_lookalike_place(call.place, sizeof call.place);
	if (c->shared) {
		call.sequence = ++c->sequence;
		int result = exchange(c, &call, &place, &size);
		if (result != NCCL_SUCCESS)
			return result;
	}
	derive(c->key, ++c->splits << 32 | (uint32_t)color, derived);
	if (c->alone && color >= 0 && !is_told_of_split(&size, &place))
		return standin_refuse("ncclCommSplit", "which ranks are in a part of a world of absent ranks is not known; "
		                      "make the group by its ranks", NCCL_INVALID_USAGE);
	return color < 0 ? NCCL_SUCCESS : make(made, size, place, derived);
}

int ncclCommShrink(void *comm, int *excluded, int count, void **made, void *config, int flags)
{
	NCCL_NEED(comm && made && (excluded || count == 0));
	struct comm *c = comm;
	uint64_t derived[2];
	int place = c->rank, size = c->ranks;
	(void)config, (void)flags;
	*made = NULL;
	for (int i = 0; i < count; i++) {
		if (excluded[i] == c->rank)
			return NCCL_INVALID_ARGUMENT;
		place -= excluded[i] < c->rank;
		size--;
	}
	derive(c->key, ++c->splits << 32 | 0xffffffffu, derived);
	return make(made, size, place, derived);
}

/* The key of the next communicator that this one is grown to. */
static void derive_grown(const struct comm *c, uint64_t to[2])
{
	derive(c->key, (c->splits + 1) << 32 | 0xfffffffeu, to);
}

/* The id for ranks that are to join. */
int ncclCommGetUniqueId(void *comm, struct unique_id *id)
{
	NCCL_NEED(comm && id);
	memset(id, 0, sizeof *id);
	memcpy(id->magic, id_magic, sizeof id_magic);
	derive_grown(comm, id->key);
	return NCCL_SUCCESS;
}

/* Existing ranks keep their numbers and pass -1; new ones pass no communicator, but the id. */
int ncclCommGrow(void *comm, int ranks, const struct unique_id *id, int rank, void **made, void *config)
{
	NCCL_NEED(made);
	struct comm *c = comm;
	uint64_t derived[2];
	(void)config;
	*made = NULL;
	if (!c)
		return id ? make(made, ranks, rank, id->key) : NCCL_INVALID_ARGUMENT;
	if (ranks <= c->ranks || rank != -1)
		return nccl_refuse_use(c, "a communicator grows to more ranks than it has, and its own ranks say -1");
	derive_grown(c, derived);
	c->splits++;
	return make(made, ranks, c->rank, derived);
}

/* ---- memory ------------------------------------------------------------ */

int nccl_take_memory(struct comm *c, int peer)
{
	bool *has = peer < 0 ? &c->has_collectives : &c->has_peer[peer];
	uint64_t bytes = 0;
	if (*has || peer == c->rank || !trz_lookalike_take_for_nccl)
		return NCCL_SUCCESS;
	if (!trz_lookalike_take_for_nccl(c->device, peer >= 0, &bytes)) {
		nccl_fail(c, NCCL_SUCCESS, "the device has no memory left for NCCL's own buffers (see --nccl-memory)");
		return NCCL_UNHANDLED_CUDA_ERROR;
	}
	*has = true;
	c->memory += bytes;
	return NCCL_SUCCESS;
}

static void give_memory(struct comm *c)
{
	if (trz_lookalike_give_for_nccl)
		trz_lookalike_give_for_nccl(c->device, c->memory);
	c->memory = 0;
}

/* Frees its device memory until it is resumed. */
int ncclCommSuspend(void *comm, int flags)
{
	NCCL_NEED(comm);
	struct comm *c = comm;
	(void)flags;
	if (c->suspended)
		return nccl_refuse_use(c, "the communicator is suspended already");
	give_memory(c);
	c->suspended = true;
	return NCCL_SUCCESS;
}

int ncclCommResume(void *comm)
{
	NCCL_NEED(comm);
	struct comm *c = comm;
	if (!c->suspended)
		return nccl_refuse_use(c, "the communicator is not suspended");
	bool has_collectives = c->has_collectives;
	c->suspended = c->has_collectives = false;
	int result = has_collectives ? nccl_take_memory(c, -1) : NCCL_SUCCESS;
	for (int r = 0; r < c->ranks && result == NCCL_SUCCESS; r++) {
		bool has = c->has_peer[r];
		c->has_peer[r] = false;
		result = has ? nccl_take_memory(c, r) : NCCL_SUCCESS;
	}
	return result;
}

int ncclCommMemStats(const void *comm, int what, uint64_t *value)
{
	NCCL_NEED(comm && value);
	enum { CAN_SUSPEND, IS_SUSPENDED, PERSISTENT, TOTAL };
	const struct comm *c = comm;
	if (what < CAN_SUSPEND || what > TOTAL)
		return NCCL_INVALID_ARGUMENT;
	*value = what == IS_SUSPENDED ? c->suspended : what == PERSISTENT ? 0 : c->memory;
	return NCCL_SUCCESS;
}

/* ---- ends ------------------------------------------------------------ */

static void leave(struct comm *c, bool in_order)
{
	char text[FAILURE_BYTES] = "";
	if (!c->shared)
		return;
	hall_lock();
	if (c->shared->number == c->number) {
		if (in_order)
			nccl_look_for_unreceived(c, text, sizeof text);
		c->shared->gone |= 1ull << c->rank;
		if (is_deserted(c->shared) && c->shared->gone == nccl_everyone(c))
			clear(c->shared);
	}
	hall_unlock();
	hall_changed();
	if (text[0] && trz_lookalike_violation)
		trz_lookalike_violation(text);
}

static bool is_on_streams(const struct comm *c)
{
	unsigned references = __atomic_load_n(&c->references, __ATOMIC_ACQUIRE);
	return references > 1 + __atomic_load_n(&c->captured, __ATOMIC_ACQUIRE);
}

/* Waits for its parts on streams; those in graphs may be launched again. */
int ncclCommFinalize(void *comm)
{
	struct comm *c = comm;
	struct waiting w;
	while (c && c->shared && hall && is_on_streams(c)) {
		uint32_t mark = __atomic_load_n(&hall->change, __ATOMIC_ACQUIRE);
		if (trz_lookalike_progress && trz_lookalike_progress(true) > 0)
			continue;
		if (nccl_find_pending(c, &w))
			nccl_wait(&w, mark);
		else
			usleep(1000);  /* another thread runs the work before it */
	}
	return NCCL_SUCCESS;
}

int ncclCommDestroy(void *comm)
{
	struct comm *c = comm;
	if (!c)
		return NCCL_SUCCESS;
	ncclCommFinalize(c);
	if (!c->aborted && __atomic_load_n(&c->captured, __ATOMIC_ACQUIRE) > 0)
		fprintf(stderr, "terrazzo: NCCL: rank %d destroys a communicator of %d while a graph has collectives of it: "
		        "NCCL waits for the end of the graph, the simulator does not\n", c->rank, c->ranks);
	give_memory(c);
	leave(c, !c->aborted);
	__atomic_store_n(&c->aborted, true, __ATOMIC_RELEASE);
	nccl_release(c);
	return NCCL_SUCCESS;
}

/* Ends its parts on streams now; they move nothing. */
static void stop(struct comm *c)
{
	__atomic_store_n(&c->aborted, true, __ATOMIC_RELEASE);
	leave(c, false);
	if (trz_lookalike_progress)
		trz_lookalike_progress(true);
}

int ncclCommAbort(void *comm)
{
	struct comm *c = comm;
	if (!c)
		return NCCL_SUCCESS;
	give_memory(c);
	stop(c);
	nccl_release(c);
	return NCCL_SUCCESS;
}

/* The communicator can then still be shrunk or destroyed, but not be split. */
int ncclCommRevoke(void *comm, int flags)
{
	NCCL_NEED(comm);
	struct comm *c = comm;
	(void)flags;
	stop(c);
	nccl_fail(c, NCCL_SUCCESS, "the communicator has been revoked");
	return NCCL_SUCCESS;
}

/* ---- what one may ask ------------------------------------------------------------ */

int ncclCommCount(const void *comm, int *count)
{
	NCCL_NEED(comm && count);
	*count = ((const struct comm *)comm)->ranks;
	return NCCL_SUCCESS;
}

int ncclCommUserRank(const void *comm, int *rank)
{
	NCCL_NEED(comm && rank);
	*rank = ((const struct comm *)comm)->rank;
	return NCCL_SUCCESS;
}

int ncclCommCuDevice(const void *comm, int *device)
{
	NCCL_NEED(comm && device);
	*device = ((const struct comm *)comm)->device;
	return NCCL_SUCCESS;
}

int ncclCommGetAsyncError(void *comm, int *status)
{
	NCCL_NEED(comm && status);
	*status = ((const struct comm *)comm)->error;
	return NCCL_SUCCESS;
}

const char *ncclGetLastError(void *comm)
{
	return comm ? ((const struct comm *)comm)->text : "";
}

/* ---- operations of the program's ------------------------------------------------------------ */

bool nccl_is_operation(const struct comm *c, int operation)
{
	int place = operation - NCCL_SCALED_SUM;
	return operation >= 0 && (place < 0 || (place < c->scale_count && !c->scales[place].gone));
}

struct scale nccl_scale(const struct comm *c, int operation)
{
	return c->scales[operation - NCCL_SCALED_SUM];
}

int ncclRedOpCreatePreMulSum(int *operation, void *scalar, int type, int residence, void *comm)
{
	NCCL_NEED(operation && scalar && comm);
	struct comm *c = comm;
	bool on_host = residence == 1;
	if (type < 0 || type >= NCCL_TYPES)
		return NCCL_INVALID_ARGUMENT;
	struct scale *scales = realloc(c->scales, (size_t)(c->scale_count + 1) * sizeof *scales);
	if (!scales)
		return NCCL_SYSTEM_ERROR;
	c->scales = scales;
	scales[c->scale_count] = on_host ? (struct scale){ .value = nccl_value(type, scalar) }
	                                 : (struct scale){ .value = 1, .at = scalar, .type = type };
	*operation = NCCL_SCALED_SUM + c->scale_count++;
	return NCCL_SUCCESS;
}

int ncclRedOpDestroy(int operation, void *comm)
{
	struct comm *c = comm;
	NCCL_NEED(c);
	if (operation < NCCL_SCALED_SUM || !nccl_is_operation(c, operation))
		return NCCL_INVALID_ARGUMENT;
	c->scales[operation - NCCL_SCALED_SUM].gone = true;
	return NCCL_SUCCESS;
}
