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

/* The first buckets hold one size each; then there are 1 << FIT_SUB_BITS per doubling. Monotone in size. */
static inline unsigned bucket_of(uint64_t size)
{
	uint64_t units = size / UNIT;
	if (units < 1u << FIT_SUB_BITS)
		return (unsigned)units;
	unsigned shift = log2_floor(units) - FIT_SUB_BITS;
	unsigned bucket = (shift << FIT_SUB_BITS) + (unsigned)(units >> shift);
	return bucket < FIT_BUCKETS ? bucket : FIT_BUCKETS - 1;
}

/* One comparison of 128 bits, without a branch: no processor predicts which way a descent turns, and a misprediction
 * costs more than the rest of the step. */
static inline bool before(const struct block *a, uint64_t size, trz_addr address)
{
	return ((unsigned __int128)a->size << 64 | a->address) < ((unsigned __int128)size << 64 | address);
}

void fit_init(struct fit *f, struct level *cached, struct block **root)
{
	*f = (struct fit){.cached = cached, .root = root};
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
	while (b->child[LEFT])
		b = b->child[LEFT];
	return b;
}

/* The first block of a tree that is not before (size, address). */
static struct block *lower_bound(struct block *tree, uint64_t size, trz_addr address)
{
	struct block *found = NULL;
	while (tree) {
		size_t side = before(tree, size, address);
		found = side == RIGHT ? found : tree;
		tree = tree->child[side];
	}
	return found;
}

static uint64_t find_largest(const struct fit *f)
{
	if (!f->words)
		return 0;
	unsigned word = log2_floor(f->words);
	struct block *b = f->root[word * 64 + log2_floor(f->used[word])];
	while (b->child[RIGHT])
		b = b->child[RIGHT];
	return b->size;
}

/* ---- the trees ---- */

/* Splits `tree`, which hung where `b` hangs now, into the two children of `b`. */
static NOINLINE void split_below(struct block *b, struct block *tree)
{
	struct block *up[2] = {b, b}, **link[2] = {&b->child[LEFT], &b->child[RIGHT]};
	while (tree) {
		size_t side = !before(tree, b->size, b->address);
		*link[side] = tree;
		tree->up = up[side];
		up[side] = tree;
		link[side] = &tree->child[!side];
		tree = *link[side];
	}
	*link[LEFT] = *link[RIGHT] = NULL;
}

static inline void tree_insert(struct block **root, struct block *b)
{
	struct block **link = root, *up = NULL, *tree = *link;
	while (tree && tree->priority >= b->priority) {
		up = tree;
		link = &tree->child[(size_t)before(tree, b->size, b->address)];
		tree = *link;
	}
	*link = b;
	b->up = up;
	b->child[LEFT] = b->child[RIGHT] = NULL;
	if (tree)
		split_below(b, tree);
}

/* Merges the children of `b` and puts them in its place. */
static inline void tree_remove(struct block **root, const struct block *b)
{
	struct block *up = b->up, *left = b->child[LEFT], *right = b->child[RIGHT];
	struct block **link = up ? &up->child[up->child[RIGHT] == b ? RIGHT : LEFT] : root;
	while (left && right) {
		bool from_left = left->priority >= right->priority;
		*link = from_left ? left : right;
		(*link)->up = up;
		up = *link;
		link = &up->child[from_left ? RIGHT : LEFT];
		left = from_left ? *link : left;
		right = from_left ? right : *link;
	}
	*link = left ? left : right;
	if (*link)
		(*link)->up = up;
}

/* ---- the index ---- */

void fit_insert(struct fit *f, struct block *b)
{
	assert(b->state == BLOCK_FREE && b->size > 0);
	unsigned bucket = bucket_of(b->size);
	SPINLOCK_STEP();
	b->priority = (uint32_t)prng_mix(b->address);
	b->bucket = (uint16_t)bucket;
	b->tileless = false;
	tree_insert(&f->root[bucket], b);
	mark_used(f, bucket);
	f->bytes += b->size;
	counter_raise(&f->largest, b->size);
	level_add(f->cached, b->size);
}

void fit_remove(struct fit *f, struct block *b)
{
	assert(b->state == BLOCK_FREE && f->bytes >= b->size);
	unsigned bucket = b->bucket;
	SPINLOCK_STEP();
	tree_remove(&f->root[bucket], b);
	if (!f->root[bucket])
		mark_unused(f, bucket);
	f->bytes -= b->size;
	if (b->size == counter_get(&f->largest))
		counter_set(&f->largest, find_largest(f));
	level_sub(f->cached, b->size);
}

/* The smallest block in this bucket and those above. */
static inline struct block *first_from(const struct fit *f, unsigned bucket)
{
	bucket = next_used(f, bucket);
	return bucket == NO_BUCKET ? NULL : leftmost(f->root[bucket]);
}

struct block *fit_from(const struct fit *f, uint64_t size, trz_addr address)
{
	unsigned bucket = bucket_of(size);
	SPINLOCK_STEP();
	struct block *b = lower_bound(f->root[bucket], size, address);
	return b ? b : first_from(f, bucket + 1);
}

struct block *fit_find(const struct fit *f, uint64_t size)
{
	return size > counter_get(&f->largest) ? NULL : fit_from(f, size, 0);
}

struct block *fit_next(const struct fit *f, const struct block *b)
{
	SPINLOCK_STEP();
	if (b->child[RIGHT])
		return leftmost(b->child[RIGHT]);
	while (b->up && b->up->child[RIGHT] == b)
		b = b->up;
	return b->up ? b->up : first_from(f, b->bucket + 1u);
}

/* Most words are of empty buckets, and a heap of many lanes has many of them. */
static bool word_matches(const struct fit *f, unsigned word)
{
	static struct block *const none[64];
	struct block *const *root = &f->root[64 * word];
	if (!f->used[word])
		return memcmp(root, none, sizeof none) == 0;
	for (unsigned i = 0; i < 64; i++)
		if (!root[i] != !(f->used[word] >> i & 1))
			return false;
	return true;
}

/* Walks the whole index as fit_next does, so that a broken tree shows as blocks out of order. */
const char *fit_check(const struct fit *f)
{
	uint64_t bytes = 0, size = 0;
	for (unsigned word = 0; word < FIT_WORDS; word++) {
		if (!word_matches(f, word))
			return "a bucket's bit does not match whether it is empty";
		if (!f->used[word] != !(f->words >> word & 1))
			return "a word's bit does not match whether it has any";
	}
	for (const struct block *b = fit_find(f, 0); b; b = fit_next(f, b)) {
		if (b->state != BLOCK_FREE)
			return "a block in the index is not free";
		if (b->size < size || b->bucket != bucket_of(b->size))
			return "the index is out of order";
		size = b->size;
		bytes += size;
	}
	if (bytes != f->bytes)
		return "the index's byte count is not the sum of its blocks";
	return size == counter_get(&f->largest) ? NULL : "the index's largest block is not its largest";
}
