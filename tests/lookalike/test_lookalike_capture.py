# SPDX-License-Identifier: Apache-2.0
"""Captures over the look-alike libraries: queries about them, calls that they forbid; events."""
import unittest

from lookalike_process import run, skip_if_unfit, succeed

PROGRAM = """
INVALID, HANDLE, STATE, NOT_READY = 1, 400, 401, 600
(UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT,
 WRONG_THREAD) = range(900, 909)
f, a, stream, other, third = kernel(), malloc(4096), new_stream(), new_stream(), new_stream()

def event(flags=2):
    made = c_void_p()
    must(runtime.cudaEventCreateWithFlags(byref(made), flags))
    return made

def record(e, s):
    must(runtime.cudaEventRecord(e, s))
    return e

def follow(late, early):
    must(runtime.cudaStreamWaitEvent(late, record(event(), early), 0))

def begin(s=stream, relaxed=False):
    must(runtime.cudaStreamBeginCapture(s, 2 if relaxed else 0))

def end(s=stream):
    graph = c_void_p()
    return runtime.cudaStreamEndCapture(s, byref(graph)), graph

def info(s):
    status, deps, count = c_int(), c_void_p(), c_size_t()
    must(runtime.cudaStreamGetCaptureInfo(s, byref(status), None, None, byref(deps), None, byref(count)))
    nodes = ctypes.cast(deps, ctypes.POINTER(c_void_p))
    return status.value, [nodes[i] for i in range(count.value)]

def before(node):
    deps, count = (c_void_p * 8)(), c_size_t(8)
    must(runtime.cudaGraphNodeGetDependencies(c_void_p(node), deps, None, byref(count)))
    return list(deps)[:count.value]

def kinds(graph):
    count, kind, found = c_size_t(), c_int(), []
    must(runtime.cudaGraphGetNodes(graph, None, byref(count)))
    nodes = (c_void_p * count.value)()
    must(runtime.cudaGraphGetNodes(graph, nodes, byref(count)))
    for node in nodes:
        must(runtime.cudaGraphNodeGetType(c_void_p(node), byref(kind)))
        found.append(kind.value)
    return found

def instantiate(graph):
    instance = c_void_p()
    must(runtime.cudaGraphInstantiate(byref(instance), graph, c_uint64(0)))
    return instance

def elapsed(first, last):
    return runtime.cudaEventElapsedTime(byref(ctypes.c_float()), first, last)
"""


class Capture(unittest.TestCase):
    def test_handles_look_like_pointers(self):
        """PyTorch takes odd values of streams for numbers of its own, CUDA small ones for special streams."""
        succeed(self, PROGRAM + """
begin()
must(launch(f, a, stream))
nodes = info(stream)[1]
result, graph = end()
context = c_void_p()
must(driver.cuCtxGetCurrent(byref(context)))
for handle in (stream.value, other.value, event().value, graph.value, instantiate(graph).value, context.value, *nodes):
    assert handle > 1 << 16 and handle % 16 == 0, hex(handle)
""")

    def test_each_stream_has_its_own_dependencies(self):
        succeed(self, PROGRAM + """
begin()
assert info(stream) == (1, [])
must(launch(f, a, stream))
(_, [first]) = info(stream)
follow(other, stream)
assert info(other) == (1, [first])
must(launch(f, a, other))
(_, [right]) = info(other)
assert info(stream) == (1, [first]) and right != first and before(right) == [first]
must(launch(f, a, stream))
(_, [left]) = info(stream)
assert info(other) == (1, [right]) and before(left) == [first]
follow(third, other)
follow(stream, third)
assert info(third) == (1, [right])
assert sorted(info(stream)[1]) == sorted([left, right])
must(launch(f, a, stream))
(_, [last]) = info(stream)
assert sorted(before(last)) == sorted([left, right]) and before(first) == []
result, graph = end()
must(result)
assert kinds(graph) == [0] * 4
assert sorted(before(last)) == sorted([left, right]) and before(left) == before(right) == [first]
""")

    def test_a_graph_may_have_many_nodes(self):
        succeed(self, PROGRAM + """
begin()
for _ in range(70000):
    driver.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, (c_void_p * 1)(ctypes.addressof(c_uint64(a))), None)
(_, [last]) = info(stream)
result, graph = end()
must(result)
assert len(before(last)) == 1
count = c_size_t()
must(runtime.cudaGraphGetNodes(graph, None, byref(count)))
assert count.value == 70000
""")

    def test_waiting_for_what_is_captured(self):
        succeed(self, PROGRAM + """
for wait, args in ((runtime.cudaStreamSynchronize, [stream]), (runtime.cudaStreamQuery, [stream]),
                   (runtime.cudaDeviceSynchronize, []), (runtime.cudaMalloc, [byref(c_void_p()), c_size_t(100)])):
    begin()
    must(launch(f, a, stream))
    assert wait(*args) == UNSUPPORTED, wait
    assert info(stream) == (2, [])
    assert launch(f, a, stream) == INVALIDATED
    assert end()[0] == INVALIDATED
    must(launch(f, a, stream))
begin(relaxed=True)
e = record(event(), stream)
assert runtime.cudaEventQuery(e) == CAPTURED_EVENT
assert end()[0] == INVALIDATED
assert runtime.cudaEventSynchronize(e) == CAPTURED_EVENT
assert runtime.cudaStreamWaitEvent(stream, e, 0) == CAPTURED_EVENT
must(runtime.cudaEventSynchronize(record(e, stream)))
must(runtime.cudaDeviceSynchronize())
""", work="late")

    def test_wrong_begins_ends_and_borders(self):
        for work in ("now", "late"):
            succeed(self, PROGRAM + """
import threading
assert end()[0] == STATE
assert runtime.cudaStreamBeginCapture(stream, 3) == INVALID
begin()
assert runtime.cudaStreamBeginCapture(stream, 0) == STATE
results = []
thread = threading.Thread(target=lambda: results.append(end()[0]))
thread.start()
thread.join()
assert results == [WRONG_THREAD]
follow(other, stream)
assert end(other)[0] == UNMATCHED
must(launch(f, a, other))
assert end()[0] == UNJOINED
outside = record(event(), other)
begin()
assert runtime.cudaStreamWaitEvent(stream, outside, 0) == ISOLATION
assert end()[0] == INVALIDATED
begin()
begin(other)
assert runtime.cudaStreamWaitEvent(other, record(event(), stream), 0) == MERGE
assert (end()[0], end(other)[0]) == (INVALIDATED, INVALIDATED)
blocking = c_void_p()
must(runtime.cudaStreamCreate(byref(blocking)))
begin(blocking)
assert launch(f, a, None) == IMPLICIT
assert end(blocking)[0] == INVALIDATED
p, size, words = c_void_p(a), c_size_t(64), ctypes.create_string_buffer(64)
for name, args in (("cudaMemset", (p, 0, size)), ("cudaMemsetAsync", (p, 0, size, None)),
                   ("cudaMemcpy", (p, words, size, 1)), ("cudaMemcpy", (words, p, size, 2)),
                   ("cudaMemcpyAsync", (p, p, size, 3, None))):
    begin(blocking)
    assert getattr(runtime, name)(*args) == IMPLICIT, name
    assert runtime.cudaMemsetAsync(p, 0, size, blocking) == INVALIDATED
    assert runtime.cudaMemcpyAsync(p, words, size, 1, blocking) == INVALIDATED
    assert end(blocking)[0] == INVALIDATED
begin(blocking)
status = c_int()
assert runtime.cudaStreamIsCapturing(None, byref(status)) == IMPLICIT
must(runtime.cudaStreamIsCapturing(blocking, byref(status)))
assert status.value == 1
assert runtime.cudaStreamGetCaptureInfo(None, byref(status), None, None, None, None, None) == IMPLICIT
assert end(blocking)[0] == INVALIDATED
begin()
must(launch(f, a, stream))
must(end()[0])
""", work=work)

    def test_captures_forbid_pinned_memory_and_frees_unless_relaxed(self):
        """As vLLM met it (vllm-project/vllm#46933: cudaHostRegister, 900); NCCL relaxes its thread's mode for both. A
        pool's memory that cudaFree frees is memory like any other."""
        succeed(self, PROGRAM + """
pinned, page = c_void_p(), ctypes.create_string_buffer(8192)
def of_pool():
    address = c_void_p()
    must(runtime.cudaMallocAsync(byref(address), c_size_t(MIB), None))
    must(runtime.cudaDeviceSynchronize())
    return address
for relaxed in (False, True):
    kept = of_pool()
    for call in (lambda: runtime.cudaMallocHost(byref(pinned), c_size_t(64)),
                 lambda: runtime.cudaHostRegister(page, c_size_t(64), 0), lambda: runtime.cudaFree(kept)):
        begin(relaxed=relaxed)
        assert call() == (0 if relaxed else UNSUPPORTED), relaxed
        result, graph = end()
        assert result == (0 if relaxed else INVALIDATED), (relaxed, result)
    assert runtime.cudaFree(kept) == (INVALID if relaxed else 0)
""")

    def test_events_that_graphs_record_and_wait_for(self):
        """Each launch records them anew, and waits for what was recorded last."""
        for schedule in ("random", "fifo", "lifo", "starve"):
            succeed(self, PROGRAM + """
FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
seen = []
functions = [FUNCTION(lambda _, i=i: seen.append(i)) for i in range(3)]
timed, done, ready = event(0), event(0), event()
assert runtime.cudaEventRecordWithFlags(timed, stream, 1) == INVALID
assert runtime.cudaStreamWaitEvent(stream, ready, 1) == INVALID
begin()
must(runtime.cudaStreamWaitEvent(stream, ready, 1))
must(runtime.cudaEventRecordWithFlags(timed, stream, 1))
must(runtime.cudaLaunchHostFunc(stream, functions[1], None))
must(launch(f, a, stream))
must(runtime.cudaEventRecordWithFlags(done, stream, 1))
result, graph = end()
must(result)
assert kinds(graph) == [6, 7, 3, 0, 7], kinds(graph)
assert elapsed(timed, done) == HANDLE
instance = instantiate(graph)
must(runtime.cudaGraphLaunch(instance, stream))
must(runtime.cudaEventSynchronize(done))
assert seen == [1]
for _ in range(3):
    seen.clear()
    must(runtime.cudaLaunchHostFunc(third, functions[0], None))
    record(ready, third)
    must(runtime.cudaGraphLaunch(instance, stream))
    must(runtime.cudaStreamWaitEvent(other, done, 0))
    must(runtime.cudaLaunchHostFunc(other, functions[2], None))
    must(runtime.cudaStreamSynchronize(other))
    assert seen == [0, 1, 2], seen
    must(elapsed(timed, done))
must(runtime.cudaEventDestroy(done))
must(runtime.cudaGraphLaunch(instance, stream))
must(runtime.cudaDeviceSynchronize())
""", work="late", schedule=schedule)

    def test_times_that_cannot_be_told(self):
        succeed(self, PROGRAM + """
first, last, untimed = event(0), event(0), event()
record(first, stream)
assert elapsed(first, last) == HANDLE
assert elapsed(first, record(untimed, stream)) == HANDLE
must(launch(f, a, stream))
assert elapsed(first, record(last, stream)) == NOT_READY
must(runtime.cudaStreamSynchronize(stream))
must(elapsed(first, last))
must(runtime.cudaSetDevice(1))
elsewhere, its = event(0), new_stream()
assert runtime.cudaEventRecord(last, its) == HANDLE
record(elsewhere, its)
must(runtime.cudaDeviceSynchronize())
assert elapsed(first, elsewhere) == HANDLE
must(runtime.cudaSetDevice(0))
begin()
record(last, stream)
must(end()[0])
assert elapsed(first, last) == CAPTURED_EVENT
""", work="blocked", devices=2)

    def test_what_a_driver_would_not_notice_ends_the_program(self):
        done = run(PROGRAM + """
e = event()
must(runtime.cudaEventDestroy(e))
runtime.cudaEventQuery(e)
""")
        self.assertEqual(done.returncode, -6)
        self.assertIn("use of event", done.stderr)


if __name__ == "__main__":
    skip_if_unfit()
    unittest.main()
