/* SPDX-License-Identifier: Apache-2.0
 *
 * Several threads share, grow and free at once, each on a stream of its own, and now and then trim or export each
 * other's memory. For ThreadSanitizer, and for the invariants at the end.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "prng.h"
#include "rig.h"

enum { THREADS = 4, HELD = 6, EVENTS = 2000 };

struct worker {
	struct rig *rig;
	pthread_t thread;
	trz_stream stream;
	uint64_t random;
	void *held[HELD], *imported;
	bool exported[HELD];
};

static void must(trz_status status)
{
	if (status != TRZ_OK && status != TRZ_ERROR_OUT_OF_MEMORY && status != TRZ_ERROR_NO_ROOM) {
		fprintf(stderr, "%s: %s\n", trz_status_name(status), trz_last_error());
		abort();
	}
}

static void take(struct worker *w, void **p)
{
	trz_alloc_params params = {.struct_size = sizeof params, .size = 1 + prng_below(&w->random, MIB(8)),
	                           .stream = w->stream, .flags = TRZ_ALLOC_SHARE_FD};
	must(trz_alloc_with(w->rig->heap, &params, p));
}

static void export_import(struct worker *w, size_t at)
{
	int fd = -1;
	trz_pointer_info info;
	if (w->exported[at])
		return;
	must(trz_export(w->rig->heap, w->held[at], TRZ_ALLOC_SHARE_FD, &fd));
	w->exported[at] = true;
	must(trz_query(w->rig->heap, w->held[at], &info));
	must(trz_free(w->rig->heap, w->imported));
	w->imported = NULL;
	must(trz_import(w->rig->heap, TRZ_ALLOC_SHARE_FD, &fd, info.size, w->stream, &w->imported));
	close(fd);
}

static void drop(struct worker *w, size_t at)
{
	struct rig *r = w->rig;
	void *p = w->held[at];
	trz_event event = NULL;
	if (prng_below(&w->random, 2)) {
		must(trz_free(r->heap, p));
	} else {
		must(r->d->event_create(r->d->self, r->c, &event));
		must(r->d->event_record(r->d->self, r->c, event, w->stream));
		must(trz_free_after(r->heap, p, event));
	}
	if (w->exported[at])
		must(trz_export_end(r->heap, p));
	w->exported[at] = false;
	w->held[at] = NULL;
}

static void use_packed(struct worker *w, void *p)
{
	trz_exported_tile tile;
	must(trz_grow(w->rig->heap, p, MIB(5)));
	must(trz_export_tile(w->rig->heap, p, TRZ_ALLOC_SHARE_FD, NULL, &tile));
	must(trz_free(w->rig->heap, p));
	must(trz_export_end(w->rig->heap, tile.base));
}

static void *work(void *arg)
{
	struct worker *w = arg;
	for (unsigned n = 0; n < EVENTS; n++) {
		size_t at = (size_t)prng_below(&w->random, HELD);
		unsigned what = (unsigned)prng_below(&w->random, 20);
		void *packed = NULL;
		if (what == 0)
			must(trz_trim(w->rig->heap, 0, NULL));
		else if (what < 5)
			must(trz_alloc(w->rig->heap, MIB(1) + prng_below(&w->random, MIB(3)), 0, w->stream, &packed));
		else if (!w->held[at])
			take(w, &w->held[at]);
		else if (what < 9)
			export_import(w, at);
		else
			drop(w, at);
		if (packed)
			use_packed(w, packed);
		sim_run(w->rig->s, 1);
	}
	for (size_t at = 0; at < HELD; at++)
		if (w->held[at])
			drop(w, at);
	must(trz_free(w->rig->heap, w->imported));
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	struct rig r = rig_machine((sim_config){.devices = 2, .capacity = MIB(256), .seed = 5});
	struct worker workers[THREADS];
	rig_open_heap(&r, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.rig = &r, .stream = rig_stream(&r), .random = i + 1};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < 20; i++) {
		assert_ok(trz_check(r.heap));
		assert_ok(trz_enable_peer(r.heap, 1, i % 2 == 0));
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	rig_sync(&r);
	assert_ok(trz_trim(r.heap, 0, NULL));
	assert_int_equal(rig_stat(&r, "reserved_bytes.all.current"), 0);
	assert_int_equal(rig_stat(&r, "imported_bytes.current"), 0);
	rig_check(&r);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
