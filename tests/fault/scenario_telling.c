/* SPDX-License-Identifier: Apache-2.0
 *
 * What the heap tells: history, snapshots, walks, reports, holders, steps and warnings, notices; snapshots that options
 * ask for. And upkeep: decay, thresholds, debugging options.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "scenario.h"

/* ---- texts --------------------------------------------------------------------------------------------- */

static uint64_t number_of_stack(void *user)
{
	(void)user;
	return 17;
}

static size_t text_of_stack(void *user, uint64_t id, trz_frame *frames, size_t capacity)
{
	(void)user;
	if (capacity)
		frames[0] = (trz_frame){.filename = "program.py", .name = id == 17 ? "step" : "other", .line = 3};
	return capacity > 0;
}

/* Everything that can be noted is. */
static void noted_heap(struct stage *g)
{
	trz_heap *h = g->rig.heap;
	assert_ok(trz_history_start(h, 2000));
	assert_ok(trz_set_frame_callback(h, number_of_stack, text_of_stack, NULL));
	assert_ok(trz_set_site_callback(h, number_of_stack, text_of_stack, NULL));
	trz_set_tag("weights of the first layer");
	assert_ok(trz_set_category(TRZ_CATEGORY_WEIGHTS));
}

static void end_notes(void)
{
	trz_set_tag(NULL);
	assert_ok(trz_set_category(TRZ_CATEGORY_NONE));
}

static void scattered_in_a_history(struct stage *g)
{
	noted_heap(g);
	stage_hold(g, 700, g->b);
	stage_scatter_and_wait(g);
}

static trz_status alloc_noted(struct stage *g)
{
	trz_status status = stage_alloc(g, MIB(100), g->a);
	end_notes();
	return status;
}

static trz_status begin_history(struct stage *g)
{
	trz_status status = trz_history_start(g->rig.heap, 500);
	if (status == TRZ_OK)
		status = trz_set_frame_callback(g->rig.heap, number_of_stack, text_of_stack, NULL);
	if (status == TRZ_OK)
		status = stage_alloc(g, MIB(3), g->a);
	if (status == TRZ_OK) {
		stage_keep(g, g->p, 0);
		g->p = NULL;
		status = trz_history_stop(g->rig.heap);
	}
	stage_note(g);
	return status;
}

/* ---- files --------------------------------------------------------------------------------------------- */

static char folder[40];

static void remove_folder(void)
{
	rmdir(folder);
}

/* Removes the files of the test's folder: each is a whole snapshot. How many there were. */
static unsigned remove_files(void)
{
	unsigned files = 0;
	DIR *d = opendir(folder);
	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d));) {
		char path[400], last[3] = "";
		if (e->d_name[0] == '.' && (e->d_name[1] == '\0' || e->d_name[1] == '.'))
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		FILE *f = fopen(path, "r");
		assert_non_null(f);
		assert_int_equal(fgetc(f), '{');
		assert_int_equal(fseek(f, -2, SEEK_END), 0);
		assert_non_null(fgets(last, sizeof last, f));
		assert_non_null(strchr(last, '}'));
		fclose(f);
		assert_int_equal(unlink(path), 0);
		files++;
	}
	closedir(d);
	return files;
}

static void with_a_folder(void)
{
	if (*folder) {
		remove_files();
		return;
	}
	snprintf(folder, sizeof folder, "/tmp/terrazzo-fault-XXXXXX");
	assert_non_null(mkdtemp(folder));
	atexit(remove_folder);
}

static void moved_in_a_history(struct stage *g)
{
	with_a_folder();
	scattered_in_a_history(g);
	stage_hold(g, MIB(100), g->a);
	stage_hold(g, 900, g->a);
	end_notes();
}

static trz_status write_snapshot(struct stage *g)
{
	char path[60];
	snprintf(path, sizeof path, "%s/snapshot.json", folder);
	trz_status status = trz_snapshot(g->rig.heap, path);
	assert_int_equal(remove_files(), status == TRZ_OK);
	return status;
}

static void count_segment(void *user, const trz_segment_info *segment)
{
	(void)segment;
	++*(unsigned *)user;
}

static trz_status walk(struct stage *g)
{
	unsigned segments = 0;
	trz_visitor visitor = {.segment = count_segment, .user = &segments};
	trz_status status = trz_walk(g->rig.heap, &visitor);
	assert_true(status == TRZ_OK ? segments > 0 : segments == 0);
	return status;
}

/* The options that ask for snapshots are set when the folder is known. */
static void reopen(struct stage *g, const char *option)
{
	char conf[200];
	with_a_folder();
	assert_ok(trz_close(g->rig.heap));
	snprintf(conf, sizeof conf, "%s,%s:%s/%%d-%%n.json,history:1000", g->conf[0] ? g->conf : "vmm:on", option, folder);
	rig_open_heap(&g->rig, conf);
}

static void nearly_full_and_noted(struct stage *g)
{
	reopen(g, "oom_snapshot");
	noted_heap(g);
	for (int i = 0; i < 6; i++)
		stage_hold(g, MIB(16), g->a);
	stage_perforate(g);
	rig_sync(&g->rig);
}

static trz_status fail_and_dump(struct stage *g)
{
	trz_status status = stage_alloc(g, MIB(100), g->a);
	end_notes();
	g->proof = remove_files();
	return status;
}

static void one_file(struct stage *g)
{
	assert_int_equal(g->proof, 1);
}

static void with_an_exit_snapshot(struct stage *g)
{
	reopen(g, "exit_snapshot");
	stage_hold(g, MIB(20), g->a);
	stage_hold(g, 900, g->a);
	rig_sync(&g->rig);
}

static trz_status close_and_dump(struct stage *g)
{
	trz_heap *heap = g->rig.heap;
	g->rig.heap = NULL;
	trz_status status = trz_close(heap);
	g->proof = remove_files();
	return status;
}

/* ---- reports ------------------------------------------------------------------------------------------- */

static void scattered_and_noted(struct stage *g)
{
	scattered_in_a_history(g);
	stage_hold(g, 900, g->a);
	end_notes();
}

static void after_a_failure(struct stage *g)
{
	void *p;
	nearly_full_and_noted(g);
	assert_status(trz_alloc(g->rig.heap, MIB(100), 0, g->a, &p), TRZ_ERROR_OUT_OF_MEMORY);
	end_notes();
	remove_files();
}

static bool count_text(void *user, const char *text, size_t size)
{
	(void)text;
	*(size_t *)user += size;
	return true;
}

static trz_status report(struct stage *g, unsigned flags)
{
	size_t size = 0;
	trz_status status = trz_report(g->rig.heap, flags, count_text, &size);
	if (status == TRZ_OK)
		status = trz_report(g->rig.heap, flags | TRZ_REPORT_JSON, count_text, &size);
	assert_true(status != TRZ_OK || size > 1000);
	return status;
}

static trz_status report_now(struct stage *g)
{
	return report(g, 0);
}

static trz_status report_failure(struct stage *g)
{
	return report(g, TRZ_REPORT_FAILURE);
}

static trz_status find_holders(struct stage *g)
{
	trz_holder holders[4];
	trz_frame frames[4];
	size_t count = 0;
	assert_ok(trz_categorize(g->rig.heap, g->held[0], TRZ_CATEGORY_OTHER));
	for (int by = TRZ_BY_SITE; by <= TRZ_BY_CATEGORY; by++)
		assert_ok(trz_holders(g->rig.heap, (trz_holder_kind)by, holders, LENGTH(holders), &count));
	assert_true(count > 0);
	return trz_site_frames(g->rig.heap, 17, frames, LENGTH(frames), &count);
}

static trz_status ask_largest(struct stage *g)
{
	size_t size = 0;
	trz_status status = trz_largest_block(g->rig.heap, g->a, &size);
	assert_true(status != TRZ_OK || size >= MIB(16));
	return status;
}

/* ---- steps --------------------------------------------------------------------------------------------- */

static void count_warning(void *user, const trz_warning_info *info)
{
	(void)info;
	++*(uint64_t *)user;
}

static trz_status leak(struct stage *g, int steps)
{
	trz_status status = TRZ_OK;
	for (int i = 0; i < steps && status == TRZ_OK; i++) {
		status = stage_alloc(g, MIB(2), g->a);
		if (status == TRZ_OK) {
			stage_keep(g, g->p, 0);
			status = trz_step(g->rig.heap);
		}
		g->p = NULL;
		stage_note(g);
	}
	return status;
}

static void a_leaking_program(struct stage *g)
{
	assert_ok(trz_set_warning_callback(g->rig.heap, count_warning, &g->proof));
	assert_ok(leak(g, 39));
}

static trz_status leak_on(struct stage *g)
{
	trz_growth_info growing[8];
	trz_forecast_info forecast;
	size_t count;
	trz_status status = leak(g, 9);
	assert_ok(trz_growth(g->rig.heap, growing, LENGTH(growing), &count));
	g->proof += count;
	trz_status told = trz_forecast(g->rig.heap, &forecast);
	assert_true(told == TRZ_OK || told == TRZ_ERROR_NOT_FOUND);
	assert_ok(trz_set_warning_callback(g->rig.heap, NULL, NULL));
	return status;
}

static void growth_is_seen(struct stage *g)
{
	assert_true(g->proof > 0);
}

static trz_status first_step(struct stage *g)
{
	return trz_step(g->rig.heap);
}

/* ---- notices ------------------------------------------------------------------------------------------- */

static trz_status be_told(struct stage *g)
{
	trz_status status = stage_listen(g);
	assert_true(status != TRZ_OK || g->told.bytes > rig_stat(&g->rig, "reserved_bytes.all.current"));
	return status == TRZ_OK ? trz_trim(g->rig.heap, 0, NULL) : status;
}

static void aliased(struct stage *g)
{
	stage_scatter_and_wait(g);
	stage_hold(g, MIB(100), g->a);
	stage_drop(g, 2);
	rig_sync(&g->rig);
}

static void aliased_and_told(struct stage *g)
{
	aliased(g);
	assert_ok(stage_listen(g));
}

static trz_status alloc_told(struct stage *g)
{
	return stage_alloc(g, MIB(90), g->a);
}

static trz_status close_told(struct stage *g)
{
	trz_heap *heap = g->rig.heap;
	g->rig.heap = NULL;
	trz_status status = trz_close(heap);
	assert_true(status != TRZ_OK || g->told.count == 0);
	return status;
}

/* ---- upkeep -------------------------------------------------------------------------------------------- */

/* A period ago the heap had free memory that nobody needed since. */
static void unneeded_for_a_while(struct stage *g)
{
	stage_hold(g, MIB(20), g->a);
	stage_hold(g, 700, g->b);
	rig_free(&g->rig, stage_take(g, MIB(100), g->a));
	rig_sync(&g->rig);
	for (int period = 0; period < 2; period++) {
		assert_ok(trz_poll(g->rig.heap));
		for (int us = 0; us < 600; us++)
			sim_tick(g->rig.s, 0);
	}
}

static trz_status poll_heap(struct stage *g)
{
	trz_status status = trz_poll(g->rig.heap);
	for (int us = 0; us < 600; us++)
		sim_tick(g->rig.s, 0);
	return status == TRZ_OK ? trz_poll(g->rig.heap) : status;
}

static trz_status trim_some(struct stage *g)
{
	size_t released = 0;
	uint64_t before = rig_stat(&g->rig, "reserved_bytes.all.current");
	trz_status status = trz_trim(g->rig.heap, before - MIB(40), &released);
	uint64_t after = rig_stat(&g->rig, "reserved_bytes.all.current");
	assert_int_equal(before - after, released);
	assert_true(released <= MIB(60));
	g->proof = released;
	return status;
}

static void gave_enough(struct stage *g)
{
	assert_true(g->proof >= MIB(40));
}

/* Allocations that serve once: one that has passed, one in use, and two that are held. */
static void served_once(struct stage *g)
{
	stage_hold(g, MIB(3), g->a);
	stage_hold(g, KIB(100), g->b);
	rig_free(&g->rig, stage_take(g, MIB(5), g->a));
	rig_free(&g->rig, stage_take(g, KIB(300), g->b));
	rig_sync(&g->rig);
	rig_free(&g->rig, stage_take(g, MIB(2), g->b));
}

static trz_status poll_once(struct stage *g)
{
	return trz_poll(g->rig.heap);
}

static trz_status alloc_and_free_once(struct stage *g)
{
	trz_status status = stage_alloc(g, KIB(64), g->a);
	if (status != TRZ_OK)
		return status;
	status = trz_free(g->rig.heap, g->p);
	if (status == TRZ_OK)
		g->p = NULL;
	return status == TRZ_OK ? trz_poll(g->rig.heap) : status;
}

/* Within what the granule has left. */
static trz_status grow_once(struct stage *g)
{
	return trz_grow(g->rig.heap, g->held[0], MIB(3) + 512);
}

static void small_ones(struct stage *g)
{
	stage_hold(g, 700, g->a);
	stage_hold(g, 700, g->b);
}

static trz_status alloc_small(struct stage *g)
{
	return stage_alloc(g, 1000, g->a);
}

/* ---- the list ------------------------------------------------------------------------------------------ */

static const struct scenario list[] = {
	{.name = "gather in a history", .prepare = scattered_in_a_history, .run = alloc_noted, .shows = "path_gather",
	 .vmm_only = true},
	{.name = "a history", .prepare = small_ones, .run = begin_history},
	{.name = "a snapshot", .prepare = moved_in_a_history, .run = write_snapshot},
	{.name = "walk over a snapshot", .prepare = moved_in_a_history, .run = walk},
	{.name = "a failure with a snapshot", .capacity = MIB(128), .prepare = nearly_full_and_noted,
	 .run = fail_and_dump, .shows = "num_ooms", .proof = one_file, .expected = TRZ_ERROR_OUT_OF_MEMORY},
	{.name = "close with a snapshot", .prepare = with_an_exit_snapshot, .run = close_and_dump, .proof = one_file},
	{.name = "report where memory is", .prepare = scattered_and_noted, .run = report_now,
	 .shows = "driver_calls.mem_info"},
	{.name = "report a failure", .capacity = MIB(128), .prepare = after_a_failure, .run = report_failure},
	{.name = "find holders", .prepare = scattered_and_noted, .run = find_holders},
	{.name = "ask for the largest request", .prepare = scattered_and_noted, .run = ask_largest,
	 .shows = "driver_calls.mem_info"},
	{.name = "steps of a leaking program", .prepare = a_leaking_program, .run = leak_on, .proof = growth_is_seen},
	{.name = "a first step", .prepare = small_ones, .run = first_step},
	{.name = "be told of mappings, and trim", .prepare = aliased, .run = be_told, .shows = "num_device_free",
	 .vmm_only = true},
	{.name = "gather with notices", .conf = "slack_per_mille:0", .prepare = aliased_and_told, .run = alloc_told,
	 .shows = "path_gather", .vmm_only = true},
	{.name = "close with notices", .prepare = aliased_and_told, .run = close_told},
	{.name = "poll after a period of decay", .conf = "decay_ms:1", .prepare = unneeded_for_a_while, .run = poll_heap,
	 .shows = "bytes_decayed"},
	{.name = "trim a part", .conf = "tile_size:2MiB,tile_size_max:2MiB", .prepare = scattered_and_noted,
	 .run = trim_some, .shows = "num_device_free", .proof = gave_enough, .vmm_only = true},
	{.name = "poll what has served once", .conf = "no_cache:on", .prepare = served_once, .run = poll_once,
	 .shows = "driver_calls.event_query"},
	{.name = "allocate, free and poll with unmap_on_free", .conf = "unmap_on_free:on", .prepare = served_once,
	 .run = alloc_and_free_once, .shows = "path_dedicated", .vmm_only = true},
	{.name = "allocate, free and poll with a guard", .conf = "guard:on", .prepare = served_once,
	 .run = alloc_and_free_once, .shows = "path_dedicated", .vmm_only = true},
	{.name = "grow what serves once", .conf = "no_cache:on", .prepare = served_once, .run = grow_once,
	 .shows = "path_grow"},
	{.name = "a small one without a cache", .conf = "no_cache:on", .prepare = small_ones, .run = alloc_small,
	 .shows = "path_dedicated"},
};

const struct scenarios scenarios_of_telling = {list, LENGTH(list)};
