/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts the other process, and talks to it.
 */
#include "peer.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

void peer_say(int socket, char letter, int fd)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec text = {.iov_base = &letter, .iov_len = 1};
	struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1};
	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof control.space;
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	}
	assert_int_equal(sendmsg(socket, &message, 0), 1);
}

char peer_hear(int socket, int *fd)
{
	char letter = 0;
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec text = {.iov_base = &letter, .iov_len = 1};
	struct msghdr message = {
		.msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space,
	};
	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1)
		return 0;
	if (fd && message.msg_controllen >= CMSG_LEN(sizeof *fd))
		memcpy(fd, CMSG_DATA(&control.header), sizeof *fd);
	return letter;
}

struct peer peer_start(sim *s)
{
	int ends[2], machine = sim_machine_fd(s);
	char first[16], second[16];
	assert_true(machine >= 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	snprintf(first, sizeof first, "%d", machine);
	snprintf(second, sizeof second, "%d", ends[1]);
	struct peer peer = {.pid = fork(), .socket = ends[0]};
	if (peer.pid == 0) {
		fcntl(machine, F_SETFD, 0);
		close(ends[0]);
		execl("/proc/self/exe", "peer", first, second, (char *)NULL);
		_exit(127);
	}
	assert_true(peer.pid > 0);
	close(machine);
	close(ends[1]);
	assert_int_equal(peer_hear(peer.socket, NULL), 'r');
	return peer;
}

char peer_ask(struct peer *p, char letter, int fd)
{
	peer_say(p->socket, letter, fd);
	return peer_hear(p->socket, NULL);
}

int peer_end(struct peer *p)
{
	int status = 0;
	close(p->socket);
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
