/* SPDX-License-Identifier: Apache-2.0
 *
 * What the calls cost that give, lay and take memory: by size, by number, beside many others, beside running kernels.
 * All go through the driver table, as the heap's do, so the table's own work is part of the figures.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu.h"

static const unsigned sizes_mib[] = {2, 4, 8, 16, 20, 32, 64, 128, 256, 512, 1024};
enum { SIZES = sizeof sizes_mib / sizeof sizes_mib[0] };

static const trz_tile_props plain_props = {.device = 0}, shared_props = {.device = 0, .export_kinds = TRZ_EXPORT_FD};
static const int device_list[] = {0};

/* Series of one kind of round. `each`: a call for each handle; `range`: one call for all of them. */
static struct {
	struct series create, release, map, access_each, access_range, unmap_each, unmap_range, reserve, unreserve;
	struct series alloc, free;
} times;

static void clear_times(void)
{
	struct series *all = (struct series *)&times;
	for (size_t i = 0; i < sizeof times / sizeof *all; i++)
		series_clear(&all[i]);
}

/* What the rounds may occupy: 60 GiB, less on a small or a partly used device. */
static uint64_t room(void)
{
	uint64_t free_bytes, total;
	table_must(gpu.driver->mem_info(gpu.self, gpu.context, &free_bytes, &total));
	uint64_t bytes = free_bytes / 4 * 3;
	return bytes < GIB(60) ? bytes : GIB(60);
}

/* ---- a round -------------------------------------------------------------------------------------------- */

static struct tiles make_tiles(uint64_t size, uint64_t count, const trz_tile_props *props)
{
	struct tiles t = {.size = size, .count = count, .handles = calloc(count, sizeof *t.handles)};
	TIMED(&times.reserve, gpu.driver->reserve(gpu.self, size * count, 0, 0, &t.address));
	for (uint64_t i = 0; i < count; i++)
		TIMED(&times.create, gpu.driver->create(gpu.self, props, size, &t.handles[i]));
	return t;
}

static void lay_tiles(const struct tiles *t, bool range)
{
	for (uint64_t i = 0; i < t->count; i++)
		TIMED(&times.map, gpu.driver->map(gpu.self, t->address + i * t->size, t->size, t->handles[i]));
	if (range)
		TIMED(&times.access_range,
		      gpu.driver->set_access(gpu.self, t->address, t->size * t->count, device_list, 1));
	else
		for (uint64_t i = 0; i < t->count; i++)
			TIMED(&times.access_each,
			      gpu.driver->set_access(gpu.self, t->address + i * t->size, t->size, device_list, 1));
}

static void unmap_tiles(const struct tiles *t, bool range)
{
	if (range)
		TIMED(&times.unmap_range, gpu.driver->unmap(gpu.self, t->address, t->size * t->count));
	else
		for (uint64_t i = 0; i < t->count; i++)
			TIMED(&times.unmap_each, gpu.driver->unmap(gpu.self, t->address + i * t->size, t->size));
}

static void release_tiles(const struct tiles *t)
{
	for (uint64_t i = 0; i < t->count; i++)
		TIMED(&times.release, gpu.driver->release(gpu.self, t->handles[i]));
}

static void end_tiles(struct tiles *t)
{
	TIMED(&times.unreserve, gpu.driver->unreserve(gpu.self, t->address, t->size * t->count));
	free(t->handles);
}

/* `release_first`: while the tiles are mapped, so that the memory goes back with the mapping. */
static void one_round(uint64_t size, uint64_t count, bool range, bool release_first)
{
	struct tiles t = make_tiles(size, count, &plain_props);
	lay_tiles(&t, range);
	if (release_first)
		release_tiles(&t);
	unmap_tiles(&t, range);
	if (!release_first)
		release_tiles(&t);
	end_tiles(&t);
}

static void report_round(uint64_t size, unsigned n, unsigned live)
{
	result_figure("create", "", size, n, live, &times.create);
	result_figure("map", "", size, n, live, &times.map);
	result_figure("set_access", "each", size, n, live, &times.access_each);
	result_figure("set_access", "range", size, n, live, &times.access_range);
	result_figure("unmap", "each", size, n, live, &times.unmap_each);
	result_figure("unmap", "range", size, n, live, &times.unmap_range);
	result_figure("release", "", size, n, live, &times.release);
}

/* Enough rounds for some dozens of calls of each kind; two kinds of round in turn. */
static unsigned rounds_of(uint64_t count)
{
	unsigned rounds = count > 100 ? 2 : count > 10 ? 16 : count > 1 ? 20 : 40;
	return quick ? 4 : rounds;
}

static void rounds(uint64_t size, uint64_t wanted)
{
	uint64_t most = room() / size, count = wanted < most ? wanted : most;
	if (count == 0 || (count < wanted && count <= wanted / 10))
		return;
	clear_times();
	for (unsigned i = 0; i < rounds_of(count); i++)
		one_round(size, count, i % 2, false);
	report_round(size, (unsigned)count, 0);
}

/* ---- parts ---------------------------------------------------------------------------------------------- */

/* What the first calls of a process cost, from the start of the driver on. */
void part_first(void)
{
	struct series s = {0};
	uint64_t from = now_ns();
	if (trz_driver_cuda(&gpu.driver) != TRZ_OK)
		gpu_open();  /* says why */
	series_add(&s, (double)(now_ns() - from));
	result_figure("driver_cuda", "first", 0, 1, 0, &s);
	series_clear(&s);
	TIMED(&s, gpu.driver->context_retain(gpu.driver->self, 0, NULL, &gpu.context));
	result_figure("context_retain", "first", 0, 1, 0, &s);
	gpu.self = gpu.driver->self;
	one_round(MIB(2), 1, true, false);
	result_figure("reserve", "first", MIB(2), 1, 0, &times.reserve);
	result_figure("create", "first", MIB(2), 1, 0, &times.create);
	result_figure("map", "first", MIB(2), 1, 0, &times.map);
	result_figure("set_access", "first", MIB(2), 1, 0, &times.access_range);
	result_figure("unmap", "first", MIB(2), 1, 0, &times.unmap_range);
	result_figure("release", "first", MIB(2), 1, 0, &times.release);
	clear_times();
	trz_addr address;
	TIMED(&times.alloc, gpu.driver->mem_alloc(gpu.self, gpu.context, MIB(64), &address));
	TIMED(&times.free, gpu.driver->mem_free(gpu.self, gpu.context, address));
	result_figure("mem_alloc", "first", MIB(64), 1, 0, &times.alloc);
	result_figure("mem_free", "first", MIB(64), 1, 0, &times.free);
}

static void plain_rounds(uint64_t size, uint64_t wanted)
{
	enum { MOST = 100 };
	trz_addr at[MOST];
	uint64_t most = room() / size, count = wanted < most ? wanted : most;
	clear_times();
	for (unsigned round = 0; round < rounds_of(count) / 2; round++) {
		for (uint64_t i = 0; i < count; i++)
			TIMED(&times.alloc, gpu.driver->mem_alloc(gpu.self, gpu.context, size, &at[i]));
		for (uint64_t i = 0; i < count; i++)
			TIMED(&times.free, gpu.driver->mem_free(gpu.self, gpu.context, at[i]));
	}
	result_figure("mem_alloc", "", size, (unsigned)count, 0, &times.alloc);
	result_figure("mem_free", "", size, (unsigned)count, 0, &times.free);
}

static void reservations(void)
{
	static const uint64_t sizes[] = {MIB(2), MIB(64), GIB(1), GIB(16), GIB(64), GIB(256), GIB(1024)};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		clear_times();
		for (int n = 0; n < 30; n++) {
			trz_addr address;
			if (gpu.driver->reserve(gpu.self, sizes[i], 0, 0, &address) != TRZ_OK) {
				result_line("  no range of %llu GiB: %s", (unsigned long long)(sizes[i] / GIB(1)),
				            trz_driver_last_error());
				return;
			}
			table_must(gpu.driver->unreserve(gpu.self, address, sizes[i]));
			TIMED(&times.reserve, gpu.driver->reserve(gpu.self, sizes[i], 0, 0, &address));
			TIMED(&times.unreserve, gpu.driver->unreserve(gpu.self, address, sizes[i]));
		}
		result_figure("reserve", "", sizes[i], 1, 0, &times.reserve);
		result_figure("unreserve", "", sizes[i], 1, 0, &times.unreserve);
	}
}

/* Whether handles export, which a device may claim and a machine refuse. */
static bool can_share(void)
{
	trz_handle handle;
	int fd;
	if (!gpu.info.export_fd || gpu.driver->create(gpu.self, &shared_props, MIB(2), &handle) != TRZ_OK)
		return false;
	trz_status status = gpu.driver->export_handle(gpu.self, handle, TRZ_EXPORT_FD, &fd);
	if (status == TRZ_OK)
		close(fd);
	else
		result_line("  handles do not export: %s", trz_driver_last_error());
	table_must(gpu.driver->release(gpu.self, handle));
	return status == TRZ_OK;
}

static void sharing(uint64_t size)
{
	enum { COUNT = 50 };
	struct series exported = {0}, imported = {0};
	if (!can_share())
		return;
	clear_times();
	struct tiles t = make_tiles(size, COUNT, &shared_props);
	for (int i = 0; i < COUNT; i++) {
		int fd = -1;
		trz_handle twin;
		TIMED(&exported, gpu.driver->export_handle(gpu.self, t.handles[i], TRZ_EXPORT_FD, &fd));
		TIMED(&imported, gpu.driver->import_handle(gpu.self, TRZ_EXPORT_FD, &fd, &twin));
		close(fd);
		table_must(gpu.driver->release(gpu.self, twin));
	}
	result_figure("create", "for export", size, COUNT, 0, &times.create);
	result_figure("export_handle", "", size, COUNT, 0, &exported);
	result_figure("import_handle", "", size, COUNT, 0, &imported);
	release_tiles(&t);
	end_tiles(&t);
	free(exported.ns);
	free(imported.ns);
}

void part_memory(void)
{
	static const unsigned counts[] = {100, 10, 1};
	gpu_open();
	one_round(MIB(2), 10, true, false);
	reservations();
	for (int i = 0; i < SIZES && !time_is_short("handles by size"); i += quick ? 5 : 1)
		for (int c = 0; c < 3; c++)
			rounds(MIB(sizes_mib[i]), counts[c]);
	if (!time_is_short("plain memory")) {
		plain_rounds(4096, 100);
		plain_rounds(MIB(1), 100);
	}
	for (int i = 0; i < SIZES && !time_is_short("plain memory"); i += quick ? 5 : 1)
		plain_rounds(MIB(sizes_mib[i]), 20);
	for (int i = 0; i < SIZES && !time_is_short("release while mapped"); i += 5) {
		const uint64_t size = MIB(sizes_mib[i]), count = room() / size < 50 ? room() / size : 50;
		clear_times();
		for (int n = 0; n < 4; n++)
			one_round(size, count, n % 2, true);
		result_figure("release", "while mapped", size, (unsigned)count, 0, &times.release);
		result_figure("unmap", "released, each", size, (unsigned)count, 0, &times.unmap_each);
		result_figure("unmap", "released, range", size, (unsigned)count, 0, &times.unmap_range);
	}
	sharing(MIB(2));
	sharing(MIB(64));
	for (int i = 0; i < SIZES && !quick && !time_is_short("1000 handles"); i++)
		rounds(MIB(sizes_mib[i]), 1000);
}

/* Whether a call costs more beside many live mappings. */
void part_live(void)
{
	static const unsigned steps[] = {0, 1000, 10000};
	struct tiles all[3];
	unsigned live = 0, laid = 0;
	struct series info = {0}, again = {0};
	gpu_open();
	for (int step = 0; step < (quick ? 2 : 3) && !time_is_short("more live handles"); step++) {
		if (steps[step] * MIB(2) > room() + live * MIB(2))
			break;
		if (steps[step] > live) {
			clear_times();
			all[laid] = make_tiles(MIB(2), steps[step] - live, &plain_props);
			lay_tiles(&all[laid], true);
			report_round(MIB(2), (unsigned)all[laid].count, live);
			series_clear(&again);
			TIMED(&again, gpu.driver->set_access(gpu.self, all[laid].address, MIB(2) * all[laid].count,
			                                     device_list, 1));
			result_figure("set_access", "again, range", MIB(2), (unsigned)all[laid].count, live, &again);
			laid++;
			live = steps[step];
		}
		clear_times();
		for (int i = 0; i < 8; i++)
			one_round(MIB(2), 50, i % 2, false);
		report_round(MIB(2), 50, live);
		clear_times();
		for (int i = 0; i < 50; i++) {
			trz_addr address;
			TIMED(&times.alloc, gpu.driver->mem_alloc(gpu.self, gpu.context, MIB(64), &address));
			TIMED(&times.free, gpu.driver->mem_free(gpu.self, gpu.context, address));
		}
		result_figure("mem_alloc", "", MIB(64), 1, live, &times.alloc);
		result_figure("mem_free", "", MIB(64), 1, live, &times.free);
		series_clear(&info);
		for (int i = 0; i < 50; i++) {
			uint64_t free_bytes, total;
			TIMED(&info, gpu.driver->mem_info(gpu.self, gpu.context, &free_bytes, &total));
		}
		result_figure("mem_info", "", 0, 1, live, &info);
	}
	while (laid-- > 0) {
		clear_times();
		unmap_tiles(&all[laid], true);
		release_tiles(&all[laid]);
		report_round(MIB(2), (unsigned)all[laid].count, live);
		end_tiles(&all[laid]);
	}
}

/* ---- beside running kernels ----------------------------------------------------------------------------- */

enum { SPIN_NS = 10000000, BUSY_REPEATS = 5 };

/* One call and what it needs; set up before the kernel starts. */
struct subject {
	trz_addr range, at, plain;   /* of 4 tiles: tile 0 stays mapped and is the kernel's in one of the cases */
	trz_handle first, handle, shared;
	trz_event event, done;
	trz_stream other;
	int fd;
};

struct busy_call {
	const char *name;
	void (*prepare)(struct subject *s);
	trz_status (*call)(struct subject *s);
	void (*undo)(struct subject *s);
};

static const uint64_t BUSY_TILE = MIB(20);

static void prepare_handle(struct subject *s)
{
	s->handle = gpu_create(BUSY_TILE);
}

static void prepare_map(struct subject *s)
{
	prepare_handle(s);
	table_must(gpu.driver->map(gpu.self, s->at, BUSY_TILE, s->handle));
}

static void prepare_access(struct subject *s)
{
	prepare_handle(s);
	gpu_map(s->at, BUSY_TILE, s->handle);
}

static trz_status call_release(struct subject *s)
{
	return gpu.driver->release(gpu.self, s->handle);
}

/* The handle has gone, so that the memory goes with the mapping. */
static void prepare_last(struct subject *s)
{
	prepare_access(s);
	table_must(call_release(s));
}

static void prepare_plain(struct subject *s)
{
	table_must(gpu.driver->mem_alloc(gpu.self, gpu.context, BUSY_TILE, &s->plain));
}

static trz_status call_create(struct subject *s)
{
	return gpu.driver->create(gpu.self, &plain_props, BUSY_TILE, &s->handle);
}

static trz_status call_map(struct subject *s)
{
	return gpu.driver->map(gpu.self, s->at, BUSY_TILE, s->handle);
}

static trz_status call_access(struct subject *s)
{
	return gpu.driver->set_access(gpu.self, s->at, BUSY_TILE, device_list, 1);
}

static trz_status call_unmap(struct subject *s)
{
	return gpu.driver->unmap(gpu.self, s->at, BUSY_TILE);
}

static trz_status call_reserve(struct subject *s)
{
	return gpu.driver->reserve(gpu.self, BUSY_TILE, 0, 0, &s->plain);
}

static trz_status call_unreserve(struct subject *s)
{
	return gpu.driver->unreserve(gpu.self, s->plain, BUSY_TILE);
}

static trz_status call_mem_alloc(struct subject *s)
{
	return gpu.driver->mem_alloc(gpu.self, gpu.context, BUSY_TILE, &s->plain);
}

static trz_status call_mem_free(struct subject *s)
{
	return gpu.driver->mem_free(gpu.self, gpu.context, s->plain);
}

static trz_status call_mem_info(struct subject *s)
{
	uint64_t free_bytes, total;
	(void)s;
	return gpu.driver->mem_info(gpu.self, gpu.context, &free_bytes, &total);
}

static trz_status call_event_create(struct subject *s)
{
	return gpu.driver->event_create(gpu.self, gpu.context, &s->event);
}

static trz_status call_event_destroy(struct subject *s)
{
	return gpu.driver->event_destroy(gpu.self, gpu.context, s->event);
}

/* Behind the kernel, unless that runs on the legacy stream. */
static trz_status call_event_record(struct subject *s)
{
	return gpu.driver->event_record(gpu.self, gpu.context, s->event, gpu.stream);
}

static trz_status call_context_record(struct subject *s)
{
	return gpu.driver->context_record(gpu.self, gpu.context, s->event);
}

/* Another stream waits for the kernel. */
static trz_status call_stream_wait(struct subject *s)
{
	return gpu.driver->stream_wait(gpu.self, gpu.context, s->other, s->done);
}

static trz_status call_export(struct subject *s)
{
	return gpu.driver->export_handle(gpu.self, s->shared, TRZ_EXPORT_FD, &s->fd);
}

static trz_status call_import(struct subject *s)
{
	return gpu.driver->import_handle(gpu.self, TRZ_EXPORT_FD, &s->fd, &s->handle);
}

static void prepare_event(struct subject *s)
{
	table_must(call_event_create(s));
}

static void prepare_reserve(struct subject *s)
{
	table_must(call_reserve(s));
}

static void prepare_export(struct subject *s)
{
	table_must(call_export(s));
}

static void undo_handle(struct subject *s)
{
	table_must(call_release(s));
}

static void undo_map(struct subject *s)
{
	table_must(call_unmap(s));
	table_must(call_release(s));
}

static void undo_plain(struct subject *s)
{
	table_must(call_mem_free(s));
}

static void undo_reserve(struct subject *s)
{
	table_must(call_unreserve(s));
}

static void undo_event(struct subject *s)
{
	table_must(call_event_destroy(s));
}

static void undo_export(struct subject *s)
{
	close(s->fd);
}

static void undo_import(struct subject *s)
{
	close(s->fd);
	table_must(call_release(s));
}

static const struct busy_call busy_calls[] = {
	{"reserve", NULL, call_reserve, undo_reserve},
	{"unreserve", prepare_reserve, call_unreserve, NULL},
	{"create", NULL, call_create, undo_handle},
	{"map", prepare_handle, call_map, undo_map},
	{"set_access", prepare_map, call_access, undo_map},
	{"unmap", prepare_access, call_unmap, undo_handle},
	{"unmap, its last", prepare_last, call_unmap, NULL},
	{"release", prepare_handle, call_release, NULL},
	{"mem_alloc", NULL, call_mem_alloc, undo_plain},
	{"mem_free", prepare_plain, call_mem_free, NULL},
	{"mem_info", NULL, call_mem_info, NULL},
	{"event_create", NULL, call_event_create, undo_event},
	{"event_record", prepare_event, call_event_record, undo_event},
	{"context_record", prepare_event, call_context_record, undo_event},
	{"event_destroy", prepare_event, call_event_destroy, NULL},
	{"stream_wait", NULL, call_stream_wait, NULL},
	{"export_handle", NULL, call_export, undo_export},
	{"import_handle", prepare_export, call_import, undo_import},
};

/* Where the kernel runs, and what it touches. */
enum place { PLAIN_MEMORY, SAME_RANGE, LEGACY_STREAM, PLACES };
static const char *const place_names[] = {"plain memory", "a tile beside", "legacy stream"};

static void busy_call(struct subject *s, const struct busy_call *b, enum place place, trz_addr plain)
{
	struct series took = {0};
	int waits = 0;
	trz_stream stream = place == LEGACY_STREAM ? NULL : gpu.stream;
	for (int i = 0; i < BUSY_REPEATS; i++) {
		if (b->prepare)
			b->prepare(s);
		gpu_must(gpu.cuda.synchronize());
		gpu_spin(stream, place == SAME_RANGE ? s->range : plain, SPIN_NS);
		gpu_must(gpu.cuda.event_record(s->done, stream));
		usleep(200);  /* it is running now */
		TIMED(&took, b->call(s));
		int state = gpu.cuda.event_query(s->done);
		if (state != GPU_NOT_READY)
			gpu_must(state);
		waits += state == 0;
		gpu_must(gpu.cuda.synchronize());
		if (b->undo)
			b->undo(s);
	}
	unsigned before = results->figure_count;
	char what[40] = "busy: ";
	strncat(what, place_names[place], sizeof what - strlen(what) - 1);
	result_figure(b->name, what, BUSY_TILE, 1, 0, &took);
	if (results->figure_count > before)
		results->figures[before].waits = waits;
	free(took.ns);
}

/* Which calls wait for kernels that run on other memory. */
void part_busy(void)
{
	gpu_open();
	if (!gpu.computes)
		result_line("  kernels compute nothing here: which calls wait is not seen");
	struct subject s = {.range = gpu_reserve(4 * BUSY_TILE), .first = gpu_create(BUSY_TILE),
	                    .other = gpu_new_stream(), .done = gpu_new_event()};
	trz_addr plain;
	s.at = s.range + BUSY_TILE;
	gpu_map(s.range, BUSY_TILE, s.first);
	const bool shares = can_share();
	if (shares)
		table_must(gpu.driver->create(gpu.self, &shared_props, BUSY_TILE, &s.shared));
	table_must(gpu.driver->mem_alloc(gpu.self, gpu.context, BUSY_TILE, &plain));
	for (int place = 0; place < PLACES; place++)
		for (size_t i = 0; i < sizeof busy_calls / sizeof busy_calls[0]; i++) {
			const bool is_sharing = strstr(busy_calls[i].name, "port_handle") != NULL;
			if (time_is_short("all calls beside kernels"))
				return;
			if (!is_sharing || shares)
				busy_call(&s, &busy_calls[i], (enum place)place, plain);
		}
}
