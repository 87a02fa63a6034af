/* SPDX-License-Identifier: Apache-2.0
 *
 * The shadow map as a sorted array.
 */
#include "shadow.h"

#include <stdlib.h>
#include <string.h>

/* Index of the first allocation that begins above the address. */
static size_t above(const struct shadow *s, trz_addr address)
{
	size_t low = 0, high = s->count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (s->list[middle].address > address)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

bool shadow_add(struct shadow *s, struct live l, size_t *other)
{
	size_t at = above(s, l.address);
	if (at > 0 && s->list[at - 1].address + s->list[at - 1].size > l.address) {
		*other = at - 1;
		return false;
	}
	if (at < s->count && l.address + l.size > s->list[at].address) {
		*other = at;
		return false;
	}
	if (s->count == s->room) {
		s->room = s->room ? 2 * s->room : 256;
		s->list = realloc(s->list, s->room * sizeof *s->list);
		if (!s->list)
			abort();
	}
	memmove(&s->list[at + 1], &s->list[at], (s->count - at) * sizeof *s->list);
	s->list[at] = l;
	s->count++;
	return true;
}

struct live shadow_remove(struct shadow *s, size_t index)
{
	struct live l = s->list[index];
	s->count--;
	memmove(&s->list[index], &s->list[index + 1], (s->count - index) * sizeof *s->list);
	return l;
}

size_t shadow_find(const struct shadow *s, trz_addr address)
{
	size_t at = above(s, address);
	return at > 0 && address - s->list[at - 1].address < s->list[at - 1].size ? at - 1 : SIZE_MAX;
}

void shadow_clear(struct shadow *s)
{
	free(s->list);
	*s = (struct shadow){0};
}
