/* SPDX-License-Identifier: Apache-2.0
 *
 * The other side of alloc/api/answer.c.
 */
#include "live.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "answer_words.h"
#include "error.h"

enum { WAIT_S = 5, LAST_DEVICE = ANSWER_ANY_DEVICE - 1 };

int live_process(const char *word)
{
	char *end;
	long number = strtol(word, &end, 10);
	return *word >= '1' && *word <= '9' && !*end && number <= 1 << 30 ? (int)number : 0;
}

/* Whether the peer is the process, run by its owner or by root: another could have taken the name to answer for it. */
static bool is_process(int socket, int process, const struct stat *entry)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid == process &&
	       (peer.uid == entry->st_uid || peer.uid == 0);
}

static trz_status copy(int from, int process, FILE *to)
{
	char text[4096];
	size_t all = 0;
	ssize_t got;
	while ((got = recv(from, text, sizeof text, 0)) > 0 || (got < 0 && errno == EINTR)) {
		if (got > 0 && fwrite(text, 1, (size_t)got, to) != (size_t)got)
			return trz_fail(TRZ_ERROR_IO, "the report cannot be written");
		all += got > 0 ? (size_t)got : 0;
	}
	if (got < 0)
		return trz_fail(TRZ_NOT_READY, "process %d has not answered in %d s: its heap may wait for the driver", process,
		                WAIT_S);
	return all ? TRZ_OK : trz_fail(TRZ_ERROR_NOT_SUPPORTED, "process %d has answered nothing: it has no such heap, or "
	                               "it is another user's", process);
}

static trz_status ask(int socket, int process, int mode, int device, const struct stat *entry, FILE *to)
{
	struct sockaddr_un address;
	const struct timeval wait = {.tv_sec = WAIT_S};
	const unsigned char words[2] = {(unsigned char)mode, (unsigned char)(device < 0 ? ANSWER_ANY_DEVICE : device)};
	socklen_t length = answer_address(process, &address);
	setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
	setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
	if (connect(socket, (struct sockaddr *)&address, length) != 0)
		return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "process %d answers no questions: it has to be started with "
		                "TERRAZZO_CONF=answer:on, and to be asked in its own network namespace", process);
	if (!is_process(socket, process, entry))
		return trz_fail(TRZ_ERROR_NOT_SUPPORTED, "another process answers for process %d: it is not asked", process);
	if (send(socket, words, sizeof words, MSG_NOSIGNAL) != (ssize_t)sizeof words)
		return trz_fail(TRZ_ERROR_IO, "process %d cannot be asked: %s", process, strerror(errno));
	return copy(socket, process, to);
}

trz_status live_report(int process, int mode, int device, FILE *to)
{
	char path[32];
	struct stat entry;
	snprintf(path, sizeof path, "/proc/%d", process);
	if (stat(path, &entry) != 0)
		return trz_fail(TRZ_ERROR_NOT_FOUND, "there is neither a file nor a process %d", process);
	if (device > LAST_DEVICE)
		return trz_fail(TRZ_ERROR_NOT_FOUND, "process %d has no heap on device %d: it is asked about devices 0 to %d",
		                process, device, LAST_DEVICE);
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		return trz_fail(TRZ_ERROR_IO, "no socket: %s", strerror(errno));
	trz_status status = ask(s, process, mode, device, &entry, to);
	close(s);
	return status;
}
