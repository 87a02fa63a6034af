/* SPDX-License-Identifier: Apache-2.0
 *
 * What a seed decides about a simulated world before anything happens in it.
 */
#include <stdio.h>
#include <string.h>

#include "prng.h"
#include "world.h"
#include "world_parts.h"

static const char *const settings[][5] = {
	{"", "tile_size:2MiB", "tile_size:4MiB", "tile_size:20MiB", "tile_size:64MiB"},
	{"", "tile_size_max:2MiB", "tile_size_max:16MiB", "tile_size_max:256MiB", ""},
	{"", "small_limit:0", "small_limit:512", "small_limit:4KiB", "small_limit:20000"},
	{"", "slack_per_mille:0", "slack_per_mille:50", "slack_per_mille:300", ""},
	{"", "churn_per_mille:0", "churn_per_mille:500", "", ""},
	{"", "window_factor:1", "window_factor:5", "", ""},
	{"", "quarantine:0", "quarantine:1", "quarantine:30", ""},
	{"", "trim_threshold:1MiB", "trim_threshold:40MiB", "", ""},
	{"", "decay_ms:1", "decay_ms:20", "", ""},
};

/* Debugging options, in one world of eight. */
static const char *const aids[] = {"no_cache:on,", "unmap_on_free:on,", "guard:on,"};

/* Each option is as by default in half of the seeds. */
static void choose_conf(struct world *w)
{
	size_t at = 0;
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
		const char *setting = world_below(w, 2) ? settings[i][world_below(w, 5)] : "";
		at += (size_t)snprintf(w->conf + at, sizeof w->conf - at, "%s,", setting);
	}
	w->vmm = world_below(w, 8) != 0;
	if (world_below(w, 8) == 0)
		at += (size_t)snprintf(w->conf + at, sizeof w->conf - at, "%s", aids[w->vmm ? world_below(w, 3) : 0]);
	if (!w->vmm)
		snprintf(w->conf + at, sizeof w->conf - at, "vmm:off");
}

static void choose_program(struct world *w)
{
	w->capacity = MIB(64) << world_below(w, 6);
	w->fill_target = w->capacity / 16 * (2 + world_below(w, 18));  /* up to more than there is */
	w->live_most = 20u << world_below(w, 6);
	for (int i = 0; i < WORLD_PROFILES; i++)
		w->profiles[i] = (unsigned)world_below(w, WORLD_SIZE_PROFILES);
	w->lag = world_below(w, 2) ? world_below(w, 4) : world_below(w, 200);
	w->run_most = world_below(w, 2) ? 1 + world_below(w, 8) : 0;
}

static sim_config machine(struct world *w)
{
	return (sim_config){
		.capacity = w->capacity,
		.continue_on_violation = true,
		.no_vmm = !w->vmm && world_below(w, 2),
		.schedule = (sim_schedule)world_below(w, SIM_SCHEDULES),
		.seed = prng_next(&w->random),
	};
}

/* Streams of the test's own, blocking and not, and one each of the default kinds. */
static trz_status open_streams(struct world *w)
{
	bool legacy = world_below(w, 3) == 0, per_thread = world_below(w, 4) == 0;
	w->stream_count = 1 + (unsigned)world_below(w, WORLD_STREAMS);
	for (unsigned i = 0; i < w->stream_count; i++) {
		if (i == 0 && legacy)
			w->streams[i] = NULL;
		else if (i == 1 && per_thread)
			w->streams[i] = (trz_stream)2;
		else if (sim_stream_create(w->s, w->c, world_below(w, 3) == 0, &w->streams[i]) != TRZ_OK)
			return TRZ_ERROR_DRIVER;
	}
	return TRZ_OK;
}

const char *world_open(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof *w);
	w->seed = seed;
	w->random = prng_mix(seed);
	choose_program(w);
	choose_conf(w);
	sim_config config = machine(w);
	if (sim_open(&config, &w->s) != TRZ_OK)
		return world_wrong(w, "sim_open: %s", trz_last_error());
	w->d = sim_driver(w->s);
	if (sim_context_primary(w->s, 0, &w->c) != TRZ_OK || open_streams(w) != TRZ_OK)
		return world_wrong(w, "streams: %s", trz_last_error());
	trz_open_params params = {.config = w->conf, .driver = w->d};
	if (trz_open(&params, &w->heap) != TRZ_OK)
		return world_wrong(w, "trz_open: %s", trz_last_error());
	return NULL;
}
