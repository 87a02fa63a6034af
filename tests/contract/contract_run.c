/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs contract cases, and says on which GPU each has been confirmed.
 */
#include "contract.h"

#include <stdio.h>

enum { MOST_CASES = 96 };

/* One test: a case and where it runs. */
struct contract_test {
	struct contract_env *env;
	const struct contract_case *unit;
	uint32_t held;
};

void contract_expect(trz_status got, trz_status expected, const char *what, const char *file, int line)
{
	if (got == expected)
		return;
	print_error("%s: %s instead of %s; the driver says: %s\n", what, trz_status_name(got),
	            trz_status_name(expected), trz_driver_last_error());
	_fail(file, line);
}

void contract_refused(trz_status got, const char *what, const char *file, int line)
{
	if (got != TRZ_OK && got != TRZ_ERROR_CONTEXT_DEAD && got != TRZ_ERROR_SHUTDOWN)
		return;
	print_error("%s: %s instead of a refusal\n", what, trz_status_name(got));
	_fail(file, line);
}

/* Each case begins and ends in a thread without a context. */
static void run_case(void **state)
{
	struct contract_test *test = *state;
	test->env->held = &test->held;
	OPS(test->env, context_set, NULL);
	test->unit->run(test->env);
	assert_null(test->env->ops->context_current(test->env->self));
}

/* A failed case leaves its streams behind; lets them go, so that they do not hang the next cases. */
static int end_case(void **state)
{
	struct contract_test *test = *state;
	__atomic_store_n(&test->held, 1, __ATOMIC_RELEASE);
	return 0;
}

static size_t add_cases(const struct contract_case *cases, struct contract_env *env,
                        struct contract_test *tests, struct CMUnitTest *units, size_t count)
{
	for (const struct contract_case *c = cases; c->name; c++, count++) {
		assert_true(count < MOST_CASES);
		printf("note: %s: %s\n", c->name, c->confirmed);
		tests[count] = (struct contract_test){.env = env, .unit = c};
		units[count] = (struct CMUnitTest){
			.name = c->name,
			.test_func = run_case,
			.teardown_func = end_case,
			.initial_state = &tests[count],
		};
	}
	return count;
}

int contract_run(const char *title, const trz_driver *driver, const struct contract_ops *ops, void *self)
{
	struct contract_env env = {.driver = driver, .ops = ops, .self = self};
	struct contract_test tests[MOST_CASES];
	struct CMUnitTest units[MOST_CASES];
	size_t count = 0;
	expect_ok(SLOT(&env, device_info, env.device, &env.info));
	expect_ok(SLOT(&env, context_retain, env.device, NULL, &env.context));
	count = add_cases(contract_device_cases, &env, tests, units, count);
	count = add_cases(contract_memory_cases, &env, tests, units, count);
	count = add_cases(contract_stream_cases, &env, tests, units, count);
	count = add_cases(contract_capture_cases, &env, tests, units, count);
	int failed = _cmocka_run_group_tests(title, units, count, NULL, NULL);
	expect_ok(SLOT(&env, context_release, env.device, env.context));
	return failed;
}
