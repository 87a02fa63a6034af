/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of sites, the weights of the sample, and its points.
 */
#include "sites.h"

#include <string.h>

/* ---- the table -------------------------------------------------------------------------------------- */

static void link_site(struct sites *s, unsigned number)
{
	struct site *site = sites_at(s, number);
	uint16_t *head = &s->heads[sites_head(site->stack, site->marks)];
	site->next = *head;
	*head = (uint16_t)number;
}

static unsigned append(struct sites *s, uint64_t stack, uint32_t marks)
{
	if (sites_lack(s))
		return 0;
	unsigned number = ++s->count;
	assert(number < SITES_MAX);
	sites_at(s, number)->stack = stack;
	sites_at(s, number)->marks = marks;
	link_site(s, number);
	return number;
}

/* When the table is nearly full, new sites lose their stack: those with the same marks share one. When the spare sites
 * are used up as well, one without stack and marks serves all. */
unsigned sites_add(struct sites *s, uint64_t stack, uint32_t marks)
{
	assert(s->count < SITES_MAX);
	if (s->count < SITES_MAX - SITES_SPARE)
		return append(s, stack, marks);
	unsigned number = sites_find(s, SITES_OTHER, marks);
	if (number || s->count < SITES_MAX - 2)
		return number ? number : append(s, SITES_OTHER, marks);
	number = sites_find(s, SITES_OTHER, 0);
	return number ? number : append(s, SITES_OTHER, 0);
}

void sites_forget_stacks(struct sites *s)
{
	memset(s->heads, 0, sizeof s->heads);
	s->last_stack = SITES_OTHER;
	for (unsigned i = 1; i <= s->count; i++) {
		struct site *site = sites_at(s, i);
		if (site->stack && !(site->stack & SITES_CALLER))
			site->stack = SITES_FORGOTTEN;
		link_site(s, i);
	}
}

void sites_reset_peaks(struct sites *s)
{
	for (unsigned i = 1; i <= s->count; i++)
		sites_at(s, i)->held.peak = sites_at(s, i)->most = sites_at(s, i)->held.bytes;
	for (unsigned i = 0; i <= HISTORY_TAGS; i++)
		s->tags[i].peak = s->tags[i].bytes;
	for (unsigned i = 0; i < SITES_CATEGORIES; i++)
		s->categories[i].peak = s->categories[i].bytes;
}

/* ---- the sample ------------------------------------------------------------------------------------- */

/* A slot has a point in it with the chance 1 - e^-x, where x is its size as a part of the mean distance. For such x
 * these terms of the series are as exact as a double. */
struct site_weight sites_sampled(uint64_t size)
{
	assert(size > 0 && size <= SITES_SAMPLE_BYTES / 16);
	double bytes = (double)size, x = bytes / SITES_SAMPLE_BYTES;
	double chance = x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6)))));
	double weight = bytes / chance;
	return (struct site_weight){.bytes = (uint64_t)(weight + 0.5),
	                            .count = (uint64_t)(SITES_COUNT_UNIT / chance + 0.5),
	                            .variance = (uint64_t)(weight * weight * (1 - chance) + 0.5)};
}

/* -ln of a number in (0, 1]: that of its exponent, plus that of the rest, which lies in [1/2, 1], by the series of the
 * inverse hyperbolic tangent. The error is below 1e-6. */
static double minus_ln(double u)
{
	static const double ln_2 = 0.69314718055994531;
	int halvings = 0;
	while (u < 0.5) {
		u *= 2;
		halvings++;
	}
	double z = (1 - u) / (1 + u), zz = z * z;
	double series = z * (1 + zz * (1.0 / 3 + zz * (1.0 / 5 + zz * (1.0 / 7 + zz * (1.0 / 9 + zz * (1.0 / 11))))));
	return 2 * series + halvings * ln_2;
}

uint64_t sites_draw(struct sites *s)
{
	double u = (double)((prng_next(&s->random) >> 11) + 1) * 0x1p-53;
	return (uint64_t)(minus_ln(u) * SITES_SAMPLE_BYTES);
}

/* ---- adding up again -------------------------------------------------------------------------------- */

void sites_walk_begin(struct sites *s)
{
	for (unsigned i = 1; i <= s->count; i++)
		s->chunks[i / 64]->walked[i % 64] = (struct holding){0};
}

static bool same(const struct holding *a, const struct holding *b)
{
	return a->bytes == b->bytes && a->count == b->count && a->variance == b->variance && a->bytes <= a->peak;
}

static void sum_up(struct holding *sum, const struct holding *h)
{
	sum->bytes += h->bytes;
	sum->count += h->count;
	sum->variance += h->variance;
}

const char *sites_walk_end(const struct sites *s)
{
	struct holding tags = {0}, categories = {0}, of_tags = {0}, of_categories = {0};
	for (unsigned i = 1; i <= s->count; i++) {
		const struct site *site = sites_at(s, i);
		if (!same(&site->held, &s->chunks[i / 64]->walked[i % 64]))
			return "a call site's sums are not those of its allocations";
		if (site->most < site->held.bytes || site->most > site->held.peak)
			return "a call site's most is not between what it holds and its peak";
		if (site_tag(site))
			sum_up(&of_tags, &site->held);
		if (site_category(site))
			sum_up(&of_categories, &site->held);
	}
	for (unsigned i = 1; i <= HISTORY_TAGS; i++)
		sum_up(&tags, &s->tags[i]);
	for (unsigned i = 1; i < SITES_CATEGORIES; i++)
		sum_up(&categories, &s->categories[i]);
	tags.peak = categories.peak = UINT64_MAX;
	return !same(&tags, &of_tags)               ? "the tags' sums are not those of their call sites"
	       : !same(&categories, &of_categories) ? "the categories' sums are not those of their call sites"
	                                            : NULL;
}
