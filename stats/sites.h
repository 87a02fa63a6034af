/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds memory: live bytes, their peak, and the number of allocations, by call site, by tag and by category. A site
 * is a place in the program: a call stack, or only the address of the call, with the tag and the category that the
 * thread had. The heap's lock guards everything here; no function makes a call; the caller provides the memory.
 *
 * Blocks are counted exactly. Of slots a sample is counted: every byte that is requested has the same small chance to
 * be a point of a Poisson process, and a slot with a point in it stands for those without, with a weight of size /
 * chance. So the sums are unbiased, and the sample tells how far off they may be (`variance`). A weight depends on the
 * size alone, so that a free can subtract what the allocation has added.
 */
#ifndef TRZ_STATS_SITES_H
#define TRZ_STATS_SITES_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bits.h"
#include "history.h"
#include "prng.h"

enum {
	SITES_MAX = 4096,            /* one more than there can be; later ones share sites of SITES_OTHER, ... */
	SITES_SPARE = 256,           /* ... for which so many are kept. Numbers fit into 16 bits */
	SITES_HEADS = 2048,
	SITES_COUNT_UNIT = 256,      /* counts are in 1 / SITES_COUNT_UNIT, since weights are not whole numbers */
	SITES_SAMPLE_BYTES = 1 << 20,    /* mean of the bytes requested in slots from one point of the sample to the next */
	SITES_CATEGORIES = 8
};

/* A site's stack is a number: below this a callback's, with this bit set the address that the call returns to. */
#define SITES_CALLER ((uint64_t)1 << 63)
/* Numbers that no callback gives: the table was full; the callback that gave the number has been replaced. */
#define SITES_OTHER (~(uint64_t)0)
#define SITES_FORGOTTEN (~(uint64_t)0 - 1)

/* Invariants: bytes <= peak; bytes, count and variance are the sums over what is live (I12). */
struct holding {
	uint64_t bytes;              /* live, as requested */
	uint64_t peak;
	uint64_t count;              /* live allocations, in 1 / SITES_COUNT_UNIT */
	uint64_t variance;           /* of `bytes`, in bytes squared */
};

/* The tag's number and the category in one. One stack with several marks is several sites. */
static inline uint32_t site_marks(uint32_t tag, unsigned category)
{
	return tag | (uint32_t)category << 16;
}

/* Invariant: held.bytes <= most <= held.peak. */
struct site {
	uint64_t stack;              /* 0: not known */
	uint32_t marks;
	uint32_t next;               /* of the same head; 0: none */
	struct holding held;
	uint64_t most;               /* the most bytes since the newest step that the program has told */
	uint32_t filled_from, fills; /* for observe/steps.c, which judges what is filled and emptied */
};

_Static_assert(sizeof(struct site) == 64, "an operation on a block touches one cache line of them");

struct sites_chunk {
	struct site list[64];
	struct holding walked[64];   /* the sums of a check, which adds up again */
};

static inline uint32_t site_tag(const struct site *site)
{
	return site->marks & 0xffff;
}

static inline unsigned site_category(const struct site *site)
{
	return site->marks >> 16;
}

/* Zeroed memory is an empty table, but for `random` and `last_stack`. */
struct sites {
	uint64_t last_stack;         /* the stack of the site without marks that was found last; SITES_OTHER: none */
	struct site *last;
	uint32_t last_number;
	bool on;                     /* constant */
	uint32_t count;              /* sites are numbered from 1; they are never taken back */
	uint16_t heads[SITES_HEADS];
	struct sites_chunk *chunks[SITES_MAX / 64];
	struct holding tags[HISTORY_TAGS + 1];       /* [0]: what has a category, but no tag */
	struct holding categories[SITES_CATEGORIES]; /* [0]: what has a tag, but no category */
	uint64_t random;
};

/* How much one allocation adds to what is held. */
struct site_weight {
	uint64_t bytes, count, variance;
};

static inline struct site *sites_at(const struct sites *s, unsigned number)
{
	assert(number > 0 && number <= s->count);
	return &s->chunks[number / 64]->list[number % 64];
}

/* How much memory the next site needs from the caller; 0: there is room. */
static inline size_t sites_lack(const struct sites *s)
{
	uint32_t next = s->count + 1;
	return next < SITES_MAX && !s->chunks[next / 64] ? sizeof(struct sites_chunk) : 0;
}

/* Provides that memory, zeroed. */
static inline void sites_provide(struct sites *s, void *memory)
{
	s->chunks[(s->count + 1) / 64] = memory;
}

static inline unsigned sites_head(uint64_t stack, uint32_t marks)
{
	return (unsigned)((stack ^ (uint64_t)marks << 40) * 0x9e3779b97f4a7c15u >> 53) % SITES_HEADS;
}

/* The number of a site; 0: there is none yet. */
static inline unsigned sites_find(const struct sites *s, uint64_t stack, uint32_t marks)
{
	for (unsigned i = s->heads[sites_head(stack, marks)]; i; i = sites_at(s, i)->next) {
		const struct site *site = sites_at(s, i);
		if (LIKELY(site->stack == stack && site->marks == marks))
			return i;
	}
	return 0;
}

/* Adds a site, or finds one that it shares with others when the table is nearly full; 0: there is no memory
 * (sites_lack). */
unsigned sites_add(struct sites *s, uint64_t stack, uint32_t marks);

/* The callbacks' numbers of stacks have lost their meaning; callers' addresses keep theirs. */
void sites_forget_stacks(struct sites *s);

static inline struct site_weight sites_whole(uint64_t size)
{
	return (struct site_weight){.bytes = size, .count = SITES_COUNT_UNIT};
}

/* The weight of a sampled slot; size at most a sixteenth of SITES_SAMPLE_BYTES. */
struct site_weight sites_sampled(uint64_t size);

/* Draws how many bytes are requested until the next point of the sample. */
uint64_t sites_draw(struct sites *s);

static inline void holding_sum(struct holding *h, const struct site_weight *w)
{
	h->bytes += w->bytes;
	h->count += w->count;
	h->variance += w->variance;
}

static inline void holding_add(struct holding *h, const struct site_weight *w)
{
	holding_sum(h, w);
	if (h->bytes > h->peak)
		h->peak = h->bytes;
}

static inline void site_add(struct site *site, const struct site_weight *w)
{
	holding_sum(&site->held, w);
	if (LIKELY(site->held.bytes <= site->most))
		return;
	site->most = site->held.bytes;
	if (site->most > site->held.peak)
		site->held.peak = site->most;
}

static inline void holding_remove(struct holding *h, const struct site_weight *w)
{
	assert(h->bytes >= w->bytes && h->count >= w->count && h->variance >= w->variance);
	h->bytes -= w->bytes;
	h->count -= w->count;
	h->variance -= w->variance;
}

static inline void sites_enter(struct sites *s, unsigned number, struct site_weight w)
{
	struct site *site = sites_at(s, number);
	site_add(site, &w);
	if (UNLIKELY(site->marks)) {
		holding_add(&s->tags[site_tag(site)], &w);
		holding_add(&s->categories[site_category(site)], &w);
	}
}

static inline void sites_leave(struct sites *s, unsigned number, struct site_weight w)
{
	struct site *site = sites_at(s, number);
	holding_remove(&site->held, &w);
	if (UNLIKELY(site->marks)) {
		holding_remove(&s->tags[site_tag(site)], &w);
		holding_remove(&s->categories[site_category(site)], &w);
	}
}

/* Every peak becomes what is held now; so does each site's `most`. */
void sites_reset_peaks(struct sites *s);

/* ---- adding up again ---- */

void sites_walk_begin(struct sites *s);

/* Adds what a live allocation has added to its site. */
static inline void sites_walk_add(struct sites *s, unsigned number, struct site_weight w)
{
	holding_add(&s->chunks[number / 64]->walked[number % 64], &w);
}

/* NULL: all sums are right; else what is wrong. */
const char *sites_walk_end(const struct sites *s);

#endif
