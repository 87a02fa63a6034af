/* SPDX-License-Identifier: Apache-2.0
 *
 * How tests plant bugs in simulated worlds, and what the worlds say.
 */
#ifndef TRZ_TESTS_PLANTED_H
#define TRZ_TESTS_PLANTED_H

#include "world.h"

/* Plays worlds of a kind in `w` until one notices something; NULL: none of `most` has. `spoil` changes the heap's
 * driver; `plant` does something to the heap before each event. */
const char *planted_noticed(struct world *w, void (*spoil)(trz_driver *driver), bool (*fit)(void), void (*plant)(void),
                            int most);

/* The seed of the first world: 1, unless few worlds notice a bug and it takes long to come to one that does. */
extern uint64_t planted_first;

/* A `spoil`: what `planted_before_question` does to the heap comes before each of its questions about captures. */
extern void (*planted_before_question)(void);
void planted_ask(trz_driver *driver);

#endif
