/* SPDX-License-Identifier: Apache-2.0
 *
 * Worlds with planted bugs.
 */
#include "planted.h"

#include <string.h>

#include "testing.h"

const char *planted_noticed(struct world *w, void (*spoil)(trz_driver *driver), bool (*fit)(void), void (*plant)(void),
                            int most)
{
	static char noticed[WORLD_TEXT];
	for (uint64_t seed = 1; most > 0; seed++) {
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
