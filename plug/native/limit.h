/* SPDX-License-Identifier: Apache-2.0
 *
 * A limit of the device memory that processes hold together, over all devices: `terrazzo run --limit`. TERRAZZO_LIMIT
 * is "BYTES FILE": FILE is the ledger that the processes share, "-" where each is limited by itself.
 *
 * In the ledger each process has a place with what it holds. A process that is killed leaves its place behind; who is
 * refused clears those of the dead. The lock survives a holder's death, and only one word changes under it.
 */
#ifndef TRZ_LIMIT_H
#define TRZ_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Constant once limit_begin has returned. */
extern bool limit_on;
extern uint64_t limit_bytes;

/* Reads the environment, once. If the ledger cannot be opened, the process is limited by itself, and says so. */
void limit_begin(void);

/* Takes so much for this process. false: it would be more than is left. */
bool limit_take(uint64_t bytes);

/* Takes it without asking: what the driver has used on top of a request. */
void limit_force(uint64_t bytes);
void limit_give(uint64_t bytes);
uint64_t limit_left(void);

/* What this process holds; what all others do; and of those the `most` that hold most, the most first. */
struct limit_process {
	int64_t process;
	uint64_t held;
};
unsigned limit_look(uint64_t *own_held, uint64_t *others, struct limit_process *processes, unsigned most);

/* Tells the heaps of the process of the limit. limit_told.c. */
void limit_tell_heaps(void);

#endif
