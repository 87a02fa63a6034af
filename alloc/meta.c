/* SPDX-License-Identifier: Apache-2.0
 *
 * Metadata memory. jemalloc is used through its mallocx interface only, on an arena of our own and without
 * thread caches: nothing of a heap is left in a thread that ends, and the host program's malloc stays what
 * it was.
 */
#include "meta.h"

#include <string.h>

#include "bits.h"

#if TRZ_META_JEMALLOC
#include <jemalloc/jemalloc.h>

/* Read by jemalloc at its first use. On huge pages a heap's growth takes few page faults, which a request in a hundred
 * thousand would pay with microseconds, and few entries of the TLB. */
const char *trz_je_malloc_conf = "thp:always";
#else
#include <stdlib.h>
#endif

enum { META_ALIGN = 64, POOL_CHUNK_BYTES = 16384 };

/* Stands before every allocation. */
struct meta_chunk {
	_Alignas(META_ALIGN) struct meta_chunk *next;
	struct meta_chunk **link;
	size_t size;
};

#if TRZ_META_JEMALLOC

static bool host_open(struct meta *m)
{
	size_t length = sizeof m->arena;
	return trz_je_mallctl("arenas.create", &m->arena, &length, NULL, 0) == 0;
}

static void host_close(struct meta *m)
{
	char name[48] = "arena.";
	unsigned n = m->arena, digits = 1;
	for (unsigned x = n; x >= 10; x /= 10)
		digits++;
	for (unsigned i = digits; i > 0; i--, n /= 10)
		name[5 + i] = (char)('0' + n % 10);
	strcpy(name + 6 + digits, ".destroy");
	trz_je_mallctl(name, NULL, NULL, NULL, 0);
}

static int host_flags(const struct meta *m)
{
	return MALLOCX_ARENA(m->arena) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(META_ALIGN);
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
	m->arena = 0;
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

static void chunks_lock(struct meta *m)
{
	while (atomic_flag_test_and_set_explicit(&m->lock, memory_order_acquire))
		;
}

static void chunks_unlock(struct meta *m)
{
	atomic_flag_clear_explicit(&m->lock, memory_order_release);
}

bool meta_open(struct meta *m)
{
	m->chunks = NULL;
	atomic_init(&m->bytes, 0);
	atomic_flag_clear(&m->lock);
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
	if (!c)
		return NULL;
	c->size = size;
	chunks_lock(m);
	c->next = m->chunks;
	c->link = &m->chunks;
	if (c->next)
		c->next->link = &c->next;
	m->chunks = c;
	chunks_unlock(m);
	atomic_fetch_add_explicit(&m->bytes, sizeof *c + size, memory_order_relaxed);
	return c + 1;
}

void meta_free(struct meta *m, void *p)
{
	if (!p)
		return;
	struct meta_chunk *c = (struct meta_chunk *)p - 1;
	atomic_fetch_sub_explicit(&m->bytes, sizeof *c + c->size, memory_order_relaxed);
	chunks_lock(m);
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	chunks_unlock(m);
	host_free(m, c);
}

void node_pool_init(struct node_pool *p, struct meta *m, size_t node_size)
{
	*p = (struct node_pool){.meta = m, .node_size = align_up(node_size, 16)};
}

bool node_pool_reserve_slow(struct node_pool *p, size_t count)
{
	while (p->available < count) {
		size_t nodes = POOL_CHUNK_BYTES / p->node_size + 1;
		char *chunk = meta_alloc(p->meta, nodes * p->node_size);
		if (!chunk)
			return false;
		for (size_t i = nodes; i-- > 0;)
			node_pool_give(p, chunk + i * p->node_size);
	}
	return true;
}
