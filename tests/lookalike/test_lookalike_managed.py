# SPDX-License-Identifier: Apache-2.0
"""Managed memory: a program can query, range by range, what it has advised about it."""
import unittest

from lookalike_process import skip_if_unfit, succeed

MANAGED = """
READ_MOSTLY, PREFERRED, ACCESSED, PREFETCHED, PREFERRED_TYPE, PREFERRED_ID, PREFETCHED_TYPE, PREFETCHED_ID = range(1, 9)
class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]
class Pointer(ctypes.Structure):
    _fields_ = [("type", c_int), ("device", c_int), ("on_device", c_void_p), ("on_host", c_void_p),
                ("rest", c_uint64 * 8)]
HOST, DEVICE = Location(2, 0), Location(1, 0)

def managed(size):
    p = c_void_p()
    must(runtime.cudaMallocManaged(byref(p), c_size_t(size), 1))
    return p.value

def ask(attribute, address, size):
    value = c_int(77)
    must(runtime.cudaMemRangeGetAttribute(byref(value), c_size_t(4), attribute, c_void_p(address), c_size_t(size)))
    return value.value

def accessed(address, size, room=3):
    devices = (c_int * room)()
    must(runtime.cudaMemRangeGetAttribute(devices, c_size_t(4 * room), ACCESSED, c_void_p(address), c_size_t(size)))
    return list(devices)

def advise(address, size, advice, where=DEVICE):
    return runtime.cudaMemAdvise(c_void_p(address), c_size_t(size), advice, where)
"""


class Managed(unittest.TestCase):
    def test_host_and_device_share_it(self):
        succeed(self, MANAGED + """
p, told, host = managed(MIB), Pointer(), c_uint64()
ctypes.memset(p, 7, 4096)
assert download(p, 4096) == b"\\7" * 4096
must(runtime.cudaMemset(c_void_p(p), 9, c_size_t(4096)))
must(runtime.cudaDeviceSynchronize())
assert ctypes.string_at(p, 4096) == b"\\x09" * 4096
must(runtime.cudaPointerGetAttributes(byref(told), c_void_p(p + 100)))
assert (told.type, told.device, told.on_device, told.on_host) == (3, 0, p + 100, p + 100)
must(runtime.cudaPointerGetAttributes(byref(told), c_void_p(malloc(64))))
assert told.type == 2 and told.on_host is None
assert runtime.cudaMallocManaged(byref(c_void_p()), c_size_t(MIB), 3) == 1
assert runtime.cudaMallocManaged(byref(c_void_p()), c_size_t(0), 1) == 0
must(runtime.cudaStreamAttachMemAsync(None, c_void_p(p), c_size_t(0), 4))
assert runtime.cudaStreamAttachMemAsync(None, c_void_p(malloc(64)), c_size_t(0), 4) == 1
must(runtime.cudaFree(c_void_p(p)))
assert advise(p, 4096, 1) == 1
""")

    def test_more_than_the_device_has(self):
        """The programming guide: managed memory may exceed the device's. It makes room for other memory, too."""
        succeed(self, MANAGED + """
unused, total, handle = c_size_t(), c_size_t(), (ctypes.c_char * 64)()
def unused_now():
    must(runtime.cudaMemGetInfo(byref(unused), byref(total)))
    return unused.value
before = unused_now()
small, first, huge = managed(4096), managed(1 << 30), managed(3 * total.value)
assert before - unused_now() == (1 << 30) + 2 * MIB
assert runtime.cudaIpcGetMemHandle(handle, c_void_p(first)) == 1
ctypes.memset(huge + 3 * total.value - 64, 5, 64)
must(runtime.cudaMemcpy(c_void_p(first), c_void_p(huge + 3 * total.value - 64), c_size_t(64), 3))
most = malloc(before - 2 * MIB)
assert unused_now() >= 0 and ctypes.string_at(first, 64) == b"\5" * 64
assert runtime.cudaMalloc(byref(c_void_p()), c_size_t(4 * MIB)) == 2
for address in (small, first, huge, most):
    must(runtime.cudaFree(c_void_p(address)))
assert unused_now() == before
assert runtime.cudaMallocManaged(byref(c_void_p()), c_size_t(1 << 62), 1) == 2
""", memory="4GiB")

    def test_advice_is_kept_by_range(self):
        succeed(self, MANAGED + """
p = managed(MIB)
assert [ask(a, p, MIB) for a in (READ_MOSTLY, PREFERRED, PREFETCHED)] == [0, -2, -2]
must(advise(p, MIB, 1))
must(advise(p + 4096, 4096, 2))
assert [ask(READ_MOSTLY, p + at, n) for at, n in ((0, MIB), (0, 4096), (4096, 4096), (8192, 100))] == [0, 1, 0, 1]
must(advise(p, MIB, 3, HOST))
assert (ask(PREFERRED, p, MIB), ask(PREFERRED_TYPE, p, MIB)) == (-1, 2)
must(advise(p, 4096, 3))
assert (ask(PREFERRED, p, MIB), ask(PREFERRED, p, 4096), ask(PREFERRED_TYPE, p, 4096), ask(PREFERRED_ID, p, 10)) == \\
    (-2, 0, 1, 0)
must(advise(p, MIB, 4))
assert ask(PREFERRED, p, MIB) == -2 and ask(PREFERRED_TYPE, p, MIB) == 0
must(advise(p, MIB, 5))
must(advise(p, 4096, 5, HOST))
assert accessed(p, MIB) == [0, -2, -2] and accessed(p, 4096) == [-1, 0, -2]
must(advise(p, MIB, 6))
assert accessed(p, MIB) == [-2] * 3
must(runtime.cudaMemPrefetchAsync(c_void_p(p), c_size_t(MIB), DEVICE, 0, None))
assert (ask(PREFETCHED, p, MIB), ask(PREFETCHED_TYPE, p, MIB), ask(PREFETCHED_ID, p, MIB)) == (0, 1, 0)
values, sizes = (c_int * 2)(), (c_size_t * 2)(4, 4)
data = (c_void_p * 2)(ctypes.addressof(values), ctypes.addressof(values) + 4)
must(runtime.cudaMemRangeGetAttributes(data, sizes, (c_int * 2)(1, 4), c_size_t(2), c_void_p(p), c_size_t(100)))
assert list(values) == [1, 0]
""")

    def test_a_reset_ends_it(self):
        succeed(self, MANAGED + """
told, p = Pointer(), managed(MIB)
must(runtime.cudaDeviceReset())
q = malloc(MIB)
must(runtime.cudaPointerGetAttributes(byref(told), c_void_p(q)))
assert told.type == 2 and advise(p, MIB, 1) == 1
""")

    def test_other_memory_takes_no_advice(self):
        succeed(self, MANAGED + """
p, q = managed(MIB), malloc(MIB)
assert (advise(q, MIB, 1), advise(p, MIB + 1, 1), advise(p, MIB, 7)) == (1, 1, 1)
assert advise(p, MIB, 3, Location(1, 5)) == 101
assert runtime.cudaMemPrefetchAsync(c_void_p(q), c_size_t(MIB), DEVICE, 0, None) == 1
assert runtime.cudaMemRangeGetAttribute(byref(c_int()), c_size_t(4), 1, c_void_p(q), c_size_t(4)) == 1
assert runtime.cudaMemRangeGetAttribute(byref(c_int()), c_size_t(3), 1, c_void_p(p), c_size_t(4)) == 1
assert runtime.cudaMemRangeGetAttribute(byref(c_int()), c_size_t(4), 99, c_void_p(p), c_size_t(4)) == 1
""")


if __name__ == "__main__":
    skip_if_unfit()
    unittest.main()
