/* SPDX-License-Identifier: Apache-2.0
 *
 * A second process on a simulated machine: the test's program again, started with the machine's descriptor and one end
 * of a socket as its two arguments. First it says the letter 'r'; then it obeys one-letter commands, and answers each
 * with one letter.
 */
#ifndef TRZ_TESTS_PEER_H
#define TRZ_TESTS_PEER_H

#include <sys/types.h>

#include "sim.h"

struct peer {
	pid_t pid;
	int socket;
};

struct peer peer_start(sim *s);

/* Its exit status; -1: a signal ended it. */
int peer_end(struct peer *p);

/* Sends it a letter, and a descriptor unless that is -1; returns its answer. */
char peer_ask(struct peer *p, char letter, int fd);

/* Sends a letter over a socket, with a descriptor unless that is -1; receives one. 0: the other end is closed. */
void peer_say(int socket, char letter, int fd);
char peer_hear(int socket, int *fd);

#endif
