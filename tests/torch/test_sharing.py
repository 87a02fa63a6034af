# SPDX-License-Identifier: Apache-2.0
# modes: shim
"""Tensors that processes pass to one another, by torch.multiprocessing. A simulated device is shared, and late."""
import os
import sys

if os.environ.get("TERRAZZO_CLI") and "TERRAZZO_SIM_MACHINE_FD" not in os.environ:
    program = os.environ["TERRAZZO_CLI"]
    os.execv(program, [program, "sim", "--work=late", "--seed=3", "--", sys.executable, *sys.argv])

import ctypes  # noqa: E402
import gc  # noqa: E402
import pickle  # noqa: E402
import queue  # noqa: E402
import subprocess  # noqa: E402
import unittest  # noqa: E402

import torch  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402
from torch.multiprocessing.reductions import reduce_tensor  # noqa: E402

import terrazzo.torch  # noqa: E402
from common import MIB, ROOT, Case, alone, bytes_on_device, main, run_python, stat  # noqa: E402

COUNT = 1000
NUMBERS = torch.arange(float(COUNT))
kept = {}  # of a peer


# ---- a peer's tasks: each gets the tensors sent, and its result is sent back ----


def read(*tensors):
    return [t.detach().cpu() for t in tensors]


def double(tensor):
    tensor.copy_(tensor.cpu() * 2)
    torch.cuda.synchronize()


def keep(**tensors):
    kept.update(tensors)
    return stat("imported_bytes.current"), stat("driver_calls.import_handle")


def read_kept(name):
    return kept[name].cpu()


def drop(*names):
    for name in names:
        del kept[name]
    gc.collect()
    return stat("imported_bytes.current")


def addresses():
    return {name: t.data_ptr() for name, t in kept.items()}


def use_on_another_stream(tensor):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        copy = tensor.to("cpu", non_blocking=True)
    tensor.record_stream(side)
    del tensor
    side.synchronize()
    return copy


def send_on(tensor):
    try:
        reduce_tensor(tensor)
    except RuntimeError as error:
        return str(error)


def make(start):
    return shared(NUMBERS + start)


def send_and_end(answers):
    """The whole life of another process: tensors that it sends outlive it."""
    with terrazzo.torch.shareable():
        tensor = NUMBERS.cuda()
    function, arguments = reduce_tensor(tensor)
    answers.put(pickle.dumps((function, arguments)))
    answers.close()
    answers.join_thread()
    os._exit(0)


def read_state(state):
    return {name: t.cpu() for name, t in state.items()}, stat("imported_bytes.current")


def load_state(state):
    """As a server of a model does with the newest weights: copies them into its own, and lets go."""
    model = kept.setdefault("model", make_model().cuda())
    model.load_state_dict(state)
    torch.cuda.synchronize()
    return {name: t.cpu() for name, t in model.state_dict().items()}


def serve(questions, answers):
    while True:
        name, arguments, named = questions.get()
        if name is None:
            return
        try:
            result = globals()[name](*arguments, **named)
        except Exception as error:
            result = error
        del arguments, named
        answers.put(result)
        del result


def next_of(answers, process):
    """The next answer of a process, however long it takes; an error where that has ended without one."""
    while True:
        alive = process.is_alive()  # what was put before its end can be had
        try:
            return answers.get(timeout=1)
        except queue.Empty:
            if not alive:
                raise RuntimeError(f"the other process has ended, status {process.exitcode}") from None


def make_model():
    model = torch.nn.Sequential(torch.nn.Linear(300, 700), torch.nn.LayerNorm(700), torch.nn.Linear(700, 5000))
    return model.requires_grad_(False)


class Peer:
    """Another process, which runs the tasks."""

    def __init__(self):
        context = multiprocessing.get_context("spawn")
        self.questions, self.answers = context.Queue(), context.Queue()
        self.process = context.Process(target=serve, args=(self.questions, self.answers), daemon=True)
        self.process.start()

    def ask(self, function, *arguments, **named):
        self.questions.put((function.__name__, arguments, named))
        result = next_of(self.answers, self.process)
        if isinstance(result, Exception):
            raise result
        return result

    def end(self):
        self.questions.put((None, None, None))
        self.process.join()


def shared(values):
    with terrazzo.torch.shareable():
        return values.cuda()


class WithPeers(Case):
    @classmethod
    def setUpClass(cls):
        cls.peers = [Peer(), Peer()]

    @classmethod
    def tearDownClass(cls):
        for peer in cls.peers:
            peer.end()

    def tearDown(self):
        torch.cuda.ipc_collect()
        super().tearDown()
        self.assertEqual(stat("exported_bytes.current"), 0)
        self.assert_nothing_left()
        for peer in self.peers:
            self.assertEqual(peer.ask(drop), 0)


class Ordinary(WithPeers):
    """Tensors as programs make them: in tiles with others, which are sent along."""

    def test_both_see_the_same_memory(self):
        tensor = NUMBERS.cuda()
        self.assertTrue(torch.equal(self.peers[0].ask(read, tensor)[0], NUMBERS))
        self.peers[0].ask(double, tensor)
        self.assertTrue(torch.equal(tensor.cpu(), NUMBERS * 2))
        self.peers[1].ask(double, tensor)
        self.assertTrue(torch.equal(tensor.cpu(), NUMBERS * 4))

    def test_views_have_their_place(self):
        tensor = torch.arange(5 * MIB, dtype=torch.int32).cuda()
        part = tensor[3 * MIB:3 * MIB + 5000]
        for sent in (part, tensor[5:15], tensor.view(5, -1)[4]):  # short reads of a peer give 0
            self.assertTrue(torch.equal(self.peers[0].ask(read, sent)[0], sent.cpu()))
        self.peers[0].ask(double, part)
        self.assertEqual(tensor.cpu()[3 * MIB + 1].item(), 2 * (3 * MIB + 1))

    def test_across_tiles(self):
        """A tensor lies in several tiles, of which the first and the last hold others, too."""
        beside = [torch.full((700_000,), float(i)).cuda() for i in range(3)]
        values = torch.arange(40 * MIB, dtype=torch.int32)
        tensor = values.cuda()
        beside.append(torch.full((700_000,), 3.0).cuda())
        got = self.peers[0].ask(read, tensor, *beside)
        self.assertTrue(torch.equal(got[0], values))
        for i, other in enumerate(got[1:]):
            self.assertTrue(torch.equal(other, torch.full((700_000,), float(i))))

    def test_many_small_ones_take_one_mapping(self):
        tensors = [(NUMBERS + i).cuda() for i in range(40)]
        calls = self.peers[0].ask(keep)[1]
        imported, after = self.peers[0].ask(keep, **{f"t{i}": t for i, t in enumerate(tensors)})
        self.assertLessEqual(after - calls, 4)
        self.assertEqual(imported, stat("exported_bytes.current"))
        for i in (0, 17, 39):
            self.assertTrue(torch.equal(self.peers[0].ask(read_kept, f"t{i}"), NUMBERS + i))
        self.peers[0].ask(drop, *[f"t{i}" for i in range(39)])
        self.assertTrue(torch.equal(self.peers[0].ask(read_kept, "t39"), NUMBERS + 39))
        self.peers[0].ask(drop, "t39")

    def test_a_model_by_its_state(self):
        model = make_model().cuda()
        for values in (None, 0.5):
            if values is not None:
                for parameter in model.parameters():
                    parameter.copy_(torch.full(parameter.shape, values))
            expected = {name: t.cpu() for name, t in model.state_dict().items()}
            got, imported = self.peers[0].ask(read_state, model.state_dict())
            self.assertEqual(list(got), list(expected))
            self.assertTrue(all(torch.equal(got[name], expected[name]) for name in expected))
            self.assertGreater(imported, 0)

    def test_weights_sent_again_and_again_pin_no_more(self):
        """As a trainer hands them to servers after each step: what has been pinned is not kept when it is free."""
        model = make_model().cuda()
        peaks = []
        for step in range(8):
            state = {name: t + 0 for name, t in model.state_dict().items()}  # new copies each time
            for name in state:
                state[name].copy_(torch.full(state[name].shape, float(step)))
            got = self.peers[step % 2].ask(load_state, state)
            self.assertTrue(all((t == step).all() for t in got.values()))
            del state
            torch.cuda.ipc_collect()
            peaks.append((stat("exported_bytes.peak"), stat("reserved_bytes.all.current")))
        self.assertEqual(peaks[3], peaks[-1])
        for peer in self.peers:
            peer.ask(drop, "model")

    def test_the_sender_frees_first(self):
        tensor = NUMBERS.cuda()
        address = tensor.data_ptr()
        for peer in self.peers:
            peer.ask(keep, a=tensor)
        del tensor
        torch.cuda.ipc_collect()
        self.peers[0].ask(drop, "a")
        torch.cuda.ipc_collect()
        others = [torch.zeros(COUNT, device="cuda") for _ in range(20)]
        self.assertNotIn(address, [t.data_ptr() for t in others])
        self.assertTrue(torch.equal(self.peers[1].ask(read_kept, "a"), NUMBERS))
        self.peers[1].ask(drop, "a")
        torch.cuda.ipc_collect()
        del others
        self.assertEqual(stat("exported_bytes.current"), 0)

    def test_memory_of_a_graph(self):
        """Memory that a graph writes to is sent like any other."""
        static = NUMBERS.cuda()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = torch.empty_like(static)
            made.copy_(static)
        graph.replay()
        torch.cuda.synchronize()
        self.peers[0].ask(keep, a=made)
        self.assertTrue(torch.equal(self.peers[0].ask(read_kept, "a"), NUMBERS))
        static.copy_(NUMBERS + 7)
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(self.peers[0].ask(read_kept, "a"), NUMBERS + 7))
        self.peers[0].ask(drop, "a")
        del made, graph
        torch.cuda.ipc_collect()
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


class Sharing(WithPeers):
    """Memory that holds no other tensor."""

    def test_both_see_the_same_memory(self):
        tensor = shared(NUMBERS)
        self.assertTrue(torch.equal(self.peers[0].ask(read, tensor)[0], NUMBERS))
        self.peers[0].ask(double, tensor)
        self.assertTrue(torch.equal(tensor.cpu(), NUMBERS * 2))
        self.peers[1].ask(double, tensor)
        self.assertTrue(torch.equal(tensor.cpu(), NUMBERS * 4))

    def test_large_ones_and_parameters(self):
        values = torch.arange(5 * MIB, dtype=torch.int32)
        tensor, parameter = shared(values), torch.nn.Parameter(shared(NUMBERS))
        got = self.peers[0].ask(read, tensor, parameter)
        self.assertTrue(torch.equal(got[0], values) and torch.equal(got[1], NUMBERS))

    def test_a_view_has_its_place(self):
        tensor = shared(NUMBERS)
        self.assertTrue(torch.equal(self.peers[0].ask(read, tensor[300:400])[0], NUMBERS[300:400]))

    def test_tensors_of_one_allocation_are_mapped_once(self):
        """PyTorch's allocator, given segments that are shareable, packs many tensors in each."""
        library = terrazzo.torch._native_library().path
        allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "trz_torch_segment_alloc", "trz_torch_free")
        pool = torch.cuda.MemPool(allocator.allocator())
        with terrazzo.torch.shareable(), torch.cuda.use_mem_pool(pool):
            tensors = [NUMBERS.cuda() + 0 for _ in range(3)]
        for i, tensor in enumerate(tensors):
            tensor.copy_(NUMBERS + i)
        calls = self.peers[0].ask(keep)[1]
        self.assertEqual(self.peers[0].ask(keep, a=tensors[0], b=tensors[1], c=tensors[2]), (2 * MIB, calls + 1))
        for i, name in enumerate("abc"):
            self.assertTrue(torch.equal(self.peers[0].ask(read_kept, name), NUMBERS + i))
        self.assertEqual(self.peers[0].ask(drop, "a", "b"), 2 * MIB)  # the third holds the mapping
        self.assertTrue(torch.equal(self.peers[0].ask(read_kept, "c"), NUMBERS + 2))
        self.assertEqual(self.peers[0].ask(drop, "c"), 0)
        del tensor, tensors
        torch.cuda.ipc_collect()
        del pool, allocator
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def test_from_a_pool_of_terrazzo(self):
        with terrazzo.torch.pool(tag="sent"), terrazzo.torch.shareable():
            tensor = NUMBERS.cuda()
        self.assertTrue(torch.equal(self.peers[0].ask(read, tensor)[0], NUMBERS))
        del tensor
        torch.cuda.ipc_collect()
        terrazzo.torch.release_pool("sent")

    def test_sent_twice_it_is_one(self):
        tensor = shared(NUMBERS)
        self.peers[0].ask(keep, a=tensor)
        self.peers[0].ask(keep, b=tensor[5:])
        there = self.peers[0].ask(addresses)
        self.assertEqual(there["b"] - there["a"], 5 * 4)
        self.assertEqual(self.peers[0].ask(drop, "a"), 2 * MIB)
        self.assertEqual(self.peers[0].ask(drop, "b"), 0)

    def test_the_sender_frees_first(self):
        tensor = shared(NUMBERS)
        address = tensor.data_ptr()
        for peer in self.peers:
            peer.ask(keep, a=tensor)
        del tensor
        torch.cuda.ipc_collect()
        self.peers[0].ask(drop, "a")
        torch.cuda.ipc_collect()
        others = [shared(torch.zeros(COUNT)) for _ in range(5)]
        self.assertNotIn(address, [t.data_ptr() for t in others])
        self.assertTrue(torch.equal(self.peers[1].ask(read_kept, "a"), NUMBERS))
        self.peers[1].ask(drop, "a")
        torch.cuda.ipc_collect()
        del others
        self.assertEqual(shared(NUMBERS).data_ptr() % (2 * MIB), 0)

    def test_the_receiver_frees_first_and_the_memory_is_used_again(self):
        calls = stat("num_device_alloc")
        for i in range(10):
            tensor = shared(NUMBERS + i)
            self.assertTrue(torch.equal(self.peers[i % 2].ask(read, tensor)[0], NUMBERS + i))
            del tensor
            torch.cuda.ipc_collect()
        self.assertLessEqual(stat("num_device_alloc"), calls + 3)  # its own and what the queue still holds

    @alone
    def test_what_both_have_freed_goes_back_to_the_device(self):
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        tensor = shared(torch.zeros(64 * MIB, dtype=torch.uint8))
        self.peers[0].ask(keep, a=tensor)
        del tensor
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
        self.assertLessEqual(torch.cuda.mem_get_info()[0], free - 64 * MIB)
        self.peers[0].ask(drop, "a")
        torch.cuda.ipc_collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertEqual(torch.cuda.mem_get_info()[0], free)

    def test_many_at_a_time_keep_no_descriptors(self):
        tensors = [shared(NUMBERS + i) for i in range(40)]
        before = len(os.listdir("/proc/self/fd"))
        for got, tensor in zip(self.peers[0].ask(read, *tensors), tensors):
            self.assertTrue(torch.equal(got, tensor.cpu()))
        self.assertLess(len(os.listdir("/proc/self/fd")), before + 20)

    def test_streams_of_the_receiver(self):
        self.assertTrue(torch.equal(self.peers[0].ask(use_on_another_stream, shared(NUMBERS)), NUMBERS))

    def test_what_a_peer_makes_is_received_here(self):
        first, second = self.peers[0].ask(make, 1), self.peers[1].ask(make, 2)
        self.assertTrue(torch.equal(first.cpu(), NUMBERS + 1) and torch.equal(second.cpu(), NUMBERS + 2))
        self.assertEqual(stat("imported_bytes.current"), 4 * MIB)
        del first, second
        self.assertEqual(stat("imported_bytes.current"), 0)

    def test_a_sender_that_has_ended(self):
        context = multiprocessing.get_context("spawn")
        answers = context.Queue()
        process = context.Process(target=send_and_end, args=(answers,))
        process.start()
        function, arguments = pickle.loads(next_of(answers, process))
        process.join()
        with self.assertRaisesRegex(RuntimeError, "it has ended"):
            function(*arguments)

    def test_a_received_tensor_is_not_sent_on(self):
        self.assertIn("received from another process", self.peers[0].ask(send_on, shared(NUMBERS)))


class Refusals(Case):
    def test_where_only_what_was_made_for_it_can_be_sent(self):
        """The error comes where the tensor is pickled, which is the sender's own thread but for a queue."""
        code = "import multiprocessing, torch\nfrom torch.multiprocessing.reductions import reduce_tensor\n" \
               "tensor = torch.ones(5, device='cuda')\n" \
               "try:\n    reduce_tensor(tensor)\nexcept RuntimeError as error:\n    print(error)\n" \
               "with terrazzo.torch.shareable():\n    print(len(reduce_tensor(tensor.clone())))"
        status, out, err = run_python(code, mode="shim", TERRAZZO_CONF="exportable:off")
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"exportable is off.*with terrazzo.torch.shareable\(\)")
        self.assertTrue(out.endswith("2\n"), out)

    def test_shareable_copies_stand_alone(self):
        with terrazzo.torch.shareable():
            copy = NUMBERS.cuda()
        self.assertEqual(copy.data_ptr() % (2 * MIB), 0)
    def test_shareable_nests_and_ends(self):
        with terrazzo.torch.shareable():
            with terrazzo.torch.shareable():
                pass
            inside = bytes_on_device(5000)
        outside = [bytes_on_device(5000) for _ in range(2)]
        self.assertEqual(inside.data_ptr() % (2 * MIB), 0)
        self.assertTrue(any(t.data_ptr() % (2 * MIB) for t in outside))

    def test_without_the_shim(self):
        status, _, err = run_python("with terrazzo.torch.shareable(): pass", mode="hooks")
        self.assertEqual(status, 1)
        self.assertIn("with terrazzo's shim only", err)

    def test_with_pytorchs_own_allocator(self):
        code = "import torch, terrazzo.torch\nwith terrazzo.torch.shareable(): x = torch.ones(5, device='cuda')\n" \
               "print(len(x.untyped_storage()._share_cuda_()))"
        status, out, err = run_python(code)
        self.assertEqual((status, out.strip()), (0, "8"), err)


class Handles(Case):
    """The functions behind it, in one process."""

    def setUp(self):
        super().setUp()
        self.dll = ctypes.CDLL(str(terrazzo.torch._native_library().path))
        self.dll.trz_torch_last_error.restype = ctypes.c_char_p

    def share(self, address):
        handle, offset = ctypes.create_string_buffer(48), ctypes.c_size_t()
        status = self.dll.trz_torch_share(ctypes.c_void_p(address), ctypes.byref(offset), handle)
        return status, handle.raw, offset.value

    def receive(self, handle):
        out = ctypes.c_void_p()
        status = self.dll.trz_torch_receive(handle, ctypes.c_size_t(len(handle)), 0, None, ctypes.byref(out))
        return status, out.value

    def test_handles(self):
        tensor, another = shared(NUMBERS), shared(NUMBERS)
        first, second = self.share(tensor.data_ptr()), self.share(tensor.data_ptr() + 40)
        self.assertEqual((first[0], first[2], second[2]), (0, 0, 40))
        self.assertEqual(first[1], second[1])
        self.assertNotEqual(first[1], self.share(another.data_ptr())[1])
        status, address = self.receive(first[1])
        self.assertEqual(status, 0)
        self.assertNotEqual(address, tensor.data_ptr())
        self.assertEqual(self.dll.trz_torch_try_free(ctypes.c_void_p(address), 0), 0)

    def test_freed_before_it_was_received(self):
        tensor = shared(NUMBERS)
        handle = self.share(tensor.data_ptr())[1]
        del tensor
        self.assertNotEqual(self.receive(handle)[0], 0)
        self.assertIn(b"has freed it", self.dll.trz_torch_last_error())
        self.assertEqual(stat("exported_bytes.current"), 0)

    def test_wrong_handles(self):
        tensor = shared(NUMBERS)
        handle = self.share(tensor.data_ptr())[1]
        for wrong in (b"", handle[:-1], b"x" + handle[1:]):
            self.assertNotEqual(self.receive(wrong)[0], 0)
            self.assertIn(b"not a handle", self.dll.trz_torch_last_error())
        nobody = handle[:8] + bytes(16) + handle[24:]
        self.assertNotEqual(self.receive(nobody)[0], 0)
        self.assertIn(b"cannot be reached", self.dll.trz_torch_last_error())
        guessed = handle[:24] + bytes(16) + handle[40:]
        self.assertNotEqual(self.receive(guessed)[0], 0)

    def test_memory_of_nobody(self):
        self.assertNotEqual(self.share(12345)[0], 0)

    def test_a_child_made_by_fork_answers_nobody(self):
        tensor = shared(NUMBERS)
        self.share(tensor.data_ptr())

        def sockets():
            links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                     if os.path.lexists(f"/proc/self/fd/{fd}")]
            return sum(link.startswith("socket:") for link in links)

        before = sockets()
        pid = os.fork()
        if pid == 0:
            os._exit(before - sockets())
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 1)


class Unchanged(unittest.TestCase):
    def test_a_program_that_knows_nothing_of_terrazzo(self):
        path = os.pathsep.join([str(ROOT / "python" / "terrazzo" / "torch" / "inject"),
                                os.environ.get("PYTHONPATH", "")])
        for conf in ("", "vmm:off"):
            done = subprocess.run([sys.executable, str(ROOT / "tests" / "torch" / "shared_tensors.py")], text=True,
                                  env={**os.environ, "PYTHONPATH": path, "TERRAZZO": "1", "TERRAZZO_CONF": conf},
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    main()
