#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of collectives among the processes of a `terrazzo sim`, with a small C program: no PyTorch, no network."""
import json
import os
import re
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

# argv: ranks, what to do. Rank 0 makes the id and its forked children the other ranks; with ID, a file for the id, each
# rank is a process that was started as RANK of WORLD_SIZE, on device LOCAL_RANK.
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
int cuStreamCreate(void **, unsigned), cuStreamBeginCapture_v2(void *, int), cuStreamEndCapture(void *, void **);
int cuEventCreate(void **, unsigned), cuEventRecord(void *, void *), cuStreamWaitEvent(void *, void *, unsigned);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long), cuGraphLaunch(void *, void *);
int cuGraphDestroy(void *), cuGraphExecDestroy(void *);
int ncclGetUniqueId(struct id *), ncclCommInitRank(void **, int, struct id, int), ncclCommDestroy(void *);
int ncclCommInitAll(void **, int, const int *);
int ncclCommSplit(void *, int, int, void **, void *), ncclCommShrink(void *, int *, int, void **, void *, int);
int ncclCommGetUniqueId(void *, struct id *), ncclCommGrow(void *, int, const struct id *, int, void **, void *);
int ncclCommSuspend(void *, int), ncclCommResume(void *), ncclCommMemStats(void *, int, uint64_t *);
int ncclCommRevoke(void *, int), ncclRedOpCreatePreMulSum(int *, void *, int, int, void *);
int ncclCommAbort(void *), ncclCommGetAsyncError(void *, int *), ncclCommCount(void *, int *);
int ncclCommUserRank(void *, int *), ncclGroupStart(void), ncclGroupEnd(void);
int ncclAllReduce(uint64_t, uint64_t, size_t, int, int, void *, void *);
int ncclBroadcast(uint64_t, uint64_t, size_t, int, int, void *, void *);
int ncclSend(uint64_t, size_t, int, int, void *, void *), ncclRecv(uint64_t, size_t, int, int, void *, void *);
enum { UINT8 = 1, INT32 = 2, SUM = 0, COUNT = 100 };
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

/* Takes so many MiB in the first rank, as many more in each further one, and meets the others. */
static void fill(int mib)
{
	uint64_t block;
	for (int i = 0; i < mib * (rank + 1); i += 16)
		if (cuMemAlloc_v2(&block, 16 << 20) != 0)
			_exit(1);
	sum_up(comm, ranks * (ranks - 1) / 2, ranks);
}

static void grown(void)
{
	void *less = NULL, *more;
	struct id id;
	int last = ranks - 1;
	if (rank != last)
		CHECK(ncclCommShrink(comm, &last, 1, &less, NULL, 0) == 0);
	if (rank == 0)
		CHECK(ncclCommGetUniqueId(less, &id) == 0 && cuMemcpyHtoD_v2(memory, &id, sizeof id) == 0);
	CHECK(ncclBroadcast(memory, memory, sizeof id, UINT8, 0, comm, NULL) == 0);
	CHECK(cuMemcpyDtoH_v2(&id, memory, sizeof id) == 0);
	CHECK(ncclCommGrow(less, ranks, rank && less ? NULL : &id, less ? -1 : last, &more, NULL) == 0);
	sum_up(more, ranks * last / 2, ranks);
}

static void suspended(void)
{
	uint64_t before, now;
	CHECK(ncclCommMemStats(comm, 3, &before) == 0 && before > 0);
	CHECK(ncclCommSuspend(comm, 1) == 0 && ncclCommMemStats(comm, 3, &now) == 0 && now == 0);
	CHECK(ncclCommMemStats(comm, 1, &now) == 0 && now == 1 && ncclCommSuspend(comm, 1) == 5);
	CHECK(ncclAllReduce(memory, memory, COUNT, INT32, SUM, comm, NULL) == 5);
	CHECK(ncclCommResume(comm) == 0 && ncclCommMemStats(comm, 3, &now) == 0 && now == before);
}

/* Rank 0 does not wait for the others any longer, who have yet to leave; all of them meet in another communicator. */
static void revoked(void)
{
	void *other, *again;
	CHECK(ncclCommSplit(comm, 0, rank, &other, NULL) == 0);
	if (rank == 0) {
		CHECK(ncclAllReduce(memory, memory, COUNT, INT32, SUM, comm, NULL) == 0);
		CHECK(ncclCommRevoke(comm, 0) == 0 && cuStreamSynchronize(NULL) == 0);
	}
	sum_up(other, ranks * (ranks - 1) / 2, ranks);
	if (rank != 0)
		CHECK(ncclCommRevoke(comm, 0) == 0);
	CHECK(ncclAllReduce(memory, memory, COUNT, INT32, SUM, comm, NULL) == 5);
	CHECK(ncclCommShrink(comm, NULL, 0, &again, NULL, 0) == 0);
	sum_up(again, ranks * (ranks - 1) / 2, ranks);
}

/* The factor counts that lies on the device when the stream gets there. */
static void scaled(void)
{
	uint64_t factor;
	int operation;
	int32_t three = 3;
	CHECK(cuMemAlloc_v2(&factor, sizeof three) == 0);
	CHECK(ncclRedOpCreatePreMulSum(&operation, (void *)(uintptr_t)factor, INT32, 0, comm) == 0);
	CHECK(cuMemcpyHtoD_v2(factor, &three, sizeof three) == 0);
	put(rank);
	CHECK(ncclAllReduce(memory, memory, COUNT, INT32, operation, comm, NULL) == 0);
	expect(3 * ranks * (ranks - 1) / 2, 3 * ranks);
}

/* A read of so few bytes gives what the host has sent and a collective has only passed on. */
static void passed_on(void)
{
	int32_t data = -1;
	put(40 + rank);
	CHECK(ncclBroadcast(memory, memory + 4, 1, INT32, 0, comm, NULL) == 0);
	CHECK(cuMemcpyDtoH_v2(&data, memory + 4, sizeof data) == 0 && data == 40);
}

static void *stream, *branch;

static void begin_capture(void)
{
	CHECK(cuStreamCreate(&stream, 1) == 0 && cuStreamCreate(&branch, 1) == 0);
	CHECK(cuStreamBeginCapture_v2(stream, 2) == 0);
}

static void *end_capture(void)
{
	void *graph, *instance;
	CHECK(cuStreamEndCapture(stream, &graph) == 0 && cuGraphInstantiateWithFlags(&instance, graph, 0) == 0);
	CHECK(cuGraphDestroy(graph) == 0);
	return instance;
}

/* What comes next on `to` follows all of `from`. */
static void follow(void *to, void *from)
{
	void *event;
	CHECK(cuEventCreate(&event, 2) == 0 && cuEventRecord(event, from) == 0 && cuStreamWaitEvent(to, event, 0) == 0);
}

/* A sum, a ring of messages and a sum on a branch, between collectives that no graph has; launched three times. */
static void captured(void)
{
	uint64_t sum, got, bytes = sizeof(int32_t) * COUNT;
	int before = (rank + ranks - 1) % ranks, all = ranks * (ranks - 1) / 2;
	uint64_t own = memory;
	CHECK(cuMemAlloc_v2(&sum, bytes) == 0 && cuMemAlloc_v2(&got, bytes) == 0);
	begin_capture();
	follow(branch, stream);
	CHECK(ncclAllReduce(own, sum, COUNT, INT32, SUM, comm, branch) == 0);
	CHECK(ncclGroupStart() == 0 && ncclSend(own, COUNT, INT32, (rank + 1) % ranks, comm, stream) == 0);
	CHECK(ncclRecv(got, COUNT, INT32, before, comm, stream) == 0 && ncclGroupEnd() == 0);
	CHECK(ncclAllReduce(got, got, COUNT, INT32, SUM, comm, stream) == 0);
	follow(stream, branch);
	void *graph = end_capture();
	for (int i = 1; i < 4; i++) {
		put(i * 10 + rank);
		CHECK(cuGraphLaunch(graph, stream) == 0);
		CHECK(ncclAllReduce(sum, sum, COUNT, INT32, SUM, comm, stream) == 0);
		CHECK(cuStreamSynchronize(stream) == 0);
		memory = got;
		expect(ranks * i * 10 + all, ranks);
		memory = sum;
		expect(ranks * (ranks * i * 10 + all), ranks * ranks);
		memory = own;
	}
	CHECK(cuGraphExecDestroy(graph) == 0);
}

/* Ranks that launch the graph, or something else at its place, or no more, or after the end of the communicator. */
static void launch(const char *what)
{
	begin_capture();
	CHECK(ncclAllReduce(memory, memory, COUNT, INT32, SUM, comm, stream) == 0);
	void *graph = end_capture();
	CHECK(cuGraphLaunch(graph, stream) == 0 && cuStreamSynchronize(stream) == 0);
	if (!strcmp(what, "other") && rank == 1)
		CHECK(ncclBroadcast(memory, memory, COUNT, INT32, 0, comm, stream) == 0);
	else if (!strcmp(what, "ends") && ncclCommDestroy(comm) == 0)
		cuGraphLaunch(graph, stream);
	else if (rank == 0 || strcmp(what, "once"))
		CHECK(cuGraphLaunch(graph, stream) == 0);
	CHECK(cuStreamSynchronize(stream) == 0);
}

/* Two communicators' graphs, on one stream, in another order on each rank. */
static void cross(void)
{
	void *graph[2], *comms[2] = { comm };
	CHECK(ncclCommSplit(comm, 0, rank, &comms[1], NULL) == 0);
	for (int i = 0; i < 2; i++) {
		begin_capture();
		CHECK(ncclAllReduce(memory, memory, COUNT, INT32, SUM, comms[i], stream) == 0);
		graph[i] = end_capture();
	}
	CHECK(cuGraphLaunch(graph[rank], stream) == 0 && cuGraphLaunch(graph[!rank], stream) == 0);
	CHECK(cuStreamSynchronize(stream) == 0);
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
	if (!strncmp(what, "fill", 4))
		fill(atoi(what + 4));
	if (!strcmp(what, "ring"))
		ring();
	if (!strcmp(what, "split"))
		split();
	if (!strcmp(what, "grow"))
		grown();
	if (!strcmp(what, "suspend")) {
		sum_up(comm, sum, ranks);
		suspended();
		sum_up(comm, sum, ranks);
	}
	if (!strcmp(what, "revoke"))
		revoked();
	if (!strcmp(what, "scale"))
		scaled();
	if (!strcmp(what, "graph"))
		captured();
	if (!strncmp(what, "launch-", 7))
		launch(what + 7);
	if (!strcmp(what, "cross"))
		cross();
	if (!strcmp(what, "passed_on"))
		passed_on();
	if (!strcmp(what, "refused")) {
		CHECK(ncclRecv(memory, COUNT, INT32, rank, comm, NULL) == 5);
		CHECK(ncclGroupStart() == 0 && ncclSend(memory, COUNT, INT32, rank, comm, NULL) == 0 && ncclGroupEnd() == 5);
		CHECK(ncclAllReduce(0, memory, COUNT, INT32, SUM, comm, NULL) == 5);
		CHECK(ncclGroupStart() == 0 && ncclSend(memory, COUNT, INT32, rank, comm, NULL) == 0);
		CHECK(ncclRecv(memory, COUNT, INT32, rank, comm, NULL) == 0 && ncclGroupEnd() == 0);
	}
	if (!strcmp(what, "unread") && rank == 0)
		CHECK(ncclSend(memory, COUNT, INT32, 1, comm, NULL) == 0 && cuStreamSynchronize(NULL) == 0);
	if (!strcmp(what, "helped") && fork() == 0) {
		execl("/proc/self/exe", "helper", "1", "looks", NULL);
		_exit(7);
	}
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

/* The id that rank 0 has made, by a file. */
static void share_id(struct id *id, const char *path)
{
	char made[300];
	snprintf(made, sizeof made, "%s.new", path);
	FILE *f = fopen(rank == 0 ? made : path, rank == 0 ? "w" : "r");
	for (; !f; f = fopen(path, "r"))
		usleep(1000);
	if (rank == 0)
		CHECK(fwrite(id, sizeof *id, 1, f) == 1 && fclose(f) == 0 && rename(made, path) == 0);
	else
		CHECK(fread(id, sizeof *id, 1, f) == 1 && fclose(f) == 0);
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
	if (!strcmp(argv[2], "looks"))
		return cuInit(0);
	if (getenv("WORLD_SIZE")) {
		rank = atoi(getenv("RANK"));
		ranks = atoi(getenv("WORLD_SIZE"));
		devices = 2;
	}
	CHECK(ncclGetUniqueId(&id) == 0);
	if (getenv("ID"))
		share_id(&id, getenv("ID"));
	for (int r = 1; r < ranks && rank == 0 && !getenv("WORLD_SIZE"); r++)
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			rank = r;
		}
	int device = getenv("ID") ? atoi(getenv("LOCAL_RANK")) : rank % devices;
	CHECK(cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, device) == 0 && cuCtxSetCurrent(context) == 0);
	CHECK(cuMemAlloc_v2(&memory, sizeof(int32_t) * COUNT) == 0);
	CHECK(ncclCommInitRank(&comm, ranks, id, rank) == 0);
	act(argv[2]);
	CHECK(ncclCommDestroy(comm) == 0);
	while ((rank == 0 || !strcmp(argv[2], "helped")) && wait(&status) > 0)
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
        numbers = dict(MAJOR=2, MINOR=30, PATCH=0, NOT_INITIALIZED=4, INVALID_VALUE=4, EXECUTION_FAILED=1)
        subprocess.run([*CC, "-std=gnu11", "-O1", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
                        *(f"-DSTANDIN_{name}={value}" for name, value in numbers.items()), f"-I{STANDIN}",
                        "-o", cls.program, source, *bodies, LIBRARIES / "libcuda.so.1", "-lpthread", "-lm",
                        "-Wl,-z,nodelete"], check=True)

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

    def launch(self, what, ranks, world, options, status=0):
        """Runs the program by a shell that starts ranks with variables of their own: a list of such lists."""
        file = Path(self.folder.name) / "report.json"
        own = Path(self.folder.name) / f"id-{time.monotonic_ns()}"
        script = "".join(f"{' '.join(variables)} WORLD_SIZE={world} ID={own} {self.program} {world} {what} & p$i=$!\n"
                         .replace("p$i", f"p{i}") for i, variables in enumerate(ranks))
        script += "".join(f"wait $p{i} || s=$?\n" for i in range(len(ranks))) + "exit $s"
        done = subprocess.run([CLI, "sim", f"--json={file}", *options, "--", "sh", "-c", "s=0\n" + script],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100, check=False)
        self.assertIn(done.returncode, (done.returncode if status is None else status,), done.stdout)
        return json.loads(file.read_text()), done.stdout

    def test_each_rank_sees_one_device(self):
        ranks = [[f"RANK={r}", "LOCAL_RANK=0", f"CUDA_VISIBLE_DEVICES={1 - r}"] for r in range(2)]
        report = self.launch("sum", ranks, 2, ["--devices=2"])[0]
        found = {p["rank"]: [d["number"] for d in p["devices"]] for p in report["processes"]}
        self.assertEqual(found, {0: [1], 1: [0]})

    def test_two_ranks_that_see_the_same_device(self):
        ranks = [[f"RANK={r}", "LOCAL_RANK=0", "CUDA_VISIBLE_DEVICES=1"] for r in range(2)]
        output = self.launch("sum", ranks, 2, ["--devices=2"], status=None)[1]
        self.assertIn("are both on device 1", output)

    def test_ranks_of_other_launchers_have_rows(self):
        for rank, size in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
                           ("SLURM_PROCID", "SLURM_NTASKS")):
            ranks = [f"{rank}={r} {size}=2 {self.program} 1 nothing" for r in range(2)]
            file = Path(self.folder.name) / "report.json"
            subprocess.run([CLI, "sim", f"--json={file}", "--", "sh", "-c", "; ".join(ranks)], check=True,
                           stderr=subprocess.PIPE)
            found = [(p["rank"], p["ranks"]) for p in json.loads(file.read_text())["processes"]]
            self.assertEqual(found, [(0, 2), (1, 2)])

    def test_a_rows_largest_category(self):
        """As the hook in PyTorch tells it; free cache is not what fills a device."""
        told = json.dumps({"categories": {"weights": 1 << 30, "activations": 3 << 29, "cache": 9 << 30}})
        script = f"echo '{told[:-1]}, \"pid\": '$$}} > $TERRAZZO_SIM_REPORT/$$.torch.json; exec {self.program} 2 sum"
        done = subprocess.run([CLI, "sim", "--devices=2", "--", "sh", "-c", script], stderr=subprocess.PIPE, text=True,
                              check=True)
        self.assertRegex(done.stderr, r"\n   0  .*  most: activations \(1.50\)\n")

    def test_nodes_have_devices_of_their_own(self):
        ranks = [[f"RANK=$((2 * {{node}} + {r}))", f"LOCAL_RANK={r}"] for r in range(2)]
        report, output = self.launch("sum", ranks, 4, ["--nodes=2", "--devices=2", "--memory=400MiB"])
        found = sorted((p["rank"], p["ranks"], p["node"]) for p in report["processes"])
        self.assertEqual(found, [(0, 4, 0), (1, 4, 0), (2, 4, 1), (3, 4, 1)])
        self.assertEqual((report["nodes"], report["devices"], report["ranks"]["count"]), (2, 2, 4))
        self.assertLess(report["device_peak_bytes"], 300 << 20)
        self.assertRegex(output, r"node  rank(.*\n){3}   1 +2 ")

    def test_what_a_node_is_told(self):
        words = "echo node {node} $NODE_RANK $NNODES $PET_NODE_RANK $PET_NNODES $MASTER_ADDR $MASTER_PORT " \
                "$PET_MASTER_PORT"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MASTER_")}
        done = subprocess.run([CLI, "sim", "--nodes=3", "--", "sh", "-c", words], stdout=subprocess.PIPE, check=True,
                              stderr=subprocess.PIPE, text=True, env=environment)
        rows = sorted(line.split() for line in done.stdout.splitlines())
        self.assertEqual([row[:7] for row in rows], [["node", f"{i}", f"{i}", "3", f"{i}", "3", "localhost"]
                                                     for i in range(3)])
        self.assertEqual(len({port for row in rows for port in row[7:]}), 1)

    def test_a_port_that_is_none(self):
        for port in ("0", "65536", "80x", "-1", "port"):
            done = subprocess.run([CLI, "sim", "--nodes=2", "--", "true"], stderr=subprocess.PIPE, text=True,
                                  env=os.environ | {"MASTER_PORT": port}, check=False)
            self.assertEqual(done.returncode, 2, port)
            self.assertIn(f"MASTER_PORT: '{port}' is not a port from 1 to 65535", done.stderr)

    def test_a_node_that_fails_ends_the_others(self):
        done = subprocess.run([CLI, "sim", "--nodes=2", "--", "sh", "-c", "[ {node} = 0 ] && exec sleep 90; exit 3"],
                              stderr=subprocess.PIPE, timeout=80, check=False)
        self.assertEqual(done.returncode, 3)

    def test_a_node_that_ends_at_once_hides_no_other(self):
        """Also while the next one is being started."""
        words = "[ {node} = 0 ] || { sleep 0.02; exit 3; }"
        for _ in range(100):
            done = subprocess.run([CLI, "sim", "--nodes=2", "--", "sh", "-c", words], stderr=subprocess.PIPE, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 3, done.stderr)

    def test_nodes_without_descriptors(self):
        """Few descriptors are enough; with too few, an error comes. The commands are always waited for."""
        ends = set()
        for limit in range(4, 14):
            done = subprocess.run(["sh", "-c", f"ulimit -n {limit}; exec {CLI} sim --nodes=2 -- sh -c 'exit 3'"],
                                  stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertIn(done.returncode, (2, 3), done.stderr)
            self.assertTrue(done.returncode == 3 or "Too many open files" in done.stderr, done.stderr)
            ends.add(done.returncode)
        self.assertEqual(ends, {2, 3})

    def test_nodes_usage(self):
        for options in (["--nodes=2", "--world-size=4"], ["--nodes=5", "--devices=16"], ["--nodes=0"]):
            done = subprocess.run([CLI, "sim", *options, "--", "true"], stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 2, options)
            self.assertIn("nodes", done.stderr)

    def test_smallest_memory_that_all_ranks_complete_with(self):
        report, output, _ = self.run_ranks(2, "fill128", "--fit", "--memory=1GiB", "--nccl-memory=no")
        self.assertEqual((report["fit"]["memory_bytes"], report["fit"]["verified"]), (320 << 20, True))
        self.assertEqual((report["ranks"]["fullest"], report["ranks"]["most_allocated"]), (1, 1))
        self.assertEqual(sorted(p["device_peak_bytes"] >> 20 for p in report["processes"]), [130, 258])
        self.assertIn("fullest: rank 1, 0.25 GiB (reserved + outside)", output)

    def test_largest_value_that_all_ranks_complete_with(self):
        file = Path(self.folder.name) / "report.json"
        done = subprocess.run([CLI, "sim", "--devices=2", "--memory=320MiB", "--nccl-memory=no", f"--json={file}",
                               "--sweep=n=64,128,192", "--", self.program, "2", "fill{n}"], stderr=subprocess.PIPE,
                              text=True, check=True)
        report = json.loads(file.read_text())
        self.assertEqual(report["largest"], "128")
        self.assertEqual([run["ranks"]["ran_out"] for run in report["runs"]], [[], [], [1]])
        self.assertRegex(done.stderr, r"largest n that fits: 128\n\nrank (.*\n){3}fullest: rank 1, 0.25 GiB")

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

    def test_a_process_that_a_rank_starts_is_none(self):
        report, output, _ = self.run_ranks(2, "helped", "--world-size=2", "--ranks=1")
        self.assertEqual([p.get("rank") for p in report["processes"]].count(1), 1)
        self.assertEqual((len(report["processes"]), report["ranks"]["count"]), (2, 1))
        self.assertEqual(output.count("  (ended by"), 0, output)

    def test_ranks_are_of_the_world(self):
        wrong = ("4", "x", "", "1,", ",1")
        for options in (["--ranks=0"], *(["--world-size=4", f"--ranks={ranks}"] for ranks in wrong)):
            done = subprocess.run([CLI, "sim", *options, "--", "true"], stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(done.returncode, 2, options)
            self.assertIn("--ranks", done.stderr)

    def test_one_process_has_a_rank_on_each_device(self):
        for options in ([], ["--work=late", "--seed=5"]):
            self.run_ranks(1, "all", *options)
            self.run_ranks(3, "all", *options)

    def test_a_short_read_gives_what_a_collective_has_passed_on(self):
        for ranks in 1, 2:
            self.run_ranks(ranks, "passed_on")
            self.run_ranks(ranks, "passed_on", "--work=late")

    def test_messages_of_a_group_go_together(self):
        self.run_ranks(4, "ring")
        self.run_ranks(4, "ring", "--work=late")

    def test_communicators_are_split_and_shrunk(self):
        self.run_ranks(4, "split")

    def test_a_communicator_grows(self):
        self.run_ranks(3, "grow")

    def test_a_suspended_communicator_takes_no_memory(self):
        self.run_ranks(2, "suspend")

    def test_a_revoked_communicator_waits_for_no_one(self):
        self.run_ranks(2, "revoke")

    def test_a_factor_on_the_device_is_read_there(self):
        for work in "now", "late":
            self.run_ranks(3, "scale", f"--work={work}")

    def test_each_launch_of_a_graph_is_its_collectives(self):
        for work in ([], ["--work=late", "--seed=3"], ["--work=late", "--schedule=starve"]):
            report = self.run_ranks(3, "graph", *work)[0]
            found = [(p["collectives"][kind]["calls"]) for p in report["processes"]
                     for kind in ("all_reduce", "send", "recv")]
            self.assertEqual(found, [9, 3, 3] * 3)  # what is captured is none yet

    def test_ranks_that_launch_other_things_disagree(self):
        output = self.run_ranks(2, "launch-other", status=128 + 6)[1]
        self.assertIn("ranks disagree on the kind of collective 2 of a communicator of 2", output)

    def test_a_launch_that_a_rank_leaves_out(self):
        output = self.run_ranks(2, "launch-once", status=128 + 6)[1]
        self.assertRegex(output, r"rank 1 \(pid \d+\) has left the communicator, for which rank 0 of 2 waits in all_")

    def test_graphs_of_absent_ranks(self):
        report = self.run_ranks(1, "launch-twice", "--world-size=300")[0]
        self.assertEqual(report["processes"][0]["collectives"]["all_reduce"]["calls"], 2)

    def test_graphs_that_wait_for_each_other(self):
        output = self.run_ranks(2, "cross", status=128 + 6)[1]
        self.assertIn("deadlock: ranks wait for each other", output)
        self.assertEqual(len(re.findall(r"\n  rank \d .*waits in all_reduce of 100 int32, sum, number", output)), 2)

    def test_a_graph_that_outlives_its_communicator(self):
        output = self.run_ranks(2, "launch-ends", status=128 + 6)[1]
        self.assertIn("destroys a communicator of 2 while a graph has collectives of it", output)
        self.assertRegex(output, r"rank \d launches a graph with all_reduce of 100 int32, sum, whose communicator of 2 "
                                 "is no more")

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
        """Whichever is first: rank 1's leaving, or rank 0's wait for the message to be received."""
        output = self.run_ranks(2, "unread", status=128 + 6)[1]
        self.assertRegex(output, r"rank 1 (has left a communicator of 2 and has not received a message|"
                                 r"\(pid \d+\) has left the communicator, and others wait for it)")
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
