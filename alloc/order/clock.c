/* SPDX-License-Identifier: Apache-2.0
 *
 * The clocks of events by handle, and what streams learn from them.
 */
#include "order/clock.h"

#include <string.h>

#include "bits.h"
#include "prng.h"

enum { BUCKETS_FIRST = 64, ENTRIES_FIRST = 4, STREAMS_FIRST = 16 };

static atomic_uint_fast64_t versions;

uint64_t clock_new_version(void)
{
	return atomic_fetch_add(&versions, 1) + 1;
}

void clocks_init(struct event_clocks *all, struct meta *m)
{
	all->meta = m;
	node_pool_init(&all->nodes, m, sizeof(struct event_clock));
}

/* ---- the table ---- */

static struct event_clock **link_of(const struct event_clocks *all, trz_event event)
{
	struct event_clock **link = &all->buckets[prng_mix((uint64_t)(uintptr_t)event) & (all->bucket_count - 1)];
	while (*link && (*link)->event != event)
		link = &(*link)->next;
	return link;
}

static struct event_clock *find(const struct event_clocks *all, trz_event event)
{
	return all->bucket_count ? *link_of(all, event) : NULL;
}

static bool grow_table(struct event_clocks *all)
{
	size_t count = all->bucket_count ? 2 * all->bucket_count : BUCKETS_FIRST, old = all->bucket_count;
	struct event_clock **buckets = meta_alloc(all->meta, count * sizeof(struct event_clock *)), **before = all->buckets;
	if (!buckets)
		return false;
	all->buckets = buckets;
	all->bucket_count = count;
	for (size_t i = 0; i < old; i++)
		for (struct event_clock *c = before[i], *next; c; c = next) {
			next = c->next;
			c->next = NULL;
			*link_of(all, c->event) = c;
		}
	meta_free(all->meta, before);
	return true;
}

/* The event's clock, made if it is new. NULL: there is none, and none can be made any more. */
static struct event_clock *find_or_make(struct event_clocks *all, trz_event event)
{
	struct event_clock *c = find(all, event);
	if (c || all->off)
		return c;
	bool room = all->count < CLOCKS_MOST && (all->count < all->bucket_count || grow_table(all)) &&
	            node_pool_reserve(&all->nodes, 1);
	if (!room)
		return NULL;
	c = node_pool_take(&all->nodes);
	*c = (struct event_clock){.event = event};
	*link_of(all, event) = c;
	all->count++;
	return c;
}

/* ---- records ---- */

static bool add_entry(const struct event_clocks *all, struct event_clock *c, unsigned stream, uint64_t ticket)
{
	if (c->count == c->room) {
		uint32_t room = c->room ? 2 * c->room : ENTRIES_FIRST;
		struct clock_entry *entries = meta_alloc(all->meta, room * sizeof *entries);
		if (!entries)
			return false;
		if (c->count)
			memcpy(entries, c->entries, c->count * sizeof *entries);
		meta_free(all->meta, c->entries);
		c->entries = entries;
		c->room = room;
	}
	c->entries[c->count++] = (struct clock_entry){stream, ticket};
	return true;
}

/* Adds a ticket unless it has passed: then it needs no order. */
static bool add_open(const struct event_clocks *all, const struct streams *streams, struct event_clock *c, unsigned i,
                     uint64_t ticket)
{
	return ticket_passed(&streams->list[i]->tickets, ticket) || add_entry(all, c, i, ticket);
}

static bool add_clock(const struct event_clocks *all, const struct streams *streams, struct event_clock *c,
                      struct stream *s)
{
	bool ok = add_open(all, streams, c, s->index, ticket_newest(&s->tickets));
	for (unsigned i = 0; i < s->known_count && ok; i++)
		ok = !s->known[i] || add_open(all, streams, c, i, s->known[i]);
	return ok;
}

/* Begins a record, which tells nothing yet. NULL: the event gets no clock, and the heap learns nothing any more. */
static struct event_clock *begin(struct event_clocks *all, trz_event event)
{
	struct event_clock *c = find_or_make(all, event);
	if (!c) {
		all->off = true;
		return NULL;
	}
	c->contested |= c->writers++ > 0;
	c->version = 0;
	c->count = 0;
	return c;
}

void clock_begin_record(struct event_clocks *all, const struct streams *streams, trz_event event,
                        struct stream *s)
{
	struct event_clock *c = begin(all, event);
	if (!c || !s)
		return;
	c->context = s->events->context;
	if (!add_clock(all, streams, c, s))
		c->count = 0;
}

void clock_begin_all(struct event_clocks *all, const struct streams *streams, trz_event event, trz_context context)
{
	struct event_clock *c = begin(all, event);
	unsigned count = atomic_load_explicit(&streams->count, memory_order_relaxed);
	for (unsigned i = 0; c && i < count; i++) {
		struct stream *s = streams->list[i];
		if (s->events->context == context && !add_open(all, streams, c, i, ticket_newest(&s->tickets)))
			break;
	}
}

bool clock_tells(const struct event_clocks *all, trz_event event, trz_context *context)
{
	const struct event_clock *c = all->off ? NULL : find(all, event);
	if (!c || !c->count || c->contested)
		return false;
	*context = c->context;
	return true;
}

void clock_end_record(struct event_clocks *all, trz_event event, uint64_t version, bool valid)
{
	struct event_clock *c = all->off || version <= all->opened ? NULL : find(all, event);
	if (!c || !c->writers)
		return;
	c->version = --c->writers == 0 && valid && !c->contested ? version : 0;
	c->contested &= c->writers > 0;
}

/* Takes the clock out of the table, unless a record is under way. */
static void forget(struct event_clocks *all, struct event_clock **link)
{
	struct event_clock *c = *link;
	c->version = 0;
	c->contested = c->writers > 0;
	if (c->writers)
		return;
	*link = c->next;
	meta_free(all->meta, c->entries);
	node_pool_give(&all->nodes, c);
	all->count--;
}

void clock_forget(struct event_clocks *all, trz_event event)
{
	struct event_clock **link = all->bucket_count ? link_of(all, event) : NULL;
	if (link && *link)
		forget(all, link);
}

void clock_forget_all(struct event_clocks *all)
{
	for (size_t i = 0; i < all->bucket_count; i++)
		for (struct event_clock **link = &all->buckets[i], *c; (c = *link);) {
			forget(all, link);
			if (*link == c)
				link = &c->next;
		}
}

void clocks_start(struct event_clocks *all)
{
	clock_forget_all(all);
	all->opened = clock_new_version();
}

/* ---- waits ---- */

uint64_t clock_version(const struct event_clocks *all, trz_event event)
{
	const struct event_clock *c = all->off ? NULL : find(all, event);
	return c && c->count ? c->version : 0;
}

static const struct event_clock *newest(const struct event_clocks *all, trz_event event, uint64_t version)
{
	const struct event_clock *c = all->off || !version ? NULL : find(all, event);
	return c && c->version == version ? c : NULL;
}

static bool reserve_known(struct meta *m, struct stream *s, unsigned index)
{
	if (index < s->known_count)
		return true;
	unsigned count = s->known_count ? s->known_count : STREAMS_FIRST;
	while (count <= index)
		count *= 2;
	uint64_t *known = meta_alloc(m, count * sizeof *known);
	if (!known)
		return false;
	if (s->known_count)
		memcpy(known, s->known, s->known_count * sizeof *known);
	meta_free(m, s->known);
	s->known = known;
	s->known_count = count;
	return true;
}

bool clock_teach(const struct event_clocks *all, const struct streams *streams, trz_event event, uint64_t version,
                 struct stream *s)
{
	const struct event_clock *c = newest(all, event, version);
	for (unsigned i = 0; c && i < c->count; i++) {
		struct clock_entry e = c->entries[i];
		if (e.stream == s->index || ticket_passed(&streams->list[e.stream]->tickets, e.ticket))
			continue;
		if (!reserve_known(all->meta, s, e.stream))
			return false;
		s->known[e.stream] = max_u64(s->known[e.stream], e.ticket);
	}
	return true;
}

void clock_pass(const struct event_clocks *all, const struct streams *streams, trz_event event, uint64_t version)
{
	const struct event_clock *c = newest(all, event, version);
	for (unsigned i = 0; c && i < c->count; i++)
		ticket_pass(&streams->list[c->entries[i].stream]->tickets, c->entries[i].ticket);
}
