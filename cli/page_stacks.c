/* SPDX-License-Identifier: Apache-2.0
 *
 * Call stacks that hold memory at a moment, as a tree from the outermost frame in. Branches that hold too little to be
 * seen are left out of the picture; what they hold stays in their parents' sums.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "dump_sites.h"
#include "error.h"
#include "page.h"

enum { NODES_MOST = 900, LEAST_PER_MILLE = 2, LABEL_BYTES = 256, HOLDERS = 100 };

struct node {
	uint64_t bytes, count;
	uint32_t frame;            /* of the dump; the root's is none */
	uint32_t parent, child, sibling;  /* indices of nodes; 0: none, but as a parent the root */
};

struct tree {
	const struct page_history *h;
	struct node *nodes;        /* [0]: the root */
	size_t count, room;
};

static trz_status child_of(struct tree *t, uint32_t parent, uint32_t frame, uint32_t *child)
{
	for (*child = t->nodes[parent].child; *child; *child = t->nodes[*child].sibling)
		if (t->nodes[*child].frame == frame)
			return TRZ_OK;
	trz_status status = page_room(&t->nodes, t->count, &t->room, sizeof *t->nodes);
	if (status != TRZ_OK)
		return status;
	*child = (uint32_t)t->count++;
	t->nodes[*child] = (struct node){ .frame = frame, .parent = parent, .sibling = t->nodes[parent].child };
	t->nodes[parent].child = *child;
	return TRZ_OK;
}

static trz_status add_stack(struct tree *t, uint32_t stack, uint64_t bytes, uint64_t count)
{
	const struct dump_stack *s = &t->h->dump->stacks[stack];
	uint32_t at = 0;
	trz_status status = TRZ_OK;
	for (uint32_t level = s->count;; level--) {
		t->nodes[at].bytes += bytes;
		t->nodes[at].count += count;
		if (level == 0 || status != TRZ_OK)
			return status;
		status = child_of(t, at, t->h->dump->stack_frames[s->first + level - 1], &at);
	}
}

static const char *short_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : path;
}

static void put_node(struct jsonw *j, const struct tree *t, uint32_t i, uint32_t number, uint32_t parent)
{
	const struct node *n = &t->nodes[i];
	const struct dump_frame *f = i ? &t->h->dump->frames[n->frame] : NULL;  /* the root has none */
	char label[LABEL_BYTES];
	jsonw_open(j, '[');
	jsonw_number(j, number);
	if (i) {
		jsonw_number(j, parent);
		snprintf(label, sizeof label, "%s", *f->name ? f->name : "??");
		jsonw_string(j, label);
		snprintf(label, sizeof label, f->line ? "%s:%u" : "%s", short_name(f->file), f->line);
		jsonw_string(j, label);
	} else {
		jsonw_word(j, "-1");
		jsonw_string(j, "");
		jsonw_string(j, "");
	}
	jsonw_number(j, n->bytes);
	jsonw_number(j, n->count);
	jsonw_close(j, ']');
}

/* Depth first: a node's number is its place in what is written. */
static void put_nodes(struct jsonw *j, const struct tree *t)
{
	uint32_t *numbers = calloc(t->count, sizeof *numbers), written = 0;
	uint64_t least = t->nodes[0].bytes / 1000 * LEAST_PER_MILLE;
	uint32_t at = 0;
	while (numbers) {
		const struct node *n = &t->nodes[at];
		bool shown = n->bytes && n->bytes >= least && written < NODES_MOST;
		if (shown) {
			numbers[at] = written;
			put_node(j, t, at, written++, numbers[n->parent]);
		}
		if (shown && n->child) {
			at = n->child;
			continue;
		}
		while (at && !t->nodes[at].sibling)
			at = t->nodes[at].parent;
		if (!at)
			break;
		at = t->nodes[at].sibling;
	}
	free(numbers);
}

/* ---- moments ---------------------------------------------------------------------------------------------- */

struct sum {
	uint64_t bytes, count;
	uint32_t stack;
};

static int most_first(const void *a, const void *b)
{
	uint64_t x = ((const struct sum *)a)->bytes, y = ((const struct sum *)b)->bytes;
	return (x < y) - (x > y);
}

static void put_holders(struct jsonw *j, const struct dump *d, const struct sum *sums)
{
	char text[DUMP_SITE_BYTES];
	jsonw_key(j, "holders");
	jsonw_open(j, '[');
	for (size_t i = 0; i < d->stack_count && i < HOLDERS && sums[i].bytes; i++) {
		bool known = dump_site_text(d, sums[i].stack, text);
		jsonw_open(j, '[');
		jsonw_string(j, known ? text : "no call stack");
		jsonw_number(j, sums[i].bytes);
		jsonw_number(j, sums[i].count);
		jsonw_number(j, (uint64_t)dump_category(d, sums[i].stack));
		jsonw_close(j, ']');
	}
	jsonw_close(j, ']');
}

static trz_status put_moment(struct jsonw *j, const char *key, const struct page_history *h, uint32_t state)
{
	const struct dump *d = h->dump;
	struct tree t = { .h = h };
	struct sum *sums = calloc(d->stack_count + 1, sizeof *sums);
	trz_status status = page_room(&t.nodes, 0, &t.room, sizeof *t.nodes);
	if (!sums || status != TRZ_OK) {
		free(sums);
		return trz_fail(TRZ_ERROR_HOST_MEMORY, "no host memory for call stacks");
	}
	t.nodes[t.count++] = (struct node){ 0 };
	for (uint32_t i = 0; i < d->stack_count; i++)
		sums[i].stack = i;
	for (size_t i = 0; i < h->life_count; i++)
		if (page_holds(&h->lives[i], state)) {
			sums[h->lives[i].stack].bytes += h->lives[i].size;
			sums[h->lives[i].stack].count++;
		}
	for (uint32_t i = 0; i < d->stack_count && status == TRZ_OK; i++)
		if (sums[i].bytes)
			status = add_stack(&t, i, sums[i].bytes, sums[i].count);
	qsort(sums, d->stack_count, sizeof *sums, most_first);
	jsonw_key(j, key);
	jsonw_open(j, '{');
	put_holders(j, d, sums);
	jsonw_key(j, "nodes");
	jsonw_open(j, '[');
	put_nodes(j, &t);
	jsonw_close(j, ']');
	jsonw_close(j, '}');
	free(t.nodes);
	free(sums);
	return status;
}

trz_status page_put_stacks(struct jsonw *j, const struct page_history *h)
{
	jsonw_key(j, "stacks");
	jsonw_open(j, '{');
	trz_status status = put_moment(j, "peak", h, h->peak);
	if (status == TRZ_OK)
		status = put_moment(j, "end", h, h->count);
	jsonw_close(j, '}');
	return status;
}
