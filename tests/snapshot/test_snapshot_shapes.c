/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots of a model heap in many shapes, with rings that wrap, pass tools/check_snapshot.py; if one note is left
 * out, they fail, which proves that the checker checks.
 */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prng.h"
#include "snapshot_file.h"

enum { TILES = 48, CELLS_PER_TILE = 8, CELLS = TILES * CELLS_PER_TILE, STEPS = 1500, SEEDS = 12 };

#define TILE MIB(2)
#define CELL_BYTES (TILE / CELLS_PER_TILE)
#define BASE ((uint64_t)0x7f0000000000)

/* Two windows with a gap after the first half; the second one's tiles are of another pool. A block takes whole
 * cells, at their first byte; `length` is not 0 where one begins. */
struct model {
	bool laid[TILES];
	bool taken[CELLS];
	struct { int length; uint64_t requested; bool pending; } block[CELLS];
	struct history history;
	struct history_tags tags;
	unsigned forgotten;        /* the kind of which one event is not noted; HISTORY_KINDS: none */
	uint64_t random;
};

#define NOTE(m, what, ...) \
	do { \
		if ((m)->forgotten == (what)) \
			(m)->forgotten = HISTORY_KINDS; \
		else \
			history_note(&(m)->history, what, __VA_ARGS__); \
	} while (0)

static int below(struct model *m, int bound)
{
	return (int)prng_below(&m->random, (uint64_t)bound);
}

static uint64_t tile_address(int tile)
{
	return BASE + (uint64_t)tile * TILE + (tile < TILES / 2 ? 0 : MIB(64));
}

static uint64_t cell_address(int cell)
{
	return tile_address(cell / CELLS_PER_TILE) + (uint64_t)(cell % CELLS_PER_TILE) * CELL_BYTES;
}

static uint32_t tile_pool(int tile)
{
	return tile < TILES / 2 ? 0 : 9;
}

static bool tile_is_empty(const struct model *m, int tile)
{
	for (int i = 0; i < CELLS_PER_TILE; i++)
		if (m->taken[tile * CELLS_PER_TILE + i])
			return false;
	return m->laid[tile];
}

/* ---- moves ------------------------------------------------------------------------------------------ */

static void lay(struct model *m)
{
	int first = below(m, TILES), count = 1 + below(m, 4), end = first;
	while (end < TILES && end < first + count && !m->laid[end] && tile_pool(end) == tile_pool(first))
		m->laid[end++] = true;
	if (end > first)
		NOTE(m, HISTORY_MAP, .address = tile_address(first), .size = (uint64_t)(end - first) * TILE,
		     .pool = tile_pool(first), .stream = (uint64_t)below(m, 3));
}

static void unlay(struct model *m)
{
	int tile = below(m, TILES);
	if (!tile_is_empty(m, tile))
		return;
	m->laid[tile] = false;
	NOTE(m, HISTORY_UNMAP, .address = tile_address(tile), .size = TILE, .pool = tile_pool(tile));
}

static void move(struct model *m)
{
	int from = below(m, TILES), to = below(m, TILES);
	if (!tile_is_empty(m, from) || m->laid[to])
		return;
	m->laid[from] = false;
	m->laid[to] = true;
	NOTE(m, below(m, 2) ? HISTORY_FLIP : HISTORY_GATHER, .from = tile_address(from),
	     .address = tile_address(to), .size = TILE, .pool = tile_pool(to));
}

static void allocate(struct model *m)
{
	int first = below(m, CELLS), length = 1 + below(m, 2 * CELLS_PER_TILE), half = CELLS / 2;
	for (int c = first; c < first + length; c++)
		if (c >= CELLS || m->taken[c] || !m->laid[c / CELLS_PER_TILE] || (c < half) != (first < half))
			return;
	for (int c = first; c < first + length; c++)
		m->taken[c] = true;
	m->block[first].length = length;
	m->block[first].requested = (uint64_t)length * CELL_BYTES - (uint64_t)below(m, 1000);
	NOTE(m, HISTORY_ALLOC, .address = cell_address(first), .size = m->block[first].requested,
	     .stream = (uint64_t)below(m, 3), .tag = history_tag(&m->tags, below(m, 2) ? "a \"tag\"" : ""));
}

static void release(struct model *m, int cell)
{
	for (int c = cell; c < cell + m->block[cell].length; c++)
		m->taken[c] = false;
	m->block[cell].length = 0;
	m->block[cell].pending = false;
}

static void give(struct model *m)
{
	int cell = below(m, CELLS);
	while (cell < CELLS && m->block[cell].length == 0)
		cell++;
	if (cell == CELLS)
		return;
	uint64_t address = cell_address(cell), size = m->block[cell].requested;
	if (m->block[cell].pending) {
		NOTE(m, HISTORY_FREE_COMPLETED, .address = address, .size = size);
		release(m, cell);
	} else if (below(m, 2)) {
		NOTE(m, HISTORY_FREE, .address = address, .size = size);
		release(m, cell);
	} else {
		NOTE(m, HISTORY_FREE_REQUESTED, .address = address, .size = size);
		m->block[cell].pending = true;
	}
}

static void step(struct model *m)
{
	int choice = below(m, 100);
	if (choice < 40)
		allocate(m);
	else if (choice < 75)
		give(m);
	else if (choice < 85)
		lay(m);
	else if (choice < 90)
		unlay(m);
	else if (choice < 98)
		move(m);
	else if (choice < 99)
		NOTE(m, HISTORY_OOM, .size = 1, .device_free = 5);
	else
		NOTE(m, HISTORY_WAIT, .stream = 1, .awaited = 2, .size = 77);
}

/* ---- snapshots -------------------------------------------------------------------------------------- */

static void *host_alloc(void *owner, size_t size)
{
	(void)owner;
	return malloc(size);
}

static void host_free(void *owner, void *memory)
{
	(void)owner;
	free(memory);
}

static void fill(struct snapshot *s, const struct model *m)
{
	for (int t = TILES - 1; t >= 0; t--)
		if (m->laid[t])
			snapshot_add_range(s, (struct snapshot_range){
			    .address = tile_address(t), .size = TILE, .pool = tile_pool(t), .expandable = true});
	for (int c = 0; c < CELLS; c++)
		if (m->block[c].length)
			snapshot_add_block(s, (struct snapshot_block){
			    .address = cell_address(c), .size = (uint64_t)m->block[c].length * CELL_BYTES,
			    .requested = m->block[c].requested, .pending = m->block[c].pending});
	snapshot_add_history(s, &m->history);
}

static trz_status to_file(struct snapshot *s, const char *path)
{
	uint64_t size = SNAPSHOT_ANY_SIZE;
	return snapshot_to_file(s, path, &size);
}

static void take_snapshot(struct model *m, int device, const char *path)
{
	struct snapshot s = {.memory = {host_alloc, host_free, NULL}, .device = device, .tags = &m->tags};
	history_note(&m->history, HISTORY_SNAPSHOT, .size = 0);
	do {
		assert_ok(snapshot_reserve(&s));
		fill(&s, m);
	} while (!snapshot_fits(&s));
	assert_ok(snapshot_seal(&s));
	assert_ok(to_file(&s, path));
	snapshot_free(&s);
}

static char folder[] = "shapes-XXXXXX";

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	(void)state;
	char command[64];
	snprintf(command, sizeof command, "rm -r %s", folder);
	return system(command);
}

/* The checker's exit status for all files of the folder. */
static int check_folder(const char *more)
{
	char command[1000];
	const char *root = getenv("TRZ_SOURCE_DIR");
	assert_non_null(root);
	snprintf(command, sizeof command, "python3 '%s/tools/check_snapshot.py' %s/*.json %s", root, folder, more);
	int status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs a model through its steps; a snapshot every third of them. */
static void run_model(uint64_t seed, size_t ring_events, unsigned forgotten)
{
	static struct model m;
	m = (struct model){.forgotten = forgotten, .random = seed};
	struct history_event *ring = malloc(ring_events * sizeof *ring);
	assert_true(history_start(&m.history, ring, ring_events * sizeof *ring));
	for (int i = 0; i < STEPS; i++) {
		step(&m);
		if (i % (STEPS / 3) == STEPS / 3 - 1) {
			char path[64];
			snprintf(path, sizeof path, "%s/%d-%zu-%d.json", folder, (int)seed, ring_events, i);
			take_snapshot(&m, (int)seed % 3, path);
		}
	}
	free(history_stop(&m.history));
}

static void test_snapshots_of_a_heap_at_work(void **state)
{
	(void)state;
	static const size_t rings[] = {1, 10, 100, 2 * STEPS};
	for (uint64_t seed = 1; seed <= SEEDS; seed++)
		for (size_t i = 0; i < LENGTH(rings); i++)
			run_model(seed, rings[i], HISTORY_KINDS);
	assert_int_equal(check_folder(""), 0);
}

/* A forgotten alloc or map would look as if it had been before the history began. */
static void test_a_history_with_a_hole_is_found(void **state)
{
	(void)state;
	static const unsigned kinds[] = {HISTORY_FREE, HISTORY_UNMAP, HISTORY_FREE_REQUESTED,
	                                 HISTORY_FREE_COMPLETED, HISTORY_FLIP};
	for (size_t i = 0; i < LENGTH(kinds); i++) {
		run_model(5, 2 * STEPS, kinds[i]);
		assert_int_equal(check_folder("> /dev/null"), 1);
	}
}

/* Driver allocations of their own, and a history that is off. */
static void test_plain_segments(void **state)
{
	(void)state;
	static struct model m;
	static struct history_event ring[16];
	char path[64];
	m = (struct model){.forgotten = HISTORY_KINDS};
	assert_true(history_start(&m.history, ring, sizeof ring));
	struct snapshot s = {.memory = {host_alloc, host_free, NULL}, .device = 1};
	assert_ok(snapshot_reserve(&s));
	for (uint64_t i = 0; i < 4; i++) {
		uint64_t address = BASE + i * TILE;
		history_note(&m.history, HISTORY_SEGMENT_ALLOC, .address = address, .size = TILE);
		history_note(&m.history, HISTORY_ALLOC, .address = address, .size = 100);
		if (i % 2) {
			history_note(&m.history, HISTORY_FREE, .address = address, .size = 100);
			history_note(&m.history, HISTORY_SEGMENT_FREE, .address = address, .size = TILE);
		} else {
			snapshot_add_range(&s, (struct snapshot_range){.address = address, .size = TILE, .small = true});
			snapshot_add_block(&s, (struct snapshot_block){.address = address, .size = 512, .requested = 100});
		}
	}
	snapshot_add_history(&s, &m.history);
	assert_ok(snapshot_seal(&s));
	snprintf(path, sizeof path, "%s/plain.json", folder);
	assert_ok(to_file(&s, path));
	snapshot_free(&s);
	history_stop(&m.history);
	snprintf(path, sizeof path, "%s/off.json", folder);
	take_snapshot(&m, 0, path);
	assert_int_equal(check_folder(""), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_snapshots_of_a_heap_at_work, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(test_a_history_with_a_hole_is_found, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(test_plain_segments, make_folder, remove_folder),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
