/* SPDX-License-Identifier: Apache-2.0
 *
 * Announcing mappings, and keeping track of which have been announced.
 */
#include "observe/notice.h"

/* Notices for which the lock is given back once. The pinned tiles are unpinned afterwards. */
enum { NOTICES_AT_ONCE = 64 };

struct notices {
	trz_heap *heap;
	trz_map_event event;
	size_t count;
	struct {
		trz_addr address;
		uint64_t size;
		struct tile *pinned;         /* may be NULL */
	} list[NOTICES_AT_ONCE];
};

/* true: the lock was given back. */
static bool tell(struct notices *n)
{
	trz_heap *h = n->heap;
	if (!n->count)
		return false;
	trz_map_callback *callback = h->map_callback;  /* the callback that has received the notices so far */
	void *user = h->map_user;
	heap_unlock_growth(h);
	int cancel = uncancelled_begin();
	for (size_t i = 0; callback && i < n->count; i++)
		callback(user, n->event, (void *)n->list[i].address, n->list[i].size);
	uncancelled_end(cancel);
	heap_relock_growth(h);
	for (size_t i = 0; i < n->count; i++)
		if (n->list[i].pinned) {
			assert(n->list[i].pinned->pins > 0);
			n->list[i].pinned->pins--;
		}
	n->count = 0;
	return true;
}

/* Adds a notice; true: the list is full. */
static bool add(struct notices *n, trz_addr address, uint64_t size, struct tile *pinned)
{
	if (pinned)
		pinned->pins++;
	n->list[n->count].address = address;
	n->list[n->count].size = size;
	n->list[n->count++].pinned = pinned;
	return n->count == NOTICES_AT_ONCE;
}

/* ---- new mappings ---- */

/* A place that has not been announced. */
static bool is_news(const struct place *p)
{
	return p->accessible && !p->told;
}

static void classic_mapped(trz_heap *h, struct window *w)
{
	struct notices n = {.heap = h, .event = TRZ_MAP};
	if (w->classic->told)
		return;
	w->classic->told = true;
	add(&n, w->classic_address, w->classic->size, NULL);
	tell(&n);
}

void notice_mapped(trz_heap *h, struct block *b)
{
	HEAP_GROWTH_LOCKED(h);
	assert(b->state == BLOCK_BUSY || b->window->foreign);  /* unreachable for other threads while the lock is given
	                                                        * back */
	if (!h->map_callback)
		return;
	struct notices n = {.heap = h, .event = TRZ_MAP};
	if (b->window->classic) {
		classic_mapped(h, b->window);
		return;
	}
	for (trz_addr a = b->address; a < block_end(b);) {
		struct place *p = window_at(b->window, a);
		a = place_end(p);
		if (!is_news(p))
			continue;
		p->told = true;
		if (add(&n, p->address, place_size(p), NULL))
			tell(&n);
	}
	tell(&n);
}

/* ---- mappings that go ---- */

/* From now on no thread uses it or announces it as new. All places that leave together are marked before the lock is
 * given back for the first of them. */
static void mark_leaving(struct place *p)
{
	p->leaving |= p->accessible;
	p->accessible = false;
}

/* A place that has not been announced yet is marked as well: no thread may use it while the others are announced. */
static bool leave(struct notices *n, struct place *p)
{
	bool told = p->told;
	mark_leaving(p);
	p->told = false;
	return told && add(n, p->address, place_size(p), p->tile);
}

void notice_leaving(trz_heap *h, struct window *w, struct tile *tile)
{
	HEAP_GROWTH_LOCKED(h);
	struct notices n = {.heap = h, .event = TRZ_UNMAP};
	if (!h->map_callback)
		return;
	tile->pins++;
	w->leaving |= tile == w->classic;
	if (tile->told) {
		tile->told = false;
		add(&n, w->classic_address, tile->size, NULL);
	}
	for (struct place *p = tile->places; p; p = p->next)
		mark_leaving(p);
	for (struct place *p = tile->places; p; p = p->next)
		if (leave(&n, p))
			tell(&n);
	tell(&n);
	tile->pins--;
}

void notice_aliases_leaving(trz_heap *h, struct place *const *aliases, size_t count)
{
	HEAP_GROWTH_LOCKED(h);
	struct notices n = {.heap = h, .event = TRZ_UNMAP};
	if (!h->map_callback)
		return;
	for (size_t i = 0; i < count; i++) {
		aliases[i]->tile->pins++;
		mark_leaving(aliases[i]);
	}
	for (size_t i = 0; i < count; i++)
		if (leave(&n, aliases[i]))
			tell(&n);
	tell(&n);
	for (size_t i = 0; i < count; i++)
		aliases[i]->tile->pins--;
}

void notice_back(trz_heap *h, struct window *w, struct tile *tile)
{
	HEAP_GROWTH_LOCKED(h);
	struct notices n = {.heap = h, .event = TRZ_MAP};
	bool tells = h->map_callback;  /* the callback may have gone since */
	if (w && w->classic) {
		w->leaving = false;
		if (tells)
			classic_mapped(h, w);
	}
	tile->pins++;
	for (struct place *p = tile->places; p; p = p->next) {
		if (!p->leaving)
			continue;
		p->leaving = false;
		p->accessible = true;
		p->told = tells;
		if (tells && add(&n, p->address, tile->size, NULL))
			tell(&n);
	}
	tell(&n);
	tile->pins--;
}

void notice_aliases_back(trz_heap *h, struct place *const *aliases, size_t count)
{
	HEAP_GROWTH_LOCKED(h);
	for (size_t i = 0; i < count; i++)
		aliases[i]->tile->pins++;
	for (size_t i = 0; i < count; i++)
		notice_back(h, NULL, aliases[i]->tile);
	for (size_t i = 0; i < count; i++)
		aliases[i]->tile->pins--;
}

/* ---- all of a heap ---- */

/* Calls `act` for each place of the heap's windows, and each classic segment with no place; starts again whenever `act`
 * says that the lock was given back. */
static bool each_place(trz_heap *h, struct notices *n,
                       bool (*act)(struct notices *n, struct window *w, struct tile *tile, struct place *p))
{
	struct window *const lists[] = {h->windows[SMALL], h->windows[LARGE], h->imports};
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
		for (struct window *w = lists[i]; w; w = w->next) {
			if (w->classic && act(n, w, w->classic, NULL))
				return true;
			for (trz_addr a = w->base; !w->classic && a < w->top;) {
				struct place *p = window_at(w, a);
				a = window_next(w, a);
				if (p && act(n, w, p->tile, p))
					return true;
			}
		}
	return tell(n);
}

static bool forget_place(struct notices *n, struct window *w, struct tile *tile, struct place *p)
{
	(void)n;
	(void)w;
	*(p ? &p->told : &tile->told) = false;
	return false;
}

static bool tell_place(struct notices *n, struct window *w, struct tile *tile, struct place *p)
{
	if (p ? !is_news(p) : tile->told || w->leaving)
		return false;
	*(p ? &p->told : &tile->told) = true;
	return add(n, p ? p->address : w->classic_address, tile->size, tile) && tell(n);
}

static bool leave_place(struct notices *n, struct window *w, struct tile *tile, struct place *p)
{
	if (p)
		return leave(n, p) && tell(n);
	if (!tile->told)
		return false;
	tile->told = false;
	return add(n, w->classic_address, tile->size, tile) && tell(n);
}

void notice_set(trz_heap *h, trz_map_callback *callback, void *user)
{
	HEAP_GROWTH_LOCKED(h);
	struct notices none = {.heap = h}, n = {.heap = h, .event = TRZ_MAP};
	each_place(h, &none, forget_place);
	h->map_callback = callback;
	h->map_user = user;
	while (h->map_callback && each_place(h, &n, tell_place))
		;
}

void notice_all_leaving(trz_heap *h)
{
	HEAP_GROWTH_LOCKED(h);
	struct notices n = {.heap = h, .event = TRZ_UNMAP};
	while (h->map_callback && each_place(h, &n, leave_place))
		;
}
