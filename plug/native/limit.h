/* SPDX-License-Identifier: Apache-2.0
 *
 * A limit on the device memory that processes hold together, over all devices: `terrazzo run --limit`. TERRAZZO_LIMIT
 * is "BYTES FILE": FILE is the ledger that the processes share; with "-" each is limited by itself.
 *
 * In the ledger each process has a place that says what it holds. A process that is killed leaves its place behind; a
 * process that is refused clears the places of dead ones. The lock survives its holder's death, and only one word
 * changes under it.
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

/* Takes bytes for this process. false: that is more than is left. */
bool limit_take(uint64_t bytes);

/* Takes bytes even beyond the limit: what the driver has used on top of a request. */
void limit_force(uint64_t bytes);
void limit_give(uint64_t bytes);
uint64_t limit_left(void);

/* What this process holds, and what all others hold; lists up to `most` of the others, those that hold most first, and
 * returns how many. */
struct limit_process {
	int64_t process;
	uint64_t held;
};
unsigned limit_look(uint64_t *own_held, uint64_t *others, struct limit_process *processes, unsigned most);

/* No capture is under way: what broken ones have allocated counts no more. limit_graphs.c. */
void limit_captures_over(void);

/* In the child of a fork: what the parent holds, or is about to, is not its own. limit_held.c, limit_graphs.c,
 * limit_calls.c. */
void limit_forget_held(void);
void limit_forget_captured(void);
void limit_forget_opening(void);

/* The context has ended, and with it the memory that was allocated there. limit_held.c. */
void limit_end_context(const void *context);

/* Tells the process's heaps of the limit. limit_told.c. */
void limit_tell_heaps(void);

#endif
