/* SPDX-License-Identifier: Apache-2.0
 *
 * The best-fit index: the free blocks of one lane and kind, found by size. Sizes fall into buckets, 64 per doubling
 * (linear below 32 KiB), so that a bucket rarely holds more than a few blocks; each bucket is a treap ordered by
 * (size, address), and a bitmap says which buckets hold anything. The smallest block that is large enough, lowest
 * address first, is found in the request's own bucket or is the first of the next bucket that is not empty: O(log n)
 * expected, with n the blocks of one bucket.
 *
 * Treap: Seidel and Aragon, Randomized search trees, 1996; priorities are a hash of the address, so that a run
 * repeats exactly. Guarded by the heap lock.
 */
#ifndef TRZ_ALLOC_FIT_H
#define TRZ_ALLOC_FIT_H

#include "counters.h"
#include "memory/block.h"

/* Blocks of 2^(FIT_SIZE_BITS + 1) bytes, 512 GiB, and more share the last bucket. */
enum {
	FIT_SUB_BITS = 6,
	FIT_SIZE_BITS = 38,
	FIT_BUCKETS = (FIT_SIZE_BITS - 9 - FIT_SUB_BITS + 2) << FIT_SUB_BITS,
	FIT_WORDS = FIT_BUCKETS / 64
};

_Static_assert(FIT_WORDS <= 64 && FIT_BUCKETS % 64 == 0, "one word says which words of `used` have a bit");

/* Invariants: bit b of `used` is set exactly when root[b] is not NULL, bit w of `words` when used[w] has one; `bytes`
 * is the sum of the blocks' sizes; `largest` is the largest block's size, 0 without one. */
struct fit {
	struct level *cached;        /* the heap's statistic of free bytes, which changes with `bytes` */
	uint64_t bytes;
	counter largest;             /* read without a lock */
	struct block **root;         /* const: [FIT_BUCKETS] */
	uint64_t words;
	uint64_t used[FIT_WORDS];
};

/* `root` is where the trees are kept: [FIT_BUCKETS], all NULL. */
void fit_init(struct fit *f, struct level *cached, struct block **root);

/* `b` is free; it must be in no index to be inserted, in this one to be removed. */
void fit_insert(struct fit *f, struct block *b);
void fit_remove(struct fit *f, struct block *b);

/* The smallest block of at least `size` bytes, of those the one with the lowest address; NULL: none. */
struct block *fit_find(const struct fit *f, uint64_t size);

/* The first block that is not before (size, address) in the order of a walk; NULL: none. */
struct block *fit_from(const struct fit *f, uint64_t size, trz_addr address);

/* Walks the blocks of at least `size` bytes in ascending order: the one after `b`, which is in the index. */
struct block *fit_next(const struct fit *f, const struct block *b);

/* Checks the invariants; returns the text of the one that does not hold, or NULL. */
const char *fit_check(const struct fit *f);

#endif
