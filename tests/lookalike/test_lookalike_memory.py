# SPDX-License-Identifier: Apache-2.0
"""Memory over the look-alike libraries is real: bytes, aliases, capacity, pools, pinned memory."""
import unittest

from lookalike_process import run, skip_if_unfit, succeed


class Memory(unittest.TestCase):
    def test_fills_and_copies_keep_to_an_allocation(self):
        """By the byte, though the driver rounds sizes up, and packs small allocations; mapped memory is one range."""
        for work in ("now", "late"):
            succeed(self, """
p, q, stream, big = malloc(1000), malloc(1000), new_stream(), ctypes.create_string_buffer(5000)
def size(n):
    return c_size_t(n)
def at(address):
    return c_void_p(address)
for n, result in ((1000, 0), (1001, 1)):
    assert runtime.cudaMemset(at(p), 1, size(n)) == result
    assert runtime.cudaMemsetAsync(at(p), 1, size(n), stream) == result
    assert runtime.cudaMemcpy(at(p), big, size(n), 1) == result
    assert runtime.cudaMemcpyAsync(big, at(p), size(n), 2, stream) == result
    assert runtime.cudaMemcpy(at(p), at(q), size(n), 3) == result
    assert runtime.cudaMemset2D(at(p), size(500), 1, size(n - 500), size(2)) == result
assert driver.cuMemsetD32_v2(c_uint64(p), 1, size(250)) == 0
assert driver.cuMemsetD32_v2(c_uint64(p), 1, size(251)) == 1
assert runtime.cudaMemset(at(p + 1001), 1, size(1)) == 1
must(runtime.cudaFree(at(q)))
assert runtime.cudaMemset(at(q), 1, size(1)) == 1 and runtime.cudaMemcpy(big, at(q), size(1), 2) == 1
address = reserve(4 * MIB)
for part in (0, 2 * MIB):
    lay(address + part, 2 * MIB, create(2 * MIB))
must(runtime.cudaMemset(at(address + MIB), 7, size(2 * MIB)))
must(runtime.cudaDeviceSynchronize())
""", work=work)

    def test_a_copy_from_or_to_nowhere_is_refused(self):
        succeed(self, """
p, data = malloc(4096), ctypes.create_string_buffer(4096)
for to, source in ((None, data), (data, None), (None, c_void_p(p)), (c_void_p(p), None)):
    assert runtime.cudaMemcpy(to, source, c_size_t(100), 4) == 1
must(runtime.cudaMemcpy(None, None, c_size_t(0), 4))
""")

    def test_a_copy_says_which_side_is_the_devices(self):
        """An address that no device knows is refused there, and not read."""
        succeed(self, """
INVALID_VALUE, INVALID_DIRECTION, nowhere = 1, 21, 0x1234
p, data, pinned, size = malloc(4096), ctypes.create_string_buffer(4096), c_void_p(), c_size_t(100)
must(runtime.cudaMallocHost(byref(pinned), c_size_t(4096)))
for host in (nowhere, ctypes.addressof(data)):
    for stream in ((), (c_void_p(),)):
        form = "Async_v2" if stream else "_v2"
        assert getattr(driver, "cuMemcpyDtoH" + form)(data, c_uint64(host), size, *stream) == INVALID_VALUE
        assert getattr(driver, "cuMemcpyHtoD" + form)(c_uint64(host), data, size, *stream) == INVALID_VALUE
        assert getattr(driver, "cuMemcpyDtoD" + form)(c_uint64(p), c_uint64(host), size, *stream) == INVALID_VALUE
    for to, source, kind in ((p, host, 3), (host, p, 3), (host, p, 1), (p, host, 2)):
        assert runtime.cudaMemcpy(c_void_p(to), c_void_p(source), size, kind) == INVALID_VALUE, (to, source, kind)
        plane = c_void_p(to), c_size_t(100), c_void_p(source), c_size_t(100), c_size_t(100), c_size_t(5), kind
        assert runtime.cudaMemcpy2D(*plane) == INVALID_VALUE, (to, source, kind)
assert runtime.cudaMemcpy(c_void_p(p), data, size, 5) == INVALID_DIRECTION
assert runtime.cudaMemcpy(c_void_p(p), data, size, -1) == INVALID_DIRECTION
must(driver.cuMemcpyDtoH_v2(data, c_uint64(pinned.value), size))
must(driver.cuMemcpyDtoD_v2(c_uint64(p), c_uint64(pinned.value), size))
must(runtime.cudaMemcpy(pinned, c_void_p(p), size, 2))
must(runtime.cudaMemcpy(c_void_p(p), c_void_p(nowhere), c_size_t(0), 3))
""")

    def test_pitched_memory_whose_rows_overflow(self):
        succeed(self, """
class Extent(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t)]

pitched = (c_size_t * 4)()
runtime.cudaMalloc3D.argtypes = [c_void_p, Extent]
assert runtime.cudaMalloc3D(pitched, Extent(3, 1 << 40, 1 << 40)) == 2
assert runtime.cudaMalloc3D(pitched, Extent(3, 1 << 32, 1 << 32)) == 2
""")

    def test_copies_come_back_equal(self):
        for work in ("now", "late"):
            succeed(self, """
import random
random.seed(1)
for size in (17, 4096, 70000, 5 * MIB + 3):
    data = random.randbytes(size // 2) + bytes(size - size // 2)
    a, b = malloc(size), malloc(size)
    upload(a, data)
    must(runtime.cudaMemcpy(c_void_p(b), c_void_p(a), c_size_t(size), 3))
    assert download(b, size) == data, size
    must(runtime.cudaMemset(c_void_p(b + 3), 7, c_size_t(size - 10)))
    assert download(b, size) == data[:3] + b"\\x07" * (size - 10) + data[-7:], size
""", work=work)

    def test_the_runtime_of_cuda_12(self):
        succeed(self, """
runtime = ctypes.CDLL("libcudart.so.12")
version = c_int()
must(runtime.cudaRuntimeGetVersion(byref(version)))
assert version.value // 1000 == 12, version.value
a, b, stream, event = malloc(MIB), malloc(MIB), new_stream(), c_void_p()
upload(a, b"twelve" * 1000)
must(runtime.cudaMemcpyAsync(c_void_p(b), c_void_p(a), c_size_t(6000), 3, stream))
must(runtime.cudaEventCreateWithFlags(byref(event), 2))
must(runtime.cudaEventRecord(event, stream))
must(runtime.cudaEventSynchronize(event))
assert download(b, 6000) == b"twelve" * 1000
must(runtime.cudaFree(c_void_p(a)))
""", work="late")

    def test_copies_of_untouched_gigabytes_take_no_memory(self):
        succeed(self, """
import resource
a, b = malloc(20 << 30), malloc(20 << 30)
upload(a + (7 << 30), b"x" * 100)
must(runtime.cudaMemcpy(c_void_p(b), c_void_p(a), c_size_t(20 << 30), 3))
assert download(b + (7 << 30), 100) == b"x" * 100
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 500 * 1024
""", memory="80GiB")

    def test_rows_are_copied(self):
        succeed(self, """
a = malloc(4096)
upload(a, bytes(range(256)) * 16)
to = ctypes.create_string_buffer(60)
must(runtime.cudaMemcpy2D(to, c_size_t(20), c_void_p(a), c_size_t(256), c_size_t(20), c_size_t(3), 2))
assert to.raw == bytes(range(20)) * 3
""")

    def test_a_copy_of_short_rows_is_no_scalar(self):
        succeed(self, """
class Pitched(ctypes.Structure):
    _fields_ = [("address", c_void_p), ("pitch", c_size_t), ("width", c_size_t), ("height", c_size_t)]
class Copy(ctypes.Structure):
    _fields_ = [("from_array", c_void_p), ("from_place", c_size_t * 3), ("source", Pitched), ("to_array", c_void_p),
                ("to_place", c_size_t * 3), ("to", Pitched), ("extent", c_size_t * 3), ("kind", c_int)]
a, f = malloc(4096), kernel()
upload(a, bytes(range(256)) * 16)
must(launch(f, a))
to = ctypes.create_string_buffer(48)
def rows(height):
    must(runtime.cudaMemcpy2D(to, c_size_t(16), c_void_p(a + 1), c_size_t(256), c_size_t(16), c_size_t(height), 2))
rows(1)
assert to.raw == bytes(48), "one row is a scalar"
rows(3)
assert to.raw == bytes(range(1, 17)) * 3
space = Copy(source=Pitched(a + 2, 16, 16, 2), to=Pitched(ctypes.addressof(to), 8, 8, 2), kind=2)
space.extent[:] = 8, 2, 3
must(runtime.cudaMemcpy3D(byref(space)))
assert to.raw == b"".join(bytes(range(y * 16 + 2, y * 16 + 10)) for y in range(6))
""")

    def test_aliases_read_the_same_bytes(self):
        succeed(self, """
handle, a, b = create(2 * MIB), reserve(4 * MIB), reserve(2 * MIB)
lay(a + 2 * MIB, 2 * MIB, handle)
lay(b, 2 * MIB, handle)
upload(a + 2 * MIB + 100, b"seen through both")
assert download(b + 100, 17) == b"seen through both"
unmap(a + 2 * MIB, 2 * MIB)
assert download(b + 100, 17) == b"seen through both"
same = c_uint64()
must(driver.cuMemRetainAllocationHandle(byref(same), c_void_p(b)))
lay(a, 2 * MIB, same.value)
assert download(a + 100, 17) == b"seen through both"
""")

    def test_access_to_unmapped_memory_is_named(self):
        program = """
handle, a, p = create(2 * MIB), reserve(4 * MIB), malloc(4 * MIB)
lay(a, 2 * MIB, handle)
print(hex(a + 2 * MIB + 4096), hex(a), flush=True)
data = ctypes.create_string_buffer(100)
print(runtime.cudaMemcpy(data, c_void_p(a + 2 * MIB + 4096), c_size_t(100), 2))
print(runtime.cudaMemset(c_void_p(p), 0, c_size_t(10)))
"""
        done = run(program, violations="count")
        address, nearest = done.stdout.splitlines()[0].split()
        self.assertIn(f"[{address}, +100): nothing is mapped", done.stderr)
        self.assertIn(f"the nearest allocation is [{nearest}, +2097152)", done.stderr)
        self.assertEqual(done.stdout.splitlines()[1:], ["700", "700"])
        self.assertEqual(run(program).returncode, -6)

    def test_small_allocations_share_two_mebibytes(self):
        succeed(self, """
def unused():
    a, b = c_size_t(), c_size_t()
    must(runtime.cudaMemGetInfo(byref(a), byref(b)))
    return a.value
before = unused()
malloc(512)
assert before - unused() == 2 * MIB
for _ in range(100):
    malloc(512)
assert before - unused() == 2 * MIB
malloc(3 * MIB)
assert before - unused() == 6 * MIB
""")

    def test_pools_reuse_and_give_back(self):
        succeed(self, """
pool, value = c_void_p(), c_uint64()
must(runtime.cudaDeviceGetDefaultMemPool(byref(pool), 0))
def attribute(which):
    must(runtime.cudaMemPoolGetAttribute(pool, which, byref(value)))
    return value.value
stream, p, q = new_stream(), c_void_p(), c_void_p()
must(runtime.cudaMallocAsync(byref(p), c_size_t(10 * MIB), stream))
assert (attribute(5), attribute(7)) == (32 * MIB, 10 * MIB)
must(runtime.cudaFreeAsync(p, stream))
assert (attribute(5), attribute(7)) == (32 * MIB, 0)
must(runtime.cudaMallocAsync(byref(q), c_size_t(9 * MIB), stream))
assert q.value == p.value
must(runtime.cudaFreeAsync(q, stream))
must(runtime.cudaStreamSynchronize(stream))
assert (attribute(5), attribute(6)) == (0, 32 * MIB)
must(runtime.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40))))
must(runtime.cudaMallocAsync(byref(p), c_size_t(10 * MIB), stream))
must(runtime.cudaFreeAsync(p, stream))
must(runtime.cudaStreamSynchronize(stream))
assert attribute(5) == 32 * MIB
must(runtime.cudaMemPoolTrimTo(pool, c_size_t(0)))
assert attribute(5) == 0
""")

    def test_a_graph_keeps_what_its_capture_freed_to_a_pool(self):
        succeed(self, """
f, pool, value, graph, instance = kernel(), c_void_p(), c_uint64(), c_void_p(), c_void_p()
must(runtime.cudaDeviceGetDefaultMemPool(byref(pool), 0))
def attribute(which):
    must(runtime.cudaMemPoolGetAttribute(pool, which, byref(value)))
    return value.value
def allocate(size, stream):
    p = c_void_p()
    must(runtime.cudaMallocAsync(byref(p), c_size_t(size), stream))
    return p
stream, other = new_stream(), new_stream()
must(runtime.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40))))
must(runtime.cudaFreeAsync(allocate(10 * MIB, stream), stream))
must(runtime.cudaStreamBeginCapture(stream, 0))
p = allocate(10 * MIB, stream)
assert attribute(5) == 42 * MIB  # memory whose work may be under way on this stream is not for a graph
must(launch(f, p.value, stream))
must(runtime.cudaFreeAsync(p, stream))
q = allocate(10 * MIB, stream)
assert q.value == p.value
must(runtime.cudaFreeAsync(q, stream))
kept = allocate(4 * MIB, stream)
must(runtime.cudaStreamEndCapture(stream, byref(graph)))
must(runtime.cudaGraphInstantiate(byref(instance), graph, c_uint64(0)))
must(runtime.cudaGraphLaunch(instance, other))
must(runtime.cudaFreeAsync(kept, other))
must(runtime.cudaDeviceSynchronize())
assert (attribute(5), attribute(7)) == (46 * MIB, 14 * MIB)
must(runtime.cudaGraphDestroy(graph))
must(runtime.cudaMemPoolTrimTo(pool, c_size_t(0)))
assert (attribute(5), attribute(7)) == (14 * MIB, 14 * MIB)
must(runtime.cudaGraphExecDestroy(instance))
assert (attribute(5), attribute(7)) == (14 * MIB, 0)
must(runtime.cudaMemPoolTrimTo(pool, c_size_t(0)))
assert attribute(5) == 0
""")

    def test_a_capture_that_fails_gives_back_what_it_freed_to_a_pool(self):
        succeed(self, """
pool, value, graph = c_void_p(), c_uint64(), c_void_p()
must(runtime.cudaDeviceGetDefaultMemPool(byref(pool), 0))
def used():
    must(runtime.cudaMemPoolGetAttribute(pool, 7, byref(value)))
    return value.value
stream, p = new_stream(), c_void_p()
must(runtime.cudaStreamBeginCapture(stream, 0))
must(runtime.cudaMallocAsync(byref(p), c_size_t(MIB), stream))
must(runtime.cudaFreeAsync(p, stream))
assert used() == MIB
assert runtime.cudaStreamSynchronize(stream) == 900
assert runtime.cudaMallocAsync(byref(p), c_size_t(MIB), stream) == 901
assert runtime.cudaStreamEndCapture(stream, byref(graph)) == 901
assert used() == 0
""")

    def test_pinned_memory_is_known(self):
        succeed(self, """
class Attributes(ctypes.Structure):
    _fields_ = [("type", c_int), ("device", c_int), ("on_device", c_void_p), ("on_host", c_void_p),
                ("reserved", ctypes.c_long * 8)]
def kind(address):
    a = Attributes()
    must(runtime.cudaPointerGetAttributes(byref(a), c_void_p(address)))
    return a.type
p, own = c_void_p(), ctypes.create_string_buffer(8192)
must(runtime.cudaHostAlloc(byref(p), c_size_t(10000), 0))
assert (kind(p.value), kind(malloc(100)), kind(ctypes.addressof(own))) == (1, 2, 0)
must(runtime.cudaHostRegister(own, c_size_t(8192), 0))
assert kind(ctypes.addressof(own) + 8191) == 1
assert runtime.cudaHostRegister(own, c_size_t(10), 0) == 712
must(runtime.cudaHostUnregister(own))
must(runtime.cudaFreeHost(p))
assert runtime.cudaFreeHost(p) == 1
""")

    def test_scalars_read_as_zero_unless_real(self):
        program = """
a, f = malloc(4096), kernel()
upload(a, b"8 bytes!" * 4)
must(launch(f, a))
print(download(a, 16), download(a, 17)[16:])
"""
        self.assertEqual(succeed(self, program).stdout.strip(), f"{bytes(16)} b'8'")
        self.assertEqual(succeed(self, program, scalars="real").stdout.strip(), "b'8 bytes!8 bytes!' b'8'")

    def test_scalars_that_the_host_has_sent_since_the_last_work_are_real(self):
        for work in ("now", "late"):
            succeed(self, """
a, b, computed, f = malloc(4096), malloc(4096), malloc(4096), kernel()
def copied(to, source, size):
    must(runtime.cudaMemcpy(c_void_p(to), c_void_p(source), c_size_t(size), 3))
    return download(to, size)
upload(a, b"8 bytes!" * 4)
assert download(a + 8, 16) == b"8 bytes!" * 2
assert copied(b, a, 8) == b"8 bytes!"
assert download(a + 28, 8) == bytes(8), "half of it was never sent"
assert copied(a + 8, computed, 8) == bytes(8) and download(a, 4) == bytes(4)
upload(a, b"8 bytes!")
must(launch(f, b))
assert download(a, 8) == bytes(8), "a kernel may have found the address anywhere"
for _ in range(100):
    upload(a, b"newest!!")
assert download(a, 8) == b"newest!!"
""", work=work)

    def test_scalars_that_the_host_has_filled_with_are_real(self):
        for work in ("now", "late"):
            succeed(self, """
a, b, f, stream = malloc(4096), malloc(4096), kernel(), new_stream()
def fill(to, value, size):
    must(runtime.cudaMemset(c_void_p(to), value, c_size_t(size)))
fill(a, 0x41, 4096)
assert download(a + 4088, 8) == b"A" * 8
must(runtime.cudaMemcpy(c_void_p(b), c_void_p(a), c_size_t(8), 3))
assert download(b, 8) == b"A" * 8
upload(b, b"8 bytes!")
fill(b + 4, 0x42, 2)
assert download(b, 8) == b"8 byBBs!", "what lies around it is known still"
for i in range(100):
    fill(a + 16 * i, 0x43, 16)
assert download(b, 8) == b"8 byBBs!", "many fills"
must(launch(f, a))
assert download(a, 8) == bytes(8), "a kernel may have changed it"
graph, exec_ = c_void_p(), c_void_p()
fill(a, 0x44, 16)
must(runtime.cudaStreamBeginCapture(stream, 2))
must(runtime.cudaMemsetAsync(c_void_p(a), 0x45, c_size_t(16), stream))
must(runtime.cudaStreamEndCapture(stream, byref(graph)))
assert download(a, 8) == bytes(8), "a graph may fill it at any time"
""", work=work)

    def test_scalars_that_are_put_or_vouched_for_are_real(self):
        for work in ("now", "late"):
            succeed(self, """
a, f = malloc(4096), kernel()
here, data = c_uint64(a), ctypes.create_string_buffer(8)
get = driver.trz_lookalike_get
get.restype = ctypes.c_bool
assert not get(here, data, c_uint64(8), None), "nothing was sent yet"
upload(a, b"sent....")
assert get(here, data, c_uint64(8), None) and data.raw == b"sent...."
late = c_void_p()
must(runtime.cudaHostAlloc(byref(late), c_size_t(24), 0))
must(driver.cuMemcpyDtoHAsync_v2(late, here, c_size_t(24), None))
assert driver.trz_lookalike_wait(here, None) & 1 and ctypes.string_at(late, 4) == b"sent"
must(launch(f, a))
assert download(a, 8) == bytes(8) and not get(here, data, c_uint64(8), None)
driver.trz_lookalike_put(here, b"8 bytes!", c_uint64(8), None)
assert download(a, 8) == b"8 bytes!"
must(launch(f, a))
driver.trz_lookalike_vouch(here, c_uint64(8))
assert download(a, 8) == b"8 bytes!" and download(a, 16) == bytes(16)
driver.trz_lookalike_vouch(c_uint64(0), c_uint64(0))
assert download(a, 8) == bytes(8)
driver.trz_lookalike_answer(byref(c_uint64(0x102030405)))
assert download(a, 4) == bytes([5, 4, 3, 2]) and download(a, 8) == bytes([5, 4, 3, 2, 1, 0, 0, 0])
driver.trz_lookalike_answer(None)
assert download(a, 4) == bytes(4)
driver.trz_lookalike_note_brought(here, c_uint64(8), True)
assert download(a, 8) == b"8 bytes!"
must(launch(f, a))
assert download(a, 8) == bytes(8), "work may have changed it"
assert get(here, data, c_uint64(8), None) and data.raw == b"8 bytes!", "the caller knows that it has not"
driver.trz_lookalike_note_brought(here, c_uint64(8), False)
assert not get(here, data, c_uint64(8), None)
""", work=work)

    def test_scalars_of_a_capture_are_zero(self):
        succeed(self, """
a, f, stream = malloc(4096), kernel(), new_stream()
source, data = ctypes.create_string_buffer(b"8 bytes!", 8), ctypes.create_string_buffer(b"........", 8)
graph, exec_ = c_void_p(), c_void_p()
must(runtime.cudaStreamBeginCapture(stream, 2))
must(runtime.cudaMemcpyAsync(c_void_p(a), source, c_size_t(8), 1, stream))
must(runtime.cudaMemcpyAsync(data, c_void_p(a), c_size_t(8), 2, stream))
must(runtime.cudaStreamEndCapture(stream, byref(graph)))
assert download(a, 8) == bytes(8), "nothing was sent yet"
must(runtime.cudaGraphInstantiateWithFlags(byref(exec_), graph, 0))
must(runtime.cudaGraphLaunch(exec_, stream))
must(runtime.cudaStreamSynchronize(stream))
assert data.raw == bytes(8), data.raw
""")

    def test_two_devices_and_peers(self):
        succeed(self, """
count, can = c_int(), c_int()
must(runtime.cudaGetDeviceCount(byref(count)))
assert count.value == 2
must(runtime.cudaDeviceCanAccessPeer(byref(can), 0, 1))
assert can.value == 1
a = malloc(100000)
upload(a, b"z" * 100000)
must(runtime.cudaSetDevice(1))
b = malloc(100000)
must(runtime.cudaDeviceEnablePeerAccess(0, 0))
assert runtime.cudaDeviceEnablePeerAccess(0, 0) == 704
must(runtime.cudaSetDevice(0))
must(runtime.cudaDeviceEnablePeerAccess(1, 0))
must(runtime.cudaMemcpyPeer(c_void_p(b), 1, c_void_p(a), 0, c_size_t(100000)))
assert download(b, 100000) == b"z" * 100000
must(runtime.cudaFree(c_void_p(b)))
""", devices=2)

    def test_copies_reach_another_device_without_peer_access(self):
        for work in ("now", "late"):
            succeed(self, """
data, a = bytes(range(250)) * 400, malloc(100000)
must(runtime.cudaSetDevice(1))
b, stream = malloc(100000), new_stream()
upload(a, data)
assert download(a, 100000) == data
must(runtime.cudaMemcpy(c_void_p(b), c_void_p(a), c_size_t(100000), 3))
assert download(b, 100000) == data
must(runtime.cudaMemset(c_void_p(b), 0, c_size_t(100000)))
must(runtime.cudaMemcpyPeerAsync(c_void_p(b), 1, c_void_p(a), 0, c_size_t(100000), stream))
must(runtime.cudaStreamSynchronize(stream))
must(runtime.cudaSetDevice(0))
assert download(b, 100000) == data
upload(b, data[::-1])
must(runtime.cudaMemcpyPeer(c_void_p(a), 0, c_void_p(b), 1, c_size_t(100000)))
assert download(a, 100000) == data[::-1]
""", devices=2, work=work)


if __name__ == "__main__":
    skip_if_unfit()
    unittest.main()
