# SPDX-License-Identifier: Apache-2.0
# modes: shim hooks
"""Streams, threads, record_stream."""
import threading

import torch

from common import MIB, Case, bytes_on_device, main


class Streams(Case):
    def test_a_stream_uses_its_own_memory_again_at_once(self):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            x = bytes_on_device(5 * MIB)
            address = x.data_ptr()
            del x
            y = bytes_on_device(5 * MIB)
            self.assertEqual(y.data_ptr(), address)
        del y

    def test_contents_survive_work_on_other_streams(self):
        streams = [torch.cuda.Stream() for _ in range(4)]
        expected = torch.arange(256, dtype=torch.uint8).repeat(4096)
        kept = []
        for i in range(40):
            with torch.cuda.stream(streams[i % 4]):
                x = expected.to("cuda", non_blocking=True)
                junk = bytes_on_device(x.numel())
                junk.record_stream(streams[(i + 1) % 4])
                del junk
                kept.append(x)
        torch.cuda.synchronize()
        for x in kept:
            self.assertTrue(torch.equal(x.cpu(), expected))

    def test_record_stream_tolerates_anything(self):
        side = torch.cuda.Stream()
        bytes_on_device(0).record_stream(side)
        x = bytes_on_device(MIB)
        x[100:200].record_stream(side)
        x.record_stream(torch.cuda.current_stream())
        del x
        torch.cuda.synchronize()

    def test_recorded_memory_comes_back_after_the_stream(self):
        side = torch.cuda.Stream()
        x = bytes_on_device(32 * MIB)
        x.record_stream(side)
        del x
        side.synchronize()
        held = [bytes_on_device(32 * MIB) for _ in range(3)]
        del held
        torch.cuda.synchronize()
        self.assert_nothing_left()

    def test_threads(self):
        failures = []

        def work(seed):
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    held = []
                    for i in range(400):
                        held.append(bytes_on_device(512 + (i * 7919 * seed) % (3 * MIB)))
                        if i % 3 == 0:
                            held.pop(i % len(held))
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.cuda.synchronize()
        self.assertEqual(failures, [])
        self.assert_nothing_left()

    def test_freed_by_another_thread(self):
        held = [bytes_on_device(i * 1000) for i in range(1, 500)]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        self.assert_nothing_left()

    def test_backward_frees_on_its_own_thread(self):
        x = torch.randn(256, 256, device="cuda", requires_grad=True)
        y = x
        for _ in range(10):
            y = torch.nn.functional.gelu(y @ x)
        y.sum().backward()
        del x, y
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
