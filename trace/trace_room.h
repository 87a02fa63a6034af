/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that grow. Private to trace/.
 */
#ifndef TRZ_TRACE_ROOM_H
#define TRZ_TRACE_ROOM_H

#include <stdbool.h>
#include <stdlib.h>

/* Makes room for one more behind `count` items in the array at `array`, which points to a pointer. false: no memory. */
static inline bool make_room(void *array, size_t count, size_t *room, size_t item)
{
	void **items = array;
	if (count < *room)
		return true;
	size_t grown = *room < 64 ? 64 : *room + *room / 2;
	void *moved = realloc(*items, grown * item);
	if (!moved)
		return false;
	*items = moved;
	*room = grown;
	return true;
}

#endif
