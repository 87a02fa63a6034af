# SPDX-License-Identifier: Apache-2.0
# modes: shim hooks
"""CUDA graphs: their memory keeps its addresses from the capture to the last release, and serves nothing else."""
import gc

import torch

from common import MIB, Case, bytes_on_device, main, shim_only, stat


def capture(work, **options):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        made = work()
    return graph, made


class Graphs(Case):
    def test_memory_of_a_graph_is_nobody_elses_until_its_reset(self):
        x = torch.ones(MIB, device="cuda")
        graph, out = capture(lambda: (x * 2 + 1) * 3)
        addresses = {out.data_ptr()}
        reserved = stat("reserved_bytes.all.current")
        del out
        torch.cuda.empty_cache()
        others = [torch.empty(MIB, device="cuda") for _ in range(30)]
        self.assertFalse(addresses & {t.data_ptr() for t in others})
        graph.replay()
        graph.reset()
        del others, graph
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertLess(stat("reserved_bytes.all.current"), reserved)

    def test_inside_a_capture_memory_is_used_again(self):
        x = torch.ones(MIB, device="cuda")

        def work():
            seen = set()
            for _ in range(20):
                y = x + 1
                seen.add(y.data_ptr())
                del y
            return seen

        graph, seen = capture(work)
        self.assertLess(len(seen), 5)
        graph.reset()

    def test_two_graphs_share_a_pool(self):
        x = torch.ones(MIB, device="cuda")
        first, a = capture(lambda: x + 1)
        second, b = capture(lambda: a + 1, pool=first.pool())
        self.assertEqual(first.pool(), second.pool())
        first.replay()
        second.replay()
        first.reset()
        second.replay()
        self.assertNotEqual(a.data_ptr(), b.data_ptr())
        second.reset()

    def test_a_capture_uses_what_an_earlier_one_of_its_pool_freed(self):
        """So they may be replayed only in the order of their captures, as natively."""
        for count in 1000, 3 * MIB:
            x = torch.ones(count, device="cuda")
            first, (a, b) = capture(lambda: (x + 1, x + 2))
            held, address = [a], a.data_ptr()
            second, c = capture(lambda: held.pop() + 3, pool=first.pool())
            self.assertNotEqual(c.data_ptr(), address)
            del a
            third, d = capture(lambda: b + 4, pool=first.pool())
            self.assertEqual(d.data_ptr(), address)
            temporaries, e = capture(lambda: ((b + 5) * (b + 6)).sum(), pool=first.pool())
            reserved = stat("reserved_bytes.all.current")
            again, f = capture(lambda: ((b + 5) * (b + 6)).sum(), pool=first.pool())
            self.assertEqual(stat("reserved_bytes.all.current"), reserved)
            del b, c, d, e, f
            for graph in first, second, third, temporaries, again:
                graph.reset()

    def test_side_streams_of_a_capture(self):
        x = torch.ones(MIB, device="cuda")
        side = torch.cuda.Stream()

        def work():
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = x * 2
            torch.cuda.current_stream().wait_stream(side)
            y.record_stream(torch.cuda.current_stream())
            return y + 1

        graph, out = capture(work)
        graph.replay()
        graph.reset()
        del out

    def test_memory_from_before_may_be_freed_inside(self):
        x = torch.ones(MIB, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = x + 1
            del x
        graph.replay()
        del y
        graph.reset()
        del graph
        self.assert_nothing_left()

    def test_a_capture_that_fails_leaves_the_heap_usable(self):
        x = torch.ones(MIB, device="cuda")
        with self.assertRaises(ValueError):
            capture(lambda: (x + 1, int("no number")))
        y = bytes_on_device(MIB)
        del x, y
        gc.collect()

    def test_a_capture_that_a_call_has_broken_keeps_no_memory(self):
        x = torch.ones(MIB, device="cuda")
        graph, out = capture(lambda: x + 1)  # before 2.12 random numbers take memory with the first capture
        del x, out
        graph.reset()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        reserved = torch.cuda.memory_reserved()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(torch.cuda.Stream()):
            graph.capture_begin()
            x = bytes_on_device(32 * MIB)
            self.assertRaises(RuntimeError, torch.cuda.synchronize)
            self.assertRaises(RuntimeError, graph.capture_end)
            del x
            graph.reset()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.memory_reserved(), reserved)

    def test_a_hundred_captures_leak_nothing(self):
        x = torch.ones(MIB, device="cuda")
        reserved = []
        for _ in range(100):
            graph, out = capture(lambda: x + 1)
            graph.replay()
            del out
            graph.reset()
            reserved.append(stat("reserved_bytes.all.current"))
        self.assertLessEqual(reserved[-1], reserved[5])

    def test_make_graphed_callables(self):
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
        graphed = torch.cuda.make_graphed_callables(model, (torch.randn(4, 64, device="cuda"),))
        graphed(torch.randn(4, 64, device="cuda")).sum().backward()

    def test_frees_by_another_thread_during_a_capture(self):
        import threading
        x, held = torch.ones(MIB, device="cuda"), [bytes_on_device(MIB) for _ in range(20)]

        def work():
            thread = threading.Thread(target=held.clear)
            thread.start()
            y = x + 1
            thread.join()
            return y

        graph, out = capture(work, capture_error_mode="thread_local")
        graph.replay()
        graph.reset()
        del out


@shim_only
class Trees(Case):
    """The calls of torch.compile's cudagraph trees."""

    def pool_of(self, work):
        graph, out = capture(work)
        return graph, out, graph.pool()

    def live(self, pool):
        found = set()
        for segment in torch.cuda.memory_snapshot():
            if segment["segment_pool_id"] == pool:
                for block in segment["blocks"]:
                    if block["state"] == "active_allocated":
                        found.add(block["address"])
        return found

    def test_live_allocations_are_known(self):
        x = torch.ones(MIB, device="cuda")
        graph, out, pool = self.pool_of(lambda: [x + i for i in range(4)])
        self.assertEqual(self.live(pool), {t.data_ptr() for t in out})
        check = torch._C._cuda_checkPoolLiveAllocations
        self.assertTrue(check(0, pool, {t.data_ptr() for t in out}))
        self.assertFalse(check(0, pool, {out[0].data_ptr()}))
        gone = out.pop()
        address = gone.data_ptr()
        del gone
        self.assertFalse(check(0, pool, {t.data_ptr() for t in out} | {address}))
        graph.reset()

    def restore(self, state, stale, live=()):
        torch._C._cuda_setCheckpointPoolState(
            0, state, [t.untyped_storage()._cdata for t in stale], [storage._cdata for storage in live])

    def storages_at(self, tensors):
        """As the trees make them: tensors of that memory, but owners of nothing."""
        return [torch._C._construct_storage_from_data_pointer(t.data_ptr(), t.device, t.untyped_storage().nbytes())
                for t in tensors]

    def test_a_checkpoint_brings_back_what_was_live(self):
        x = torch.ones(MIB, device="cuda")
        graph, out, pool = self.pool_of(lambda: [x + i for i in range(4)])
        state, was = torch._C._cuda_getCheckpointState(0, pool), {t.data_ptr() for t in out}
        self.restore(state, out)
        del out
        gc.collect()
        self.assertEqual(self.live(pool), was)  # the tensors are owners no more
        graph.reset()

    def test_storages_get_their_deleters_back(self):
        x = torch.ones(MIB, device="cuda")
        graph, out, pool = self.pool_of(lambda: [x + i for i in range(3)])
        state = torch._C._cuda_getCheckpointState(0, pool)
        storages = self.storages_at(out)
        self.restore(state, out, storages)
        del out
        self.assertEqual(len(self.live(pool)), 3)
        storages.pop()
        self.assertEqual(len(self.live(pool)), 2)
        del storages
        self.assertEqual(self.live(pool), set())
        graph.reset()

    def test_what_was_allocated_after_the_checkpoint_is_gone(self):
        x = torch.ones(MIB, device="cuda")
        graph, out, pool = self.pool_of(lambda: [x + 1])
        state, was = torch._C._cuda_getCheckpointState(0, pool), {out[0].data_ptr()}
        second, more = capture(lambda: [x + i for i in range(5)], pool=pool)
        self.assertEqual(len(self.live(pool)), 6)
        self.restore(state, out + more)
        self.assertEqual(self.live(pool), was)
        graph.reset()
        second.reset()

    def test_what_died_after_the_checkpoint_lives_again(self):
        x = torch.ones(MIB, device="cuda")
        graph, out, pool = self.pool_of(lambda: [x + i for i in range(3)])
        state, was = torch._C._cuda_getCheckpointState(0, pool), {t.data_ptr() for t in out}
        del out[1]
        self.assertEqual(len(self.live(pool)), 2)
        self.restore(state, out)
        self.assertEqual(self.live(pool), was)
        graph.reset()

    def test_compile_with_cudagraphs(self):
        model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16)).cuda()
        compiled = torch.compile(model, backend="cudagraphs")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            compiled(torch.randn(8, 256, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            for _ in range(5):
                out = compiled(torch.randn(8, 256, device="cuda"))
        self.assertEqual(out.shape, (8, 16))


if __name__ == "__main__":
    main()
