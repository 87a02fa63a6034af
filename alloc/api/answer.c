/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that answers, its socket, and the signal that wakes it.
 */
#include "api/answer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "api/init.h"
#include "error.h"
#include "serve/postmortem.h"

enum { STACK_BYTES = 512 << 10, WAIT_S = 2, PAUSE_NS = 100000000, TEXT_BYTES = 64 << 10 };

/* A descriptor, -1 until it is open, and what it leads to: a program that closes descriptors it has not opened may get
 * the same number for a file of its own. */
struct descriptor {
	int number;
	dev_t device;
	ino_t file;
};

/* Guarded by `lock`, except what the thread and the handler read, which is set before either runs. */
static struct {
	pthread_mutex_t lock;
	bool running;
	volatile pid_t process;      /* the process that has the thread: a forked child has none */
	struct descriptor wake[2], listener;
	uint64_t signals;            /* the signals that are handled, as bits */
} answer = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = {{.number = -1}, {.number = -1}}, .listener = {.number = -1}};

/* Notes what a new descriptor leads to; false: it is none. */
static bool keep(struct descriptor *d, int number)
{
	struct stat now = {0};
	bool open = number >= 0 && fstat(number, &now) == 0;
	*d = (struct descriptor){number, now.st_dev, now.st_ino};
	return open;
}

/* Whether it still leads there. Signal handlers may call this. */
static bool is_own(const struct descriptor *d)
{
	struct stat now;
	return d->number >= 0 && fstat(d->number, &now) == 0 && now.st_dev == d->device && now.st_ino == d->file;
}

/* ---- what is said ---- */

/* One report. It is written once the heap is let go, so that a client that does not read cannot hold up the closing of
 * a heap; only what is longer than `text` is written before. Used by the one thread alone. */
static struct {
	int to;
	bool lost;                   /* nobody reads */
	size_t size;
	char text[TEXT_BYTES];
} said;

/* Waits until the other end takes text, WAIT_S at most. A pipe that is ready takes PIPE_BUF bytes at once. */
static bool is_ready(int to)
{
	struct pollfd on = {to, POLLOUT, 0};
	int ready;
	while ((ready = poll(&on, 1, WAIT_S * 1000)) < 0 && errno == EINTR)
		;
	return ready > 0;
}

static void write_out(void)
{
	const char *text = said.text;
	bool is_file = said.to == STDERR_FILENO;
	while (said.size && !said.lost && is_ready(said.to)) {
		size_t some = min_u64(said.size, PIPE_BUF);
		ssize_t done = is_file ? write(said.to, text, some) : send(said.to, text, some, MSG_NOSIGNAL);
		said.lost = done < 0 && errno != EINTR;
		text += done > 0 ? done : 0;
		said.size -= done > 0 ? (size_t)done : 0;
	}
	said.lost = said.lost || said.size > 0;
}

static bool say(void *unused, const char *text, size_t size)
{
	(void)unused;
	while (size && !said.lost) {
		size_t some = min_u64(size, TEXT_BYTES - said.size);
		memcpy(said.text + said.size, text, some);
		said.size += some;
		text += some;
		size -= some;
		if (said.size == TEXT_BYTES)
			write_out();
	}
	return !said.lost;
}

/* Reports on a heap, and lets it go. */
static void report(trz_heap *h, unsigned flags)
{
	if (postmortem_report(h, flags, say, NULL) != TRZ_OK && !flags) {
		const char *why = trz_last_error();
		say(NULL, why, strlen(why));
		say(NULL, "\n", 1);
	}
	init_let_go(h);
	write_out();
}

static bool is_asked(const trz_heap *h, int device)
{
	return device == ANSWER_ANY_DEVICE || device == h->driver.device;
}

/* The serial of the device's heap that has reserved the most; 0: there is none. */
static uint64_t fullest(int device)
{
	uint64_t most = 0, chosen = 0, serial = UINT64_MAX;
	for (trz_heap *h; (h = init_hold(serial)); init_let_go(h)) {
		serial = h->serial;
		if (!is_asked(h, device) || (chosen && heap_reserved(h) <= most))
			continue;
		chosen = serial;
		most = heap_reserved(h);
	}
	return chosen;
}

static void report_all(int device)
{
	uint64_t serial = UINT64_MAX;
	for (trz_heap *h; (h = init_hold(serial));) {
		serial = h->serial;
		if (is_asked(h, device))
			report(h, 0);
		else
			init_let_go(h);
	}
}

static void report_fullest(int device)
{
	uint64_t serial = fullest(device);
	trz_heap *h = serial ? init_hold(serial + 1) : NULL;
	if (h && h->serial == serial)
		report(h, TRZ_REPORT_JSON);
	else if (h)
		init_let_go(h);  /* the fullest has been closed since */
}

static void speak(int to, int mode, int device)
{
	said.to = to;
	said.lost = false;
	said.size = 0;
	if (mode == ANSWER_TEXT)
		report_all(device);
	if (mode == ANSWER_JSON)
		report_fullest(device);
}

/* ---- who asks ---- */

static bool may_ask(int from)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	return getsockopt(from, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

/* Serves a client; one that then sends or reads nothing is waited for only WAIT_S. */
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

static void serve_next(int listener)
{
	int from = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (from >= 0)
		serve_one(from);
	else
		thread_sleep(PAUSE_NS);  /* no descriptor is left, say; the client still waits */
}

/* The thread. It ends if the program has closed the pipe: no request can reach it any more. */
static void *run(void *unused)
{
	struct pollfd on[2] = {{answer.wake[0].number, POLLIN, 0}, {answer.listener.number, POLLIN, 0}};
	char signals[64];
	(void)unused;
	for (;;) {
		if (poll(on, 2, -1) < 0)
			continue;
		if (!is_own(&answer.wake[0]))
			return NULL;
		if (on[0].revents && read(on[0].fd, signals, sizeof signals) > 0)
			speak(STDERR_FILENO, ANSWER_TEXT, ANSWER_ANY_DEVICE);
		if (on[1].revents & POLLIN && is_own(&answer.listener))
			serve_next(on[1].fd);
		else if (on[1].revents)
			on[1].fd = -1;  /* closed: only signals are answered from now on */
	}
}

/* The signal's handler: wakes the thread, since a handler can do nothing else. */
static void handle(int signal)
{
	int error = errno;
	(void)signal;
	if (answer.process == getpid() && is_own(&answer.wake[1])) {
		ssize_t ignored = write(answer.wake[1].number, "", 1);
		(void)ignored;
	}
	errno = error;
}

/* ---- beginning ---- */

static void close_all(void)
{
	struct descriptor *const all[] = {&answer.wake[0], &answer.wake[1], &answer.listener};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (is_own(all[i]))
			close(all[i]->number);
		all[i]->number = -1;
	}
}

/* A forked child has no such thread; its own heaps start one. */
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

/* One socket for the process. If its name is taken already, this fails. */
static bool open_socket(void)
{
	struct sockaddr_un address;
	socklen_t length = answer_address((int)getpid(), &address);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return keep(&answer.listener, s) && bind(s, (struct sockaddr *)&address, length) == 0 && listen(s, 4) == 0;
}

static bool open_pipe(void)
{
	int ends[2];
	return pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 && keep(&answer.wake[0], ends[0]) &&
	       keep(&answer.wake[1], ends[1]);
}

/* The thread blocks all signals, so it takes none of the program's. */
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
	answer.running = open_pipe() && open_socket() && start_thread();
	if (answer.running)
		return TRZ_OK;
	close_all();
	return trz_fail(TRZ_ERROR_HOST_MEMORY, "the thread that makes reports on request cannot be started: %s",
	                strerror(errno));
}

/* Whether a program's own fault raises the signal: once the handler returned, the fault would come again. */
static bool is_of_fault(int signal)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT };
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
		if (faults[i] == signal)
			return true;
	return false;
}

static trz_status take_signal(int signal)
{
	struct sigaction before, action = {.sa_handler = handle, .sa_flags = SA_RESTART};
	if (answer.signals >> signal & 1)
		return TRZ_OK;
	if (is_of_fault(signal))
		return trz_fail(TRZ_ERROR_CONFIG_VALUE, "report_signal:%d: a fault of the program raises this signal, and does "
		                "so again once it is handled: name another one, such as %d (SIGUSR2)", signal, SIGUSR2);
	sigemptyset(&action.sa_mask);
	if (sigaction(signal, NULL, &before) != 0 || before.sa_handler != SIG_DFL || sigaction(signal, &action, NULL) != 0)
		return trz_fail(TRZ_ERROR_IN_USE, "report_signal:%d: the program handles or ignores this signal, or no "
		                "program can handle it: name another one", signal);
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
