/* SPDX-License-Identifier: Apache-2.0
 *
 * Peaks are exact with several threads: in each round every thread allocates and frees at random, never beyond a mark
 * of its own, and at one moment all are at their marks. So the most that callers have held at once is the largest sum
 * of a round's marks, whatever the threads do in between.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "prng.h"
#include "rig.h"

enum { WORKERS = 3, MARK_MOST = 60, STEPS = 300 };
#ifdef TRZ_UNDER_TSAN
enum { ROUNDS = 30, READS = 5000 };
#else
enum { ROUNDS = 150, READS = 100000 };
#endif

struct worker {
	struct rig *rig;
	pthread_barrier_t *phase;
	trz_stream stream;
	uint64_t random, size;       /* of all its allocations */
	unsigned mark, count;
	void *held[MARK_MOST];
	_Atomic(const char *) *wrong;
};

static void take(struct worker *w)
{
	if (trz_alloc(w->rig->heap, w->size, 0, w->stream, &w->held[w->count++]) != TRZ_OK)
		atomic_store(w->wrong, "an allocation failed");
}

static void give(struct worker *w)
{
	if (trz_free(w->rig->heap, w->held[--w->count]) != TRZ_OK)
		atomic_store(w->wrong, "a free failed");
}

static void wander(struct worker *w)
{
	for (int i = 0; i < STEPS; i++) {
		bool up = w->count == 0 || (w->count < w->mark && prng_below(&w->random, 2));
		if (up)
			take(w);
		else
			give(w);
	}
	while (w->count < w->mark)
		take(w);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	for (int round = 0; round < ROUNDS; round++) {
		w->mark = 1 + (unsigned)prng_below(&w->random, MARK_MOST);
		wander(w);
		pthread_barrier_wait(w->phase);  /* all are at their marks; then the main thread looks */
		pthread_barrier_wait(w->phase);
		while (w->count)
			give(w);
		pthread_barrier_wait(w->phase);
	}
	return NULL;
}

static void look(struct rig *r, const struct worker *workers, uint64_t *count, uint64_t *bytes)
{
	uint64_t n = 0, sum = 0;
	for (int i = 0; i < WORKERS; i++) {
		n += workers[i].mark;
		sum += workers[i].mark * workers[i].size;
	}
	*count = max_u64(*count, n);
	*bytes = max_u64(*bytes, sum);
	assert_int_equal(rig_stat(r, "allocation.all.current"), n);
	assert_int_equal(rig_stat(r, "allocation.all.peak"), *count);
	assert_int_equal(rig_stat(r, "allocated_bytes.all.current"), sum);
	assert_int_equal(rig_stat(r, "allocated_bytes.all.peak"), *bytes);
	assert_int_equal(rig_stat(r, "requested_bytes.all.peak"), *bytes);
	assert_ok(trz_check(r->heap));
}

/* `sizes`: of each worker's allocations; `shared`: all on one stream. */
static void play(const uint64_t *sizes, bool shared)
{
	struct rig r = rig_machine((sim_config){.capacity = GIB(4), .seed = 3});
	struct worker workers[WORKERS];
	pthread_t threads[WORKERS];
	pthread_barrier_t phase;
	_Atomic(const char *) wrong = NULL;
	uint64_t count = 0, bytes = 0;
	rig_open_heap(&r, NULL);
	pthread_barrier_init(&phase, NULL, WORKERS + 1);
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){.rig = &r, .phase = &phase, .random = (uint64_t)i + 1, .size = sizes[i],
		                             .stream = i && !shared ? rig_stream(&r) : NULL, .wrong = &wrong};
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (int round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&phase);
		look(&r, workers, &count, &bytes);
		if (round % 20 == 19) {
			assert_ok(trz_reset_peaks(r.heap));
			count = bytes = 0;
			look(&r, workers, &count, &bytes);
		}
		pthread_barrier_wait(&phase);
		pthread_barrier_wait(&phase);
	}
	for (int i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_null(atomic_load(&wrong));
	pthread_barrier_destroy(&phase);
	rig_close(&r);
}

static void test_slots_of_several_streams(void **state)
{
	(void)state;
	play((const uint64_t[]){512, 1024, KIB(16)}, false);
}

static void test_slots_of_one_stream(void **state)
{
	(void)state;
	play((const uint64_t[]){512, 1024, 512}, true);
}

static void test_slots_beside_blocks(void **state)
{
	(void)state;
	play((const uint64_t[]){KIB(512), 2048, MIB(3)}, false);
}

enum { STATISTICS = 256 };

/* A thread that reads meanwhile may see figures of different moments, but none that is below zero. */
struct reader {
	struct rig *rig;
	const char *negative;        /* the name of such a figure; NULL: none was seen */
	atomic_bool done;
};

static void *read_all(void *arg)
{
	struct reader *reader = arg;
	static trz_stat_value values[STATISTICS];
	for (int i = 0; i < READS && !reader->negative; i++) {
		size_t count = 0;
		trz_stats(reader->rig->heap, values, STATISTICS, &count);
		for (size_t k = 0; k < count; k++)
			if (values[k].value > INT64_MAX)
				reader->negative = values[k].name;
	}
	atomic_store(&reader->done, true);
	return NULL;
}

static void test_reading_meanwhile(void **state)
{
	(void)state;
	struct rig r = rig_open(GIB(4), NULL);
	struct reader reader = {.rig = &r};
	pthread_t thread;
	void *held[8];
	assert_int_equal(pthread_create(&thread, NULL, read_all, &reader), 0);
	while (!atomic_load(&reader.done)) {
		for (size_t i = 0; i < LENGTH(held); i++)
			held[i] = rig_alloc(&r, i % 2 ? 700 : MIB(2), NULL);
		for (size_t i = 0; i < LENGTH(held); i++)
			rig_free(&r, held[i]);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	if (reader.negative)
		print_error("%s\n", reader.negative);
	assert_null(reader.negative);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots_of_several_streams),
		cmocka_unit_test(test_slots_of_one_stream),
		cmocka_unit_test(test_slots_beside_blocks),
		cmocka_unit_test(test_reading_meanwhile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
