/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo costs
 */
#include <argp.h>
#include <string.h>

#include "bits.h"
#include "cli.h"

enum { OPTION_SIZE = 256 };

static const struct argp_option options[] = {
	{ "size", OPTION_SIZE, "SIZE", 0, "size of the tile, a multiple of 2MiB (20MiB)", 0 },
	{ 0 }
};

struct costs_command {
	const char *table;  /* NULL: all that are shipped */
	uint64_t size;
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct costs_command *c = state->input;
	switch (key) {
	case OPTION_SIZE:
		if (!size_parse(arg, &c->size) || c->size == 0 || c->size % MIB(2) != 0 || c->size > GIB(64))
			argp_error(state, "--size: '%s' is not a multiple of 2MiB up to 64GiB", arg);
		return 0;
	case ARGP_KEY_ARG:
		if (c->table)
			argp_error(state, "unexpected argument '%s'", arg);
		c->table = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int print_costs(const char *table, uint64_t size)
{
	struct replay_tile_cost cost;
	trz_status status = replay_tile_cost(table, size, &cost);
	if (status != TRZ_OK)
		return cli_fail(status);
	printf("%-12s  %10llu  %10llu  %10llu  %10llu\n", table, (unsigned long long)cost.create_ns,
	       (unsigned long long)cost.map_ns, (unsigned long long)cost.set_access_ns,
	       (unsigned long long)(cost.create_ns + cost.map_ns + cost.set_access_ns));
	return CLI_OK;
}

int cli_costs(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.args_doc = "[TABLE]",
		.doc = "Prints the cost of creating, mapping and opening one tile, in ns, by a cost table: "
		       "a shipped one or a file; without TABLE by each shipped one.",
	};
	struct costs_command c = { .size = MIB(20) };
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	printf("%-12s  %10s  %10s  %10s  %10s\n", "table", "create", "map", "set_access", "all");
	if (c.table)
		return print_costs(c.table, c.size);
	int code = CLI_OK;
	for (const char *const *table = sim_cost_tables(); *table; table++)
		code = cli_worse(code, print_costs(*table, c.size));
	return code;
}
