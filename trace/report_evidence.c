/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads reports. Values of the wrong kind are left out.
 */
#include "report_evidence.h"

#include <jansson.h>
#include <string.h>

static uint64_t figure(const json_t *from, const char *key)
{
	const json_t *value = json_object_get(from, key);
	return json_is_integer(value) && json_integer_value(value) >= 0 ? (uint64_t)json_integer_value(value)
	                                                                : EVIDENCE_UNKNOWN;
}

static uint64_t number(const json_t *from, const char *key)
{
	return evidence_or_zero(figure(from, key));
}

static bool is_true(const json_t *from, const char *key)
{
	return json_is_true(json_object_get(from, key));
}

/* A copy that the evidence keeps; NULL: there is none. */
static const char *text(const json_t *from, const char *key, struct evidence *e)
{
	const char *value = json_string_value(json_object_get(from, key));
	return value && *value ? evidence_keep(e, value) : NULL;
}

static int place(const json_t *from, const char *key)
{
	uint64_t value = figure(from, key);
	return value < 1 << 20 ? (int)value : -1;
}

static enum evidence_category category(const json_t *from)
{
	const char *name = json_string_value(json_object_get(from, "category"));
	for (int i = 0; name && i < CATEGORY_COUNT; i++)
		if (strcmp(name, evidence_category_text(i)) == 0)
			return i;
	return CATEGORY_UNKNOWN;
}

static void read_figures(const json_t *report, struct evidence *e)
{
	const json_t *figures = json_object_get(report, "figures"), *categories = json_object_get(report, "categories");
#define READ(name, what) e->name = figure(figures, #name);
	EVIDENCE_FIGURES(READ)
#undef READ
	e->inexact = number(figures, "inexact");
	for (int i = 0; i < CATEGORY_COUNT; i++)
		e->categories[i] = figure(categories, evidence_category_text(i));
}

static void read_request(const json_t *report, struct evidence *e)
{
	e->failed = true;
	e->device = place(report, "device");
	e->rank = place(report, "rank");
	e->process = figure(report, "process");
	e->stream = figure(report, "stream");
	e->pool = figure(report, "pool");
	e->category = category(report);
	e->site = text(report, "site", e);
	e->stack = text(report, "stack", e);
	e->time_ns = number(report, "time_us") * 1000;
}

static void read_sharers(const json_t *list, struct evidence *e)
{
	const json_t *from;
	for (size_t i = 0; (from = json_array_get(list, i)) && e->sharer_count < EVIDENCE_SHARERS_MAX; i++)
		e->sharers[e->sharer_count++] = (struct evidence_sharer){ .process = number(from, "process"),
			                                                      .name = text(from, "name", e),
			                                                      .bytes = number(from, "bytes") };
}

static void read_holders(const json_t *list, struct evidence *e)
{
	for (size_t i = 0; i < json_array_size(list) && e->holder_count < EVIDENCE_HOLDERS_MAX; i++) {
		const json_t *from = json_array_get(list, i);
		e->holders[e->holder_count++] = (struct evidence_holder){ .category = category(from),
		                                                          .tag = text(from, "tag", e),
		                                                          .site = text(from, "site", e),
		                                                          .stack = text(from, "stack", e),
		                                                          .bytes = number(from, "bytes"),
		                                                          .peak = figure(from, "peak"),
		                                                          .count = number(from, "count"),
		                                                          .loaded = is_true(from, "loaded"),
		                                                          .error = number(from, "error") };
	}
}

static void read_growth(const json_t *list, struct evidence *e)
{
	for (size_t i = 0; i < json_array_size(list) && e->growth_count < EVIDENCE_GROWTH_MAX; i++) {
		const json_t *from = json_array_get(list, i);
		e->growth[e->growth_count++] = (struct evidence_growth){ .site = text(from, "site", e),
		                                                         .loop = text(from, "loop", e),
		                                                         .category = category(from),
		                                                         .leak = is_true(from, "leak"),
		                                                         .overfilled = is_true(from, "overfilled"),
		                                                         .per_step = (double)number(from, "per_step"),
		                                                         .per_step_low = (double)number(from, "per_step_low"),
		                                                         .per_step_high = (double)number(from, "per_step_high"),
		                                                         .live = number(from, "bytes"),
		                                                         .steps = number(from, "steps") };
	}
}

static void read_rungs(const json_t *list, struct evidence *e)
{
	for (size_t i = 0; i < json_array_size(list) && e->rung_count < EVIDENCE_RUNGS_MAX; i++) {
		const json_t *from = json_array_get(list, i);
		const char *name = text(from, "name", e);
		e->rungs[e->rung_count++] = (struct evidence_rung){ .name = name ? name : "", .tries = number(from, "times"),
		                                                    .gave = number(from, "bytes") };
	}
}

bool report_evidence(const void *report, struct evidence *e)
{
	const json_t *source = json_object_get(report, "source");
	if (!is_true(report, "failed"))
		return false;
	evidence_init(e, EVIDENCE_SNAPSHOT, e->source_name);
	e->allocator = "terrazzo";
	e->joins = is_true(source, "joins");
	e->has_history = is_true(source, "history");
	read_figures(report, e);
	read_request(report, e);
	read_sharers(json_object_get(report, "sharers"), e);
	read_holders(json_object_get(report, "holders"), e);
	read_growth(json_object_get(report, "growth"), e);
	read_rungs(json_object_get(report, "tried"), e);
	return true;
}
