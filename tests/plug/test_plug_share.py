# SPDX-License-Identifier: Apache-2.0
"""Memory for other processes, by the functions behind PyTorch's; here the process that asks is the one that has it."""
import os
import subprocess
import sys
import unittest
from pathlib import Path

LOOKALIKE = Path(os.environ["TRZ_LOOKALIKE_DIR"])

PROGRAM = r"""
import ctypes, os, pathlib, time
from ctypes import byref, c_size_t, c_uint64, c_void_p
folder = pathlib.Path(os.environ["TERRAZZO_LIB"]).parent
terrazzo, plug = ctypes.CDLL(folder / "libterrazzo.so"), ctypes.CDLL(folder / "libterrazzo_torch.so")
runtime = ctypes.CDLL("libcudart.so.13")
plug.trz_torch_last_error.restype = ctypes.c_char_p

def must(status):
    assert status == 0, (status, plug.trz_torch_last_error())

heap = c_void_p()
must(plug.trz_torch_heap(0, True, byref(heap)))

def exported():
    value = c_uint64()
    must(terrazzo.trz_stat(heap, b"exported_bytes.current", byref(value)))
    return value.value

def unused():
    free, total = c_size_t(), c_size_t()
    must(runtime.cudaMemGetInfo(byref(free), byref(total)))
    return free.value

def alloc(size):
    p = c_void_p()
    must(plug.trz_torch_try_alloc(c_size_t(size), 0, None, byref(p)))
    return p

def free(p):
    must(plug.trz_torch_try_free(p, 0))

def share(p):
    offset, handle = c_size_t(), ctypes.create_string_buffer(48)
    must(plug.trz_torch_share(p, byref(offset), handle))
    return handle.raw, offset.value

def receive(handle):
    q = c_void_p()
    must(plug.trz_torch_receive(handle, c_size_t(len(handle)), 0, None, byref(q)))
    return q

def share_and_receive(alone):
    plug.trz_torch_shareable(alone)
    p = alloc(1000)
    plug.trz_torch_shareable(False)
    q = receive(share(p)[0])
    assert exported() > 0, exported()
    free(q)
    free(p)

COUNT = 64  # what is shorter is a scalar, which the look-alike reads as 0

def write(p, at, value):
    must(runtime.cudaMemcpy(c_void_p(p.value + at), bytes([value]) * COUNT, c_size_t(COUNT), 1))

def read(p, at):
    value = ctypes.create_string_buffer(COUNT)
    must(runtime.cudaMemcpy(value, c_void_p(p.value + at), c_size_t(COUNT), 2))
    return value.raw[COUNT - 1]
"""


def run(program, **more):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(LOOKALIKE), **more)
    subprocess.run([sys.executable, "-c", PROGRAM + program], check=True, env=environment)


@unittest.skipUnless((LOOKALIKE / "libcuda.so.1").exists(), "this build has no simulated CUDA driver")
class Share(unittest.TestCase):
    def test_what_both_have_freed_is_free_at_once(self):
        """Whoever answers is done with the question before the answer counts. A thread that is not done shows in some
        of so many rounds."""
        for alone in (True, False):
            run(f"""
terrazzo.trz_trim(heap, c_size_t(0), None)
before = unused()
for _ in range(3000):
    share_and_receive({alone})
    assert exported() == 0, exported()
for _ in range(1000):
    share_and_receive({alone})
    must(terrazzo.trz_trim(heap, c_size_t(0), None))
    assert unused() == before, (unused(), before)
""")

    def test_one_handle_for_what_lies_in_the_same_tiles(self):
        run("""
a, b, c = alloc(1000), alloc(1000), alloc(40 << 20)
(first, at), (second, behind), (third, _) = share(a), share(b), share(c)
assert first == second and first != third and behind - at == b.value - a.value
held = exported()
assert share(c_void_p(a.value + 8)) == (first, at + 8)
assert exported() == held
q = receive(first)
write(a, 0, 11)
write(b, 900, 12)
assert (read(q, at), read(q, behind + 900)) == (11, 12)
write(q, at, 13)
assert read(a, 0) == 13
free(a)
assert exported() == held  # the other is there still
free(b)
free(c)
assert exported() == 0
assert share(alloc(1000))[0] != first
""")

    def test_more_tiles_than_one_answer_tells_of(self):
        run("""
size = 401 << 20
p = alloc(size)
handle, at = share(p)
q = receive(handle)
for mib in range(0, 401, 2):
    write(p, mib << 20, mib % 251)
    assert read(q, at + (mib << 20)) == mib % 251, mib
write(q, at + size - COUNT, 99)
assert read(p, size - COUNT) == 99
free(q)
fds = len(os.listdir("/proc/self/fd"))
for _ in range(8):
    free(receive(handle))
# The side that answers closes its connection a moment after it has answered.
end = time.monotonic() + 30
while len(os.listdir("/proc/self/fd")) > fds and time.monotonic() < end:
    time.sleep(0.01)
assert len(os.listdir("/proc/self/fd")) <= fds
free(p)
assert exported() == 0
""", TERRAZZO_CONF="tile_size:2MiB,tile_size_max:2MiB")

    def test_a_share_that_its_memory_has_left_is_not_told_of_again(self):
        """As a pool is put back to an earlier state: what is there has not been freed by its holder."""
        run("""
p = alloc(3 << 20)
first, _ = share(p)
must(terrazzo.trz_free(heap, p))
q = alloc(50 << 20)
assert q.value == p.value, (q, p)
second, _ = share(q)
assert first != second
free(q)
assert exported() == 0
""")

    def test_threads_share_the_same_at_the_same_time(self):
        run("""
import threading
for _ in range(200):
    p, told, gate = alloc(1000), [], threading.Barrier(4)
    def tell():
        gate.wait()
        told.append(share(p))
    threads = [threading.Thread(target=tell) for _ in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    assert len(told) == 4 and len(set(told)) == 1
    free(receive(told[0][0]))
    free(p)
    assert exported() == 0
""")

    def test_signals_that_the_program_handles(self):
        """As of a profiler's timer, at any moment of a question."""
        run("""
import signal
rings = 0
def ring(*_):
    global rings
    rings += 1
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
rounds = 0
while rounds < 500 or rings < 500:
    share_and_receive(True)
    rounds += 1
signal.setitimer(signal.ITIMER_REAL, 0)
""")

    def test_refusals(self):
        refused = """
offset, handle = c_size_t(), ctypes.create_string_buffer(48)
p = alloc(1000)
assert plug.trz_torch_share(p, byref(offset), handle) == {status}
assert {text} in plug.trz_torch_last_error(), plug.trz_torch_last_error()
"""
        run(refused.format(status=1, text="b'exportable is off'"), TERRAZZO_CONF="exportable:off")
        run(refused.format(status=33, text="b'cuIpcGetMemHandle'"), TERRAZZO_CONF="vmm:off")


if __name__ == "__main__":
    unittest.main()
