/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots of failures in files: their names and limits; what the program sees when they cannot be written; and that
 * no half-written one ever has a file's final name.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/heap.h"
#include "rig.h"
#include "snapshot_file.h"

#define UNFINISHED ".terrazzo-part"

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder, "dumps-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	(void)state;
	char command[96];
	snprintf(command, sizeof command, "rm -r %s", folder);
	return system(command);
}

/* ---- helpers -------------------------------------------------------------------------------------------- */

static struct rig open_with(const char *pattern, const char *more)
{
	char conf[256];
	snprintf(conf, sizeof conf, "oom_snapshot:%s%s%s", folder, pattern, more);
	return rig_open(MIB(64), conf);
}

/* A failure as it is without any snapshot. */
static void fails(struct rig *r)
{
	void *p = &p;
	assert_status(trz_alloc(r->heap, MIB(100), 0, NULL, &p), TRZ_ERROR_OUT_OF_MEMORY);
	assert_text(trz_last_error(), "100.00 MiB requested on device 0");
}

static void fill_history(struct rig *r, int events)
{
	for (int i = 0; i < events / 2; i++)
		rig_free(r, rig_alloc(r, 512, NULL));
}

struct files {
	int all, unfinished;
	uint64_t bytes;
	char last[300];            /* of the others, by name */
};

static struct files look(void)
{
	struct files f = {0};
	struct stat s;
	char path[400];
	DIR *d = opendir(folder);
	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		assert_int_equal(stat(path, &s), 0);
		bool unfinished = strstr(e->d_name, UNFINISHED) != NULL;
		f.all++;
		f.unfinished += unfinished;
		f.bytes += (uint64_t)s.st_size;
		if (!unfinished && strcmp(e->d_name, f.last) > 0)
			snprintf(f.last, sizeof f.last, "%.299s", e->d_name);
	}
	closedir(d);
	return f;
}

static json_t *load(const char *name)
{
	char path[400];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	json_t *json = json_load_file(path, 0, NULL);
	assert_non_null(json);
	return json;
}

static json_int_t own_number(json_t *json, const char *key)
{
	return json_integer_value(json_object_get(json_object_get(json, "terrazzo"), key));
}

/* Runs a part of a test in a process of its own, which returns 0, or 77: not on this machine. */
static void in_a_child(int (*part)(void))
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		_exit(part());
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- names ---------------------------------------------------------------------------------------------- */

static void test_patterns(void **state)
{
	(void)state;
	const struct snapshot_name n = {.process = 42, .device = 3, .rank = "7", .number = 5,
	                                .epoch_ns = 1764000000123456789};
	static const struct { const char *pattern, *path; } good[] = {
	    {"/tmp/a", "/tmp/a"}, {"%p-%d-%r-%n.json", "42-3-7-5.json"}, {"100%%", "100%"},
	    {"%t", "20251124T160000.123Z"}, {"%%p%p", "%p42"}};
	static const char *const bad[] = {"", "a%", "%x", "a/", "%p/"};
	char path[SNAPSHOT_PATH], *longest = calloc(1, 10000);
	for (size_t i = 0; i < LENGTH(good); i++) {
		assert_true(snapshot_path(good[i].pattern, &n, path));
		assert_string_equal(path, good[i].path);
	}
	for (size_t i = 0; i < LENGTH(bad); i++)
		assert_false(snapshot_pattern_is_good(bad[i]));
	assert_true(snapshot_path("%r", &(struct snapshot_name){.rank = "../x"}, path));
	assert_string_equal(path, "0");
	memset(longest, 'a', SNAPSHOT_PATH);
	assert_false(snapshot_path(longest, &n, path));
	longest[SNAPSHOT_PATH - 1] = '\0';
	assert_true(snapshot_path(longest, &n, path));
	free(longest);
	assert_error(trz_config_check("oom_snapshot:/tmp/%x"), TRZ_ERROR_CONFIG_VALUE, "oom_snapshot");
	assert_error(trz_config_check("exit_snapshot:%p/"), TRZ_ERROR_CONFIG_VALUE, "exit_snapshot");
	assert_ok(trz_config_check("exit_snapshot:/tmp/,oom_snapshot:%p"));
}

static void test_the_rank_is_the_launchers(void **state)
{
	(void)state;
	setenv("SLURM_PROCID", "12", 1);
	struct rig r = open_with("/%r.json", "");
	unsetenv("SLURM_PROCID");
	fails(&r);
	assert_string_equal(look().last, "12.json");
	rig_close(&r);
}

/* ---- limits --------------------------------------------------------------------------------------------- */

static void test_a_hundred_failures_leave_the_newest(void **state)
{
	(void)state;
	struct rig r = open_with("/%n-%t.json", ",oom_snapshots:5,history:1000");
	for (int i = 0; i < 100; i++)
		fails(&r);
	assert_int_equal(look().all, 5);
	assert_int_equal(strncmp(look().last, "99-", 3), 0);
	json_t *json = load(look().last);
	json_decref(json);
	rig_close(&r);
}

static void test_a_hundred_failures_of_one_name(void **state)
{
	(void)state;
	struct rig r = open_with("", "");
	for (int i = 0; i < 100; i++)
		fails(&r);
	assert_int_equal(look().all, 1);
	rig_close(&r);
}

static void test_files_together_stay_within_their_bytes(void **state)
{
	(void)state;
	struct rig r = open_with("/%n.json", ",oom_snapshots:64,oom_snapshot_bytes:300KiB,history:1000");
	fill_history(&r, 500);
	for (int i = 0; i < 9; i++) {
		fails(&r);
		assert_in_range(look().bytes, 1, KIB(300));
	}
	assert_in_range(look().all, 1, 4);
	assert_string_equal(look().last, "9.json");
	rig_close(&r);
}

static void test_a_file_that_would_be_too_large_has_less_history(void **state)
{
	(void)state;
	struct rig r = open_with("/a.json", ",oom_snapshot_bytes:300KiB,history:20000");
	fill_history(&r, 20000);
	fails(&r);
	assert_in_range(look().bytes, KIB(250), KIB(300));
	json_t *json = load("a.json");
	assert_in_range(own_number(json, "events_kept"), 500, 3000);
	assert_int_equal(own_number(json, "events_noted"), 20000 + 2);  /* a mapping, the failure */
	json_t *trace = json_array_get(json_object_get(json, "device_traces"), 0);
	json_t *last = json_array_get(trace, json_array_size(trace) - 1);
	assert_string_equal(json_string_value(json_object_get(last, "action")), "oom");
	json_decref(json);
	rig_close(&r);
	r = open_with("/b.json", ",oom_snapshot_bytes:1,history:1000");
	fails(&r);
	assert_text(trz_last_error(), "no snapshot: ");
	assert_int_equal(look().all, 1);
	rig_close(&r);
}

/* ---- writers that are killed ------------------------------------------------------------------------------ */

static uint64_t name_stack(void *user)
{
	(void)user;
	return 1;
}

static size_t kill_writer(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	static int calls;
	(void)user, (void)id, (void)frames, (void)capacity;
	if (++calls == 500)
		raise(SIGKILL);
	frames[0] = (trz_frame){"model.py", "forward", 1};
	return 1;
}

static void write_and_be_killed(void)
{
	pid_t child = fork();
	if (child == 0) {
		struct rig r = open_with("/a.json", ",history:10000");
		trz_set_frame_callback(r.heap, name_stack, kill_writer, NULL);
		fill_history(&r, 10000);
		fails(&r);
		_exit(1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_a_killed_writer_leaves_nothing_under_the_final_name(void **state)
{
	(void)state;
	write_and_be_killed();
	assert_int_equal(look().all, 1);
	assert_int_equal(look().unfinished, 1);
	struct rig r = open_with("/b.json", "");
	fails(&r);  /* removes what the other left */
	assert_int_equal(look().all, 1);
	assert_string_equal(look().last, "b.json");
	write_and_be_killed();
	assert_int_equal(look().all, 2);
	json_t *json = load("b.json");
	json_decref(json);
	rig_close(&r);
}

static void test_what_another_is_writing_stays(void **state)
{
	(void)state;
	char path[400];
	snprintf(path, sizeof path, "%s/other.json.1.1" UNFINISHED, folder);
	int fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
	struct rig r = open_with("/a.json", "");
	fails(&r);
	assert_int_equal(look().unfinished, 1);
	close(fd);
	fails(&r);
	assert_int_equal(look().unfinished, 0);
	rig_close(&r);
}

/* ---- places that take no file ------------------------------------------------------------------------------- */

/* Lays a small or a read-only file system over the folder, for this process alone. */
static bool mount_over(const char *options, unsigned long flags)
{
	if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return false;
	return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", folder, "tmpfs", flags, options) == 0;
}

static int fill_a_disk(void)
{
	if (!mount_over("size=64k", 0))
		return 77;
	struct rig r = open_with("/%n.json", ",history:10000");
	fill_history(&r, 10000);
	for (int i = 0; i < 3; i++) {
		fails(&r);
		assert_text(trz_last_error(), "no snapshot: ");
		assert_text(trz_last_error(), "No space left");
		assert_int_equal(look().all, 0);
	}
	rig_close(&r);
	return 0;
}

static void test_a_full_disk(void **state)
{
	(void)state;
	in_a_child(fill_a_disk);
}

static int write_where_nobody_may(void)
{
	if (!mount_over("size=64k", MS_RDONLY))
		return 77;
	struct rig r = open_with("/a.json", "");
	fails(&r);
	assert_text(trz_last_error(), "cannot be created: Read-only file system");
	assert_int_equal(look().all, 0);
	rig_close(&r);
	return 0;
}

static void test_a_read_only_folder(void **state)
{
	(void)state;
	in_a_child(write_where_nobody_may);
}

static int run_out_of_host_memory(void)
{
	struct rig r = open_with("/a.json", ",history:100000");
	fill_history(&r, 100000);
	struct rlimit none = {0, RLIM_INFINITY};
	if (setrlimit(RLIMIT_AS, &none))
		return 77;
	for (size_t size = MIB(64); size >= KIB(64); size /= 2)
		while (meta_alloc(&r.heap->meta, size)) {}
	fails(&r);
	setrlimit(RLIMIT_AS, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
	assert_text(trz_last_error(), "; a snapshot is in ");
	assert_text(trz_last_error(), "a.json");
	return 0;
}

/* What is reserved ahead is enough for the heap's state and the newest events. */
static void test_a_host_without_memory(void **state)
{
	(void)state;
#ifdef TRZ_UNDER_SANITIZER
	skip();
#endif
	in_a_child(run_out_of_host_memory);
	json_t *json = load("a.json");
	assert_in_range(own_number(json, "events_kept"), 1000, 5000);
	assert_true(own_number(json, "events_noted") > 100000);
	json_decref(json);
}

/* ---- several at once ---------------------------------------------------------------------------------------- */

enum { THREADS = 2, ROUNDS = 50 };

static void *fail_often(void *user)
{
	for (int i = 0; i < ROUNDS; i++)
		fails(user);
	return NULL;
}

static void test_two_threads_fail_at_once(void **state)
{
	(void)state;
	struct rig r = open_with("/a.json", ",history:2000");
	pthread_t threads[THREADS];
	fill_history(&r, 2000);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, fail_often, &r), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(look().all, 1);
	json_t *json = load("a.json");
	json_decref(json);
	rig_close(&r);
}

/* A stack's text asks for memory in vain, in the middle of a snapshot. */
static size_t fail_inside(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	void *p;
	(void)id, (void)capacity;
	assert_status(trz_alloc(user, MIB(100), 0, NULL, &p), TRZ_ERROR_OUT_OF_MEMORY);
	assert_text(trz_last_error(), "no snapshot: that of another failure is being written");
	frames[0] = (trz_frame){"model.py", "forward", 1};
	return 1;
}

static void test_a_failure_inside_a_snapshot(void **state)
{
	(void)state;
	struct rig r = open_with("/a.json", ",history:100");
	assert_ok(trz_set_frame_callback(r.heap, name_stack, fail_inside, r.heap));
	fill_history(&r, 10);
	fails(&r);
	assert_text(trz_last_error(), "; a snapshot is in ");
	assert_text(trz_last_error(), "a.json");
	rig_close(&r);
}

/* ---- at the end --------------------------------------------------------------------------------------------- */

static void test_a_heap_leaves_a_snapshot_when_it_closes(void **state)
{
	(void)state;
	char conf[128];
	snprintf(conf, sizeof conf, "history:100,exit_snapshot:%s/%%d.json", folder);
	struct rig r = rig_open(MIB(64), conf);
	void *p = rig_alloc(&r, MIB(3), NULL);
	fails(&r);
	assert_int_equal(look().all, 0);
	rig_free(&r, p);
	rig_close(&r);
	json_t *json = load("0.json");
	assert_int_equal(own_number(json, "events_kept"), 5);  /* two mappings */
	json_decref(json);
}

static int kept_stderr, told_by[2];

static void listen_to_stderr(void)
{
	kept_stderr = dup(STDERR_FILENO);
	assert_int_equal(pipe(told_by), 0);
	dup2(told_by[1], STDERR_FILENO);
}

static void assert_told(const char *begin, const char *path)
{
	char told[4096] = {0};
	dup2(kept_stderr, STDERR_FILENO);
	assert_true(read(told_by[0], told, sizeof told - 1) > 0);
	const char *found = strstr(told, begin);
	assert_non_null(found);
	assert_null(strstr(found + 1, begin));
	assert_text(found, path);
	close(kept_stderr);
	close(told_by[0]);
	close(told_by[1]);
}

/* A program of CUDA does not see the error's text, and hears it once. */
static void test_a_snapshot_of_a_failure_that_cannot_be_written(void **state)
{
	(void)state;
	struct rig r = open_with("/nowhere/%d.json", ",oom_report:off");
	listen_to_stderr();
	fails(&r);
	fails(&r);
	assert_told("terrazzo: oom_snapshot: ", "nowhere/0.json");
	assert_text(trz_last_error(), "no snapshot: ");
	rig_close(&r);
}

/* Nobody else would tell: closing has succeeded. */
static void test_a_snapshot_at_the_end_that_cannot_be_written(void **state)
{
	(void)state;
	char conf[128];
	snprintf(conf, sizeof conf, "exit_snapshot:%s/nowhere/%%d.json", folder);
	struct rig r = rig_open(MIB(64), conf);
	listen_to_stderr();
	rig_close(&r);
	assert_told("terrazzo: exit_snapshot: ", "nowhere/0.json");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_patterns),
		TEST(test_the_rank_is_the_launchers),
		TEST(test_a_hundred_failures_leave_the_newest),
		TEST(test_a_hundred_failures_of_one_name),
		TEST(test_files_together_stay_within_their_bytes),
		TEST(test_a_file_that_would_be_too_large_has_less_history),
		TEST(test_a_killed_writer_leaves_nothing_under_the_final_name),
		TEST(test_what_another_is_writing_stays),
		TEST(test_a_full_disk),
		TEST(test_a_read_only_folder),
		TEST(test_a_host_without_memory),
		TEST(test_two_threads_fail_at_once),
		TEST(test_a_failure_inside_a_snapshot),
		TEST(test_a_heap_leaves_a_snapshot_when_it_closes),
		TEST(test_a_snapshot_of_a_failure_that_cannot_be_written),
		TEST(test_a_snapshot_at_the_end_that_cannot_be_written),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
