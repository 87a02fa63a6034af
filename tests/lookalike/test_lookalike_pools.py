# SPDX-License-Identifier: Apache-2.0
"""Memory pools over the look-alike libraries: whose memory they take, what they refuse, and how they end."""
import unittest

from lookalike_process import PREAMBLE, skip_if_unfit, succeed

POOLS = """
class Props(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("device", c_int), ("win32", c_void_p),
                ("most", c_size_t), ("rest", ctypes.c_char * 56)]
def new_pool(device=0, most=0):
    pool = c_void_p()
    must(runtime.cudaMemPoolCreate(byref(pool), byref(Props(1, 0, 1, device, None, most))))
    return pool
def take(pool, size, stream=None):
    p = c_void_p()
    must(runtime.cudaMallocFromPoolAsync(byref(p), c_size_t(size), pool, stream))
    return p
def attribute(pool, which):
    value = c_uint64()
    must(runtime.cudaMemPoolGetAttribute(pool, which, byref(value)))
    return value.value
def used(device=0):
    free, total, before = c_size_t(), c_size_t(), c_int()
    must(runtime.cudaGetDevice(byref(before)))
    must(runtime.cudaSetDevice(device))
    must(runtime.cudaMemGetInfo(byref(free), byref(total)))
    must(runtime.cudaSetDevice(before))
    return total.value - free.value
"""


# again(): what stream b, or another, gets of a pool with these rules when stream a has freed `freed`; in order: follow
# events, take what has passed, wait.
REUSE = """
a, b, c, elsewhere = new_stream(), new_stream(), new_stream(), malloc(64)
def new_blocking():
    stream = c_void_p()
    must(runtime.cudaStreamCreate(byref(stream)))
    return stream
def wait(earlier, later, before_free=False):
    event = early if before_free else c_void_p()
    if not before_free:
        must(runtime.cudaEventCreateWithFlags(byref(event), 2))
        must(runtime.cudaEventRecord(event, earlier))
    must(runtime.cudaStreamWaitEvent(later, event, 0))
def again(follow, opportunistic, internal, order=lambda: None, passed=False, synchronise=False, stream=b, first=a):
    global freed, early
    must(runtime.cudaDeviceSynchronize())
    pool, early = new_pool(), c_void_p()
    for which, rule in enumerate((follow, opportunistic, internal), 1):
        must(runtime.cudaMemPoolSetAttribute(pool, which, byref(c_int(rule))))
    must(runtime.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40))))
    p = take(pool, 4 * MIB, first)
    freed = p.value
    must(runtime.cudaEventCreateWithFlags(byref(early), 2))
    must(runtime.cudaEventRecord(early, first))
    must(runtime.cudaMemsetAsync(p, 7, c_size_t(4 * MIB), first))
    must(runtime.cudaFreeAsync(p, first))
    order()
    if passed:  # first in, first out: what is older than the copy runs before it
        upload(elsewhere, b"data")
    if synchronise:
        must(runtime.cudaStreamSynchronize(first))
    return take(pool, 4 * MIB, stream).value
"""


class Pools(unittest.TestCase):
    def test_a_second_free_is_refused(self):
        for work in ("now", "late"):
            succeed(self, POOLS + """
stream, pool, graph = new_stream(), new_pool(), c_void_p()
must(runtime.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40))))
p = take(pool, MIB, stream)
must(runtime.cudaFreeAsync(p, stream))
assert runtime.cudaFreeAsync(p, stream) == 1
assert runtime.cudaFree(p) == 1
assert attribute(pool, 7) == 0
assert take(pool, MIB, stream).value == p.value
assert take(pool, MIB, stream).value != p.value
must(runtime.cudaFree(p))
assert runtime.cudaFree(p) == 1
must(runtime.cudaStreamBeginCapture(stream, 0))
q = take(pool, MIB, stream)
must(runtime.cudaFreeAsync(q, stream))
assert runtime.cudaFreeAsync(q, stream) == 1
must(runtime.cudaStreamEndCapture(stream, byref(graph)))
assert runtime.cudaFreeAsync(q, None) == 1
""", work=work)

    def test_other_streams_use_pools_during_a_capture(self):
        """What a pool asks the driver for, or about, is none of the program's calls, which the capture would forbid."""
        for work in ("now", "late"):
            for elsewhere in (True, False):
                succeed(self, POOLS + f"elsewhere = {elsewhere}" + """
import threading
captured, one, two, graph, usual = new_stream(), new_stream(), new_stream(), c_void_p(), c_void_p()
must(runtime.cudaDeviceGetDefaultMemPool(byref(usual), 0))

def others():
    for size in (MIB, 4 * MIB):
        p = take(usual, size, one)
        must(runtime.cudaFreeAsync(p, one))
        must(runtime.cudaFreeAsync(take(usual, size, two), two))
    must(runtime.cudaStreamSynchronize(one))
    must(runtime.cudaStreamSynchronize(two))
    assert attribute(usual, 7) == 0

must(runtime.cudaStreamBeginCapture(captured, 0))
if elsewhere:
    thread = threading.Thread(target=others)
    thread.start()
    thread.join()
else:
    others()
must(runtime.cudaStreamEndCapture(captured, byref(graph)))
assert attribute(usual, 5) == 0
""", work=work)

    def test_what_is_asked_for_is_used(self):
        for work in ("now", "late"):
            succeed(self, POOLS + """
RESERVED, USED = 5, 7
stream, pool, graph = new_stream(), new_pool(), c_void_p()
must(runtime.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40))))
must(runtime.cudaFreeAsync(take(pool, 4 * MIB, stream), stream))
p = take(pool, 2 * MIB + 1, stream)
assert attribute(pool, RESERVED) == 32 * MIB, "the same memory"
assert attribute(pool, USED) == 2 * MIB + 512
must(runtime.cudaStreamBeginCapture(stream, 0))
q = take(pool, 4 * MIB, stream)
must(runtime.cudaFreeAsync(q, stream))
assert attribute(pool, USED) == 6 * MIB + 512, "a graph keeps its memory"
q = take(pool, 3 * MIB, stream)
assert attribute(pool, USED) == 5 * MIB + 512
must(runtime.cudaFreeAsync(q, stream))
must(runtime.cudaStreamEndCapture(stream, byref(graph)))
must(runtime.cudaGraphDestroy(graph))
must(runtime.cudaFreeAsync(p, stream))
assert attribute(pool, USED) == 0 and attribute(pool, 8) == 6 * MIB + 512
""", work=work)

    def test_allocations_share_chunks(self):
        """What is freed is cut and joined again; memory goes back by whole chunks of 32 MiB, from the middle, too."""
        for work in ("now", "late"):
            succeed(self, POOLS + """
RESERVED = 5
stream, pool = new_stream(), new_pool()
must(runtime.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40))))
a, b, c = (take(pool, 20 * MIB, stream) for _ in range(3))
assert [p.value - a.value for p in (b, c)] == [20 * MIB, 40 * MIB]
assert attribute(pool, RESERVED) == 64 * MIB
for p in (a, b):
    must(runtime.cudaFreeAsync(p, stream))
d, e = take(pool, 38 * MIB, stream), take(pool, 4 * MIB, stream)
assert (d.value, e.value) == (a.value, c.value + 20 * MIB), "the best fit"
assert attribute(pool, RESERVED) == 64 * MIB
f = take(pool, 90 * MIB, stream)
assert f.value == e.value + 4 * MIB and attribute(pool, RESERVED) == 160 * MIB, "it begins in a chunk that is there"
must(runtime.cudaFreeAsync(d, stream))
must(runtime.cudaStreamSynchronize(stream))
must(runtime.cudaMemPoolTrimTo(pool, c_size_t(0)))
assert attribute(pool, RESERVED) == 128 * MIB, "40 MiB are free, one chunk of it as a whole"
g = take(pool, 33 * MIB, stream)
assert g.value == a.value and attribute(pool, RESERVED) == 160 * MIB, "the gap is filled"
for p in (c, e, f, g):
    must(runtime.cudaFreeAsync(p, stream))
must(runtime.cudaStreamSynchronize(stream))
must(runtime.cudaMemPoolTrimTo(pool, c_size_t(32 * MIB)))
assert attribute(pool, RESERVED) == 32 * MIB
must(runtime.cudaMemPoolTrimTo(pool, c_size_t(0)))
assert attribute(pool, RESERVED) == 0
""", work=work)

    def test_an_allocation_in_a_chunk_is_told_as_one(self):
        succeed(self, POOLS + """
stream, pool = new_stream(), new_pool()
p, q = take(pool, 3000, stream), take(pool, 40 * MIB + 100, stream)
def fact(which, address, kind=c_uint64):
    value = kind()
    must(driver.cuPointerGetAttribute(byref(value), which, c_uint64(address)))
    return value.value
START, SIZE, BUFFER, POOL = 11, 12, 7, 17
for block, size in ((p, 3000), (q, 40 * MIB + 100)):
    for inside in (0, 1000, size - 1):
        assert (fact(START, block.value + inside), fact(SIZE, block.value + inside)) == (block.value, size)
        assert fact(POOL, block.value + inside) == pool.value
assert fact(BUFFER, p.value) == fact(BUFFER, p.value + 2999) != fact(BUFFER, q.value)
assert runtime.cudaFreeAsync(c_void_p(q.value + 512), stream) == 1
assert runtime.cudaFree(c_void_p(q.value + 33 * MIB)) == 1
must(runtime.cudaMemset(q, 1, c_size_t(40 * MIB + 100)))
assert runtime.cudaMemset(q, 1, c_size_t(40 * MIB + 101)) == 1
assert runtime.cudaMemset(p, 1, c_size_t(3001)) == 1
before = fact(BUFFER, p.value)
must(runtime.cudaFreeAsync(p, stream))
again = take(pool, 3000, stream)
assert again.value == p.value and fact(BUFFER, again.value) != before
""")

    def test_live_allocations_never_overlap(self):
        """Programs by seed: two streams, random sizes; what each wrote stays until it frees, and the sums are right."""
        for work in ("now", "late", "blocked"):
            succeed(self, POOLS + """
import random
RESERVED, USED = 5, 7
for seed in range(6):
    rng, pool, streams, live = random.Random(seed), new_pool(), [new_stream() for _ in range(2)], []
    if seed % 2:
        must(runtime.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40))))
    for step in range(300):
        stream = rng.choice(streams)
        if live and (len(live) > 40 or rng.random() < 0.45):
            p, size, tag = live.pop(rng.randrange(len(live)))
            for at in (0, size - 1):
                assert download(p.value + at, 1) == tag, (seed, step)
            must(runtime.cudaFreeAsync(p, stream))
        else:
            size = rng.choice((rng.randrange(1, 5000), rng.randrange(1, 3 * MIB), rng.randrange(1, 90 * MIB)))
            p, tag = take(pool, size, stream), bytes([rng.randrange(256)])
            must(runtime.cudaStreamSynchronize(stream))
            for at in (0, size - 1):
                upload(p.value + at, tag)
            live.append((p, size, tag))
        ends = sorted((p.value, p.value + size) for p, size, _ in live)
        assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:])), (seed, step)
        assert attribute(pool, USED) == sum(-(-size // 512) * 512 for _, size, _ in live)
        assert attribute(pool, RESERVED) % (32 * MIB) == 0 and attribute(pool, RESERVED) >= attribute(pool, USED)
    for p, _, _ in live:
        must(runtime.cudaFreeAsync(p, streams[0]))
    must(runtime.cudaDeviceSynchronize())
    must(runtime.cudaMemPoolTrimTo(pool, c_size_t(0)))
    assert (attribute(pool, RESERVED), attribute(pool, USED)) == (0, 0)
    must(runtime.cudaMemPoolDestroy(pool))
""", work=work, memory="8GiB", scalars="real")

    def test_a_destroyed_pool_gives_its_memory_back_when_the_last_block_is_freed(self):
        succeed(self, POOLS + """
before, stream, pool, current = used(), new_stream(), new_pool(), c_void_p()
must(runtime.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40))))
p, q, r = take(pool, 32 * MIB, stream), take(pool, 96 * MIB, stream), take(pool, 64 * MIB, stream)
must(runtime.cudaFreeAsync(q, stream))
must(runtime.cudaStreamSynchronize(stream))
must(runtime.cudaDeviceSetMemPool(0, pool))
must(runtime.cudaMemPoolDestroy(pool))
assert used() - before == 96 * MIB
must(runtime.cudaDeviceGetMemPool(byref(current), 0))
assert current.value != pool.value
assert runtime.cudaMallocFromPoolAsync(byref(q), c_size_t(MIB), pool, stream) == 1
for refused in (runtime.cudaMemPoolDestroy(pool), runtime.cudaMemPoolTrimTo(pool, c_size_t(0)),
                runtime.cudaDeviceSetMemPool(0, pool), runtime.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(1)))):
    assert refused == 1
must(runtime.cudaFreeAsync(p, stream))
must(runtime.cudaStreamSynchronize(stream))
assert used() - before == 64 * MIB
must(runtime.cudaFree(r))
assert used() == before
must(runtime.cudaDeviceGetDefaultMemPool(byref(current), 0))
assert attribute(current, 5) == attribute(current, 7) == 0
assert runtime.cudaMemPoolDestroy(current) == 1
""")

    def test_a_pool_takes_memory_of_its_own_device(self):
        for work in ("now", "late"):
            succeed(self, POOLS + """
stream, pool = new_stream(), new_pool(device=1)
must(runtime.cudaSetDevice(1))
must(runtime.cudaFree(None))
must(runtime.cudaSetDevice(0))
before = used(0), used(1)
p = take(pool, 4 * MIB, stream)
assert (used(0), used(1)) == (before[0], before[1] + 32 * MIB)
upload(p.value, b"on the other device")
assert download(p.value, 19) == b"on the other device"
must(runtime.cudaFreeAsync(p, stream))
must(runtime.cudaStreamSynchronize(stream))
must(runtime.cudaSetDevice(1))
must(runtime.cudaDeviceSynchronize())
assert (used(0), used(1)) == before
assert runtime.cudaDeviceSetMemPool(0, pool) == 1
""", devices=2, work=work)

    def test_access_that_was_set_is_told(self):
        succeed(self, POOLS + """
class Access(ctypes.Structure):
    _fields_ = [("location", c_int), ("device", c_int), ("flags", c_int)]
class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]
def access(pool, device):
    flags = c_int(-1)
    must(runtime.cudaMemPoolGetAccess(byref(flags), pool, byref(Location(1, device))))
    return flags.value
def allow(pool, device, flags, kind=1):
    return runtime.cudaMemPoolSetAccess(pool, byref(Access(kind, device, flags)), c_size_t(1))
pool, other = new_pool(), new_pool()
assert [access(pool, device) for device in range(3)] == [3, 0, 0]
must(allow(pool, 1, 3))
must(allow(other, 1, 3))
assert [access(pool, device) for device in range(3)] == [3, 3, 0]
p = take(other, 4 * MIB)
must(allow(pool, 1, 0))
assert [access(pool, 1), access(other, 1)] == [0, 3]
must(runtime.cudaSetDevice(1))
must(runtime.cudaMemset(p, 7, c_size_t(4 * MIB)))
assert (allow(pool, 0, 0), allow(pool, 3, 3), allow(pool, -1, 3)) == (101, 101, 101)
assert (allow(pool, 1, 2), allow(pool, 1, 1), allow(pool, 1, 3, kind=0)) == (1, 801, 801), "nothing but all or none"
assert access(pool, 1) == 0
assert runtime.cudaMemPoolGetAccess(byref(c_int()), pool, byref(Location(1, 3))) == 1
assert runtime.cudaMemPoolGetAccess(byref(c_int()), pool, byref(Location(0, 0))) == 1
must(runtime.cudaDeviceEnablePeerAccess(0, 0))
must(allow(other, 1, 0))
must(runtime.cudaMemset(p, 8, c_size_t(4 * MIB)))
must(runtime.cudaDeviceDisablePeerAccess(0))
assert runtime.cudaMemset(p, 9, c_size_t(4 * MIB)) == 700
""", devices=3, violations="count")

    def test_devices_that_do_not_reach_each_other(self):
        for peers, can, result in (("no", 0, 217), ("full", 1, 711)):
            succeed(self, POOLS + f"peers, can, result = {(peers, can, result)}" + """
class Access(ctypes.Structure):
    _fields_ = [("location", c_int), ("device", c_int), ("flags", c_int)]
pool, answer = new_pool(), c_int(7)
for which, expected in ((2, can), (3, 0)):
    must(runtime.cudaDeviceGetP2PAttribute(byref(answer), which, 0, 1))
    assert answer.value == expected
assert runtime.cudaDeviceGetP2PAttribute(byref(answer), 9, 0, 1) == 1
must(runtime.cudaDeviceCanAccessPeer(byref(answer), 0, 1))
assert answer.value == can
for _ in range(2):
    assert runtime.cudaDeviceEnablePeerAccess(1, 0) == result
    assert runtime.cudaMemPoolSetAccess(pool, byref(Access(1, 1, 3)), c_size_t(1)) == result
    assert runtime.cudaMemPoolSetAccess(pool, byref(Access(1, 1, 0)), c_size_t(1)) == 0
p = take(pool, MIB)
must(runtime.cudaSetDevice(1))
assert runtime.cudaMemset(p, 7, c_size_t(MIB)) == 700
""", devices=2, peers=peers, violations="count")

    def test_what_a_capture_allocates_is_its_graphs(self):
        """Each launch allocates it again, so nothing else gets it, and it must have been freed by then."""
        for work in ("now", "late"):
            succeed(self, POOLS + """
def captured(*frees, allocates=True):
    graph, instance, p = c_void_p(), c_void_p(), None
    must(runtime.cudaStreamBeginCapture(stream, 0))
    if allocates:
        p = take(pool, 4 * MIB, stream)
        must(runtime.cudaMemsetAsync(p, 7, c_size_t(4 * MIB), stream))
    for other in frees:
        must(runtime.cudaFreeAsync(other, stream))
        assert runtime.cudaFreeAsync(other, stream) == 1
    must(runtime.cudaStreamEndCapture(stream, byref(graph)))
    must(runtime.cudaGraphInstantiate(byref(instance), graph, c_uint64(0)))
    return graph, instance, p
stream, pool = new_stream(), new_pool()
must(runtime.cudaMemPoolSetAttribute(pool, 4, byref(c_uint64(1 << 40))))
graph, instance, p = captured()
assert runtime.cudaGraphInstantiate(byref(c_void_p()), graph, c_uint64(0)) == 801
for _ in range(2):
    must(runtime.cudaGraphLaunch(instance, stream))
    assert runtime.cudaGraphLaunch(instance, stream) == 1, "what the first has allocated is not free"
    must(runtime.cudaFreeAsync(p, stream))
    assert runtime.cudaFreeAsync(p, stream) == 1
    q = take(pool, 4 * MIB, stream)
    assert q.value != p.value
    must(runtime.cudaMemsetAsync(q, 9, c_size_t(4 * MIB), stream))
must(runtime.cudaGraphLaunch(instance, stream))
must(runtime.cudaStreamSynchronize(stream))
assert (download(p.value, 4), download(q.value, 4)) == (b"\\7" * 4, b"\\x09" * 4)

_, freeing, _ = captured(p, allocates=False)
for _ in range(2):
    must(runtime.cudaGraphLaunch(freeing, stream))
    must(runtime.cudaGraphLaunch(instance, stream))
must(runtime.cudaFree(p))
must(runtime.cudaGraphLaunch(instance, stream))
must(runtime.cudaGraphExecDestroy(instance))
must(runtime.cudaGraphDestroy(graph))
must(runtime.cudaStreamSynchronize(stream))
assert download(p.value, 4) == b"\\7" * 4, "it outlives the graph"
must(runtime.cudaFreeAsync(p, stream))
assert take(pool, 4 * MIB, stream).value == p.value

graph, instance, p = captured()
must(runtime.cudaGraphExecDestroy(instance))
must(runtime.cudaGraphInstantiate(byref(instance), graph, c_uint64(1)))
for _ in range(3):
    must(runtime.cudaGraphLaunch(instance, stream))
""", work=work, scalars="real")

    def test_rules_of_reuse(self):
        """Work completes only when the host waits, so that what is freed on a stream is still in use."""
        succeed(self, POOLS + REUSE + """
assert again(True, True, True) != freed, "no order, and not passed"
assert again(True, False, False, order=lambda: wait(a, b)) == freed
assert again(True, False, False, order=lambda: (wait(a, c), wait(c, b))) == freed
assert again(True, False, False, order=lambda: (wait(c, b), wait(a, c))) != freed, "c's wait came later"
assert again(False, False, True, order=lambda: wait(a, b)) != freed
assert again(True, False, False, order=lambda: wait(a, b, before_free=True)) != freed
assert again(False, True, False, passed=True) == freed
assert again(False, False, True, passed=True) != freed, "passed, but the host has not waited for it"
assert again(True, False, False, order=lambda: wait(a, b), passed=True) == freed
assert again(False, False, False, synchronise=True) == freed
assert again(True, False, False, stream=None, order=lambda: None) != freed, "non-blocking streams have no default order"
assert again(True, False, False, stream=None, first=new_blocking()) == freed
""", work="blocked", schedule="fifo")

    def test_a_pool_waits_rather_than_fail(self):
        for allowed in (True, False):
            succeed(self, POOLS + f"allowed = {allowed}" + """
pool, a, b, q = new_pool(), new_stream(), new_stream(), c_void_p()
must(runtime.cudaMemPoolSetAttribute(pool, 3, byref(c_int(allowed))))
p = take(pool, 600 * MIB, a)
must(runtime.cudaMemsetAsync(p, 7, c_size_t(600 * MIB), a))
must(runtime.cudaFreeAsync(p, a))
result = runtime.cudaMallocFromPoolAsync(byref(q), c_size_t(600 * MIB), pool, b)
assert (result, q.value) == ((0, p.value) if allowed else (2, None)), (result, q.value)
if allowed:
    must(runtime.cudaMemsetAsync(q, 8, c_size_t(600 * MIB), b))
    must(runtime.cudaStreamSynchronize(b))
    assert download(q.value, 4) == b"\\x08" * 4
""", memory="1GiB", work="blocked", schedule="starve", scalars="real")

    def test_a_new_stream_is_not_the_one_that_has_ended(self):
        succeed(self, POOLS + """
pool, a = new_pool(), new_stream()
p = take(pool, 4 * MIB, a)
must(runtime.cudaMemsetAsync(p, 7, c_size_t(4 * MIB), a))
must(runtime.cudaFreeAsync(p, a))
must(runtime.cudaStreamDestroy(a))
assert take(pool, 4 * MIB, new_stream()).value != p.value

a = new_stream()
p, q = take(pool, 64 * MIB, a), take(pool, 64 * MIB, a)
must(runtime.cudaMemsetAsync(p, 7, c_size_t(64 * MIB), a))
must(runtime.cudaFreeAsync(p, a))
must(runtime.cudaStreamDestroy(a))
b = new_stream()
must(runtime.cudaMemsetAsync(q, 8, c_size_t(64 * MIB), b))
must(runtime.cudaFreeAsync(q, b))
r = take(pool, 100 * MIB, b)
assert not p.value <= r.value < p.value + 64 * MIB, "its neighbour does not pass for memory of the new stream"
""", work="blocked")

    def test_a_wait_for_an_event_returns_what_a_pool_need_not_keep(self):
        succeed(self, POOLS + """
before, pool, a, event = used(), new_pool(), new_stream(), c_void_p()
must(runtime.cudaEventCreate(byref(event)))
must(runtime.cudaFreeAsync(take(pool, 4 * MIB, a), a))
must(runtime.cudaEventRecord(event, a))
assert used() - before == 32 * MIB
must(runtime.cudaEventSynchronize(event))
assert used() == before
""", work="late")

    def test_a_pool_keeps_to_its_largest_size(self):
        succeed(self, POOLS + """
stream, pool, p = new_stream(), new_pool(most=40 * MIB), c_void_p()  # in chunks: 64
a = take(pool, 40 * MIB, stream)
b = take(pool, 24 * MIB, stream)
assert runtime.cudaMallocFromPoolAsync(byref(p), c_size_t(512), pool, stream) == 2
must(runtime.cudaFreeAsync(a, stream))
must(runtime.cudaStreamSynchronize(stream))
take(pool, 2 * MIB, stream)
assert attribute(pool, 5) == 32 * MIB
assert runtime.cudaMallocFromPoolAsync(byref(p), c_size_t(65 * MIB), pool, stream) == 2
""")

    def test_pools_are_shared_among_processes(self):
        child = PREAMBLE + """
class Data(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
fd, data = int(sys.argv[1]), Data.from_buffer_copy(bytes.fromhex(sys.argv[2]))
pool, p, q, stream = c_void_p(), c_void_p(), c_void_p(), new_stream()
must(runtime.cudaMemPoolImportFromShareableHandle(byref(pool), c_void_p(fd), 1, 0))
assert runtime.cudaMallocFromPoolAsync(byref(p), c_size_t(512), pool, stream) == 1
must(runtime.cudaMemPoolImportPointer(byref(p), pool, byref(data)))
assert download(p.value, 20) == b"from the parent".ljust(20, b"\\0")
upload(p.value, b"from the child".ljust(20, b"\\0"))
must(runtime.cudaFreeAsync(p, stream))
must(runtime.cudaMemPoolImportPointer(byref(q), pool, byref(data)))
must(runtime.cudaFree(q))
assert runtime.cudaMemPoolExportToShareableHandle(byref(c_int()), pool, 1, 0) == 1
must(runtime.cudaMemPoolDestroy(pool))
"""
        succeed(self, POOLS + f"""
import subprocess
class Data(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
supported, shared, other, stream, fd, data = c_int(), c_void_p(), new_pool(), new_stream(), c_int(), Data()
must(runtime.cudaDeviceGetAttribute(byref(supported), 119, 0))
assert supported.value == 1
must(runtime.cudaMemPoolCreate(byref(shared), byref(Props(1, 1, 1, 0))))
assert runtime.cudaMemPoolCreate(byref(c_void_p()), byref(Props(1, 8, 1, 0))) == 801
assert runtime.cudaMemPoolExportToShareableHandle(byref(fd), other, 1, 0) == 1
must(runtime.cudaMemPoolExportToShareableHandle(byref(fd), shared, 1, 0))
p, q = take(shared, 4 * MIB, stream), take(other, 4 * MIB, stream)
assert runtime.cudaMemPoolExportPointer(byref(data), q) == 1
must(runtime.cudaMemPoolExportPointer(byref(data), p))
upload(p.value, b"from the parent".ljust(20, b"\\0"))
machine = driver.trz_lookalike_machine_fd()
os.environ["TERRAZZO_SIM_MACHINE_FD"] = str(machine)
subprocess.run([sys.executable, "-c", {child!r}, str(fd.value), bytes(data).hex()], pass_fds=(machine, fd.value),
               check=True)
assert download(p.value, 20) == b"from the child".ljust(20, b"\\0")
assert runtime.cudaMemPoolImportFromShareableHandle(byref(other), c_void_p(0), 1, 0) == 1
""", work="late")

    def test_a_location_has_a_pool(self):
        succeed(self, POOLS + """
class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]
own, same, other, here = new_pool(), c_void_p(), c_void_p(), Location(1, 0)
must(runtime.cudaDeviceGetDefaultMemPool(byref(same), 0))
must(runtime.cudaMemGetDefaultMemPool(byref(other), byref(here), 1))
assert same.value == other.value
must(runtime.cudaMemSetMemPool(byref(here), 1, own))
must(runtime.cudaMemGetMemPool(byref(other), byref(here), 1))
assert other.value == own.value
assert runtime.cudaMemGetMemPool(byref(other), byref(Location(2, 0)), 1) == 801
assert runtime.cudaMemGetMemPool(byref(other), byref(here), 2) == 1
""")

    def test_a_reset_ends_what_pools_had(self):
        succeed(self, POOLS + """
pool, stream = c_void_p(), new_stream()
must(runtime.cudaDeviceGetDefaultMemPool(byref(pool), 0))
p, q = c_void_p(), c_void_p()
must(runtime.cudaMallocAsync(byref(p), c_size_t(4 * MIB), stream))
must(runtime.cudaMallocAsync(byref(q), c_size_t(4 * MIB), stream))
must(runtime.cudaFreeAsync(q, stream))
must(runtime.cudaDeviceReset())
assert (attribute(pool, 5), attribute(pool, 7)) == (0, 0)
must(runtime.cudaMallocAsync(byref(q), c_size_t(4 * MIB), None))
upload(q.value, bytes(range(100)))
assert download(q.value, 100) == bytes(range(100))
must(runtime.cudaFreeAsync(q, None))
""", work="late")


if __name__ == "__main__":
    skip_if_unfit()
    unittest.main()
