/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of statuses, the thread's last error, the driver's note, and the version.
 */
#include <pthread.h>
#include <stdio.h>

#include "error.h"
#include "terrazzo_driver.h"
#include "testing.h"

static const struct {
	const char *name;
	int value;
	const char *text;
} list[] = {
#define ROW(name, value, text) {"TRZ_" #name, value, text},
	TRZ_STATUS_LIST(ROW)
#undef ROW
};

static void test_names_and_texts(void **state)
{
	(void)state;
	for (size_t i = 0; i < LENGTH(list); i++) {
		assert_string_equal(trz_status_name((trz_status)list[i].value), list[i].name);
		assert_string_equal(trz_status_text((trz_status)list[i].value), list[i].text);
		assert_true(list[i].text[0]);
		for (size_t j = 0; j < i; j++) {
			assert_int_not_equal(list[i].value, list[j].value);
			assert_string_not_equal(list[i].text, list[j].text);
		}
	}
}

static void test_any_other_value(void **state)
{
	(void)state;
	static const int others[] = {-1, 8, 100, 99999};
	for (size_t i = 0; i < LENGTH(others); i++) {
		assert_string_equal(trz_status_name((trz_status)others[i]), "TRZ_UNKNOWN");
		assert_string_equal(trz_status_text((trz_status)others[i]), "unknown status");
	}
}

static void test_pinned_values(void **state)
{
	(void)state;
	assert_int_equal(TRZ_OK, 0);
	assert_int_equal(TRZ_ERROR_INVALID_ARGUMENT, 1);
	assert_int_equal(TRZ_ERROR_OUT_OF_MEMORY, 10);
	assert_int_equal(TRZ_ERROR_CONTEXT_DEAD, 34);
	assert_int_equal(TRZ_ERROR_CORRUPT, 90);
}

static void *fresh_thread(void *arg)
{
	(void)arg;
	bool empty = !*trz_last_error() && !*trz_driver_last_error();
	trz_fail(TRZ_ERROR_SIZE, "of the thread");
	return empty ? NULL : "not empty";
}

static void test_each_thread_has_its_own_last_error(void **state)
{
	(void)state;
	pthread_t thread;
	void *result;
	assert_int_equal(trz_fail(TRZ_ERROR_SIZE, "%d of %s", 3, "four"), TRZ_ERROR_SIZE);
	assert_string_equal(trz_last_error(), "3 of four");
	assert_int_equal(pthread_create(&thread, NULL, fresh_thread, NULL), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_null(result);
	assert_string_equal(trz_last_error(), "3 of four");
}

static void test_an_overlong_text_is_cut(void **state)
{
	(void)state;
	char text[5000];
	memset(text, 'y', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	trz_fail(TRZ_ERROR_IO, "%s", text);
	assert_true(strlen(trz_last_error()) > 100);
	assert_true(strlen(trz_last_error()) < sizeof text);
}

static void test_the_drivers_note(void **state)
{
	(void)state;
	trz_driver_note("%s (%d) from %s", "CUDA_ERROR_ILLEGAL_ADDRESS", 700, "cuEventQuery");
	assert_string_equal(trz_driver_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS (700) from cuEventQuery");
}

static void test_version(void **state)
{
	(void)state;
	char version[32];
	snprintf(version, sizeof version, "%d.%d.%d", TRZ_VERSION_MAJOR, TRZ_VERSION_MINOR, TRZ_VERSION_PATCH);
	assert_string_equal(trz_version(), version);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_and_texts),
		cmocka_unit_test(test_any_other_value),
		cmocka_unit_test(test_pinned_values),
		cmocka_unit_test(test_each_thread_has_its_own_last_error),
		cmocka_unit_test(test_an_overlong_text_is_cut),
		cmocka_unit_test(test_the_drivers_note),
		cmocka_unit_test(test_version),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
