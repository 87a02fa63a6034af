/* SPDX-License-Identifier: Apache-2.0
 *
 * The rare parts of counting by call site, and reading the counts.
 */
#include "observe/holders.h"

#include "observe/period.h"

static COLD unsigned new_site_locked(trz_heap *h, uint64_t stack, uint32_t marks)
{
	HEAP_LOCKED(h);
	size_t lack = sites_lack(&h->sites);
	void *memory = lack ? meta_alloc(&h->meta, lack) : NULL;
	if (memory)
		sites_provide(&h->sites, memory);
	return sites_add(&h->sites, stack, marks);
}

static unsigned find_site_locked(trz_heap *h, uint64_t stack, uint32_t marks)
{
	HEAP_LOCKED(h);
	unsigned site = sites_find(&h->sites, stack, marks);
	return LIKELY(site) ? site : new_site_locked(h, stack, marks);
}

/* The site of what the thread allocates; 0: none, for want of host memory. */
static unsigned own_site_locked(trz_heap *h)
{
	HEAP_LOCKED(h);
	const struct heap_thread *t = &heap_thread;
	return find_site_locked(h, t->stack, t->marked ? site_marks(heap_tag_locked(h), t->category) : 0);
}

NOINLINE void holders_take_block_slow_locked(trz_heap *h, struct block *b)
{
	HEAP_LOCKED(h);
	struct sites *s = &h->sites;
	unsigned number = s->on ? own_site_locked(h) : 0;
	b->site = (uint16_t)number;
	if (!number)
		return;
	sites_enter(s, number, sites_whole(b->requested));
	period_see_locked(h, number, b->requested);
	uint32_t wanted = period_wants(&h->period);
	if (wanted == PERIOD_ALL || wanted == number || sites_at(s, number)->marks ||
	    sites_at(s, number)->stack != heap_thread.stack)
		return;
	s->last_stack = heap_thread.stack;
	s->last = sites_at(s, number);
	s->last_number = number;
}

void holders_grow_block_locked(trz_heap *h, const struct block *b, uint64_t size)
{
	HEAP_LOCKED(h);
	if (!b->site)
		return;
	sites_leave(&h->sites, b->site, sites_whole(size));
	sites_enter(&h->sites, b->site, sites_whole(b->requested));
}

/* ---- slots ---- */

static uint64_t requested_of(const struct slab *s, unsigned slot)
{
	return slab_class(s)->slot_size - s->unused[slot];
}

static void enter_slot_locked(trz_heap *h, struct slab *s, unsigned slot, unsigned site)
{
	HEAP_LOCKED(h);
	s->sampled |= (uint64_t)1 << slot;
	s->sites[slot] = (uint16_t)site;
	sites_enter(&h->sites, site, sites_sampled(requested_of(s, slot)));
}

/* Draws how many requested bytes from here the next point of the sample lies. A slot for which there is no host memory
 * counts as if it had no point. */
COLD void holders_sample_slot_locked(trz_heap *h, struct slab *s, unsigned slot)
{
	SLOTS_IN(h, s->home->stream);
	struct slots *o = &s->home->stream->slots;
	counter_set(&o->sample_at, counter_get(&o->taken[REQUESTED_BYTES]) + sites_draw(&h->sites));
	if (s->sampled >> slot & 1)
		return;
	if (!s->sites && node_pool_reserve(&h->slot_sites, 1))
		s->sites = node_pool_take(&h->slot_sites);
	unsigned site = s->sites ? own_site_locked(h) : 0;
	if (site)
		enter_slot_locked(h, s, slot, site);
}

COLD void holders_give_sampled_locked(trz_heap *h, struct slab *s, unsigned slot)
{
	SLOTS_IN(h, s->home->stream);
	assert(s->sampled >> slot & 1);
	s->sampled &= ~((uint64_t)1 << slot);
	sites_leave(&h->sites, s->sites[slot], sites_sampled(requested_of(s, slot)));
}

/* A point can lie in the added bytes as in those before, so the slot's chance is that of the grown size. */
void holders_grow_slot_locked(trz_heap *h, struct slab *s, unsigned slot, uint64_t size)
{
	SLOTS_IN(h, s->home->stream);
	if (s->sampled >> slot & 1) {
		sites_leave(&h->sites, s->sites[slot], sites_sampled(size));
		sites_enter(&h->sites, s->sites[slot], sites_sampled(requested_of(s, slot)));
	}
	holders_take_slot_locked(h, s, slot);
}

/* ---- categories ---- */

static unsigned moved_site_locked(trz_heap *h, unsigned from, unsigned category)
{
	HEAP_LOCKED(h);
	const struct site *site = sites_at(&h->sites, from);
	return find_site_locked(h, site->stack, site_marks(site_tag(site), category));
}

static void categorize_slot_locked(trz_heap *h, struct slab *s, unsigned slot, unsigned category)
{
	HEAP_LOCKED(h);
	unsigned to = s->sampled >> slot & 1 ? moved_site_locked(h, s->sites[slot], category) : 0;
	if (!to)
		return;
	holders_give_sampled_locked(h, s, slot);
	enter_slot_locked(h, s, slot, to);
}

bool holders_categorize(trz_heap *h, trz_addr address, unsigned category)
{
	bool known = false;
	heap_lock(h);
	pagemap_entry entry = pagemap_get(&h->pagemap, address);
	if (pagemap_is_slab(entry)) {
		struct slab *s = pagemap_slab(entry);
		heap_call_in_locked(h, s->home->stream);
		unsigned slot = slab_slot_at(s, address);
		known = slot != SLAB_SLOTS_MAX && !((s->free | s->pending) >> slot & 1);
		if (known)
			categorize_slot_locked(h, s, slot, category);
		heap_let_out_locked(h, s->home->stream);
	} else {
		struct block *b = pagemap_block(entry);
		known = b && b->address == address;
		unsigned to = known && !b->window->foreign && b->site ? moved_site_locked(h, b->site, category) : 0;
		if (to) {
			holders_give_block_locked(h, b);
			b->site = (uint16_t)to;
			sites_enter(&h->sites, b->site, sites_whole(b->requested));
		}
	}
	heap_unlock(h);
	return known;
}

/* ---- reading ---- */

static const char *const category_names[SITES_CATEGORIES] = {
	"", "weights", "gradients", "optimizer", "activations", "kv_cache", "temporary", "other"};

/* The square root, rounded up. */
static uint64_t root(uint64_t square)
{
	uint64_t low = 0, high = (uint64_t)1 << 32;
	while (low < high) {
		uint64_t middle = (low + high) / 2;
		if (middle >= (uint64_t)1 << 32 || middle * middle >= square)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* What is copied of a holder under the lock. */
struct copied {
	struct holding held;
	uint64_t stack;
	uint32_t number, tag;
	unsigned category;
};

enum { COPIED_AT_ONCE = 32 };

static struct copied copy_one_locked(const trz_heap *h, trz_holder_kind by, uint32_t number)
{
	HEAP_LOCKED(h);
	const struct sites *s = &h->sites;
	if (by == TRZ_BY_TAG)
		return (struct copied){.held = s->tags[number], .tag = number};
	if (by == TRZ_BY_CATEGORY)
		return (struct copied){.held = s->categories[number], .category = number};
	const struct site *site = sites_at(s, number);
	return (struct copied){.held = site->held,
	                       .stack = site->stack,
	                       .number = number,
	                       .tag = site_tag(site),
	                       .category = site_category(site)};
}

/* Copies holders from *next on that have ever held anything; how many. */
static size_t copy_some(trz_heap *h, trz_holder_kind by, uint32_t *next, struct copied *out)
{
	size_t found = 0;
	heap_lock(h);
	uint32_t last = by == TRZ_BY_SITE ? h->sites.count : by == TRZ_BY_TAG ? h->tags.count : SITES_CATEGORIES - 1;
	for (; *next <= last && found < COPIED_AT_ONCE; ++*next) {
		out[found] = copy_one_locked(h, by, *next);
		found += out[found].held.peak > 0;
	}
	heap_unlock(h);
	return found;
}

static trz_holder describe(const trz_heap *h, const struct copied *c)
{
	return (trz_holder){.site = c->number,
	                    .stack = c->stack,
	                    .tag = history_tag_text(&h->tags, c->tag),
	                    .category = (trz_category)c->category,
	                    .category_name = category_names[c->category],
	                    .bytes = c->held.bytes,
	                    .peak = c->held.peak,
	                    .count = (c->held.count + SITES_COUNT_UNIT / 2) / SITES_COUNT_UNIT,
	                    .error = root(c->held.variance)};
}

static bool is_before(const trz_holder *a, const trz_holder *b)
{
	return a->bytes != b->bytes ? a->bytes > b->bytes : a->peak > b->peak;
}

/* Inserts into the list of the largest so far, `capacity` at most. */
static size_t insert(trz_holder *list, size_t count, size_t capacity, trz_holder new)
{
	size_t at = count < capacity ? count++ : capacity;
	if (at == capacity && (!capacity || !is_before(&new, &list[--at])))
		return count;
	for (; at > 0 && is_before(&new, &list[at - 1]); at--)
		list[at] = list[at - 1];
	list[at] = new;
	return count;
}

/* Needs no host memory: it also serves reports of failures. */
size_t holders_read(trz_heap *h, trz_holder_kind by, trz_holder *out, size_t capacity)
{
	struct copied some[COPIED_AT_ONCE];
	size_t kept = 0, all = 0, found;
	uint32_t next = 1;
	while ((found = copy_some(h, by, &next, some)) > 0) {
		for (size_t i = 0; i < found; i++)
			kept = insert(out, kept, capacity, describe(h, &some[i]));
		all += found;
	}
	return all;
}

size_t holders_live(trz_heap *h, uint32_t *next, struct holders_count *out, size_t capacity)
{
	size_t found = 0;
	unsigned steps = 0;
	heap_lock(h);
	for (; *next <= h->sites.count && found < capacity; ++*next) {
		const struct site *site = sites_at(&h->sites, *next);
		if (site->held.count >= SITES_COUNT_UNIT)
			out[found++] = (struct holders_count){site->stack, site->held.count / SITES_COUNT_UNIT};
		heap_rest(h, &steps, 1);
	}
	heap_unlock(h);
	return found;
}

uint64_t holders_live_of(trz_heap *h, uint64_t site)
{
	heap_lock(h);
	uint64_t count = site && site <= h->sites.count ? sites_at(&h->sites, (unsigned)site)->held.count : 0;
	heap_unlock(h);
	return count / SITES_COUNT_UNIT;
}
