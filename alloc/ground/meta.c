/* SPDX-License-Identifier: Apache-2.0
 *
 * Metadata memory. jemalloc is used through its mallocx interface only, on an arena over memory of our own and without
 * thread caches: a thread that ends leaves nothing of a heap behind, and the host program keeps its malloc.
 */
#include "ground/meta.h"

#include <string.h>

#include "bits.h"

#if TRZ_META_JEMALLOC
#include <jemalloc/jemalloc.h>
#include <sys/mman.h>
#else
#include <stdlib.h>
#endif

enum { META_ALIGN = 64, POOL_CHUNK_BYTES = 65536, HUGE_PAGE = 2 << 20, RANGE_BYTES = 64 << 20 };

/* The header in front of every allocation. */
struct meta_chunk {
	_Alignas(META_ALIGN) struct meta_chunk *next;
	struct meta_chunk **link;
	size_t size;
};

#if TRZ_META_JEMALLOC

enum { RANGES_MOST = 16 };

/* The arena's memory: ranges of host addresses, each used from its beginning on, in huge pages if the host has them. A
 * growing heap then takes few page faults, each of which costs a request microseconds, and few TLB entries. The arena
 * never returns memory; the ranges are unmapped when the heap closes. */
struct host {
	extent_hooks_t hooks;        /* first, since jemalloc passes its address to the hooks, which cast it to the host */
	unsigned arena;
	struct spinlock lock;        /* guards the rest */
	char *top, *end;             /* the rest of the newest range */
	unsigned count;
	struct {
		void *base;
		size_t size;
	} ranges[RANGES_MOST];
};

static void *map_host(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

/* Begins a range with room for `least` bytes, and for more where the host allows. */
static bool begin_range(struct host *host, size_t least)
{
	if (host->count == RANGES_MOST)
		return false;
	size_t size = max_u64((uint64_t)RANGE_BYTES << host->count, least + HUGE_PAGE);
	void *base = map_host(size);
	if (!base)
		base = map_host(size = least + HUGE_PAGE);
	if (!base)
		return false;
	host->ranges[host->count].base = base;
	host->ranges[host->count++].size = size;
	host->top = (char *)align_up((uintptr_t)base, HUGE_PAGE);
	host->end = (char *)base + size;
	madvise(host->top, (size_t)(host->end - host->top), MADV_HUGEPAGE);  /* where this fails, pages are small */
	return true;
}

static void *extent_alloc(extent_hooks_t *hooks, void *wanted, size_t size, size_t alignment, bool *zero, bool *commit,
                          unsigned arena)
{
	struct host *host = (struct host *)hooks;
	(void)arena;
	if (wanted || size + alignment < size)
		return NULL;
	spinlock_take(&host->lock);
	char *p = (char *)align_up((uintptr_t)host->top, alignment);
	bool room = host->top && size <= (size_t)(host->end - host->top) && p + size <= host->end;
	if (!room && (room = begin_range(host, size + alignment)))
		p = (char *)align_up((uintptr_t)host->top, alignment);
	if (room)
		host->top = p + size;
	if (room && alignment >= HUGE_PAGE)  /* for jemalloc's own structures, which use little of it */
		madvise(p, size, MADV_NOHUGEPAGE);
	spinlock_give(&host->lock);
	*zero = *commit = true;
	return room ? p : NULL;
}

static bool extent_split(extent_hooks_t *hooks, void *p, size_t size, size_t a, size_t b, bool committed,
                         unsigned arena)
{
	(void)hooks, (void)p, (void)size, (void)a, (void)b, (void)committed, (void)arena;
	return false;  /* no objection */
}

static bool extent_merge(extent_hooks_t *hooks, void *a, size_t a_size, void *b, size_t b_size, bool committed,
                         unsigned arena)
{
	(void)hooks, (void)a, (void)a_size, (void)b, (void)b_size, (void)committed, (void)arena;
	return false;
}

static void unmap_host(struct host *host)
{
	for (unsigned i = 0; i < host->count; i++)
		munmap(host->ranges[i].base, host->ranges[i].size);
	munmap(host, sizeof *host);
}

static bool host_open(struct meta *m)
{
	struct host *host = map_host(sizeof *host);
	if (!host)
		return false;
	host->hooks = (extent_hooks_t){.alloc = extent_alloc, .split = extent_split, .merge = extent_merge};
	extent_hooks_t *hooks = &host->hooks;
	size_t length = sizeof host->arena;
	if (trz_je_mallctl("arenas.create", &host->arena, &length, &hooks, sizeof hooks) != 0) {
		unmap_host(host);
		return false;
	}
	m->host = host;
	return true;
}

static void host_close(struct meta *m)
{
	char name[48] = "arena.";
	unsigned n = m->host->arena, digits = 1;
	for (unsigned x = n; x >= 10; x /= 10)
		digits++;
	for (unsigned i = digits; i > 0; i--, n /= 10)
		name[5 + i] = (char)('0' + n % 10);
	strcpy(name + 6 + digits, ".destroy");
	trz_je_mallctl(name, NULL, NULL, NULL, 0);
	unmap_host(m->host);
}

static int host_flags(const struct meta *m)
{
	return MALLOCX_ARENA(m->host->arena) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(META_ALIGN);
}

static void *host_alloc(struct meta *m, size_t size)
{
	return trz_je_mallocx(size, host_flags(m) | MALLOCX_ZERO);
}

static void host_free(struct meta *m, void *p)
{
	trz_je_dallocx(p, host_flags(m));
}

#else

static bool host_open(struct meta *m)
{
	m->host = NULL;
	return true;
}

static void host_close(struct meta *m)
{
	(void)m;
}

static void *host_alloc(struct meta *m, size_t size)
{
	(void)m;
	void *p = aligned_alloc(META_ALIGN, align_up(size, META_ALIGN));
	return p ? memset(p, 0, size) : NULL;
}

static void host_free(struct meta *m, void *p)
{
	(void)m;
	free(p);
}

#endif

bool meta_open(struct meta *m)
{
	m->chunks = NULL;
	atomic_init(&m->bytes, 0);
	atomic_init(&m->refused, 0);
	spinlock_init(&m->lock);
	return host_open(m);
}

void meta_close(struct meta *m)
{
	while (m->chunks) {
		struct meta_chunk *c = m->chunks;
		m->chunks = c->next;
		host_free(m, c);
	}
	host_close(m);
}

void *meta_alloc(struct meta *m, size_t size)
{
	struct meta_chunk *c = host_alloc(m, sizeof *c + size);
	if (!c) {
		atomic_fetch_add_explicit(&m->refused, 1, memory_order_relaxed);
		return NULL;
	}
	c->size = size;
	spinlock_take(&m->lock);
	c->next = m->chunks;
	c->link = &m->chunks;
	if (c->next)
		c->next->link = &c->next;
	m->chunks = c;
	spinlock_give(&m->lock);
	atomic_fetch_add_explicit(&m->bytes, sizeof *c + size, memory_order_relaxed);
	return c + 1;
}

void meta_free(struct meta *m, void *p)
{
	if (!p)
		return;
	struct meta_chunk *c = (struct meta_chunk *)p - 1;
	atomic_fetch_sub_explicit(&m->bytes, sizeof *c + c->size, memory_order_relaxed);
	spinlock_take(&m->lock);
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	spinlock_give(&m->lock);
	host_free(m, c);
}

void node_pool_init(struct node_pool *p, struct meta *m, size_t node_size)
{
	*p = (struct node_pool){.meta = m, .node_size = align_up(node_size, 16)};
}

bool node_pool_reserve_slow(struct node_pool *p, size_t count)
{
	size_t nodes = max_u64(POOL_CHUNK_BYTES / p->node_size, count - p->available) + 1;
	char *chunk = meta_alloc(p->meta, nodes * p->node_size);
	if (!chunk)
		return false;
	for (; p->fresh < p->end; p->fresh += p->node_size) {  /* all fresh nodes must lie in one chunk */
		*(void **)p->fresh = p->free;
		p->free = p->fresh;
	}
	p->end = chunk + nodes * p->node_size;
	p->fresh = chunk;
	p->available += nodes;
	return true;
}
