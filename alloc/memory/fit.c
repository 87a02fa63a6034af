/* SPDX-License-Identifier: Apache-2.0
 *
 * The best-fit index.
 */
#include "memory/fit.h"

#include <assert.h>
#include <string.h>

#include "bits.h"
#include "lock.h"
#include "memory/window.h"
#include "prng.h"

/* The first buckets are one size each, then there are 1 << FIT_SUB_BITS per doubling; monotone in size. */
static inline unsigned bucket_of_size(uint64_t size)
{
	uint64_t units = size / UNIT;
	if (units < 1u << FIT_SUB_BITS)
		return (unsigned)units;
	unsigned shift = log2_floor(units) - FIT_SUB_BITS;
	unsigned bucket = (shift << FIT_SUB_BITS) + (unsigned)(units >> shift);
	return bucket < FIT_BUCKETS ? bucket : FIT_BUCKETS - 1;
}

/* Whether blocks of that size are divided by region: then all of a bucket have one size. */
static inline bool is_divided(const struct fit *f, uint64_t size)
{
	return f->cells && size <= (uint64_t)FIT_DIVIDED_CELLS * CELL;
}

/* Of a size that is divided, from the word of that size on; else from the first bucket that holds it. */
static inline unsigned first_bucket(const struct fit *f, uint64_t size)
{
	if (is_divided(f, size))
		return (unsigned)((size + CELL - 1) / CELL) * 64;
	return bucket_of_size(size) + (f->cells ? FIT_DIVIDED_MORE : 0);
}

static inline unsigned bucket_of(const struct fit *f, uint64_t size, trz_addr address)
{
	unsigned bucket = first_bucket(f, size);
	return is_divided(f, size) ? bucket + (unsigned)((address - f->origin) >> FIT_REGION_SHIFT) % 64 : bucket;
}

static inline bool before(const struct block *a, uint64_t size, trz_addr address)
{
	return a->size != size ? a->size < size : a->address < address;
}

void fit_init(struct fit *f, struct level *cached, struct block **root, bool cells)
{
	*f = (struct fit){.cached = cached, .root = root, .cells = cells};
}

enum { NO_BUCKET = UINT16_MAX };

/* The first used bucket from `bucket` on; NO_BUCKET: none. */
static inline unsigned next_used(const struct fit *f, unsigned bucket)
{
	unsigned word = bucket / 64;
	if (word >= FIT_WORDS)
		return NO_BUCKET;
	uint64_t bits = f->used[word] & ~(uint64_t)0 << bucket % 64;
	if (!bits) {
		uint64_t words = f->words & ~(uint64_t)1 << word;
		if (!words)
			return NO_BUCKET;
		word = (unsigned)__builtin_ctzll(words);
		bits = f->used[word];
	}
	return word * 64 + (unsigned)__builtin_ctzll(bits);
}

static void mark_used(struct fit *f, unsigned bucket)
{
	f->used[bucket / 64] |= (uint64_t)1 << bucket % 64;
	f->words |= (uint64_t)1 << bucket / 64;
}

static void mark_unused(struct fit *f, unsigned bucket)
{
	f->used[bucket / 64] &= ~((uint64_t)1 << bucket % 64);
	if (!f->used[bucket / 64])
		f->words &= ~((uint64_t)1 << bucket / 64);
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

static uint64_t find_largest(const struct fit *f)
{
	if (!f->words)
		return 0;
	unsigned word = log2_floor(f->words);
	struct block *b = f->root[word * 64 + log2_floor(f->used[word])];
	while (b->right)
		b = b->right;
	return b->size;
}

void fit_insert(struct fit *f, struct block *b)
{
	assert(b->state == BLOCK_FREE && b->size > 0 && (!f->cells || (b->address | b->size) % CELL == 0));
	if (UNLIKELY(!f->words) && f->cells)
		f->origin = b->window->base;
	unsigned bucket = bucket_of(f, b->size, b->address);
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
	mark_used(f, bucket);
	f->bytes += b->size;
	counter_raise(&f->largest, b->size);
	level_add(f->cached, b->size);
}

void fit_remove(struct fit *f, struct block *b)
{
	assert(b->state == BLOCK_FREE && f->bytes >= b->size);
	unsigned bucket = bucket_of(f, b->size, b->address);
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
		mark_unused(f, bucket);
	f->bytes -= b->size;
	if (b->size == counter_get(&f->largest))
		counter_set(&f->largest, find_largest(f));
	level_sub(f->cached, b->size);
}

/* The smallest block of the buckets from this one on. */
static inline struct block *first_from(const struct fit *f, unsigned bucket)
{
	bucket = next_used(f, bucket);
	return bucket == NO_BUCKET ? NULL : leftmost(f->root[bucket]);
}

struct block *fit_from(const struct fit *f, uint64_t size, trz_addr address)
{
	bool between = is_divided(f, size) && size % CELL;  /* no block has that size: all of the next one follow */
	unsigned bucket = between ? first_bucket(f, size) : bucket_of(f, size, address);
	SPINLOCK_STEP();
	struct block *b = f->root[bucket] ? lower_bound(f->root[bucket], size, address) : NULL;
	return b ? b : first_from(f, bucket + 1);
}

struct block *fit_find(const struct fit *f, uint64_t size)
{
	SPINLOCK_STEP();
	if (size > counter_get(&f->largest))
		return NULL;
	unsigned bucket = first_bucket(f, size);
	if (is_divided(f, size))
		return first_from(f, bucket);
	struct block *b = f->root[bucket] ? lower_bound(f->root[bucket], size, 0) : NULL;
	return b ? b : first_from(f, bucket + 1);
}

struct block *fit_next(const struct fit *f, const struct block *b)
{
	SPINLOCK_STEP();
	if (b->right)
		return leftmost(b->right);
	unsigned bucket = bucket_of(f, b->size, b->address);
	struct block *next = f->root[bucket] == b ? NULL : lower_bound(f->root[bucket], b->size, b->address + 1);
	return next ? next : first_from(f, bucket + 1);
}

/* Walks the whole index in order through its own finger, so that a broken tree is noticed as disorder. */
const char *fit_check(const struct fit *f)
{
	uint64_t bytes = 0, size = 0;
	for (unsigned bucket = 0; bucket < (f->cells ? FIT_CELL_BUCKETS : FIT_BUCKETS); bucket++)
		if (!f->root[bucket] != !(f->used[bucket / 64] >> bucket % 64 & 1))
			return "a bucket's bit does not match whether it is empty";
	for (unsigned word = 0; word < FIT_WORDS; word++)
		if (!f->used[word] != !(f->words >> word & 1))
			return "a word's bit does not match whether it has any";
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
