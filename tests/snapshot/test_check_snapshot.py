#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_snapshot.py passes good snapshots and finds a break of each of its rules."""
import copy
import io
import json
import os
import pickle
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

sys.path.insert(0, os.path.join(os.environ["TRZ_SOURCE_DIR"], "tools"))
import check_snapshot  # noqa: E402

MIB = 1 << 20
BASE = 0x7F00_0000_0000


def block(address, size, state="inactive", requested=None, **more):
    if requested is None:
        requested = 0 if state == "inactive" else size
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": [], **more}


def segment(address, blocks, **more):
    active = [b for b in blocks if b["state"] != "inactive"]
    return {"device": 0, "address": address, "total_size": sum(b["size"] for b in blocks),
            "allocated_size": sum(b["size"] for b in active if b["state"] == "active_allocated"),
            "active_size": sum(b["size"] for b in active),
            "requested_size": sum(b["requested_size"] for b in active),
            "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0], "is_expandable": True, "frames": [],
            "blocks": blocks, **more}


def entry(action, addr=0, size=512, **more):
    where = {"device_free": addr} if action == "oom" else {"addr": addr}
    return {"action": action, **where, "size": size, "stream": 0, "time_us": 1_790_000_000_000_000,
            "compile_context": "N/A", "user_metadata": "", "pool_id": [0, 0], **more}


def snapshot(segments, *traces):
    return {"segments": segments, "device_traces": [list(trace) for trace in traces],
            "allocator_settings": {"max_split_size": -1}, "external_annotations": [], "host_segments": [],
            "host_traces": []}


def good():
    """Two segments of device 0 with a held and a pending block, a third that came and went, a history of all."""
    one = segment(BASE, [block(BASE, 1024, "active_allocated", 1000), block(BASE + 1024, 1024),
                         block(BASE + 2048, 512, "active_pending_free"),
                         block(BASE + 2560, 4 * MIB - 2560)])
    two = segment(BASE + 8 * MIB, [block(BASE + 8 * MIB, 2 * MIB)], is_expandable=False)
    trace = [
        entry("segment_map", BASE, 2 * MIB),                          # 0
        entry("alloc", BASE + 1024, 700),
        entry("segment_map", BASE + 2 * MIB, 4 * MIB),                # 2
        entry("alloc", BASE, 1000, frames=[{"filename": "a.py", "line": 1, "name": "f"}]),
        entry("alloc", BASE + 2048, 512),                             # 4
        entry("free_requested", BASE + 1024, 700),
        entry("free_completed", BASE + 1024, 700),                    # 6
        entry("segment_unmap", BASE + 4 * MIB, 2 * MIB),
        entry("segment_alloc", BASE + 8 * MIB, 2 * MIB),              # 8
        entry("segment_alloc", BASE + 16 * MIB, 2 * MIB),
        entry("oom", 123, 1 << 40),                                   # 10
        entry("alloc", BASE + 16 * MIB, 5),
        entry("free_requested", BASE + 16 * MIB, 5),                  # 12
        entry("free_completed", BASE + 16 * MIB, 5),
        entry("segment_free", BASE + 16 * MIB, 2 * MIB),              # 14
        entry("free_requested", BASE + 2048, 512),
        entry("snapshot", 0, 1536),                                   # 16
    ]
    return snapshot([one, two], trace)


class Rules(unittest.TestCase):
    def finds(self, rule, change):
        """The good snapshot, changed, breaks this rule and no other."""
        broken = good()
        change(broken)
        found = check_snapshot.check(broken)
        self.assertEqual([problem.split(":")[0] for problem in found], [rule], found)

    def sets(self, rule, value, *path):
        def change(owner):
            for key in path[:-1]:
                owner = owner[key]
            owner[path[-1]] = value
        self.finds(rule, change)

    def misses(self, *path):
        def change(owner):
            for key in path[:-1]:
                owner = owner[key]
            del owner[path[-1]]
        self.finds("form", change)

    def drops(self, rule, *indices):
        """The rule is broken when these entries of the trace are not there."""
        def change(s):
            s["device_traces"][0] = [e for i, e in enumerate(s["device_traces"][0]) if i not in indices]
        self.finds(rule, change)

    def test_good(self):
        self.assertEqual(check_snapshot.check(good()), [])
        self.assertEqual(check_snapshot.check(snapshot([])), [])

    def test_every_beginning_may_be_forgotten(self):
        for kept in range(len(good()["device_traces"][0]) + 1):
            wrapped = good()
            del wrapped["device_traces"][0][:kept]
            self.assertEqual(check_snapshot.check(wrapped), [], kept)

    def test_keys(self):
        for key in check_snapshot.TOP:
            self.misses(key)
        for key in check_snapshot.SEGMENT:
            self.misses("segments", 1, key)
        for key in check_snapshot.BLOCK:
            self.misses("segments", 0, "blocks", 2, key)
        for key in list(check_snapshot.ENTRY) + ["addr"]:
            self.misses("device_traces", 0, 4, key)
        self.misses("device_traces", 0, 10, "device_free")
        for key in check_snapshot.FRAME:
            self.misses("device_traces", 0, 3, "frames", 0, key)

    def test_types(self):
        self.sets("form", "0", "segments", 0, "address")
        self.sets("form", True, "segments", 0, "stream")
        self.sets("form", 1, "segments", 0, "is_expandable")
        self.sets("form", [0], "segments", 0, "segment_pool_id")
        self.sets("form", None, "segments", 0, "blocks", 0, "frames")
        self.sets("form", {}, "device_traces", 0)
        self.sets("form", 7, "device_traces", 0, 0)
        self.assertEqual(check_snapshot.check([])[0], "form: snapshot: is not an object")

    def test_words(self):
        self.sets("form", "active", "segments", 0, "blocks", 0, "state")
        self.sets("form", "medium", "segments", 0, "segment_type")
        for action in ("flip", "free", "wait"):
            self.sets("form", action, "device_traces", 0, 4, "action")

    def test_sizes(self):
        self.sets("form", 1025, "segments", 0, "blocks", 0, "requested_size")
        self.sets("form", -1, "segments", 0, "blocks", 1, "requested_size")
        self.sets("form", 0, "segments", 0, "blocks", 1, "size")
        self.sets("form", -5, "device_traces", 0, 10, "size")

    def test_numbers(self):
        self.sets("number", 1 << 53, "device_traces", 0, 10, "device_free")
        self.sets("number", -(1 << 53), "segments", 0, "stream")
        self.sets("number", (1 << 63) - 1, "allocator_settings", "max_split_size")
        self.sets("number", float("inf"), "allocator_settings", "garbage_collection_threshold")
        self.sets("number", float("nan"), "allocator_settings", "garbage_collection_threshold")

    def test_order(self):
        self.finds("order", lambda s: s["segments"].reverse())
        self.finds("order", lambda s: s["segments"].append(copy.deepcopy(s["segments"][1])))
        self.sets("order", 1, "device_traces", 0, 9, "time_us")

    def test_tiling(self):
        self.finds("tiling", lambda s: s["segments"][0]["blocks"].pop(1))
        self.finds("tiling", lambda s: s["segments"][0]["blocks"].pop())
        self.sets("tiling", BASE, "segments", 0, "blocks", 1, "address")
        self.sets("tiling", 512, "segments", 0, "blocks", 1, "size")
        self.sets("tiling", 8 * MIB, "segments", 0, "total_size")
        self.sets("tiling", [], "segments", 1, "blocks")

    def test_sums(self):
        for key in ("allocated_size", "active_size", "requested_size"):
            self.sets("sum", 1, "segments", 0, key)

    def test_devices(self):
        self.sets("device", 1, "segments", 1, "device")
        self.sets("device", [], "device_traces")

    def test_categories(self):
        self.sets("category", "weights", "device_traces", 0, 3, "category")
        fine = good()
        fine["device_traces"][0][3]["category"] = "weights"
        fine["device_traces"][0][4]["category"] = "unknown"
        self.assertEqual(check_snapshot.check(fine), [])

    def test_segments_of_the_replay(self):
        self.drops("segment", 7)       # an unmap: the map of four lies in no segment
        self.drops("segment", 11, 12, 13, 14)
        self.sets("segment", 4 * MIB, "device_traces", 0, 8, "size")
        self.sets("segment", 1, "device_traces", 0, 7, "stream")    # not joined, so the map meets two halves
        self.sets("segment", BASE + 2 * MIB, "device_traces", 0, 7, "addr")  # unmapped, and there now
        self.sets("segment", BASE + 6 * MIB, "device_traces", 0, 2, "addr")

        def late(s):                   # memory is mapped after what was allocated in it
            trace = s["device_traces"][0]
            trace[0], trace[1] = trace[1], trace[0]
        self.finds("segment", late)

    def test_blocks_of_the_replay(self):
        self.drops("block", 5, 6)      # never freed and not there
        self.drops("block", 12, 13)
        self.drops("block", 14)        # a segment_free: what was freed lay nowhere
        self.sets("block", 999, "device_traces", 0, 3, "size")
        self.sets("block", BASE + 12 * MIB, "device_traces", 0, 6, "addr")   # a free in no segment
        self.sets("block", 2 * MIB, "device_traces", 0, 6, "size")           # over what is held
        self.sets("block", BASE, "device_traces", 0, 6, "addr")

    def test_pairs(self):
        self.drops("pair", 5)
        self.drops("pair", 6)
        self.drops("pair", 15)         # pending without a request
        self.finds("pair", lambda s: s["device_traces"][0].append(entry("free_requested", BASE, 1000)))
        self.finds("pair", lambda s: s["device_traces"][0].append(entry("free_requested", BASE + 4 * MIB)))

    def test_tiles(self):
        def row(*cells):
            return [BASE + cells[0] * MIB, cells[1] * MIB, *cells[2:]]

        def windows(*rows, laid=16, **more):
            return lambda s: s.update(terrazzo={"windows": [{
                "address": BASE, "reserved": 32 * MIB, "laid": laid * MIB, "pool_id": [0, 0], "kind": "packed",
                "segment_type": "large", "tiles": list(rows), **more}]})

        used, idle = (row(0, 2, "used"), row(2, 2, "idle")), row(8, 2, "idle")
        fine = good()
        windows(*used, row(4, 2, "alias", BASE + 8 * MIB), row(6, 2, "zombie"), idle)(fine)
        self.assertEqual(check_snapshot.check(fine), [])
        self.finds("tile", windows(*used, idle, laid=9))                        # beyond what is laid
        self.finds("tile", windows(*used, idle, laid=33))
        self.finds("tile", windows(*used, idle, kind="other"))
        self.finds("tile", windows(row(0, 4, "used"), row(2, 2, "idle"), idle)) # overlaps
        self.finds("tile", windows(*used))                                      # a segment has no tile
        self.finds("tile", windows(*used, row(4, 2, "idle"), idle))             # a tile has no segment
        self.finds("tile", windows(row(0, 2, "idle"), row(2, 2, "idle"), idle)) # blocks lie in it
        self.finds("tile", windows(*used, row(8, 2, "used")))                   # none lies in it
        self.finds("tile", windows(*used, row(4, 2, "alias", BASE + 6 * MIB), idle))
        self.finds("form", windows(*used, row(4, 2, "alias"), idle))
        self.finds("form", windows(*used, row(4, 2, "lost"), idle))
        self.finds("form", windows(*used, idle, tiles=0))

    def test_only_the_broken_device_is_named(self):
        both = good()
        both["device_traces"].append([entry("segment_map", BASE, 2 * MIB)])
        self.assertRegex(check_snapshot.check(both)[0], r"^segment: device_traces\[1\]\[0\] segment_map")


class Command(unittest.TestCase):
    def run_on(self, *contents):
        """(exit status, output) for files with these contents."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, content in enumerate(contents):
                paths.append(Path(folder, str(number)))
                if content is not None:
                    paths[-1].write_bytes(content)
            out = io.StringIO()
            with redirect_stdout(out), redirect_stderr(io.StringIO()):
                status = check_snapshot.main(list(map(str, paths)))
            return status, out.getvalue()

    def test_json_and_pickle(self):
        text = json.dumps(good()).encode()
        self.assertEqual(self.run_on(text, pickle.dumps(good(), 2), pickle.dumps(good(), 4)), (0, ""))

    def test_a_break_is_told(self):
        broken = good()
        broken["segments"][0]["active_size"] = 1
        status, output = self.run_on(json.dumps(good()).encode(), json.dumps(broken).encode())
        self.assertEqual(status, 1)
        self.assertRegex(output, r"/1: sum: segments\[0\]: active_size is 1, that of its blocks 1536\n$")

    def test_unreadable(self):
        code = pickle.dumps(os.path.join)
        for content in (None, b"", b"{", b"\xff", b'{"a": 1, "a": 2}', code, pickle.dumps(good())[:-9]):
            status, output = self.run_on(content)
            self.assertEqual(status, 2, content)
            self.assertIn("cannot be read", output)
        self.assertEqual(self.run_on()[0], 2)


if __name__ == "__main__":
    unittest.main()
