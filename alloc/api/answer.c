/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that answers, its socket, and the signal that wakes it.
 */
#include "api/answer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include "api/init.h"
#include "error.h"
#include "serve/postmortem.h"

enum { STACK_BYTES = 512 << 10, WAIT_S = 2 };

/* Descriptors are -1 until they are there. Guarded by `lock`, but for what the thread and the handler read: that was
 * there before them. */
static struct {
	pthread_mutex_t lock;
	bool running;
	volatile pid_t process;      /* whose thread it is: a child has none */
	int wake[2], listener;
	uint64_t signals;            /* handled, as bits */
} answer = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = {-1, -1}, .listener = -1};

/* ---- what is said ---- */

static bool to_descriptor(void *user, const char *text, size_t size)
{
	int to = *(int *)user;
	while (size) {
		ssize_t done = to == STDERR_FILENO ? write(to, text, size) : send(to, text, size, MSG_NOSIGNAL);
		if (done < 0 && errno != EINTR)
			return false;
		text += done > 0 ? done : 0;
		size -= done > 0 ? (size_t)done : 0;
	}
	return true;
}

static void report_text(trz_heap *h, void *arg)
{
	if (postmortem_report(h, 0, to_descriptor, arg) != TRZ_OK) {
		const char *why = trz_last_error();
		to_descriptor(arg, why, strlen(why));
		to_descriptor(arg, "\n", 1);
	}
}

struct choice {
	int device;
	uint64_t most;
	trz_heap *heap;
};

static void choose(trz_heap *h, void *arg)
{
	struct choice *c = arg;
	uint64_t reserved = heap_reserved(h);
	if ((c->device != ANSWER_ANY_DEVICE && c->device != h->driver.device) || (c->heap && reserved <= c->most))
		return;
	c->heap = h;
	c->most = reserved;
}

struct object {
	const trz_heap *heap;
	int to;
};

static void report_object(trz_heap *h, void *arg)
{
	struct object *o = arg;
	if (h == o->heap)
		postmortem_report(h, TRZ_REPORT_JSON, to_descriptor, &o->to);
}

static void speak(int to, int mode, int device)
{
	struct choice c = {.device = device};
	if (mode == ANSWER_TEXT)
		init_each_heap(report_text, &to);
	if (mode != ANSWER_JSON)
		return;
	init_each_heap(choose, &c);
	struct object o = {c.heap, to};  /* which may have been closed since: then it is met no more */
	init_each_heap(report_object, &o);
}

/* ---- who asks ---- */

static bool may_ask(int from)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	return getsockopt(from, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

/* Who asks, and then says or reads nothing, is waited for only so long. */
static void serve_one(int from)
{
	unsigned char words[2];
	const struct timeval wait = {.tv_sec = WAIT_S};
	setsockopt(from, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	setsockopt(from, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
	if (may_ask(from) && recv(from, words, sizeof words, MSG_WAITALL) == (ssize_t)sizeof words)
		speak(from, words[0], words[1]);
	close(from);
}

static void *run(void *unused)
{
	struct pollfd on[2] = {{answer.wake[0], POLLIN, 0}, {answer.listener, POLLIN, 0}};
	char signals[64];
	(void)unused;
	for (;;) {
		if (poll(on, 2, -1) < 0)
			continue;
		if (on[0].revents && read(on[0].fd, signals, sizeof signals) > 0)
			speak(STDERR_FILENO, ANSWER_TEXT, ANSWER_ANY_DEVICE);
		int from = on[1].revents ? accept4(on[1].fd, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (from >= 0)
			serve_one(from);
	}
	return NULL;
}

/* Wakes the thread; nothing else can be done in a handler. */
static void handle(int signal)
{
	int error = errno;
	(void)signal;
	if (answer.process == getpid()) {
		ssize_t ignored = write(answer.wake[1], "", 1);
		(void)ignored;
	}
	errno = error;
}

/* ---- beginning ---- */

static void close_all(void)
{
	int *const all[] = {&answer.wake[0], &answer.wake[1], &answer.listener};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (*all[i] >= 0)
			close(*all[i]);
		*all[i] = -1;
	}
}

/* The child has no such thread: its own heaps begin anew. */
static void in_child(void)
{
	pthread_mutex_init(&answer.lock, NULL);
	answer.running = false;
	close_all();
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

/* One socket for the process: who has its name already keeps it. */
static bool open_socket(void)
{
	struct sockaddr_un address;
	socklen_t length = answer_address((int)getpid(), &address);
	answer.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return answer.listener >= 0 && bind(answer.listener, (struct sockaddr *)&address, length) == 0 &&
	       listen(answer.listener, 4) == 0;
}

/* The thread takes none of the program's signals. */
static bool start_thread(void)
{
	pthread_t thread;
	pthread_attr_t attributes;
	sigset_t all, before;
	sigfillset(&all);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	bool started = pthread_create(&thread, &attributes, run, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return started;
}

static trz_status start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (answer.running)
		return TRZ_OK;
	pthread_once(&once, watch_forks);
	answer.process = getpid();
	answer.running = pipe2(answer.wake, O_CLOEXEC | O_NONBLOCK) == 0 && open_socket() && start_thread();
	if (answer.running)
		return TRZ_OK;
	close_all();
	return trz_fail(TRZ_ERROR_HOST_MEMORY, "the thread that makes reports on request cannot be started: %s",
	                strerror(errno));
}

static trz_status take_signal(int signal)
{
	struct sigaction before, action = {.sa_handler = handle, .sa_flags = SA_RESTART};
	if (answer.signals >> signal & 1)
		return TRZ_OK;
	sigemptyset(&action.sa_mask);
	if (sigaction(signal, NULL, &before) != 0 || before.sa_handler != SIG_DFL || sigaction(signal, &action, NULL) != 0)
		return trz_fail(TRZ_ERROR_IN_USE, "report_signal:%d: the program handles this signal itself, or nobody can: "
		                "name another one", signal);
	answer.signals |= (uint64_t)1 << signal;
	return TRZ_OK;
}

trz_status answer_begin(const struct config *config)
{
	trz_status status = TRZ_OK;
	if (!config->answer && !config->report_signal)
		return TRZ_OK;
	pthread_mutex_lock(&answer.lock);
	status = start();
	if (status == TRZ_OK && config->report_signal)
		status = take_signal((int)config->report_signal);
	pthread_mutex_unlock(&answer.lock);
	return status;
}
