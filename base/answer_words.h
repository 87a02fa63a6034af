/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process and `terrazzo explain PID` say to each other (alloc/api/answer.h).
 */
#ifndef TRZ_BASE_ANSWER_WORDS_H
#define TRZ_BASE_ANSWER_WORDS_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	ANSWER_TEXT = 't',         /* the reports on all heaps */
	ANSWER_JSON = 'j',         /* the object of the heap with the most memory, of one device or of any */
	ANSWER_ANY_DEVICE = 255
};

/* The abstract address of a process; returns its length. */
static inline socklen_t answer_address(int pid, struct sockaddr_un *address)
{
	memset(address, 0, sizeof *address);
	address->sun_family = AF_UNIX;
	int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "terrazzo-%d", pid);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

#endif
