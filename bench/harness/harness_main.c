/* SPDX-License-Identifier: Apache-2.0
 *
 * The command: runs one allocator on one workload, and prints one line of JSON.
 */
#include "harness.h"

#include <dlfcn.h>
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "driver/driver_lookalike.h"

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuStreamCreate(void **stream, unsigned flags);

__attribute__((visibility("default"))) int bench_harness(int argc, char **argv);

enum { OPTION_PEER = 256, OPTION_OPTIONS, OPTION_TRACE, OPTION_LAG, OPTION_MICRO, OPTION_DIVISOR, OPTION_LIST,
       OPTION_PLAN, OPTION_COSTS };
enum { NON_BLOCKING = 1 };

static const struct argp_option options[] = {
	{"peer", OPTION_PEER, "FILE", 0, "the allocator: a shared object with the structure `bench_peer`", 0},
	{"options", OPTION_OPTIONS, "TEXT", 0, "what its open is given", 0},
	{"trace", OPTION_TRACE, "FILE", 0, "replay this trace", 0},
	{"lag", OPTION_LAG, "N", 0, "work on a stream completes N events of the trace later (0)", 0},
	{"costs", OPTION_COSTS, "TABLE", 0, "sum the replay's driver time by this table, too; can be repeated", 0},
	{"micro", OPTION_MICRO, "NAME", 0, "or measure this one", 0},
	{"divisor", OPTION_DIVISOR, "N", 0, "with so many times fewer operations (1)", 0},
	{"plan", OPTION_PLAN, "STEPS", 0, "or plan all addresses of the trace, in so many steps; needs no peer", 0},
	{"list", OPTION_LIST, NULL, 0, "print the names of all micros", 0},
	{0},
};

struct command {
	const char *peer, *options, *trace, *micro;
	const char *costs[SIM_MORE_COSTS];
	unsigned cost_tables;
	uint64_t lag, plan;
	unsigned divisor;
	bool list;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct command *c = state->input;
	switch (key) {
	case OPTION_PEER:
		c->peer = arg;
		return 0;
	case OPTION_OPTIONS:
		c->options = arg;
		return 0;
	case OPTION_TRACE:
		c->trace = arg;
		return 0;
	case OPTION_LAG:
		c->lag = strtoull(arg, NULL, 10);
		return 0;
	case OPTION_COSTS:
		if (c->cost_tables == SIM_MORE_COSTS)
			argp_error(state, "--costs %s: %d tables are the most", arg, SIM_MORE_COSTS);
		c->costs[c->cost_tables++] = arg;
		return 0;
	case OPTION_MICRO:
		c->micro = arg;
		return 0;
	case OPTION_DIVISOR:
		c->divisor = (unsigned)max_u64(1, strtoull(arg, NULL, 10));
		return 0;
	case OPTION_PLAN:
		c->plan = strtoull(arg, NULL, 10);
		return 0;
	case OPTION_LIST:
		c->list = true;
		return 0;
	case ARGP_KEY_END:
		if (!c->list && !(c->plan && c->trace) && (!c->peer || !c->trace == !c->micro))
			argp_error(state, "--peer or --plan is needed, and one of --trace and --micro");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void harness_fail(const char *what, const char *why)
{
	fprintf(stderr, "harness: %s: %s\n", what, why);
	exit(2);
}

trz_status harness_stream(bool blocking, trz_stream *out)
{
	void *stream;
	if (cuStreamCreate(&stream, blocking ? 0 : NON_BLOCKING) != 0)
		return TRZ_ERROR_DRIVER;
	*out = stream;
	return TRZ_OK;
}

void harness_enter(const struct harness *h)
{
	if (h->sim && cuCtxSetCurrent(h->context) != 0)
		harness_fail("device", "its context cannot be made current");
}

void harness_add_driver(struct harness *h)
{
	json_t *calls = json_object();
	for (int slot = 0; slot < SIM_SLOTS; slot++)
		if (sim_calls(h->sim, (sim_slot)slot))
			json_object_set_new(calls, sim_slot_name((sim_slot)slot),
			                    json_integer((json_int_t)sim_calls(h->sim, (sim_slot)slot)));
	json_object_set_new(h->row, "driver_calls", calls);
	json_object_set_new(h->row, "driver_time_ns", json_integer((json_int_t)sim_driver_time_ns(h->sim)));
	json_object_set_new(h->row, "peak_reserved_bytes", json_integer((json_int_t)sim_device_peak(h->sim, 0)));
}

static void open_device(struct harness *h)
{
	void *context;
	if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0)
		harness_fail("device", "it cannot be opened");
	look.free_waits = true;  /* PyTorch's allocator relies on it */
	h->sim = look.sim;
	h->context = context;
	h->capacity = look.capacity_bytes;
	harness_enter(h);
}

/* Opens the device first: libraries that the peer links may ask for it while they are loaded. */
static void load(struct harness *h, const struct command *c)
{
	open_device(h);
	for (unsigned i = 0; i < c->cost_tables; i++)
		if (sim_add_costs(h->sim, c->costs[i]) != TRZ_OK)
			harness_fail(c->costs[i], trz_last_error());
	void *object = dlopen(c->peer, RTLD_NOW | RTLD_LOCAL);
	if (!object)
		harness_fail("peer", dlerror());
	h->peer = dlsym(object, "bench_peer");
	if (!h->peer)
		harness_fail(c->peer, "it does not define the structure `bench_peer`");
	if (h->peer->open(c->options) != 0)
		harness_fail(c->peer, "its open() failed");
	if (h->peer->on_host)
		h->sim = NULL;
}

int bench_harness(int argc, char **argv)
{
	static const struct argp argp = {.options = options, .parser = parse,
	                                 .doc = "Runs one workload with one allocator (bench/README.md)."};
	struct command c = {.options = "", .divisor = 1};
	struct harness h = {.row = json_object()};
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	if (c.list)
		return harness_micro(NULL, NULL, 1) ? 0 : 2;
	if (!c.plan)
		load(&h, &c);
	if (c.plan)
		harness_plan(&h, c.trace, c.plan);
	else if (c.trace)
		harness_replay(&h, c.trace, c.lag);
	else if (!harness_micro(&h, c.micro, c.divisor))
		harness_fail("there is no such micro", c.micro);
	json_dumpf(h.row, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	_Exit(0);  /* skips what allocators do at exit, which is not measured */
}
