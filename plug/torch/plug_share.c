/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for other processes. A handle is plain bytes: a process that has it asks the memory's owner, over a socket,
 * for a file descriptor, and maps that. So no process needs the right to look into another, which containers often
 * deny.
 *
 * The socket has an abstract name: it needs no file, ends with its process, and is visible within one network
 * namespace. The owner answers only processes of its own user and root, and gives only memory whose secret they know.
 *
 * A process shares a range: the tiles that hold an allocation, with everything in them. Allocations in the same tiles
 * share one range, so a process that receives several of them maps their tiles once. The range ends with the last of
 * its allocations.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "plug.h"

enum {
	SECRET_BYTES = 16,
	BUCKETS = 1 << 12,
	UNIT = 512,              /* allocations begin at a multiple */
	AT_ONCE = 64,            /* tiles in an answer: the system sends at most 253 descriptors together */
	ANSWER_SECONDS = 60,     /* for an owner that is stopped, or very slow */
	QUESTION_SECONDS = 5,
	BACKLOG = 128
};

static const char magic[8] = { 't', 'r', 'z', '-', 's', 'h', 'r', '2' };

/* The contents of a handle. */
struct written {
	char magic[8];
	unsigned char server[SECRET_BYTES];  /* the socket's name, in hex */
	unsigned char secret[SECRET_BYTES];
	uint64_t size;
};

_Static_assert(sizeof(struct written) == TRZ_TORCH_HANDLE_BYTES, "no padding: equal handles are equal bytes");

/* Tiles side by side that have been exported. */
struct range {
	struct range *next;
	trz_heap *heap;
	char *base;
	size_t size;
	size_t references;           /* by shares, and by answers in progress */
	unsigned char secret[SECRET_BYTES];
	size_t tile_count, tile_room;
	void **tiles;                /* where each begins */
};

/* One allocation that has been shared, until it is freed. */
struct share {
	struct share *next;
	const void *base;
	struct range *range;
};

/* The question: which tiles has a range from an offset on? */
struct question {
	unsigned char secret[SECRET_BYTES];
	uint64_t offset;
};

/* The answer. With TRZ_OK, `count` descriptors come along. */
struct answer {
	int32_t status;
	uint32_t count;
	uint64_t sizes[AT_ONCE];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* guards what follows; no call of the heap is made under
                                                           * it */
static struct range *ranges;
static unsigned char server_name[SECRET_BYTES];
static int listener = -1;

/* Shares by address, and their number. A thread that frees shared memory sees the share without a lock, so an empty
 * bucket needs none; in a program that shares nothing, a free reads one word. */
static _Atomic(struct share *) buckets[BUCKETS];
static atomic_uint shares;

/* ---- memory that can be shared --------------------------------------------------------------------------- */

static atomic_uint threads_inside;
static _Thread_local unsigned depth;

void trz_torch_shareable(bool on)
{
	if (on && depth++ == 0)
		atomic_fetch_add_explicit(&threads_inside, 1, memory_order_relaxed);
	else if (!on && depth && --depth == 0)
		atomic_fetch_sub_explicit(&threads_inside, 1, memory_order_relaxed);
}

bool plug_is_shareable(void)
{
	return atomic_load_explicit(&threads_inside, memory_order_relaxed) && depth;
}

trz_status plug_alloc_shareable(trz_heap *heap, size_t size, trz_stream stream, void **out)
{
	const trz_alloc_params params = {
	    .struct_size = sizeof params, .size = size, .stream = stream, .flags = TRZ_ALLOC_SHARE_FD};
	trz_status status = trz_alloc_with(heap, &params, out);
	/* Plain allocations of the driver have the driver's own handles; others are noted when they are shared. */
	return status == TRZ_ERROR_NOT_SUPPORTED ? trz_alloc(heap, size, 0, stream, out) : status;
}

/* ---- what is shared -------------------------------------------------------------------------------------- */

static _Atomic(struct share *) *bucket_of(const void *base)
{
	return &buckets[(uintptr_t)base / UNIT % BUCKETS];
}

static struct share *find_locked(const void *base)
{
	struct share *s = *bucket_of(base);
	while (s && s->base != base)
		s = s->next;
	return s;
}

static struct range *find_secret_locked(const unsigned char *secret)
{
	struct range *r = ranges;
	while (r && memcmp(r->secret, secret, SECRET_BYTES) != 0)
		r = r->next;
	return r;
}

static void unlist_locked(const struct range *r)
{
	struct range **link = &ranges;
	while (*link != r)
		link = &(*link)->next;
	*link = r->next;
}

/* Ends the exports of a range that nothing refers to any more. */
static void end_range(struct range *r)
{
	for (size_t i = 0; i < r->tile_count; i++)
		trz_export_end(r->heap, r->tiles[i]);
	free(r->tiles);
	free(r);
}

/* Gives up a reference. */
static void drop_range(struct range *r)
{
	pthread_mutex_lock(&lock);
	bool last = --r->references == 0;
	if (last)
		unlist_locked(r);
	pthread_mutex_unlock(&lock);
	if (last)
		end_range(r);
}

static struct share *unlist_share_locked(const void *base)
{
	_Atomic(struct share *) *first = bucket_of(base);
	struct share *s = *first, *before = NULL;
	for (; s && s->base != base; s = s->next)
		before = s;
	if (s && before)
		before->next = s->next;
	else if (s)
		*first = s->next;
	if (s)
		atomic_fetch_sub_explicit(&shares, 1, memory_order_relaxed);
	return s;
}

void plug_share_end(const void *ptr)
{
	if (!atomic_load_explicit(&shares, memory_order_relaxed) ||
	    !atomic_load_explicit(bucket_of(ptr), memory_order_relaxed))
		return;
	pthread_mutex_lock(&lock);
	struct share *s = unlist_share_locked(ptr);
	pthread_mutex_unlock(&lock);
	if (s)
		drop_range(s->range);
	free(s);
}

/* ---- answering others ------------------------------------------------------------------------------------ */

static bool is_same_user(int fd)
{
	struct ucred peer;
	socklen_t length = sizeof peer;
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

static void set_timeout(int fd, int seconds)
{
	const struct timeval limit = {.tv_sec = seconds};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

union control {
	char bytes[CMSG_SPACE(AT_ONCE * sizeof(int))];
	struct cmsghdr aligned;
};

static void send_answer(int to, const struct answer *answer, const int *fds)
{
	union control control = {0};
	struct iovec part = {.iov_base = (void *)answer, .iov_len = sizeof *answer};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (answer->count) {
		size_t bytes = answer->count * sizeof *fds;
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(bytes);
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(bytes);
		memcpy(CMSG_DATA(header), fds, bytes);
	}
	sendmsg(to, &message, MSG_NOSIGNAL);
}

/* Makes descriptors of the range's next tiles, from an offset on; anew for each question, so that none is kept open. */
static void export_some(const struct range *r, uint64_t offset, struct answer *answer, int *fds)
{
	trz_exported_tile tile;
	answer->status = TRZ_OK;
	for (char *at = r->base + offset; at < r->base + r->size && answer->count < AT_ONCE; at += tile.size) {
		answer->status = trz_export_tile(r->heap, at, TRZ_ALLOC_SHARE_FD, &fds[answer->count], &tile);
		if (answer->status != TRZ_OK)
			return;
		trz_export_end(r->heap, tile.base);  /* the range's own export goes on */
		answer->sizes[answer->count++] = tile.size;
	}
}

/* Answers one process. The reference taken here keeps the tiles in place meanwhile. */
static void answer_question(int to)
{
	struct question q;
	struct answer answer = {.status = TRZ_ERROR_NOT_FOUND};
	int fds[AT_ONCE];
	set_timeout(to, QUESTION_SECONDS);
	if (!is_same_user(to) || recv(to, &q, sizeof q, MSG_WAITALL) != sizeof q)
		return;
	pthread_mutex_lock(&lock);
	struct range *r = find_secret_locked(q.secret);
	if (r)
		r->references++;
	pthread_mutex_unlock(&lock);
	if (r && q.offset < r->size)
		export_some(r, q.offset, &answer, fds);
	send_answer(to, &answer, fds);
	for (uint32_t i = 0; i < answer.count; i++)
		close(fds[i]);
	if (r)
		drop_range(r);
}

static void *answer_all(void *argument)
{
	const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
	int from = *(int *)argument;
	for (;;) {
		int fd = accept4(from, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0) {
			answer_question(fd);
			shutdown(fd, SHUT_RDWR);  /* the asker waits for that; closing alone would not do if a child made by fork()
			                           * has the descriptor, too */
			close(fd);
		} else if (errno != EINTR && errno != ECONNABORTED) {
			nanosleep(&pause, NULL);  /* no descriptor is left: the asker is answered when there is one again */
		}
	}
	return NULL;
}

static struct sockaddr_un address_of(const unsigned char *name, socklen_t *length)
{
	static const char prefix[] = "terrazzo-", digits[] = "0123456789abcdef";
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char *at = address.sun_path + 1;  /* the 0 before it makes the name abstract */
	for (const char *p = prefix; *p;)
		*at++ = *p++;
	for (int i = 0; i < SECRET_BYTES; i++) {
		*at++ = digits[name[i] >> 4];
		*at++ = digits[name[i] & 15];
	}
	*length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)(at - address.sun_path));
	return address;
}

/* A child made by fork() answers nobody, and must not keep askers waiting once its parent has ended. */
static void close_in_child(void)
{
	if (listener >= 0)
		close(listener);
	listener = -1;
}

static trz_status start_thread(void)
{
	sigset_t all, before;
	pthread_t thread;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);  /* the thread takes none of the program's signals */
	int error = pthread_create(&thread, NULL, answer_all, &listener);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return plug_fail(TRZ_ERROR_HOST_MEMORY, "no thread for sharing memory with other processes: %s",
		                 strerror(error));
	pthread_detach(thread);
	return TRZ_OK;
}

static trz_status start_locked(void)
{
	socklen_t length;
	if (listener >= 0)
		return TRZ_OK;
	if (getrandom(server_name, sizeof server_name, 0) != sizeof server_name)
		return plug_fail(TRZ_ERROR_IO, "no random numbers for the name of a socket: %s", strerror(errno));
	struct sockaddr_un address = address_of(server_name, &length);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, BACKLOG) != 0) {
		trz_status status = plug_fail(TRZ_ERROR_IO, "no socket for sharing memory with other processes: %s",
		                              strerror(errno));
		if (fd >= 0)
			close(fd);
		return status;
	}
	listener = fd;
	trz_status status = start_thread();
	if (status == TRZ_OK) {
		pthread_atfork(NULL, NULL, close_in_child);
		return TRZ_OK;
	}
	close(listener);
	listener = -1;
	return status;
}

/* ---- sharing --------------------------------------------------------------------------------------------- */

static bool add_tile(struct range *r, void *base, size_t size)
{
	if (r->tile_count == r->tile_room) {
		size_t room = r->tile_room ? 2 * r->tile_room : 4;
		void **grown = realloc(r->tiles, room * sizeof *grown);
		if (!grown)
			return false;
		r->tiles = grown;
		r->tile_room = room;
	}
	if (!r->tile_count)
		r->base = base;
	r->tiles[r->tile_count++] = base;
	r->size += size;
	return true;
}

/* Exports the tiles from `begin` to `end`. Makes a descriptor of the first, to see that this is possible. */
static trz_status export_range(struct range *r, const char *begin, const char *end)
{
	trz_exported_tile tile;
	int fd = -1;
	for (const char *at = begin; at < end; at = (char *)tile.base + tile.size) {
		trz_status status = plug_pass(trz_export_tile(r->heap, at, TRZ_ALLOC_SHARE_FD, fd < 0 ? &fd : NULL, &tile));
		if (status == TRZ_OK && !add_tile(r, tile.base, tile.size)) {
			trz_export_end(r->heap, tile.base);
			status = plug_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for sharing %p", (const void *)begin);
		}
		if (fd >= 0 && at == begin)
			close(fd);
		if (status != TRZ_OK)
			return status;
	}
	return TRZ_OK;
}

static trz_status make_share(trz_heap *heap, const trz_pointer_info *info, struct share **out)
{
	struct share *s = calloc(1, sizeof *s);
	struct range *r = calloc(1, sizeof *r);
	trz_status status = TRZ_OK;
	if (!s || !r)
		status = plug_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for sharing %p", info->base);
	else if (getrandom(r->secret, sizeof r->secret, 0) != sizeof r->secret)
		status = plug_fail(TRZ_ERROR_IO, "no random numbers for sharing %p: %s", info->base, strerror(errno));
	if (status == TRZ_OK) {
		r->heap = heap;
		status = export_range(r, info->base, (const char *)info->base + info->requested);
	}
	if (status != TRZ_OK) {
		if (r)
			end_range(r);
		free(s);
		return status;
	}
	*s = (struct share){.base = info->base, .range = r};
	*out = s;
	return TRZ_OK;
}

static struct range *find_range_locked(const struct range *like)
{
	struct range *r = ranges;
	while (r && (r->base != like->base || r->size != like->size || r->heap != like->heap))
		r = r->next;
	return r;
}

/* Enters a share. If its tiles have a range already, it uses that, and the caller ends *rest, the range that is not
 * needed; else *rest is NULL. */
static void add_locked(struct share *s, struct range **rest)
{
	struct range *known = find_range_locked(s->range);
	_Atomic(struct share *) *first = bucket_of(s->base);
	*rest = known ? s->range : NULL;
	if (known) {
		s->range = known;
	} else {
		s->range->next = ranges;
		ranges = s->range;
	}
	s->range->references++;
	s->next = *first;
	*first = s;
	atomic_fetch_add_explicit(&shares, 1, memory_order_relaxed);
}

static void write_locked(const struct range *r, struct written *out)
{
	memcpy(out->magic, magic, sizeof out->magic);
	memcpy(out->server, server_name, sizeof out->server);
	memcpy(out->secret, r->secret, sizeof out->secret);
	out->size = r->size;
}

/* Whether a share is that of an allocation. One that ended without a free of ours, when a pool was restored, may have
 * left its share behind. */
static bool covers(const struct share *s, const trz_pointer_info *info)
{
	const char *begin = info->base, *end = begin + info->requested;
	return s && begin >= s->range->base && end <= s->range->base + s->range->size;
}

/* Writes the range of an allocation that has a share, and the allocation's offset in it. false: it has none. */
static bool write_known(const trz_pointer_info *info, struct written *w, size_t *offset)
{
	pthread_mutex_lock(&lock);
	struct share *s = find_locked(info->base), *stale = NULL;
	bool known = covers(s, info);
	if (known) {
		write_locked(s->range, w);
		*offset = (size_t)((const char *)info->base - s->range->base);
	} else if (s) {
		stale = unlist_share_locked(info->base);
	}
	pthread_mutex_unlock(&lock);
	if (stale)
		drop_range(stale->range);
	free(stale);
	return known;
}

/* Shares an allocation. If two threads do so at once, the second one uses the first one's share. */
static trz_status share(trz_heap *heap, const trz_pointer_info *info)
{
	struct share *made = NULL;
	struct range *rest = NULL;
	trz_status status = make_share(heap, info, &made);
	if (status != TRZ_OK)
		return status;
	pthread_mutex_lock(&lock);
	status = start_locked();
	if (status == TRZ_OK && !find_locked(made->base)) {
		add_locked(made, &rest);
		made = NULL;
	}
	pthread_mutex_unlock(&lock);
	if (made)
		rest = made->range;
	if (rest)
		end_range(rest);
	free(made);
	return status;
}

trz_status trz_torch_share(const void *ptr, size_t *offset, void *handle)
{
	trz_pointer_info info;
	struct written w = {0};
	trz_heap *heap = trz_torch_owner(ptr);
	if (!heap || trz_query(heap, ptr, &info) != TRZ_OK)
		return plug_fail(TRZ_ERROR_UNKNOWN_POINTER, "%p is not memory of terrazzo", ptr);
	while (!write_known(&info, &w, offset)) {
		trz_status status = share(heap, &info);
		if (status != TRZ_OK)
			return status;
	}
	memcpy(handle, &w, sizeof w);
	*offset += (size_t)((const char *)ptr - (const char *)info.base);
	return TRZ_OK;
}

/* ---- what others share ----------------------------------------------------------------------------------- */

/* An import's question to another process. */
struct asking {
	const struct written *w;
	struct answer answer;        /* the newest */
	int fds[AT_ONCE];            /* that came with it; -1: closed */
	uint32_t next;               /* the first that has not been used */
	trz_status failed;           /* of a failure whose text is the plug's own */
};

static time_t now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* Whether to make a call once more. A signal that the program handles interrupts a wait on a socket with a time limit,
 * whatever flags its handler has. */
static bool again(ssize_t result, time_t end)
{
	return result < 0 && errno == EINTR && now_s() < end;
}

/* Takes the descriptors of an answer. */
static bool receive_answer(int from, time_t end, struct asking *a)
{
	ssize_t got;
	union control control = {0};
	struct iovec part = {.iov_base = &a->answer, .iov_len = sizeof a->answer};
	struct msghdr message = {
	    .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	do
		got = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
	while (again(got, end));
	if (got != sizeof a->answer) {
		a->answer = (struct answer){.status = TRZ_ERROR_IO};
		return false;
	}
	/* The other end closes once it no longer holds the memory for this question: what both sides free after that is
	 * free at once. */
	while (again(recv(from, &(char){0}, 1, 0), end)) {}
	const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	bool any = header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS;
	size_t bytes = any ? header->cmsg_len - CMSG_LEN(0) : 0;
	bool whole = any && bytes == a->answer.count * sizeof *a->fds && a->answer.status == TRZ_OK;
	if (any)
		memcpy(a->fds, CMSG_DATA(header), bytes);
	a->answer.count = (uint32_t)(bytes / sizeof *a->fds);
	if (message.msg_flags & MSG_CTRUNC)
		a->answer.status = TRZ_ERROR_LIMIT;
	return whole;
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_rest(struct asking *a)
{
	for (uint32_t i = 0; i < a->answer.count; i++)
		close_one(&a->fds[i]);
	a->answer.count = a->next = 0;
}

static bool send_question(int to, time_t end, const struct question *q)
{
	ssize_t sent;
	do
		sent = send(to, q, sizeof *q, MSG_NOSIGNAL);
	while (again(sent, end));
	return sent == sizeof *q;
}

static trz_status ask(struct asking *a, size_t offset)
{
	const time_t end = now_s() + ANSWER_SECONDS;
	int error;
	socklen_t length;
	struct question q = {.offset = offset};
	struct sockaddr_un address = address_of(a->w->server, &length);
	int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	memcpy(q.secret, a->w->secret, sizeof q.secret);
	if (to < 0)
		return plug_fail(TRZ_ERROR_IO, "no socket for memory of another process: %s", strerror(errno));
	set_timeout(to, ANSWER_SECONDS);
	do
		error = connect(to, (struct sockaddr *)&address, length);
	while (again(error, end));
	if (error) {
		trz_status status = plug_fail(TRZ_ERROR_NOT_FOUND, "the process that shares this memory cannot be reached "
		                              "(%s): it has ended, or is in another network namespace", strerror(errno));
		close(to);
		return status;
	}
	close_rest(a);
	a->answer = (struct answer){.status = TRZ_ERROR_IO};
	bool whole = is_same_user(to) && send_question(to, end, &q) && receive_answer(to, end, a);
	close(to);
	if (whole)
		return TRZ_OK;
	if (a->answer.status == TRZ_ERROR_LIMIT)
		return plug_fail(TRZ_ERROR_IO, "receiving memory of another process takes %d file descriptors at a time: raise "
		                 "the limit of open files (ulimit -n)", AT_ONCE);
	return plug_fail(TRZ_ERROR_NOT_FOUND, a->answer.status == TRZ_ERROR_NOT_FOUND
	                 ? "the process that shared this memory has freed it: keep it there until it has been received"
	                 : "the process that shares this memory does not answer");
}

static trz_status give_tile(void *user, size_t offset, void *shareable, size_t *size)
{
	struct asking *a = user;
	if (a->next)  /* the import has used the one before */
		close_one(&a->fds[a->next - 1]);
	if (a->next == a->answer.count)
		a->failed = ask(a, offset);
	if (a->failed != TRZ_OK)
		return a->failed;
	memcpy(shareable, &a->fds[a->next], sizeof *a->fds);
	*size = a->answer.sizes[a->next++];
	return TRZ_OK;
}

trz_status trz_torch_receive(const void *handle, size_t bytes, int device, trz_stream stream, void **out)
{
	trz_heap *heap;
	struct written w;
	struct asking a = {.w = &w};
	*out = NULL;
	if (!trz_torch_is_handle(handle, bytes))
		return plug_fail(TRZ_ERROR_INVALID_ARGUMENT, "this is not a handle of memory that terrazzo shares");
	memcpy(&w, handle, sizeof w);
	trz_status status = trz_torch_heap(device, true, &heap);
	if (status != TRZ_OK)
		return status;
	status = trz_import_tiles(heap, TRZ_ALLOC_SHARE_FD, w.size, give_tile, &a, stream, out);
	close_rest(&a);
	return a.failed == TRZ_OK ? plug_pass(status) : status;
}

bool trz_torch_is_handle(const void *handle, size_t bytes)
{
	return bytes == sizeof(struct written) && memcmp(handle, magic, sizeof magic) == 0;
}
