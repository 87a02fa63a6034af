/* SPDX-License-Identifier: Apache-2.0
 *
 * Options: every key of the table takes its documented values and refuses all others, by name.
 */
#include "ground/config.h"

#include <stdio.h>
#include <stdlib.h>

#include "testing.h"

#include "comma_locale.h"

static size_t option_count(void)
{
	trz_option_info option;
	size_t n = 0;
	while (trz_option(n, &option) == TRZ_OK)
		n++;
	return n;
}

static trz_status check_pair(const char *key, const char *value)
{
	char text[400];
	snprintf(text, sizeof text, "%s:%s", key, value);
	return trz_config_check(text);
}

static bool is_text(const trz_option_info *o)
{
	return strcmp(o->type, "text") == 0;
}

static void test_every_option_describes_itself(void **state)
{
	(void)state;
	assert_true(option_count() > 0);
	for (size_t i = 0; i < option_count(); i++) {
		trz_option_info o;
		assert_ok(trz_option(i, &o));
		assert_true(o.key[0] && o.choices[0] && o.initial[0] && o.help[0]);
		assert_true(!strcmp(o.type, "bytes") || !strcmp(o.type, "count") || !strcmp(o.type, "bool") ||
		            is_text(&o));
		for (size_t j = 0; j < i; j++) {
			trz_option_info other;
			assert_ok(trz_option(j, &other));
			assert_string_not_equal(o.key, other.key);
			assert_ok(trz_option(i, &o));
		}
	}
}

static void test_option_past_the_last(void **state)
{
	(void)state;
	trz_option_info o;
	assert_error(trz_option(option_count(), &o), TRZ_ERROR_NOT_FOUND, "options");
	assert_error(trz_option(0, NULL), TRZ_ERROR_INVALID_ARGUMENT, "out is NULL");
}

/* The default and each choice (for ranges: both ends). */
static void test_every_option_takes_its_choices(void **state)
{
	(void)state;
	for (size_t i = 0; i < option_count(); i++) {
		trz_option_info o;
		char choices[128], *first, *second;
		assert_ok(trz_option(i, &o));
		assert_ok(check_pair(o.key, o.initial));
		assert_ok(trz_option(i, &o));
		if (is_text(&o))
			continue;
		snprintf(choices, sizeof choices, "%s", o.choices);
		char *between = strstr(choices, " to ");
		first = choices;
		second = between ? between + 4 : strstr(choices, ", ") + 2;
		*(between ? between : second - 2) = '\0';
		assert_ok(check_pair(o.key, first));
		assert_ok(check_pair(o.key, second));
	}
}

static void test_every_option_names_itself_and_its_choices_on_a_bad_value(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"", "much", "-1", "1.5.2", "5 parsecs", "99999999999999999999999", "onn", "12XiB", "1e400", "0x10",
		"nan", "inf", "+3", "1,5", "18446744073709551615", "0.5", "0.0000001KiB", "2097152.5", "64.",
	};
	for (size_t i = 0; i < option_count(); i++)
		for (size_t j = 0; j < LENGTH(bad); j++) {
			trz_option_info o;
			assert_ok(trz_option(i, &o));
			if (is_text(&o))
				continue;
			bool comma = strchr(bad[j], ',') != NULL;  /* the piece behind it is no pair */
			trz_status status = check_pair(o.key, bad[j]);
			if (status != TRZ_ERROR_CONFIG_VALUE)
				fail_msg("%s:%s gave %s", o.key, bad[j], trz_status_name(status));
			if (comma)
				continue;
			assert_text(trz_last_error(), o.key);
			assert_ok(trz_option(i, &o));
			check_pair(o.key, bad[j]);
			assert_text(trz_last_error(), o.choices);
		}
}

static void test_texts(void **state)
{
	(void)state;
	struct config c;
	char pair[300];
	assert_ok(config_load(&c, "oom_snapshot:/tmp/a"));
	assert_string_equal(c.oom_snapshot, "/tmp/a");
	assert_ok(config_load(&c, "oom_snapshot:/tmp/a,oom_snapshot:none"));
	assert_string_equal(c.oom_snapshot, "");
	snprintf(pair, sizeof pair, "oom_snapshot:%0*d", CONFIG_TEXT_BYTES - 1, 0);
	assert_ok(config_load(&c, pair));
	snprintf(pair, sizeof pair, "oom_snapshot:%0*d", CONFIG_TEXT_BYTES, 0);
	assert_error(config_load(&c, pair), TRZ_ERROR_CONFIG_VALUE, "up to 191 characters");
}

static void test_unknown_key_names_all_keys(void **state)
{
	(void)state;
	assert_error(trz_config_check("tile_sise:16MiB"), TRZ_ERROR_CONFIG_KEY, "\"tile_sise\"");
	for (size_t i = 0; i < option_count(); i++) {
		trz_option_info o;
		assert_ok(trz_option(i, &o));
		assert_status(trz_config_check("nothing:1"), TRZ_ERROR_CONFIG_KEY);
		assert_text(trz_last_error(), o.key);
	}
}

static void test_not_a_pair(void **state)
{
	(void)state;
	assert_error(trz_config_check("limit"), TRZ_ERROR_CONFIG_VALUE, "key:value");
	assert_error(trz_config_check(":"), TRZ_ERROR_CONFIG_KEY, "\"\"");
	assert_error(trz_config_check("limit=3GiB"), TRZ_ERROR_CONFIG_VALUE, "limit=3GiB");
}

static void test_overlong_entry(void **state)
{
	(void)state;
	char text[1000];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	assert_error(trz_config_check(text), TRZ_ERROR_CONFIG_VALUE, "longer");
	memset(text + 1, '\t', sizeof text - 2);  /* white space at the end does not count */
	assert_error(trz_config_check(text), TRZ_ERROR_CONFIG_VALUE, "\"x\"");
}

static void test_amounts(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint64_t bytes;
	} amounts[] = {
		{"limit:4096", 4096},     {"limit:3KiB", KIB(3)},     {"limit:1.5GiB", MIB(1536)},
		{"limit:0.5TiB", GIB(512)}, {"limit:007MiB", MIB(7)}, {"limit:0", 0},
		{"limit:140737488355328", 1ull << 47},                {"limit:0.125KiB", 128},
		{"limit:2.MiB", MIB(2)},  {"limit:1.0009765625MiB", MIB(1) + KIB(1)},
		{"limit:9007199254740993KiB", 0},
	};
	for (size_t i = 0; i < LENGTH(amounts); i++) {
		struct config c;
		trz_status status = config_load(&c, amounts[i].text);
		if (status == TRZ_OK)
			assert_int_equal(c.limit, amounts[i].bytes);
		else
			assert_int_equal(i, LENGTH(amounts) - 1);
	}
}

static void test_amounts_in_a_locale_with_a_decimal_comma(void **state)
{
	(void)state;
	struct config c;
	if (!comma_locale_begin())
		skip();
	trz_status good = config_load(&c, "limit:1.5GiB"), bad = trz_config_check("limit:1,5GiB");
	setlocale(LC_ALL, "C");
	assert_ok(good);
	assert_int_equal(c.limit, MIB(1536));
	assert_status(bad, TRZ_ERROR_CONFIG_VALUE);
}

static void test_white_space_and_empty_entries(void **state)
{
	(void)state;
	struct config c;
	assert_ok(config_load(&c, " limit :\t1GiB ,, vmm:off,\n"));
	assert_int_equal(c.limit, GIB(1));
	assert_false(c.vmm);
	assert_ok(config_load(&c, ""));
	assert_ok(config_load(&c, NULL));
	assert_int_equal(c.limit, 0);
	assert_true(c.vmm);
}

static void test_white_space_inside_is_refused(void **state)
{
	(void)state;
	static const char *const bad[] = {"limit:1 0GiB", "limit:1 GiB", "vmm:o ff", "exit_snapshot:/tmp/my dir/x.json"};
	for (size_t i = 0; i < LENGTH(bad); i++) {
		assert_error(trz_config_check(bad[i]), TRZ_ERROR_CONFIG_VALUE, "white space");
		assert_text(trz_last_error(), strchr(bad[i], ':') + 1);
	}
	assert_error(trz_config_check("tile size:16MiB"), TRZ_ERROR_CONFIG_KEY, "\"tile size\"");
}

static void test_the_last_of_a_key_counts(void **state)
{
	(void)state;
	struct config c;
	assert_ok(config_load(&c, "limit:1GiB,limit:2GiB"));
	assert_int_equal(c.limit, GIB(2));
}

static void test_options_that_exclude_each_other(void **state)
{
	(void)state;
	struct config c;
	assert_error(trz_config_check("guard:on,vmm:off"), TRZ_ERROR_CONFIG_VALUE, "guard needs");
	assert_error(trz_config_check("vmm:off,unmap_on_free:on"), TRZ_ERROR_CONFIG_VALUE, "vmm:off");
	assert_ok(trz_config_check("vmm:off,unmap_on_free:on,vmm:on"));
	assert_ok(config_load(&c, "guard:on,vmm:off,guard:off,no_cache:on"));
}

static void test_environment(void **state)
{
	(void)state;
	static char good[] = "TERRAZZO_CONF=limit:1GiB,vmm:off", bad[] = "TERRAZZO_CONF=limit:lots";
	struct config c;
	assert_int_equal(putenv(good), 0);
	assert_ok(config_load(&c, "limit:3GiB"));
	assert_int_equal(c.limit, GIB(3));
	assert_false(c.vmm);
	assert_int_equal(putenv(bad), 0);
	assert_error(trz_config_check(NULL), TRZ_ERROR_CONFIG_VALUE, "TERRAZZO_CONF");
	unsetenv("TERRAZZO_CONF");
	assert_ok(trz_config_check(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_option_describes_itself),
		cmocka_unit_test(test_option_past_the_last),
		cmocka_unit_test(test_every_option_takes_its_choices),
		cmocka_unit_test(test_every_option_names_itself_and_its_choices_on_a_bad_value),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_unknown_key_names_all_keys),
		cmocka_unit_test(test_not_a_pair),
		cmocka_unit_test(test_overlong_entry),
		cmocka_unit_test(test_amounts),
		cmocka_unit_test(test_amounts_in_a_locale_with_a_decimal_comma),
		cmocka_unit_test(test_white_space_and_empty_entries),
		cmocka_unit_test(test_white_space_inside_is_refused),
		cmocka_unit_test(test_the_last_of_a_key_counts),
		cmocka_unit_test(test_options_that_exclude_each_other),
		cmocka_unit_test(test_environment),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
