# SPDX-License-Identifier: Apache-2.0
"""`terrazzo explain` on snapshots in PyTorch's format, made by hand so that the cause is known: one for each verdict,
the versions' ways of writing, snapshots taken after the failure, folders of ranks, and damage."""
import gzip
import json
import os
import pickle
import subprocess
import tempfile
import unittest
from pathlib import Path

CLI = os.environ["TERRAZZO_CLI"]
MIB, GIB = 1 << 20, 1 << 30
BASE = 0x7f0000000000

TRAIN = [{"filename": "/srv/u/train.py", "line": 9, "name": "main"}]
TORCH = "/opt/e/lib/python3.11/site-packages/torch"
FORWARD = [{"filename": f"{TORCH}/nn/functional.py", "line": 1, "name": "linear"},
           {"filename": "/srv/u/model.py", "line": 31, "name": "forward"},
           {"filename": f"{TORCH}/nn/modules/module.py", "line": 7, "name": "_call_impl"}, *TRAIN]
WEIGHT = [{"filename": f"{TORCH}/nn/modules/linear.py", "line": 9, "name": "__init__"}, *TRAIN]
ADAM = [{"filename": f"{TORCH}/optim/adamw.py", "line": 5, "name": "_init_group"},
        {"filename": "/srv/u/train.py", "line": 12, "name": "main"}]


class Snapshot:
    """Segments of one device, and its history."""

    def __init__(self, device=0):
        self.device, self.segments, self.trace, self.at, self.time = device, [], [], BASE, 0
        self.marks, self.expandable = [], False

    def segment(self, *blocks, stream=0, pool=(0, 0), size=None, **more):
        """Blocks are (MiB, state, frames): state "a" allocated, "p" pending, "f" free."""
        states = {"a": "active_allocated", "p": "active_pending_free", "f": "inactive"}
        made, at = [], self.at
        for mib, state, *frames in blocks:
            bytes_ = int(mib * MIB)
            made.append({"address": at, "size": bytes_, "requested_size": bytes_ if state != "f" else 0,
                         "state": states[state], "frames": frames[0] if frames else []})
            at += bytes_
        total = at - self.at if size is None else int(size * MIB)
        self.segments.append({
            "device": self.device, "address": self.at, "total_size": total, "stream": stream, "segment_type":
            "small" if total <= 2 * MIB else "large", "segment_pool_id": pool, "is_expandable": False, "frames": [],
            "allocated_size": 0, "active_size": 0, "requested_size": 0, "blocks": made, **more})
        self.at += total
        return self.segments[-1]

    def event(self, action, mib, addr=0, stream=0, frames=(), pool=(0, 0)):
        self.time += 1000
        self.trace.append({"action": action, "addr": addr, "size": int(mib * MIB), "stream": stream, "frames":
                           list(frames), "time_us": self.time, "pool_id": pool, "compile_context": "N/A"})

    def passes(self, mib, addr, frames=()):
        """Memory that is allocated and freed at once."""
        for action in ("alloc", "free_requested", "free_completed"):
            self.event(action, mib, addr=addr, frames=frames)

    def step_ends(self):
        """As an optimizer's annotation tells it."""
        self.marks.append({"stage": "END", "name": "Optimizer.step#AdamW.step", "device": 0, "time_us": self.time})

    def oom(self, mib, free, stream=0, frames=FORWARD, pool=(0, 0)):
        self.event("oom", mib, stream=stream, frames=frames, pool=pool)
        del self.trace[-1]["addr"]
        self.trace[-1]["device_free"] = int(free * MIB)

    def contents(self):
        return {"segments": self.segments, "device_traces": [[]] * self.device + [self.trace],
                "allocator_settings": {"expandable_segments": self.expandable}, "external_annotations": self.marks}


def run(path, *arguments, **options):
    return subprocess.run([CLI, "explain", str(path), *arguments], capture_output=True, timeout=60, **options)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def save(self, contents, name="s.pickle", protocol=2):
        path = self.folder / name
        path.write_bytes(pickle.dumps(contents, protocol))
        return path

    def explain(self, snapshot, *arguments, protocol=2):
        contents = snapshot.contents() if isinstance(snapshot, Snapshot) else snapshot
        done = run(self.save(contents, protocol=protocol), "--json", "-", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def expect(self, snapshot, verdict, short=None, *arguments):
        got = self.explain(snapshot, *arguments)
        self.assertEqual(got["verdict"], verdict, got)
        if short is not None:
            self.assertEqual(got["short_bytes"], int(short * MIB))
        return got


class Verdicts(Case):
    def test_full(self):
        s = Snapshot()
        s.segment((5000, "a", FORWARD), (100, "a", TRAIN))
        s.segment((900, "a", TRAIN), (4, "f"))
        s.oom(300, 92)
        got = self.expect(s, "full", 300 - 92 - 4)
        self.assertEqual(got["holders"][0]["site"], "u/model.py:31 forward")
        self.assertEqual(got["holders"][0]["category"], "activations")
        self.assertEqual(got["holders"][0]["bytes"], 5000 * MIB)
        self.assertEqual(got["site"], "u/model.py:31 forward")
        self.assertEqual(got["remedies"][0]["name"], "smaller_batch")

    def test_an_allocation_without_a_stack(self):
        """Autograd's threads have none where Python's lines alone are recorded: it has not that of what lay there
        before. Where only live blocks have stacks, it has its own."""
        for before, block, category in ((FORWARD, [], "unknown"), ([], FORWARD, "activations")):
            s = Snapshot()
            s.passes(3000, s.at, before)
            s.event("alloc", 3000, addr=s.at)
            s.segment((3000, "a", block))
            s.oom(300, 100)
            self.assertEqual(self.expect(s, "full", 200)["holders"][0]["category"], category)

    def test_first_step_of_the_optimizer(self):
        s = Snapshot()
        s.segment((2000, "a", TRAIN))
        s.segment((1500, "a", ADAM))
        s.oom(256, 10, frames=ADAM)
        got = self.expect(s, "full", 246)
        self.assertEqual(got["category"], "optimizer state")
        self.assertEqual(got["remedies"][0]["name"], "offload_optimizer")
        self.assertNotIn("smaller_batch", [one["name"] for one in got["remedies"]])

    def test_weights_that_leave_some_per_cent_in_pieces(self):
        """The next of them would not fit either."""
        for free, verdict in ((2, "full"), (8, "fragmented")):
            s = Snapshot()
            s.segment(*[(20, "a", WEIGHT)] * 180, *[(free, "f"), (18, "a", WEIGHT)] * 125)
            s.oom(16, 2, frames=WEIGHT)
            self.expect(s, verdict)

    def test_a_checkpoint_that_is_kept(self):
        """Read to the device, and copied into the model: a note says so."""
        load = [{"filename": f"{TORCH}/serialization.py", "line": 1, "name": "restore_location"}, *TRAIN]
        for mib, told in ((2000, True), (20, False)):
            s = Snapshot()
            s.segment((3000, "a", FORWARD), (mib, "a", load))
            s.oom(256, 10)
            self.assertEqual([one["bytes"] for one in self.expect(s, "full", 246)["holders"] if one.get("loaded")],
                             [mib * MIB])
            text = run(self.save(s.contents()), text=True).stdout
            self.assertEqual("1.95 GiB are as u/train.py:9 main has read" in text, told)

    def test_a_checkpoint_beside_its_model(self):
        """What it holds beyond the model, its optimizer may use."""
        load = [{"filename": f"{TORCH}/serialization.py", "line": 1, "name": "restore_location"}, *TRAIN]
        for weights, spare in ((300, 900), (100, 0)):
            s = Snapshot()
            s.segment(*[(weights, "a", WEIGHT)] * 3, *[(300, "a", load)] * 9)
            s.oom(256, 10)
            got = self.expect(s, "full", 246)
            self.assertEqual(got["figures"]["loaded_twice"], spare * MIB)
            self.assertEqual(got["remedies"][0]["name"], "load_to_host" if spare else "smaller_batch")

    def test_fragmented(self):
        """The popular picture: [10][5 free][20][15 free][30], in units of 100 MiB."""
        for ask, verdict, short in ((2500, "full", 500), (2000, "fragmented", 500), (1600, "fragmented", 100)):
            s = Snapshot()
            s.segment((1000, "a"), (500, "f"), (2000, "a"), (1500, "f"), (3000, "a"))
            s.oom(ask, 0)
            self.expect(s, verdict, short)

    def test_a_list_of_no_known_line(self):
        s = Snapshot()
        s.segment(*[(30, "a")] * 99, (30, "a", TRAIN))
        s.oom(64, 10)
        self.expect(s, "full", 54)
        self.assertIn("remedy: keep fewer at once of the 99 blocks of 30.00 MiB (results, states, data; no call stack)",
                      run(self.save(s.contents()), text=True).stdout)

    def test_the_other_half_of_fragmentation(self):
        """Where more is in use than is free, less of it would do, too. A smaller batch leaves smaller pieces."""
        for used, choice in ((5000, True), (1000, False)):
            s = Snapshot()
            s.segment((used, "a", FORWARD), (1500, "f"), (10, "a", FORWARD))
            s.segment((10, "a", FORWARD), (1500, "f"), (10, "a", FORWARD))
            s.oom(1600, 10, frames=FORWARD)
            self.expect(s, "fragmented", 100)
            lines = run(self.save(s.contents()), text=True).stdout.splitlines()
            self.assertIn(f"not in one piece, beside {'4.91 GiB' if choice else '1.01 GiB'} in use: ", lines[1])
            self.assertEqual("; or a batch or sequence smaller by 17 %: " in lines[2], choice)

    def test_pieces_in_a_backward_pass(self):
        """Gradients beyond those of all weights are activations', which leave some per cent in pieces."""
        passing = [{"filename": "??", "line": 0, "name": "torch::autograd::generated::BmmBackward0::apply"}]
        for weights, verdict in ((300, "full"), (3000, "fragmented")):
            s = Snapshot()
            s.segment((weights, "a", WEIGHT), (4300 - weights, "a", ADAM))
            s.segment((2000, "a", FORWARD), (3500, "a", passing), (300, "f"), (10, "a", FORWARD))
            s.segment((10, "a", TRAIN), (200, "f"))
            s.oom(600, 550, frames=FORWARD)
            self.expect(s, verdict, 50)

    def test_pieces_beside_state_in_the_making(self):
        """An optimizer's state, as large as all weights, is asked for piece by piece: joining serves only some."""
        for frames, verdict in ((ADAM, "full"), (TRAIN, "fragmented")):
            s = Snapshot()
            s.segment((500, "a", WEIGHT), (1400, "a", ADAM), (70, "f"), (10, "a", TRAIN))
            s.segment((10, "a", TRAIN), (70, "f"), (2, "a", TRAIN))
            s.oom(100, 0, frames=frames)
            self.expect(s, verdict, 30)

    def test_pieces_beside_gradients_in_the_making(self):
        """One for each weight. Where Python's lines alone are recorded, autograd's threads ask without a stack."""
        for frames, verdict in ((BACKWARD, "full"), ([], "full"), (TRAIN, "fragmented")):
            s = Snapshot()
            s.segment((1500, "a", WEIGHT), (400, "a", BACKWARD), (70, "f"), (10, "a", TRAIN))
            s.segment((10, "a", TRAIN), (70, "f"), (2, "a", TRAIN))
            s.passes(10, BASE + 100 * GIB, TRAIN)
            s.oom(100, 0, frames=frames)
            self.expect(s, verdict, 30)

    def test_pieces_beside_a_list(self):
        """A queue that is filled leaves some per cent in pieces; of few blocks that stay these are the reason."""
        for count, mib, part, verdict in ((60, 95, 19, "full"), (6, 950, 19, "fragmented"), (60, 95, 9, "fragmented")):
            s = Snapshot()
            for _ in range(count):
                s.segment((mib, "a", TRAIN), (mib / part, "f"))
            s.segment((1000, "a", FORWARD[1:2]))
            s.oom(200, 0)
            self.assertEqual(self.expect(s, verdict)["remedies"][0]["name"],
                             "keep_fewer" if verdict == "full" else "join_pieces")

    def test_a_list_beside_many_weights(self):
        """A few dozen blocks that hold most are the reason, however many the weights are, not the little state."""
        s = Snapshot()
        s.segment(*[(0.5, "a", WEIGHT)] * 28, *[(0.5, "a", ADAM)] * 56, *[(14, "a", TRAIN)] * 81)
        s.oom(14, 8, frames=TRAIN)
        self.assertEqual(self.expect(s, "full", 6)["remedies"][0]["name"], "keep_fewer")

    def test_other_stream(self):
        s = Snapshot()
        s.segment((100, "a"), (2900, "f"), stream=7)
        s.segment((3000, "a"))
        s.oom(2048, 100)
        got = self.expect(s, "other_stream", 1948)
        self.assertEqual(got["figures"]["free_streams"], 2900 * MIB)

    def test_scraps_of_other_streams(self):
        """Beside a list, some per cent in pieces that the request could not have had are not why memory ran out."""
        queued = [{"filename": "/srv/u/queue.py", "line": 8, "name": "fill"}, *TRAIN]
        for scrap, verdict, remedy in ((1, "full", "keep_fewer"), (3, "other_stream", "other_streams")):
            s = Snapshot()
            for _ in range(100):
                s.segment((36, "a", queued), (scrap, "f"), stream=7)
            s.oom(48, 28)
            got = self.expect(s, verdict, 20)
            self.assertEqual(got["remedies"][0]["name"], remedy)
            self.assertIn("keep_fewer", [one["name"] for one in got["remedies"][:2]])

    def test_pending_memory_of_other_streams(self):
        for state in ("active_pending_free", "active_awaiting_free"):
            s = Snapshot()
            s.segment((100, "a"), (2900, "p"))
            s.segments[0]["blocks"][1]["state"] = state
            s.oom(2048, 100)
            self.assertEqual(self.expect(s, "other_stream")["figures"]["pending"], 2900 * MIB)

    def test_pool(self):
        s = Snapshot()
        s.segment((3000, "f"), pool=(0, 1))
        s.segment((3000, "a"))
        s.oom(2048, 100)
        self.expect(s, "pool", 1948)
        t = Snapshot()                             # too little, even as a sum
        for _ in range(30):
            t.segment((50, "f"), (50, "a"), pool=(0, 1))
        t.oom(2048, 100)
        self.expect(t, "full", 1948)

    def test_memory_of_many_streams(self):
        s = Snapshot()
        for stream in range(1, 7):
            s.segment((50, "a"), (1150, "f"), stream=stream)
        s.oom(3072, 992)
        self.expect(s, "other_stream", 2080)

    def test_a_request_within_a_pool(self):
        s = Snapshot()
        s.segment((100, "a"), (900, "f"), (100, "a"), (1400, "f"), (10, "a"), pool=(0, 3))
        s.segment((4000, "a"))
        s.oom(2048, 0, pool=(0, 3))
        self.expect(s, "fragmented", 648)

    def test_rounding(self):
        s = Snapshot()
        s.segment((4000, "a"))
        s.oom(4, 12)                               # 4 MiB take a segment of 20: the device is full but for that
        self.assertIn("rounding", self.expect(s, "full", 8)["also"])
        t = Snapshot()
        for _ in range(200):
            t.segment((32, "a"))["blocks"][0]["requested_size"] = 17 * MIB  # rounded up to powers of two
        t.oom(64, 10)
        self.expect(t, "rounding", 54)

    def test_limit(self):
        s = Snapshot()
        s.segment((2000, "a"))
        s.oom(1024, 60000)
        got = self.expect(s, "limit")
        self.assertLessEqual(got["short_bytes"], GIB)

    def test_too_large(self):
        s = Snapshot()
        s.segment((1000, "a"))
        s.oom(100000, 79000)
        self.expect(s, "too_large", 21000)

    def test_a_layer_that_is_too_large(self):
        """No batch makes it smaller."""
        s = Snapshot()
        s.segment((1000, "a"))
        s.oom(100000, 79000, frames=WEIGHT)
        self.assertEqual(self.expect(s, "too_large", 21000)["category"], "weights")
        self.assertIn("remedy: ask for less at once: a smaller layer, or a split", run(
            self.save(s.contents()), text=True).stdout)

    def test_other_process_by_the_size_of_the_device(self):
        s = Snapshot()
        s.segment((2000, "a"))
        s.oom(1024, 100)
        self.expect(s, "full", 924)                # the file cannot tell
        self.expect(s, "other_process", 924, "--device-memory", "8GiB")
        t = Snapshot()                             # more than this process could have, less than the device has
        t.segment((2000, "a"))
        t.oom(4096, 100)
        self.expect(t, "too_large", 3996)
        self.expect(t, "other_process", 3996, "--device-memory", "8GiB")

    def test_a_full_device_of_unknown_size(self):
        """Others may have most of it, which a reader sees by what this allocator has."""
        s = Snapshot()
        s.segment((3000, "a", FORWARD))
        s.oom(300, 72)
        path = self.save(s.contents())
        for more, told in (((), True), (("--device-memory", "3GiB"), False)):
            text = run(path, *more, text=True).stdout
            self.assertIn("verdict: full: all memory is in use", text)
            self.assertEqual("in use, 2.93 GiB by this allocator: 300.00 MiB" in text, told)
            self.assertEqual("note: of the device only 3.00 GiB are on record" in text, told)
        self.expect(s, "other_process", None, "--device-memory", "8GiB")

    def test_no_failure_is_unknown(self):
        s = Snapshot()
        s.segment((2000, "a", TRAIN), (48, "f"))
        got = self.expect(s, "unknown")
        self.assertFalse(got["failed"])
        self.assertNotIn("short_bytes", got)
        self.assertFalse(got["source"]["history"])
        third = run(self.save(s.contents()), text=True).stdout.splitlines()[2]
        self.assertIn("together with the error's text", third)    # what can be returned now says nothing of then

    def test_what_fills_a_device_of_known_size(self):
        def looks(kind, *segments, device="8GiB"):
            s = Snapshot()
            for blocks, more in segments:
                s.segment(*blocks, **more)
            got = self.expect(s, kind, None, "--device-memory", device)
            self.assertEqual(got.get("presumed", False), kind != "unknown")
            self.assertNotIn("short_bytes", got)

        half = ((2000, "a", TRAIN), (1900, "f"))
        looks("full", (((7500, "a", TRAIN), (400, "f")), {}))
        looks("unknown", (((7500, "a", TRAIN), (400, "f")), {}), device="80GiB")
        looks("fragmented", (half, {}), (half, {}))
        looks("other_stream", (((3900, "a"),), {}), (half, {"stream": 7}))
        looks("pool", (((3900, "a"),), {}), (half, {"pool": (0, 3)}))
        looks("unknown", (((3900, "a"),), {}), (((3900, "f"),), {}))    # the failed request's own, perhaps

    def test_no_failure_and_the_text_of_one(self):
        text = self.folder / "log"
        s = Snapshot()
        s.segment((7000, "a", TRAIN), (500, "a", FORWARD), (500, "f"))

        def told(allocated, free, reserved, *more):
            text.write_text(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 700.00 MiB. GPU 0 has a total capacity "
                f"of 8.00 GiB of which {free}.00 MiB is free. Including non-PyTorch memory, this process has "
                f"{8192 - free}.00 MiB memory in use. Of the allocated memory {allocated}.00 MiB is allocated by "
                f"PyTorch, and {reserved}.00 MiB is reserved by PyTorch but unallocated.\n")
            return self.explain(s, str(text), *more)

        got = told(7500, 192, 500)                 # nothing has been freed since
        self.assertEqual((got["verdict"], got["short_bytes"]), ("full", 8 * MIB))
        self.assertEqual((got["figures"]["largest_free"], got["holders"][0]["bytes"]), (500 * MIB, 7000 * MIB))
        self.assertNotIn("ranks", got)
        got = told(7900, 192, 100)                 # much has
        self.assertEqual((got["verdict"], got["short_bytes"]), ("full", 408 * MIB))
        self.assertEqual(got["figures"]["allocated"], 7900 * MIB)
        self.assertNotIn("largest_free", got["figures"])
        self.assertEqual(len(told(3000, 5000, 100)["ranks"]), 2)    # of another program

    def test_a_failure_and_a_text_that_tells_nothing(self):
        """As where cuDNN finds no engine, for want of the memory that the snapshot tells of."""
        text = self.folder / "log"
        text.write_text("RuntimeError: GET was unable to find an engine to execute this computation\n")
        s = Snapshot()
        s.segment((1000, "a", TRAIN))
        s.oom(512, 100)
        got = self.explain(s, str(text))
        self.assertEqual((got["verdict"], got["short_bytes"], "ranks" in got), ("full", 412 * MIB, False))

    def test_a_small_request_by_its_text(self):
        """It is told as 2 MiB, its segment; a piece of 9 MiB in a segment for larger ones would not have served it."""
        text = self.folder / "log"
        text.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total "
                        "capacity of 8.00 GiB of which 0 bytes is free. Including non-PyTorch memory, this process has "
                        "8.00 GiB memory in use. Of the allocated memory 7.00 GiB is allocated by PyTorch, and 1.00 "
                        "GiB is reserved by PyTorch but unallocated.\n")
        s = Snapshot()
        s.segment((5657, "a", TRAIN), (9, "f"))
        for _ in range(1263):
            s.segment((1.2, "a", FORWARD), (0.8, "f"))
        got = self.explain(s, str(text))
        self.assertEqual((got["verdict"], got["short_bytes"]), ("fragmented", 2 * MIB))


class History(Case):
    """The snapshot is taken after the exception has unwound: the history leads back."""

    def after(self):
        s = Snapshot()
        keep = s.segment((1000, "a", TRAIN))
        s.event("segment_alloc", 3000, addr=s.at)
        s.event("alloc", 3000, addr=s.at, frames=FORWARD)
        s.event("alloc", 1000, addr=keep["address"], frames=TRAIN)
        return s

    def test_what_was_freed_is_live_again(self):
        s = self.after()
        s.oom(512, 100)
        for action in ("free_requested", "free_completed", "segment_free"):
            s.event(action, 3000, addr=s.at)
        got = self.expect(s, "full", 412)
        self.assertEqual(got["holders"][0]["site"], "u/model.py:31 forward")
        self.assertEqual(got["holders"][0]["bytes"], 3000 * MIB)
        self.assertEqual(got["figures"]["reserved"], 4000 * MIB)
        self.assertEqual(got["figures"]["allocated"], 4000 * MIB)

    def test_what_came_later_is_not_there_yet(self):
        s = Snapshot()
        first = s.segment((1000, "a", TRAIN), (2000, "a", FORWARD))
        s.oom(4096, 2000)
        s.event("alloc", 2000, addr=first["address"] + 1000 * MIB, frames=FORWARD)
        got = self.expect(s, "full", 4096 - 2000 - 2000)
        self.assertEqual(got["figures"]["free_own"], 2000 * MIB)
        self.assertEqual(got["holders"][0]["site"], "u/train.py:9 main")

    def test_the_newest_failure_counts(self):
        s = self.after()
        s.oom(9000, 5)
        s.oom(512, 100)
        s.segment((3000, "a", FORWARD))
        self.expect(s, "full", 412)

    def attempts(self, again, kept, count=3):
        """Inputs and a model's activations, until a request fails; then again with half as much each time."""
        batch = [{"filename": "/srv/u/train.py", "line": 16, "name": "step"}, *TRAIN]
        s, mib = Snapshot(), 400
        s.event("alloc", 500, addr=s.at, frames=again)
        s.segment((500, "a", again))
        for _ in range(count):
            blocks = [(mib, again)] + [(mib, INNER)] * 3
            at = s.at
            for size, frames in blocks:
                s.event("alloc", size, addr=at, frames=frames)
                at += size * MIB
            s.oom(mib, 10, frames=batch)
            if kept:
                s.segment(*[(size, "a", frames) for size, frames in blocks])
            else:
                at = s.at
                for size, _ in blocks:
                    for action in ("free_requested", "free_completed"):
                        s.event(action, size, addr=at)
                    at += size * MIB
                s.segment((4 * mib, "f"))
            mib //= 2
        return s

    def test_attempts_that_an_exception_keeps(self):
        """The first line's other allocations, of before, are none of them. If what failed is let go of, or a library
        goes on at the same place, there is nothing to drop."""
        batch, other = ([{"filename": "/srv/u/train.py", "line": line, "name": "step"}, *TRAIN] for line in (16, 12))
        got = self.explain(self.attempts(other, True))
        self.assertEqual(got["figures"]["kept_failed"], (1600 + 800) * MIB)
        self.assertEqual((got["verdict"], got["remedies"][0]["name"]), ("full", "drop_attempt"))
        self.assertEqual(self.explain(self.attempts(other, False))["figures"]["kept_failed"], 0)
        self.assertEqual(self.explain(self.attempts(batch, True))["figures"]["kept_failed"], 0)
        self.assertEqual(self.explain(self.attempts(WEIGHT, True))["figures"]["kept_failed"], 0)
        for name, kept in (("main", 3 * 400), ("_bootstrap", 0)):    # elsewhere; another thread
            elsewhere = [{"filename": "/srv/u/train.py", "line": 30, "name": name}]
            s = self.attempts(TRAIN, True, 1)
            s.event("alloc", 100, addr=s.at, frames=elsewhere)
            s.segment((100, "a", elsewhere))
            s.oom(400, 10, frames=elsewhere)
            self.assertEqual(self.explain(s)["figures"]["kept_failed"], kept * MIB)
        text = run(self.save(self.attempts(other, True).contents()), text=True).stdout
        self.assertIn("try again after the except block", text.splitlines()[2])

    def test_a_pending_free_is_pending_again(self):
        s = Snapshot()
        s.segment((100, "a"), (3000, "f"))
        address = s.segments[0]["address"] + 100 * MIB
        s.event("alloc", 3000, addr=address)
        s.event("free_requested", 3000, addr=address)
        s.oom(2048, 100)
        s.event("free_completed", 3000, addr=address)
        self.assertEqual(self.expect(s, "other_stream")["figures"]["pending"], 3000 * MIB)

    def test_what_the_ladder_returned(self):
        s = Snapshot()
        s.segment((2000, "a"))
        s.event("segment_free", 600, addr=s.at)
        s.event("segment_free", 400, addr=s.at + 600 * MIB)
        s.oom(2048, 1100)
        got = self.expect(s, "full", 948)
        self.assertEqual(got["tried"][0]["bytes"], 1000 * MIB)
        self.assertEqual(got["figures"]["peak_reserved"], 3000 * MIB)

    def test_one_site_is_one_holder(self):
        """Whether the block is from the end of the file, or of its history."""
        s = Snapshot()
        s.segment((1000, "a", TRAIN))
        s.event("segment_alloc", 500, addr=s.at)
        s.event("alloc", 500, addr=s.at, frames=TRAIN)
        for entry in s.trace:
            entry["user_metadata"] = ""
        s.oom(512, 100)
        for action in ("free_requested", "free_completed", "segment_free"):
            s.event(action, 500, addr=s.at)
            s.trace[-1]["user_metadata"] = ""
        self.assertEqual([(one["bytes"], one["count"]) for one in self.explain(s)["holders"]], [(1500 * MIB, 2)])

    def test_history_that_begins_late(self):
        s = Snapshot()
        s.segment((1000, "a", TRAIN))
        s.oom(512, 100)
        s.event("free_requested", 700, addr=s.at + 5 * MIB)   # allocated before the history began, its segment gone
        s.event("free_completed", 700, addr=s.at + 5 * MIB)
        got = self.expect(s, "full", 412)
        self.assertEqual([one["bytes"] for one in got["holders"]], [1000 * MIB])

    def test_who_frees_is_not_who_held(self):
        """What was allocated before the history began was held by nobody knows whom."""
        s = Snapshot()
        s.event("segment_alloc", 10, addr=s.at)    # of something else
        s.event("segment_free", 10, addr=s.at)
        s.oom(512, 100)
        for action in ("free_requested", "free_completed", "segment_free"):
            s.event(action, 700, addr=s.at, frames=TRAIN)
        got = self.expect(s, "full", 412)
        self.assertEqual([one["bytes"] for one in got["holders"]], [700 * MIB])
        self.assertIn("no call stack", got["holders"][0]["site"])

    def test_sizes_that_an_option_rounds_up(self):
        """Blocks that are freed after the failure had the size that the option gave them, not what was asked for."""
        def short(divisions):
            s = Snapshot()
            for i in range(20):
                s.event("segment_alloc", 192 if divisions else 129, addr=s.at + i * 192 * MIB)
                s.event("alloc", 129, addr=s.at + i * 192 * MIB, frames=FORWARD)
            s.oom(192 if divisions else 129, 100)
            for i in range(20):
                for action in ("free_requested", "free_completed", "segment_free"):
                    s.event(action, 192 if divisions and action == "segment_free" else 129, addr=s.at + i * 192 * MIB)
            contents = s.contents()
            contents["allocator_settings"]["roundup_power2_divisions"] = {str(1 << i): divisions for i in range(16)}
            return self.explain(contents)

        got = short(2)
        self.assertEqual((got["verdict"], got["short_bytes"]), ("rounding", 92 * MIB))
        self.assertEqual(got["figures"]["allocated"], 20 * 192 * MIB)
        self.assertEqual(got["figures"]["live_requested"], 20 * 129 * MIB)
        got = short(0)
        self.assertEqual((got["verdict"], got["figures"]["allocated"]), ("full", 20 * 129 * MIB))

    def test_blocks_that_are_not_split(self):
        """From max_split_size on a block has all of its segment: what is behind it is no free memory."""
        def freed_since(max_split):
            s = Snapshot()
            s.segment((1000, "a", TRAIN))
            s.oom(200, 100)
            for action in ("free_requested", "free_completed"):
                s.event(action, 300, addr=s.at)
            s.event("segment_free", 318, addr=s.at)
            for entry in s.trace:
                del entry["pool_id"]
            contents = s.contents()
            contents["allocator_settings"]["max_split_size"] = max_split
            return self.explain(contents)

        got = freed_since(64 * MIB)
        self.assertEqual((got["short_bytes"], got["figures"]["allocated"]), (100 * MIB, 1318 * MIB))
        got = freed_since(-1)
        self.assertEqual((got["short_bytes"], got["figures"]["allocated"]), (82 * MIB, 1300 * MIB))

    def test_segments_that_only_a_pool_can_have_kept(self):
        """Up to PyTorch 2.9 events name no pools. It returns whole free segments of others before it gives up."""
        def after_the_pool_has_gone(told):
            s = Snapshot()
            s.segment((3000, "a", TRAIN))
            s.oom(2048, 100)
            for i in range(3):
                s.event("segment_free", 1000, addr=s.at + (i + 1) * GIB)
            for entry in s.trace:
                if not told:
                    del entry["pool_id"]
            return s

        got = self.expect(after_the_pool_has_gone(False), "pool", 1948)
        self.assertEqual(got["figures"]["free_pools"], 3000 * MIB)
        self.assertEqual(self.explain(after_the_pool_has_gone(True))["figures"]["free_pools"], 0)

    def test_pages_that_only_a_pool_can_have_kept(self):
        """So does it whole free pages of expandable segments."""
        for free, verdict in ((2900, "pool"), (19, "full")):
            s = Snapshot()
            s.segment((4000, "a", TRAIN), is_expandable=True)
            s.oom(2048, 100)
            for action in ("free_requested", "free_completed"):
                s.event(action, 100, addr=s.at + GIB)
            s.event("segment_unmap", 100 + free, addr=s.at + GIB)
            for entry in s.trace:
                del entry["pool_id"]
            self.expect(s, verdict)

    def test_frees_that_have_no_event(self):
        """PyTorch copies the history before the memory: what another thread frees in between is in neither. A history
        that leaves frees out tells nothing of what lived."""
        def freed_late(frees):
            s = Snapshot()
            s.event("alloc", 3000, addr=s.at, frames=TRAIN)
            s.segment((3000, "f"))
            s.event("alloc", 500, addr=s.at, frames=FORWARD)
            s.event("alloc", 10, addr=s.at + 500 * MIB, frames=TRAIN)
            for action in frees:
                s.event(action, 10, addr=s.at + 500 * MIB)
            s.segment((500, "a", FORWARD), (300, "f"))
            s.oom(2048, 100)
            for entry in s.trace:
                del entry["pool_id"]
            return s

        got = self.expect(freed_late(("free_requested", "free_completed")), "full", 1648)
        self.assertEqual(got["holders"][0]["site"], "u/train.py:9 main")
        self.assertEqual(got["figures"]["allocated"], 3500 * MIB)
        self.assertEqual(self.explain(freed_late(()))["figures"]["allocated"], 500 * MIB)


MODULE = {"filename": f"{TORCH}/nn/modules/module.py", "line": 7, "name": "_call_impl"}
INNER = [{"filename": f"{TORCH}/nn/modules/linear.py", "line": 1, "name": "forward"}, MODULE,
         {"filename": "/srv/u/model.py", "line": 31, "name": "forward"}, MODULE, *TRAIN]
KEPT = [{"filename": "/srv/u/train.py", "line": 44, "name": "validate"}, *TRAIN]

COPY = [{"filename": f"{TORCH}/nn/parameter.py", "line": 60, "name": "__deepcopy__"},
        {"filename": "/srv/u/ema.py", "line": 8, "name": "keep"}, *TRAIN]

BACKWARD = [{"filename": "??", "line": 0, "name": "torch::autograd::generated::AddmmBackward0::apply"}]
WORKSPACE = [{"filename": "??", "line": 0, "name": "at::cuda::getCurrentCUDABlasHandleWithWorkspace()"}, *BACKWARD]

LATER, END = "later", "end"

CACHED = [{"filename": "/srv/u/model.py", "line": 50, "name": "remember"}, MODULE, *INNER[2:]]


class Loops(Case):
    """Loops in which nothing is freed."""

    def loop(self, frames, count=40, batch=TRAIN):
        s = Snapshot()
        s.segment((500, "a", ADAM))
        blocks = []
        for step in range(count):
            for k, stack in enumerate((batch, frames, frames)):
                s.event("alloc", 32, addr=s.at + (3 * step + k) * 32 * MIB, frames=stack)
                blocks.append((32, "a", stack))
        s.segment(*blocks)
        s.oom(64, 10)
        return s

    def train(self, s, steps):
        for step in range(steps):
            for k in range(20):
                at = s.at + (step * 20 + k) * GIB
                s.event("alloc", 4, addr=at, frames=ADAM if k else FORWARD)
                s.event("free_requested", 4, addr=at)
                s.event("free_completed", 4, addr=at)

    def append(self, s, events):
        for event in events:
            s.time += 1000
            s.trace.append({**event, "time_us": s.time})

    def test_outputs_with_their_graphs(self):
        """Evaluation without no_grad, its outputs in a list: each step calls the model, and keeps all."""
        got = self.expect(self.loop(INNER), "leak", 54)
        self.assertEqual(got["growth"][0]["site"], "u/model.py:31 forward")

    def test_a_workspace_beside_a_list(self):
        """The line that was the first to need a workspace does not hold it."""
        s = self.loop(INNER)
        made = self.expect(s, "leak", 54)["growth"][0]["bytes"]
        frames = [WORKSPACE[0], *INNER]
        s.trace.insert(0, {**s.trace[0], "addr": s.at, "size": 300 * MIB, "time_us": 0, "frames": frames})
        s.segment((300, "a", frames))
        growth = self.expect(s, "leak", 54)["growth"][0]
        self.assertEqual((growth["site"], growth["bytes"]), ("u/model.py:31 forward", made))

    def test_a_list_that_was_emptied_just_before(self):
        """What failed came after the loop that had filled it, which the history shows once."""
        for emptied in (False, True):
            s = Snapshot()
            s.segment((500, "a", ADAM))
            for step in range(20):
                s.passes(1, BASE + 100 * GIB, TRAIN)
                for _ in range(25):
                    s.passes(8, BASE + 101 * GIB, INNER)
                s.event("alloc", 32, addr=s.at + step * 32 * MIB, frames=KEPT)
            for step in range(20 if emptied else 0):
                for action in ("free_requested", "free_completed"):
                    s.event(action, 32, addr=s.at + step * 32 * MIB)
            s.segment(*[(32, "f") if emptied else (32, "a", KEPT)] * 20)
            s.oom(2000, 10, frames=FORWARD)
            got = self.explain(s)
            self.assertEqual([one["leak"] for one in got["growth"]], [not emptied])

    def test_few_steps_of_many_layers(self):
        """Layers, and what autograd's threads allocate without a stack, come oftener than steps, as regularly. Steps
        begin outside of the model. The loop's line is told, not only the model's."""
        def at_line(line, *inner):
            return [*inner, {"filename": "/srv/u/train.py", "line": line, "name": "run_epoch"},
                    {"filename": "/srv/u/train.py", "line": 90, "name": "main"}]

        evaluated = at_line(30, *INNER[:-1])
        layer = at_line(21, *INNER[:-1], {"filename": "/srv/u/train.py", "line": 12, "name": "train_step"})
        s, blocks = Snapshot(), []
        s.segment((500, "a", ADAM))
        for step in range(16):
            made = [("alloc", 1, at_line(20)), *[("alloc", 8, layer), ("pass", 8, layer)] * 40]
            if step < 15:
                made += [("pass", 8, ())] * 40 + [("pass", 4, at_line(23))] + [("pass", 8, evaluated)] * (step % 5 * 10)
            for action, mib, frames in made:
                kept = action == "alloc"
                address = s.at + len(blocks) * 8 * MIB if kept else BASE + 100 * GIB
                for one in ("alloc",) if kept else ("alloc", "free_requested", "free_completed"):
                    s.event(one, mib, addr=address, frames=frames)
                if kept:
                    blocks.append((8, "a", frames))
        s.segment(*blocks)
        s.oom(64, 10)
        growth = self.expect(s, "leak", 54)["growth"][0]
        self.assertEqual((growth["site"], growth["loop"]), ("u/model.py:31 forward", "u/train.py:21 run_epoch"))
        self.assertIn("what u/model.py:31 forward allocates for u/train.py:21 run_epoch grows by 320.00 MiB a step",
                      run(self.save(s.contents()), text=True).stdout)

    def test_all_that_one_line_of_the_loop_keeps(self):
        """A loss that is kept holds all of its graph: what other lines of the model have made more slowly, too, but not
        what another line of the loop keeps."""
        def at_line(line, *inner):
            return [*inner, {"filename": "/srv/u/train.py", "line": line, "name": "main"}]

        wide, narrow = at_line(21, *INNER[:-1]), at_line(21, *CACHED[:-1])
        s, blocks = Snapshot(), []
        s.segment((500, "a", ADAM))
        for step in range(40):
            s.passes(4, BASE + 100 * GIB, at_line(20))
            for stack in (wide, wide, narrow, at_line(25)):
                s.event("alloc", 8, addr=s.at + len(blocks) * 8 * MIB, frames=stack)
                blocks.append((8, "a", stack))
            s.passes(4, BASE + 100 * GIB, at_line(22))
        s.segment(*blocks)
        s.oom(64, 10)
        got = self.expect(s, "leak", 54)
        leaks = {one["site"] for one in got["growth"] if one["leak"]}
        self.assertEqual(leaks, {"u/model.py:31 forward", "u/model.py:50 remember"})
        self.assertEqual((got["remedies"][0]["name"], got["remedies"][0]["bytes"]), ("fix_leak", sum(
            one["bytes"] for one in got["growth"] if one["leak"])))

    def test_a_cache_whatever_it_is_called(self):
        """What a model keeps from step to step, copied into something longer in each; where nothing is trained."""
        for trains in (False, True):
            s, size, lanes = Snapshot(), 0, [BASE + (100 + k) * GIB * 8 for k in range(8)]
            s.segment((300, "a", ADAM if trains else WEIGHT))
            for step in range(40):
                for k, lane in enumerate(lanes):
                    new, old = lane + (step % 2) * 4 * GIB, lane + (1 - step % 2) * 4 * GIB
                    s.event("alloc", 2, addr=BASE + 80 * GIB, frames=INNER if k else TRAIN)
                    s.event("alloc", size + 20, addr=new, frames=CACHED)
                    for action in ("free_requested", "free_completed"):
                        s.event(action, 2, addr=BASE + 80 * GIB)
                        if step:
                            s.event(action, size, addr=old)
                size += 20
            for lane in lanes:
                s.at = lane + 4 * GIB
                s.segment((size, "a", CACHED))
            s.oom(size + 20, 700, frames=CACHED)
            got = self.expect(s, "full", size + 20 - 700)
            self.assertEqual(got["holders"][0]["category"], "activations" if trains else "KV cache")
            self.assertEqual(got["remedies"][0]["name"], "bound_growth" if trains else "shrink_kv_cache")

    def test_caches_of_ever_more_sequences(self):
        """Each sequence's cache is copied into a longer one in each step, and sequences come: there are more and more
        blocks, but none is old. A line that keeps what it makes has old ones, however many."""
        for kept, verdict in ((False, "full"), (True, "leak")):
            s, held, mib, free = Snapshot(), [], 10, BASE + 100 * GIB
            s.segment((300, "a", WEIGHT))
            for step in range(48):
                s.passes(2, BASE + 80 * GIB, TRAIN)
                for old in ([] if kept else held[:]):
                    s.event("alloc", mib, addr=free, frames=CACHED)
                    for action in ("free_requested", "free_completed"):
                        s.event(action, mib, addr=old)
                    held[held.index(old)] = free
                    free += mib * MIB
                for _ in range(4):
                    s.passes(2, BASE + 80 * GIB, INNER)
                s.event("alloc", mib, addr=free, frames=CACHED)
                held.append(free)
                free += mib * MIB
            for at in held:
                s.at = at
                s.segment((mib, "a", CACHED))
            s.oom(40, 10, frames=CACHED)
            got = self.expect(s, verdict, 30)
            self.assertEqual(got["holders"][0]["category"], "activations" if kept else "KV cache")

    def test_a_bank_that_is_copied_into_a_larger_one(self):
        """It leaves some per cent in pieces, which are not why memory ran out."""
        bank = [{"filename": "/srv/u/bank.py", "line": 5, "name": "enqueue"}, *TRAIN]
        for grows, verdict in ((True, "full"), (False, "fragmented")):
            s, size = Snapshot(), 0
            s.segment((20, "a", ADAM))
            lanes = [BASE + (100 + 4 * k) * GIB for k in range(2)]
            for step in range(40):
                for action in ("alloc", "free_requested", "free_completed"):
                    s.event(action, 8, addr=BASE + 80 * GIB, frames=TRAIN)
                    s.event(action, 8, addr=BASE + 81 * GIB, frames=FORWARD)
                if not grows and step:
                    continue
                size += 50 if grows else 2000
                s.event("alloc", size, addr=lanes[step % 2], frames=bank)
                for action in ("free_requested", "free_completed") if step else ():
                    s.event(action, size - 50, addr=lanes[1 - step % 2])
            s.at = lanes[1 if grows else 0]
            s.segment((2000, "a", bank), (100, "f"))
            s.segment((10, "a", TRAIN), (100, "f"))
            s.oom(2050, 2000, frames=bank)
            got = self.expect(s, verdict, 50)
            self.assertEqual(got["remedies"][0]["name"], "bound_growth" if grows else "join_pieces")

    def test_weights_that_are_unfrozen(self):
        """An optimizer's state grows with them. It is no leak until there is more than they need, or they get no
        gradients any more, as in models that are kept after a search."""
        gradient = [{"filename": "??", "line": 0, "name": "torch::autograd::generated::AddmmBackward0::apply"}]
        for weights, trained, verdict in ((60, 60, "full"), (10, 60, "leak"), (60, 2, "leak")):
            s, blocks, at = Snapshot(), [(16, "a", WEIGHT)] * weights, BASE + 100 * GIB
            for step in range(120):
                for k, stack in enumerate((TRAIN, *[FORWARD] * 4)):
                    s.passes(2, at + k * GIB, stack)
                for k in range(min(trained, 1 + step // 2)):
                    s.passes(16, at + k * GIB, gradient)
                s.event("alloc", 16, addr=s.at + len(blocks) * 16 * MIB, frames=ADAM)
                blocks.append((16, "a", ADAM))
                s.step_ends()
            s.segment(*blocks)
            s.oom(64, 10)
            self.assertEqual(self.expect(s, verdict, 54)["growth"][0]["leak"], verdict == "leak")

    def test_models_that_are_loaded_and_kept(self):
        """Or layers, each as it is needed: nothing tells these apart, and either is to be bounded."""
        s, blocks, at = Snapshot(), [], BASE + 100 * GIB
        for step in range(40):
            for k, stack in enumerate((TRAIN, *[FORWARD] * 5)):
                s.passes(40, at + k * GIB, stack)
            for _ in range(4):
                s.event("alloc", 20, addr=s.at + len(blocks) * 20 * MIB, frames=WEIGHT)
                blocks.append((20, "a", WEIGHT))
        s.segment(*blocks)
        s.oom(64, 10, frames=WEIGHT)
        self.assertEqual(self.expect(s, "full", 54)["remedies"][0]["name"], "bound_growth")

    def rounds(self, rounds, failing=FORWARD):
        """Each is a list of (MiB, frames, kept) allocations. What is not kept is freed at the end of its round or, if
        LATER, at the end of the next that has END."""
        s, blocks, used, later = Snapshot(), [], 0, []
        for one in rounds:
            passing = []
            for mib, frames, kept in one:
                at = s.at + int(used * MIB) if kept is True else BASE + (100 + len(passing) + len(later)) * GIB
                s.event("alloc", mib, addr=at, frames=frames)
                if kept is True:
                    blocks.append((mib, "a", frames))
                    used += mib
                else:
                    (later if kept == LATER else passing).append((mib, at))
            if any(kept == END for _, _, kept in one):
                passing, later = passing + later, []
            for mib, at in passing:
                for action in ("free_requested", "free_completed"):
                    s.event(action, mib, addr=at)
        s.segment(*blocks)
        s.oom(64, 10, frames=failing)
        return s

    def test_compiled_code_of_python_differs_from_run_to_run(self):
        """From Python 3.11 on, a line that has run a few times has other frames of the interpreter, with or without the
        names of its sources: it is the same line all the same. With none but these, a stack still has frames."""
        def between(*frames):
            return [{"filename": file, "line": 73, "name": name} for file, name in frames]

        for cold, warm in ((("Python/ceval.c", "_PyEval_EvalFrameDefault"), ("Include/internal/pycore_ceval.h", "_Py")),
                           (("??", "PyObject_Call"), ("/usr/bin/python3.11", "??")),
                           (("??", "??"), ("/src/Include/object.h", "Py_INCREF"))):
            rounds = [[(32, [*INNER[:2], *between(of), *INNER[2:]], True), (8, [*KEPT, *between(of)], True)]
                      for of in [cold] * 7 + [warm] * 5]
            got = self.expect(self.rounds([[(20, WEIGHT, True)] * 3, *rounds]), "leak")
            self.assertEqual(got["holders"][0]["count"], 12)
        s = Snapshot()
        s.segment((20, "a", between(("Python/ceval.c", "_PyEval_EvalFrame"))))
        self.assertIn("ceval.c", self.explain(s)["holders"][0]["site"])

    def test_rows_of_a_jacobian(self):
        """Each goes backward through the one graph: what its rounds keep is the result. It is another thing if each has
        a forward pass of its own. Where Python's lines alone are recorded, autograd's threads have no stack."""
        def asks(*lines):
            return [{"filename": f"{TORCH}/autograd/__init__.py", "line": 200, "name": "_make_grads"},
                    {"filename": f"{TORCH}/autograd/__init__.py", "line": 400, "name": "grad"}, *lines]

        own = [{"filename": f"{TORCH}/autograd/functional.py", "line": 700, "name": "jacobian"}, *TRAIN]
        for threads in (BACKWARD, []):
            for lines, forward, verdict in ((own, 0, "full"), (TRAIN, 0, "full"), (TRAIN, 6, "leak")):
                row = [(1, TRAIN, False)] * (forward > 0) + [(2, INNER, False)] * forward
                row += [(1, asks(*lines), False), *[(2, threads, False)] * 8, (32, threads, True)]
                with self.subTest(threads=threads, lines=lines, forward=forward):
                    got = self.expect(self.rounds([row] * 40), verdict, 54)
                    if verdict == "full":
                        self.assertEqual(got["remedies"][0]["name"], "collect_less")

    def test_chunks_of_a_vmap(self):
        """Each has a forward pass, but within one call of PyTorch's."""
        for own, verdict in ((True, "full"), (False, "leak")):
            calls = [{"filename": f"{TORCH}/_functorch/vmap.py", "line": 80, "name": "_chunked_vmap"}] if own else []
            loss = [{"filename": "/srv/u/loss.py", "line": 5, "name": "loss"}, *calls, *TRAIN]
            chunk = [(1, loss, False), *[(2, [*INNER[:4], *loss], False)] * 4, *[(2, BACKWARD, False)] * 4]
            self.expect(self.rounds([[*chunk, (32, BACKWARD, True)]] * 40), verdict, 54)

    def test_inner_steps_that_are_differentiated_through(self):
        """Their graphs and gradients are kept for the outer gradient, which comes after all of them. If backward() is
        called in each, what keeps them is a leak."""
        def call(name):
            return [{"filename": f"{TORCH}/autograd/__init__.py", "line": 200, "name": "_make_grads"},
                    {"filename": f"{TORCH}/autograd/__init__.py", "line": 400, "name": name}, *TRAIN]

        for names, verdict in ((("grad",), "full"), (("grad", "backward"), "leak")):
            inner = [(16, KEPT, True), *[(8, INNER, True)] * 4, *[(1, call(name), False) for name in names],
                     *[(8, BACKWARD, True)] * 4, *[(2, BACKWARD, False)] * 4]
            self.expect(self.rounds([inner] * 40), verdict, 54)
        inner = [one for one in inner if one[1] != call("backward")]
        step = [(mib, frames, LATER if kept else False) for mib, frames, kept in inner]
        outer = [step] * 5 + [[(1, call("backward"), False), (1, TRAIN, END)]]
        self.expect(self.rounds(outer * 10 + [inner] * 150), "full", 54)

    def test_gradients_that_are_kept(self):
        """Of each step, asked for by grad(): no graph is kept with them."""
        asks = [{"filename": f"{TORCH}/autograd/__init__.py", "line": 400, "name": "grad"}, *TRAIN]
        step = [(1, TRAIN, False), *[(8, INNER, False)] * 4, (1, asks, False), *[(16, BACKWARD, True)] * 4]
        self.expect(self.rounds([step] * 40), "leak", 54)

    def test_a_pass_that_is_longer_than_those_before(self):
        """A recurrent model calls its parts for each frame of the input: what one call keeps is no leak. It is another
        thing if a call keeps little, and the model is called again and again; and if a training runs in the call.
        Compiled code between the lines differs."""
        def at_line(line, *inner):
            python = {"filename": "Python/ceval.c", "line": 4769 + len(inner), "name": "_PyEval_EvalFrameDefault"}
            return [*inner, {"filename": "/srv/u/vsr.py", "line": line, "name": "forward"}, python, MODULE, *TRAIN]

        frame, other, update = at_line(31, *INNER[:3]), at_line(31, FORWARD[0], *INNER[1:3]), at_line(40, *ADAM)
        begin, turn = (1, at_line(28), LATER), [(1, other, False), (1, frame, LATER)]
        kept = [(1, other, False), (1, frame, False), (1, other, False), (1, frame, True)]
        call, end = [(1, TRAIN, False), begin], [(1, TRAIN, END)]
        for passes, verdict in (([call, *[turn] * 5, end, call, *[turn] * 15, end, call, *[kept] * 600], "full"),
                                ([call, *[kept] * 600], "full"),
                                ([[begin, *kept]] * 600, "leak"),
                                ([[*call, *kept]] * 600, "leak"),
                                ([[begin, *kept, (1, update, False)]] * 600, "leak")):
            got = self.expect(self.rounds([[(20, WEIGHT, True)] * 3, *passes], frame), verdict, 54)
            self.assertEqual(got["remedies"][0]["name"], "fix_leak" if verdict == "leak" else "collect_less")

    def test_a_step_that_adds_up_more_passes_than_those_before(self):
        """It goes back through time, as they did. Steps of one pass are followed by an evaluation that keeps all."""
        one, update = [(1, TRAIN, END), (8, INNER, END), (8, INNER, END)], [(1, ADAM, END)]
        kept = [(1, TRAIN, False), (8, INNER, True), (8, INNER, True)]
        for passes, verdict in ((6, "full"), (1, "leak")):
            s = self.rounds([[(20, WEIGHT, True)] * 3, *[[*one * passes, *update]] * 12, *[kept] * 100], INNER)
            self.expect(s, verdict, 54)

    def test_a_list_that_is_filled_before_the_one_in_its_place_is_freed(self):
        """As `features = extract()` does in each epoch. It now holds more than ever; if far more, it is a leak."""
        for epochs, count, verdict in ((5, 100, "full"), (5, 800, "leak"), (1, 100, "leak")):
            s, held, old = Snapshot(), [], []
            s.event("alloc", 32, addr=s.at + 200 * GIB, frames=KEPT)     # a workspace, say
            for epoch in range(epochs):
                last, old, held = epoch == epochs - 1, held, []
                for step in range(count if last else 24):
                    for k in range(3):
                        s.passes(60 if k else 1, BASE + (100 + k) * GIB, INNER if k else TRAIN)
                    held.append(BASE + (0 if last else epoch % 2 + 1) * 50 * GIB + step * 16 * MIB)
                    s.event("alloc", 16, addr=held[-1], frames=KEPT)
                for at in old if not last else ():
                    for action in ("free_requested", "free_completed"):
                        s.event(action, 16, addr=at)
            s.segment(*[(16, "a", KEPT)] * count)
            if old:
                s.at = old[0]
                s.segment(*[(16, "a", KEPT)] * len(old))
            s.oom(64, 10)
            self.expect(s, verdict, 54)

    def test_what_may_be_a_buffer_that_is_not_full_yet(self):
        """Nothing tells it from a leak while it fills; what a model keeps for its gradients is none."""
        for kept, told in ((KEPT, True), (INNER, False)):
            s = self.rounds([[(1, TRAIN, False), *[(8, INNER, False)] * 4, (16, kept, True)]] * 100)
            self.expect(s, "leak", 54)
            text = run(self.save(s.contents()), text=True).stdout
            self.assertEqual("or is a buffer that is not full yet" in text.splitlines()[1], told)

    def test_a_list_with_larger_parts(self):
        """It was filled and emptied before with about as many, which were smaller: the batch is larger now."""
        for count, verdict in ((80, "full"), (4000, "leak")):
            s, mib = Snapshot(), 4000 / count
            for fill in range(5):
                last, held = fill == 4, []
                for step in range(count if last else 40):
                    for k, stack in enumerate((TRAIN, INNER, INNER)):
                        s.passes(60 if k else 1, BASE + (100 + k) * GIB, stack)
                    held.append(BASE + int(step * mib * MIB) if last else BASE + 120 * GIB + step * MIB)
                    s.event("alloc", mib if last else 0.5, addr=held[-1], frames=KEPT)
                for at in held if not last else ():
                    for action in ("free_requested", "free_completed"):
                        s.event(action, 0.5, addr=at)
            s.segment(*[(mib, "a", KEPT)] * count)
            s.oom(64, 10)
            self.expect(s, verdict, 54)

    def test_directions_that_an_optimizer_remembers(self):
        """LBFGS: each is as large as all weights, so it belongs to none. Scalars come with them."""
        line = [{"filename": f"{TORCH}/optim/lbfgs.py", "line": 380, "name": "step"}, *TRAIN]
        step = [(1, TRAIN, False), *[(64, line, True)] * 2, *[(1 / 512, line, True)] * 4, *[(2, FORWARD, False)] * 4,
                *[(16, BACKWARD, False)] * 4, (1 / 512, BACKWARD, False)]
        for weights in ([[(16, WEIGHT, True)] * 4], []):
            self.expect(self.rounds([*weights, *[step] * 30]), "full", 54)

    def test_a_model_that_is_loaded_again_and_again(self):
        """By a cell of a notebook, which runs the model each time and keeps it. The same layers that come oftener, or
        with nothing else in between, are one model's."""
        sizes, use = (20, 8, 8, 30, 20, 8), [(4, TRAIN, False), *[(8, INNER, False)] * 12]
        load = [(mib, WEIGHT, True) for mib in sizes]
        cell = [*load, *use]
        for cells, verdict in (([cell] * 4, "leak"), ([load] * 4 + [use], "full"), ([cell] * 20, "full"),
                               ([cell] * 2, "leak"), ([cell], "full")):
            got = self.expect(self.rounds([*cells, load[:3]], WEIGHT), verdict, 54)
            if verdict == "leak":
                growth = got["growth"][0]
                self.assertEqual((growth["site"], growth["per_step"]), ("u/train.py:9 main", sum(sizes) * MIB))
        self.expect(self.rounds([cell] * 2), "full", 54)

    def test_a_cell_is_one_line_however_often_it_runs(self):
        """Its file has the number of the run."""
        use = [(4, TRAIN, False), *[(8, INNER, False)] * 12]
        for name, verdict in (("<ipython-input-%d-0a1b2c3d4e5f>", "leak"),
                              ("/tmp/ipython-input-%d-1789204115.py", "leak"), ("/tmp/ipykernel_17/%d.py", "full")):
            cells = []
            for run in range(4):
                line = {"filename": name % (7 + run), "line": 2, "name": "<module>"}
                cells.append([(mib, [*WEIGHT[:1], line], True) for mib in (20, 8, 8, 30, 20, 8)] + use)
            self.expect(self.rounds(cells), verdict, 54)

    def test_a_model_that_is_loaded_again_when_it_has_been_trained(self):
        """Two models that are trained together, such as an actor and a critic, are made before. A new optimizer takes
        the place of the older one, whose state is freed, but not the gradients."""
        load = [(mib, WEIGHT, True) for mib in (20, 8, 8, 30) * 5 + (9,) * 20]
        use = [(4, TRAIN, False), *[(8, INNER, False)] * 200]
        for frames in (ADAM, BACKWARD):
            state = [(4, frames, True)] * 20
            for rounds, verdict in (([load, use, state + use, load, use], "leak"),
                                    ([load, use, state + use, load[:32]], "leak"),
                                    ([load, use, state + use, load[:31]], "full"),
                                    ([load, use, load, state + use], "full")):
                self.expect(self.rounds([sum(rounds[:2], []), *rounds[2:]]), verdict, 54)

    def test_models_of_few_weights_that_are_trained_and_kept(self):
        """Members of an ensemble, or the trials of a search: however many there are, layers are not trained before the
        next are made. The line that makes the models says more than that of their gradients."""
        load = [(mib, WEIGHT, True) for mib in (20, 8, 8, 30)]
        use = [(4, TRAIN, False), *[(8, INNER, False)] * 24]
        for state, verdict in (([(20, ADAM, True)], "leak"), ([(20, BACKWARD, True)] * 3, "leak"), ([], "full")):
            got = self.expect(self.rounds([load + use + state + use] * 14), verdict, 54)
            if verdict == "leak":
                self.assertEqual([(one["site"], one["bytes"]) for one in got["growth"] if one["leak"]][-1],
                                 ("u/train.py:9 main", 14 * 66 * MIB))

    def test_what_captured_graphs_keep(self):
        """Each batch size has a graph, whose pool has its outputs, and an input: no leak, as a list of outputs is."""
        step = [(2, TRAIN, True), (32, FORWARD, True), (64, FORWARD, False), (64, FORWARD, False)]
        for pool, verdict in (((0, 0), "leak"), ((0, 7), "pool")):
            s = self.rounds([step] * 30)
            s.segments[-1]["segment_pool_id"] = pool
            s.segment((500, "f"), (4, "a", FORWARD), pool=(0, 7))
            got = self.expect(s, verdict)
            self.assertEqual(got["remedies"][0]["name"], "fix_leak" if verdict == "leak" else "release_pools")
            self.assertEqual(any(one["leak"] for one in got["growth"]), verdict == "leak")

    def test_outputs_of_longer_and_longer_sequences(self):
        """The newest lasts until the next has been made; it is no cache."""
        s = Snapshot()
        s.segment((300, "a", WEIGHT))
        for step in range(40):
            passing, output = BASE + 150 * GIB, [BASE + (100 + (step + k) % 2 * 4) * GIB for k in range(2)]
            s.event("alloc", 1, addr=BASE + 80 * GIB, frames=TRAIN)
            for k in range(6):
                s.event("alloc", 40 + step * 10, addr=passing + k * GIB, frames=INNER)
                for action in ("free_requested", "free_completed"):
                    s.event(action, 40 + step * 10, addr=passing + k * GIB)
            s.event("alloc", 40 + step * 10, addr=output[0], frames=FORWARD)
            for action in ("free_requested", "free_completed"):
                s.event(action, 1, addr=BASE + 80 * GIB)
                if step:
                    s.event(action, 30 + step * 10, addr=output[1])
        s.at = output[0]
        s.segment((430, "a", FORWARD))
        s.oom(440, 100, frames=INNER)
        self.assertEqual(self.expect(s, "full", 340)["holders"][0]["category"], "activations")

    def test_a_state_that_one_line_works_out_with_its_graph(self):
        """x = x - 0.1 * net(x): the line allocates twice in each step, and never alone."""
        s, blocks = Snapshot(), []

        def keep(frames):
            s.event("alloc", 32, addr=s.at + len(blocks) * 32 * MIB, frames=frames)
            blocks.append((32, "a", frames))

        def pass_by(frames, at):
            s.passes(32, at, frames)

        for _ in range(40):
            for k in range(6):
                pass_by(INNER, BASE + (100 + k) * GIB)
            keep(INNER)
            pass_by(TRAIN, BASE + 200 * GIB)
            keep(TRAIN)
        s.segment(*blocks)
        s.oom(64, 10)
        self.assertEqual(self.expect(s, "leak", 54)["growth"][0]["site"], "u/model.py:31 forward")

    def test_evaluation_after_much_training(self):
        """The loop that the program is in counts, however much longer the one before was."""
        s = self.loop(INNER)
        newest, s.trace = s.trace, []
        self.train(s, 100)
        self.append(s, newest)
        self.expect(s, "leak", 54)

    def test_an_evaluation_of_few_events(self):
        """It frees nothing and runs no optimizer: all of it has fewer events than two steps."""
        s = self.loop(INNER)
        newest, s.trace = s.trace, []
        for _ in range(20):
            for k in range(22):
                s.passes(4, s.at + k * GIB, ADAM if k else FORWARD)
            s.step_ends()
        self.append(s, newest)
        self.expect(s, "leak", 54)

    def test_an_evaluation_of_few_passes(self):
        """The steps of training let go of their activations, its passes do not. From four passes on that is a leak;
        where a step of training adds up the losses of several passes, a longer sum is none. Two passes from where the
        steps call the model may be a step that needs more."""
        def passes(in_step, in_evaluation, caller=KEPT):
            s, at, frames = Snapshot(), BASE + 100 * GIB, (TRAIN, *[INNER] * 4, KEPT)
            for _ in range(6):
                made = [(at + k * GIB, frame) for k, frame in enumerate(frames * in_step)]
                for address, frame in made:
                    s.event("alloc", 40, addr=address, frames=frame)
                for address, _ in made:
                    for action in ("free_requested", "free_completed"):
                        s.event(action, 40, addr=address)
                s.passes(10, at, ADAM)
                s.step_ends()
            frames = (caller, *[[*INNER[:4], *caller]] * 4, KEPT)
            for k, frame in enumerate(frames * in_evaluation):
                s.event("alloc", 40, addr=s.at + k * 40 * MIB, frames=frame)
            s.segment(*[(40, "a", frame) for frame in frames * in_evaluation])
            s.oom(64, 10)
            return s

        got = self.expect(passes(1, 2), "full", 54)
        self.assertEqual((got["remedies"][0]["name"], got["remedies"][0]["bytes"]), ("drop_passes", 160 * MIB))
        got = self.expect(passes(1, 4), "leak", 54)
        self.assertEqual(got["growth"][0]["site"], "u/model.py:31 forward")
        for s in (passes(1, 1), passes(2, 4), passes(1, 2, TRAIN)):
            got = self.expect(s, "full", 54)
            self.assertNotIn("drop_passes", [one["name"] for one in got["remedies"]])

    def test_an_evaluation_whose_metrics_take_most(self):
        """Its model does a tenth of the allocating: it loads no data."""
        s, kept, at = Snapshot(), [], BASE + 100 * GIB
        for _ in range(40):
            s.event("alloc", 64, addr=s.at + len(kept) * 64 * MIB, frames=KEPT)
            kept.append((64, "a", KEPT))
            for stack in (INNER, *[KEPT] * 3):
                s.passes(16, at, stack)
        s.segment(*kept)
        s.oom(64, 10)
        self.expect(s, "leak", 54)

    def test_an_evaluation_that_is_longer_than_those_before(self):
        """Its outputs are in a list, as theirs were, which each of them gave up; the list alone is not let go yet. The
        last is called from another line."""
        def called_at(frames, line):
            return [*frames, {"filename": "/srv/u/main.py", "line": line, "name": "main"}]

        s = self.loop(called_at(INNER, 9), count=60, batch=called_at(TRAIN, 9))
        newest, s.trace = s.trace, []
        for _ in range(3):
            self.train(s, 50)
            blocks = [s.at + (2 + i) * GIB for i in range(20)]
            for at in blocks:
                s.event("alloc", 32, addr=at, frames=called_at(INNER, 5))
                s.event("alloc", 32, addr=at - GIB // 2, frames=called_at(TRAIN, 5))
            for at in blocks:
                for action in ("free_requested", "free_completed"):
                    s.event(action, 32, addr=at)
                    s.event(action, 32, addr=at - GIB // 2)
        self.train(s, 50)
        self.append(s, newest)
        got = self.expect(s, "full", 54)
        self.assertEqual(got["remedies"][0]["name"], "collect_less")

    def evaluations(self, marked, begin=TRAIN, again=18):
        """Every 20 steps of training five outputs are kept; the failure is at the end of the newest."""
        s, blocks, at = Snapshot(), [], BASE + 100 * GIB
        s.segment((500, "a", ADAM))
        for step in range(20 * again):
            for k, stack in enumerate((begin, *[FORWARD] * 5, ADAM)):
                s.event("alloc", 64 if k else 1, addr=at + k * GIB, frames=stack)
                s.event("free_requested", 64 if k else 1, addr=at + k * GIB)
                s.event("free_completed", 64 if k else 1, addr=at + k * GIB)
            if marked:
                s.step_ends()
            for _ in range(5 if step % 20 == 19 else 0):
                for k in range(10):
                    s.event("alloc", 16, addr=at + k * GIB, frames=INNER)
                    s.event("free_requested", 16, addr=at + k * GIB)
                    s.event("free_completed", 16, addr=at + k * GIB)
                s.event("alloc", 32, addr=s.at + len(blocks) * 32 * MIB, frames=KEPT)
                blocks.append((32, "a", KEPT))
        s.segment(*blocks)
        s.oom(64, 10)
        return s

    def test_what_evaluations_leave(self):
        """Between steps lies an evaluation, as between others before: the loop has not ended."""
        for marked in (False, True):
            got = self.expect(self.evaluations(marked), "leak", 54)
            self.assertEqual(got["growth"][0]["site"], "u/train.py:44 validate")

    def test_a_list_that_is_put_together_each_epoch(self):
        """At the end of the first it is all that was to be kept; if it goes on in the next, it leaks."""
        whole = [{"filename": "/srv/u/metric.py", "line": 6, "name": "compute"}, *TRAIN]
        for epochs, verdict in ((1, "full"), (3, "leak")):
            s, blocks, at = Snapshot(), [], BASE + 100 * GIB
            s.segment((500, "a", ADAM))
            for step in range(40 * epochs):
                for k, stack in enumerate((TRAIN, *[FORWARD] * 5)):
                    s.event("alloc", 64 if k else 1, addr=at, frames=stack)
                    s.event("free_requested", 64 if k else 1, addr=at)
                    s.event("free_completed", 64 if k else 1, addr=at)
                s.event("alloc", 20, addr=s.at + len(blocks) * 20 * MIB, frames=KEPT)
                blocks.append((20, "a", KEPT))
                if step % 40 == 39 and step < 40 * epochs - 1:
                    s.event("alloc", 20 * len(blocks), addr=at, frames=whole)
                    s.event("free_requested", 20 * len(blocks), addr=at)
                    s.event("free_completed", 20 * len(blocks), addr=at)
            s.segment(*blocks)
            s.oom(20 * len(blocks), 20 * len(blocks) - 100, frames=whole)
            self.expect(s, verdict, 100)

    def test_graphs_that_outlive_the_steps_of_an_optimizer(self):
        """Of large steps two fill the device. What a model makes in a step is not needed after it; data may be."""
        data = [{"filename": "/srv/u/data.py", "line": 3, "name": "load"}, *TRAIN]
        for frames, verdict in ((INNER, "leak"), (data, "full")):
            s, blocks = Snapshot(), []
            for step in range(2):
                for _ in range(8):
                    s.event("alloc", 300, addr=s.at + len(blocks) * 300 * MIB, frames=frames)
                    blocks.append((300, "a", frames))
                s.passes(100, BASE + 90 * GIB, ADAM)
                s.step_ends()
            s.event("alloc", 300, addr=s.at + len(blocks) * 300 * MIB, frames=frames)
            s.segment(*blocks, (300, "a", frames))
            s.oom(300, 10)
            self.expect(s, verdict, 290)

    def test_optimizers_that_step_within_a_backward_pass(self):
        """One for each part of a model: what its forward pass has made is needed after their steps."""
        s, blocks = Snapshot(), []
        for made, steps in ((12, 4), (1, 3)):
            for _ in range(made):
                s.event("alloc", 100, addr=s.at + len(blocks) * 100 * MIB, frames=INNER)
                blocks.append((100, "a", INNER))
            for _ in range(steps):
                s.passes(100, BASE + 90 * GIB, ADAM)
                s.step_ends()
        s.segment(*blocks)
        s.oom(300, 10)
        self.assertEqual(self.expect(s, "full", 290)["growth"], [])

    def test_workspaces_of_a_backward_pass(self):
        """Autograd's threads allocate one for each product, as regularly as a loop does and far oftener."""
        s, blocks, at = Snapshot(), [], BASE + 100 * GIB
        s.segment((500, "a", ADAM))
        for step in range(20):
            for stack in (TRAIN, *[FORWARD] * 10, *[WORKSPACE] * (40 if step < 19 else 0)):
                s.passes(8, at, stack)
                if stack == FORWARD:
                    s.event("alloc", 10, addr=s.at + len(blocks) * 10 * MIB, frames=INNER)
                    blocks.append((10, "a", INNER))
        s.segment(*blocks)
        s.oom(64, 10)
        self.assertEqual(self.expect(s, "leak", 54)["growth"][0]["site"], "u/model.py:31 forward")

    def test_gradients_beside_workspaces(self):
        """A model gets part after part. The gradients that these need are made in the same operation as a workspace,
        which does not make them something else."""
        s, blocks, at = Snapshot(), [], BASE + 100 * GIB
        for step in range(40):
            for mib, stack in ((20, WEIGHT), (20, BACKWARD)):
                s.event("alloc", mib, addr=s.at + len(blocks) * 20 * MIB, frames=stack)
                blocks.append((20, "a", stack))
            for mib, stack in ((8, FORWARD), *[(20, BACKWARD)] * step, (8, WORKSPACE)):
                s.passes(mib, at, stack)
            s.step_ends()
        s.segment(*blocks)
        s.oom(64, 10)
        self.expect(s, "full", 54)

    def test_gradients_of_finished_models(self):
        """Each step makes the gradients of the newest model only. Those of the older ones are not needed."""
        s, blocks, at = Snapshot(), [], BASE + 100 * GIB
        for step in range(40):
            for mib, stack in ((20, WEIGHT), (20, BACKWARD)):
                s.event("alloc", mib, addr=s.at + len(blocks) * 20 * MIB, frames=stack)
                blocks.append((20, "a", stack))
            s.passes(8, at, FORWARD)
            s.step_ends()
        s.segment(*blocks)
        s.oom(64, 10)
        self.assertEqual([g["category"] for g in self.expect(s, "leak", 54)["growth"] if g["leak"]], ["gradients"])

    def test_what_steps_before_the_history_have_kept(self):
        """It is alike, and many, but no part of a model that one pass goes through: the loop goes on making it."""
        s, at = Snapshot(), BASE + 100 * GIB
        blocks = [(16, "a", KEPT)] * 200
        s.segment((500, "a", ADAM))
        for step in range(40):
            for k, stack in enumerate((TRAIN, *[ADAM] * 6)):
                s.passes(64 if k else 1, at + k * GIB, stack)
            s.event("alloc", 16, addr=s.at + len(blocks) * 16 * MIB, frames=KEPT)
            blocks.append((16, "a", KEPT))
        s.segment(*blocks)
        s.oom(64, 10)
        self.assertEqual(self.expect(s, "leak", 54)["growth"][0]["site"], "u/train.py:44 validate")

    def test_more_than_one_pass_leaves(self):
        """A model has as many parts as there are steps: what they keep may be of one pass through it, unless the line
        holds more than sixteen blocks for each part."""
        for before, verdict in ((400, "leak"), (40, "full")):
            s, at = Snapshot(), BASE + 100 * GIB
            blocks = [*[(8, "a", WEIGHT)] * 16, *[(4000 // before, "a", KEPT)] * before]
            s.segment((500, "a", ADAM))
            for step in range(8):
                for k, stack in enumerate((TRAIN, *[FORWARD] * 6)):
                    s.passes(64 if k else 1, at + k * GIB, stack)
                s.event("alloc", 4000 // before, addr=s.at + (128 + 4000 + 4000 // before * step) * MIB, frames=KEPT)
                blocks.append((4000 // before, "a", KEPT))
            s.segment(*blocks)
            s.oom(64, 10)
            self.expect(s, verdict, 54)

    def test_what_was_kept_before_in_other_sizes(self):
        """Of a line that keeps blocks of varying sizes, those within their range count; larger ones are of something
        else that it has made."""
        for before, verdict in ([10 + 7 * k % 20 for k in range(200)], "leak"), ([400] * 10, "full"):
            s, at = Snapshot(), BASE + 100 * GIB
            blocks, held = [(mib, "a", KEPT) for mib in before], sum(before)
            s.segment((500, "a", ADAM))
            for step in range(12):
                for k, stack in enumerate((TRAIN, *[FORWARD] * 6)):
                    s.passes(64 if k else 1, at + k * GIB, stack)
                mib = 10 + (13 * step + 10) % 20
                s.event("alloc", mib, addr=s.at + held * MIB, frames=KEPT)
                blocks.append((mib, "a", KEPT))
                held += mib
            s.segment(*blocks)
            s.oom(64, 10)
            self.expect(s, verdict, 54)

    def test_one_block_of_many_without_a_stack(self):
        """With context="state" only live blocks have stacks. The request is as large as the one that has none, but that
        is not all of the list."""
        s, at = Snapshot(), BASE + 100 * GIB
        for step in range(40):
            s.event("alloc", 20, addr=s.at + step * 20 * MIB)
            s.passes(8, at)
            s.step_ends()
        s.segment(*[(20, "a", KEPT)] * 39, (20, "a"))
        s.oom(20, 10, frames=())
        self.expect(s, "leak", 10)

    def test_a_history_of_two_steps(self):
        """Each leaves a block at a line that holds a hundred: too few for a trend, and enough. What gives one up for
        each that it makes is a queue; and what has made few more than the steps have may be warming up."""
        for held, bounded, verdict in ((100, False, "leak"), (100, True, "full"), (5, False, "full")):
            s, at = Snapshot(), BASE + 100 * GIB
            mib = 6000 // held
            blocks = [(mib, "a", KEPT)] * held
            for step in range(4):
                for k, stack in enumerate((TRAIN, *[FORWARD] * 5, ADAM)):
                    s.event("alloc", 64 if k else 1, addr=at + k * GIB, frames=stack)
                    s.event("free_requested", 64 if k else 1, addr=at + k * GIB)
                    s.event("free_completed", 64 if k else 1, addr=at + k * GIB)
                s.event("alloc", mib, addr=s.at + len(blocks) * mib * MIB, frames=KEPT)
                blocks.append((mib, "a", KEPT))
                for action in ("free_requested", "free_completed") if bounded else ():
                    s.event(action, mib, addr=at + (20 + step) * GIB)
                if step < 3:
                    s.step_ends()
            s.segment(*blocks)
            s.oom(64, 10)
            got = self.expect(s, verdict, 54)
            if verdict == "leak":
                self.assertEqual(got["growth"][0]["site"], "u/train.py:44 validate")

    def test_steps_that_optimizers_show(self):
        """Without annotations the stacks of what an optimizer allocates tell its steps or, if its steps take no memory,
        the stacks of the gradients that it clears."""
        clears = [{"filename": f"{TORCH}/optim/optimizer.py", "line": 3, "name": "zero_grad"}, *TRAIN]
        for cleared in (False, True):
            s, at, blocks = Snapshot(), BASE + 100 * GIB, [(60, "a", KEPT)] * 100
            for step in range(4):
                for k, stack in enumerate((TRAIN, *[FORWARD] * 5, TRAIN if cleared else ADAM)):
                    s.event("alloc", 64 if k else 1, addr=at + k * GIB, frames=stack)
                    for action in ("free_requested", "free_completed"):
                        s.event(action, 64 if k else 1, addr=at + k * GIB, frames=clears if cleared and k == 6 else ())
                s.event("alloc", 60, addr=s.at + len(blocks) * 60 * MIB, frames=KEPT)
                blocks.append((60, "a", KEPT))
            s.segment(*blocks)
            s.oom(64, 10)
            self.assertEqual(self.expect(s, "leak", 54)["growth"][0]["site"], "u/train.py:44 validate")

    def test_activations_that_outlive_one_step(self):
        """The history has the end of one step. One pass leaves at most sixteen blocks at a line for each part that the
        model has, a queue frees as much as it takes, and a few blocks are what variables hold."""
        for parts, freed, left, verdict in ((4, 0, 6, "leak"), (40, 0, 6, "full"), (4, 6, 6, "full"),
                                            (4, 0, 2, "full")):
            s, at = Snapshot(), BASE + 100 * GIB
            blocks = [*[(1, "a", WEIGHT)] * parts, *[(10, "a", INNER)] * 400]
            for k in range(left):
                s.event("alloc", 10, addr=s.at + sum(int(b[0]) for b in blocks) * MIB, frames=INNER)
                blocks.append((10, "a", INNER))
            for k in range(freed):
                for action in ("free_requested", "free_completed"):
                    s.event(action, 10, addr=at + (20 + k) * GIB)
            for stack in (BACKWARD, BACKWARD, BACKWARD, ADAM, TRAIN):
                s.passes(1, at, stack)
            s.segment(*blocks)
            s.oom(64, 10)
            got = self.expect(s, verdict, 54)
            self.assertEqual([g["site"] for g in got["growth"]], ["u/model.py:31 forward"] if verdict == "leak" else [])

    def test_rounds_that_only_call_models(self):
        """Nothing is trained, so what calls the model tells its rounds. A line leaks that holds many times as much as a
        round leaves, and more than one pass through all of the model's parts may."""
        begins = [{"filename": "/srv/u/serve.py", "line": 5, "name": "batch"}, *TRAIN]
        for parts, state, kept, verdict in ((4, 0, INNER, "leak"), (40, 0, INNER, "full"), (4, 1, INNER, "full"),
                                            (4, 0, KEPT, "full")):
            s, at = Snapshot(), BASE + 100 * GIB
            blocks = [*[(1, "a", WEIGHT)] * parts, *[(10, "a", ADAM)] * state, *[(10, "a", kept)] * 400]
            for _ in range(4):
                for k in range(6):
                    s.passes(10 if k else 1, at, kept if k else begins)
                s.event("alloc", 10, addr=s.at + sum(b[0] for b in blocks) * MIB, frames=kept)
                blocks.append((10, "a", kept))
            s.segment(*blocks)
            s.oom(64, 10)
            self.expect(s, verdict, 54)

    def test_a_rise_from_mark_to_mark(self):
        """What a step adds it adds after the least of that step, and the history begins where more is live."""
        s, at, blocks = Snapshot(), BASE + 100 * GIB, [(10, "a", KEPT)] * 400
        for k in range(8):
            for action in ("free_requested", "free_completed"):
                s.event(action, 100, addr=at + (50 + k) * GIB)
        for step in range(5):
            for stack in (FORWARD, FORWARD, ADAM):
                s.passes(64, at, stack)
            if step == 2:
                s.event("alloc", 10, addr=s.at + 4000 * MIB, frames=KEPT)
                blocks.append((10, "a", KEPT))
        s.event("alloc", 1, addr=at, frames=FORWARD)
        s.segment(*blocks, (1, "a", FORWARD))
        s.oom(64, 10)
        self.assertEqual(self.expect(s, "leak", 54)["growth"][0]["site"], "u/train.py:44 validate")

    def test_a_cache_that_is_full(self):
        """It gives up as much as it takes, and has done so for a while; before, it grew with each step."""
        for bound, verdict in ((150, "full"), (1000, "leak")):
            s, at, held, made = Snapshot(), BASE + 100 * GIB, [], BASE + 200 * GIB
            for step in range(200):
                for k, stack in enumerate((TRAIN, *[FORWARD] * 5)):
                    s.passes(64 if k else 1, at + k * GIB, stack)
                s.event("alloc", 20, addr=made, frames=KEPT)
                held.append(made)
                made += 20 * MIB
                if len(held) > bound:
                    for action in ("free_requested", "free_completed"):
                        s.event(action, 20, addr=held[0])
                    del held[0]
                s.step_ends()
            s.at = held[0]
            s.segment(*[(20, "a", KEPT)] * len(held))
            s.oom(1000, 10, frames=FORWARD)
            self.expect(s, verdict, 990)

    def test_a_history_that_begins_within_a_step(self):
        """More is live in the middle of a step than at its end, so the heap seems to have shrunk."""
        for bounded, verdict in ((False, "leak"), (True, "full")):
            s, at, blocks = Snapshot(), BASE + 100 * GIB, [(60, "a", KEPT)] * 100
            for k in range(8):
                for action in ("free_requested", "free_completed"):
                    s.event(action, 512, addr=at + (50 + k) * GIB)
            for step in range(4):
                s.event("alloc", 60, addr=s.at + len(blocks) * 60 * MIB, frames=KEPT)
                blocks.append((60, "a", KEPT))
                for action in ("free_requested", "free_completed") if bounded else ():
                    s.event(action, 60, addr=at + (20 + step) * GIB)
                s.passes(64, at, ADAM)
                s.step_ends()
            s.event("alloc", 1, addr=at, frames=FORWARD)
            s.segment(*blocks, (1, "a", FORWARD))
            s.oom(64, 10)
            self.expect(s, verdict, 54)

    def test_a_leak_of_every_so_many_steps(self):
        """The history shows one addition of many to what takes most of the memory. A line that holds little more than
        it has added, or less than half of all, may be filling a cache."""
        for held, other, bounded, verdict in ((200, 100, False, "leak"), (200, 100, True, "full"),
                                              (50, 100, False, "full"), (200, 2500, False, "full")):
            s, at, blocks = Snapshot(), BASE + 100 * GIB, [(10, "a", KEPT)] * held
            for step in range(6):
                s.passes(64, at, FORWARD)
                if step == 1:
                    s.event("alloc", 10, addr=s.at + held * 10 * MIB, frames=KEPT)
                    blocks.append((10, "a", KEPT))
                    for action in ("free_requested", "free_completed") if bounded else ():
                        s.event(action, 10, addr=at + GIB)
                s.step_ends()
            s.event("alloc", 1, addr=at, frames=FORWARD)
            s.segment(*blocks, (other, "a", TRAIN), (1, "a", FORWARD))
            s.oom(64, 10)
            got = self.expect(s, verdict, 54)
            if verdict == "leak":
                self.assertEqual(got["growth"][0]["site"], "u/train.py:44 validate")

    def test_a_leak_of_every_so_many_steps_the_last_of_them_too(self):
        """The heap is no larger in the newest steps than in those before them, until the last one adds."""
        for bounded, verdict in ((False, "leak"), (True, "full")):
            s, at, blocks = Snapshot(), BASE + 100 * GIB, [(10, "a", KEPT)] * 200
            for step in range(20):
                s.passes(64, at, FORWARD)
                if step in (3, 9, 15, 19):
                    s.event("alloc", 10, addr=s.at + len(blocks) * 10 * MIB, frames=KEPT)
                    blocks.append((10, "a", KEPT))
                    for action in ("free_requested", "free_completed") if bounded and step > 3 else ():
                        s.event(action, 10, addr=at + step * GIB)
                s.step_ends()
            s.event("alloc", 1, addr=at, frames=FORWARD)
            s.segment(*blocks, (100, "a", TRAIN), (1, "a", FORWARD))
            s.oom(64, 10)
            self.expect(s, verdict, 54)

    def test_what_an_unfinished_step_holds(self):
        """It accumulates ever more small batches. That the line has left one block before, such as a workspace of
        cuBLAS, is no leak of every so many steps."""
        s, at = Snapshot(), BASE + 100 * GIB
        s.event("alloc", 32, addr=s.at, frames=INNER)
        for step in range(20):
            for k in range(4 + step):
                s.event("alloc", 10, addr=at + k * GIB, frames=INNER)
            for k in range(4 + step):
                for action in ("free_requested", "free_completed"):
                    s.event(action, 10, addr=at + k * GIB)
            s.passes(10, at, ADAM)
            s.step_ends()
        for k in range(80):
            s.event("alloc", 10, addr=s.at + (32 + 10 * k) * MIB, frames=INNER)
        s.segment((32, "a", INNER), *[(10, "a", INNER)] * 80)
        s.oom(64, 10)
        self.expect(s, "full", 54)

    def test_copies_of_a_model(self):
        """Weights are meant to be loaded, not to be copied again and again while a model is trained."""
        def keeps(steps, made):
            s, blocks, at = Snapshot(), [(64, "a", WEIGHT)] * made, BASE + 100 * GIB
            for step in range(steps):
                for k, stack in enumerate((TRAIN, *[FORWARD] * 5)):
                    s.event("alloc", 64 if k else 1, addr=at, frames=stack)
                    s.event("free_requested", 64 if k else 1, addr=at)
                    s.event("free_completed", 64 if k else 1, addr=at)
                s.event("alloc", 64, addr=s.at + len(blocks) * 64 * MIB, frames=COPY)
                blocks.append((64, "a", COPY))
            s.segment(*blocks)
            s.oom(64, 10)
            return s

        got = self.expect(keeps(40, 4), "leak", 54)
        self.assertEqual(got["growth"][0]["site"], "u/ema.py:8 keep")
        self.expect(keeps(40, 30), "full", 54)     # no more than there are

    def test_layers_that_are_made(self):
        made = [{"filename": f"{TORCH}/nn/modules/linear.py", "line": 9, "name": "__init__"}, *TRAIN]
        self.expect(self.loop(made), "full", 54)

    def test_layers_without_stacks(self):
        """Weights and their gradients are of one size; that there are many of them is no leak, whether what is rarest
        begins with the layers' making or with their first run."""
        for forward, output, backward in ((1, 2, (3, 2)), (2, 2, (3, 3, 2, 2)), (2, 1, (3,))):
            s, blocks = Snapshot(), []

            def keep(*sizes):
                for mib in sizes:
                    s.at = BASE + (1 + len(blocks)) * GIB // 4
                    s.event("segment_alloc", mib, addr=s.at)
                    s.event("alloc", mib, addr=s.at)
                    s.segment((mib, "a"))
                    blocks.append(mib)

            def pass_by(*sizes):
                for mib in sizes:
                    s.passes(mib, BASE)

            s.segment((3, "f"), (1, "a"))
            for _ in range(24):
                keep(64, 1)
            for _ in range(24):
                pass_by(*[3] * forward)
                keep(output)
            for _ in range(24):
                pass_by(*backward)
                keep(64, 1)
            s.oom(1500, 900, frames=())
            self.expect(s, "full")

    def test_layers_of_which_only_live_blocks_have_stacks(self):
        """context="state": the events of a model's layers look like those of steps, as without any stack."""
        s, kept = Snapshot(), []
        s.segment((100, "a", TRAIN))
        for layer in range(12):
            for mib, keep in ((40, True), (41, False), (41, False), (120, False)):
                at = s.at + len(s.trace) * GIB
                s.event("alloc", mib, addr=at)
                kept += [at] if keep else []
                for action in () if keep else ("free_requested", "free_completed"):
                    s.event(action, mib, addr=at)
        s.oom(40, 10, frames=())
        for at in kept:
            for action in ("free_requested", "free_completed", "segment_free"):
                s.event(action, 40, addr=at)
        self.expect(s, "full", 30)

    def test_data_that_are_loaded(self):
        self.expect(self.loop([{"filename": "/srv/u/data.py", "line": 3, "name": "load"}, *TRAIN]), "full", 54)

    def test_one_pass_through_layers(self):
        """The loop is in a model; or it calls layers without parts."""
        inside = [{"filename": "/srv/u/model.py", "line": 30, "name": "forward"}, MODULE, *TRAIN]
        self.expect(self.loop(INNER, batch=inside), "full", 54)
        self.expect(self.loop([INNER[0], MODULE, *TRAIN]), "full", 54)


class Recorded(Case):
    """Snapshots that PyTorch's versions wrote when programs ran out of memory on a simulated device (snapshots/): a
    meter that adds losses up with their graphs, graphs of many sizes with a pool each, the first step of AdamW."""

    def test_every_snapshot(self):
        losses = ("leak", "u/fails.py:64 forward", "u/fails.py:129 run_epoch")
        expected = {"torch-2.0-losses": losses, "torch-2.9-losses": losses, "torch-2.4-graph-pools": ("pool",),
                    "torch-2.4-first-step": ("full",)}
        for path in sorted((Path(__file__).parent / "snapshots").iterdir()):
            with self.subTest(path.name):
                got = json.loads(run(path, "--json", "-").stdout)
                leak = next(((one["site"], one["loop"]) for one in got["growth"] if one["leak"]), ())
                self.assertEqual((got["verdict"], *leak), expected.pop(path.name.split(".pickle")[0]))
        self.assertEqual(expected, {})


class Versions(Case):
    def test_protocols(self):
        s = Snapshot()
        s.segment((1000, "a", TRAIN))
        s.oom(512, 100)
        for protocol in (2, 3, 4, 5):
            self.assertEqual(self.explain(s, protocol=protocol)["short_bytes"], 412 * MIB)

    def test_a_list_of_segments_without_addresses(self):
        """torch.cuda.memory_snapshot() of PyTorch 1."""
        got = self.explain([{"device": 0, "address": BASE, "total_size": 20 * MIB, "allocated_size": 5 * MIB,
                             "active_size": 5 * MIB, "segment_type": "large",
                             "blocks": [{"size": 5 * MIB, "state": "active_allocated"},
                                        {"size": 15 * MIB, "state": "inactive"}]}])
        self.assertEqual(got["verdict"], "unknown")
        self.assertEqual(got["figures"]["allocated"], 5 * MIB)
        self.assertNotIn("live_requested", got["figures"])

    def test_blocks_with_histories(self):
        """PyTorch 2.0."""
        s = Snapshot()
        block = s.segment((20, "a"))["blocks"][0]
        del block["requested_size"], block["frames"]
        block["history"] = [{"addr": BASE, "frames": FORWARD, "real_size": 19 * MIB}]
        got = self.explain(s)
        self.assertEqual(got["holders"][0]["site"], "u/model.py:31 forward")
        self.assertEqual(got["figures"]["live_requested"], 19 * MIB)

    def test_entries_without_pool_and_time(self):
        s = Snapshot()
        s.segment((1000, "a", TRAIN))
        s.oom(512, 100)
        for entry in s.trace:
            del entry["pool_id"], entry["time_us"], entry["compile_context"]
        self.expect(s, "full", 412)

    def test_json(self):
        s = Snapshot()
        s.segment((1000, "a", TRAIN))
        s.oom(512, 100)
        path = self.folder / "s.json"
        path.write_text(json.dumps(s.contents()))
        done = run(path, "--json", "-")
        self.assertEqual(json.loads(done.stdout)["short_bytes"], 412 * MIB)

    def test_the_device_that_failed(self):
        s = Snapshot(device=3)
        s.segment((1000, "a", TRAIN))
        s.oom(512, 100)
        other = Snapshot()
        other.segment((5000, "a", TRAIN))
        contents = s.contents()
        contents["segments"] += other.segments
        self.assertEqual(self.explain(contents)["device"], 3)
        got = self.explain(contents, "--device", "0")
        self.assertEqual((got["device"], got["verdict"]), (0, "unknown"))
        self.assertEqual(run(self.save(contents), "--device", "5").returncode, 2)


class Folders(Case):
    def fill(self):
        for rank, mib in ((0, 1000), (10, 3000), (2, 2000)):
            s = Snapshot()
            s.segment((mib, "a", TRAIN))
            if rank:
                s.oom(512, 100)
            self.save(s.contents(), f"snapshot_rank{rank}.pickle")
        (self.folder / "notes.txt").write_text("nothing of interest\n")
        (self.folder / ".hidden").write_text("CUDA error: out of memory\n")
        (self.folder / "snapshot_rank5.pickle.part").write_bytes(b"\x80\x02}")

    def test_one_report_the_fullest_first(self):
        self.fill()
        done = run(self.folder, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        got = json.loads(done.stdout)
        self.assertEqual([one["rank"] for one in got["ranks"]], [10, 2, 0])
        self.assertEqual((got["verdict"], got["rank"]), ("full", 10))
        text = run(self.folder, text=True).stdout
        self.assertIn("2 of 3 ran out of memory; the fullest first:", text)
        self.assertIn("out of memory, rank 10, device 0", text)

    def test_a_list_in_many_places(self):
        """26 KB were 2.8 GB."""
        blocks = [{"size": 512, "state": "active_allocated", "frames": [None]}] * 1000
        segment = {"device": 0, "address": 4096, "total_size": 512000, "stream": 0, "blocks": blocks}
        entries = [{"action": "alloc", "addr": 4096, "size": 512, "stream": 0}] * 1000
        for segments, traces, error in (([segment] * 1000, [], "segment [0-9]+: its list of blocks is another's"),
                                        ([], [entries] * 1000, "device_traces [0-9]+: is the list of another device")):
            done = run(self.save({"segments": segments, "device_traces": traces}), text=True)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, error)

    def test_a_name_with_too_large_a_number_tells_no_rank(self):
        s = Snapshot()
        s.segment((1000, "a", TRAIN))
        for name, rank in (("rank4294967301", None), ("rank7-rank99999999999999999999", 7)):
            path = self.save(s.contents(), f"{name}.pickle")
            self.assertEqual(json.loads(run(path, "--json", "-").stdout).get("rank"), rank)

    def test_a_dict_in_many_places(self):
        """A few times are fine, but a small file may not multiply the time to read it."""
        keys = ("size", "requested_size", "state", "frames", "stream", "device", "segment_type", "action",
                "addr", "device_free", "pool_id", "time_us", "user_metadata", "name", "line", "filename", "stage",
                "total_size", "is_expandable", "segment_pool_id", "segments", "device_traces", "reserved", "laid")
        large = {**dict.fromkeys(keys, 0), "blocks": [], "total_size": MIB}
        segment = {"address": BASE, "total_size": MIB, "device": 0, "blocks": []}
        for make in (lambda many: {"segments": many},
                     lambda many: {"segments": [{**segment, "blocks": many}]},
                     lambda many: {"segments": [segment], "device_traces": [many]},
                     lambda many: {"segments": [segment], "external_annotations": many},
                     lambda many: {"segments": [segment], "terrazzo": {"events": many}},
                     lambda many: {"segments": [segment], "terrazzo": {"windows": many}}):
            few, many = (run(self.save(make([large] * count))).stderr.decode() for count in (2, 10000))
            self.assertNotIn("again and again", few)
            self.assertIn("names the same large dict again and again", many)

    def test_a_rank_whose_snapshot_is_damaged(self):
        """It may be the one that matters, so its absence is told; notes are not missed."""
        self.fill()
        self.assertEqual(run(self.folder, text=True).stderr, "")
        path = self.folder / "snapshot_rank10.pickle"
        path.write_bytes(path.read_bytes()[:-100])
        done = run(self.folder, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 of 2 ran out of memory", done.stdout)
        self.assertRegex(done.stderr, "passed over 1 file, the first: .*snapshot_rank10.pickle: byte .*truncated")

    def test_a_folder_for_each_rank(self):
        for rank in (0, 1):
            (self.folder / f"rank{rank}").mkdir()
            s = Snapshot()
            s.segment((1000 + rank, "a", TRAIN))
            self.save(s.contents(), f"rank{rank}/snapshot.pickle")
        got = json.loads(run(self.folder, "--json", "-").stdout)
        self.assertEqual([one["rank"] for one in got["ranks"]], [1, 0])

    def test_an_empty_folder(self):
        done = run(self.folder, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no file in it", done.stderr)

    def test_no_snapshot_at_all(self):
        (self.folder / "notes.txt").write_text("nothing of interest\n")
        done = run(self.folder, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("notes.txt", done.stderr)


class Differences(Case):
    def diff(self, *arguments):
        done = subprocess.run([CLI, "diff", *map(str, arguments)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_what_grew_comes_first(self):
        before, after = Snapshot(), Snapshot()
        before.segment((100, "a", FORWARD), (50, "a", TRAIN), (10, "f"))
        after.segment((100, "a", FORWARD), (20, "a", TRAIN), (60, "a", FORWARD), (200, "a", ADAM))
        paths = self.save(before.contents(), "a.pickle"), self.save(after.contents(), "b.pickle")
        got = json.loads(self.diff(*paths, "--json", "-"))
        self.assertEqual(got["allocated"], [150 * MIB, 380 * MIB])
        self.assertEqual([(one["site"], one["bytes"], one["count"]) for one in got["sites"]], [
            ("u/train.py:12 main", [0, 200 * MIB], [0, 1]),
            ("u/model.py:31 forward", [100 * MIB, 160 * MIB], [1, 2]),
            ("u/train.py:9 main", [50 * MIB, 20 * MIB], [1, 1])])
        text = self.diff(*paths)
        self.assertIn("+200.00 MiB        0 bytes     200.00 MiB  u/train.py:12 main, optimizer state", text)
        self.assertIn("-30.00 MiB", text)
        self.assertIn("nothing has changed", self.diff(paths[0], paths[0]))

    def test_both_sides_are_of_one_device(self):
        """That of AFTER, if none is told, even if BEFORE has more on another."""
        paths = []
        for name, sizes in (("a.pickle", (100, 200)), ("b.pickle", (300, 250))):
            both = [Snapshot(device) for device in range(2)]
            for snapshot, mib in zip(both, sizes):
                snapshot.segment((mib, "a", TRAIN))
            paths.append(self.save({"segments": both[0].segments + both[1].segments}, name))
        for arguments, device, allocated in (((), 0, [100, 300]), (("--device", "1"), 1, [200, 250])):
            got = json.loads(self.diff(*paths, *arguments, "--json", "-"))
            self.assertEqual((got["device"], got["allocated"]), (device, [mib * MIB for mib in allocated]))
            self.assertIn(f"of device {device}\n", self.diff(*paths, *arguments))
        done = subprocess.run([CLI, "diff", "--device", "2", *paths], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("that device", done.stderr)

    def test_bad_files(self):
        good = Snapshot()
        good.segment((100, "a", FORWARD))
        path = self.save(good.contents())
        for arguments in ((path,), (path, "/no/such/file"), ("/no/such/file", path), (path, __file__)):
            done = subprocess.run([CLI, "diff", *map(str, arguments)], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, arguments)


class SnapshotAndText(Case):
    """The error's text tells the limit, the device and its other processes; the snapshot who holds the memory."""

    def both(self, snapshot, asked, free, others, held):
        text = (f"CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 8.00 GiB of which "
                f"{free} is free. {others}Of the allocated memory {held} is allocated by PyTorch, and 0 bytes is "
                "reserved by PyTorch but unallocated.")
        path, log = self.save(snapshot.contents()), self.folder / "train.log"
        log.write_text("step 3\ntorch.OutOfMemoryError: " + text)
        for arguments in ((str(path), str(log)), (str(log), str(path)), (str(self.folder),)):
            done = subprocess.run([CLI, "explain", *arguments, "--json", "-"], capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            yield json.loads(done.stdout)

    def before(self, kept):
        """Some steps before the failure."""
        s = Snapshot()
        s.segment(*[(32, "a", KEPT if kept else WEIGHT)] * 60)
        for step in range(60):
            if kept:
                s.event("alloc", 32, addr=BASE + step * 32 * MIB, frames=KEPT)
            for k, stack in enumerate((TRAIN, INNER, INNER)):
                s.passes(8, BASE + (50 + k) * GIB, stack)
        return s

    def test_a_leak_that_the_snapshot_shows_before_the_failure(self):
        """What grew until then went on to."""
        for kept, verdict in ((True, "leak"), (False, "full")):
            for got in self.both(self.before(kept), "64.00 MiB", "10.00 MiB", "", "7.90 GiB"):
                self.assertEqual(got["verdict"], verdict)
                self.assertNotIn("ranks", got)

    def test_a_leak_before_a_failure_without_figures(self):
        log = self.folder / "train.log"
        log.write_text("RuntimeError: GET was unable to find an engine to execute this computation\n")
        for kept, verdict in ((True, "leak"), (False, "unknown")):
            path = self.save(self.before(kept).contents())
            got = json.loads(run(path, str(log), "--json", "-").stdout)
            self.assertEqual((got["verdict"], got["failed"], got["asker"]), (verdict, kept, "cuDNN"))
            self.assertEqual(got["figures"]["allocated"], 1920 * MIB)
            report = run(path, str(log), text=True).stdout
            self.assertNotIn("not enough alone", report)
            self.assertIn("remedy: free, bound" if kept else "remedy: leave it memory", report)

    def test_what_the_request_is_for_in_a_snapshot_from_before(self):
        """It had hardly any activations: the traceback tells that one was asked for, as without the snapshot."""
        s = Snapshot()
        s.segment((500, "a", WEIGHT))
        s.passes(8, BASE + 50 * GIB, FORWARD)
        path, log = self.save(s.contents()), self.folder / "train.log"
        log.write_text("Traceback (most recent call last):\n" + "".join(
            f'  File "{one["filename"]}", line {one["line"]}, in {one["name"]}\n' for one in reversed(FORWARD)) +
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of "
            "8.00 GiB of which 10.00 MiB is free. Of the allocated memory 7.20 GiB is allocated by PyTorch, and 600.00 "
            "MiB is reserved by PyTorch but unallocated.")
        for files in ((str(log),), (str(path), str(log))):
            got = json.loads(subprocess.run([CLI, "explain", *files, "--json", "-"], capture_output=True,
                                            timeout=60).stdout)
            self.assertEqual((got["verdict"], got["category"]), ("full", "activations"))

    def test_limit(self):
        s = Snapshot()
        s.segment((1024, "a", FORWARD))
        s.oom(1536, 7168)
        for got in self.both(s, "1.50 GiB", "7.00 GiB", "2.00 GiB allowed; ", "1.00 GiB"):
            self.assertEqual((got["verdict"], got["short_bytes"]), ("limit", 512 * MIB))
            self.assertNotIn("ranks", got)
            self.assertEqual(got["holders"][0]["site"], "u/model.py:31 forward")

    def test_limit_that_the_text_does_not_tell(self):
        """As in PyTorch 2.4.1: the device had room."""
        s = Snapshot()
        s.segment((1024, "a", FORWARD))
        s.oom(1536, 7168)
        for got in self.both(s, "1.50 GiB", "7.00 GiB", "", "1.00 GiB"):
            self.assertEqual(got["verdict"], "limit")
            self.assertNotIn("ranks", got)

    def test_other_process(self):
        s = Snapshot()
        s.segment((2000, "a", FORWARD))
        s.oom(1024, 100)
        others = ("Process 7 has 5.80 GiB memory in use. Including non-PyTorch memory, this process has 2.10 GiB "
                  "memory in use. ")
        for got in self.both(s, "1024.00 MiB", "100.00 MiB", others, "1.95 GiB"):
            self.assertEqual((got["verdict"], got["short_bytes"]), ("other_process", 924 * MIB))

    def test_pages_of_expandable_segments(self):
        """The text tells the request's segment; the snapshot the request, which needs a page more."""
        s = Snapshot()
        s.expandable = True
        s.segment((7900, "a", FORWARD), is_expandable=True)
        s.oom(202.75, 214)
        for got in self.both(s, "204.00 MiB", "214.00 MiB", "", "7.71 GiB"):
            self.assertEqual((got["verdict"], got["short_bytes"]), ("full", 6 * MIB))
            self.assertNotIn("ranks", got)

    def test_a_text_without_figures(self):
        """As of a library that found no memory: it takes nothing from what the snapshot tells."""
        s = Snapshot()
        s.segment((7900, "a", FORWARD), (200, "f"))
        path, log = self.save(s.contents()), self.folder / "train.log"
        log.write_text("RuntimeError: CUDA error: out of memory\n")
        got = json.loads(run(path, str(log), "--device-memory", "8GiB", "--json", "-").stdout)
        self.assertEqual((got["verdict"], got["figures"]["allocated"]), ("full", 7900 * MIB))
        self.assertNotIn("ranks", got)
        log.write_text("RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.\n")
        got = json.loads(run(path, str(log), "--json", "-").stdout)
        self.assertEqual(got["verdict"], "too_large")
        self.assertNotIn(b"0.0 %", run(path, str(log)).stdout)

    def test_an_error_that_is_cut_off(self):
        """As all of PyTorch 2.3 on device 0 are."""
        s = Snapshot()
        s.segment((2000, "a", FORWARD))
        s.oom(1024, 100)
        path, log = self.save(s.contents()), self.folder / "train.log"
        log.write_text("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB. GPU ")
        got = json.loads(run(path, str(log), "--json", "-").stdout)
        self.assertEqual((got["verdict"], got["short_bytes"]), ("full", 924 * MIB))
        self.assertNotIn("ranks", got)

    def test_of_another_failure(self):
        s = Snapshot()
        s.segment((2000, "a", FORWARD))
        s.oom(1024, 100)
        for got in self.both(s, "3.00 GiB", "100.00 MiB", "", "1.95 GiB"):
            self.assertEqual(len(got["ranks"]), 2)


class Outlaw:
    def __reduce__(self):
        return os.mkdir, ("called",)


class Peak(Case):
    """--peak: the moment at which most was allocated, whatever came later."""

    def snapshot(self):
        s = Snapshot()
        at = s.at
        s.event("segment_alloc", 2000, addr=at)
        s.event("alloc", 500, addr=at, frames=WEIGHT)
        s.event("alloc", 1200, addr=at + 500 * MIB, frames=FORWARD)
        s.event("free_requested", 1200, addr=at + 500 * MIB)
        s.event("free_completed", 1200, addr=at + 500 * MIB)
        s.event("alloc", 1000, addr=at + 500 * MIB, frames=ADAM)
        s.segment((500, "a", WEIGHT), (1000, "a", ADAM), (500, "f"))
        return s

    def check(self, snapshot):
        got = self.explain(snapshot, "--peak")
        self.assertTrue(got["peak"])
        self.assertEqual((got["verdict"], got["failed"]), ("unknown", False))
        figures = got["figures"]
        self.assertEqual([figures[name] // MIB for name in ("allocated", "reserved", "pending")], [1700, 2000, 0])
        self.assertEqual([(one["site"], one["category"], one["bytes"] // MIB) for one in got["holders"]],
                         [("u/model.py:31 forward", "activations", 1200), ("u/train.py:9 main", "weights", 500)])

    def test_before_the_end(self):
        s = self.snapshot()
        self.check(s)
        text = run(self.save(s.contents()), "--peak", text=True).stdout
        self.assertTrue(text.startswith("peak of device 0: 1.66 GiB allocated, 1.95 GiB reserved\nmemory\n"), text)
        self.assertNotIn("verdict", text)

    def test_before_a_failure(self):
        s = self.snapshot()
        s.oom(900, 100)
        self.check(s)

    def test_what_knows_no_peak(self):
        s = self.snapshot()
        s.trace.clear()
        done = run(self.save(s.contents()), "--peak", text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("the snapshot has no history", done.stderr)
        done = run(Path(__file__).parent / "texts" / "torch-1.5-worked-case.txt", "--peak", text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("a text has no history", done.stderr)
        done = run(os.getpid(), "--peak", text=True)
        self.assertIn("a process tells of now", done.stderr)


class Damage(Case):
    def test_no_code_is_called(self):
        done = run(self.save({"segments": [Outlaw()], "device_traces": []}), text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("calls code: refused", done.stderr)
        self.assertFalse((self.folder / "called").exists())

    def test_cut_off(self):
        s = Snapshot()
        s.segment((1000, "a", TRAIN))
        path = self.save(s.contents())
        path.write_bytes(path.read_bytes()[:-40])
        done = run(path, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn(str(path), done.stderr)

    def test_packed(self):
        """With gzip, as a file and as standard input; so are logs."""
        s = Snapshot()
        s.segment((1000, "a", TRAIN))
        s.oom(512, 100)
        log = (Path(__file__).parent / "texts" / "torch-1.5-worked-case.txt").read_bytes()
        for contents, short in ((pickle.dumps(s.contents(), 2), 412), (log, 573.44)):
            path = self.folder / "packed"
            path.write_bytes(gzip.compress(contents))
            for done in (run(path, "--json", "-"), run("-", "--json", "-", input=path.read_bytes())):
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertAlmostEqual(json.loads(done.stdout)["short_bytes"] / MIB, short, delta=0.01)
            path.write_bytes(gzip.compress(contents)[:-20])
            for done in (run(path), run("-", input=path.read_bytes())):
                self.assertEqual(done.returncode, 2)
                self.assertIn(b"is truncated", done.stderr)

    def test_other_files(self):
        for name, contents, error in (("archive", b"PK\x03\x04", "unzip"),
                                      ("empty", b"", "is empty"), ("picture", b"\x89PNG\r\n\x1a\n", "neither"),
                                      ("a.json", b'{"a": 1}', "not a memory snapshot"),
                                      ("other.pickle", pickle.dumps({"a": 1}), "not a memory snapshot")):
            path = self.folder / name
            path.write_bytes(contents)
            done = run(path, text=True)
            self.assertEqual(done.returncode, 2, name)
            self.assertIn(error, done.stderr)
            self.assertIn(str(path), done.stderr)

    def test_json_to_a_file(self):
        s = Snapshot()
        s.segment((1000, "a", TRAIN))
        s.oom(512, 100)
        path = self.save(s.contents())
        done = run(path, "--json", str(self.folder / "out.json"), text=True)
        self.assertIn("verdict: full", done.stdout)
        self.assertEqual(json.loads((self.folder / "out.json").read_text())["verdict"], "full")
        self.assertEqual(run(path, "--json", "/no/such/folder/x").returncode, 2)


if __name__ == "__main__":
    unittest.main()
