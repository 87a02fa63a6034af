# SPDX-License-Identifier: Apache-2.0
# modes: shim
"""Trackers of PyTorch's allocator hear of memory that comes and goes, in time."""
import ctypes
import gc
import os
import random
import tempfile
import unittest
from collections import namedtuple
from pathlib import Path

import torch

import terrazzo.torch
from common import MIB, Case, bytes_on_device, main, run_python
from terrazzo import compiling
from terrazzo.torch import _build

Entry = namedtuple("Entry", "action device address size stream pool")
NOTED = ctypes.CFUNCTYPE(None)
CAME, WENT = ("segment_map", "segment_alloc"), ("segment_unmap", "segment_free")


class Tracker:
    """tracker.cpp, compiled."""

    def __init__(self, callback=None):
        source = Path(__file__).with_name("tracker.cpp")
        command = _build.shim_command(torch, terrazzo.torch._native_library().path)
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "tracker.so"
            compiling.compile_to(target, [str(source) if word.endswith("shim.cpp") else word for word in command])
            self.dll = ctypes.CDLL(str(target))
        self.dll.tracker_take.restype = self.dll.tracker_base.restype = ctypes.c_void_p
        self.callback = NOTED(callback) if callback else None
        self.dll.tracker_attach(self.callback)

    def take(self):
        """The reports since the last call."""
        text = self.dll.tracker_take()
        lines = ctypes.string_at(text).decode().splitlines()
        ctypes.CDLL(None).free(ctypes.c_void_p(text))
        entries = []
        for line in lines:
            action, *numbers = line.split()
            device, address, size, stream, first, second = map(int, numbers)
            entries.append(Entry(action, device, address, size, stream, (first, second)))
        return entries

    def base(self, address):
        """(first byte, size) of what an extension takes an allocation's memory for."""
        size = ctypes.c_size_t(12345)
        return self.dll.tracker_base(ctypes.c_void_p(address), ctypes.byref(size)), size.value


class Mapped:
    """The mappings, by a tracker's reports, which must be consistent."""

    def __init__(self, test):
        self.test, self.ranges = test, {}
        self.before = [(s["address"], s["total_size"]) for s in torch.cuda.memory_snapshot()]

    def hear(self, entries):
        for e in entries:
            if e.action in CAME:
                self.test.assertNotIn(e.address, self.ranges, e)
                self.ranges[e.address] = e
            elif e.action in WENT and e.address in self.ranges:
                came = self.ranges.pop(e.address)
                self.test.assertEqual((came.size, came.stream, came.pool), (e.size, e.stream, e.pool))
                self.test.assertEqual(CAME.index(came.action), WENT.index(e.action))
            elif e.action in WENT:
                self.test.assertTrue(any(a <= e.address < a + size for a, size in self.before), e)
            elif e.action == "alloc":
                self.test.assertTrue(self.covers(e.address, e.size), e)

    def covers(self, address, size):
        ranges = self.before + [(e.address, e.size) for e in self.ranges.values()]
        end = address + size
        while address < end:
            ends = [a + n for a, n in ranges if a <= address < a + n]
            if not ends:
                return False
            address = max(ends)
        return True


class Trackers(Case):
    @classmethod
    def setUpClass(cls):
        cls.before = bytes_on_device(3 * MIB)
        cls.tracker = Tracker()
        cls.told_at_once = cls.tracker.take()

    def setUp(self):
        super().setUp()
        torch.cuda.empty_cache()
        self.tracker.take()

    def returned(self):
        """The reports when all free memory goes back."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return self.tracker.take()

    def test_what_was_there_is_not_told(self):
        self.assertEqual(self.told_at_once, [])

    def test_memory_comes_before_it_is_given_out_and_goes_after(self):
        mapped = Mapped(self)
        held = [bytes_on_device(30 * MIB) for _ in range(4)]
        entries = self.tracker.take()
        self.assertTrue(any(e.action == "segment_map" for e in entries))
        self.assertEqual(sum(e.action == "alloc" for e in entries), 4)
        mapped.hear(entries)
        addresses = [t.data_ptr() for t in held]
        del held
        entries = self.returned()
        self.assertEqual([e.action for e in entries[:4]], ["free_requested"] * 4)
        self.assertEqual(sorted(e.address for e in entries[:4]), sorted(addresses))
        self.assertEqual({e.action for e in entries[4:]}, {"segment_unmap"})
        mapped.hear(entries)

    def test_sizes_add_up(self):
        reserved = torch.cuda.memory_reserved()
        x = bytes_on_device(100 * MIB)
        came = [e for e in self.tracker.take() if e.action == "segment_map"]
        self.assertEqual(sum(e.size for e in came), torch.cuda.memory_reserved() - reserved)
        self.assertTrue(all(e.device == 0 and e.pool == (0, 0) for e in came))
        del x
        gone = [e for e in self.returned() if e.action == "segment_unmap"]
        self.assertEqual(sorted((e.address, e.size) for e in gone), sorted((e.address, e.size) for e in came))

    def test_streams_and_pools(self):
        side, pool = torch.cuda.Stream(), torch.cuda.MemPool()
        with torch.cuda.stream(side), torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(50 * MIB)
        entries = self.tracker.take()
        self.assertEqual({e.action for e in entries}, {"segment_map", "alloc"})
        del x
        entries += [e for e in self.returned() if e.action == "segment_unmap"]
        self.assertEqual(entries[-1].action, "segment_unmap")
        self.assertEqual({(e.stream, e.pool) for e in entries}, {(side.cuda_stream, pool.id)})

    def test_memory_that_can_be_shared(self):
        with terrazzo.torch.shareable():
            x = bytes_on_device(MIB)
        came = [e for e in self.tracker.take() if e.action == "segment_map"]
        self.assertEqual([(e.address, e.size) for e in came], [(x.data_ptr(), 2 * MIB)])

    def test_pools_of_pytorchs_own_allocator(self):
        """Such as one whose memory is NCCL's: its segments are told of, too."""
        library = terrazzo.torch._native_library().path
        allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "trz_torch_segment_alloc", "trz_torch_free")
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(MIB)
        entries = self.tracker.take()
        came = [e for e in entries if e.action == "segment_alloc"]
        self.assertEqual([e.pool for e in came], [pool.id])
        self.assertTrue(came[0].address <= x.data_ptr() < came[0].address + came[0].size)
        self.assertEqual([e.address for e in entries if e.action == "alloc"], [x.data_ptr()])
        self.assertEqual(self.tracker.base(x.data_ptr()), (came[0].address, came[0].size))
        del x, pool, allocator
        gc.collect()
        self.assertIn(came[0].address, [e.address for e in self.returned() if e.action == "segment_free"])

    def test_extensions_ask_what_memory_an_allocation_lies_in(self):
        x = bytes_on_device(3 * MIB)
        base, size = self.tracker.base(x.data_ptr())
        self.assertEqual(base, x.data_ptr())
        self.assertGreaterEqual(size, 3 * MIB)
        self.assertEqual(self.tracker.base(512), (None, 12345))

    def test_a_long_program_makes_sense(self):
        choose, mapped, held, told = random.Random(5), Mapped(self), [], []
        for i in range(300):
            if len(held) > 12 or (held and choose.random() < 0.4):
                held.pop(choose.randrange(len(held)))
            with torch.cuda.stream(torch.cuda.Stream() if i % 50 == 0 else torch.cuda.current_stream()):
                held.append(bytes_on_device(choose.randrange(1, 20 * MIB)))
            if i % 60 == 59:
                told += self.returned()
        told += self.tracker.take()
        self.assertTrue(any(e.action in WENT for e in told) and any(e.action in CAME for e in told))
        mapped.hear(told)


OTHERS = """
import sys, torch
sys.path.insert(0, {folder!r})
import test_trackers as t
"""


class Otherwise(unittest.TestCase):
    def run_it(self, code, **environment):
        head = OTHERS.format(folder=os.path.dirname(os.path.abspath(__file__)))
        status, out, err = run_python(head + code, mode=None, TRZ_TORCH_MODE="shim", **environment)
        self.assertEqual(status, 0, err)
        return out.split()

    def test_attached_before_anything_is_allocated(self):
        out = self.run_it("torch.cuda.init(); k = t.Tracker()\nx = t.bytes_on_device(5 << 20)\n"
                          "print(*sorted({e.action for e in k.take()}))")
        self.assertEqual(out, ["alloc", "segment_map"])

    def test_it_is_told_before_it_goes_and_after_it_has_come(self):
        out = self.run_it("import ctypes, terrazzo.torch\nlibrary = terrazzo.torch._native_library()\n"
                          "seen, k = set(), None\n"
                          "def ask(p):\n"
                          "    room = (ctypes.c_uint64 * 8)()\n"
                          "    return library._dll.trz_query_mapping(library.heap(0), ctypes.c_void_p(p), room)\n"
                          "def look(): seen.update(f'{e.action}:{ask(e.address)}' for e in k.take())\n"
                          "torch.cuda.init(); k = t.Tracker(look)\n"
                          "x = t.bytes_on_device(5 << 20); p = x.data_ptr(); del x\n"
                          "torch.cuda.synchronize(); torch.cuda.empty_cache()\n"
                          "print(*sorted(seen), ask(p))")
        self.assertEqual(out, ["alloc:0", "free_requested:0", "segment_map:0", "segment_unmap:0", "7"])

    def test_plain_allocations(self):
        out = self.run_it("torch.cuda.init(); k = t.Tracker()\n"
                          "x = t.bytes_on_device(5 << 20); p = x.data_ptr(); del x\n"
                          "torch.cuda.synchronize(); torch.cuda.empty_cache()\n"
                          "e = k.take(); print(*[i.action for i in e], e[0].address <= p < e[0].address + e[0].size)",
                          TERRAZZO_CONF="vmm:off")
        self.assertEqual(out, ["segment_alloc", "alloc", "free_requested", "segment_free", "True"])

    def test_a_tracker_may_allocate(self):
        """So no lock is held during a report."""
        out = self.run_it("depth = 0\n"
                          "def more():\n"
                          "    global depth\n"
                          "    if depth < 3:\n"
                          "        depth += 1; x = t.bytes_on_device(9 << 20); del x; depth -= 1\n"
                          "torch.cuda.init(); k = t.Tracker(more)\nx = t.bytes_on_device(5 << 20); del x\n"
                          "torch.cuda.synchronize(); torch.cuda.empty_cache(); print('lived', len(k.take()) > 9)")
        self.assertEqual(out, ["lived", "True"])

    def test_a_tracker_may_be_the_first_to_use_a_device(self):
        """Which begins its history inside an allocation that is noted in the other's."""
        out = self.run_it("if torch.cuda.device_count() < 2: sys.exit(print('alone'))\nkept = []\n"
                          "def more():\n"
                          "    if not kept:\n"
                          "        kept.append(1); kept.append(t.bytes_on_device(3 << 20, 'cuda:1'))\n"
                          "torch.cuda.init(); k = t.Tracker(more); torch.cuda.memory._record_memory_history()\n"
                          "x = t.bytes_on_device(5 << 20)\n"
                          "traces = torch.cuda.memory._snapshot()['device_traces']\n"
                          "print(*[sum(e['action'] == 'alloc' for e in trace) for trace in traces])\n"
                          "del x; kept.pop()  # the interpreter's end is none for a callback\n",
                          TERRAZZO_SIM_DEVICES="2")
        if out == ["alone"]:
            self.skipTest("needs two devices")
        self.assertEqual(out, ["1", "1"])

    def test_a_tracker_may_refuse(self):
        """The allocation, or the emptying of the cache, fails with its error, and nothing is left of it."""
        out = self.run_it("import gc\n"
                          "def attempt(what):\n"
                          "    try: what()\n"
                          "    except RuntimeError as e: print('refused' if 'the card' in str(e) else e)\n"
                          "torch.cuda.init(); k = t.Tracker(); k.dll.tracker_fail(1)\n"
                          "attempt(lambda: t.bytes_on_device(5 << 20))\n"
                          "print(torch.cuda.memory_allocated(), t.terrazzo.torch.stats()['idle_bytes.current'])\n"
                          "torch.cuda.synchronize(); k.dll.tracker_fail(1)\n"
                          "attempt(torch.cuda.empty_cache)\n"
                          "print(torch.cuda.memory_reserved()); x = t.bytes_on_device(5 << 20); print('served')")
        self.assertEqual(out, ["refused", "0", "0", "refused", "0", "served"])

    def test_a_filter_may_throw(self):
        out = self.run_it("torch.cuda.init(); k = t.Tracker(); k.dll.tracker_divert(True)\n"
                          "x = t.bytes_on_device(5 << 20); k.dll.tracker_divert(False)\n"
                          "print(*{e.pool for e in k.take() if e.action == 'alloc'})")
        self.assertEqual(out, ["(0,", "0)"])


if __name__ == "__main__":
    main()
