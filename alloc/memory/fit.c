/* SPDX-License-Identifier: Apache-2.0
 *
 * The best-fit index.
 */
#include "memory/fit.h"

#include <assert.h>
#include <string.h>

#include "bits.h"
#include "lock.h"
#include "prng.h"

/* The first buckets are one size each, then there are 1 << FIT_SUB_BITS per doubling; monotone in size. */
static inline unsigned bucket_of(uint64_t size)
{
	uint64_t units = size / UNIT;
	if (units < 1u << FIT_SUB_BITS)
		return (unsigned)units;
	unsigned shift = log2_floor(units) - FIT_SUB_BITS;
	return (shift << FIT_SUB_BITS) + (unsigned)(units >> shift);
}

static inline bool before(const struct block *a, uint64_t size, trz_addr address)
{
	return a->size != size ? a->size < size : a->address < address;
}

void fit_init(struct fit *f, struct level *cached)
{
	memset(f, 0, sizeof *f);
	f->cached = cached;
}

/* The first used bucket from `bucket` on; FIT_BUCKETS: none. */
static unsigned next_used(const struct fit *f, unsigned bucket)
{
	unsigned word = bucket / 64;
	if (word >= FIT_WORDS)
		return FIT_BUCKETS;
	uint64_t bits = f->used[word] & ~(uint64_t)0 << bucket % 64;
	while (!bits) {
		if (++word == FIT_WORDS)
			return FIT_BUCKETS;
		bits = f->used[word];
	}
	return word * 64 + (unsigned)__builtin_ctzll(bits);
}

static struct block *leftmost(struct block *b)
{
	while (b->left)
		b = b->left;
	return b;
}

/* The first block of a tree that is not before (size, address). */
static struct block *lower_bound(struct block *tree, uint64_t size, trz_addr address)
{
	struct block *found = NULL;
	while (tree) {
		if (before(tree, size, address)) {
			tree = tree->right;
		} else {
			found = tree;
			tree = tree->left;
		}
	}
	return found;
}

static uint64_t find_largest(struct fit *f)
{
	while (f->top && !f->used[f->top])
		f->top--;
	if (!f->used[f->top])
		return 0;
	struct block *b = f->root[f->top * 64 + log2_floor(f->used[f->top])];
	while (b->right)
		b = b->right;
	return b->size;
}

void fit_insert(struct fit *f, struct block *b)
{
	assert(b->state == BLOCK_FREE && b->size > 0);
	unsigned bucket = bucket_of(b->size);
	SPINLOCK_STEP();
	b->priority = (uint32_t)prng_mix(b->address);
	b->tileless = false;
	struct block **link = &f->root[bucket], *tree = *link;
	while (tree && tree->priority >= b->priority) {
		link = before(tree, b->size, b->address) ? &tree->right : &tree->left;
		tree = *link;
	}
	*link = b;
	struct block **left = &b->left, **right = &b->right;
	while (tree) {  /* what hung here is split around b */
		if (before(tree, b->size, b->address)) {
			*left = tree;
			left = &tree->right;
			tree = *left;
		} else {
			*right = tree;
			right = &tree->left;
			tree = *right;
		}
	}
	*left = *right = NULL;
	f->used[bucket / 64] |= (uint64_t)1 << bucket % 64;
	if (bucket / 64 > f->top)
		f->top = bucket / 64;
	f->bytes += b->size;
	counter_raise(&f->largest, b->size);
	level_add(f->cached, b->size);
}

void fit_remove(struct fit *f, struct block *b)
{
	assert(b->state == BLOCK_FREE && f->bytes >= b->size);
	unsigned bucket = bucket_of(b->size);
	SPINLOCK_STEP();
	struct block **link = &f->root[bucket];
	while (*link != b) {
		assert(*link);
		link = before(*link, b->size, b->address) ? &(*link)->right : &(*link)->left;
	}
	struct block *left = b->left, *right = b->right;
	while (left && right) {
		if (left->priority >= right->priority) {
			*link = left;
			link = &left->right;
			left = *link;
		} else {
			*link = right;
			link = &right->left;
			right = *link;
		}
	}
	*link = left ? left : right;
	if (!f->root[bucket])
		f->used[bucket / 64] &= ~((uint64_t)1 << bucket % 64);
	f->bytes -= b->size;
	if (b->size == counter_get(&f->largest))
		counter_set(&f->largest, find_largest(f));
	level_sub(f->cached, b->size);
}

/* The smallest block of the buckets from this one on. */
static struct block *first_from(const struct fit *f, unsigned bucket)
{
	bucket = next_used(f, bucket);
	return bucket == FIT_BUCKETS ? NULL : leftmost(f->root[bucket]);
}

struct block *fit_from(const struct fit *f, uint64_t size, trz_addr address)
{
	unsigned bucket = bucket_of(size);
	SPINLOCK_STEP();
	if (bucket >= FIT_BUCKETS)
		return NULL;
	struct block *b = f->root[bucket] ? lower_bound(f->root[bucket], size, address) : NULL;
	return b ? b : first_from(f, bucket + 1);
}

struct block *fit_find(const struct fit *f, uint64_t size)
{
	return fit_from(f, size, 0);
}

struct block *fit_next(const struct fit *f, const struct block *b)
{
	SPINLOCK_STEP();
	if (b->right)
		return leftmost(b->right);
	unsigned bucket = bucket_of(b->size);
	struct block *next = f->root[bucket] == b ? NULL : lower_bound(f->root[bucket], b->size, b->address + 1);
	return next ? next : first_from(f, bucket + 1);
}

/* Walks the whole index in order through its own finger, so that a broken tree is noticed as disorder. */
const char *fit_check(const struct fit *f)
{
	uint64_t bytes = 0, size = 0;
	for (unsigned bucket = 0; bucket < FIT_BUCKETS; bucket++)
		if (!f->root[bucket] != !(f->used[bucket / 64] >> bucket % 64 & 1))
			return "a bucket's bit does not match whether it is empty";
	for (const struct block *b = fit_find(f, 0); b; b = fit_next(f, b)) {
		if (b->state != BLOCK_FREE)
			return "a block in the index is not free";
		if (b->size < size)
			return "the index is out of order";
		size = b->size;
		bytes += size;
	}
	if (bytes != f->bytes)
		return "the index's byte count is not the sum of its blocks";
	return size == counter_get(&f->largest) ? NULL : "the index's largest block is not its largest";
}
