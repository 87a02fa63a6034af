/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory for the heap's own structures: a jemalloc arena of its own, or libc's malloc in sanitizer
 * builds. The only file of alloc/ that asks for host memory. meta_close gives everything back, so structures need not
 * be freed one by one when a heap closes.
 */
#ifndef TRZ_ALLOC_META_H
#define TRZ_ALLOC_META_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "lock.h"

struct host;
struct meta_chunk;

struct meta {
	struct host *host;            /* where its memory comes from; NULL: libc's malloc */
	_Atomic uint64_t bytes;       /* bytes allocated now, the statistic metadata_bytes */
	_Atomic uint64_t refused;     /* requests for which the host had no memory */
	struct meta_chunk *chunks;    /* every allocation, for meta_close; guarded by `lock` */
	struct spinlock lock;
};

/* false: the host has no memory. */
bool meta_open(struct meta *m);
void meta_close(struct meta *m);

/* Zeroed memory, 64-byte aligned; NULL when the host has none. Thread-safe. */
void *meta_alloc(struct meta *m, size_t size);
void meta_free(struct meta *m, void *p);

/* The status, with its text, of an operation that got no host memory. */
static inline trz_status meta_exhausted(void)
{
	return trz_fail(TRZ_ERROR_HOST_MEMORY, "the host has no memory left for the heap's metadata");
}

/* Nodes of one size. None goes back to the host before meta_close, so a stale pointer to a node still points to a node.
 * Nodes that were never taken have not been touched, so the memory under them costs nothing yet. The pool's owner
 * guards it. */
struct node_pool {
	struct meta *meta;
	size_t node_size;      /* >= sizeof(void *) */
	void *free;            /* nodes given back, linked through their first word */
	char *fresh, *end;     /* nodes never taken, side by side */
	size_t available;      /* how many of both */
};

void node_pool_init(struct node_pool *p, struct meta *m, size_t node_size);

/* Makes the next `count` takes succeed. false: the host has no memory. */
bool node_pool_reserve_slow(struct node_pool *p, size_t count);

static inline bool node_pool_reserve(struct node_pool *p, size_t count)
{
	return p->available >= count || node_pool_reserve_slow(p, count);
}

/* A node with arbitrary content; the caller has reserved it. */
static inline void *node_pool_take(struct node_pool *p)
{
	assert(p->available > 0);
	void *node = p->free;
	if (node) {
		p->free = *(void **)node;
	} else {
		node = p->fresh;
		p->fresh += p->node_size;
	}
	p->available--;
	return node;
}

static inline void node_pool_give(struct node_pool *p, void *node)
{
	*(void **)node = p->free;
	p->free = node;
	p->available++;
}

#endif
