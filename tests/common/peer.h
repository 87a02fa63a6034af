/* SPDX-License-Identifier: Apache-2.0
 *
 * A second process on a simulated machine: the test's program again, started with the machine's descriptor and one
 * end of a socket as its two arguments. It obeys commands of one letter and answers each with one; it
 * begins with the letter 'r'.
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

/* Its exit status, or -1 where a signal ended it. */
int peer_end(struct peer *p);

/* Tells it a letter, and a descriptor with it unless that is -1; returns its answer. */
char peer_ask(struct peer *p, char letter, int fd);

/* One letter on a socket, with a descriptor unless that is -1; and the other side. 0: nobody is there any more. */
void peer_say(int socket, char letter, int fd);
char peer_hear(int socket, int *fd);

#endif
