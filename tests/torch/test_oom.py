# SPDX-License-Identifier: Apache-2.0
# modes: shim hooks
"""Memory runs out: torch.OutOfMemoryError, once, with one line, and the program goes on."""
import json
import threading

import torch

import terrazzo.torch
from common import GIB, MIB, Case, alone, bytes_on_device, main, shim_only, since, stat, total_memory


@alone
class OutOfMemory(Case):
    def refused(self, size):
        with self.assertRaises(torch.OutOfMemoryError) as caught:
            bytes_on_device(size)
        return str(caught.exception)

    def test_the_error_has_one_line_and_the_program_goes_on(self):
        before = stat("num_ooms")
        text = self.refused(total_memory() * 2)
        self.assertTrue(text.startswith("CUDA out of memory. "), text)
        for words in ("requested on device 0", "reserved", "free"):
            self.assertIn(words, text)
        self.assertEqual(len(text.strip().splitlines()), 1, text)
        self.assertEqual(stat("num_ooms"), before + 1)
        x = torch.zeros(1000, device="cuda") + 1
        torch.cuda.synchronize()
        del x
        self.assert_nothing_left()

    def test_the_error_begins_with_pytorchs_own_sentences(self):
        held = bytes_on_device(300 * MIB)
        number = r"[0-9.]+ (bytes|KiB|MiB|GiB)"
        for size, asked in ((total_memory() * 2, f"{total_memory() / GIB * 2:.2f} GiB"), (3 << 58, "805306368.00 GiB")):
            self.assertRegex(self.refused(size), f"^CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total "
                             f"capacity of {total_memory() / GIB:.2f} GiB of which {number} is free. Of the allocated "
                             f"memory {number} is allocated by PyTorch, and {number} is reserved by PyTorch but "
                             "unallocated. terrazzo: ")
        torch.cuda.empty_cache()
        terrazzo.torch.set_limit(stat("reserved_bytes.all.current") + 64 * MIB)
        self.assertRegex(self.refused(300 * MIB), f"Tried to allocate 300.00 MiB. GPU 0 .* is free. {number} allowed; ")
        del held

    def test_the_report_names_the_lines_of_the_program(self):
        torch.cuda.empty_cache()
        held = torch.empty(int(torch.cuda.mem_get_info()[0] * 0.8), dtype=torch.uint8, device="cuda")
        self.refused(held.numel() // 2)
        found = json.loads(terrazzo.torch.report(failure=True, json=True))
        self.assertEqual((found["verdict"], found["requested_bytes"]), ("full", held.numel() // 2))
        top = found["holders"][0]
        self.assertIn("test_oom.py", top["site"])
        self.assertEqual(top["bytes"], held.numel())
        self.assertIn("common.py", found["site"])
        text = terrazzo.torch.report()
        self.assertTrue(text.startswith("memory of device 0"), text)
        self.assertLess(len(text.splitlines()), 60)
        del held

    def test_code_at_the_address_of_code_that_has_died_has_its_own_name(self):
        """Compiled anew each time, the functions mostly come to lie at one address; two lines each, two names."""
        held, wanted = [], [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
        for line, name in wanted:
            space = {"torch": torch}
            text = "\n" * (line - 1) + f"def {name}(): return torch.empty(8 << 20, dtype=torch.uint8, device='cuda')\n"
            exec(compile(text, "made.py", "exec"), space)
            held.append(space[name]())
            space.clear()
        sites = [holder.get("site") for holder in json.loads(terrazzo.torch.report(json=True))["holders"]]
        for line, name in wanted:
            self.assertIn(f"made.py:{line} {name}", sites)
        del held

    def test_categories_are_counted_as_the_tracker_tells(self):
        net = torch.nn.Linear(1024, 1024, device="cuda")
        optimizer = torch.optim.AdamW(net.parameters())
        tracker = terrazzo.torch.track(net, optimizer)
        net(torch.randn(64, 1024, device="cuda")).sum().backward()
        optimizer.step()
        found = json.loads(terrazzo.torch.report(json=True))["categories"]
        tracker.close()
        self.assertGreaterEqual(found["weights"], 4 * MIB)
        self.assertGreaterEqual(found["optimizer state"], 8 * MIB)
        self.assertGreaterEqual(found["gradients"], 4 * MIB)

    def test_each_thread_has_the_category_of_its_own_forward(self):
        inside, left, held = threading.Barrier(2), threading.Event(), []

        class Net(torch.nn.Module):
            def forward(self, waits):
                inside.wait()
                if waits:
                    left.wait()

        def leave_first():
            net(False)
            held.append(bytes_on_device(50 * MIB))
            left.set()

        net = Net()
        tracker = terrazzo.torch.track(net)
        threads = [threading.Thread(target=leave_first), threading.Thread(target=net, args=(True,))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tracker.close()
        found = json.loads(terrazzo.torch.report(json=True))["categories"]
        self.assertLess(found.get("activations", 0), 50 * MIB)
        held.clear()

    def test_a_size_beyond_any_device(self):
        text = self.refused(1 << 60)
        self.assertTrue(text.startswith("CUDA out of memory. Tried to allocate more than 1EB memory. "), text)
        self.assert_nothing_left()

    def test_half_and_a_bit_twice(self):
        torch.cuda.empty_cache()
        size = int(torch.cuda.mem_get_info()[0] * 0.51)
        x = bytes_on_device(size)
        del x
        y = bytes_on_device(size)
        self.refused(size)
        del y
        z = bytes_on_device(size)
        del z
        torch.cuda.empty_cache()

    def test_scattered_memory_serves_a_large_request(self):
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        held = [bytes_on_device(64 * MIB) for _ in range(free // (64 * MIB) - 2)]
        held = [t for i, t in enumerate(held) if i // 4 % 2]
        x = bytes_on_device(free // 8)  # far more than any piece of free memory
        del x, held
        torch.cuda.empty_cache()

    def test_a_fraction_is_a_limit(self):
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(0.25)
        try:
            self.assertIn("limit", self.refused(total_memory() // 2))
            x = bytes_on_device(total_memory() // 8)
            del x
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        y = bytes_on_device(total_memory() // 2)
        del y
        torch.cuda.empty_cache()

    def test_set_limit(self):
        torch.cuda.empty_cache()
        terrazzo.torch.set_limit(stat("reserved_bytes.all.current") + 64 * MIB)
        self.refused(GIB)
        terrazzo.torch.set_limit(0)
        x = bytes_on_device(GIB)
        del x

    def test_numbers_that_are_none(self):
        for call in (terrazzo.torch.set_limit, terrazzo.torch.trim, lambda n: terrazzo.torch.history(events=n)):
            for number, error in ((-1, ValueError), (2**64, ValueError), (0.5, TypeError)):
                self.assertRaises(error, call, number)
        x = bytes_on_device(GIB)
        del x

    def test_what_is_no_device_and_no_callback(self):
        for device in ("cpu", torch.device("meta", 0)):
            for call in (terrazzo.torch.stats, terrazzo.torch.report, terrazzo.torch.largest_block):
                with self.assertRaisesRegex(ValueError, f"{device} is not a CUDA device"):
                    call(device)
        with self.assertRaisesRegex(TypeError, "3, which cannot be called"):
            terrazzo.torch.on_warning(3)

    @since(10)
    def test_a_fraction_that_is_set_by_an_option_at_run_time(self):
        torch.cuda.empty_cache()
        torch.cuda.memory._set_allocator_settings("per_process_memory_fraction:0.25")
        try:
            self.refused(total_memory() // 2)
            self.assertEqual(terrazzo.torch._native_library().trz_torch_get_fraction(0), 0.25)
        finally:
            torch.cuda.memory._set_allocator_settings("per_process_memory_fraction:1.0")
        x = bytes_on_device(total_memory() // 2)
        del x
        torch.cuda.empty_cache()

    def test_fractions_that_cannot_be(self):
        with self.assertRaises(ValueError):
            torch.cuda.set_per_process_memory_fraction(1.5)

    def test_no_tensor_has_a_null_pointer(self):
        made = []
        with self.assertRaises(torch.OutOfMemoryError):
            while True:
                made.append(bytes_on_device(total_memory() // 7))
        self.assertTrue(all(t.data_ptr() for t in made))
        del made
        torch.cuda.empty_cache()

    def test_a_loop_that_halves_its_batch(self):
        batch = total_memory() // MIB * 4
        while True:
            try:
                x = bytes_on_device(batch * MIB)
                break
            except torch.OutOfMemoryError:
                batch //= 2
        self.assertGreater(batch * MIB, total_memory() // 4)
        del x
        torch.cuda.empty_cache()

    def test_on_another_stream(self):
        with torch.cuda.stream(torch.cuda.Stream()):
            self.refused(total_memory() * 2)
            x = bytes_on_device(MIB)
        del x


@shim_only
@alone
class Shim(Case):
    def test_get_fraction(self):
        self.assertEqual(torch.cuda.get_per_process_memory_fraction(), 1.0)
        torch.cuda.set_per_process_memory_fraction(0.5)
        self.assertEqual(torch.cuda.get_per_process_memory_fraction(), 0.5)
        torch.cuda.set_per_process_memory_fraction(1.0)

    def test_refusals_by_the_limit_alone_are_counted_apart(self):
        """With the option throw_on_cudamalloc_oom."""
        before = torch.cuda.memory_stats()
        if "num_oom_rejections" not in before:
            self.skipTest("this PyTorch does not count them")
        torch.cuda.empty_cache()  # what is cached serves without a question to the device
        torch.cuda.memory._set_allocator_settings("throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.25")
        try:
            with self.assertRaises(torch.OutOfMemoryError):
                bytes_on_device(total_memory() // 2)
        finally:
            torch.cuda.memory._set_allocator_settings("throw_on_cudamalloc_oom:False,per_process_memory_fraction:1.0")
        after = torch.cuda.memory_stats()
        self.assertEqual(after["num_oom_rejections"], before["num_oom_rejections"] + 1)
        self.assertEqual(after["num_ooms"], before["num_ooms"])

    def test_observers_are_told_once(self):
        told = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *facts: told.append(facts))
        before = torch.cuda.memory_stats()["num_ooms"]
        sizes = total_memory() * 2, 3 << 58
        for size in sizes:
            with self.assertRaises(torch.OutOfMemoryError):
                bytes_on_device(size)
            free = torch.cuda.mem_get_info()[0]
            self.assertEqual(told, [(0, size, total_memory(), free)])
            told.clear()
        with self.assertRaises(torch.OutOfMemoryError):
            bytes_on_device(1 << 60)
        self.assertEqual(told, [])
        self.assertEqual(torch.cuda.memory_stats()["num_ooms"], before + len(sizes))

    def test_fractions_of_devices_that_there_are_not(self):
        count = torch.cuda.device_count()
        calls = (torch.cuda.get_per_process_memory_fraction,
                 lambda device: torch.cuda.set_per_process_memory_fraction(0.5, device))
        for call in calls:
            for device in (count, -2):
                with self.assertRaisesRegex(RuntimeError, f"Invalid device argument {device}: "):
                    call(device)

    def test_the_history_has_the_failure(self):
        sizes = [total_memory() * 2, 3 << 58]
        torch.cuda.memory._record_memory_history(stacks="python")
        for size in [*sizes, 1 << 60]:
            with self.assertRaises(torch.OutOfMemoryError) as caught:
                bytes_on_device(size)
            self.assertRegex(str(caught.exception), r"terrazzo: \d.* requested")
        traces = torch.cuda.memory._snapshot()["device_traces"][0]
        torch.cuda.memory._record_memory_history(enabled=None)
        ooms = [event for event in traces if event["action"] == "oom"]
        self.assertEqual([event["size"] for event in ooms], sizes)
        for event in ooms:
            self.assertEqual(event["device_free"], torch.cuda.mem_get_info()[0])
            self.assertTrue(any("bytes_on_device" in frame["name"] for frame in event["frames"]))


if __name__ == "__main__":
    main()
