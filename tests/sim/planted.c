/* SPDX-License-Identifier: Apache-2.0
 *
 * Worlds with planted bugs.
 */
#include "planted.h"

#include <string.h>

#include "testing.h"

uint64_t planted_first = 1;
void (*planted_before_question)(void);
static struct world *played;

static trz_status plant_and_ask(void *self, trz_context context, trz_stream stream, trz_capture_status *status,
                                uint64_t *id)
{
	if (played->heap)  /* the closing heap asks, too */
		planted_before_question();
	return played->watch.stream_capture(self, context, stream, status, id);
}

void planted_ask(trz_driver *driver)
{
	driver->stream_capture = plant_and_ask;
}

const char *planted_noticed(struct world *w, void (*spoil)(trz_driver *driver), bool (*fit)(void), void (*plant)(void),
                            int most)
{
	static char noticed[WORLD_TEXT];
	played = w;
	for (uint64_t seed = planted_first; most > 0; seed++) {
		const char *wrong = world_open(w, seed);
		if (wrong || !fit()) {
			assert_null(wrong);
			world_close(w);
			continue;
		}
		most--;
		trz_driver driver = w->watch;
		if (spoil) {
			spoil(&driver);
			assert_ok(trz_close(w->heap));
			assert_null(world_open_heap(w, &driver));
		}
		for (int i = 0; i < 4000 && !wrong; i++) {
			if (plant)
				plant();
			wrong = world_step(w);
		}
		if (!wrong)
			wrong = world_end(w);
		if (wrong)
			memcpy(noticed, wrong, sizeof noticed);
		world_close(w);
		if (wrong)
			return noticed;
	}
	return NULL;
}
