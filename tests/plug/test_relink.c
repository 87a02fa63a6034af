/* SPDX-License-Identifier: Apache-2.0
 *
 * relink replaces imports of loaded objects, whichever way they are bound, and notices objects loaded later.
 */
#include "events/relink.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "testing.h"

enum { OURS = -7, OTHERS = -8 };

typedef pid_t caller(void);

static pid_t replacement(void)
{
	return OURS;
}

static pid_t third(void)
{
	return OTHERS;
}

static struct relink list[] = {
	{.name = "no_such_function", .replacement = (relink_function *)replacement},
	{.name = "getppid", .replacement = (relink_function *)replacement},
	{.name = "getpgrp", .replacement = (relink_function *)replacement},
};

static struct relink_scan scan(void)
{
	list[1].real = (relink_function *)dlsym(RTLD_NEXT, "getppid");
	list[2].real = (relink_function *)dlsym(RTLD_NEXT, "getpgrp");
	return relink_all(list, 3);
}

static void *load(const char *name)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/tests/plug/lib%s.so", getenv("TRZ_BUILD_DIR"), name);
	void *object = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!object)
		fail_msg("%s", dlerror());
	return object;
}

static pid_t call(void *object, const char *name)
{
	caller *function = (caller *)dlsym(object, name);
	assert_non_null(function);
	return function();
}

static void assert_replaced(void *object)
{
	assert_int_equal(call(object, "call_import"), OURS);
	assert_int_equal(call(object, "call_address"), OURS);
	assert_int_equal(call(object, "call_table"), OURS);
}

static void replaces(const char *name, bool called_before)
{
	void *object = load(name);
	if (called_before)
		assert_int_not_equal(call(object, "call_import"), OURS);
	struct relink_scan found = scan();
	assert_true(found.replaced >= 3);
	assert_int_equal(found.unready, 0);
	assert_int_equal(found.strange, 0);
	assert_replaced(object);
	struct relink_scan again = scan();
	assert_int_equal(again.replaced, 0);
	assert_int_equal(again.done, found.done + found.replaced);
	assert_replaced(object);
	dlclose(object);
}

static void test_imports_that_are_bound_at_once(void **state)
{
	(void)state;
	replaces("relink_now", false);
}

static void test_imports_that_are_bound_when_called(void **state)
{
	(void)state;
	replaces("relink_lazy", false);
}

static void test_imports_that_have_been_called(void **state)
{
	(void)state;
	replaces("relink_lazy", true);
}

static void test_the_pages_are_read_only_again(void **state)
{
	(void)state;
	void *object = load("relink_now");
	assert_true(scan().replaced > 0);
	Dl_info where;
	assert_true(dladdr(dlsym(object, "call_import"), &where));
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096];
	int writable = 0, lines = 0;
	while (fgets(line, sizeof line, maps))
		if (strstr(line, "librelink_now.so")) {
			lines++;
			writable += strstr(line, " rw") != NULL;
		}
	fclose(maps);
	assert_true(lines > 2);
	assert_true(writable <= 1);
	dlclose(object);
}

static void test_a_later_object_is_noticed(void **state)
{
	(void)state;
	void *first = load("relink_now");
	scan();
	struct relink_scan clean = scan();
	assert_int_equal(clean.replaced + clean.unready + clean.strange, 0);
	assert_true(relink_loaded() == clean.loaded);
	void *later = load("relink_lazy");
	assert_false(relink_loaded() == clean.loaded);
	assert_int_not_equal(call(later, "call_import"), OURS);
	assert_true(scan().replaced >= 3);
	assert_replaced(later);
	assert_true(relink_loaded() == scan().loaded);
	dlclose(later);
	dlclose(first);
}

/* Somebody else has replaced it: nobody knows what it calls. */
static void test_a_third_function_is_reported(void **state)
{
	(void)state;
	void *object = load("relink_now");
	scan();
	struct relink by_other[] = {{"getppid", (relink_function *)replacement, (relink_function *)third},
	                            {"getpgrp", (relink_function *)replacement, (relink_function *)third}};
	/* The test defines `replacement` and `third`, so that its own imports are passed over. */
	assert_true(relink_all(by_other, 2).replaced >= 3);
	assert_int_equal(call(object, "call_import"), OTHERS);
	struct relink_scan found = scan();
	assert_true(found.strange >= 3);
	assert_int_equal(found.replaced, 0);
	assert_int_equal(call(object, "call_import"), OTHERS);
	dlclose(object);
}

static atomic_bool stop;

static void *come_and_go(void *argument)
{
	while (!atomic_load(&stop)) {
		void *object = load("relink_now"), *other = load("relink_lazy");
		pid_t got = call(object, "call_import");
		assert_true(got == OURS || got > 0);
		dlclose(other);
		dlclose(object);
	}
	return argument;
}

/* Scans meet objects in every state of being loaded. After the last change a scan or two leave nothing to do. */
static void test_objects_come_and_go_meanwhile(void **state)
{
	(void)state;
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, come_and_go, NULL), 0);
	for (int i = 0; i < 3000; i++)
		assert_int_equal(scan().strange, 0);
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	void *object = load("relink_now");
	scan();
	assert_int_equal(scan().replaced, 0);
	assert_replaced(object);
	dlclose(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_imports_that_are_bound_at_once),
	    cmocka_unit_test(test_imports_that_are_bound_when_called),
	    cmocka_unit_test(test_imports_that_have_been_called),
	    cmocka_unit_test(test_the_pages_are_read_only_again),
	    cmocka_unit_test(test_a_later_object_is_noticed),
	    cmocka_unit_test(test_a_third_function_is_reported),
	    cmocka_unit_test(test_objects_come_and_go_meanwhile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
