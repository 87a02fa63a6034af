# SPDX-License-Identifier: Apache-2.0
# modes: shim hooks
"""Histories and snapshots, and PyTorch's own tools over them."""
import contextlib
import inspect
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest

import torch

import terrazzo.torch
from common import MIB, Case, bytes_on_device, driver_allocator, main, run_python, shim_only, since


annotates = unittest.skipUnless(hasattr(torch._C, "_cuda_annotateMemory"), "this PyTorch has no annotations")
notes = unittest.skipUnless(hasattr(torch.cuda.memory, "_set_memory_metadata"), "this PyTorch has no metadata")
leaves_traces_out = unittest.skipUnless(
    "include_traces" in inspect.signature(torch.cuda.memory_snapshot).parameters, "this PyTorch always copies traces")


@contextlib.contextmanager
def recording(**options):
    torch.cuda.memory._record_memory_history(stacks="python", **options)
    try:
        yield
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def traces():
    return torch.cuda.memory._snapshot()["device_traces"][0]


def functions(event):
    return {frame["name"] for frame in event.get("frames", ())}


def frames_at(address):
    """Those of the live allocation there."""
    [frames] = [block["frames"] for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]
                if (block["address"], block["state"]) == (address, "active_allocated")]
    return frames


def actions(events, action):
    return [event for event in events if event["action"] == action]


def viz(command, path, *options):
    """The output of PyTorch's viewer for a file; it fails on one that it cannot read."""
    done = subprocess.run([sys.executable, "-m", "torch.cuda._memory_viz", command, path, *options],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Files(Case):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def make(self, name):
        terrazzo.torch.history(True, events=1000)
        with terrazzo.torch.tag("kept"):
            held = [bytes_on_device(i * MIB) for i in (1, 2, 30)]
        del held[1]
        terrazzo.torch.snapshot(self.path(name))
        terrazzo.torch.history(False)
        return held

    def test_the_viewers_commands_take_the_pickle(self):
        held = self.make("a.pickle")
        self.assertIn("total_reserved", viz("stats", self.path("a.pickle")))
        self.assertIn("free completed for b 2.0MiB", viz("trace", self.path("a.pickle")))
        for command in ("trace_plot", "segment_plot"):
            viz(command, self.path("a.pickle"), "-o", self.path("a.html"))
            self.assertGreater(os.path.getsize(self.path("a.html")), 1000)
        del held

    def test_a_file_that_cannot_be_leaves_nothing(self):
        os.mkdir(self.path("a.pickle"))
        with self.assertRaises(OSError):
            self.make("a.pickle")
        terrazzo.torch.history(False)
        self.assertEqual(os.listdir(self.folder.name), ["a.pickle"])

    def test_an_error_tells_of_its_own_call(self):
        with self.assertRaisesRegex(terrazzo.torch.Error, "there is no device 99"):
            terrazzo.torch.stats(99)
        with self.assertRaisesRegex(terrazzo.torch.Error, "none/a.json: cannot be created"):
            terrazzo.torch.snapshot(self.path("none/a.json"))

    def test_json_has_the_same(self):
        held = self.make("a.json")
        with open(self.path("a.json"), encoding="utf-8") as stream:
            found = json.load(stream)
        addresses = {b["address"] for s in found["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
        self.assertLessEqual({t.data_ptr() for t in held}, addresses)
        for segment in found["segments"]:
            self.assertEqual(sum(b["size"] for b in segment["blocks"]), segment["total_size"])
        frames = {t["name"] for e in found["device_traces"][0] if e["action"] == "alloc" for t in e["frames"]}
        self.assertLessEqual({"bytes_on_device", "make", "test_json_has_the_same"}, frames)
        tagged = [e for e in found["device_traces"][0] if e["action"] == "alloc" and e["user_metadata"] == "kept"]
        self.assertEqual(len(tagged), 3)
        del held

    def test_tags_that_no_other_has(self):
        kept = terrazzo.torch._native_library()._tags
        for i in range(100):
            with terrazzo.torch.tag(f"request {i}"):
                pass
        self.assertLess(len(kept), 20)
        with self.assertRaises(AttributeError), terrazzo.torch.tag(3):
            pass
        terrazzo.torch.history()
        with terrazzo.torch.tag("a file's name \udcff"):
            held = bytes_on_device(MIB)
        terrazzo.torch.snapshot(self.path("a.json"))
        terrazzo.torch.history(False)
        with open(self.path("a.json"), encoding="utf-8") as stream:
            events = json.load(stream)["device_traces"][0]
        self.assertEqual([e["user_metadata"] for e in actions(events, "alloc")], ["a file's name ?"])
        del held

    def test_mappings_tell_who_maps(self):
        terrazzo.torch.trim()
        terrazzo.torch.history(True, events=1000)
        with terrazzo.torch.tag("large"):
            x = bytes_on_device(600 * MIB)
            del x
        with terrazzo.torch.tag("over"):
            terrazzo.torch.trim()
        terrazzo.torch.snapshot(self.path("a.json"))
        terrazzo.torch.history(False)
        with open(self.path("a.json"), encoding="utf-8") as stream:
            events = json.load(stream)["device_traces"][0]
        for action, tag, function in (("segment_map", "large", "bytes_on_device"), ("segment_unmap", "over", "trim")):
            self.assertEqual({e["user_metadata"] for e in actions(events, action)}, {tag}, action)
            self.assertTrue(all(function in functions(e) for e in actions(events, action)), action)

    def test_categories(self):
        model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 8)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        tracker = terrazzo.torch.track(model, optimizer)
        size = sum(p.numel() * 4 for p in model.parameters())
        out = model(torch.randn(64, 512, device="cuda"))
        during = tracker.categories()
        self.assertGreater(during["activations"], 64 * 2048 * 4)
        self.assertEqual(during["gradients"], 0)
        out.sum().backward()
        optimizer.step()
        del out
        after = tracker.categories()
        for name in ("weights", "gradients"):
            self.assertTrue(size <= after[name] <= size * 1.1, after)
        self.assertTrue(2 * size <= after["optimizer"] <= 2.2 * size, after)
        self.assertLess(after["activations"], during["activations"])
        optimizer.zero_grad()
        self.assertLess(tracker.categories()["gradients"], after["gradients"])
        self.assertEqual(sys.modules["terrazzo.torch._track"].most, after)  # for the report of terrazzo sim
        tracker.close()
        terrazzo.torch.history(False)


class Arguments(Case):
    def test_a_word_that_does_not_exist_is_refused(self):
        for words in ({"enabled": "some"}, {"context": "some"}, {"stacks": "some"}):
            with self.assertRaisesRegex(RuntimeError, "^expected (state|context|stacks) to be "):
                torch.cuda.memory._record_memory_history(**words)
        self.assertFalse(torch._C._cuda_isHistoryEnabled())

    def test_a_state_has_no_past(self):
        with recording(enabled="state"):
            held = [bytes_on_device(MIB) for _ in range(20)]
            self.assertLessEqual(len(traces()), 2)  # a snapshot is one, too
        del held

    def test_a_truth_begins_and_ends_a_history(self):
        torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=100)
        x = bytes_on_device(MIB)
        self.assertEqual([e["addr"] for e in actions(traces(), "alloc")], [x.data_ptr()])
        del x
        torch.cuda.memory._record_memory_history(False)
        self.assertFalse(torch._C._cuda_isHistoryEnabled())


class Recordings(Case):
    def test_segments_add_up_to_the_statistics(self):
        held = [bytes_on_device(size) for size in (100, 4700, 33000, 5 * MIB + 1)]
        segments, stats = torch.cuda.memory_snapshot(), torch.cuda.memory_stats()
        for part, name in (("allocated_size", "allocated_bytes"), ("active_size", "active_bytes"),
                           ("requested_size", "requested_bytes"), ("total_size", "reserved_bytes")):
            self.assertEqual(sum(s[part] for s in segments), stats[f"{name}.all.current"], part)
        del held

    def test_the_newest_events_are_kept(self):
        with recording(max_entries=40):
            for i in range(1, 301):
                x = bytes_on_device(i * 512)
                del x
            events = traces()
        made = actions(events, "alloc")
        self.assertEqual(len(events), 40)
        self.assertEqual(made[-1]["size"], 300 * 512)
        self.assertTrue(all(e["frames"] for e in made))

    @since(11)
    def test_skipped_actions(self):
        with recording(skip_actions=["free_requested", "free_completed"]):
            x = bytes_on_device(MIB)
            del x
            events = traces()
        self.assertEqual(len(actions(events, "alloc")), 1)
        self.assertEqual(actions(events, "free_requested") + actions(events, "free_completed"), [])

    @since(11)
    def test_an_unknown_action_cannot_be_skipped(self):
        with self.assertRaisesRegex(RuntimeError, "Unknown TraceEntry action: allocs"):
            torch.cuda.memory._record_memory_history(skip_actions=["allocs"])
        with self.assertRaisesRegex(RuntimeError, "Unknown TraceEntry action: allocs"):
            torch.cuda.memory._record_memory_history(True, skip_actions=["allocs"])
        self.assertFalse(torch._C._cuda_isHistoryEnabled())

    def test_to_begin_again_forgets_nothing(self):
        with recording(max_entries=100):
            x = bytes_on_device(3 * MIB)
            torch.cuda.memory._record_memory_history(stacks="python", max_entries=100)
            y = bytes_on_device(5 * MIB)
            self.assertEqual([e["size"] for e in actions(traces(), "alloc")], [3 * MIB, 5 * MIB])
            self.assertTrue(frames_at(x.data_ptr()) and frames_at(y.data_ptr()))
        del x, y

    @since(15)
    def test_a_recording_may_leave_the_device_out(self):
        with recording(record_cuda=False):
            self.assertFalse(torch._C._cuda_isHistoryEnabled())

    @since(8)
    def test_a_graphs_pool_has_its_own_segments(self):
        pool, graph = torch.cuda.graph_pool_handle(), torch.cuda.CUDAGraph()
        outside = bytes_on_device(3 * MIB)
        with torch.cuda.graph(graph, pool=pool):
            inside = bytes_on_device(5 * MIB)
        held = [block["address"] for segment in torch.cuda.memory_snapshot(pool) for block in segment["blocks"]
                if block["state"] == "active_allocated"]
        self.assertEqual(held, [inside.data_ptr()])
        del outside, inside


@shim_only
class History(Case):
    def test_allocations_and_frees_with_frames(self):
        with recording():
            x = bytes_on_device(3 * MIB)
            del x
            events = traces()
        made = actions(events, "alloc")
        self.assertEqual([e["size"] for e in made], [3 * MIB])
        self.assertTrue(any(f["name"] == "bytes_on_device" and f["filename"].endswith("common.py")
                            for f in made[0]["frames"]))
        self.assertEqual(len(actions(events, "free_requested")), 1)
        self.assertEqual(len(actions(events, "free_completed")), 1)

    def test_a_snapshot_is_an_event_of_the_next(self):
        with recording():
            x = bytes_on_device(3 * MIB)
            self.assertEqual(traces()[-1]["action"], "alloc")
            self.assertEqual([(e["addr"], e["size"]) for e in actions(traces(), "snapshot")],
                             [(0, torch.cuda.memory_allocated())])
        del x

    def test_pinned_memorys_settings_are_pytorchs(self):
        self.assertEqual(torch.cuda.memory._snapshot()["allocator_settings"]["pinned_num_register_threads"], 1)
        torch.cuda.memory._set_allocator_settings("pinned_num_register_threads:4")
        self.assertEqual(torch.cuda.memory._snapshot()["allocator_settings"]["pinned_num_register_threads"], 4)
        torch.cuda.memory._set_allocator_settings("pinned_num_register_threads:1")

    @annotates
    def test_what_has_been_freed_takes_no_note(self):
        with recording():
            x = bytes_on_device(3 * MIB)
            address = x.data_ptr()
            torch._C._cuda_annotateMemory(address, "held")
            del x
            with self.assertRaisesRegex(RuntimeError, "no live allocation"):
                torch._C._cuda_annotateMemory(address, "gone")

    def test_blocks_have_the_frames_of_their_allocation(self):
        with recording():
            x = bytes_on_device(3 * MIB)
            blocks = [b for s in torch.cuda.memory_snapshot() for b in s["blocks"] if b["address"] == x.data_ptr()]
            self.assertTrue(any(f["name"] == "bytes_on_device" for f in blocks[0]["frames"]))
            if hasattr(torch.cuda.memory, "_allocation_traceback"):
                self.assertTrue(torch.cuda.memory._allocation_traceback(x.data_ptr()))
        del x

    @since(8)
    def test_a_recording_has_what_pools_with_an_allocator_of_their_own_allocate_later(self):
        code = f"""
import torch
torch.cuda.memory._record_memory_history(stacks="python")
other = torch.cuda.memory.CUDAPluggableAllocator({driver_allocator()!r}, "take", "give")
pool = torch.cuda.MemPool(other.allocator())
def held():
    return torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
note = getattr(torch.cuda.memory, "_set_memory_metadata", lambda text: None)
note("phase one")
with torch.cuda.use_mem_pool(pool):
    x = held()
note("")
found = torch.cuda.memory._snapshot()
print([b["frames"][0]["name"] for s in found["segments"] for b in s["blocks"] if b["address"] == x.data_ptr()])
print([t["action"] for t in found["device_traces"][0] if t["addr"] == x.data_ptr()].count("alloc"))
print(*(t.get("user_metadata", "phase one") for t in found["device_traces"][0] if t["action"] == "alloc"))
trace = getattr(torch.cuda.memory, "_allocation_traceback", None)
print(not trace or "held" in str(trace(x.data_ptr())))
"""
        status, out, err = run_python(code, mode="shim")
        self.assertEqual((status, out.splitlines()), (0, ["['held']", "1", "phase one", "True"]), err)

    def test_frames_outlast_the_recording_and_end_with_the_memory(self):
        for size in 3 * MIB, 1000:
            with recording():
                x = bytes_on_device(size)
            address = x.data_ptr()
            self.assertIn("bytes_on_device", functions({"frames": frames_at(address)}))
            with recording():
                self.assertTrue(frames_at(address))
            del x
            x = bytes_on_device(size)
            self.assertEqual(x.data_ptr(), address)
            self.assertEqual(frames_at(address), [])
            del x

    def test_frames_end_with_what_a_checkpoint_undoes(self):
        graph, other = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with recording():
            with torch.cuda.graph(graph):
                kept = bytes_on_device(5 * MIB)
            state = torch._C._cuda_getCheckpointState(0, graph.pool())
            with torch.cuda.graph(other, pool=graph.pool()):
                undone = bytes_on_device(5 * MIB)
        address = undone.data_ptr()
        torch._C._cuda_setCheckpointPoolState(0, state, [undone.untyped_storage()._cdata], [])
        self.assertTrue(frames_at(kept.data_ptr()))
        with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=graph.pool()):
            again = bytes_on_device(5 * MIB)
        self.assertEqual(again.data_ptr(), address)
        self.assertEqual(frames_at(address), [])
        del kept, undone, again, graph, other

    def test_what_a_checkpoint_makes_live_has_the_frames_of_the_restore(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = [bytes_on_device(size) for size in (5 * MIB, 1000)]
        state = torch._C._cuda_getCheckpointState(0, graph.pool())
        addresses = [x.data_ptr() for x in kept]
        kept.clear()
        with recording():
            torch._C._cuda_setCheckpointPoolState(0, state, [], [])
            made = actions(traces(), "alloc")
        self.assertEqual(sorted(e["addr"] for e in made), sorted(addresses))
        name = "test_what_a_checkpoint_makes_live_has_the_frames_of_the_restore"
        for event, address in zip(made, addresses):
            self.assertIn(name, functions(event))
            self.assertIn(name, functions({"frames": frames_at(address)}))
            torch._C._cuda_cudaCachingAllocator_raw_delete(address)

    @notes
    def test_every_note_finds_its_event(self):
        with recording(context="all"):
            for i in range(200):
                torch.cuda.memory._set_memory_metadata(f"step {i}")
                x = bytes_on_device(1000 + 512 * (i % 3))
                del x
            torch.cuda.memory._set_memory_metadata("")
            events = traces()
        self.assertEqual([e["user_metadata"] for e in actions(events, "alloc")], [f"step {i}" for i in range(200)])
        self.assertEqual([e["user_metadata"] for e in actions(events, "free_requested")],
                         [f"step {i}" for i in range(200)])

    def test_a_recording_becomes_longer(self):
        with recording(max_entries=4):
            with recording(max_entries=1000):
                held = [bytes_on_device(MIB) for _ in range(50)]
                self.assertEqual(len(actions(traces(), "alloc")), 50)
        del held

    @annotates
    def test_annotations(self):
        with recording():
            x = bytes_on_device(MIB)
            torch.cuda.memory._annotate_tensor(x, "the first")
            events = traces()
        noted = actions(events, "annotate")
        self.assertEqual([(e["addr"], e["user_metadata"]) for e in noted], [(x.data_ptr(), "the first")])
        del x

    @annotates
    def test_the_newest_annotations_are_kept(self):
        with recording(max_entries=10, global_record_annotations=True):
            x = bytes_on_device(MIB)
            for i in range(30):
                torch.cuda.memory._annotate_tensor(x, str(i))
                with torch.profiler.record_function(str(i)):
                    pass
            snapshot = torch.cuda.memory._snapshot()
        noted = [e["user_metadata"] for e in actions(snapshot["device_traces"][0], "annotate")]
        self.assertEqual(noted, [str(i) for i in range(20, 30)])
        self.assertEqual([a["name"] for a in snapshot["external_annotations"]], [str(i // 2) for i in range(50, 60)])
        del x

    @leaves_traces_out
    def test_without_traces(self):
        with recording():
            x = bytes_on_device(MIB)
            segments = torch.cuda.memory_snapshot(include_traces=False)
        self.assertTrue(segments)
        del x

    def test_growth_is_told(self):
        torch.cuda.empty_cache()
        with recording():
            x = bytes_on_device(600 * MIB)
            del x
            torch.cuda.empty_cache()
            events = traces()
        self.assertTrue(actions(events, "segment_map"))
        self.assertTrue(actions(events, "segment_unmap"))

    @notes
    def test_mappings_have_stacks_and_metadata(self):
        """As PyTorch's own: what has no stack itself, since frees are not looked at, has that of its mapping."""
        for context, unmapper in (("all", "empty_cache"), ("alloc", "bytes_on_device")):
            torch.cuda.empty_cache()
            torch.cuda.memory._set_memory_metadata("of all")
            with recording(context=context):
                x = bytes_on_device(600 * MIB)
                del x
                torch.cuda.empty_cache()
                torch.cuda.memory._set_memory_metadata("")
                events = traces()
            self.assertEqual({e["user_metadata"] for e in events}, {"of all"}, events)
            for action, function in (("segment_map", "bytes_on_device"), ("segment_unmap", unmapper)):
                self.assertTrue(actions(events, action))
                self.assertTrue(all(function in functions(e) for e in actions(events, action)), (context, action))

    def test_no_event_has_a_stack_that_was_not_asked_for(self):
        torch.cuda.empty_cache()
        with recording(context="state"):
            x = bytes_on_device(600 * MIB)
            del x
            torch.cuda.empty_cache()
            events = traces()
        self.assertTrue(actions(events, "segment_unmap"))
        self.assertEqual([e for e in events if functions(e)], [])

    def test_trims_in_vain_push_no_stack_out(self):
        with recording(max_entries=40):
            x = bytes_on_device(MIB)
            for _ in range(200):
                torch.cuda.empty_cache()
                terrazzo.torch.trim()
            made = actions(traces(), "alloc")
        self.assertEqual([("bytes_on_device" in functions(e)) for e in made], [True])
        del x

    @shim_only
    def test_a_history_ends_while_another_thread_trims(self):
        over = threading.Event()

        def trim():
            while not over.is_set():
                bytes_on_device(64 * MIB)
                torch.cuda.empty_cache()

        threads = [threading.Thread(target=trim) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(5000):
            torch.cuda.memory._record_memory_history(max_entries=1000)
            torch.cuda.memory._record_memory_history(enabled=None)
        over.set()
        for thread in threads:
            thread.join()

    def test_a_history_of_ours_leaves_that_of_pytorch(self):
        torch.cuda.empty_cache()
        with recording():
            terrazzo.torch.history(True, events=10)
            x = bytes_on_device(600 * MIB)
            terrazzo.torch.history(False)
            del x
            terrazzo.torch.trim()
            events = traces()
        self.assertTrue(all("bytes_on_device" in functions(e) for e in actions(events, "segment_map")))
        self.assertEqual([len(functions(e)) > 0 for e in actions(events, "free_requested")], [True])
        self.assertTrue(actions(events, "segment_unmap"))
        self.assertTrue(all("trim" in functions(e) for e in actions(events, "segment_unmap")))

    def test_the_dump_of_pytorch_itself(self):
        with tempfile.TemporaryDirectory() as folder, recording():
            x = bytes_on_device(MIB)
            path = os.path.join(folder, "s.pickle")
            torch.cuda.memory._dump_snapshot(path)
            with open(path, "rb") as stream:
                found = pickle.load(stream)
            self.assertLessEqual({"segments", "device_traces", "allocator_settings", "external_annotations"},
                                 set(found))
            self.assertIs(found["allocator_settings"]["expandable_segments"], True)
            self.assertIn("total_reserved", viz("stats", path))
            del x

    def test_history_is_off_by_default(self):
        self.assertFalse(torch._C._cuda_isHistoryEnabled())
        x = bytes_on_device(MIB)
        self.assertEqual(actions(traces(), "alloc"), [])
        del x

    def test_failures_beside_snapshots(self):
        """The thread that takes a snapshot holds the interpreter's lock, and waits for threads that allocate."""
        code = ("import threading, torch\ntorch.cuda.memory._record_memory_history(max_entries=1000)\nover = []\n"
                "def fail():\n"
                "    while not over:\n"
                "        try: torch.empty(1 << 40, dtype=torch.uint8, device='cuda')\n"
                "        except torch.OutOfMemoryError: pass\n"
                "threads = [threading.Thread(target=fail) for _ in range(3)]\n"
                "for t in threads: t.start()\n"
                "for _ in range(200): torch.cuda.memory._snapshot()\n"
                "over.append(True)\n"
                "for t in threads: t.join()\n"
                "print('over')")
        status, out, err = run_python(code, mode="shim")
        self.assertEqual((status, out.split()), (0, ["over"]), err)

    def test_sections_of_a_profile(self):
        with recording(global_record_annotations=True):
            with torch.profiler.record_function("a section"):
                x = bytes_on_device(MIB)
            found = torch.cuda.memory._snapshot()["external_annotations"]
        self.assertEqual([a["stage"] for a in found if a["name"] == "a section"], ["START", "END"])
        del x


if __name__ == "__main__":
    main()
