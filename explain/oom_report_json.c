/* SPDX-License-Identifier: Apache-2.0
 *
 * The report for programs.
 */
#include "oom_report.h"

static void put_known(struct jsonw *j, const char *key, uint64_t value)
{
	if (evidence_known(value))
		jsonw_put_number(j, key, value);
}

static void put_text(struct jsonw *j, const char *key, const char *text)
{
	if (text && *text)
		jsonw_put_string(j, key, text);
}

static void put_bool(struct jsonw *j, const char *key, bool value)
{
	jsonw_put_word(j, key, value ? "true" : "false");
}

/* A double that is a count or bytes, >= 0. */
static uint64_t whole(double value)
{
	return value >= (double)JSONW_NUMBER_MAX ? JSONW_NUMBER_MAX : value > 0 ? (uint64_t)(value + 0.5) : 0;
}

static void put_verdict(struct jsonw *j, const struct verdict *v)
{
	jsonw_put_string(j, "verdict", verdict_name(v->kind));
	jsonw_key(j, "also");
	jsonw_open(j, '[');
	for (unsigned i = 0; i < v->also_count; i++)
		jsonw_string(j, verdict_name(v->also[i]));
	jsonw_close(j, ']');
	put_known(j, "short_bytes", v->short_bytes);
	if (v->presumed)
		put_bool(j, "presumed", true);
}

static void put_request(struct jsonw *j, const struct evidence *e, const struct verdict *v)
{
	if (v->short_at_most)
		put_bool(j, "short_at_most", true);
	put_bool(j, "failed", e->failed);
	if (e->peak)
		put_bool(j, "peak", true);
	if (e->likely)
		put_bool(j, "likely", true);
	put_text(j, "asker", e->asker);
	put_known(j, "requested_bytes", e->requested);
	put_known(j, "needed_bytes", v->need);
	if (e->device >= 0)
		jsonw_put_number(j, "device", (uint64_t)e->device);
	if (e->rank >= 0)
		jsonw_put_number(j, "rank", (uint64_t)e->rank);
	put_known(j, "process", e->process);
	put_text(j, "writer", e->writer);
	put_known(j, "stream", e->stream);
	put_known(j, "pool", e->pool);
	put_text(j, "site", e->site);
	put_text(j, "stack", e->stack);
	if (e->category != CATEGORY_UNKNOWN)
		jsonw_put_string(j, "category", evidence_category_text(e->category));
	if (e->time_ns)
		jsonw_put_number(j, "time_us", e->time_ns / 1000);
}

static void put_figures(struct jsonw *j, const struct evidence *e)
{
	jsonw_key(j, "figures");
	jsonw_open(j, '{');
#define PUT_FIGURE(name, what) put_known(j, #name, e->name);
	EVIDENCE_FIGURES(PUT_FIGURE)
#undef PUT_FIGURE
	if (e->inexact)
		jsonw_put_number(j, "inexact", e->inexact);
	jsonw_close(j, '}');
}

static void put_categories(struct jsonw *j, const struct evidence *e)
{
	jsonw_key(j, "categories");
	jsonw_open(j, '{');
	for (int i = 0; i < CATEGORY_COUNT; i++)
		put_known(j, evidence_category_text(i), e->categories[i]);
	jsonw_close(j, '}');
}

static void put_holders(struct jsonw *j, const struct evidence *e)
{
	jsonw_key(j, "holders");
	jsonw_open(j, '[');
	for (unsigned i = 0; i < e->holder_count; i++) {
		const struct evidence_holder *h = &e->holders[i];
		jsonw_open_line(j);
		jsonw_put_string(j, "category", evidence_category_text(h->category));
		put_text(j, "tag", h->tag);
		put_text(j, "site", h->site);
		put_text(j, "stack", h->stack);
		jsonw_put_number(j, "bytes", h->bytes);
		put_known(j, "peak", h->peak);
		put_known(j, "count", h->count);
		if (h->loaded)
			put_bool(j, "loaded", true);
		if (h->error)
			jsonw_put_number(j, "error", h->error);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
}

static void put_sharers(struct jsonw *j, const struct evidence *e)
{
	if (e->sharer_count == 0)
		return;
	jsonw_key(j, "sharers");
	jsonw_open(j, '[');
	for (unsigned i = 0; i < e->sharer_count; i++) {
		jsonw_open_line(j);
		jsonw_put_number(j, "process", e->sharers[i].process);
		put_text(j, "name", e->sharers[i].name);
		jsonw_put_number(j, "bytes", e->sharers[i].bytes);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
}

static void put_growth(struct jsonw *j, const struct evidence *e)
{
	jsonw_key(j, "growth");
	jsonw_open(j, '[');
	for (unsigned i = 0; i < e->growth_count; i++) {
		const struct evidence_growth *g = &e->growth[i];
		jsonw_open_line(j);
		put_text(j, "site", g->site);
		put_text(j, "loop", g->loop);
		jsonw_put_string(j, "category", evidence_category_text(g->category));
		put_bool(j, "leak", g->leak);
		put_bool(j, "overfilled", g->overfilled);
		jsonw_put_number(j, "per_step", whole(g->per_step));
		jsonw_put_number(j, "per_step_low", whole(g->per_step_low));
		jsonw_put_number(j, "per_step_high", whole(g->per_step_high));
		jsonw_put_number(j, "bytes", g->live);
		jsonw_put_number(j, "steps", g->steps);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
	if (e->forecast.steps <= 0)
		return;
	jsonw_key(j, "forecast");
	jsonw_open(j, '{');
	jsonw_put_number(j, "steps", whole(e->forecast.steps));
	jsonw_put_number(j, "steps_low", whole(e->forecast.steps_low));
	jsonw_put_number(j, "steps_high", whole(e->forecast.steps_high));
	if (e->forecast.seconds > 0)
		jsonw_put_number(j, "seconds", whole(e->forecast.seconds));
	jsonw_close(j, '}');
}

static void put_remedies(struct jsonw *j, const struct verdict *v)
{
	jsonw_key(j, "remedies");
	jsonw_open(j, '[');
	for (unsigned i = 0; i < v->remedy_count; i++) {
		jsonw_open_line(j);
		jsonw_put_string(j, "name", remedy_name(v->remedies[i].kind));
		jsonw_put_number(j, "bytes", v->remedies[i].bytes);
		put_bool(j, "enough", v->remedies[i].enough);
		if (v->remedies[i].at_least)
			put_bool(j, "at_least", true);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
}

static void put_rungs(struct jsonw *j, const struct evidence *e)
{
	jsonw_key(j, "tried");
	jsonw_open(j, '[');
	for (unsigned i = 0; i < e->rung_count; i++) {
		jsonw_open_line(j);
		jsonw_put_string(j, "name", e->rungs[i].name);
		jsonw_put_number(j, "times", e->rungs[i].tries);
		jsonw_put_number(j, "bytes", e->rungs[i].gave);
		jsonw_close(j, '}');
	}
	jsonw_close(j, ']');
}

static void put_source(struct jsonw *j, const struct evidence *e)
{
	static const char *const kinds[] = {
		[EVIDENCE_HEAP] = "heap",
		[EVIDENCE_SNAPSHOT] = "snapshot",
		[EVIDENCE_PICKLE] = "pytorch_snapshot",
		[EVIDENCE_TEXT] = "text",
	};
	jsonw_key(j, "source");
	jsonw_open(j, '{');
	jsonw_put_string(j, "kind", kinds[e->source]);
	put_text(j, "name", e->source_name);
	put_text(j, "allocator", e->allocator);
	put_bool(j, "history", e->has_history);
	put_bool(j, "joins", e->joins);
	jsonw_close(j, '}');
}

void oom_report_members(struct jsonw *j, const struct evidence *e, const struct verdict *v)
{
	put_verdict(j, v);
	put_request(j, e, v);
	put_figures(j, e);
	put_categories(j, e);
	put_sharers(j, e);
	put_holders(j, e);
	put_growth(j, e);
	put_remedies(j, v);
	put_rungs(j, e);
	put_source(j, e);
}

void oom_report_object(struct jsonw *j, const struct evidence *e, const struct verdict *v)
{
	jsonw_open(j, '{');
	oom_report_members(j, e, v);
	jsonw_close(j, '}');
}

bool oom_report_json(const struct evidence *e, const struct verdict *v, oom_report_sink *sink, void *owner)
{
	char buffer[JSONW_BUFFER];
	struct jsonw j = {.sink = sink, .owner = owner, .buffer = buffer, .room = sizeof buffer};
	oom_report_object(&j, e, v);
	jsonw_byte(&j, '\n');
	jsonw_flush(&j);
	return !j.failed;
}
