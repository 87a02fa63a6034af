/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for other processes. A handle is a name that can be written down: whoever has it asks the process that owns
 * the memory for a file descriptor, over a socket, and maps that. So nobody needs the right to look into another
 * process, which containers often deny.
 *
 * The socket has an abstract name: it takes no file, ends with its process, and is seen within one network namespace.
 * Only processes of the same user are answered, and only with memory whose secret they know.
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
#include <unistd.h>

#include "plug.h"

enum {
	SECRET_BYTES = 16,
	BUCKETS = 256,
	TILE = 2 << 20,          /* memory that can be exported begins at a multiple */
	ANSWER_SECONDS = 60,     /* a process that has been stopped, or is very slow */
	QUESTION_SECONDS = 5,
	BACKLOG = 128
};

static const char magic[8] = "trz-shr1";

/* What lies in a handle. */
struct written {
	char magic[8];
	unsigned char server[SECRET_BYTES];  /* the socket's name, in hex */
	unsigned char secret[SECRET_BYTES];
	uint64_t size;
};

_Static_assert(sizeof(struct written) == TRZ_TORCH_HANDLE_BYTES, "no padding: equal handles are equal bytes");

/* One allocation that has been exported, until it is freed. */
struct share {
	struct share *next;
	trz_heap *heap;
	void *base;
	size_t size;
	unsigned char secret[SECRET_BYTES];
};

/* The answer to a secret; with TRZ_OK a descriptor comes along. */
struct answer {
	int32_t status;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* of what follows; no call of the heap is made under it */
static struct share *buckets[BUCKETS];
static unsigned char server_name[SECRET_BYTES];
static int listener = -1;

/* So many allocations are in `buckets`. */
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
	/* Plain allocations of the driver have handles of its own; others are told of when they are shared. */
	return status == TRZ_ERROR_NOT_SUPPORTED ? trz_alloc(heap, size, 0, stream, out) : status;
}

/* ---- what is shared -------------------------------------------------------------------------------------- */

static struct share **bucket_of(const void *base)
{
	return &buckets[(uintptr_t)base / TILE % BUCKETS];
}

static struct share *find_locked(const void *base)
{
	struct share *s = *bucket_of(base);
	while (s && s->base != base)
		s = s->next;
	return s;
}

static struct share *find_secret_locked(const unsigned char *secret)
{
	for (int i = 0; i < BUCKETS; i++)
		for (struct share *s = buckets[i]; s; s = s->next)
			if (memcmp(s->secret, secret, SECRET_BYTES) == 0)
				return s;
	return NULL;
}

void plug_share_end(const void *ptr)
{
	if (!atomic_load_explicit(&shares, memory_order_relaxed) || (uintptr_t)ptr % TILE)
		return;
	pthread_mutex_lock(&lock);
	struct share **link = bucket_of(ptr);
	while (*link && (*link)->base != ptr)
		link = &(*link)->next;
	struct share *s = *link;
	if (s) {
		*link = s->next;
		atomic_fetch_sub_explicit(&shares, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&lock);
	if (s)
		trz_export_end(s->heap, s->base);
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
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr aligned;
};

static void send_answer(int to, struct answer answer, int fd)
{
	union control control = {0};
	struct iovec part = {.iov_base = &answer, .iov_len = sizeof answer};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (fd >= 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = sizeof control.bytes;
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(header), &fd, sizeof fd);
	}
	sendmsg(to, &message, MSG_NOSIGNAL);
}

/* The export made here keeps the memory from being given to others while it is looked whether it is still shared. */
static void answer_question(int to)
{
	unsigned char secret[SECRET_BYTES];
	struct share found = {0};
	int fd = -1;
	set_timeout(to, QUESTION_SECONDS);
	if (!is_same_user(to) || recv(to, secret, sizeof secret, MSG_WAITALL) != sizeof secret)
		return;
	pthread_mutex_lock(&lock);
	const struct share *s = find_secret_locked(secret);
	if (s)
		found = *s;
	pthread_mutex_unlock(&lock);
	struct answer answer = {.status = TRZ_ERROR_NOT_FOUND};
	if (found.base)
		answer.status = trz_export(found.heap, found.base, TRZ_ALLOC_SHARE_FD, &fd);
	if (found.base && answer.status == TRZ_OK) {
		pthread_mutex_lock(&lock);
		bool still = find_secret_locked(secret);
		pthread_mutex_unlock(&lock);
		send_answer(to, (struct answer){still ? TRZ_OK : TRZ_ERROR_NOT_FOUND}, still ? fd : -1);
		close(fd);
		trz_export_end(found.heap, found.base);
	} else {
		send_answer(to, answer, -1);
	}
}

static void *answer_all(void *argument)
{
	const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
	int from = *(int *)argument;
	for (;;) {
		int fd = accept4(from, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0) {
			answer_question(fd);
			shutdown(fd, SHUT_RDWR);  /* who asks waits for that; a child made by fork() may have the descriptor, too */
			close(fd);
		} else if (errno != EINTR && errno != ECONNABORTED) {
			nanosleep(&pause, NULL);  /* no descriptor is to be had: the caller is answered when there is one */
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

/* A child made by fork() answers nobody, and must not keep others waiting for its parent when that has ended. */
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
	pthread_sigmask(SIG_SETMASK, &all, &before);  /* signals are the program's */
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

/* Exports an allocation. The descriptor is made anew for everyone who asks, so that none is kept open. */
static trz_status make_share(trz_heap *heap, const trz_pointer_info *info, struct share **out)
{
	int fd;
	struct share *s = calloc(1, sizeof *s);
	if (!s)
		return plug_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for sharing %p", info->base);
	if (getrandom(s->secret, sizeof s->secret, 0) != sizeof s->secret) {
		free(s);
		return plug_fail(TRZ_ERROR_IO, "no random numbers for sharing %p: %s", info->base, strerror(errno));
	}
	trz_status status = plug_pass(trz_export(heap, info->base, TRZ_ALLOC_SHARE_FD, &fd));
	if (status != TRZ_OK) {
		free(s);
		return status;
	}
	close(fd);
	s->heap = heap;
	s->base = info->base;
	s->size = info->size;
	*out = s;
	return TRZ_OK;
}

/* Two threads may share an allocation at the same time: the second takes the first's. */
static trz_status add_locked(struct share **made, struct share **found)
{
	trz_status status = start_locked();
	*found = find_locked((*made)->base);
	if (status != TRZ_OK || *found)
		return status;
	(*made)->next = *bucket_of((*made)->base);
	*found = *bucket_of((*made)->base) = *made;
	*made = NULL;
	atomic_fetch_add_explicit(&shares, 1, memory_order_relaxed);
	return TRZ_OK;
}

static void write_locked(const struct share *s, struct written *out)
{
	memcpy(out->magic, magic, sizeof out->magic);
	memcpy(out->server, server_name, sizeof out->server);
	memcpy(out->secret, s->secret, sizeof out->secret);
	out->size = s->size;
}

trz_status trz_torch_share(const void *ptr, size_t *offset, void *handle)
{
	trz_pointer_info info;
	struct share *made = NULL;
	struct written w = {0};
	trz_heap *heap = trz_torch_owner(ptr);
	if (!heap || trz_query(heap, ptr, &info) != TRZ_OK)
		return plug_fail(TRZ_ERROR_UNKNOWN_POINTER, "%p is not memory of terrazzo", ptr);
	pthread_mutex_lock(&lock);
	const struct share *known = find_locked(info.base);
	if (known)
		write_locked(known, &w);
	pthread_mutex_unlock(&lock);
	trz_status status = known ? TRZ_OK : make_share(heap, &info, &made);
	if (status == TRZ_OK && made) {
		struct share *found;
		pthread_mutex_lock(&lock);
		status = add_locked(&made, &found);
		if (status == TRZ_OK)
			write_locked(found, &w);
		pthread_mutex_unlock(&lock);
		if (made)
			trz_export_end(heap, made->base);
		free(made);
	}
	if (status != TRZ_OK)
		return status;
	memcpy(handle, &w, sizeof w);
	*offset = (size_t)((const char *)ptr - (const char *)info.base);
	return TRZ_OK;
}

/* ---- what others share ----------------------------------------------------------------------------------- */

static int receive_answer(int from, struct answer *answer)
{
	union control control = {0};
	struct iovec part = {.iov_base = answer, .iov_len = sizeof *answer};
	struct msghdr message = {
	    .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	int fd = -1;
	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) != sizeof *answer)
		return -1;
	/* The other end is closed when nothing there holds the memory for this question any more: what both sides free
	 * from now on is free at once. */
	recv(from, &(char){0}, 1, 0);
	const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(header), sizeof fd);
	return fd;
}

/* *fd is the caller's. */
static trz_status ask(const struct written *w, int *fd)
{
	socklen_t length;
	struct answer answer = {.status = TRZ_ERROR_IO};
	struct sockaddr_un address = address_of(w->server, &length);
	int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (to < 0)
		return plug_fail(TRZ_ERROR_IO, "no socket for memory of another process: %s", strerror(errno));
	set_timeout(to, ANSWER_SECONDS);
	*fd = -1;
	if (connect(to, (struct sockaddr *)&address, length) != 0) {
		trz_status status = plug_fail(TRZ_ERROR_NOT_FOUND, "the process that shares this memory cannot be asked for it "
		                              "(%s): it has ended, or is in another network namespace", strerror(errno));
		close(to);
		return status;
	}
	if (is_same_user(to) && send(to, w->secret, sizeof w->secret, MSG_NOSIGNAL) == sizeof w->secret)
		*fd = receive_answer(to, &answer);
	close(to);
	if (*fd >= 0 && answer.status == TRZ_OK)
		return TRZ_OK;
	if (*fd >= 0)
		close(*fd);
	return plug_fail(TRZ_ERROR_NOT_FOUND, answer.status == TRZ_ERROR_NOT_FOUND
	                 ? "the process that shared this memory has freed it: keep it there until it has been received"
	                 : "the process that shares this memory does not answer");
}

trz_status trz_torch_receive(const void *handle, size_t bytes, int device, trz_stream stream, void **out)
{
	trz_heap *heap;
	struct written w;
	int fd;
	*out = NULL;
	if (!trz_torch_is_handle(handle, bytes))
		return plug_fail(TRZ_ERROR_INVALID_ARGUMENT, "that is not a handle of memory that terrazzo shares");
	memcpy(&w, handle, sizeof w);
	trz_status status = trz_torch_heap(device, true, &heap);
	if (status == TRZ_OK)
		status = ask(&w, &fd);
	if (status != TRZ_OK)
		return status;
	status = plug_pass(trz_import(heap, TRZ_ALLOC_SHARE_FD, &fd, w.size, stream, out));
	close(fd);
	return status;
}

bool trz_torch_is_handle(const void *handle, size_t bytes)
{
	return bytes == sizeof(struct written) && memcmp(handle, magic, sizeof magic) == 0;
}
