#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of collectives among the processes of a `terrazzo sim`, with a small C program: no PyTorch, no network."""
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

CLI = os.environ["TERRAZZO_CLI"]
SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
LIBRARIES = Path(os.environ["TRZ_BUILD_DIR"]) / "lib" / "sim"
CC = shlex.split(os.environ.get("CC") or shutil.which("cc") or "gcc")
STANDIN = SOURCE / "lookalike" / "standin"

# argv: ranks, what to do. Rank 0 makes the id and its forked children the other ranks.
PROGRAM = r"""
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
struct id { char bytes[128]; };
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(uint64_t *, size_t), cuMemFree_v2(uint64_t), cuStreamSynchronize(void *), cuStreamQuery(void *);
int cuMemcpyHtoD_v2(uint64_t, const void *, size_t), cuMemcpyDtoH_v2(void *, uint64_t, size_t);
int ncclGetUniqueId(struct id *), ncclCommInitRank(void **, int, struct id, int), ncclCommDestroy(void *);
int ncclCommInitAll(void **, int, const int *);
int ncclCommSplit(void *, int, int, void **, void *), ncclCommShrink(void *, int *, int, void **, void *, int);
int ncclCommAbort(void *), ncclCommGetAsyncError(void *, int *), ncclCommCount(void *, int *);
int ncclCommUserRank(void *, int *), ncclGroupStart(void), ncclGroupEnd(void);
int ncclAllReduce(uint64_t, uint64_t, size_t, int, int, void *, void *);
int ncclBroadcast(uint64_t, uint64_t, size_t, int, int, void *, void *);
int ncclSend(uint64_t, size_t, int, int, void *, void *), ncclRecv(uint64_t, size_t, int, int, void *, void *);
enum { INT32 = 2, SUM = 0, COUNT = 100 };
static int rank, ranks;
static uint64_t memory;
static void *comm;
#define CHECK(x) do { if (!(x)) { fprintf(stderr, "rank %d: %s\n", rank, #x); _exit(7); } } while (0)

static void put(int value)
{
	int32_t data[COUNT];
	for (int i = 0; i < COUNT; i++)
		data[i] = value + i;
	CHECK(cuMemcpyHtoD_v2(memory, data, sizeof data) == 0);
}

static void expect(int value, int step)
{
	int32_t data[COUNT];
	CHECK(cuMemcpyDtoH_v2(data, memory, sizeof data) == 0);
	for (int i = 0; i < COUNT; i++)
		CHECK(data[i] == value + i * step);
}

static void sum_up(void *of, int wanted, int step)
{
	put(rank);
	CHECK(ncclAllReduce(memory, memory, COUNT, INT32, SUM, of, NULL) == 0);
	expect(wanted, step);
}

static void ring(void)
{
	put(rank);
	uint64_t other;
	CHECK(cuMemAlloc_v2(&other, sizeof(int32_t) * COUNT) == 0);
	CHECK(ncclGroupStart() == 0);
	CHECK(ncclSend(memory, COUNT, INT32, (rank + 1) % ranks, comm, NULL) == 0);
	CHECK(ncclRecv(other, COUNT, INT32, (rank + ranks - 1) % ranks, comm, NULL) == 0);
	CHECK(cuStreamQuery(NULL) == 0);  /* nothing has begun */
	CHECK(ncclGroupEnd() == 0);
	CHECK(cuStreamSynchronize(NULL) == 0);
	memory = other;
	expect((rank + ranks - 1) % ranks, 1);
}

static void split(void)
{
	void *half, *less;
	int count, place, last = ranks - 1;
	CHECK(ncclCommSplit(comm, rank % 2, -rank, &half, NULL) == 0);
	ncclCommCount(half, &count);
	ncclCommUserRank(half, &place);
	CHECK(count == (ranks + 1 - rank % 2) / 2 && place == count - 1 - rank / 2);
	int sum = 0;
	for (int r = rank % 2; r < ranks; r += 2)
		sum += r;
	sum_up(half, sum, count);
	CHECK(ncclCommDestroy(half) == 0);
	if (rank == last)
		return;
	CHECK(ncclCommShrink(comm, &last, 1, &less, NULL, 0) == 0);
	sum_up(less, last * (last - 1) / 2, last);
}

static void act(const char *what)
{
	int sum = ranks * (ranks - 1) / 2;
	if (!strcmp(what, "alone")) {
		int count;
		uint64_t other;
		ncclCommCount(comm, &count);
		put(rank);
		CHECK(count == 300 && ncclAllReduce(memory, memory, COUNT, INT32, SUM, comm, NULL) == 0);
		expect(300 * rank, 300);
		put(7);  /* a group of broadcasts with this rank among the roots */
		CHECK(cuMemAlloc_v2(&other, sizeof(int32_t) * COUNT) == 0 && ncclGroupStart() == 0);
		CHECK(ncclBroadcast(memory, memory, COUNT, INT32, rank, comm, NULL) == 0);
		CHECK(ncclBroadcast(other, other, COUNT, INT32, (rank + 1) % ranks, comm, NULL) == 0 && ncclGroupEnd() == 0);
		memory = other;
		expect(7, 1);
	}
	if (!strcmp(what, "sum"))
		for (int i = 0; i < 50; i++)
			sum_up(comm, sum, ranks);
	if (!strcmp(what, "ring"))
		ring();
	if (!strcmp(what, "split"))
		split();
	if (!strcmp(what, "refused")) {
		CHECK(ncclRecv(memory, COUNT, INT32, rank, comm, NULL) == 5);
		CHECK(ncclGroupStart() == 0 && ncclSend(memory, COUNT, INT32, rank, comm, NULL) == 0 && ncclGroupEnd() == 5);
		CHECK(ncclAllReduce(0, memory, COUNT, INT32, SUM, comm, NULL) == 5);
		CHECK(ncclGroupStart() == 0 && ncclSend(memory, COUNT, INT32, rank, comm, NULL) == 0);
		CHECK(ncclRecv(memory, COUNT, INT32, rank, comm, NULL) == 0 && ncclGroupEnd() == 0);
	}
	if (!strcmp(what, "unread") && rank == 0)
		CHECK(ncclSend(memory, COUNT, INT32, 1, comm, NULL) == 0 && cuStreamSynchronize(NULL) == 0);
	if (!strcmp(what, "late") && rank == 1)
		sleep(3);  /* slow is not wrong */
	if (!strcmp(what, "late"))
		sum_up(comm, sum, ranks);
	if (!strcmp(what, "dies") && rank == 1)
		kill(getpid(), SIGKILL);
	if (!strcmp(what, "never") && rank == 1)
		sleep(60);
	if (!strcmp(what, "aborts") && rank == 1) {
		ncclCommAbort(comm);
		sleep(60);
	}
	if (!strcmp(what, "unmapped")) {
		CHECK(ncclAllReduce(memory, memory, COUNT, INT32, SUM, comm, NULL) == 0);
		if (rank == 0)
			return;
		cuMemFree_v2(memory);
	}
	if (!strcmp(what, "dies") || !strcmp(what, "never") || !strcmp(what, "aborts"))
		sum_up(comm, sum, ranks);
}

/* One process, a rank on each device. */
static int all_in_one(int devices)
{
	void *comms[8], *context[8];
	uint64_t buffer[8];
	int32_t data[COUNT] = { 0 };
	CHECK(cuInit(0) == 0 && ncclCommInitAll(comms, devices, NULL) == 0);
	for (int d = 0; d < devices; d++) {
		data[0] = d + 1;
		CHECK(cuDevicePrimaryCtxRetain(&context[d], d) == 0 && cuCtxSetCurrent(context[d]) == 0);
		CHECK(cuMemAlloc_v2(&buffer[d], sizeof data) == 0 && cuMemcpyHtoD_v2(buffer[d], data, sizeof data) == 0);
	}
	CHECK(ncclGroupStart() == 0);
	for (int d = 0; d < devices; d++) {
		CHECK(cuCtxSetCurrent(context[d]) == 0);
		CHECK(ncclAllReduce(buffer[d], buffer[d], COUNT, INT32, SUM, comms[d], NULL) == 0);
	}
	CHECK(ncclGroupEnd() == 0);
	for (int d = 0; d < devices; d++) {
		CHECK(cuCtxSetCurrent(context[d]) == 0 && cuMemcpyDtoH_v2(data, buffer[d], sizeof data) == 0);
		CHECK(data[0] == devices * (devices + 1) / 2 && ncclCommDestroy(comms[d]) == 0);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct id id;
	void *context;
	int status, result = 0;
	CHECK(argc == 3);
	ranks = atoi(argv[1]);
	int devices = ranks;
	if (!strcmp(argv[2], "all"))
		return all_in_one(devices);
	if (getenv("WORLD_SIZE")) {
		rank = atoi(getenv("RANK"));
		ranks = atoi(getenv("WORLD_SIZE"));
		devices = 2;
	}
	CHECK(ncclGetUniqueId(&id) == 0);
	for (int r = 1; r < ranks && rank == 0 && !getenv("WORLD_SIZE"); r++)
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			rank = r;
		}
	CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, rank % devices) == 0 && cuCtxSetCurrent(context) == 0);
	CHECK(cuMemAlloc_v2(&memory, sizeof(int32_t) * COUNT) == 0);
	CHECK(ncclCommInitRank(&comm, ranks, id, rank) == 0);
	act(argv[2]);
	CHECK(ncclCommDestroy(comm) == 0);
	while (rank == 0 && wait(&status) > 0)
		result = result ? result : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return result;
}
"""


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        source, cls.program = Path(cls.folder.name) / "ranks.c", Path(cls.folder.name) / "ranks"
        source.write_text(PROGRAM)
        bodies = [STANDIN / "standin.c", STANDIN / "standin_nccl.c", *sorted(STANDIN.glob("nccl_*.c"))]
        subprocess.run([*CC, "-std=gnu11", "-O1", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-DSTANDIN_MAJOR=2",
                        "-DSTANDIN_MINOR=30", "-DSTANDIN_PATCH=0", f"-I{STANDIN}", "-o", cls.program, source, *bodies,
                        LIBRARIES / "libcuda.so.1", "-lpthread", "-lm", "-Wl,-z,nodelete"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_ranks(self, ranks, what, *options, status=0):
        file = Path(self.folder.name) / "report.json"
        start = time.monotonic()
        done = subprocess.run([CLI, "sim", f"--devices={ranks}", f"--json={file}", *options, "--", self.program,
                               str(ranks), what], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=100, check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        return json.loads(file.read_text()), done.stdout, time.monotonic() - start

    def test_real_bytes_are_summed_up(self):
        for work in ([], ["--work=late", "--seed=3"], ["--work=late", "--schedule=starve"]):
            report = self.run_ranks(3, "sum", *work)[0]
            ranks = sorted((p["rank"], p["ranks"], p["collectives"]["all_reduce"]["calls"])
                           for p in report["processes"])
            self.assertEqual(ranks, [(0, 3, 50), (1, 3, 50), (2, 3, 50)])

    def test_what_nccl_takes_counts_unless_it_is_switched_off(self):
        for what, taken in (("sum", 288), ("ring", 2 * 384)):
            used = [self.run_ranks(4, what, f"--nccl-memory={answer}")[0]["processes"][0]["device_peak_bytes"]
                    for answer in ("yes", "no")]
            self.assertEqual(used[0] - used[1], taken << 20, what)

    def test_a_communicator_without_room_is_refused(self):
        output = self.run_ranks(2, "sum", "--memory=128MiB", status=7)[1]
        self.assertIn("out of memory: 288.00 MiB", output)

    def test_absent_ranks_do_what_this_one_does(self):
        report, output, _ = self.run_ranks(1, "alone", "--world-size=300", "--ranks=0,7,299", "--devices=2")
        self.assertEqual([p["rank"] for p in report["processes"]], [0, 7, 299])
        self.assertEqual(report["world_size"], 300)
        self.assertIn("fullest: rank", output)

    def test_ranks_are_of_the_world(self):
        for options in (["--ranks=0"], ["--world-size=4", "--ranks=4"], ["--world-size=4", "--ranks=x"]):
            done = subprocess.run([CLI, "sim", *options, "--", "true"], stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 2, options)
            self.assertIn("--ranks", done.stderr)

    def test_one_process_has_a_rank_on_each_device(self):
        for options in ([], ["--work=late", "--seed=5"]):
            self.run_ranks(1, "all", *options)
            self.run_ranks(3, "all", *options)

    def test_messages_of_a_group_go_together(self):
        self.run_ranks(4, "ring")
        self.run_ranks(4, "ring", "--work=late")

    def test_communicators_are_split_and_shrunk(self):
        self.run_ranks(4, "split")

    def test_a_slow_rank_is_waited_for(self):
        self.run_ranks(2, "late")

    def test_who_dies_is_named_at_once(self):
        output = self.run_ranks(3, "dies", status=128 + 6)[1]
        self.assertRegex(output, r"rank 1 \(pid \d+\) has ended, for which rank \d of 3 waits in all_reduce of 100")

    def test_who_aborts_is_named(self):
        _, output, seconds = self.run_ranks(2, "aborts", "--timeout=50", status=128 + 6)
        self.assertRegex(output, r"rank 1 \(pid \d+\) has left the communicator, for which rank 0 of 2 waits")

    def test_a_message_to_oneself_takes_a_group_and_a_buffer_an_address(self):
        output = self.run_ranks(2, "refused")[1]
        self.assertIn("recv of 100 int32 from rank 1, which is itself", output)
        self.assertIn("calls all_reduce of 100 int32, sum with a buffer at address 0", output)

    def test_a_message_that_no_one_receives_is_named(self):
        output = self.run_ranks(2, "unread", status=128 + 6)[1]
        self.assertIn("rank 1 has left a communicator of 2 and has not received a message", output)
        self.assertRegex(output, r"rank 0 \(pid \d+\): send of 100 int32 to rank 1")

    def test_a_report_is_told_once(self):
        output = self.run_ranks(2, "dies", status=128 + 6)[1]
        self.assertEqual(output.count("has ended, and others wait for it"), 1, output)
        self.assertNotIn("terrazzo: violation:", output)

    def test_a_timeout_ends_a_wait(self):
        output = self.run_ranks(2, "never", "--timeout=2", status=128 + 6)[1]
        self.assertIn("rank 0 of a communicator of 2 has waited for 2 s (--timeout) in all_reduce of 100 int32", output)

    def test_a_collective_of_freed_memory_is_a_violation(self):
        report = self.run_ranks(2, "unmapped", "--work=late", status=0)[0]
        self.assertEqual(report["violations"], 0)  # a free waits for the device, as a driver's does

    def test_small_bytes_alone_move(self):
        """With no real bytes sums are not made: each rank finds what it had."""
        output = self.run_ranks(2, "sum", "--collective-bytes=0", status=7)[1]
        self.assertIn("data[i] == value", output)


if __name__ == "__main__":
    unittest.main()
