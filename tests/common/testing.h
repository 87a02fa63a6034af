/* SPDX-License-Identifier: Apache-2.0
 *
 * Every cmocka program includes this first. Assertions on a status show the error's text.
 */
#ifndef TRZ_TESTS_TESTING_H
#define TRZ_TESTS_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "terrazzo.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static inline void status_is(trz_status got, trz_status expected, const char *call, const char *file, int line)
{
	if (got == expected)
		return;
	print_error("%s:%d: %s gave %s, expected %s; last error: %s\n", file, line, call, trz_status_name(got),
	            trz_status_name(expected), trz_last_error());
	_fail(file, line);
}

static inline void text_has(const char *text, const char *part, const char *file, int line)
{
	if (strstr(text, part))
		return;
	print_error("%s:%d: \"%s\" does not have \"%s\"\n", file, line, text, part);
	_fail(file, line);
}

#define assert_status(call, expected) status_is((call), (expected), #call, __FILE__, __LINE__)
#define assert_ok(call) assert_status(call, TRZ_OK)
#define assert_text(text, part) text_has((text), (part), __FILE__, __LINE__)

/* Asserts that the call fails with this status, and that the error's text contains this part. */
#define assert_error(call, expected, part) \
	do { \
		assert_status(call, expected); \
		assert_text(trz_last_error(), part); \
	} while (0)

#endif
