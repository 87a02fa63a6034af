/* SPDX-License-Identifier: Apache-2.0
 *
 * What a seed chooses for a simulated world before its first event.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "prng.h"
#include "world.h"
#include "world_parts.h"

static const char *const settings[][5] = {
	{"", "tile_size:2MiB", "tile_size:4MiB", "tile_size:20MiB", "tile_size:64MiB"},
	{"", "tile_size_max:2MiB", "tile_size_max:16MiB", "tile_size_max:256MiB", ""},
	{"", "small_limit:0", "small_limit:512", "small_limit:4KiB", "small_limit:20000"},
	{"", "medium_limit:0", "medium_limit:100KiB", "medium_limit:16MiB", ""},
	{"", "slack_per_mille:0", "slack_per_mille:50", "slack_per_mille:300", ""},
	{"", "churn_per_mille:0", "churn_per_mille:500", "", ""},
	{"view_tiles:1", "view_tiles:1", "view_tiles:4", "view_tiles:0", ""},
	{"", "refill:off", "", "", ""},
	{"", "window_factor:1", "window_factor:5", "", ""},
	{"", "quarantine:0", "quarantine:1", "quarantine:30", ""},
	{"", "trim_threshold:1MiB", "trim_threshold:40MiB", "", ""},
	{"", "decay_ms:1", "decay_ms:20", "", ""},
	{"", "event_bytes:0", "event_bytes:0", "event_bytes:64KiB", "event_bytes:2MiB"},
	{"", "wait:off", "", "", ""},
	{"", "sites:off", "native_frames:on", "", ""},
};

/* Debugging options, in one world of eight. */
static const char *const aids[] = {"no_cache:on,", "unmap_on_free:on,", "guard:on,"};

/* Each option keeps its default in half of the seeds. */
static void choose_conf(struct world *w)
{
	size_t at = 0;
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
		const char *setting = world_below(w, 2) ? settings[i][world_below(w, 5)] : "";
		at += (size_t)snprintf(w->conf + at, sizeof w->conf - at, "%s,", setting);
	}
	w->vmm = world_below(w, 8) != 0;
	w->aided = world_below(w, 8) == 0;
	if (w->aided)
		at += (size_t)snprintf(w->conf + at, sizeof w->conf - at, "%s", aids[w->vmm ? world_below(w, 3) : 0]);
	w->exportable = world_below(w, 8) != 0;
	snprintf(w->conf + at, sizeof w->conf - at, "oom_report:off,%s%s", w->exportable ? "" : "exportable:off,",
	         w->vmm ? "" : "vmm:off");
}

static void choose_program(struct world *w)
{
	w->capacity = MIB(64) << world_below(w, 6);
	w->fill_target = w->capacity / 16 * (2 + world_below(w, 18));  /* may be more than there is */
	w->live_most = 20u << world_below(w, 6);
	for (int i = 0; i < WORLD_PROFILES; i++)
		w->profiles[i] = (unsigned)world_below(w, WORLD_SIZE_PROFILES);
	w->lag = world_below(w, 2) ? world_below(w, 4) : world_below(w, 200);
	w->run_most = world_below(w, 2) ? 1 + world_below(w, 8) : 0;
	w->actor_count = 1 + (unsigned)world_below(w, WORLD_ACTORS);
	w->graphs = world_below(w, 4) != 0;
	w->faulty = world_below(w, 4) == 0;
	w->shared = world_below(w, 4) == 0;
	w->waits = world_below(w, 2);
	w->peers = world_below(w, 4) == 0;
	w->refuses = world_below(w, 4) != 0;
	w->captures = prng_mix(w->seed + 3) % 4 == 0;
	w->dies = prng_mix(w->seed + 5) % 8 == 0 && !w->shared && !w->peers;
}

uint64_t world_withheld(const struct world *w)
{
	uint64_t drawn = prng_mix(w->seed + 2);
	return drawn % 4 ? 0 : (drawn >> 2) % (w->capacity / 8);
}

static sim_config machine(struct world *w)
{
	return (sim_config){
		.devices = w->peers ? 2 : 1,
		.capacity = w->capacity,
		.continue_on_violation = true,
		.withheld = world_withheld(w),
		.host_faults = prng_mix(w->seed + 4) % 2,
		.no_vmm = !w->vmm && world_below(w, 2),
		.lenient_rules = (w->waits ? 0 : SIM_RULE_SYNC_MAYBE) | (w->refuses ? 0 : SIM_RULE_HOST_CALLS),
		.schedule = (sim_schedule)world_below(w, SIM_SCHEDULES),
		.seed = prng_next(&w->random),
	};
}

/* Opens streams: the test's own, blocking and not, the legacy default one, and threads' default streams. */
static trz_status open_streams(struct world *w)
{
	bool legacy = world_below(w, 3) == 0, per_thread = world_below(w, 4) == 0;
	w->stream_count = 1 + (unsigned)world_below(w, WORLD_STREAMS);
	w->legacy = legacy ? 0 : -1;
	for (unsigned i = 0; i < w->stream_count; i++) {
		struct world_stream *st = &w->streams[i];
		bool of_thread = per_thread && i > 0 && i <= w->actor_count;
		st->owner = of_thread ? (int)i - 1 : -1;
		st->blocking = world_below(w, 3) == 0;
		st->of = w->c;
		if ((i == 0 && legacy) || of_thread) {
			st->handle = of_thread ? (trz_stream)2 : NULL;
			continue;
		}
		if (w->far && world_below(w, 2))
			st->of = w->far;
		if (sim_stream_create(w->s, st->of, st->blocking, &st->handle) != TRZ_OK)
			return TRZ_ERROR_DRIVER;
	}
	return TRZ_OK;
}

/* Opens the second device's context, and in one world of four chooses another context for some streams: that one, if
 * devices reach each other's memory, else a further one of the first device. */
static trz_status open_contexts(struct world *w)
{
	bool far = prng_mix(w->seed + 1) % 4 == 0;
	trz_status status = sim_context_primary(w->s, 0, &w->c);
	if (status == TRZ_OK && w->peers)
		status = sim_context_primary(w->s, 1, &w->peer);
	if (status == TRZ_OK && far && !(w->vmm && w->peers))
		return sim_context_create(w->s, 0, &w->far);
	w->far = far ? w->peer : NULL;
	return status;
}

trz_status world_sync(struct world *w)
{
	trz_status status = sim_device_sync(w->s, 0);
	return status == TRZ_OK && w->peers ? sim_device_sync(w->s, 1) : status;
}

const char *world_show_streams(struct world *w)
{
	for (unsigned i = 0; i < w->stream_count && w->graphs; i++) {
		void *p = NULL;
		if (w->streams[i].owner >= 0)
			continue;
		MUST(w, trz_alloc(w->heap, 64, 0, w->streams[i].handle, &p));
		MUST(w, trz_free(w->heap, p));
	}
	return NULL;
}

/* Opens the machine as another process, without a heap. */
static const char *open_other(struct world *w)
{
	int fd = sim_machine_fd(w->s);
	sim_config config = {.attach_fd = fd, .continue_on_violation = true, .va_bytes = GIB(1)};
	trz_status status = sim_open(&config, &w->other);
	close(fd);
	MUST(w, status);
	MUST(w, sim_context_primary(w->other, 0, &w->other_context));
	return NULL;
}

static void open_locks(struct world *w)
{
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->foreign, NULL);
	pthread_mutex_init(&w->stage, NULL);
	pthread_cond_init(&w->changed, NULL);
	pthread_rwlock_init(&w->capture_lock, NULL);
	pthread_rwlock_init(&w->signal_lock, NULL);
	for (int i = 0; i < WORLD_STREAMS; i++)
		pthread_rwlock_init(&w->streams[i].lock, NULL);
	for (unsigned i = 0; i < WORLD_ACTORS; i++) {
		w->actors[i].w = w;
		w->actors[i].index = i;
		w->actors[i].random = prng_mix(w->seed * WORLD_ACTORS + i);
	}
}

const char *world_open(struct world *w, uint64_t seed)
{
	memset(w, 0, sizeof *w);
	w->seed = seed;
	w->random = prng_mix(seed);
	open_locks(w);
	choose_program(w);
	choose_conf(w);
	sim_config config = machine(w);
	if (sim_open(&config, &w->s) != TRZ_OK)
		return world_wrong(w, "sim_open: %s", trz_last_error());
	w->d = sim_driver(w->s);
	if (open_contexts(w) != TRZ_OK || open_streams(w) != TRZ_OK)
		return world_wrong(w, "streams: %s", trz_last_error());
	world_watch(w);
	TRY(world_open_signals(w));
	TRY(world_open_heap(w, NULL));
	return w->shared ? open_other(w) : NULL;
}

void world_close(struct world *w)
{
	for (int i = 0; i < WORLD_ACTORS; i++)
		for (int k = 0; k < WORLD_POOLS; k++)
			world_forget_note(&w->actors[i].pools[k]);
	trz_close(w->heap);
	world_forget_parcels(w);
	if (w->other)
		sim_close(w->other);
	if (w->s)
		sim_close(w->s);
	shadow_clear(&w->shadow);
	free(w->spans);
	pthread_rwlock_destroy(&w->capture_lock);
	pthread_rwlock_destroy(&w->signal_lock);
	for (int i = 0; i < WORLD_STREAMS; i++)
		pthread_rwlock_destroy(&w->streams[i].lock);
	w->heap = NULL;
	w->s = w->other = NULL;
}
