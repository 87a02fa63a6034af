/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo config
 */
#include <argp.h>
#include <jansson.h>
#include <string.h>

#include "cli.h"

enum { OPTION_CHECK = 256, OPTION_JSON };

static const struct argp_option options[] = {
	{ "check", OPTION_CHECK, "KEY:VALUE,...", 0, "only say whether this configuration is valid", 0 },
	{ "json", OPTION_JSON, NULL, 0, "list as JSON", 0 },
	{ 0 }
};

struct config_command {
	const char *check;
	bool json;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct config_command *c = state->input;
	switch (key) {
	case OPTION_CHECK:
		c->check = arg;
		return 0;
	case OPTION_JSON:
		c->json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Prints `text` broken at blanks to lines of at most 76 characters behind a margin of four. */
static void print_wrapped(const char *text)
{
	while (*text) {
		size_t length = strlen(text);
		if (length > 76) {
			for (length = 76; length > 0 && text[length] != ' ';)
				length--;
			if (length == 0)
				length = 76;
		}
		printf("    %.*s\n", (int)length, text);
		text += length;
		text += strspn(text, " ");
	}
}

static void list_text(void)
{
	trz_option_info option;
	printf("Options of TERRAZZO_CONF=\"key:value,...\"\n");
	for (size_t i = 0; trz_option(i, &option) == TRZ_OK; i++) {
		printf("\n%s (%s: %s; default %s)\n", option.key, option.type, option.choices, option.initial);
		print_wrapped(option.help);
	}
}

static void list_json(void)
{
	trz_option_info option;
	json_t *list = json_array();
	for (size_t i = 0; trz_option(i, &option) == TRZ_OK; i++) {
		json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:s}", "key", option.key, "type",
		                                      option.type, "choices", option.choices, "default",
		                                      option.initial, "help", option.help));
	}
	json_dumpf(list, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(list);
}

int cli_config(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.doc = "Lists every option of TERRAZZO_CONF: its kind, range or choices, default, and what it does.",
	};
	struct config_command c = { 0 };
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	if (c.check) {
		trz_status status = trz_config_check(c.check);
		return status == TRZ_OK ? CLI_OK : cli_fail(status);
	}
	if (c.json)
		list_json();
	else
		list_text();
	return CLI_OK;
}
