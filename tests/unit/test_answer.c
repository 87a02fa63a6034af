/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports on request: over a socket, by a signal, and which requests get none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answer_words.h"
#include "rig.h"

enum { TEXT_MOST = 1 << 16 };

/* Until the other side closes, or the text ends with a report's last line. */
static const char *read_all(int from)
{
	static char text[TEXT_MOST];
	size_t used = 0;
	ssize_t got;
	do {
		got = read(from, text + used, sizeof text - 1 - used);
		used += got > 0 ? (size_t)got : 0;
		text[used] = '\0';
		const char *source = strstr(text, "\nsource: ");
		if (source && strchr(source + 1, '\n'))
			break;
	} while (got > 0 && used < sizeof text - 1);
	return text;
}

static int connect_to(int process)
{
	struct sockaddr_un address;
	socklen_t length = answer_address(process, &address);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(s >= 0);
	if (connect(s, (struct sockaddr *)&address, length) == 0)
		return s;
	close(s);
	return -1;
}

static const char *ask(int mode, int device)
{
	int s = connect_to((int)getpid());
	const unsigned char words[2] = {(unsigned char)mode, (unsigned char)device};
	assert_true(s >= 0);
	assert_int_equal(send(s, words, sizeof words, MSG_NOSIGNAL), 2);
	const char *text = read_all(s);
	close(s);
	return text;
}

static void test_without_the_option_nobody_answers(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), NULL);
	assert_int_equal(connect_to((int)getpid()), -1);
	rig_close(&r);
}

static void test_the_socket(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "answer:on");
	void *p = rig_alloc(&r, MIB(300), NULL);
	assert_non_null(strstr(ask(ANSWER_TEXT, ANSWER_ANY_DEVICE), "memory of device 0"));
	const char *text = ask(ANSWER_JSON, ANSWER_ANY_DEVICE);
	assert_ptr_equal(strstr(text, "{\"verdict\":"), text);
	assert_non_null(strstr(text, "\"allocated\":314572800"));
	assert_string_equal(ask(ANSWER_JSON, 7), "");  /* there is no such device */
	assert_string_equal(ask(ANSWER_TEXT, 7), "");
	assert_string_equal(ask('x', 0), "");
	int s = connect_to((int)getpid());  /* who says nothing does not keep the others out */
	close(s);
	assert_non_null(strstr(ask(ANSWER_TEXT, 0), "memory of device 0"));
	rig_free(&r, p);
	rig_close(&r);
	assert_string_equal(ask(ANSWER_TEXT, 0), "");  /* no heap is open */
}

static void test_the_signal(void **state)
{
	(void)state;
	int both[2], kept = dup(STDERR_FILENO);
	struct rig r = rig_open(GIB(1), "report_signal:12");
	void *p = rig_alloc(&r, MIB(300), NULL);
	assert_int_equal(pipe(both), 0);
	fflush(stderr);
	dup2(both[1], STDERR_FILENO);
	raise(SIGUSR2);
	const char *text = read_all(both[0]);
	dup2(kept, STDERR_FILENO);
	assert_ptr_equal(strstr(text, "memory of device 0"), text);
	assert_non_null(strstr(text, "300.00 MiB"));
	close(kept);
	close(both[0]);
	close(both[1]);
	trz_heap *second = rig_second_heap(&r);  /* without the option: nothing changes */
	assert_ok(trz_close(second));
	rig_free(&r, p);
	rig_close(&r);
}

static void own_handler(int unused)
{
	(void)unused;
}

static void test_a_signal_of_the_programs_own_stays(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.capacity = GIB(1)});
	trz_open_params params = {.driver = r.d, .config = "report_signal:10"};
	struct sigaction after;
	signal(SIGUSR1, own_handler);
	assert_error(trz_open(&params, &r.heap), TRZ_ERROR_IN_USE, "report_signal:10");
	params.config = "report_signal:9";
	assert_status(trz_open(&params, &r.heap), TRZ_ERROR_IN_USE);
	sigaction(SIGUSR1, NULL, &after);
	assert_true(after.sa_handler == own_handler);
	signal(SIGUSR1, SIG_DFL);
	sim_close(r.s);
}

/* A fault is there again when its handler returns. */
static void test_no_report_is_made_of_a_fault(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.capacity = GIB(1)});
	trz_open_params params = {.driver = r.d, .config = "report_signal:11"};
	struct sigaction before, after;
	sigaction(SIGSEGV, NULL, &before);
	assert_error(trz_open(&params, &r.heap), TRZ_ERROR_CONFIG_VALUE, "report_signal:11");
	sigaction(SIGSEGV, NULL, &after);
	assert_true(after.sa_handler == before.sa_handler);
	sim_close(r.s);
}

static pthread_mutex_t programs_own = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_asked;

static uint64_t one_stack(void *user)
{
	(void)user;
	return 1;
}

static size_t text_behind_a_lock(void *user, uint64_t stack, trz_frame *frames, size_t capacity)
{
	(void)user;
	(void)stack;
	(void)frames;
	(void)capacity;
	atomic_store(&is_asked, true);
	pthread_mutex_lock(&programs_own);
	pthread_mutex_unlock(&programs_own);
	return 0;
}

/* The report of one heap waits for a lock of the program's, which closes another heap meanwhile. */
static void test_a_report_holds_up_no_other_heap(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "answer:on");
	trz_heap *second = rig_second_heap(&r);
	assert_ok(trz_set_site_callback(r.heap, one_stack, text_behind_a_lock, NULL));
	void *p = rig_alloc(&r, MIB(300), NULL);
	pthread_mutex_lock(&programs_own);
	int s = connect_to((int)getpid());
	const unsigned char words[2] = {ANSWER_TEXT, ANSWER_ANY_DEVICE};
	assert_int_equal(send(s, words, sizeof words, MSG_NOSIGNAL), 2);
	while (!atomic_load(&is_asked))
		usleep(1000);
	assert_ok(trz_close(second));
	pthread_mutex_unlock(&programs_own);
	assert_non_null(strstr(read_all(s), "memory of device 0"));
	close(s);
	rig_free(&r, p);
	rig_close(&r);
}

/* Nor does one that nobody reads hold up its own. */
static void test_a_report_that_nobody_reads(void **state)
{
	(void)state;
	char fill[4096] = {0};
	int both[2], kept = dup(STDERR_FILENO);
	struct rig r = rig_open(GIB(1), "report_signal:12");
	assert_int_equal(pipe(both), 0);
	fcntl(both[1], F_SETFL, O_NONBLOCK);
	while (write(both[1], fill, sizeof fill) > 0)
		;
	fcntl(both[1], F_SETFL, 0);
	fflush(stderr);
	dup2(both[1], STDERR_FILENO);
	raise(SIGUSR2);
	rig_close(&r);
	dup2(kept, STDERR_FILENO);
	close(kept);
	close(both[0]);
	close(both[1]);
}

static int threads_of_this_process(void)
{
	int count = -2;  /* "." and ".." */
	DIR *tasks = opendir("/proc/self/task");
	while (tasks && readdir(tasks))
		count++;
	closedir(tasks);
	return count;
}

/* A program that goes on in the background closes what it has not opened. ThreadSanitizer bears no threads in a child
 * of a process with threads. */
static void test_a_thread_without_its_descriptors_ends(void **state)
{
	(void)state;
	int status;
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	pid_t child = fork();
	if (child == 0) {
		struct rig r = rig_open(GIB(1), "answer:on,report_signal:12");
		for (int i = 3; i < 256; i++)
			close(i);
		raise(SIGUSR2);
		while (threads_of_this_process() > 1)
			usleep(1000);
		rig_close(&r);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* Nor does the program's next child lose the files that have got their numbers since. */
static void test_a_child_keeps_the_programs_files(void **state)
{
	(void)state;
	int status;
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	pid_t child = fork();
	if (child == 0) {
		enum { FILES = 40 };
		int files[FILES], lost = 0;
		struct rig r = rig_open(GIB(1), "answer:on,report_signal:12");
		for (int i = 3; i < 256; i++)
			close(i);
		for (int i = 0; i < FILES; i++)
			files[i] = open("/dev/null", O_RDONLY);
		pid_t grandchild = fork();
		for (int i = 0; i < FILES && grandchild == 0; i++)
			lost += fcntl(files[i], F_GETFD) < 0;
		if (grandchild == 0)
			_exit(lost);
		rig_close(&r);
		_exit(waitpid(grandchild, &status, 0) == grandchild && status == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* The parent's thread answers for the parent alone. */
static void test_a_child_does_not_answer(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(1), "answer:on,report_signal:12");
	int status;
	pid_t child = fork();
	if (child == 0) {
		raise(SIGUSR2);
		_exit(connect_to((int)getpid()) == -1 ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_non_null(strstr(ask(ANSWER_TEXT, ANSWER_ANY_DEVICE), "memory of device 0"));
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_the_option_nobody_answers),
		cmocka_unit_test(test_the_socket),
		cmocka_unit_test(test_the_signal),
		cmocka_unit_test(test_a_signal_of_the_programs_own_stays),
		cmocka_unit_test(test_no_report_is_made_of_a_fault),
		cmocka_unit_test(test_a_report_holds_up_no_other_heap),
		cmocka_unit_test(test_a_report_that_nobody_reads),
		cmocka_unit_test(test_a_thread_without_its_descriptors_ends),
		cmocka_unit_test(test_a_child_keeps_the_programs_files),
		cmocka_unit_test(test_a_child_does_not_answer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
