# SPDX-License-Identifier: Apache-2.0
# modes: shim hooks
"""Statistics: PyTorch's own functions, and terrazzo's."""
import gc
import random

import torch

import terrazzo.torch
from common import MIB, MODE, Case, alone, bytes_on_device, main, run_python, shim_only, stat


def rounded(size):
    return -(-size // 512) * 512


class Accounting(Case):
    def test_allocations_are_counted_exactly(self):
        sizes = [1, 511, 512, 513, 4096, MIB, MIB + 1, 5 * MIB, 33 * MIB]
        held = [bytes_on_device(size) for size in sizes]
        self.assertEqual(stat("allocated_bytes.all.current") - self.held, sum(map(rounded, sizes)))
        self.assertGreaterEqual(stat("reserved_bytes.all.current"), stat("allocated_bytes.all.current"))
        del held
        self.assert_nothing_left()

    def test_peaks_follow_and_can_be_reset(self):
        terrazzo.torch.reset_peak_stats()
        before = stat("allocated_bytes.all.current")
        x = bytes_on_device(40 * MIB)
        del x
        self.assertEqual(stat("allocated_bytes.all.peak"), before + 40 * MIB)
        terrazzo.torch.reset_peak_stats()
        self.assertEqual(stat("allocated_bytes.all.peak"), before)

    def test_a_thousand_blocks_freed_at_random_leave_nothing(self):
        order = random.Random(1)
        held = [bytes_on_device(512) for _ in range(1000)]
        self.assertEqual(len({t.data_ptr() for t in held}), 1000)
        order.shuffle(held)
        while held:
            held.pop()
        self.assert_nothing_left()

    def test_a_device_that_there_is_not_has_no_figures(self):
        count = torch.cuda.device_count()
        for call in (torch.cuda.memory_stats, torch.cuda.reset_peak_memory_stats,
                     torch.cuda.reset_accumulated_memory_stats):
            with self.assertRaisesRegex(RuntimeError, f"Invalid device argument {count}: "):
                call(count)

    def test_active_falls_when_the_other_stream_is_done(self):
        side = torch.cuda.Stream()
        torch.cuda.empty_cache()
        x = bytes_on_device(20 * MIB)
        x.record_stream(side)
        del x
        torch.cuda.memory_stats()  # a poll may have to record the event that it asks for
        torch.cuda.synchronize()
        now = torch.cuda.memory_stats()
        self.assertEqual(now["active_bytes.all.current"], now["allocated_bytes.all.current"])
        self.assertEqual(now["active.all.current"], now["allocation.all.current"])

    def test_size_zero_has_no_memory(self):
        x = bytes_on_device(0)
        self.assertEqual(x.data_ptr(), 0)
        self.assert_nothing_left()

    def test_empty_cache_and_trim_give_memory_back(self):
        x = bytes_on_device(512 * MIB)
        del x
        reserved = stat("reserved_bytes.all.current")
        torch.cuda.empty_cache()
        self.assertLess(stat("reserved_bytes.all.current"), reserved - 256 * MIB)
        y = bytes_on_device(512 * MIB)
        del y
        self.assertGreaterEqual(terrazzo.torch.trim(), 256 * MIB)

    @shim_only
    def test_empty_cache_waits_for_what_streams_still_use(self):
        side = torch.cuda.Stream()
        torch.cuda.empty_cache()
        before, waits = stat("reserved_bytes.all.current"), torch.cuda.memory_stats()["num_sync_all_streams"]
        x = bytes_on_device(256 * MIB)
        with torch.cuda.stream(side):
            torch.cuda._sleep(1 << 28)
            x.fill_(0)
        x.record_stream(side)
        del x
        torch.cuda.empty_cache()
        self.assertEqual(stat("reserved_bytes.all.current"), before)
        self.assertEqual(torch.cuda.memory_stats()["num_sync_all_streams"], waits + 1)

    @shim_only
    def test_empty_cache_breaks_no_capture(self):
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        x = bytes_on_device(64 * MIB)
        with torch.cuda.stream(side):
            torch.cuda._sleep(1 << 28)
        x.record_stream(side)
        del x
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            y = bytes_on_device(MIB).fill_(1)
            torch.cuda.empty_cache()
        graph.replay()
        torch.cuda.synchronize()
        self.assertEqual(y.numel(), MIB)
        del y, graph

    def test_summary_names_what_matters(self):
        x = bytes_on_device(3 * MIB)
        text = terrazzo.torch.summary()
        for word in ("held by tensors", "reserved", "largest free block", "out of memory"):
            self.assertIn(word, text)
        del x

    @alone
    def test_largest_block_can_be_had(self):
        """If the device refuses the last of what it calls free, the heap knows from then on."""
        size = terrazzo.torch.largest_block()
        self.assertGreater(size, 0)
        try:
            x = bytes_on_device(size)
        except torch.OutOfMemoryError as error:
            self.assertIn("of which cannot be had", str(error))
            least, size = size, terrazzo.torch.largest_block()
            self.assertLess(size, least)
            x = bytes_on_device(size)
        del x
        torch.cuda.empty_cache()

    def test_raw_allocations(self):
        before = stat("allocated_bytes.all.current")
        ptr = torch.cuda.caching_allocator_alloc(12345)
        other = torch.cuda.caching_allocator_alloc(MIB, stream=torch.cuda.Stream())
        self.assertEqual(stat("allocated_bytes.all.current"), before + rounded(12345) + MIB)
        torch.cuda.caching_allocator_delete(ptr)
        torch.cuda.caching_allocator_delete(other)
        self.assertEqual(stat("allocated_bytes.all.current"), before)

    def test_what_is_not_allocated_cannot_be_freed_by_hand(self):
        ptr = torch.cuda.caching_allocator_alloc(MIB)
        torch.cuda.caching_allocator_delete(ptr)
        for wrong in (ptr, ptr + 512, 12345):
            with self.assertRaisesRegex(RuntimeError, "not allocated here" if MODE == "hooks"
                                        else f"invalid device pointer: {wrong:#x}"):
                torch.cuda.caching_allocator_delete(wrong)
        torch.cuda.caching_allocator_delete(0)


@shim_only
class PyTorchsOwn(Case):
    def test_no_size_is_too_large_to_be_split(self):
        self.assertEqual(torch.cuda.memory_stats()["max_split_size"], -1)
        code = "import torch; torch.cuda.init(); print(torch.cuda.memory_stats()['max_split_size'])"
        status, out, err = run_python(code, mode=MODE)  # where nothing has been allocated yet
        self.assertEqual((status, out.strip()), (0, "-1"), err)

    def test_the_same_keys_as_natively(self):
        code = "import torch; x = torch.empty(9, device='cuda'); print(sorted(torch.cuda.memory_stats()))"
        status, out, err = run_python(code)
        self.assertEqual(status, 0, err)
        x = bytes_on_device(9)
        self.assertEqual([k for k in sorted(torch.cuda.memory_stats()) if not k.startswith("reserved_bytes_by_")],
                         eval(out))
        del x

    def test_what_the_functions_say(self):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        x = bytes_on_device(7 * MIB)
        self.assertEqual(torch.cuda.memory_allocated(), before + 7 * MIB)
        self.assertEqual(torch.cuda.max_memory_allocated(), before + 7 * MIB)
        self.assertGreaterEqual(torch.cuda.memory_reserved(), torch.cuda.memory_allocated())
        self.assertGreaterEqual(torch.cuda.max_memory_reserved(), torch.cuda.memory_reserved())
        if hasattr(torch.accelerator, "memory"):  # from 2.9 on
            self.assertEqual(torch.accelerator.memory.memory_allocated(), before + 7 * MIB)
        del x
        self.assertEqual(torch.cuda.memory_allocated(), before)
        self.assertIn("Allocated memory", torch.cuda.memory_summary())
        self.assertEqual(torch.cuda.get_allocator_backend(), "terrazzo")

    def test_reset_accumulated(self):
        x = bytes_on_device(MIB)
        torch.cuda.reset_accumulated_memory_stats()
        now = torch.cuda.memory_stats()
        self.assertEqual(now["allocation.all.allocated"], 0)
        self.assertEqual(now["num_ooms"], 0)
        del x
        self.assertEqual(torch.cuda.memory_stats()["allocation.all.freed"], 1)
        self.assertEqual(torch.cuda.memory_stats()["allocated_bytes.all.freed"], MIB)

    def test_active_covers_what_waits_for_another_stream(self):
        side = torch.cuda.Stream()
        x = bytes_on_device(20 * MIB)
        x.record_stream(side)
        del x
        now = torch.cuda.memory_stats()
        self.assertGreaterEqual(now["active_bytes.all.current"], now["allocated_bytes.all.current"])
        torch.cuda.synchronize()

    def test_statistics_are_read_in_a_capture(self):
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        x = bytes_on_device(20 * MIB)
        x.record_stream(side)
        with torch.cuda.graph(graph):
            del x
            self.assertGreaterEqual(torch.cuda.memory_stats()["active.all.current"], 0)
            y = bytes_on_device(MIB).fill_(1)
        graph.replay()
        del y, graph
        torch.cuda.synchronize()

    def test_active_tells_small_from_large(self):
        side, sizes = torch.cuda.Stream(), {"small_pool": 4096, "large_pool": 20 * MIB}
        torch.cuda.empty_cache()  # asks how far the streams are
        before = torch.cuda.memory_stats()
        held = {pool: bytes_on_device(size) for pool, size in sizes.items()}
        with torch.cuda.stream(side):
            torch.cuda._sleep(1 << 28)
        for tensor in held.values():
            tensor.record_stream(side)
        del tensor, held
        now = terrazzo.torch.stats()  # asks no stream
        for pool, size in sizes.items():
            self.assertEqual(now[f"allocation.{pool}.current"], before[f"allocation.{pool}.current"])
            self.assertEqual(now[f"active.{pool}.current"] - before[f"active.{pool}.current"], 1, pool)
            self.assertEqual(now[f"active_bytes.{pool}.current"] - before[f"active_bytes.{pool}.current"], size)
        torch.cuda.synchronize()
        torch.cuda.memory_stats()
        now = torch.cuda.memory_stats()
        for pool in sizes:
            self.assertEqual(now[f"active.{pool}.freed"] - before[f"active.{pool}.freed"], 1, pool)

    def test_reserved_bytes_by_private_pools(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = bytes_on_device(30 * MIB)
        nested = torch.cuda.memory_stats_as_nested_dict().get("reserved_bytes_by_private_pools")
        if nested is None:
            self.skipTest("PyTorch before 2.13 has no such statistic")
        self.assertGreaterEqual(nested[pool.id]["all"]["current"], 30 * MIB)
        self.assertGreaterEqual(nested[pool.id]["all"]["allocated"], 30 * MIB)
        number = pool.id
        del x, pool
        gc.collect()
        torch.cuda.empty_cache()
        left = torch.cuda.memory_stats_as_nested_dict()["reserved_bytes_by_private_pools"][number]["all"]
        self.assertEqual(left["current"], 0)
        self.assertGreaterEqual(left["peak"], 30 * MIB)
        self.assertEqual(left["freed"], left["allocated"])

    @shim_only
    def test_a_device_that_there_is_not(self):
        device, memory = torch.cuda.device_count(), torch.cuda.memory
        functions = [torch.cuda.memory_stats, torch.cuda.memory_allocated, torch.cuda.reset_peak_memory_stats,
                     torch.cuda.reset_accumulated_memory_stats]
        if hasattr(memory, "get_per_process_memory_fraction"):
            functions.append(memory.get_per_process_memory_fraction)
        for function in functions:
            with self.subTest(function.__name__), self.assertRaisesRegex(RuntimeError, "nvalid device"):
                function(device)

    def test_cache_info_serves_cudnn_benchmark(self):
        torch.backends.cudnn.benchmark = True
        try:
            conv = torch.nn.Conv2d(3, 8, 3).cuda()
            conv(torch.empty(2, 3, 16, 16, device="cuda"))
        finally:
            torch.backends.cudnn.benchmark = False


if __name__ == "__main__":
    main()
