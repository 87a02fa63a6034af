/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of lanes.
 */
#include "order/lane.h"

#include <assert.h>

void lane_add(struct lanes *all, struct lane *l, struct stream *s, struct pool *p, struct level *cached)
{
	l->stream = s;
	l->pool = p;
	for (int part = 0; part < PARTS; part++)
		fit_init(&l->fit[part], cached, l->trees[part]);
	*all->end = l;
	all->end = &l->next;
}

void lane_remove(struct lanes *all, struct lane *l)
{
	struct lane **link = &all->first;
	assert(l->held == 0 && l->slabs == 0 && lane_free_bytes(l) == 0);
	while (*link != l)
		link = &(*link)->next;
	*link = l->next;
	if (all->end == &l->next)
		all->end = link;
}
