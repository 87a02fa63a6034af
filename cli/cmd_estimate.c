/* SPDX-License-Identifier: Apache-2.0
 *
 * terrazzo estimate
 */
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "cli.h"
#include "error.h"
#include "estimate.h"
#include "sim_profile.h"

enum {
	OPTION_PARAMS = 256, OPTION_TRAINABLE, OPTION_OPTIMIZER, OPTION_STATES, OPTION_DTYPE, OPTION_BATCH, OPTION_SEQ,
	OPTION_LAYERS, OPTION_WIDTH, OPTION_HEADS, OPTION_KV_HEADS, OPTION_VOCABULARY, OPTION_CHECKPOINTING,
	OPTION_NO_FLASH, OPTION_INFERENCE, OPTION_DEVICE, OPTION_JSON
};

static const struct argp_option options[] = {
	{ "params", OPTION_PARAMS, "N", 0, "parameters of the model: 7e9, 7B, 350M", 0 },
	{ "trainable", OPTION_TRAINABLE, "N", 0, "parameters that are trained (all)", 0 },
	{ "optimizer", OPTION_OPTIMIZER, "NAME", 0, "adamw (the default), adamw8bit, adafactor, momentum, sgd", 0 },
	{ "states", OPTION_STATES, "KIND", 0,
	  "type of the optimizer's states: weights (that of the weights, the default), fp32, or master (fp32, and an fp32 "
	  "copy of the weights)", 0 },
	{ "dtype", OPTION_DTYPE, "NAME", 0, "type of weights and gradients: bf16 (the default), fp16, fp32", 0 },
	{ "batch", OPTION_BATCH, "N", 0, "sequences in a batch (1)", 0 },
	{ "seq", OPTION_SEQ, "N", 0, "tokens in a sequence (2048)", 0 },
	{ "layers", OPTION_LAYERS, "N", 0, "layers; without it, activations are left out", 0 },
	{ "hidden", OPTION_WIDTH, "N", 0, "hidden size", 0 },
	{ "heads", OPTION_HEADS, "N", 0, "attention heads (hidden / 128)", 0 },
	{ "kv-heads", OPTION_KV_HEADS, "N", 0, "heads of keys and values (as many as --heads)", 0 },
	{ "vocabulary", OPTION_VOCABULARY, "N", 0, "tokens in the vocabulary; without it, logits are left out", 0 },
	{ "checkpointing", OPTION_CHECKPOINTING, NULL, 0, "backward computes each layer again", 0 },
	{ "no-flash", OPTION_NO_FLASH, NULL, 0, "attention materializes its matrix", 0 },
	{ "inference", OPTION_INFERENCE, NULL, 0, "no training: weights and a cache of keys and values", 0 },
	{ "device", OPTION_DEVICE, "NAME", 0, "a profile (h100)", 0 },
	{ "json", OPTION_JSON, "FILE", 0, "write the terms as JSON too; '-': standard output, instead of the table", 0 },
	{ 0 }
};

/* Numbers of JSON are signed here. */
#define BYTES_MAX 0x1p63

struct estimate_command {
	struct estimate_model model;
	const struct sim_profile *profile;
	const char *json;
};

/* "7e9", "7B", "350M". */
static double parse_count(struct argp_state *state, const char *option, const char *text)
{
	char *end;
	errno = 0;
	double value = isdigit((unsigned char)text[0]) || text[0] == '.' ? strtod(text, &end) : -1;
	double scale = 1;
	if (value > 0 && *end && !end[1])
		scale = *end == 'K' ? 1e3 : *end == 'M' ? 1e6 : *end == 'B' ? 1e9 : *end == 'T' ? 1e12 : 0;
	else if (value > 0 && *end)
		scale = 0;
	if (value > 0 && scale > 0 && value * scale <= 1e15)
		return value * scale;
	argp_error(state, "--%s: '%s' is not a count; write 7e9, 7B or 350M", option, text);
	return 0;
}

static void complete(struct estimate_command *c, struct argp_state *state)
{
	struct estimate_model *m = &c->model;
	if (m->params == 0)
		argp_error(state, "--params is missing");
	if (m->trainable > m->params)
		argp_error(state, "--trainable is more than --params");
	if ((m->layers == 0) != (m->hidden == 0))
		argp_error(state, "--layers and --hidden go together");
	if (m->trainable == 0)
		m->trainable = m->params;
	if (m->heads == 0)
		m->heads = m->hidden >= 128 ? m->hidden / 128 : 1;
	if (m->kv_heads == 0)
		m->kv_heads = m->heads;
	if (m->kv_heads > m->heads)
		argp_error(state, "--kv-heads is more than --heads, %.0f", m->heads);
}

static error_t parse_model(int key, char *arg, struct argp_state *state)
{
	struct estimate_model *m = &((struct estimate_command *)state->input)->model;
	switch (key) {
	case OPTION_PARAMS:
		m->params = parse_count(state, "params", arg);
		return 0;
	case OPTION_TRAINABLE:
		m->trainable = parse_count(state, "trainable", arg);
		return 0;
	case OPTION_BATCH:
		m->batch = parse_count(state, "batch", arg);
		return 0;
	case OPTION_SEQ:
		m->seq = parse_count(state, "seq", arg);
		return 0;
	case OPTION_LAYERS:
		m->layers = parse_count(state, "layers", arg);
		return 0;
	case OPTION_WIDTH:
		m->hidden = parse_count(state, "hidden", arg);
		return 0;
	case OPTION_HEADS:
		m->heads = parse_count(state, "heads", arg);
		return 0;
	case OPTION_KV_HEADS:
		m->kv_heads = parse_count(state, "kv-heads", arg);
		return 0;
	case OPTION_VOCABULARY:
		m->vocabulary = parse_count(state, "vocabulary", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct sim_profile *parse_device(struct argp_state *state, const char *name)
{
	const struct sim_profile *profile = sim_profile_find(name);
	if (!profile)
		argp_error(state, "--device: unknown profile '%s'; 'terrazzo sim --device list' prints them", name);
	return profile;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	static const char *const optimizers[] = { "adamw", "adamw8bit", "adafactor", "momentum", "sgd", NULL };
	static const char *const kinds[] = { "weights", "fp32", "master", NULL };
	static const char *const dtypes[] = { "bf16", "fp16", "fp32", NULL };
	struct estimate_command *c = state->input;
	switch (key) {
	case OPTION_OPTIMIZER:
		c->model.optimizer = (enum estimate_optimizer)option_choice(state, "optimizer", arg, optimizers);
		return 0;
	case OPTION_STATES:
		c->model.states = (enum estimate_states)option_choice(state, "states", arg, kinds);
		return 0;
	case OPTION_DTYPE:
		c->model.weight_bytes = option_choice(state, "dtype", arg, dtypes) == 2 ? 4 : 2;
		return 0;
	case OPTION_CHECKPOINTING:
		c->model.checkpointing = true;
		return 0;
	case OPTION_NO_FLASH:
		c->model.flash = false;
		return 0;
	case OPTION_INFERENCE:
		c->model.inference = true;
		return 0;
	case OPTION_DEVICE:
		c->profile = parse_device(state, arg);
		return 0;
	case OPTION_JSON:
		c->json = arg;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		complete(c, state);
		return 0;
	default:
		return parse_model(key, arg, state);
	}
}

static double gib(double bytes)
{
	return bytes / (double)GIB(1);
}

static bool fits(const struct estimate_command *c, const struct estimate *e)
{
	return e->device_bytes <= (double)c->profile->memory_bytes;
}

static void print_estimate(const struct estimate_command *c, const struct estimate *e)
{
	for (int i = 0; i < e->count; i++)
		printf("%-18s  %9.2f GiB  %s\n", e->terms[i].name, gib(e->terms[i].bytes), e->terms[i].formula);
	if (c->model.layers == 0)
		printf("%-18s  %9s      %s: --layers and --hidden are missing\n", "not in it", "",
		       c->model.inference ? "the cache of keys and values" : "activations");
	if (c->model.vocabulary == 0)
		printf("%-18s  %9s      logits%s: --vocabulary is missing\n", "not in it", "",
		       c->model.inference ? "" : " and loss");
	printf("%-18s  %9.2f GiB  at %s; not all terms are held at once\n", "peak allocated", gib(e->allocated_bytes),
	       e->peak_at);
	printf("%-18s  %9.2f GiB  of %.2f on %s: %s, before fragmentation\n", "device", gib(e->device_bytes),
	       gib((double)c->profile->memory_bytes), c->profile->name, fits(c, e) ? "fits" : "does not fit");
}

static trz_status print_json(const struct estimate_command *c, const struct estimate *e)
{
	json_t *terms = json_object();
	for (int i = 0; i < e->count; i++)
		json_object_set_new(terms, e->terms[i].name, json_integer((json_int_t)e->terms[i].bytes));
	json_t *object = json_pack("{s:o, s:s, s:I, s:I, s:s, s:b}", "terms", terms, "peak_at", e->peak_at,
	                           "peak_allocated_bytes", (json_int_t)e->allocated_bytes, "device_bytes",
	                           (json_int_t)e->device_bytes, "device", c->profile->name, "fits", (int)fits(c, e));
	trz_status status = output_json(c->json, object, JSON_COMPACT);
	json_decref(object);
	return status;
}

int cli_estimate(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_option,
		.doc = "Estimates by formula the memory that training, or inference, of a transformer takes on one "
		       "device.\v"
		       "A formula does not see the program: 'terrazzo sim' runs it. docs/sim.md says how far the two are "
		       "apart.",
	};
	struct estimate_command c = { .model = { .weight_bytes = 2, .batch = 1, .seq = 2048, .flash = true },
		                          .profile = sim_profile_find("h100") };
	struct estimate e;
	argp_parse(&argp, argc, argv, 0, NULL, &c);
	c.model.context_bytes = (double)c.profile->overhead_bytes;
	estimate_run(&c.model, &e);
	if (e.device_bytes >= BYTES_MAX)
		return cli_fail(trz_fail(TRZ_ERROR_INVALID_ARGUMENT, "these numbers make %.3g bytes, more than any device will "
		                         "have: is one of them wrong?", e.device_bytes));
	if (!c.json || strcmp(c.json, "-") != 0)
		print_estimate(&c, &e);
	trz_status status = c.json ? print_json(&c, &e) : TRZ_OK;
	return status == TRZ_OK ? CLI_OK : cli_fail(status);
}
