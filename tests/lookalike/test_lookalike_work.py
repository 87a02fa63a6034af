# SPDX-License-Identifier: Apache-2.0
"""Work over the look-alike libraries: lateness, launches that outlive their memory, graphs, virtual time."""
import json
import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from lookalike_process import LIBRARIES, run, skip_if_unfit, succeed

CC = os.environ.get("CC") or shutil.which("cc") or "gcc"

LAID = """
handle, a, f, stream = create(2 * MIB), reserve(2 * MIB), kernel(), new_stream()
lay(a, 2 * MIB, handle)
print(hex(a), flush=True)
"""

STRUCTURES = '''
SOURCE = b".version 8.0\\n.target sm_80\\n.address_size 64\\n" + b"".join(
    b".visible .entry %s(.param .align 8 .b8 p[%d])\\n{\\nret;\\n}\\n" % entry
    for entry in ((b"structure", 16), (b"pair", 16), (b"list_of_64", 64))) + b"\\0"
module = c_void_p()
must(driver.cuModuleLoadData(byref(module), SOURCE))

def entry(name):
    function = c_void_p()
    must(driver.cuModuleGetFunction(byref(function), module, name))
    return function

structure, pair, list_of_64 = entry(b"structure"), entry(b"pair"), entry(b"list_of_64")

def launch_words(function, words, stream):
    values = (c_uint64 * len(words))(*words)
    arguments = (c_void_p * 1)(ctypes.addressof(values))
    return driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, None)
'''

PARTS = LAID + '''
SOURCE = (b".version 8.0\\n.target sm_80\\n.address_size 64\\n"
          b".visible .entry part(.param .u64 memory, .param .u32 number)\\n{\\nret;\\n}\\n\\0")
module, function, other = c_void_p(), c_void_p(), new_stream()
must(driver.cuModuleLoadData(byref(module), SOURCE))
must(driver.cuModuleGetFunction(byref(function), module, b"part"))

def part(stream, address, number, blocks=1):
    values = c_uint64(address), ctypes.c_uint(number)
    arguments = (c_void_p * 2)(*map(ctypes.addressof, values))
    must(driver.cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, stream, arguments, None))

def race(first, second):
    """The second launch is in no order with the fill that the first one follows."""
    must(runtime.cudaDeviceSynchronize())
    must(runtime.cudaMemsetAsync(c_void_p(a), 1, c_size_t(4096), stream))
    part(stream, *first)
    part(other, *second)
    must(runtime.cudaStreamSynchronize(other))
'''

CAPTURED = LAID + """
graph, instance = c_void_p(), c_void_p()
must(runtime.cudaStreamBeginCapture(stream, 0))
must(launch(f, a + 8, stream))
must(runtime.cudaMemsetAsync(c_void_p(a), 5, c_size_t(100), stream))
must(runtime.cudaStreamEndCapture(stream, byref(graph)))
must(runtime.cudaGraphInstantiate(byref(instance), graph, c_uint64(0)))
"""


VALUES = """
import threading
class Operation(ctypes.Structure):
    _fields_ = [("operation", c_int), ("address", c_uint64), ("value", c_uint64), ("flags", ctypes.c_uint),
                ("rest", c_uint64 * 2)]
a, b, target, host = new_stream(), new_stream(), malloc(4096), c_void_p()
must(runtime.cudaHostAlloc(byref(host), c_size_t(4096), 0))
words = (malloc(64), host.value)
def write(stream, word, value):
    must(driver.cuStreamWriteValue32_v2(stream, c_uint64(word), value, 0))
"""


class Work(unittest.TestCase):
    def test_late_work_catches_memory_that_went_too_early(self):
        program = LAID + """
must(launch(f, a + 4096, stream))
unmap(a, 2 * MIB)
print(runtime.cudaStreamSynchronize(stream))
"""
        done = run(program, work="blocked", violations="count")
        address = int(done.stdout.split()[0], 16)
        self.assertEqual(done.stdout.split()[1], "700")
        self.assertIn(f"kernel touch_it on stream", done.stderr)
        self.assertIn(f"{address + 4096:#x}, which was mapped at its launch, is no longer mapped", done.stderr)
        self.assertEqual(run(program, work="blocked").returncode, -6)

    def test_late_work_catches_memory_that_was_laid_anew(self):
        done = run(LAID + """
must(launch(f, a, stream))
unmap(a, 2 * MIB)
lay(a, 2 * MIB, handle)
print(runtime.cudaStreamSynchronize(stream))
""", work="blocked", violations="count")
        self.assertIn("has been mapped again since", done.stderr)

    def test_streams_wait_for_values(self):
        """Written by another stream, by a copy, or by the host, while the host waits as well; of pinned memory, too."""
        for work in ("now", "late", "blocked"):
            succeed(self, VALUES + """
GEQ, EQ, AND, NOR = range(4)
for how, before, value, after in ((GEQ, 4, 5, 5), (GEQ, (1 << 32) - 1, 1, 1), (EQ, 1, 7, 7), (AND, 4, 3, 2),
                                  (NOR, (1 << 32) - 1, 0x0f, 0x10)):
    for word in words:
        write(b, word, before)
        must(runtime.cudaStreamSynchronize(b))
        must(driver.cuStreamWaitValue32_v2(a, c_uint64(word), value, how))
        must(runtime.cudaMemsetAsync(c_void_p(target), how + 1, c_size_t(4), a))
        assert runtime.cudaStreamQuery(a) == 600 and runtime.cudaPeekAtLastError() == 0
        write(b, word, after)
        must(runtime.cudaStreamSynchronize(a))
        assert download(target, 4) == bytes([how + 1] * 4)
must(driver.cuStreamWaitValue64_v2(a, c_uint64(words[0]), c_uint64(5 << 40), EQ))
must(runtime.cudaMemcpyAsync(c_void_p(words[0]), struct.pack("<Q", 5 << 40), c_size_t(8), 1, b))
must(runtime.cudaStreamSynchronize(a))

pinned = ctypes.cast(words[1], ctypes.POINTER(ctypes.c_uint))
pinned[0] = 0
must(driver.cuStreamWaitValue32_v2(a, c_uint64(words[1]), 9, EQ))
timer = threading.Timer(0.3, lambda: pinned.__setitem__(0, 9))
timer.start()
must(runtime.cudaStreamSynchronize(a))
assert pinned[0] == 9
timer.join()
operations = (Operation * 4)((5, words[0] + 8, 6 << 40), (6,), (4, words[0] + 8, 6 << 40), (2, words[1], 3))
must(driver.cuStreamBatchMemOp_v2(a, 4, operations, 0))
must(runtime.cudaStreamSynchronize(a))
assert pinned[0] == 3 and download(words[0] + 8, 8) == struct.pack("<Q", 6 << 40)
for address, flags in ((words[0] + 2, EQ), (words[0], 4), (ctypes.addressof(operations), EQ)):
    assert driver.cuStreamWaitValue32_v2(a, c_uint64(address), 0, flags) == 1
value = c_int()
for attribute in (92, 93, 94, 98, 122, 123):
    must(driver.cuDeviceGetAttribute(byref(value), attribute, 0))
    assert value.value == 1
""", work=work, scalars="real")

    def test_a_wait_for_a_value_in_memory_that_is_gone(self):
        done = run(VALUES + """
must(driver.cuStreamWaitValue32_v2(a, c_uint64(words[1]), 9, 1))
must(driver.cuMemFreeHost(c_void_p(words[1])))
print(runtime.cudaStreamSynchronize(a))
""", work="late", violations="count", scalars="real")
        self.assertEqual(done.stdout.split(), ["700"], done.stderr)
        self.assertIn("illegal access by a wait on stream", done.stderr)

    def test_a_value_of_eight_bytes_is_written_at_once(self):
        succeed(self, VALUES + """
write(b, words[0], (1 << 32) - 1)
must(runtime.cudaStreamSynchronize(b))
must(driver.cuStreamWaitValue64_v2(a, c_uint64(words[0]), c_uint64(0), 1))
must(driver.cuStreamWriteValue64_v2(b, c_uint64(words[0]), c_uint64(1 << 32), 0))
must(runtime.cudaStreamSynchronize(b))
assert runtime.cudaStreamQuery(a) == 600
assert download(words[0], 8) == struct.pack("<Q", 1 << 32)
must(driver.cuStreamWriteValue64_v2(b, c_uint64(words[0]), c_uint64(0), 0))
must(runtime.cudaStreamSynchronize(a))
""", work="late", scalars="real")

    def test_ordered_program_is_clean_under_every_schedule(self):
        for schedule in ("random", "fifo", "lifo", "starve"):
            for seed in range(5):
                done = succeed(self, LAID + """
other, event = new_stream(), c_void_p()
must(runtime.cudaEventCreateWithFlags(byref(event), 2))
for i in range(50):
    must(launch(f, a, stream))
    must(runtime.cudaMemsetAsync(c_void_p(a), i, c_size_t(100000), stream))
    must(runtime.cudaEventRecord(event, stream))
    must(runtime.cudaStreamWaitEvent(other, event, 0))
    to = ctypes.create_string_buffer(100000)
    must(runtime.cudaMemcpyAsync(to, c_void_p(a), c_size_t(100000), 2, other))
    assert to.raw == bytes([i]) * 100000
must(runtime.cudaDeviceSynchronize())
unmap(a, 2 * MIB)
""", work="late", schedule=schedule, seed=seed)
                self.assertNotIn("violation", done.stderr)

    def test_kernel_that_races_with_a_write_is_caught(self):
        """What an allocator does that gives memory away before another stream is done with it."""
        program = LAID + """
other = new_stream()
must(launch(f, a, stream))
must(runtime.cudaMemsetAsync(c_void_p(a), 1, c_size_t(1000), other))
must(runtime.cudaStreamSynchronize(other))
must(runtime.cudaDeviceSynchronize())
must(runtime.cudaMemsetAsync(c_void_p(a), 1, c_size_t(1000), other))
must(launch(f, a + 500, stream))
must(runtime.cudaStreamSynchronize(stream))
must(runtime.cudaDeviceSynchronize())
must(launch(f, a, stream))
must(runtime.cudaMemsetAsync(c_void_p(a + 8), 1, c_size_t(1000), other))
must(runtime.cudaStreamSynchronize(other))
must(runtime.cudaDeviceSynchronize())
"""
        done = run(program, work="blocked", schedule="lifo", violations="count")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("race: kernel touch_it"), 2, done.stderr)
        self.assertIn("the kernel was enqueued first", done.stderr)
        self.assertIn("the fill was enqueued first", done.stderr)
        self.assertEqual(run(program, work="blocked", schedule="lifo").returncode, -6)
        self.assertNotIn("race", succeed(self, program).stderr)

    def test_words_among_others_are_suspected_only(self):
        """A structure that is passed by value has fields that nobody sets, and what lay there are addresses, too."""
        program = LAID + STRUCTURES + """
other = new_stream()
def race(function, *words):
    must(runtime.cudaDeviceSynchronize())
    must(launch_words(function, words, stream))
    must(runtime.cudaMemsetAsync(c_void_p(a), 1, c_size_t(1000), other))
    must(runtime.cudaStreamSynchronize(other))
"""
        harmless = """
race(structure, 3, a + 8)
race(list_of_64, *[a] * 8)
race(pair, a, 5)
race(pair, a, a)
must(runtime.cudaDeviceSynchronize())
must(launch_words(structure, (7, a + 4096), stream))
unmap(a, 2 * MIB)
must(runtime.cudaDeviceSynchronize())
"""
        with tempfile.TemporaryDirectory() as folder:
            done = succeed(self, program + harmless, work="blocked", schedule="lifo", report=folder)
            report = json.loads(next(Path(folder).glob("*.json")).read_text())
        self.assertEqual(done.stderr, "")
        self.assertEqual((report["violations"], report["suspicions"]), (0, 5))
        self.assertIn("perhaps a race: kernel structure", report["first_suspicion"])
        for use in ("race(pair, a, a + 500)", "race(pair, LOW, a)"):
            done = run(program + use.replace("LOW", "a + 2 * MIB - 8"), work="blocked", schedule="lifo")
            self.assertEqual(done.returncode, -6, use)
            self.assertIn("race: kernel pair", done.stderr)

    def test_parts_of_a_buffer_may_be_written_meanwhile(self):
        """Streams that work on a part each: what tells the kernel its part, an offset, is a number to the device."""
        apart = "race((a, 0), (a, 32))\nrace((a, 4096), (a, 0))\nrace((a, 0), (a, 0))\n"
        with tempfile.TemporaryDirectory() as folder:
            succeed(self, PARTS + apart, work="blocked", schedule="lifo", report=folder)
            report = json.loads(next(Path(folder).glob("*.json")).read_text())
        self.assertEqual((report["violations"], report["suspicions"]), (0, 3))
        self.assertIn("perhaps a race: kernel part on stream", report["first_suspicion"])
        self.assertIn(" uses ", report["first_suspicion"])
        for pair in ("(a, 7), (a, 7)", "(a, 0), (a, 31)", "(a, 0), (a + 8, 32)", "(a, 0), (a, 64, 2)",
                     "(a, 0x3f800000), (a, 0x40000000)"):
            done = run(PARTS + f"race({pair})\n", work="blocked", schedule="lifo")
            self.assertEqual(done.returncode, -6, pair)
            self.assertIn("race: kernel part", done.stderr)

    def test_memory_of_parts_is_watched(self):
        done = run(PARTS + """
race((a, 0), (a, 32))
must(runtime.cudaDeviceSynchronize())
part(other, a, 64)
unmap(a, 2 * MIB)
must(runtime.cudaDeviceSynchronize())
""", work="blocked", schedule="lifo")
        self.assertEqual(done.returncode, -6)
        self.assertIn("illegal access by kernel part", done.stderr)

    def test_polling_ends(self):
        for schedule in ("random", "fifo", "lifo", "starve"):
            succeed(self, LAID + """
must(launch(f, a, stream))
while runtime.cudaStreamQuery(stream) == 600:
    pass
""", work="late", schedule=schedule)

    def test_pageable_source_may_change_at_once(self):
        succeed(self, """
p, stream, data = malloc(1000), new_stream(), ctypes.create_string_buffer(b"early" * 200)
must(runtime.cudaMemcpyAsync(c_void_p(p), data, c_size_t(1000), 1, stream))
ctypes.memset(data, 0, 1000)
must(runtime.cudaStreamSynchronize(stream))
assert download(p, 1000) == b"early" * 200
""", work="late")

    def test_graph_replays_with_right_bytes(self):
        succeed(self, CAPTURED + """
upload(a, bytes(200))
for _ in range(3):
    must(runtime.cudaGraphLaunch(instance, stream))
must(runtime.cudaStreamSynchronize(stream))
assert download(a, 200) == b"\\x05" * 100 + bytes(100)
count, kind, before = c_size_t(), c_int(), c_size_t(8)
must(runtime.cudaGraphGetNodes(graph, None, byref(count)))
nodes, deps = (c_void_p * 2)(), (c_void_p * 8)()
must(runtime.cudaGraphGetNodes(graph, nodes, byref(count)))
kinds = []
for node in nodes:
    must(runtime.cudaGraphNodeGetType(c_void_p(node), byref(kind)))
    kinds.append(kind.value)
assert kinds == [0, 2], kinds
must(runtime.cudaGraphNodeGetDependencies(c_void_p(nodes[1]), deps, None, byref(before)))
assert (before.value, deps[0]) == (1, nodes[0])
must(runtime.cudaGraphDestroy(graph))
must(runtime.cudaGraphExecDestroy(instance))
""", work="late")

    def test_graph_that_outlives_its_memory_is_caught_at_each_replay(self):
        done = run(CAPTURED + """
must(runtime.cudaGraphLaunch(instance, stream))
must(runtime.cudaStreamSynchronize(stream))
unmap(a, 2 * MIB)
print(runtime.cudaGraphLaunch(instance, stream), runtime.cudaStreamSynchronize(stream))
""", violations="count")
        address = int(done.stdout.split()[0], 16)
        self.assertIn("kernel touch_it", done.stderr)
        self.assertIn(f"of a graph: {address + 8:#x}, which was mapped at its capture, is no longer mapped",
                      done.stderr)
        self.assertEqual(done.stdout.split()[2], "700")

    def test_capture_tells_its_graph(self):
        succeed(self, LAID + """
status, ident, graph, deps, count = c_int(), c_uint64(), c_void_p(), c_void_p(), c_size_t()
end = c_void_p()
must(runtime.cudaStreamBeginCapture(stream, 0))
must(launch(f, a, stream))
must(runtime.cudaStreamGetCaptureInfo(stream, byref(status), byref(ident), byref(graph), byref(deps), None,
                                      byref(count)))
must(runtime.cudaStreamEndCapture(stream, byref(end)))
assert (status.value, count.value, graph.value) == (1, 1, end.value) and ident.value and deps.value
""")

    def test_events_keep_virtual_time(self):
        succeed(self, LAID + """
first, last, ms = c_void_p(), c_void_p(), ctypes.c_float()
must(runtime.cudaEventCreate(byref(first)))
must(runtime.cudaEventCreate(byref(last)))
must(runtime.cudaEventRecord(first, stream))
for _ in range(10):
    must(launch(f, a, stream))
must(runtime.cudaEventRecord(last, stream))
must(runtime.cudaEventSynchronize(last))
must(runtime.cudaEventElapsedTime(byref(ms), first, last))
assert 70 <= ms.value < 70.1, ms.value
""", kernel_ns=7000000)

    def test_pytorchs_sleep_keeps_its_stream_busy(self):
        """torch.cuda._sleep: programs and tests check with it that memory is not used again too early."""
        program = """
SOURCE = (b".version 8.0\\n.target sm_80\\n.address_size 64\\n"
          b".visible .entry _ZN2at4cuda11spin_kernelEl(.param .u64 cycles)\\n{\\nret;\\n}\\n\\0")
module, spin, first, last, ms = c_void_p(), c_void_p(), c_void_p(), c_void_p(), ctypes.c_float()
must(driver.cuModuleLoadData(byref(module), SOURCE))
must(driver.cuModuleGetFunction(byref(spin), module, b"_ZN2at4cuda11spin_kernelEl"))
must(runtime.cudaEventCreate(byref(first)))
must(runtime.cudaEventCreate(byref(last)))
stream, other, a = new_stream(), new_stream(), malloc(4096)

def sleep():
    cycles = c_uint64(50_000_000)
    arguments = (c_void_p * 1)(ctypes.addressof(cycles))
    must(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None))

must(runtime.cudaDeviceSynchronize())
source = ctypes.create_string_buffer(b"before")
must(runtime.cudaEventRecord(first, stream))
sleep()
must(runtime.cudaMemcpyAsync(c_void_p(a), source, c_size_t(6), 1, stream))
source.value = b"after"
must(runtime.cudaEventRecord(last, stream))
assert runtime.cudaEventQuery(last) == 600
assert runtime.cudaStreamQuery(stream) == 600
must(runtime.cudaMemsetAsync(c_void_p(a + 1024), 1, c_size_t(8), other))
assert runtime.cudaStreamQuery(other) == WORK
must(runtime.cudaEventSynchronize(last))
must(runtime.cudaEventElapsedTime(byref(ms), first, last))
assert 25 <= ms.value < 26, ms.value
assert download(a, 6) == b"before", download(a, 6)
sleep()
asked = 0
while runtime.cudaStreamQuery(stream) == 600:
    asked += 1
assert asked > 10, asked
sleep()
must(runtime.cudaMemsetAsync(c_void_p(a), 1, c_size_t(8), stream))
must(runtime.cudaFree(c_void_p(a)))
must(runtime.cudaStreamQuery(stream))
"""
        succeed(self, program.replace("WORK", "0"), device="h100")
        succeed(self, program.replace("runtime.cudaStreamQuery(other) == WORK", "True"), work="late", device="h100")

    def test_streams_and_events_take_documented_flags(self):
        succeed(self, """
event, stream, priority = c_void_p(), c_void_p(), c_int()
for flags in range(10):
    known = flags < 4 or flags in (6, 7)  # an event of several processes keeps no time
    assert runtime.cudaEventCreateWithFlags(byref(event), flags) == (0 if known else 1), flags
    assert driver.cuEventCreate(byref(event), flags) == (0 if known else 1), flags
    assert runtime.cudaStreamCreateWithFlags(byref(stream), flags) == (0 if flags < 2 else 1), flags
    assert driver.cuStreamCreateWithPriority(byref(stream), flags, 0) == (0 if flags < 2 else 1), flags
assert driver.cuEventCreate(None, 0) == 1 and driver.cuStreamCreate(None, 0) == 1
for wanted, got in ((99, 0), (-3, -3), (-99, -5)):
    must(runtime.cudaStreamCreateWithPriority(byref(stream), 1, wanted))
    must(runtime.cudaStreamGetPriority(stream, byref(priority)))
    assert priority.value == got, (wanted, priority.value)
assert runtime.cudaLaunchHostFunc(stream, None, None) == 1
assert runtime.cudaStreamAddCallback(stream, None, None, 0) == 1
must(runtime.cudaStreamSynchronize(stream))
""")

    def test_host_functions_run_in_order(self):
        succeed(self, """
seen, stream = [], new_stream()
FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
functions = [FUNCTION(lambda _, i=i: seen.append(i)) for i in range(20)]
for function in functions:
    must(runtime.cudaLaunchHostFunc(stream, function, None))
must(runtime.cudaStreamSynchronize(stream))
assert seen == list(range(20))
""", work="late")

    def test_host_functions_may_not_call_cuda(self):
        succeed(self, """
seen, stream, p, event = [], new_stream(), c_void_p(), c_void_p()
must(runtime.cudaEventCreate(byref(event)))
FUNCTION, CALLBACK = ctypes.CFUNCTYPE(None, c_void_p), ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)
def call(*_):
    seen.append(runtime.cudaMalloc(byref(p), 4096))
    seen.append(runtime.cudaEventQuery(event))
    seen.append(driver.cuStreamSynchronize(stream))
    seen.append(driver.cuStreamIsCapturing(stream, byref(c_int())))
functions = FUNCTION(call), CALLBACK(call)
must(runtime.cudaLaunchHostFunc(stream, functions[0], None))
must(runtime.cudaStreamAddCallback(stream, functions[1], None, 0))
must(runtime.cudaStreamSynchronize(stream))
assert seen == [800] * 8, seen
assert runtime.cudaGetLastError() == 0
must(runtime.cudaMalloc(byref(p), 4096))
must(runtime.cudaFree(p))
""", work="late")

    def test_callbacks_are_refused_in_captures(self):
        succeed(self, """
seen, stream, graph = [], new_stream(), c_void_p()
CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)
call = CALLBACK(lambda *_: seen.append(1))
must(runtime.cudaStreamBeginCapture(stream, 2))
assert runtime.cudaStreamAddCallback(stream, call, None, 0) == 900
assert runtime.cudaStreamEndCapture(stream, byref(graph)) == 901
must(runtime.cudaStreamAddCallback(stream, call, None, 0))
must(runtime.cudaStreamSynchronize(stream))
assert seen == [1], seen
""")

    def test_what_is_missing_is_named_once(self):
        done = succeed(self, """
import ctypes
for _ in range(3):
    assert driver.cuMulticastUnbind(c_uint64(0), 0, c_size_t(0), c_size_t(0)) == 801
    assert runtime.cudaLogsCurrent(None, 0) == 801
function, why = c_void_p(), c_int()
assert driver.cuGetProcAddress_v2(b"cuNoSuchThing", byref(function), 13000, c_uint64(0), byref(why)) == 500
assert (function.value, why.value) == (None, 1)
""")
        self.assertEqual(done.stderr.count("the simulated device lacks cuMulticastUnbind:"), 1)
        self.assertEqual(done.stderr.count("the simulated device lacks cudaLogsCurrent:"), 1)
        self.assertEqual(done.stderr.count("the simulated device lacks cuNoSuchThing:"), 1)

    def test_integrity_check_is_not_answered(self):
        done = succeed(self, f"""
import subprocess, tempfile
DRIVER = os.path.join(os.environ["LD_LIBRARY_PATH"], "libcuda.so.1")
SOURCE = "int cuGetExportTable(const void **, const void *); int ask(void)" \
         "{{ const void *t = &t; return cuGetExportTable(&t, 0) == 500 && !t; }}"
with tempfile.TemporaryDirectory() as folder:
    for name in ("libnvrtc.so.13", "libcublas.so.13", "module.so", "libcudart.so.12"):
        path = os.path.join(folder, name)
        subprocess.run([{CC!r}, "-shared", "-fPIC", "-x", "c", "-", "-o", path, "-x", "none", DRIVER], input=SOURCE,
                       text=True, check=True)
        library = ctypes.CDLL(path)
        assert (library.ask(), library.ask()) == (1, 1)
""")
        self.assertEqual(re.findall(r"(\S+) has NVIDIA's own CUDA runtime", done.stderr),
                         ["libcublas.so.13", "module.so", "libcudart.so.12"])
        library, module, runtime = done.stderr.splitlines()
        self.assertIn("standins PROGRAM DIR", library)
        for line in (module, runtime):
            self.assertIn(f"terrazzo sim, or with LD_PRELOAD={LIBRARIES}/libterrazzo_redirect.so", line)

    def test_code_is_linked_at_run_time(self):
        succeed(self, """
state, image, size, module, f = c_void_p(), c_void_p(), c_size_t(), c_void_p(), c_void_p()
log, options, p = ctypes.create_string_buffer(b"unset", 64), (c_int * 2)(3, 4), malloc(4096)
values = (c_void_p * 2)(ctypes.addressof(log), 64)  # which the end writes to
must(driver.cuLinkCreate_v2(2, options, values, byref(state)))
assert driver.cuLinkComplete(state, byref(image), byref(size)) == 200
OTHER = PTX.replace(b"touch_it", b"another")
for text in (PTX, OTHER):
    must(driver.cuLinkAddData_v2(state, 1, text, c_size_t(len(text)), b"name", 0, None, None))
assert driver.cuLinkAddFile_v2(state, 0, b"/no/such/file", 0, None, None) == 301
must(driver.cuLinkComplete(state, byref(image), byref(size)))
assert log.value == b""
must(driver.cuModuleLoadData(byref(module), image))
for name in (b"touch_it", b"another"):
    must(driver.cuModuleGetFunction(byref(f), module, name))
    must(launch(f, p))
must(driver.cuLinkDestroy(state))
must(runtime.cudaDeviceSynchronize())
""")

    def test_modules_are_checked(self):
        """As cuda.h has it: a module needs a context, a library none; what has been unloaded is no handle."""
        succeed(self, """
module, library, f, kernel, value = [c_void_p() for _ in range(4)] + [c_int()]
address, size = c_uint64(), c_size_t()
must(driver.cuCtxSetCurrent(None))
assert driver.cuModuleLoadData(byref(module), PTX) == 201
must(driver.cuLibraryLoadData(byref(library), PTX, None, None, 0, None, None, 0))
must(driver.cuLibraryGetKernel(byref(kernel), library, b"touch_it"))
assert driver.cuLibraryGetModule(byref(module), library) == 201
must(runtime.cudaSetDevice(0))  # gives the context back
p = malloc(4096)
assert driver.cuModuleLoadData(None, PTX) == 1 and driver.cuModuleLoadData(byref(module), None) == 1
assert driver.cuModuleLoad(None, b"/dev/null") == 1 and driver.cuModuleLoad(byref(module), b"/no/such/file") == 301
assert driver.cuModuleLoadDataEx(byref(module), PTX, 1, None, None) == 1
info, error = (ctypes.create_string_buffer(b"unset", 64) for _ in range(2))
options = (c_int * 5)(5, 3, 4, 6, 2)
values = (c_void_p * 5)(ctypes.addressof(error), ctypes.addressof(info), 64, 20, 7)
must(driver.cuModuleLoadDataEx(byref(module), PTX, 5, options, values))
assert (info.value, error.value, [v or 0 for v in values[2:]]) == (b"", b"", [0, 0, 0])
must(driver.cuModuleUnload(module))
values = (c_void_p * 5)(ctypes.addressof(error), ctypes.addressof(info), 64, 20, 7)
assert driver.cuModuleLoadDataEx(byref(module), b".version 8.0\\n.entry", 5, options, values) == 218
assert error.value == b"PTX line 2: an entr" and values[3] == 19 and error.raw[20:] == bytes(44), error.raw
assert driver.cuModuleLoadData(byref(module), b"\\x7fELF" + bytes(64)) == 200
VARIABLES = PTX[:-1] + b".global .attribute(.managed) .align 4 .b8 both[8];\\n.global .u32 own;\\n\\0"
must(driver.cuModuleLoadData(byref(module), VARIABLES))
for name, managed in ((b"both", 1), (b"own", 0)):
    must(driver.cuModuleGetGlobal_v2(byref(address), byref(size), module, name))
    must(driver.cuPointerGetAttribute(byref(value), 8, address))
    assert value.value == managed, name
must(driver.cuModuleGetFunction(byref(f), module, b"touch_it"))
must(launch(f, p))
must(driver.cuFuncGetAttribute(byref(value), 8, f))
assert value.value == 48 << 10
must(driver.cuFuncSetAttribute(f, 8, 227 << 10))
assert [driver.cuFuncSetAttribute(f, *to) for to in ((8, 228 << 10), (4, 3), (10, 1), (9, 101), (9, -2))] == [1] * 5
must(driver.cuFuncSetAttribute(f, 9, 100))
must(driver.cuModuleUnload(module))
assert (driver.cuModuleUnload(module), driver.cuModuleUnload(None), launch(f, p)) == (400, 400, 400)
assert driver.cuModuleGetFunction(byref(f), module, b"touch_it") == 400
assert driver.cuModuleGetGlobal_v2(byref(address), None, module, b"own") == 400
must(driver.cuLibraryUnload(library))
assert driver.cuLibraryUnload(library) == 400 and driver.cuLibraryGetKernel(byref(f), library, b"touch_it") == 400
grid = c_int()
must(driver.cuLibraryLoadData(byref(library), PTX, None, None, 0, None, None, 0))
must(driver.cuLibraryGetKernel(byref(kernel), library, b"touch_it"))
must(driver.cuOccupancyMaxPotentialBlockSizeWithFlags(byref(grid), byref(value), kernel, None, c_size_t(0), 0, 0))
assert value.value == 1024 and grid.value > 0
""")

    def test_files_of_code_that_are_cut_off_are_refused(self):
        """What their headers promise is not looked for behind their end."""
        succeed(self, """
import mmap, struct, tempfile
p, module = malloc(4096), c_void_p()
text = PTX + b" " * (mmap.PAGESIZE - len(PTX))
entry = struct.pack("<HHIQIIIIQQQQ", 1, 0x101, 64, len(text), 0, 0, 0, 80, 0, 0, 0, 0) + text
fatbin = struct.pack("<IHHQ", 0xba55ed50, 1, 16, len(entry)) + entry
for length in (15, 16, 60, 80, len(fatbin) - 1, len(fatbin)):
    with tempfile.NamedTemporaryFile() as file:
        file.write(fatbin[:length])
        file.flush()
        result = driver.cuModuleLoad(byref(module), file.name.encode())
        assert result == (0 if length == len(fatbin) else 200), (length, result)
""")

    def test_kernels_of_a_library_without_their_names(self):
        """DeepGEMM compiles code of one kernel, and takes what there is."""
        succeed(self, """
CODE = PTX + PTX[PTX.index(b".visible"):].replace(b"touch_it", b"another")
CODE = CODE.replace(b"\\0", b"") + b"\\0"
library, count, size, name = c_void_p(), ctypes.c_uint(), c_size_t(), c_char_p()
must(driver.cuLibraryLoadData(byref(library), CODE, None, None, 0, None, None, 0))
must(driver.cuLibraryGetKernelCount(byref(count), library))
assert count.value == 2, count.value
one, found, p, again = (c_void_p * 3)(), (c_void_p * 3)(), malloc(4096), c_void_p()
must(driver.cuLibraryEnumerateKernels(one, 1, library))
must(driver.cuModuleEnumerateFunctions(found, 3, library))
assert one[0] == found[0] and not one[1] and found[1] and not found[2]
names = set()
for i in range(2):
    must(driver.cuKernelGetName(byref(name), c_void_p(found[i])))
    must(driver.cuKernelGetParamCount(c_void_p(found[i]), byref(size)))
    must(driver.cuLibraryGetKernel(byref(again), library, name))
    must(launch(c_void_p(found[i]), p))
    assert size.value == 1 and again.value == found[i]
    names.add(name.value)
assert names == {b"touch_it", b"another"}, names
must(runtime.cudaLibraryEnumerateKernels(one, 3, library))
assert list(one) == list(found)

# The runtime takes the driver's kernels.
class Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]
value = c_uint64(p)
arguments = (c_void_p * 1)(ctypes.addressof(value))
must(runtime.cudaFuncSetAttribute(c_void_p(found[0]), 8, 65536))
must(runtime.cudaLaunchKernel(c_void_p(found[0]), Dim(1, 1, 1), Dim(32, 1, 1), arguments, c_size_t(65536), None))
assert runtime.cudaFuncSetAttribute(c_void_p(p), 8, 65536) == 98
assert driver.cuLibraryEnumerateKernels(None, 1, library) == 1
""")

    def test_launches_as_before_cuda_4(self):
        done = run("""
f, stream, a = kernel(), new_stream(), malloc(4096)
assert driver.cuLaunch(f) == 1, "no shape yet"
must(driver.cuFuncSetBlockShape(f, 32, 2, 1))
must(driver.cuFuncSetSharedSize(f, 1024))
must(driver.cuParamSetSize(f, 8))
must(driver.cuParamSetv(f, 0, byref(c_uint64(a)), 8))
must(driver.cuLaunch(f))
must(driver.cuLaunchGrid(f, 4, 2))
assert driver.cuLaunchGrid(f, 0, 2) == driver.cuParamSetSize(f, 1 << 20) == 1
assert driver.cuParamSetv(f, 4090, b"x" * 8, 8) == 1
must(driver.cuLaunchGridAsync(f, 4, 2, stream))
must(driver.cuStreamSynchronize(stream))
must(driver.cuParamSeti(f, 0, a & 0xffffffff))
must(driver.cuParamSeti(f, 4, a >> 32))
must(driver.cuLaunchGridAsync(f, 1, 1, stream))
must(runtime.cudaFree(c_void_p(a)))
must(driver.cuLaunchGridAsync(f, 1, 1, stream))
reserved = reserve(2 * MIB)
lay(reserved, 2 * MIB, create(2 * MIB))
must(driver.cuParamSetv(f, 0, byref(c_uint64(reserved)), 8))
must(driver.cuLaunchGridAsync(f, 1, 1, stream))
unmap(reserved, 2 * MIB)
driver.cuStreamSynchronize(stream)
""", work="late")
        self.assertEqual(done.returncode, -6, done.stderr)
        self.assertRegex(done.stderr, "touch_it.*not mapped|no longer mapped")

    def test_contexts_count_their_uses(self):
        succeed(self, """
first, context, again, current = c_void_p(), c_void_p(), c_void_p(), c_void_p()
must(driver.cuCtxGetCurrent(byref(first)))
must(driver.cuCtxCreate(byref(context), 0, 0))
assert driver.cuCtxAttach(byref(again), 1) == 1
must(driver.cuCtxAttach(byref(again), 0))
assert again.value == context.value
assert driver.cuCtxDetach(first) == 201
must(driver.cuCtxDetach(context))
must(driver.cuCtxGetCurrent(byref(current)))
assert current.value == context.value
must(driver.cuCtxDetach(context))
must(driver.cuCtxGetCurrent(byref(current)))
assert current.value == first.value
""")

    def test_launches_keep_to_the_limits(self):
        succeed(self, """
CODE = b".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry bounded(.param .u64 p)\\n" \\
       b".maxntid 256, 1, 1\\n{\\nret;\\n}\\n\\0"
f, p, module, bounded = kernel(), malloc(64), c_void_p(), c_void_p()
must(driver.cuModuleLoadData(byref(module), CODE))
must(driver.cuModuleGetFunction(byref(bounded), module, b"bounded"))
class Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]
value = c_uint64(p)
arguments = (c_void_p * 1)(ctypes.addressof(value))
def results(grid, block, shared=0, function=f):
    by_runtime = runtime.__cudaLaunchKernel(function, Dim(*grid), Dim(*block), arguments, c_size_t(shared), None)
    return driver.cuLaunchKernel(function, *grid, *block, shared, None, arguments, None), by_runtime
one = 1, 1, 1
for grid, block in ((one, (1024, 1, 1)), (one, (16, 1, 64)), ((1 << 30, 65535, 65535), one)):
    assert results(grid, block) == (0, 0), (grid, block)
for grid, block in ((one, (1025, 1, 1)), (one, (1, 1, 65)), (one, (32, 33, 1)), (one, (1 << 16, 1 << 16, 1)),
                    ((0, 1, 1), one), ((1, 65536, 1), one), ((1, 1, 65536), one), ((1 << 31, 1, 1), one)):
    assert results(grid, block) == (1, 9), (grid, block)
assert results(one, (256, 1, 1), 48 << 10, bounded) == (0, 0)
assert results(one, (257, 1, 1), 0, bounded) == (701, 701)
assert results(one, one, (48 << 10) + 4, bounded) == (1, 1)
must(driver.cuFuncSetAttribute(bounded, 8, 64 << 10))
assert results(one, one, 64 << 10, bounded) == (0, 0)
assert results(one, one, (64 << 10) + 1, bounded) == (1, 1)
blocks, sms = c_int(), c_int()
must(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), f, 256, c_size_t(0)))
must(driver.cuDeviceGetAttribute(byref(sms), 16, 0))
most = blocks.value * sms.value
must(driver.cuLaunchCooperativeKernel(f, most, 1, 1, 256, 1, 1, 0, None, arguments))
assert driver.cuLaunchCooperativeKernel(f, most + 1, 1, 1, 256, 1, 1, 0, None, arguments) == 720
""")

    def test_the_default_stream_ends_after_blocking_ones(self):
        for work in ("now", "late"):
            succeed(self, """
size, events, streams = 64 * MIB, [c_void_p(), c_void_p()], [c_void_p(), c_void_p()]
a, b = malloc(size), malloc(size)
for stream in streams:
    must(runtime.cudaStreamCreate(byref(stream)))
for event in events:
    must(runtime.cudaEventCreateWithFlags(byref(event), 0))
must(runtime.cudaEventRecord(events[0], None))
for stream in streams:
    must(runtime.cudaMemcpyAsync(c_void_p(b), c_void_p(a), c_size_t(size), 3, stream))
    must(runtime.cudaStreamSynchronize(stream))
must(runtime.cudaEventRecord(events[1], None))
must(runtime.cudaEventSynchronize(events[1]))
ms = ctypes.c_float()
must(runtime.cudaEventElapsedTime(byref(ms), *events))
assert 0.02 < ms.value < 1, ms.value
""", work=work)

    def test_copies_and_fills_take_the_time_of_their_bytes(self):
        for work in ("now", "late"):
            succeed(self, """
size, stream, events = 64 * MIB, new_stream(), []
a, b, host = malloc(size), malloc(size), c_void_p()
must(runtime.cudaSetDevice(1))
other = malloc(size)
must(runtime.cudaSetDevice(0))
must(runtime.cudaHostAlloc(byref(host), c_size_t(size), 0))
def record():
    events.append(c_void_p())
    must(runtime.cudaEventCreateWithFlags(byref(events[-1]), 0))
    must(runtime.cudaEventRecord(events[-1], stream))
def copy(to, source, bytes=size):
    must(runtime.cudaMemcpyAsync(c_void_p(to), c_void_p(source), c_size_t(bytes), 4, stream))
    record()
record()
copy(a, host.value)
copy(host.value, a)
copy(b, a)
must(runtime.cudaMemsetAsync(c_void_p(a), 0, c_size_t(size), stream))
record()
copy(other, a)
copy(b, a, 64)
must(runtime.cudaStreamSynchronize(stream))
times = []
for start, end in zip(events, events[1:]):
    ms = ctypes.c_float()
    must(runtime.cudaEventElapsedTime(byref(ms), start, end))
    times.append(ms.value * 1e-3)
link, memory = 31.5e9, 2039e9  # an A100 of 80 GB
for got, want in zip(times, (size / link, size / link, 2 * size / memory, size / memory, size / link)):
    assert 0.95 * want < got < 1.1 * want + 5e-6, times
assert 0 < times[-1] < 1e-5, times
""", work=work, device="a100", devices=2)

    def test_late_work_completes_while_the_program_only_waits(self):
        succeed(self, """
import threading
stream, done, flag = new_stream(), threading.Event(), c_void_p()
called = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: done.set())
must(runtime.cudaHostAlloc(byref(flag), c_size_t(8), 0))
ctypes.memset(flag, 0, 8)
p = malloc(32)
upload(p, b"x" * 32)
must(runtime.cudaLaunchHostFunc(stream, called, None))
assert done.wait(60)
must(runtime.cudaMemcpyAsync(flag, c_void_p(p), c_size_t(8), 2, stream))
for _ in range(600):
    if ctypes.string_at(flag, 8) == b"x" * 8:
        break
    done.clear()
    done.wait(0.1)
else:
    raise SystemExit("the copy never ran")
""", work="late", schedule="starve", seed=5, scalars="real")


if __name__ == "__main__":
    skip_if_unfit()
    unittest.main()
