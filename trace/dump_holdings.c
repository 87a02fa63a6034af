/* SPDX-License-Identifier: Apache-2.0
 *
 * Adding up blocks, in a hash table with a slot for each block that may be the first of its kind.
 */
#include "dump_holdings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "size_text.h"

static uint64_t hash(const struct dump_holding *h)
{
	uint64_t x = h->frame * 0x9e3779b97f4a7c15u ^ (uintptr_t)h->tag ^ (uint64_t)h->category << 56 ^ h->each;
	x *= 0x9e3779b97f4a7c15u;
	return x ^ x >> 32;
}

/* Texts are kept once. */
static bool same(const struct dump_holding *a, const struct dump_holding *b)
{
	return a->frame == b->frame && a->tag == b->tag && a->category == b->category && a->each == b->each;
}

/* A total order: that of the slots depends on the addresses of tags, which differ from run to run. */
static int most_first(const void *a, const void *b)
{
	const struct dump_holding *x = a, *y = b;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	if (x->frame != y->frame)
		return x->frame < y->frame ? -1 : 1;
	if (x->each != y->each)
		return x->each > y->each ? -1 : 1;
	if (x->category != y->category)
		return x->category < y->category ? -1 : 1;
	return strcmp(x->tag, y->tag);
}

static void add(const struct dump *d, struct dump_holding *slots, size_t count, const struct dump_block *b)
{
	const struct dump_site *site = dump_site(d, b->stack);
	struct dump_holding key = { .category = site->category, .tag = b->tag, .stack = b->stack, .frame = site->frame };
	uint64_t bytes = b->requested ? b->requested : b->size;
	if (key.frame == UINT32_MAX)
		key.each = bytes;
	size_t i = hash(&key) & (count - 1);
	while (slots[i].count && !same(&slots[i], &key))
		i = (i + 1) & (count - 1);
	if (slots[i].count == 0)
		slots[i] = key;
	slots[i].bytes += bytes;
	slots[i].count++;
}

trz_status dump_holdings(const struct dump *d, const struct dump_moment *m, struct dump_holding **list, size_t *count)
{
	size_t slots = 64;
	while (slots < 2 * m->block_count)
		slots *= 2;
	struct dump_holding *all = calloc(slots, sizeof *all);
	*list = NULL;
	*count = 0;
	if (!all)
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no memory to add up %zu blocks", m->block_count);
	for (size_t i = 0; i < m->block_count; i++)
		if (m->blocks[i].state == DUMP_HELD)
			add(d, all, slots, &m->blocks[i]);
	for (size_t i = 0; i < slots; i++)
		if (all[i].count)
			all[(*count)++] = all[i];
	qsort(all, *count, sizeof *all, most_first);
	*list = all;
	return TRZ_OK;
}

void dump_holding_text(const struct dump *d, const struct dump_holding *h, char text[DUMP_SITE_BYTES])
{
	char size[SIZE_TEXT_BYTES];
	if (!dump_site_text(d, h->stack, text))
		snprintf(text, DUMP_SITE_BYTES, "no call stack, blocks of %s", size_text(h->each, size));
}
