/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading counters by name.
 */
#include "counters.h"

#include <string.h>

struct sink {
	const char *wanted;        /* NULL: all */
	trz_stat_value *values;
	size_t capacity, count;
};

static void put_value(struct sink *s, trz_stat_value value)
{
	if (s->wanted && strcmp(s->wanted, value.name) != 0)
		return;
	if (s->count < s->capacity)
		s->values[s->count] = value;
	s->count++;
}

static void put(struct sink *s, const char *name, const char *unit, const char *help, uint64_t value)
{
	put_value(s, (trz_stat_value){name, unit, help, value, 0.0});
}

static void put_ratio(struct sink *s, const char *name, const char *help, double ratio)
{
	put_value(s, (trz_stat_value){name, "ratio", help, 0, ratio});
}

struct flow_names {
	const char *name[3][4];
};

static void put_flow(struct sink *s, const struct flow_names *n, const char *unit, const char *help,
                     const struct flow *f)
{
	uint64_t freed[2] = {counter_get(&f->freed[0]), counter_get(&f->freed[1])};
	uint64_t allocated[2] = {counter_get(&f->allocated[0]), counter_get(&f->allocated[1])};
	uint64_t rows[3][4] = {
	    {allocated[0] + allocated[1] - freed[0] - freed[1], counter_get(&f->peak[2]),
	     allocated[0] + allocated[1], freed[0] + freed[1]},
	    {allocated[0] - freed[0], counter_get(&f->peak[0]), allocated[0], freed[0]},
	    {allocated[1] - freed[1], counter_get(&f->peak[1]), allocated[1], freed[1]},
	};
	for (int pool = 0; pool < 3; pool++)
		for (int kind = 0; kind < 4; kind++)
			put(s, n->name[pool][kind], unit, help, rows[pool][kind]);
}

static double one_minus(uint64_t part, uint64_t whole)
{
	return whole == 0 || part >= whole ? 0.0 : 1.0 - (double)part / (double)whole;
}

static void put_ratios(struct sink *s, const struct counters *c, const struct counter_view *view)
{
	put_ratio(s, "fragmentation", "1 - allocated / reserved",
	          one_minus(flow_all(&c->allocated_bytes), flow_all(&c->reserved_bytes)));
	put_ratio(s, "external_fragmentation", "1 - largest free block / free blocks",
	          one_minus(view->largest_free_bytes, counter_get(&c->cached_bytes.current)));
}

/* All members are counters. Copies from the last to the first, so that each flow's `freed` is read before its
 * `allocated`. */
void counters_copy(struct counters *out, const struct counters *c)
{
	const counter *from = (const counter *)(const void *)c;
	counter *to = (counter *)(void *)out;
	for (size_t i = sizeof *c / sizeof *from; i-- > 0;)
		counter_set(&to[i], counter_get(&from[i]));
}

static void put_all(struct sink *s, const struct counters *c, const struct counter_view *view)
{
#define POOL_NAMES(id, pool) \
	{#id "." pool ".current", #id "." pool ".peak", #id "." pool ".allocated", #id "." pool ".freed"}
#define FLOW(id, unit, help)                                                                         \
	static const struct flow_names names_##id = {                                                    \
	    {POOL_NAMES(id, "all"), POOL_NAMES(id, "small_pool"), POOL_NAMES(id, "large_pool")}};        \
	put_flow(s, &names_##id, unit, help, &c->id);
#define LEVEL(id, unit, help)                                                                        \
	put(s, #id ".current", unit, help, counter_get(&c->id.current));                                 \
	put(s, #id ".peak", unit, help, counter_get(&c->id.peak));
#define COUNT(id, help) put(s, #id, "count", help, counter_get(&c->id));
#define SUM(name, unit, help, expression) put(s, name, unit, help, expression);
#include "counters.def"
#undef FLOW
#undef LEVEL
#undef COUNT
#undef SUM
#undef POOL_NAMES
#define SLOT(slot) \
	put(s, "driver_calls." #slot, "count", "calls of this slot of the driver table", \
	    counter_get(&c->driver_calls[DRIVER_SLOT_##slot]));
	TRZ_DRIVER_SLOTS(SLOT)
#undef SLOT
	put_ratios(s, c, view);
}

void counters_read(const struct counters *c, const struct counter_view *view, trz_stat_value *values,
                   size_t capacity, size_t *count)
{
	struct sink s = {NULL, values, values ? capacity : 0, 0};
	put_all(&s, c, view);
	if (count)
		*count = s.count;
}

bool counters_find(const struct counters *c, const struct counter_view *view, const char *name, trz_stat_value *value)
{
	struct sink s = {name, value, 1, 0};
	put_all(&s, c, view);
	return s.count > 0;
}

static void flow_reset_peak(struct flow *f)
{
	counter_set(&f->peak[0], flow_current(f, 0));
	counter_set(&f->peak[1], flow_current(f, 1));
	counter_set(&f->peak[2], flow_all(f));
}

static void active_reset_peak(struct active *a, const struct flow *held)
{
	for (int pool = 0; pool < 3; pool++)
		counter_set(&a->peak[pool], active_current(a, held, pool));
}

static void level_reset_peak(struct level *l)
{
	counter_set(&l->peak, counter_get(&l->current));
}

void counters_reset_peaks(struct counters *c)
{
#define FLOW(id, unit, help) flow_reset_peak(&c->id);
#define LEVEL(id, unit, help) level_reset_peak(&c->id);
#define COUNT(id, help)
#define SUM(name, unit, help, expression)
#include "counters.def"
#undef FLOW
#undef LEVEL
#undef COUNT
#undef SUM
	active_reset_peak(&c->active_bytes, &c->allocated_bytes);
	active_reset_peak(&c->active, &c->allocation);
}
