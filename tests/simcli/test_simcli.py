#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of `terrazzo sim` and `terrazzo estimate` with small C programs: no PyTorch, no network."""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

CLI = os.environ["TERRAZZO_CLI"]
SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "tests" / "common"))
sys.path.insert(0, str(SOURCE / "python"))
import compact_trace
from terrazzo import sim
LIBRARIES = Path(os.environ["TRZ_BUILD_DIR"]) / "lib" / "sim"
CC = os.environ.get("CC") or shutil.which("cc") or "gcc"
MIB, GIB = 1 << 20, 1 << 30

# Allocates argv[1] MiB, 16 at a time, on device argv[2] or 0. Status 0 if it got all, 1 if memory ran out and
# argv[3] is absent, else 0 in both cases.
ALLOCATE = r"""
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t);
int main(int argc, char **argv)
{
	int device;
	void *context;
	unsigned long long address;
	if (cuInit(0) || cuDeviceGet(&device, argc > 2 ? atoi(argv[2]) : 0))
		return 9;
	if (cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context))
		return 8;
	for (int i = 0; i < atoi(argv[1]); i += 16) {
		int status = cuMemAlloc_v2(&address, 16 << 20);
		if (status == 2) {
			puts("out of memory");
			return argc > 3 ? 0 : 1;
		}
		if (status)
			return 7;
	}
	puts("done");
	return 0;
}
"""

# Requests of memory that is there once something has been freed; requests that are given up, and made anew later.
AGAIN = r"""
#include <stddef.h>
#include <string.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t), cuMemFree_v2(unsigned long long);
int cuMemAllocManaged(unsigned long long *, size_t, unsigned);
enum { OUT_OF_MEMORY = 2 };
static int asks(int mib, int wanted)
{
	unsigned long long address;
	int status = cuMemAlloc_v2(&address, (size_t)mib << 20);
	return status != wanted || (!status && cuMemFree_v2(address));
}
int main(int argc, char **argv)
{
	void *context;
	unsigned long long kept;
	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
		return 9;
	if (argc == 1)
		return asks(600, 0) || cuMemAllocManaged(&kept, 500 << 20, 1);
	for (int i = 0; i < 70; i++)
		if (cuMemAlloc_v2(&kept, 600 << 20) || asks(500, OUT_OF_MEMORY) || cuMemFree_v2(kept) || asks(500, 0))
			return 8;
	if (!strcmp(argv[1], "retries"))
		return 0;
	if (asks(3000, OUT_OF_MEMORY) || asks(3000, OUT_OF_MEMORY) || asks(2000, OUT_OF_MEMORY))
		return 7;
	if (cuMemAlloc_v2(&kept, 600 << 20) || asks(700, OUT_OF_MEMORY) || asks(100, 0) || cuMemFree_v2(kept) ||
	    asks(700, 0))
		return 6;
	return 0;
}
"""

# Takes ten times 32 MiB, gives them back, reads 4 bytes, and ends as argv[1] says.
END = r"""
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t), cuMemFree_v2(unsigned long long);
int cuMemcpyDtoH_v2(void *, unsigned long long, size_t);
int main(int argc, char **argv)
{
	void *context;
	unsigned long long address[10];
	int value;
	if (argc < 2 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
		return 9;
	for (int i = 0; i < 10; i++)
		if (cuMemAlloc_v2(&address[i], 32 << 20))
			return 8;
	if (cuMemcpyDtoH_v2(&value, address[0], sizeof value))
		return 7;
	for (int i = 0; i < 10; i++)
		cuMemFree_v2(address[i]);
	if (!strcmp(argv[1], "_exit"))
		_exit(4);
	if (!strcmp(argv[1], "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(argv[1], "exec"))
		execlp("sh", "sh", "-c", "exit 5", NULL);
	if (!strcmp(argv[1], "fork") && fork() == 0)  /* which can do nothing, and is no part of the report */
		_exit(cuMemAlloc_v2(&address[0], 32 << 20) == 0);
	wait(NULL);
	return 3;
}
"""

# Reads 4 bytes from the device, three times.
READ = r"""
#include <stddef.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t), cuMemcpyDtoH_v2(void *, unsigned long long, size_t);
int main(void)
{
	void *context;
	unsigned long long address;
	int value;
	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&address, 4))
		return 9;
	for (int i = 0; i < 3; i++)
		if (cuMemcpyDtoH_v2(&value, address, sizeof value))
			return 8;
	return value;
}
"""

# Takes argv[1] MiB and says whether it got them; then, for each line that it reads, who uses the device, by NVML.
SHARE = r"""
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuMemAlloc_v2(unsigned long long *, size_t);
int nvmlInit_v2(void), nvmlDeviceGetHandleByIndex_v2(unsigned, void **);
struct process { unsigned pid; unsigned long long bytes; unsigned instance, compute; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *, unsigned *, struct process *);
int main(int argc, char **argv)
{
	void *context, *device;
	unsigned long long address;
	struct process list[8];
	if (argc < 2 || cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
		return 9;
	if (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &device))
		return 8;
	setbuf(stdin, NULL);
	printf("%d\n", cuMemAlloc_v2(&address, (size_t)atoi(argv[1]) << 20));
	for (;;) {
		fflush(stdout);
		if (getchar() == EOF)
			return 0;
		unsigned count = 8;
		if (nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list))
			return 7;
		for (unsigned i = 0; i < count; i++)
			printf("%u:%llu ", list[i].pid, list[i].bytes >> 20);
		printf("\n");
	}
}
"""

# Two streams of which the first is blocking, plain and stream-ordered memory, an event that is waited for and one that
# is not, a capture, a copy to the host.
WHOLE = r"""
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuEventCreate(void **, unsigned);
int cuMemAlloc_v2(unsigned long long *, unsigned long), cuCtxRecordEvent(void *, void *);
int main(void)
{
    void *context, *event;
    unsigned long long a, b;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuEventCreate(&event, 2) ||
           cuMemAlloc_v2(&a, 1000) || cuCtxRecordEvent(context, event) || cuMemAlloc_v2(&b, 1000);
}
"""

ORDER = r"""
#include <stddef.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
typedef unsigned long long addr;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuCtxSynchronize(void);
int cuMemAlloc_v2(addr *, size_t), cuMemFree_v2(addr), cuMemAllocAsync(addr *, size_t, void *);
int cuMemFreeAsync(addr, void *), cuMemsetD8Async(addr, unsigned char, size_t, void *);
int cuMemcpyDtoH_v2(void *, addr, size_t), cuMemcpyDtoHAsync_v2(void *, addr, size_t, void *);
int cuStreamCreate(void **, unsigned), cuStreamSynchronize(void *), cuStreamWaitEvent(void *, void *, unsigned);
int cuEventCreate(void **, unsigned), cuEventRecord(void *, void *), cuEventSynchronize(void *);
int cuStreamBeginCapture_v2(void *, int), cuStreamEndCapture(void *, void **);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long), cuGraphLaunch(void *, void *);
#define DO(call) do { if (call) return __LINE__ & 127; } while (0)
int main(int argc, char **argv)
{
	void *context, *a, *b, *e, *f, *graph, *instance;
	addr plain, first, second;
	char bytes[64];
	DO(cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context));
	DO(cuStreamCreate(&a, 0) || cuStreamCreate(&b, 1) || cuEventCreate(&e, 2) || cuEventCreate(&f, 2));
	DO(cuMemAlloc_v2(&plain, 1000));
	DO(cuMemsetD8Async(plain, 0, 1000, NULL) || cuMemsetD8Async(plain, 0, 1000, NULL));
	DO(cuMemAllocAsync(&first, 3 << 20, a));
	DO(cuEventRecord(f, a) || cuEventRecord(e, a));
	DO(cuStreamWaitEvent(b, e, 0));
	DO(cuMemFreeAsync(first, b));
	DO(cuStreamBeginCapture_v2(b, 2));
	DO(cuMemsetD8Async(plain, 0, 1000, b));
	DO(cuStreamEndCapture(b, &graph) || cuGraphInstantiateWithFlags(&instance, graph, 0));
	DO(cuGraphLaunch(instance, b));
	DO(cuMemcpyDtoHAsync_v2(bytes, plain, sizeof bytes, b));
	DO(cuStreamSynchronize(a) || cuEventSynchronize(e) || cuCtxSynchronize());
	DO(cuMemAllocAsync(&second, 5 << 20, b));
	DO(cuMemFree_v2(plain));
	if (argc > 1 && !strcmp(argv[1], "kill"))
		abort();
	return 0;
}
"""

ORDERED = [
    ("blocking", 1, 0, 0, 0), ("alloc", 0, 0, 1000, 0), ("default_work", 0, 0, 0, 0), ("alloc", 1, 1, 3 << 20, 0),
    ("record", 1, 0, 0, 0), ("wait", 2, 0, 0, 0), ("free", 2, 1, 0, 0), ("capture", 2, 0, 0, 0),
    ("end_capture", 2, 0, 0, 0), ("launch", 2, 0, 0, 0), ("stream_sync", 2, 0, 0, 0), ("stream_sync", 1, 0, 0, 0),
    ("event_sync", 0, 0, 0, 0), ("device_sync", 0, 0, 0, 0), ("alloc", 2, 2, 5 << 20, 0), ("device_sync", 0, 0, 0, 0),
    ("free", 0, 0, 0, 0)]

# Two at a time that together fill the device, a third that finds nothing, a fourth in place of the first. Descriptors
# are not inherited.
SHARERS = r"""
import subprocess, sys
def start(size):
    p = subprocess.Popen([sys.argv[1], str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return p, int(p.stdout.readline())
def listed(p):
    p.stdin.write("?")
    p.stdin.flush()
    return {int(pid): int(size) for pid, size in (word.split(":") for word in p.stdout.readline().split())}
def end(p):
    p.stdin.close()
    assert p.wait() == 0
(a, got), (b, also) = start(600), start(300)
assert (got, also) == (0, 0)
assert listed(a) == listed(b) == {a.pid: 600, b.pid: 300}, listed(a)
c, status = start(200)
assert status == 2
end(c)
end(a)
d, status = start(700)
assert status == 0 and listed(b) == {b.pid: 300, d.pid: 700}
d.kill()
d.wait()
assert listed(b) == {b.pid: 300}
end(b)
"""


def terrazzo(*args, **more):
    return subprocess.run([CLI, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.temporary.name)
        (cls.folder / "allocate.c").write_text(ALLOCATE)
        cls.program = cls.folder / "allocate"
        subprocess.run([CC, "-o", cls.program, cls.folder / "allocate.c", f"-L{LIBRARIES}", "-l:libcuda.so.1"],
                       check=True)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def sim(self, *args):
        """(the finished command, its report)"""
        file = self.folder / "report.json"
        file.unlink(missing_ok=True)
        done = terrazzo("sim", "--json", file, *args)
        return done, json.loads(file.read_text()) if file.exists() else None


class Errors(Case):
    def refused(self, *args):
        done = terrazzo(*args)
        self.assertEqual(done.returncode, 2, done.stderr)
        return done.stderr

    def test_usage(self):
        self.assertIn("a command is missing", self.refused("sim"))
        self.assertIn("--device list", self.refused("sim", "--device", "h1000", "--", "true"))
        self.assertIn("is not a size", self.refused("sim", "--memory", "lots", "--", "true"))
        self.assertIn("2MiB to 4TiB", self.refused("sim", "--memory", "9TiB", "--", "true"))
        self.assertIn("1 to 16", self.refused("sim", "--devices", "99", "--", "true"))
        self.assertIn("native, expandable", self.refused("sim", "--allocator", "best", "--", "true"))
        self.assertIn("--setup DIR", self.refused("sim", "--compile", "--", "true"))
        self.assertIn("takes no command", self.refused("sim", "--setup", "x", "--", "true"))
        self.assertIn("do not go together", self.refused("sim", "--fit", "--sweep", "a=1", "--", "true"))
        self.assertIn("--jobs is for --sweep", self.refused("sim", "--jobs=2", "--", "true"))
        self.assertIn("--record takes one run", self.refused("sim", "--fit", "--record", "x", "--", "true"))
        self.assertIn("leave one of the two out", self.refused("sim", "--record", "x", "--", CLI, "run", "--", "true"))
        self.assertIn("only with --fit", self.refused("sim", "--device", "list", "--", "true"))

    def test_allocator_beside_terrazzo(self):
        text = "leave one of the two out"
        for command in (CLI, "run", "--", "true"), ("sh", "-c", f"{shlex.quote(str(CLI))} run -- true"):
            self.assertIn(text, self.refused("sim", "--allocator", "expandable", "--", *command))
        self.assertEqual(terrazzo("sim", "--", CLI, "run", "--", "true").returncode, 0)
        done = terrazzo("sim", "--allocator", "native", "--", "true", env={**os.environ, "TERRAZZO": "1"})
        self.assertEqual(done.returncode, 2)
        self.assertIn(text, done.stderr)

    def test_allocator_beside_the_users_settings(self):
        """As PyTorch reads them: the first variable hides the second one even if it is empty."""
        first, second, text = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "max_split_size_mb:64"
        for settings, expected in (({first: "", second: text}, ""), ({second: text}, f"{text},")):
            env = {name: value for name, value in os.environ.items() if name not in (first, second)}
            done = terrazzo("sim", "--allocator", "native", "--", "printenv", "PYTORCH_CUDA_ALLOC_CONF",
                            env={**env, **settings})
            self.assertEqual(done.stdout.strip(), f"{expected}expandable_segments:False")

    def test_folders_without_names_and_ranks_named_twice(self):
        self.assertIn("--setup: a folder needs a name", self.refused("sim", "--setup="))
        self.assertIn("--env: a folder needs a name", self.refused("sim", "--env=", "--", "true"))
        self.assertIn("rank 1 is named twice", self.refused("sim", "--world-size=4", "--ranks=1,0,1", "--", "true"))

    def test_cost_tables(self):
        """A file's name is that of the folder in which the command was typed."""
        self.assertIn("cost table nonesuch is neither", self.refused("sim", "--costs=nonesuch", "--", "true"))
        shutil.copy(SOURCE / "sim" / "costs" / "a100.ini", self.folder / "own.ini")
        times = {}
        for costs in ("own.ini", "a100"):
            file = self.folder / "costs.json"
            terrazzo("sim", "--costs", costs, "--json", file, "--", "sh", "-c", f"cd / && {self.program} 64",
                     cwd=self.folder, check=True)
            times[costs] = json.loads(file.read_text())["driver_time_ns"]
        self.assertEqual(times["own.ini"], times["a100"])

    def test_environment_that_is_none(self):
        text = self.refused("sim", "--env", self.folder / "nothing", "--", "true")
        self.assertIn("not a virtual environment", text)
        self.assertIn("terrazzo sim --setup", text)

    def test_usage_of_allocators(self):
        self.assertIn("choices: native, expandable, terrazzo", self.refused("sim", "--allocator=native,", "--", "true"))
        self.assertIn("is named twice", self.refused("sim", "--allocator=native,native", "--", "true"))
        self.assertIn("leave out --sweep", self.refused("sim", "--allocator=native,terrazzo", "--sweep=a=1", "--",
                                                        "{a}"))

    def test_sweep_usage(self):
        self.assertIn("name=value", self.refused("sim", "--sweep", "batch", "--", "true"))
        self.assertIn("an empty value", self.refused("sim", "--sweep", "batch=1,,2", "--", "true", "{batch}"))
        self.assertIn("does not contain '{batch}'", self.refused("sim", "--sweep", "batch=1", "--", "true"))

    def test_command_that_is_none(self):
        done = terrazzo("sim", "--", "./no-such-program")
        self.assertEqual(done.returncode, 127)
        self.assertIn("./no-such-program: cannot be run", done.stderr)
        trace = self.folder / "step.trace"
        trace.touch(mode=0o644)
        done = terrazzo("sim", "--", trace)
        self.assertEqual(done.returncode, 127)
        self.assertIn("`terrazzo replay` and `terrazzo explain` read traces", done.stderr)


class Run(Case):
    def test_words_need_not_be_text(self):
        odd = os.fsdecode(b"caf\xe9"), os.fsdecode(b"\xc3" * 3000) + "\u00e9" * 1000
        done, report = self.sim("--", self.program, 64, 0, *odd)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(report["command"][3:], ["caf?", "?" * 3000 + "\u00e9" * 1000])
        self.assertEqual(report["driver_calls"]["cuMemAlloc"], 4)
        self.assertEqual(report["processes"][0]["program"][1:4], ["64", "0", "caf?"])

    def test_holders_need_a_history(self):
        done, report = self.sim("--holders", "--", self.program, 64, 0)
        self.assertIn("--holders: no history was kept", done.stderr)
        self.assertNotIn("explanation", report)

    def test_exit_status_is_the_commands(self):
        for status in (0, 5):
            done = terrazzo("sim", "--", "sh", "-c", f"exit {status}")
            self.assertEqual(done.returncode, status)
            self.assertIn("used no simulated device", done.stderr)
        done = terrazzo("sim", "--", "sh", "-c", "kill -TERM $$")
        self.assertEqual(done.returncode, 128 + signal.SIGTERM)

    def test_output_passes(self):
        done = terrazzo("sim", "--", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual(done.stdout, "out\n")
        self.assertTrue(done.stderr.startswith("err\n"))

    def test_figures_are_lost_only_with_the_process(self):
        """As the hook in PyTorch tells it: a program may use CUDA, and end, without having asked PyTorch for any."""
        for ended in True, False:
            told = json.dumps({"allocator": "native", "ended": ended, "devices": [{"peak_reserved_bytes": 0}]})
            script = f"echo '{told[:-1]}, \"pid\": '$$}} > $TERRAZZO_SIM_REPORT/$$.torch.json; exec {self.program} 512"
            done, report = self.sim("--memory", "1GiB", "--", "sh", "-c", script)
            self.assertEqual((report["figures_of"], report["figures_lost"]), ("driver", not ended))
            self.assertEqual("PyTorch's own figures went with it" in done.stderr, not ended)

    def test_report(self):
        done, report = self.sim("--memory", "1GiB", "--", self.program, 512)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "done\n")
        self.assertEqual(report["peak_allocated_bytes"], 512 * MIB)
        self.assertEqual(report["figures_of"], "driver")
        self.assertEqual(report["driver_calls"]["cuMemAlloc"], 32)
        self.assertEqual(report["ooms"], [])
        self.assertEqual(report["command"], [str(self.program), "512"])
        self.assertRegex(done.stderr, r"peak allocated +0\.50 GiB")
        self.assertRegex(done.stderr, r"driver time +\d+\.\d ms +virtual, by the costs of \w+")
        self.assertNotIn("allocator", done.stderr)

    def test_options_of_python(self):
        report = sim.run([self.program, 512], memory="1GiB", world_size=300, ranks="0,7", holders=False, devices=None)
        self.assertEqual((report["world_size"], report["peak_allocated_bytes"]), (300, 512 * MIB))

    def test_out_of_memory(self):
        done, report = self.sim("--memory", "256MiB", "--", self.program, 512)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(report["ooms"]), 1)
        self.assertEqual(report["ooms"][0]["bytes"], 16 * MIB)
        self.assertEqual(report["peak_allocated_bytes"], 256 * MIB)
        self.assertIn("out of memory: 16.00 MiB requested, 0 bytes free on the device, in cuMemAlloc", done.stderr)

    def test_a_request_that_is_made_again_at_once_counts_once(self):
        """The last answer counts: one that was served after the program had freed what it kept has found memory."""
        program = self.build("again", AGAIN)
        preload = (os.environ["TERRAZZO_CLI"], "run", "--")
        for command, wanted in (((program, "retries"), []), ((program, "fails"), [3000, 2000, 700]),
                                ((*preload, program), []), ((*preload, program, "fails"), [500, 3000, 2000, 700])):
            with self.subTest(command[1:]):
                done, report = self.sim("--memory", "1GiB", "--", *command)
                self.assertEqual((done.returncode, [oom["bytes"] // MIB for oom in report["ooms"]]), (0, wanted))

    def test_device_has_its_memory(self):
        _, report = self.sim("--device", "A100-40", "--", self.program, 16)
        self.assertEqual(report["device_name"], "NVIDIA A100-SXM4-40GB")
        self.assertGreater(report["capacity_bytes"], 39 * GIB)
        self.assertGreater(report["overhead_bytes"], 0)

    def test_several_devices(self):
        done, report = self.sim("--devices", 2, "--memory", "1GiB", "--", self.program, 512, 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        peaks = [device["peak_bytes"] for device in report["processes"][0]["devices"]]
        self.assertEqual([peak >= 512 * MIB for peak in peaks], [False, True])
        self.assertEqual(terrazzo("sim", "--", self.program, 16, 1).returncode, 9)

        self.assertEqual(report["figures_device"], 1)
        self.assertIn("(driver, device 1, the fullest)", done.stderr)

    def test_a_signal_to_us_ends_the_command_and_the_report_is_made(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [CLI, "sim", "--memory", "1GiB", "--", "sh", "-c", f"{self.program} 512; exec sleep 99"]
            sim = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "TMPDIR": folder})
            self.assertEqual(sim.stdout.readline(), "done\n")
            sim.terminate()
            _, said = sim.communicate()
            self.assertEqual(sim.returncode, 128 + signal.SIGTERM)
            self.assertIn("ended by signal 15", said)
            self.assertRegex(said, r"peak allocated +0\.50 GiB")
            self.assertEqual(os.listdir(folder), [])

    def test_a_signal_to_us_at_any_moment(self):
        """Also while the command is being started."""
        for step in range(40):
            with tempfile.TemporaryDirectory() as folder:
                sim = subprocess.Popen([CLI, "sim", "--memory", "1GiB", "--", "sleep", "99"], stderr=subprocess.PIPE,
                                       env={**os.environ, "TMPDIR": folder})
                time.sleep(step / 1000)
                sim.terminate()
                _, said = sim.communicate()
                self.assertNotEqual(sim.returncode, 0, said)

    def test_an_interrupt_ends_a_sweep(self):
        started = self.folder / "started"
        sim = subprocess.Popen([CLI, "sim", "--sweep", "x=1,2,3", "--jobs", "1", "--", "sh", "-c",
                                f"echo {{x}} >> {started}; exec sleep 99"], stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
        while not started.exists() or not started.read_text():
            time.sleep(0.01)
        os.killpg(sim.pid, signal.SIGINT)
        _, said = sim.communicate()
        self.assertEqual((sim.returncode, started.read_text()), (2, "1\n"), said)
        self.assertIn("not started: a signal came", said)

    def test_several_processes(self):
        script = f"{self.program} 128; {self.program} 256"
        done, report = self.sim("--memory", "1GiB", "--", "sh", "-c", script)
        self.assertEqual(sorted(p["peak_allocated_bytes"] for p in report["processes"]), [128 * MIB, 256 * MIB])
        self.assertEqual(report["peak_allocated_bytes"], 256 * MIB)
        self.assertEqual(report["driver_calls"]["cuMemAlloc"], 24)
        self.assertIn("process    allocated", done.stderr)

    def test_processes_share_a_device(self):
        program = self.build("share", SHARE, "-l:libnvidia-ml.so.1")
        done, report = self.sim("--memory", "1GiB", "--", sys.executable, "-c", SHARERS, program)
        self.assertEqual(done.returncode, 0, done.stderr)
        peaks = sorted(p["peak_allocated_bytes"] for p in report["processes"])
        self.assertEqual(peaks, [0, 300 * MIB, 600 * MIB, 700 * MIB])
        self.assertEqual((report["peak_allocated_bytes"], report["device_peak_bytes"]), (700 * MIB, 1000 * MIB))
        self.assertEqual([oom["bytes"] for oom in report["ooms"]], [200 * MIB])

    def test_processes_that_end_without_a_word(self):
        """What they had counts as if they had ended well."""
        program = self.build("end", END)
        wanted = {}
        for how, status in (("return", 3), ("_exit", 4), ("kill", 128 + signal.SIGKILL), ("exec", 5)):
            done, report = self.sim("--memory", "1GiB", "--", program, how)
            self.assertEqual(done.returncode, status, done.stderr)
            found = {key: report[key] for key in ("peak_allocated_bytes", "device_peak_bytes", "driver_calls",
                                                  "driver_time_ns", "copies_bytes", "blank_reads")}
            wanted = wanted or found
            self.assertEqual(found, wanted, how)
            self.assertEqual(found["peak_allocated_bytes"], 320 * MIB)
            self.assertIn("ended by signal 9 (Killed)" if how == "kill" else f"exit status {status}", done.stderr)
        self.assertEqual(found["driver_calls"]["cuMemAlloc"], 10)
        child = f"{program} kill; {program} fork"
        done, report = self.sim("--memory", "1GiB", "--", "sh", "-c", child)
        self.assertEqual(report["driver_calls"], {name: 2 * count for name, count in wanted["driver_calls"].items()})
        self.assertEqual(done.stderr.count("(ended by a signal or _exit)"), 1)

    def build(self, name, text, *libraries):
        (self.folder / f"{name}.c").write_text(text)
        subprocess.run([CC, "-o", self.folder / name, self.folder / f"{name}.c", f"-L{LIBRARIES}", "-l:libcuda.so.1",
                        *libraries], check=True)
        return self.folder / name

    def test_a_recording_has_the_programs_events_in_order(self):
        program, trace = self.build("order", ORDER), self.folder / "order.trace"
        for how, status in ("end", 0), ("kill", 134):
            done, report = self.sim("--record", trace, "--", program, how)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertEqual(compact_trace.read(trace), ORDERED)
            self.assertEqual(report["processes"][0]["trace"],
                             {"file": str(trace), "events": len(ORDERED), "allocations": 3, "streams": 3})
            self.assertIn(f"trace: {trace}: {len(ORDERED)} events, 3 allocations on 3 streams", done.stderr)
            trace.unlink()
        self.sim("--record", trace, "--work", "late", "--", program, "end")
        self.assertEqual(compact_trace.read(trace), ORDERED)
        for lag in 0, 5:
            row = json.loads(terrazzo("replay", "--json", "-", "--lag", lag, trace).stdout)
            self.assertEqual((row["violations"], row["leaks"], row["skipped_events"]), (0, 0, 0), row["problem"])
            self.assertEqual(row["peak_requested_bytes"], (5 << 20) + 1000)

    def test_a_recording_ends_where_the_order_of_streams_has_no_name(self):
        """An event of a whole context: what waits for it waits for all streams."""
        program, trace = self.build("whole", WHOLE), self.folder / "whole.trace"
        done, _ = self.sim("--record", trace, "--", program)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"the recording ends here: .*cuCtxRecordEvent")
        self.assertEqual([event[0] for event in compact_trace.read(trace)], ["alloc"])

    def test_recordings_of_several_processes(self):
        trace = self.folder / "many.d" / "of.trace"
        trace.parent.mkdir()
        script = f"RANK=0 WORLD_SIZE=2 {self.program} 16; RANK=1 WORLD_SIZE=2 {self.program} 32; {self.program} 0"
        self.sim("--record", trace, "--", "sh", "-c", script)
        self.assertEqual(sorted(p.name for p in trace.parent.iterdir()), ["of.0.trace", "of.1.trace"])
        allocations = [compact_trace.read(trace.with_name(f"of.{rank}.trace")) for rank in (0, 1)]
        self.assertEqual([[event[0] for event in events] for events in allocations], [["alloc"], ["alloc"] * 2])
        done, _ = self.sim("--record", trace, "--", "true")
        self.assertIn("used no simulated device", done.stderr)
        self.assertIn(f"{trace}: there is no trace", done.stderr)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(self.sim("--record", trace, "--", "sh", "-c", "exit 5")[0].returncode, 5)
        done, _ = self.sim("--record", "/nowhere/at/all", "--", self.program, 16)
        self.assertEqual(done.returncode, 2)
        self.assertIn("/nowhere/at/all: cannot be created", done.stderr)

    def test_short_reads_are_told_of_once_and_counted(self):
        program = self.build("read", READ)
        done, report = self.sim("--", "sh", "-c", f"{program} && {program}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("a read of 4 bytes from the device gives 0"), 1)
        self.assertEqual(report["blank_reads"], 6)
        self.assertRegex(done.stderr, r"short reads +6 +gave 0")
        done, report = self.sim("--scalars", "real", "--", program)
        self.assertNotIn("read", done.stderr)
        self.assertEqual(report["blank_reads"], 0)

    def test_leaves_nothing_behind(self):
        with tempfile.TemporaryDirectory() as folder:
            terrazzo("sim", "--", self.program, 16, env={**os.environ, "TMPDIR": folder})
            self.assertEqual(os.listdir(folder), [])


class Fit(Case):
    def test_smallest_memory(self):
        done, report = self.sim("--memory", "4GiB", "--fit", "--", self.program, 1000)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(report["fit"]["memory_bytes"], 1024 * MIB)
        self.assertTrue(report["fit"]["verified"])
        self.assertIn("--memory 1024MiB", done.stderr)
        _, alone = self.sim("--memory", "1024MiB", "--", self.program, 1000)
        for key in ("capacity_bytes", "peak_allocated_bytes", "device_peak_bytes", "driver_time_ns", "driver_calls"):
            self.assertEqual(report[key], alone[key], key)
        self.assertEqual(terrazzo("sim", "--memory", "1024MiB", "--", self.program, 1000).returncode, 0)
        self.assertEqual(terrazzo("sim", "--memory", "960MiB", "--", self.program, 1000).returncode, 1)

    def test_program_that_survives_out_of_memory_does_not_fit(self):
        _, report = self.sim("--memory", "4GiB", "--fit", "--", self.program, 1000, 0, "quiet")
        self.assertEqual(report["fit"]["memory_bytes"], 1024 * MIB)

    def test_too_large_for_the_device(self):
        done, report = self.sim("--memory", "256MiB", "--fit", "--", self.program, 1000)
        self.assertEqual(done.returncode, 3)
        self.assertEqual(report["fit"]["memory_bytes"], 0)
        self.assertIn("not even 256.00 MiB is enough", done.stderr)

    def test_smallest_profile(self):
        done, report = self.sim("--device", "list", "--fit", "--", self.program, 30 * 1024)
        self.assertEqual(done.returncode, 0, done.stderr)
        name = report["fit"]["device"]
        self.assertEqual(terrazzo("sim", "--device", name, "--", self.program, 30 * 1024).returncode, 0)
        self.assertIn(f"fits on {name}", done.stderr)

    def test_size_without_a_contexts_share(self):
        _, report = self.sim("--device", "l4", "--fit", "--", self.program, 1000)
        self.assertEqual(report["fit"]["memory_bytes"], 1024 * MIB)
        self.assertTrue(report["fit"]["verified"])

    def test_other_failure(self):
        done = terrazzo("sim", "--fit", "--", "sh", "-c", "exit 5")
        self.assertEqual(done.returncode, 2)
        self.assertIn("status 5 for a reason other than memory", done.stderr)

    def test_no_device(self):
        for options in ([], ["--device", "list"]):
            done = terrazzo("sim", "--fit", *options, "--", "true")
            self.assertEqual(done.returncode, 2)
            self.assertIn("true: used no simulated device, so no size can be found", done.stderr)


class Sweep(Case):
    def test_largest_that_fits(self):
        done, report = self.sim("--memory", "1GiB", "--sweep", "n=256,512,1008,1040,2048", "--", self.program, "{n}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(report["largest"], "1008")
        self.assertEqual([run["value"] for run in report["runs"]], ["256", "512", "1008", "1040", "2048"])
        self.assertEqual([len(run["ooms"]) for run in report["runs"]], [0, 0, 0, 1, 1])
        self.assertIn("largest n that fits: 1008", done.stderr)
        self.assertRegex(done.stderr, r"1040 +out of memory")

    def test_none_fits(self):
        done, report = self.sim("--memory", "64MiB", "--sweep", "n=256,512", "--jobs", 1, "--", self.program, "{n}")
        self.assertIsNone(report["largest"])
        self.assertIn("not even n 256 fits", done.stderr)

    def test_other_failure(self):
        done = terrazzo("sim", "--sweep", "n=16,3", "--", "sh", "-c", f"[ {{n}} = 3 ] && exit 3; {self.program} {{n}}")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("n=3: the command ends with status 3", done.stderr)
        done = terrazzo("sim", "--sweep", "n=3,4", "--", "sh", "-c", "exit {n}")
        self.assertIn("n=3: the command ends with status 3", done.stderr)
        self.assertNotIn("fits", done.stderr)

    def test_no_device(self):
        done = terrazzo("sim", "--sweep", "n=1,2", "--", "test", "{n}")
        self.assertEqual(done.returncode, 2)
        self.assertIn("n=1: the command used no simulated device, so whether it fits cannot be told", done.stderr)
        self.assertNotIn("largest", done.stderr)
        self.assertRegex(done.stderr, r"\n2 +no device ")


class Allocators(Case):
    def test_one_run_with_each(self):
        done, report = self.sim("--allocator=native,terrazzo", "--memory=1GiB", "--", self.program, 64, 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([run["value"] for run in report["runs"]], ["native", "terrazzo"])
        self.assertEqual([bool(run["driver_calls"].get("cuMemCreate")) for run in report["runs"]], [False, True])
        self.assertRegex(done.stderr, r"(?m)^native +fits +[\d.]+ +[\d.]+ +[\d.]+$")

    def test_the_smallest_device_for_each(self):
        done, report = self.sim("--allocator=native,terrazzo", "--fit", "--memory=1GiB", "--", self.program, 64, 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([run["fit"]["memory_bytes"] for run in report["runs"]], [64 * MIB] * 2)
        self.assertRegex(done.stderr, r"(?m)^terrazzo .* 0\.0625$")

    def test_one_that_is_terrazzo(self):
        done, report = self.sim("--allocator=terrazzo", "--", self.program, 64, 0)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(report["driver_calls"].get("cuMemCreate"))


class Devices(unittest.TestCase):
    def test_list(self):
        done = terrazzo("sim", "--device", "list")
        self.assertEqual(done.returncode, 0)
        rows = dict(re.findall(r"^(\S+) +([\d.]+) ", done.stdout, re.M))
        for name in ("a100-40", "a100", "h100", "h200", "b200", "l4", "rtx4090"):
            self.assertIn(name, rows)
        sizes = [float(size) for size in rows.values()]
        self.assertEqual(sizes, sorted(sizes))


class Estimate(unittest.TestCase):
    def estimate(self, *args):
        done = terrazzo("estimate", "--json", "-", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_mixed_precision_is_1_1_6(self):
        terms = self.estimate("--params", "7e9", "--states", "master")["terms"]
        self.assertEqual(terms["weights"], 14e9)
        self.assertEqual(terms["gradients"], 14e9)
        self.assertEqual(terms["optimizer_states"], 84e9)

    def test_optimizers(self):
        states = {name: self.estimate("--params", "1B", "--optimizer", name)["terms"].get("optimizer_states", 0)
                  for name in ("adamw", "adamw8bit", "adafactor", "momentum", "sgd")}
        self.assertEqual(states, {"adamw": 4e9, "adamw8bit": 2e9, "adafactor": 0, "momentum": 2e9, "sgd": 0})
        self.assertEqual(self.estimate("--params", "1B", "--states", "fp32")["terms"]["optimizer_states"], 8e9)

    def test_attention_matrix(self):
        model = ("--params", "7B", "--layers", 32, "--hidden", 4096, "--heads", 32, "--dtype", "fp32")
        terms = self.estimate(*model, "--no-flash", "--checkpointing")["terms"]
        self.assertEqual(terms["attention_matrix"], 0.5 * GIB)
        self.assertNotIn("attention_matrix", self.estimate(*model)["terms"])

    def test_cache(self):
        terms = self.estimate("--params", "7B", "--inference", "--layers", 32, "--hidden", 4096, "--seq", 4096)["terms"]
        self.assertEqual(terms["kv_cache"], 2 * GIB)
        self.assertNotIn("gradients", terms)

    def test_only_trained_parameters_have_gradients(self):
        terms = self.estimate("--params", "7B", "--trainable", "20M")["terms"]
        self.assertEqual((terms["gradients"], terms["optimizer_states"]), (40e6, 80e6))

    def test_table(self):
        done = terrazzo("estimate", "--params", "70B")
        self.assertRegex(done.stdout, r"weights +130\.39 GiB")
        self.assertIn("does not fit", done.stdout)
        for what in "activations: --layers", "logits and loss: --vocabulary":
            self.assertIn(what, done.stdout)
        done = terrazzo("estimate", "--params", "7B", "--layers", 32, "--hidden", 4096, "--vocabulary", 32000)
        self.assertNotIn("not in it", done.stdout)
        self.assertIn("on h100", done.stdout)

    def test_errors(self):
        for args, text in (((), "--params is missing"), (("--params", "many"), "is not a count"),
                           (("--params", "7Q"), "is not a count"), (("--params", "-7"), "is not a count"),
                           (("--params", "7B", "--layers", 32), "go together"),
                           (("--params", "7B", "--trainable", "8B"), "more than"),
                           (("--params", "7B", "--heads", 8, "--kv-heads", 16), "more than --heads, 8"),
                           (("--params", "7B", "--optimizer", "best"), "adamw"),
                           (("--params", "7B", "--device", "none"), "--device list"),
                           (("--params", "7B", "--layers", "1M", "--hidden", "1B", "--batch", "1M", "--json", "-"),
                            "more than any device"),
                           (("--params", "7B", "more"), "unexpected argument 'more'")):
            done = terrazzo("estimate", *args)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
