/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports on request: by a socket, by a signal, and who gets none.
 */
#include <signal.h>
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
		cmocka_unit_test(test_a_child_does_not_answer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
