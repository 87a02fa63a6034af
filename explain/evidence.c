/* SPDX-License-Identifier: Apache-2.0
 *
 * Evidence: how it begins, what is added up in it, and its texts.
 */
#include "evidence.h"

#include <string.h>

#include "bits.h"

void evidence_init(struct evidence *e, enum evidence_source source, const char *source_name)
{
	memset(e, 0, offsetof(struct evidence, texts));
	e->texts_used = 0;
	e->source = source;
	e->source_name = source_name;
	e->device = e->rank = -1;
	e->process = e->stream = e->pool = EVIDENCE_UNKNOWN;
#define FORGET(name, what) e->name = EVIDENCE_UNKNOWN;
	EVIDENCE_FIGURES(FORGET)
#undef FORGET
	for (int i = 0; i < CATEGORY_COUNT; i++)
		e->categories[i] = EVIDENCE_UNKNOWN;
}

const char *evidence_keep(struct evidence *e, const char *text)
{
	size_t size = strlen(text) + 1;
	if (size > sizeof e->texts - e->texts_used)
		return "";
	char *kept = e->texts + e->texts_used;
	memcpy(kept, text, size);
	e->texts_used += size;
	return kept;
}

bool evidence_same_site(const char *a, const char *b)
{
	return a && b && strcmp(a, b) == 0;
}

bool evidence_same_writer(const struct evidence *a, const struct evidence *b)
{
	bool one = a->writer == b->writer || evidence_same_site(a->writer, b->writer);
	return one && a->rank == b->rank && a->process == b->process;
}

/* They may differ by rounding. */
bool evidence_is_together(uint64_t list, uint64_t tensor)
{
	uint64_t most = max_u64(list, tensor), least = min_u64(list, tensor);
	return most - least <= most / 64;
}

void evidence_add_growth(struct evidence *e, const struct evidence_growth *growth)
{
	for (unsigned i = 0; i < e->growth_count; i++) {
		struct evidence_growth *g = &e->growth[i];
		bool alike = g->category == growth->category && g->leak == growth->leak && g->overfilled == growth->overfilled;
		if (!alike || !evidence_same_site(g->site, growth->site))
			continue;
		g->per_step += growth->per_step;
		g->per_step_low += growth->per_step_low;
		g->per_step_high += growth->per_step_high;
		g->live += growth->live;
		g->goes_on |= growth->goes_on;
		g->loop = g->loop ? g->loop : growth->loop;
		g->steps = max_u64(g->steps, growth->steps);
		return;
	}
	if (e->growth_count < EVIDENCE_GROWTH_MAX)
		e->growth[e->growth_count++] = *growth;
}

bool evidence_are_copies(const struct evidence *e, const char *site)
{
	uint64_t copies = 0, others = 0;
	for (unsigned i = 0; i < e->holder_count; i++) {
		const struct evidence_holder *h = &e->holders[i];
		if (h->category != CATEGORY_WEIGHTS)
			continue;
		if (evidence_same_site(h->site, site))
			copies += h->count;
		else
			others += h->count;
	}
	return others > 0 && copies > 2 * others;
}

void evidence_is_cache(struct evidence *e, const char *site)
{
	uint64_t *activations = &e->categories[CATEGORY_ACTIVATIONS], *cache = &e->categories[CATEGORY_KV_CACHE];
	for (unsigned i = 0; i < e->holder_count; i++) {
		struct evidence_holder *h = &e->holders[i];
		if (h->category != CATEGORY_ACTIVATIONS || !evidence_same_site(h->site, site))
			continue;
		h->category = CATEGORY_KV_CACHE;
		*activations -= min_u64(*activations, h->bytes);
		*cache = evidence_or_zero(*cache) + h->bytes;
	}
	if (e->category == CATEGORY_ACTIVATIONS && evidence_same_site(e->site, site))
		e->category = CATEGORY_KV_CACHE;
}

/* The copy's text: if `from` keeps the text, the same one as `to` keeps it. */
static const char *moved(const char *text, const struct evidence *from, struct evidence *to)
{
	uintptr_t at = (uintptr_t)text, begin = (uintptr_t)from->texts;
	return at >= begin && at < begin + sizeof from->texts ? to->texts + (at - begin) : text;
}

void evidence_copy(struct evidence *to, const struct evidence *from)
{
	memcpy(to, from, sizeof *to);
	to->source_name = moved(from->source_name, from, to);
	to->allocator = moved(from->allocator, from, to);
	to->writer = moved(from->writer, from, to);
	to->asker = moved(from->asker, from, to);
	to->site = moved(from->site, from, to);
	to->stack = moved(from->stack, from, to);
	for (unsigned i = 0; i < from->holder_count; i++) {
		to->holders[i].tag = moved(from->holders[i].tag, from, to);
		to->holders[i].site = moved(from->holders[i].site, from, to);
		to->holders[i].stack = moved(from->holders[i].stack, from, to);
	}
	for (unsigned i = 0; i < from->growth_count; i++) {
		to->growth[i].site = moved(from->growth[i].site, from, to);
		to->growth[i].loop = moved(from->growth[i].loop, from, to);
	}
	for (unsigned i = 0; i < from->rung_count; i++)
		to->rungs[i].name = moved(from->rungs[i].name, from, to);
	for (unsigned i = 0; i < from->sharer_count; i++)
		to->sharers[i].name = moved(from->sharers[i].name, from, to);
}

const char *evidence_category_text(enum evidence_category category)
{
	static const char *const texts[CATEGORY_COUNT] = {
		[CATEGORY_UNKNOWN] = "unknown",
		[CATEGORY_WEIGHTS] = "weights",
		[CATEGORY_GRADIENTS] = "gradients",
		[CATEGORY_OPTIMIZER] = "optimizer state",
		[CATEGORY_ACTIVATIONS] = "activations",
		[CATEGORY_KV_CACHE] = "KV cache",
		[CATEGORY_TEMPORARY] = "temporaries",
		[CATEGORY_OTHER] = "other",
	};
	return (unsigned)category < CATEGORY_COUNT ? texts[category] : texts[CATEGORY_UNKNOWN];
}
