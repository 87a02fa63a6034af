# SPDX-License-Identifier: Apache-2.0
# modes: shim hooks none
"""Pools: torch.cuda.MemPool, use_mem_pool and terrazzo.torch.pool()."""
import gc
import threading

import torch
import torch.cuda._gpu_trace

import terrazzo.torch
from common import (MIB, MODE, Case, alone, bytes_on_device, compile_with_runtime, driver_allocator, main, run_python,
                    shim_only, since, stat, total_memory)

# Stands before the runtime's cudaMalloc and cudaFree, as libraries in LD_PRELOAD do.
BEFORE_CUDA_MALLOC = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stddef.h>
    struct block { void *ptr; size_t size; } blocks[100];
    size_t seen_bytes;
    int cudaMalloc(void **ptr, size_t size)
    {
        int status = ((int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc"))(ptr, size);
        for (int i = 0; status == 0 && i < 100; i++)
            if (!blocks[i].ptr) {
                blocks[i] = (struct block){*ptr, size};
                seen_bytes += size;
                break;
            }
        return status;
    }
    int cudaFree(void *ptr)
    {
        for (int i = 0; ptr && i < 100; i++)
            if (blocks[i].ptr == ptr) {
                seen_bytes -= blocks[i].size;
                blocks[i].ptr = NULL;
            }
        return ((int (*)(void *))dlsym(RTLD_NEXT, "cudaFree"))(ptr);
    }
    """

POOLS_SEEN = """
import ctypes, os, torch
seen = ctypes.c_size_t.in_dll(ctypes.CDLL(os.environ["LD_PRELOAD"]), "seen_bytes")
x = torch.ones(1 << 20, device="cuda")
print(seen.value)
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    y = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
print(seen.value)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    z = torch.zeros(20 << 20, dtype=torch.uint8, device="cuda")
graph.replay()
torch.cuda.synchronize()
print(seen.value)
del y, z, pool, graph
torch.cuda.empty_cache()
print(seen.value)
"""


class WithoutPools(Case):
    def test_says_so(self):
        """PyTorch before 2.5 has none. terrazzo's hooks have their own."""
        kept = vars(torch.cuda).pop("MemPool", None)
        if kept:
            self.addCleanup(setattr, torch.cuda, "MemPool", kept)
        if MODE == "hooks":
            with terrazzo.torch.pool():
                self.assertEqual(bytes_on_device(MIB).numel(), MIB)
            return
        with self.assertRaisesRegex(terrazzo.torch.Error, "needs PyTorch 2.5 or newer"):
            with terrazzo.torch.pool():
                pass


class Own(Case):
    def setUp(self):
        super().setUp()
        if MODE == "none" and not hasattr(torch.cuda, "MemPool"):
            self.skipTest("PyTorch before 2.5 has no pools")

    def test_memory_of_a_tag_is_apart(self):
        with terrazzo.torch.pool(tag="apart"):
            inside = [bytes_on_device(3 * MIB) for _ in range(4)]
        addresses = {t.data_ptr() for t in inside}
        del inside
        outside = [bytes_on_device(3 * MIB) for _ in range(8)]
        self.assertFalse(addresses & {t.data_ptr() for t in outside})
        with terrazzo.torch.pool(tag="apart"):
            again = [bytes_on_device(3 * MIB) for _ in range(4)]
        self.assertEqual(addresses, {t.data_ptr() for t in again})
        del again, outside
        self.assertTrue(terrazzo.torch.release_pool("apart"))
        self.assertFalse(terrazzo.torch.release_pool("apart"))

    def test_tensors_outlive_their_pool(self):
        with terrazzo.torch.pool():
            x = bytes_on_device(5 * MIB)
        gc.collect()
        x.fill_(1)
        y = x.clone()
        del x, y
        torch.cuda.empty_cache()  # has the pool's allocator give the memory back
        with terrazzo.torch.pool():  # PyTorch 2.6 and 2.7 end pools that are empty when the next one begins
            pass
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), 0)

    def test_pools_nest(self):
        with terrazzo.torch.pool(tag="outer"):
            a = bytes_on_device(MIB)
            with terrazzo.torch.pool(tag="inner"):
                b = bytes_on_device(MIB)
            c = bytes_on_device(MIB)
        self.assertEqual(len({t.data_ptr() for t in (a, b, c)}), 3)
        del a, b, c
        terrazzo.torch.release_pool("outer")
        terrazzo.torch.release_pool("inner")

    @since(8)
    def test_other_threads_are_not_diverted(self):
        made = {}

        def elsewhere():
            made["other"] = bytes_on_device(4 * MIB)

        with terrazzo.torch.pool(tag="mine"):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            mine = bytes_on_device(4 * MIB)
        address = made.pop("other").data_ptr()
        again = bytes_on_device(4 * MIB)
        if MODE != "none":
            self.assertEqual(again.data_ptr(), address)  # it went back to the common memory
        del again, mine
        terrazzo.torch.release_pool("mine")

    @since(8)
    def test_many_threads_each_with_a_pool(self):
        failures = []

        def work(i):
            try:
                for _ in range(20):
                    with terrazzo.torch.pool(tag=f"thread {i}"):
                        held = [bytes_on_device((i + 1) * 100_000) for _ in range(5)]
                    del held
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for i in range(8):
            terrazzo.torch.release_pool(f"thread {i}")

    def test_out_of_memory_inside(self):
        size = torch.cuda.mem_get_info()[1] * 2
        with terrazzo.torch.pool():
            with self.assertRaises(torch.OutOfMemoryError):
                bytes_on_device(size)
            x = bytes_on_device(MIB)
        del x


@shim_only
class MemPools(Case):
    def test_ids_differ(self):
        first, second = torch.cuda.MemPool(), torch.cuda.MemPool()
        self.assertNotEqual(first.id, second.id)
        self.assertEqual(first.use_count(), 1)

    def test_use_count_follows_uses(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            self.assertEqual(pool.use_count(), 2)
        self.assertEqual(pool.use_count(), 1)

    def test_snapshots_know_pools(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(30 * MIB)
        y = bytes_on_device(30 * MIB)
        segments = pool.snapshot()
        self.assertTrue(segments)
        self.assertTrue(all(s["segment_pool_id"] == pool.id for s in segments))
        held = {b["address"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"}
        self.assertEqual(held, {x.data_ptr()})
        everything = torch.cuda.memory_snapshot()
        self.assertIn((0, 0), {s["segment_pool_id"] for s in everything})
        del x, y

    def test_empty_cache_returns_what_a_live_pool_has_free(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(256 * MIB)
            del x
            before = stat("reserved_bytes.all.current")
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            self.assertLess(stat("reserved_bytes.all.current"), before - 128 * MIB)

    @alone
    def test_a_pool_is_emptied_when_the_device_is_full(self):
        torch.cuda.empty_cache()
        pool = torch.cuda.MemPool()
        free = torch.cuda.mem_get_info()[0]
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(int(free * 0.6))
            del x
        y = bytes_on_device(int(free * 0.6))
        del y, pool
        torch.cuda.empty_cache()

    def test_deleted_pools_are_not_used(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(MIB)
        del pool
        gc.collect()
        y = bytes_on_device(MIB)
        self.assertNotEqual(x.data_ptr(), y.data_ptr())
        del x, y

    def test_nested(self):
        outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(outer):
            with torch.cuda.use_mem_pool(inner):
                x = bytes_on_device(MIB)
            y = bytes_on_device(MIB)
        inside = {b["address"] for s in inner.snapshot() for b in s["blocks"] if b["state"] == "active_allocated"}
        self.assertEqual(inside, {x.data_ptr()})
        del x, y

    def test_the_same_order_gives_the_same_addresses(self):
        def addresses():
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                held = [bytes_on_device(size) for size in (100, 5 * MIB, 700, 3 * MIB, 40 * MIB)]
            first = min(t.data_ptr() for t in held)
            return [t.data_ptr() - first for t in held]

        self.assertEqual(addresses(), addresses())

    def test_a_pool_with_an_allocator_of_its_own(self):
        library = terrazzo.torch._native_library().path
        other = torch.cuda.memory.CUDAPluggableAllocator(str(library), "trz_torch_segment_alloc", "trz_torch_free")
        pool = torch.cuda.MemPool(other.allocator())
        before = torch.cuda.memory_stats()["allocated_bytes.all.current"]
        with torch.cuda.use_mem_pool(pool):
            x = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
        y = bytes_on_device(MIB)
        self.assertTrue(pool.snapshot())
        self.assertGreaterEqual(torch.cuda.memory_stats()["allocated_bytes.all.current"], before + 2 * MIB)
        x.record_stream(torch.cuda.Stream())
        del x, y, pool, other
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    @since(8)
    def test_such_a_pool_knows_what_other_streams_use(self):
        side = torch.cuda.Stream()
        active = torch.cuda.memory_stats()["active_bytes.all.current"]
        pool = self.of_the_driver()
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(4 * MIB)
        x.record_stream(side)
        del x
        self.assertEqual(torch.cuda.memory_stats()["active_bytes.all.current"], active + 4 * MIB)
        del pool
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_stats()["active_bytes.all.current"], active)

    @since(8)
    def test_such_a_pool_in_a_capture_keeps_what_other_streams_use(self):
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        active = torch.cuda.memory_stats()["active_bytes.all.current"]
        pool = self.of_the_driver()
        with torch.cuda.graph(graph), torch.cuda.use_mem_pool(pool):
            x = torch.ones(MIB, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = x * 2
            x.record_stream(side)
            address = x.data_ptr()
            del x
            z = torch.ones(MIB, device="cuda")
            torch.cuda.current_stream().wait_stream(side)
        self.assertNotEqual(z.data_ptr(), address)
        graph.replay()
        torch.cuda.synchronize()
        with torch.cuda.use_mem_pool(pool):
            x = torch.ones(MIB, device="cuda")
        torch.cuda.empty_cache()  # PyTorch up to 2.12 does not look at uses in an allocation from a pool
        self.assertAlmostEqual(torch.cuda.memory_stats()["active_bytes.all.current"], active + 12 * MIB,
                               delta=1024)  # some versions keep the seeds of a graph
        del x, y, z, graph, pool
        gc.collect()
        torch.cuda.empty_cache()

    @since(8)
    def test_pytorchs_sanitizer_hears_once_of_such_memory(self):
        told = []
        torch._C._activate_gpu_trace()
        trace = torch.cuda._gpu_trace
        trace.register_callback_for_memory_allocation(lambda address: told.append(("alloc", address)))
        trace.register_callback_for_memory_deallocation(lambda address: told.append(("free", address)))
        pool = self.of_the_driver()
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(4 * MIB)
        y = bytes_on_device(4 * MIB)
        expected = [(kind, t.data_ptr()) for kind in ("alloc", "free") for t in (x, y)]
        del x
        del y
        self.assertEqual(told, expected)
        del pool
        torch.cuda.empty_cache()

    @since(8)
    def test_a_library_before_cudaMalloc_sees_the_memory_of_pools(self):
        library = compile_with_runtime(BEFORE_CUDA_MALLOC)
        status, out, err = run_python(POOLS_SEEN, "shim", LD_PRELOAD=library)
        self.assertEqual(status, 0, err)
        heap, pool, graph, end = map(int, out.split())
        self.assertEqual(heap, 0)
        self.assertGreaterEqual(pool, 30 * MIB)
        self.assertGreaterEqual(graph - pool, 20 * MIB)
        self.assertEqual(end, 0)

    @since(10)
    def test_no_split(self):
        pool = torch.cuda.MemPool(no_split=True)
        with torch.cuda.use_mem_pool(pool):
            x, y = bytes_on_device(1000), bytes_on_device(1000)
        self.assertEqual([len(s["blocks"]) for s in pool.snapshot()], [1, 1])
        del x, y
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(1000)
        self.assertEqual(len(pool.snapshot()), 2)
        number = pool.id
        del x, pool
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_snapshot(number), [])

    def of_the_driver(self, **options):
        """A pool that takes its memory past the heap."""
        if not hasattr(self, "_other"):
            type(self)._other = torch.cuda.memory.CUDAPluggableAllocator(driver_allocator(), "take", "give")
        return torch.cuda.MemPool(self._other.allocator(), **options)

    def limited(self, size):
        """May have `size` bytes more than now."""
        torch.cuda.empty_cache()
        reserved = torch.cuda.memory_reserved()
        torch.cuda.set_per_process_memory_fraction((reserved + size) / total_memory())
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)

    @since(8)
    @alone
    def test_a_pool_of_the_driver_gets_what_the_heap_has_free(self):
        free = torch.cuda.mem_get_info()[0]
        x = bytes_on_device(free // 10 * 7)
        del x
        pool = self.of_the_driver()
        with torch.cuda.use_mem_pool(pool):
            y = bytes_on_device(free // 10 * 6)
        self.assertLess(torch.cuda.memory_stats()["reserved_bytes.all.current"], free)
        del y, pool
        torch.cuda.empty_cache()
        z = bytes_on_device(free // 10 * 9)
        del z
        torch.cuda.empty_cache()

    @alone
    def test_the_heap_gets_what_a_pool_that_has_ended_has_free(self):
        free = torch.cuda.mem_get_info()[0]
        pool = self.of_the_driver()
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(free // 10 * 6)
        del pool
        gc.collect()
        del x
        y = bytes_on_device(free // 10 * 7)
        del y
        torch.cuda.empty_cache()

    @since(8)
    def test_a_fraction_binds_the_heap_and_such_pools_together(self):
        self.limited(80 * MIB)
        pool = self.of_the_driver()
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(40 * MIB)
            self.assertRaises(torch.OutOfMemoryError, bytes_on_device, 60 * MIB)
        self.assertRaises(torch.OutOfMemoryError, bytes_on_device, 60 * MIB)
        y = bytes_on_device(30 * MIB)
        del y
        with torch.cuda.use_mem_pool(pool):
            z = bytes_on_device(40 * MIB)
        del x, z, pool
        torch.cuda.empty_cache()
        x = bytes_on_device(70 * MIB)
        del x

    @since(10)
    def test_such_a_pool_serves_others_if_it_is_there_for_that(self):
        self.limited(80 * MIB)
        pools = self.of_the_driver(), self.of_the_driver(use_on_oom=True)
        addresses = []
        for pool in pools:
            with torch.cuda.use_mem_pool(pool):
                x = bytes_on_device(40 * MIB)
            addresses.append(x.data_ptr())
            self.assertRaises(torch.OutOfMemoryError, bytes_on_device, 50 * MIB)
            del x
        x = bytes_on_device(30 * MIB)
        self.assertEqual(x.data_ptr(), addresses[1])
        self.assertRaises(torch.OutOfMemoryError, bytes_on_device, 30 * MIB)
        del x
        with torch.cuda.use_mem_pool(pools[1]):
            x = bytes_on_device(20 * MIB)
        self.assertEqual(x.data_ptr(), addresses[1])
        del x, pools, pool
        gc.collect()
        torch.cuda.empty_cache()

    @since(10)
    def test_a_pool_of_two_threads_in_one_of_pytorchs_own(self):
        """The end of the other thread's use is not that of this one's."""
        ours, theirs = torch.cuda.MemPool(), torch.cuda.MemPool(no_split=True)
        begun, over = threading.Event(), threading.Event()

        def beside():
            with torch.cuda.use_mem_pool(ours):
                begun.set()
                over.wait()

        thread = threading.Thread(target=beside)
        thread.start()
        begun.wait()
        with torch.cuda.use_mem_pool(theirs), torch.cuda.use_mem_pool(ours):
            over.set()
            thread.join()
            x = bytes_on_device(3 * MIB)
        self.assertTrue(any(s["address"] <= x.data_ptr() < s["address"] + s["total_size"] for s in ours.snapshot()))
        del x

    @since(8)
    def test_use_on_oom(self):
        pool = torch.cuda.MemPool(use_on_oom=True)
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(MIB)
        del x, pool

    def test_a_graph_in_a_pool_of_ones_own(self):
        pool = torch.cuda.MemPool()
        x = torch.ones(MIB, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool.id):
            y = x + 1
        graph.replay()
        del y, graph, pool
        gc.collect()

    @since(15)
    @shim_only
    def test_a_graph_keeps_the_pools_that_it_was_captured_in(self):
        outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
        x = torch.ones(MIB, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=outer):
            with torch.cuda.use_mem_pool(inner):
                y = x + 1
            z = y + 1
        self.assertEqual(set(graph.pools()), {outer.id, inner.id})
        self.assertEqual((outer.use_count(), inner.use_count()), (2, 2))
        address, size = y.data_ptr(), y.nbytes
        del inner, y
        gc.collect()
        torch.cuda.empty_cache()
        others = [bytes_on_device(size) for _ in range(20)]
        self.assertNotIn(address, [t.data_ptr() for t in others])
        graph.replay()
        graph.reset()
        self.assertEqual(outer.use_count(), 1)
        del z, others


class AtAnAddress(Case):
    """UntypedStorage._resize_with_addr_: what has been freed is had again where it was."""

    @staticmethod
    def at(address, size):
        x = torch.empty(0, dtype=torch.uint8, device="cuda")
        x.untyped_storage()._resize_with_addr_(size, address)
        return x

    @since(15)
    @shim_only
    def test_freed_memory_comes_back_at_its_address(self):
        for size in (700, 40000, 3 * MIB, 50 * MIB):
            t = bytes_on_device(size)
            address = t.data_ptr()
            before = stat("allocated_bytes.all.current")
            del t
            again = self.at(address, size)
            self.assertEqual(again.untyped_storage().data_ptr(), address)
            self.assertEqual(again.untyped_storage().nbytes(), size)
            self.assertEqual(stat("allocated_bytes.all.current"), before)
            other = bytes_on_device(size)
            self.assertNotEqual(other.data_ptr(), address)
            del again, other
        self.assertEqual(stat("allocated_bytes.all.current"), 0)

    @since(15)
    @shim_only
    def test_what_is_held_is_refused(self):
        held = bytes_on_device(3 * MIB)
        for address in (held.data_ptr(), held.data_ptr() + MIB, 512 * MIB):
            with self.assertRaisesRegex(RuntimeError, "Could not allocate CUDA storage at exact address"):
                self.at(address, 3 * MIB)
        before = stat("allocated_bytes.all.current")
        self.assertEqual(before, 3 * MIB)

    @since(15)
    @shim_only
    def test_what_a_graph_writes_to_is_had_again(self):
        x = torch.ones(MIB, device="cuda")
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=pool):
            y = x * 3
        address, size = y.data_ptr(), y.untyped_storage().nbytes()
        del y
        second = torch.cuda.CUDAGraph()
        with torch.cuda.graph(second, pool=pool):
            again = self.at(address, size)
            again.zero_()
        self.assertEqual(again.untyped_storage().data_ptr(), address)
        graph.replay()
        second.replay()
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
