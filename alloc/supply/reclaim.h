/* SPDX-License-Identifier: Apache-2.0
 *
 * Getting at memory that the heap has but does not use: wholly free tiles, to be moved or returned to the
 * driver. All need the growth lock and call the driver.
 */
#ifndef TRZ_ALLOC_RECLAIM_H
#define TRZ_ALLOC_RECLAIM_H

#include "heap/heap.h"

/* What reclaim_find_locked may choose from. */
enum {
	FIND_SPARE = 1,       /* no more of another lane's large memory than it can lend */
	FIND_PASSED = 2,      /* no tile that has yet to pass */
	FIND_EVERYWHERE = 4   /* tiles of the other private pools as well */
};

/* Fills h->candidates with the wholly free tiles of a kind that `l` may have: its stream's own, and others' whose
 * tickets have passed, of the default pool and its own; with l NULL all that have passed. No pinned pool's are among
 * them. *poll_helps: some tile, found or left out, has not passed. Returns how many; SIZE_MAX: the host has no
 * memory. */
size_t reclaim_find_locked(trz_heap *h, const struct lane *l, enum kind kind, unsigned how, bool *poll_helps);

/* The candidate of a tile, among the first n; NULL: it is none. */
const struct candidate *reclaim_candidate(const trz_heap *h, const struct tile *tile, size_t n);

/* Makes room for n entries in h->lay_list and h->moved, keeping what they hold. false: no host memory. */
bool reclaim_lists(trz_heap *h, size_t n);

/* Tiles being cut out of their free blocks. Those that follow each other and lie side by side are cut out as one. */
struct cutting {
	struct block *block;         /* the block that the part begun lies in; NULL: none has been begun */
	trz_addr begin, end;         /* of that part */
	size_t count;                /* blocks that have been cut, in h->moved */
};

/* Adds a candidate's tile. Two nodes and an entry of h->moved have been reserved. Candidates found under one hold of
 * the heap lock can be cut in any order while it lasts. */
void reclaim_cut_locked(trz_heap *h, struct cutting *cut, const struct candidate *c);

/* Cuts out the part that has been begun, if there is one. */
void reclaim_cut_rest_locked(trz_heap *h, struct cutting *cut);

/* Unmaps a tile everywhere and releases it; if the driver refuses the release, the tile becomes a zombie. Its bytes
 * leave `reserved`, or count as `zombie`. false: the driver refused to unmap it where it is owned, and it is still good
 * there. */
bool reclaim_destroy_tile(trz_heap *h, struct tile *tile, trz_status *status);

/* Makes a tile that has no owner any more a zombie. */
void reclaim_make_zombie(trz_heap *h, struct tile *tile);

/* Tries the zombies again. */
void reclaim_retry_zombies(trz_heap *h);

/* Returns free dedicated memory that has passed to the driver, to make room under the limit for `bytes`: that much,
 * plus what is reserved beyond the limit, as far as there is so much. Returns how many bytes went. */
uint64_t reclaim_dedicated(trz_heap *h, uint64_t bytes);

/* How much reclaim_dedicated could return. */
uint64_t reclaim_dedicated_bytes_locked(const trz_heap *h);

/* Returns memory that serves once (DEDICATED_ONCE) and whose allocation has been freed and has passed. */
void reclaim_spent(trz_heap *h);

/* Returns free memory to the driver until at most `keep` bytes are reserved. */
trz_status reclaim_trim(trz_heap *h, uint64_t keep, uint64_t *released);

/* The same for one kind of memory, without asking how far the streams are. */
trz_status reclaim_trim_kind(trz_heap *h, enum kind kind, uint64_t keep, uint64_t *returned);

/* If there are more stale aliases than a bound, unmaps up to `most` of those whose last use there has passed, beginning
 * where the last call ended: so what growth adds goes again a little at a time. */
void reclaim_aliases(trz_heap *h, size_t most);

/* Unmaps all stale aliases whose last uses are known to have passed. */
void reclaim_all_aliases(trz_heap *h);

/* Gives back old windows in which nothing is mapped. */
void reclaim_windows(trz_heap *h);

/* Waits for the streams and returns everything: tiles, those with live blocks too, windows, events. The heap is then
 * empty. If it could not wait, all stays with the driver. */
trz_status reclaim_everything(trz_heap *h);

#endif
