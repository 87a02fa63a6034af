/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel reads through one address of a tile after another address has been written: two mappings of one handle.
 * CUDA promises (programming guide, virtual aliasing) that a write through one is seen through the other by work that
 * begins after the writing operation has completed; within a kernel only behind fence.proxy.alias; and nothing to
 * a kernel that is resident before the write completes, unless the PTX ISA says otherwise. That has griddepcontrol.wait
 * make what earlier grids wrote visible to the grid, and does not speak of aliases there. A dependent launch that does
 * not wait is promised nothing, by whatever address: no event that its own stream waits for changes that.
 *
 * Each case runs twice: reading through the other address, and through the same one, which tells what aliasing adds.
 * Round `seed` writes pattern(i, seed) over that of the round before, so each wrong word is either stale or neither.
 */
#include "gpu.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FOUND_BYTES = 4096 };     /* of counters: more than the look-alike takes for a scalar */
enum { STALE, WRONG, EARLY_STALE, EARLY_WRONG, COUNTERS };  /* early: before a wait, or before the write */
static const uint64_t late_ns = 30000;

/* A tile at two addresses, and what the cases need. */
struct aliases {
	trz_handle handle;
	trz_addr at, alias, source, found;
	uint64_t size, words;
	trz_stream second, side;
	trz_event event, exact;      /* `exact`: made by the driver table, as the heap's are */
	uint32_t *host;
};

struct alias_case {
	const char *name, *promise;
	void (*run)(struct aliases *s, trz_addr read, uint32_t seed);
	unsigned rounds_divisor;
};

static unsigned grid(void)
{
	return (unsigned)gpu.multiprocessors;   /* one block on each, so that all are resident, and room is left */
}

static void write_late(trz_stream stream, void *kernel, trz_addr at, uint64_t words, uint32_t seed, uint64_t ns)
{
	LAUNCH(kernel, grid(), stream, &at, &words, &seed, &ns);
}

static void check(trz_stream stream, struct aliases *s, trz_addr at, uint32_t seed)
{
	LAUNCH(gpu.kernel.check, grid(), stream, &at, &s->words, &seed, &s->found);
}

/* A launch that may begin when its predecessor in the stream lets it. */
static void launch_dependent(void *kernel, void **arguments)
{
	struct gpu_launch_attribute attribute = {.id = GPU_PROGRAMMATIC_STREAM_SERIALIZATION, .value.number = 1};
	struct gpu_launch launch = {grid(), 1, 1, 256, 1, 1, 0, gpu.stream, &attribute, 1};
	gpu_must(gpu.cuda.launch_with(&launch, kernel, arguments, NULL));
}

static void check_dependent(void *kernel, struct aliases *s, trz_addr at, uint32_t seed)
{
	launch_dependent(kernel, (void *[]){&at, &s->words, &seed, &s->found});
}

/* The stream waits for an event of its own. */
static void fence(struct aliases *s)
{
	table_must(gpu.driver->event_record(gpu.self, gpu.context, s->exact, gpu.stream));
	table_must(gpu.driver->stream_wait(gpu.self, gpu.context, gpu.stream, s->exact));
}

/* ---- two mappings --------------------------------------------------------------------------------------- */

static void one_stream(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late, s->at, s->words, seed, late_ns);
	check(gpu.stream, s, read, seed);
}

static void two_streams(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late, s->at, s->words, seed, late_ns);
	gpu_must(gpu.cuda.event_record(s->event, gpu.stream));
	gpu_must(gpu.cuda.stream_wait(s->second, s->event, 0));
	check(s->second, s, read, seed);
}

static void dependent_no_trigger(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late, s->at, s->words, seed, late_ns);
	check_dependent(gpu.kernel.check, s, read, seed);
}

static void dependent_no_wait(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late_trigger, s->at, s->words, seed, late_ns);
	check_dependent(gpu.kernel.check, s, read, seed);
}

static void dependent_waits(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late_trigger, s->at, s->words, seed, late_ns);
	check_dependent(gpu.kernel.check_waits, s, read, seed);
}

static void dependent_reads_waits(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late_trigger, s->at, s->words, seed, late_ns);
	check_dependent(gpu.kernel.check_reads_waits, s, read, seed);
}

static void dependent_record(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late_trigger, s->at, s->words, seed, late_ns);
	table_must(gpu.driver->event_record(gpu.self, gpu.context, s->exact, gpu.stream));
	check_dependent(gpu.kernel.check, s, read, seed);
}

static void dependent_fence(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late_trigger, s->at, s->words, seed, late_ns);
	fence(s);
	check_dependent(gpu.kernel.check, s, read, seed);
}

/* The stream waits for an event of another one, which has waited for the writer. */
static void dependent_other_stream(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late_trigger, s->at, s->words, seed, late_ns);
	gpu_must(gpu.cuda.event_record(s->event, gpu.stream));
	gpu_must(gpu.cuda.stream_wait(s->second, s->event, 0));
	gpu_must(gpu.cuda.event_record(s->event, s->second));
	gpu_must(gpu.cuda.stream_wait(gpu.stream, s->event, 0));
	check_dependent(gpu.kernel.check, s, read, seed);
}

/* Between the writer and the event, a dependent launch that waits for nothing and ends before the writer does. */
static void chain(struct aliases *s, uint32_t seed)
{
	uint64_t none = 0;
	write_late(gpu.stream, gpu.kernel.write_late_trigger, s->at, s->words, seed, 3 * late_ns);
	launch_dependent(gpu.kernel.check, (void *[]){&s->at, &none, &seed, &s->found});
}

static void chain_dependent(struct aliases *s, trz_addr read, uint32_t seed)
{
	chain(s, seed);
	check_dependent(gpu.kernel.check, s, read, seed);
}

static void chain_waits(struct aliases *s, trz_addr read, uint32_t seed)
{
	chain(s, seed);
	check_dependent(gpu.kernel.check_waits, s, read, seed);
}

static void chain_fence(struct aliases *s, trz_addr read, uint32_t seed)
{
	chain(s, seed);
	fence(s);
	check_dependent(gpu.kernel.check, s, read, seed);
}

static void chain_event(struct aliases *s, trz_addr read, uint32_t seed)
{
	chain(s, seed);
	gpu_must(gpu.cuda.event_record(s->event, gpu.stream));
	gpu_must(gpu.cuda.stream_wait(s->second, s->event, 0));
	check(s->second, s, read, seed);
}

static void chain_query(struct aliases *s, trz_addr read, uint32_t seed)
{
	int state;
	chain(s, seed);
	gpu_must(gpu.cuda.event_record(s->event, gpu.stream));
	while ((state = gpu.cuda.event_query(s->event)) == GPU_NOT_READY)
		;
	gpu_must(state);
	check(s->second, s, read, seed);
}

/* The old owner's late write and the new owner's: the new one's must last. The old one writes what was there before. */
static void write_write(struct aliases *s, trz_addr second, uint32_t seed, bool fenced)
{
	uint64_t none = 0;
	write_late(gpu.stream, gpu.kernel.write_late_trigger, s->at, s->words, seed - 1, late_ns);
	if (fenced)
		fence(s);
	launch_dependent(gpu.kernel.write_late, (void *[]){&second, &s->words, &seed, &none});
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
	check(gpu.stream, s, s->at, seed);
}

static void write_write_plain(struct aliases *s, trz_addr second, uint32_t seed)
{
	write_write(s, second, seed, false);
}

static void write_write_fence(struct aliases *s, trz_addr second, uint32_t seed)
{
	write_write(s, second, seed, true);
}

static void within_kernel(struct aliases *s, trz_addr read, uint32_t seed)
{
	LAUNCH(gpu.kernel.within_kernel, grid(), gpu.stream, &s->at, &read, &s->words, &seed, &s->found);
}

static void within_fence(struct aliases *s, trz_addr read, uint32_t seed)
{
	LAUNCH(gpu.kernel.within_fence, grid(), gpu.stream, &s->at, &read, &s->words, &seed, &s->found);
}

static void within_alias_fence(struct aliases *s, trz_addr read, uint32_t seed)
{
	LAUNCH(gpu.kernel.within_alias_fence, grid(), gpu.stream, &s->at, &read, &s->words, &seed, &s->found);
}

static void copy_from_host(struct aliases *s, trz_addr read, uint32_t seed)
{
	for (uint64_t i = 0; i < s->words; i++)
		s->host[i] = (uint32_t)i * 2654435761u + seed * 0x9e3779b9u;
	gpu_must(gpu.cuda.copy_to_device(s->at, s->host, s->size, gpu.stream));
	check(gpu.stream, s, read, seed);
}

static void copy_in_device(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late, s->source, s->words, seed, 0);
	gpu_must(gpu.cuda.copy_in_device(s->at, s->source, s->size, gpu.stream));
	check(gpu.stream, s, read, seed);
}

static void copy_reads(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late, s->at, s->words, seed, late_ns);
	gpu_must(gpu.cuda.copy_in_device(s->source, read, s->size, gpu.stream));
	check(gpu.stream, s, s->source, seed);
}

static const struct alias_case cases[] = {
	{"kernel, kernel: one stream", "none", one_stream, 1},
	{"kernel, kernel: two streams, event", "none", two_streams, 1},
	{"copy from host, kernel", "none", copy_from_host, 10},
	{"copy in device, kernel", "none", copy_in_device, 1},
	{"kernel, copy in device", "none", copy_reads, 1},
	{"dependent: no trigger, no wait", "any", dependent_no_trigger, 1},
	{"dependent: trigger, no wait", "any", dependent_no_wait, 1},
	{"dependent: trigger, waits", "alias: unsaid", dependent_waits, 1},
	{"dependent: trigger, reads, waits", "alias: unsaid", dependent_reads_waits, 1},
	{"dependent: trigger, record, no wait", "any", dependent_record, 1},
	{"dependent: trigger, fence, no wait", "any", dependent_fence, 1},
	{"dependent: other stream, no wait", "unsaid", dependent_other_stream, 1},
	{"dependent, dependent: no wait", "any", chain_dependent, 1},
	{"dependent, dependent: fence, no wait", "any", chain_fence, 1},
	{"dependent, dependent: waits", "unsaid", chain_waits, 1},
	{"dependent, event, other stream", "none", chain_event, 1},
	{"dependent, event seen done", "none", chain_query, 1},
	{"dependent writes: no fence", "any", write_write_plain, 1},
	{"dependent writes: fence", "any", write_write_fence, 1},
	{"in one kernel: no fence", "alias: any", within_kernel, 1},
	{"in one kernel: membar.gl", "alias: any", within_fence, 1},
	{"in one kernel: fence.proxy.alias", "none", within_alias_fence, 1},
};

static void read_counters(struct aliases *s, uint64_t counters[COUNTERS])
{
	uint64_t all[FOUND_BYTES / 8];
	gpu_must(gpu.cuda.synchronize());
	gpu_must(gpu.cuda.copy_to_host(all, s->found, sizeof all, gpu.stream));
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
	memcpy(counters, all, COUNTERS * sizeof *counters);
}

static void clear_counters(struct aliases *s)
{
	gpu_must(gpu.cuda.fill(s->found, 0, FOUND_BYTES / 4, gpu.stream));
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
}

/* All rounds of a case, read through one address. Every round begins with the whole tile as the last one left it. */
static void run_rounds(struct aliases *s, const struct alias_case *c, trz_addr read, unsigned rounds,
                       uint64_t counters[COUNTERS])
{
	clear_counters(s);
	for (uint32_t seed = 1; seed <= rounds; seed++) {
		if (seed == 1) {
			write_late(gpu.stream, gpu.kernel.write_late, s->at, s->words, 0, 0);
			gpu_must(gpu.cuda.synchronize());
		}
		c->run(s, read, seed);
		gpu_must(gpu.cuda.synchronize());
	}
	read_counters(s, counters);
}

static void report_rounds(const struct alias_case *c, const char *read, const struct aliases *s, unsigned rounds,
                          const uint64_t counters[COUNTERS])
{
	result_json("{\"part\": \"aliasing\", \"case\": \"%s\", \"read_by\": \"%s\", \"tile_mib\": %llu, \"rounds\": %u, "
	            "\"words\": %llu, \"stale\": %llu, \"wrong\": %llu, \"early_stale\": %llu, \"early_wrong\": %llu, "
	            "\"may_be_stale\": \"%s\"}", c->name, read, (unsigned long long)(s->size / MIB(1)), rounds,
	            (unsigned long long)(s->words * rounds), (unsigned long long)counters[STALE],
	            (unsigned long long)counters[WRONG], (unsigned long long)counters[EARLY_STALE],
	            (unsigned long long)counters[EARLY_WRONG], c->promise);
}

static uint64_t bad_words(const uint64_t counters[COUNTERS])
{
	return counters[STALE] + counters[WRONG] + counters[EARLY_WRONG];
}

static struct aliases aliases_of(uint64_t size)
{
	struct aliases s = {.size = size, .words = size / 4, .handle = gpu_create(size), .at = gpu_reserve(size),
	                    .alias = gpu_reserve(size), .second = gpu_new_stream(), .side = gpu_new_stream(),
	                    .event = gpu_new_event()};
	void *host;
	gpu_must(gpu.cuda.mem_alloc(&s.source, size));
	gpu_must(gpu.cuda.mem_alloc(&s.found, FOUND_BYTES));
	gpu_must(gpu.cuda.host_alloc(&host, size, 0));
	s.host = host;
	table_must(gpu.driver->event_create(gpu.self, gpu.context, &s.exact));
	return s;
}

/* A promise that does not hold is what one must not overlook. */
static const char *remark(const struct alias_case *c, uint64_t alias, uint64_t same)
{
	bool alias_may = strcmp(c->promise, "none") != 0, same_may = alias_may && strncmp(c->promise, "alias:", 6) != 0;
	return (alias && !alias_may) || (same && !same_may) ? "  NOT AS PROMISED" : "";
}

static void result_head(const char *what)
{
	result_line("%s on %s: stale + wrong words of so many million%s", what, gpu.info.name,
	            gpu.computes ? "" : " (kernels compute nothing here: without meaning)");
	result_line("  %-36s %9s %12s %12s %14s  %s", "written by, read by", "Mwords", "other addr", "same addr",
	            "early: yes/no", "may be stale");
}

void part_aliasing(void)
{
	static const uint64_t sizes[] = {MIB(2), MIB(64)};
	gpu_open();
	struct aliases s[2] = {aliases_of(sizes[0]), aliases_of(sizes[1])};
	for (int i = 0; i < 2; i++) {
		gpu_map(s[i].at, s[i].size, s[i].handle);
		gpu_map(s[i].alias, s[i].size, s[i].handle);
	}
	result_head("aliases");
	for (size_t n = 0; n < sizeof cases / sizeof cases[0] && !time_is_short("all cases of aliases"); n++) {
		const struct alias_case *c = &cases[n];
		uint64_t words = 0, bad[2] = {0}, early = 0;
		for (int i = 0; i < 2; i++) {
			unsigned rounds = (quick ? 20 : i == 0 ? 1000 : 60) / c->rounds_divisor;
			for (int same = 0; same < 2; same++) {
				uint64_t counters[COUNTERS];
				run_rounds(&s[i], c, same ? s[i].at : s[i].alias, rounds, counters);
				report_rounds(c, same ? "same address" : "alias", &s[i], rounds, counters);
				bad[same] += bad_words(counters);
				early += counters[EARLY_STALE];
			}
			words += s[i].words * rounds;
		}
		result_line("  %-36s %9.0f %12llu %12llu %14s  %s%s", c->name, (double)words / 1e6,
		            (unsigned long long)bad[0], (unsigned long long)bad[1],
		            c->run != dependent_reads_waits ? "" : early ? "yes" : "no", c->promise,
		            remark(c, bad[0], bad[1]));
	}
}

/* ---- a tile that moves ---------------------------------------------------------------------------------- */

/* Something else that runs all the while, so that the device is never idle. */
static void keep_busy(struct aliases *s)
{
	gpu_spin(s->side, s->source, 500000);
}

static void move(struct aliases *s, trz_addr from, trz_addr to)
{
	gpu_unmap(from, s->size);
	gpu_map(to, s->size, s->handle);
}

static void moved_after_sync(struct aliases *s, trz_addr read, uint32_t seed)
{
	keep_busy(s);
	write_late(gpu.stream, gpu.kernel.write_late, s->at, s->words, seed, late_ns);
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
	move(s, s->at, read);
	check(gpu.stream, s, read, seed);
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
	move(s, read, s->at);
}

static void moved_after_query(struct aliases *s, trz_addr read, uint32_t seed)
{
	keep_busy(s);
	write_late(gpu.stream, gpu.kernel.write_late, s->at, s->words, seed, late_ns);
	gpu_must(gpu.cuda.event_record(s->event, gpu.stream));
	int state;
	while ((state = gpu.cuda.event_query(s->event)) == GPU_NOT_READY)
		;
	gpu_must(state);
	move(s, s->at, read);
	gpu_must(gpu.cuda.stream_wait(s->second, s->event, 0));
	check(s->second, s, read, seed);
	gpu_must(gpu.cuda.stream_sync(s->second));
	move(s, read, s->at);
}

/* As the heap gathers: the old mapping stays, the new one is made while the writer runs. */
static void mapped_meanwhile(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late, s->at, s->words, seed, 10 * late_ns);
	if (read != s->at)
		gpu_map(read, s->size, s->handle);
	check(gpu.stream, s, read, seed);
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
	if (read != s->at)
		gpu_unmap(read, s->size);
}

static void mapped_meanwhile_dependent(struct aliases *s, trz_addr read, uint32_t seed)
{
	write_late(gpu.stream, gpu.kernel.write_late_trigger, s->at, s->words, seed, 10 * late_ns);
	if (read != s->at)
		gpu_map(read, s->size, s->handle);
	fence(s);
	check_dependent(gpu.kernel.check, s, read, seed);
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
	if (read != s->at)
		gpu_unmap(read, s->size);
}

/* The address gets another tile: the old one's words there are stale. */
static void other_tile(struct aliases *s, trz_addr read, uint32_t seed)
{
	static trz_handle other;
	if (!other)
		other = gpu_create(s->size);
	gpu_map(s->alias, s->size, other);
	keep_busy(s);
	write_late(gpu.stream, gpu.kernel.write_late, s->alias, s->words, seed, 0);
	write_late(gpu.stream, gpu.kernel.write_late, s->at, s->words, seed - 1, 0);
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
	gpu_unmap(s->at, s->size);
	gpu_map(s->at, s->size, other);
	check(gpu.stream, s, read, seed);
	gpu_must(gpu.cuda.stream_sync(gpu.stream));
	gpu_unmap(s->at, s->size);
	gpu_unmap(s->alias, s->size);
	gpu_map(s->at, s->size, s->handle);
}

static const struct alias_case moves[] = {
	{"moved after a wait", "none", moved_after_sync, 1},
	{"moved after a query, event order", "none", moved_after_query, 1},
	{"mapped while written, one stream", "none", mapped_meanwhile, 1},
	{"the same: dependent, fence", "any", mapped_meanwhile_dependent, 1},
	{"another tile at the address", "none", other_tile, 1},
};

/* Mappings change while kernels run elsewhere. "same addr": the tile comes back to the address that it had, or another
 * comes to it. */
void part_move(void)
{
	gpu_open();
	struct aliases s = aliases_of(MIB(2));
	unsigned rounds = quick ? 20 : 500;
	gpu_map(s.at, s.size, s.handle);
	result_head("moving tiles");
	for (size_t n = 0; n < sizeof moves / sizeof moves[0] && !time_is_short("all moves"); n++) {
		const struct alias_case *c = &moves[n];
		uint64_t other[COUNTERS], same[COUNTERS];
		run_rounds(&s, c, s.alias, rounds, other);
		report_rounds(c, "alias", &s, rounds, other);
		run_rounds(&s, c, s.at, rounds, same);
		report_rounds(c, "same address", &s, rounds, same);
		uint64_t bad = bad_words(other), bad_same = bad_words(same);
		result_line("  %-36s %9.0f %12llu %12llu %14s  %s%s", c->name, (double)(s.words * rounds) / 1e6,
		            (unsigned long long)bad, (unsigned long long)bad_same, "", c->promise, remark(c, bad, bad_same));
	}
}

/* Only on request, since it is an error of the program: memory is unmapped while a kernel is about to write there.
 * Either the call waits, or the kernel fails and the context with it. */
void part_fault(void)
{
	gpu_open();
	struct aliases s = aliases_of(MIB(2));
	gpu_map(s.at, s.size, s.handle);
	write_late(gpu.stream, gpu.kernel.write_late, s.at, s.words, 1, 20000000);
	gpu_must(gpu.cuda.event_record(s.event, gpu.stream));
	usleep(1000);
	uint64_t from = now_ns();
	gpu_unmap(s.at, s.size);
	uint64_t took = now_ns() - from;
	int running = gpu.cuda.event_query(s.event), end = gpu.cuda.stream_sync(gpu.stream);
	const char *name = "?";
	gpu.cuda.error_name(end, &name);
	result_line("unmap of memory in use: took %.0f us, the kernel %s; then %s (%d)", (double)took / 1e3,
	            running == GPU_NOT_READY ? "still ran" : "had ended", name, end);
	result_json("{\"part\": \"fault\", \"unmap_ns\": %llu, \"kernel_ran\": %s, \"result\": %d}",
	            (unsigned long long)took, running == GPU_NOT_READY ? "true" : "false", end);
}
