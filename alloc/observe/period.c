/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the place of the program that marks its steps. A loop over a model's layers is as regular as the steps are, and
 * so is a loop within a step. But from layer to layer the heap holds more and more, and during a loop within a step it
 * never holds as much as in the whole step. At each of a marker's allocations the heap holds about the same, and
 * between two of them as much as it ever does.
 */
#include "observe/period.h"

#include "heap/ledger.h"
#include "prng.h"
#include "ticks.h"

enum {
	KEY_SIZE_BITS = 8,         /* bits of a place's key that tell the size; those above tell the site */
	FIRST_SEEN = 4,            /* allocations of a place until it is a candidate */
	REGULAR_PER_CENT = 70,     /* a place is regular if so many of its gaps are near the median, ... */
	COVERED_PER_CENT = 30,     /* ... and these make up so much of the time */
	OUTLIERS_IN = 8,           /* one interval in so many may hold more: an evaluation, or a larger batch */
	EARLY = 8,                 /* intervals after which a place may be proposed */
	LEVEL_SHARE = 4,           /* level: what is held changes by less than such a part of what comes and goes */
	FULL_SHARE = 2,
	FEW_SITES = 8,             /* while there are fewer sites, each is several places as well, by size */
	WATCHED_MOST = 200000,     /* allocations looked at before the heap rests */
	GROWTHS_LEAST = 16,        /* growths of the heap before it watches again; twice as many after each watch in vain */
	GROWTHS_MOST = 1 << 20,
	STALE = 8,                 /* usual intervals without the marker, after which it is given up */
	OVERDUE = 4,               /* usual intervals without a candidate, after which another may replace it; ... */
	FIRST_GAP = 256,           /* ... the interval of one that has none yet */
	FAILURE_PAUSE = 8,         /* so many of a place's allocations are left alone, times the square of its failures */
	FAILURES_MOST = 16,
	IN_MODEL_FAILURES = 5,     /* of a place in a model until it may be the marker: after some 600 of its allocations, a
	                            * dozen turns of a loop around 48 layers */
	ROW_MOST = 16,             /* short steps that count as one, of a loop that keeps what it makes */
	TOLD_LEAST = 4,            /* steps that the program must have told before their loop can count as over */
	TOLD_LONG = 3,             /* a gap of so many usual ones is more than a step */
	TOLD_GAPS = 2,             /* after so many times the longest gap the loop of these steps is over */
	TOLD_GAP_LEAST = 32
};

/* Anything shorter is no step of training or serving but a loop of small work, where the cost of ending a step would
 * show. */
#define STEP_NS_LEAST UINT64_C(200000)

void period_init(struct period *p)
{
	p->state = PERIOD_WATCHES;
	p->growths_least = GROWTHS_LEAST;
	p->step_ns_least = STEP_NS_LEAST;
}

/* Closes the heap's shortest way if it is open to a site that is watched or followed: its next allocation comes
 * here. */
static void open_ways_locked(trz_heap *h)
{
	HEAP_LOCKED(h);
	uint32_t wants = period_wants(&h->period);
	if (wants == PERIOD_ALL || wants == h->sites.last_number)
		h->sites.last_stack = SITES_OTHER;
}

static void end_candidate(struct period *p, size_t at)
{
	p->listed[at] = 0;
	p->vacant_at = 0;
}

static void begin_locked(trz_heap *h, enum period_state state)
{
	HEAP_LOCKED(h);
	struct period *p = &h->period;
	for (size_t i = 0; i < PERIOD_KEYS; i++)
		p->keys[i] = (struct period_key){0};
	for (size_t i = 0; i < PERIOD_CANDIDATES; i++)
		end_candidate(p, i);
	p->state = state;
	if (state == PERIOD_RESTS)
		p->rests_until = p->clock + p->seen;
	p->seen = p->growths = p->last_keys[0] = p->last_keys[1] = 0;
	open_ways_locked(h);
}

/* ---- judging ---- */

/* Sorts a figure of a candidate's intervals, two dozen at most. This runs under the heap lock, where qsort's call for
 * each comparison would cost more than all else. */
static void sort(const struct period_candidate *c, const uint64_t *from, uint64_t sorted[PERIOD_INTERVALS])
{
	for (unsigned i = 0; i < c->intervals; i++) {
		unsigned at = i;
		for (; at > 0 && sorted[at - 1] > from[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = from[i];
	}
}

enum loop {
	LOOP_NONE,
	LOOP_KEEPS,                /* regular as steps are, but what it makes stays */
	LOOP_LEVEL
};

/* Whether a candidate comes at equal intervals that make up enough of the time. One that comes with every allocation,
 * as a function does that makes all of them, tells nothing. */
static bool is_regular(const struct period_candidate *c)
{
	uint64_t gaps[PERIOD_INTERVALS] = {0}, near = 0, all = 0, count = c->intervals;
	sort(c, c->gaps, gaps);
	uint64_t usual = gaps[count / 2];
	for (unsigned i = 0; i < count; i++) {
		near += gaps[i] >= usual / 2 && gaps[i] <= 2 * usual;
		all += gaps[i];
	}
	return usual > 1 && near * 100 >= count * REGULAR_PER_CENT && usual * near * 100 >= all * COVERED_PER_CENT;
}

static enum loop judge(const struct period_candidate *c)
{
	if (!is_regular(c))
		return LOOP_NONE;
	uint64_t rises[PERIOD_INTERVALS], changes[PERIOD_INTERVALS], count = c->intervals, middle = count / 2;
	sort(c, c->rises, rises);
	sort(c, c->changes, changes);
	if (rises[middle] * FULL_SHARE < rises[count - 1 - count / OUTLIERS_IN])
		return LOOP_NONE;
	return changes[middle] * LEVEL_SHARE < rises[middle] ? LOOP_LEVEL : LOOP_KEEPS;
}

/* How many intervals take as long as the shortest step. */
static uint64_t row_of(const struct period *p, const struct period_candidate *c)
{
	uint64_t took = max_u64(1, monotonic_ns() - c->begun_ns), least = c->intervals * p->step_ns_least;
	return max_u64(1, least / took + (least % took != 0));
}

static uint64_t usual_gap(const struct period_candidate *c)
{
	uint64_t gaps[PERIOD_INTERVALS];
	sort(c, c->gaps, gaps);
	return gaps[c->intervals / 2];
}

static void forget_keeper(struct period *p)
{
	p->keeper = p->keeper_site = p->proposed = 0;
}

/* If two keys share a slot, perhaps neither is ever seen often enough; others will do. */
static struct period_key *key_slot(struct period *p, uint32_t key)
{
	return &p->keys[prng_mix(key) % PERIOD_KEYS];
}

static void choose_locked(trz_heap *h, uint32_t key, uint32_t site, uint64_t usual)
{
	HEAP_LOCKED(h);
	struct period *p = &h->period;
	p->marker = key;
	p->marker_site = site;
	p->usual = usual;
	p->marked_at = p->clock;
	p->growths_least = GROWTHS_LEAST;
	forget_keeper(p);
	begin_locked(h, PERIOD_FOUND);
}

/* Without gradients the heap is as level from layer to layer as from step to step, and layers come more often. So the
 * loop around a place marks the steps if one is known, even though it keeps what it makes: results then, not graphs. A
 * place in a model waits until such a loop would have shown. true: there is a marker now. */
static bool choose_of_level_locked(trz_heap *h, const struct period_candidate *c, const struct period_key *k)
{
	HEAP_LOCKED(h);
	const struct period *p = &h->period;
	uint64_t usual = usual_gap(c);
	bool waits = k->key == c->key && k->in_model && k->failures < IN_MODEL_FAILURES;
	if (p->keeper && p->keeper_row == 1 && p->keeper_usual > usual)
		choose_locked(h, p->keeper, p->keeper_site, p->keeper_usual);
	else if (!waits)
		choose_locked(h, c->key, c->site, usual);
	return p->state == PERIOD_FOUND;
}

static void propose_locked(trz_heap *h, const struct period_candidate *c)
{
	HEAP_LOCKED(h);
	struct period *p = &h->period;
	const struct period_key *k = key_slot(p, c->key);
	uint64_t row = row_of(p, c);
	if (p->keeper || p->proposed || row > ROW_MOST || (k->key == c->key && k->refused))
		return;
	p->proposed = c->key;
	p->proposed_site = c->site;
	p->proposed_usual = usual_gap(c);
	p->proposed_row = row;
	p->proposed_last = false;
	atomic_fetch_or_explicit(&p->due, PERIOD_DUE_PROPOSAL, memory_order_relaxed);
}

/* ---- candidates ---- */

static void end_interval(struct period *p, size_t at, uint64_t live)
{
	struct period_candidate *c = &p->list[at];
	unsigned i = c->intervals++;
	c->gaps[i] = p->clock - c->last;
	c->rises[i] = p->high[at] - p->low[at];
	c->changes[i] = live > c->live ? live - c->live : c->live - live;
}

/* When a candidate is overdue: if it has not come by then, it is not regular, or its loop is over. */
static uint64_t overdue_at(const struct period_candidate *c)
{
	uint64_t usual = c->intervals ? (c->last - c->begun) / c->intervals : FIRST_GAP;
	return c->last + OVERDUE * usual;
}

static void begin_interval(struct period *p, size_t at, uint64_t before, uint64_t live)
{
	struct period_candidate *c = &p->list[at];
	c->last = p->clock;
	c->live = live;
	c->overdue_at = overdue_at(c);
	p->vacant_at = min_u64(p->vacant_at, c->overdue_at);
	p->low[at] = before;
	p->high[at] = live;
}

static void see_candidate_locked(trz_heap *h, size_t at, uint64_t before, uint64_t live)
{
	HEAP_LOCKED(h);
	struct period *p = &h->period;
	const struct period_candidate *c = &p->list[at];
	end_interval(p, at, live);
	if (c->intervals == EARLY && judge(c) != LOOP_NONE)
		propose_locked(h, c);
	if (c->intervals < PERIOD_INTERVALS) {
		begin_interval(p, at, before, live);
		return;
	}
	enum loop loop = judge(c);
	struct period_key *k = key_slot(p, c->key);
	bool short_ = row_of(p, c) > 1, marks = loop == LOOP_LEVEL && !p->told;
	if (marks && !short_ && choose_of_level_locked(h, c, k))
		return;
	if (loop != LOOP_NONE)
		propose_locked(h, c);
	if (marks && p->proposed == c->key)
		p->proposed_last = true;
	else if (marks && !(k->key == c->key && k->in_model))
		begin_locked(h, PERIOD_RESTS);
	if (p->state == PERIOD_WATCHES) {
		k->failures += k->key == c->key && k->failures < FAILURES_MOST;
		k->seen = -(int)(k->failures * k->failures * FAILURE_PAUSE);
		end_candidate(p, at);
	}
}

/* Where a new candidate may stand; PERIOD_CANDIDATES: nowhere yet. */
static size_t find_vacant(struct period *p)
{
	uint64_t least = UINT64_MAX;
	if (p->clock <= p->vacant_at)
		return PERIOD_CANDIDATES;
	for (size_t i = 0; i < PERIOD_CANDIDATES; i++) {
		if (!p->listed[i] || p->clock > p->list[i].overdue_at)
			return i;
		least = min_u64(least, p->list[i].overdue_at);
	}
	p->vacant_at = least;
	return PERIOD_CANDIDATES;
}

static void admit_locked(trz_heap *h, unsigned site, uint32_t key, uint64_t before, uint64_t live)
{
	HEAP_LOCKED(h);
	struct period *p = &h->period;
	struct period_key *k = key_slot(p, key);
	if (k->key != key)
		*k = (struct period_key){.key = key};
	if (++k->seen < FIRST_SEEN)
		return;
	size_t at = find_vacant(p);
	if (at == PERIOD_CANDIDATES)
		return;
	p->listed[at] = key;
	p->list[at] = (struct period_candidate){
		.key = key, .site = site, .begun = p->clock, .begun_ns = monotonic_ns()};
	begin_interval(p, at, before, live);
}

/* ---- what goes past ---- */

/* The keys of a block's places: its site, which is never 0, and, while there are few sites, its site and size; else
 * 0. */
static void keys_of(const trz_heap *h, unsigned site, uint64_t size, uint32_t keys[PERIOD_KINDS])
{
	uint32_t log = 63 - (uint32_t)__builtin_clzll(size | 4), part = (uint32_t)(size >> (log - 2)) & 3;
	keys[0] = site << KEY_SIZE_BITS;
	keys[1] = h->sites.count < FEW_SITES ? site << KEY_SIZE_BITS | log << 2 | part : 0;
}

/* The candidate with this key; PERIOD_CANDIDATES: there is none. */
static size_t find(const struct period *p, uint32_t key)
{
	size_t at = 0;
	while (at < PERIOD_CANDIDATES && p->listed[at] != key)
		at++;
	return at;
}

static void watch_locked(trz_heap *h, unsigned site, const uint32_t keys[PERIOD_KINDS], uint64_t before, uint64_t live)
{
	HEAP_LOCKED(h);
	struct period *p = &h->period;
	bool grows = before >= p->last_live;  /* no free since the last one */
	p->newest[p->newest_count++ % PERIOD_NEWEST] = (struct period_block){.site = site, .size = live - before};
	for (size_t i = 0; i < PERIOD_CANDIDATES; i++) {
		p->low[i] = min_u64(p->low[i], before);
		p->high[i] = max_u64(p->high[i], live);
	}
	p->last_live = live;
	for (int i = 0; i < PERIOD_KINDS && p->state == PERIOD_WATCHES; i++) {
		bool row = keys[i] == p->last_keys[i] && grows;
		p->last_keys[i] = keys[i];
		if (!keys[i] || row)
			continue;
		size_t at = find(p, keys[i]);
		if (at < PERIOD_CANDIDATES)
			see_candidate_locked(h, at, before, live);
		else
			admit_locked(h, site, keys[i], before, live);
	}
}

static void follow_locked(trz_heap *h, const uint32_t keys[PERIOD_KINDS], uint64_t size)
{
	HEAP_LOCKED(h);
	struct period *p = &h->period;
	if (keys[0] == p->marker || keys[1] == p->marker) {
		uint64_t live = heap_held(h, ALLOCATED_BYTES);
		bool row = p->clock == p->marked_at + 1 && live >= p->last_live + size;
		p->marked_at = p->clock;
		p->last_live = live;
		if (!row)
			atomic_fetch_or_explicit(&p->due, PERIOD_DUE_STEP, memory_order_relaxed);
	} else if (p->clock - p->marked_at > STALE * p->usual) {
		begin_locked(h, PERIOD_WATCHES);
	}
}

static void follow_keeper_locked(trz_heap *h, const uint32_t keys[PERIOD_KINDS])
{
	HEAP_LOCKED(h);
	struct period *p = &h->period;
	if (keys[0] == p->keeper || keys[1] == p->keeper) {
		if (p->clock != p->keeper_at + 1 && ++p->keeper_seen % p->keeper_row == 0)
			atomic_fetch_or_explicit(&p->due, PERIOD_DUE_KEEPER, memory_order_relaxed);
		p->keeper_at = p->clock;
	} else if (p->clock - p->keeper_at > STALE * p->keeper_usual) {
		forget_keeper(p);
	}
}

static uint64_t clock_of(const trz_heap *h)
{
	const struct flow *f = &h->counters.allocation;
	return counter_get(&f->allocated[SMALL]) + counter_get(&f->allocated[LARGE]);
}

void period_see_locked(trz_heap *h, unsigned site, uint64_t size)
{
	HEAP_LOCKED(h);
	struct period *p = &h->period;
	if ((p->state == PERIOD_RESTS && !p->keeper) || p->state == PERIOD_TOLD)
		return;
	uint32_t keys[PERIOD_KINDS];
	keys_of(h, site, size, keys);
	p->clock = clock_of(h);
	if (p->keeper)
		follow_keeper_locked(h, keys);
	if (p->state == PERIOD_RESTS)
		return;
	if (p->state == PERIOD_FOUND) {
		follow_locked(h, keys, size);
		return;
	}
	uint64_t live = heap_held(h, ALLOCATED_BYTES);
	watch_locked(h, site, keys, live - min_u64(live, size), live);
	if (p->state == PERIOD_WATCHES && ++p->seen > WATCHED_MOST) {
		p->growths_least = min_u64(2 * p->growths_least, GROWTHS_MOST);
		begin_locked(h, PERIOD_RESTS);
	}
}

/* Whether the loop whose steps the program has told seems to be over. */
static bool told_are_over(const trz_heap *h)
{
	const struct period *p = &h->period;
	uint64_t longest = max_u64(p->told_longest, TOLD_GAP_LEAST);
	return p->told >= TOLD_LEAST && clock_of(h) - p->told_at > TOLD_GAPS * longest;
}

void period_grown(trz_heap *h)
{
	struct period *p = &h->period;
	heap_lock(h);
	bool rested = p->state == PERIOD_RESTS && clock_of(h) >= p->rests_until;
	bool over = rested || (p->state == PERIOD_TOLD && told_are_over(h));
	if (over && ++p->growths >= p->growths_least)
		begin_locked(h, PERIOD_WATCHES);
	heap_unlock(h);
}

/* The usual gap follows the gaps, but long ones only slowly. */
static bool is_long_gap(struct period *p, uint64_t gap)
{
	bool is_long = p->told >= TOLD_LEAST && gap >= TOLD_LONG * max_u64(p->told_usual, TOLD_GAP_LEAST);
	if (is_long)
		p->told_usual += p->told_usual / 8;
	else
		p->told_usual = p->told > 1 ? (p->told_usual + gap) / 2 : gap;
	return is_long;
}

bool period_told(trz_heap *h)
{
	heap_lock(h);
	struct period *p = &h->period;
	uint64_t now = clock_of(h), gap = p->told ? now - p->told_at : 0;
	bool is_long = is_long_gap(p, gap);
	p->told_longest = max_u64(gap, p->told_longest - p->told_longest / 8);
	p->told_at = now;
	p->told++;
	p->growths = 0;
	p->state = PERIOD_TOLD;
	forget_keeper(p);
	atomic_store_explicit(&p->due, 0, memory_order_relaxed);
	heap_unlock(h);
	return is_long;
}

/* ---- the loop that keeps ---- */

/* The newest blocks that were watched, up to `most`. */
static void list_newest_locked(trz_heap *h, uint64_t most, struct period_proposal *out)
{
	HEAP_LOCKED(h);
	const struct period *p = &h->period;
	uint64_t inner = min_u64(min_u64(most, PERIOD_NEWEST), p->newest_count);
	for (out->inner = 0; out->inner < inner; out->inner++) {
		const struct period_block *b = &p->newest[(p->newest_count - 1 - out->inner) % PERIOD_NEWEST];
		out->stacks[out->inner] = sites_at(&h->sites, b->site)->stack;
		out->sizes[out->inner] = b->size;
	}
}

bool period_marked(trz_heap *h, struct period_proposal *out)
{
	const struct period *p = &h->period;
	heap_lock(h);
	bool found = p->state == PERIOD_FOUND;
	*out = (struct period_proposal){.key = p->marker, .site = p->marker_site, .usual = p->usual, .row = 1};
	if (found) {
		out->stack = sites_at(&h->sites, out->site)->stack;
		list_newest_locked(h, PERIOD_INTERVALS * out->usual, out);
	}
	heap_unlock(h);
	return found;
}

bool period_proposed(trz_heap *h, struct period_proposal *out)
{
	struct period *p = &h->period;
	heap_lock(h);
	*out = (struct period_proposal){.key = p->proposed, .site = p->proposed_site};
	out->usual = p->proposed_usual;
	out->row = p->proposed_row;
	out->last = p->proposed_last;
	if (out->key) {
		out->stack = sites_at(&h->sites, out->site)->stack;
		list_newest_locked(h, out->usual, out);
	}
	p->proposed = 0;
	heap_unlock(h);
	return out->key != 0;
}

void period_refuse(trz_heap *h, const struct period_proposal *proposal, bool in_model)
{
	heap_lock(h);
	for (size_t i = 0; i < PERIOD_KEYS; i++) {
		struct period_key *k = &h->period.keys[i];
		if (k->key >> KEY_SIZE_BITS != proposal->site)
			continue;
		k->refused = true;
		k->in_model = in_model;
	}
	if (proposal->last && !in_model && h->period.state == PERIOD_WATCHES)
		begin_locked(h, PERIOD_RESTS);
	heap_unlock(h);
}

void period_accept(trz_heap *h, const struct period_proposal *proposal)
{
	struct period *p = &h->period;
	heap_lock(h);
	if (p->state == PERIOD_WATCHES || p->state == PERIOD_RESTS) {
		p->keeper = proposal->key;
		p->keeper_site = proposal->site;
		p->keeper_usual = proposal->usual;
		p->keeper_row = proposal->row;
		p->keeper_seen = 0;
		p->keeper_at = clock_of(h);
		if (proposal->last)
			begin_locked(h, PERIOD_RESTS);
		open_ways_locked(h);
	}
	heap_unlock(h);
}

uint64_t period_keeps(trz_heap *h)
{
	const struct period *p = &h->period;
	heap_lock(h);
	uint64_t row = p->keeper_row;
	bool keeps = p->keeper && clock_of(h) - p->keeper_at <= OVERDUE * p->keeper_usual;
	heap_unlock(h);
	return keeps ? row : 0;
}
