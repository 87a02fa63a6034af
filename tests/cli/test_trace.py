#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""terrazzo trace: the format that Perfetto and chrome://tracing read, and the figures in it."""
import json
import os
import subprocess
import unittest
from collections import defaultdict
from pathlib import Path

import page_sample

CLI = os.environ["TERRAZZO_CLI"]
SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
# What each phase must have besides ph, name, pid, tid and ts: "Trace Event Format".
NEEDED = {"M": {"args"}, "C": {"args"}, "i": {"s"}, "b": {"cat", "id", "args"}, "e": {"cat", "id"}}


class Trace(page_sample.Scratch):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "trace.json"

    def run_cli(self, *arguments):
        return subprocess.run([CLI, "trace", *map(str, arguments), "-o", self.out], capture_output=True, text=True,
                              check=False)

    def events(self, *arguments):
        done = self.run_cli(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        events = json.loads(self.out.read_text())["traceEvents"]
        self.check_form(events)
        return events

    def check_form(self, events):
        open_slices = {}
        for e in events:
            self.assertLessEqual({"ph", "name", "pid", "tid", "ts"} | NEEDED[e["ph"]], set(e))
            self.assertGreaterEqual(e["ts"], 0)
            if e["ph"] == "C":
                self.assertTrue(all(isinstance(v, int) and v >= 0 for v in e["args"].values()))
            elif e["ph"] == "i":
                self.assertIn(e["s"], "gpt")
            elif e["ph"] == "b":
                self.assertNotIn((e["cat"], e["id"]), open_slices)
                open_slices[e["cat"], e["id"]] = e
            elif e["ph"] == "e":
                begun = open_slices.pop((e["cat"], e["id"]))
                self.assertLess(begun["ts"], e["ts"])
                self.assertEqual(begun["name"], e["name"])
        self.assertEqual(open_slices, {})

    def counters(self, events):
        levels = defaultdict(list)
        for e in events:
            if e["ph"] == "C":
                levels[e["name"]].append((e["ts"], e["args"]["bytes"]))
        for points in levels.values():
            self.assertEqual(points, sorted(points, key=lambda point: point[0]))
        return {name: [y for _, y in points] for name, points in levels.items()}

    def test_counters_instants_and_slices(self):
        snapshot = page_sample.train()
        events = self.events(self.write(snapshot), "--slices", 50)
        levels = self.counters(events)
        held_peak, reserved_peak, held = page_sample.levels_of(snapshot["device_traces"][0])
        self.assertEqual((max(levels["held"]), levels["held"][-1]), (held_peak, held))
        self.assertEqual(max(levels["reserved"]), reserved_peak)
        self.assertIn("held: weights", levels)
        self.assertNotIn("pending", levels)
        failures = [e for e in events if e["ph"] == "i"]
        self.assertEqual([e["name"] for e in failures], ["out of memory"])
        self.assertEqual(failures[0]["args"]["device_free"], 0)
        self.assertEqual(sum(e["ph"] == "b" for e in events), 50)
        self.assertIn("train.py:63 losses_append", " ".join(e["name"] for e in events))

    def test_waits_and_tags_of_terrazzo(self):
        time = 10 ** 15
        entry = {"stream": 0, "compile_context": "N/A", "pool_id": [0, 0], "user_metadata": ""}
        trace = [{**entry, "action": "alloc", "addr": 512, "size": 100, "time_us": time, "user_metadata": "weights"},
                 {**entry, "action": "free_requested", "addr": 512, "size": 100, "time_us": time + 5},
                 {**entry, "action": "alloc", "addr": 1024, "size": 7, "time_us": time + 6},
                 {**entry, "action": "free_completed", "addr": 512, "size": 100, "time_us": time + 9}]
        own = {"version": 1, "events_noted": 5, "events_kept": 5, "events": [
            {"action": "wait", "awaited": 8, "stream": 7, "stalled_ns": 1234, "time_us": time + 7},
            {"action": "flip", "addr": 1, "from": 2, "size": 3, "time_us": time + 8}]}
        events = self.events(self.write({"segments": [], "device_traces": [trace], "terrazzo": own}, "a.json"))
        levels = self.counters(events)
        self.assertEqual(levels["tag: weights"], [100, 0, 0])
        self.assertEqual(levels["pending"][-2:], [100, 0])
        waits = [e for e in events if e["ph"] == "i"]
        self.assertEqual([(e["ts"], e["args"]) for e in waits],
                         [(7, {"stream": 7, "awaited": 8, "stalled_ns": 1234})])

    def test_traces_count_events(self):
        events = self.events(SOURCE / "bench" / "traces" / "titan8b_rank0.trace.xz", "--slices", 0)
        self.assertGreater(max(self.counters(events)["held"]), 1 << 30)
        self.assertFalse([e for e in events if e["ph"] == "b"])

    def test_errors(self):
        snapshot = page_sample.train(steps=1)
        snapshot["device_traces"] = []
        for words, file in (("has no history", self.write(snapshot)), ("cannot be opened", "nowhere")):
            done = self.run_cli(file)
            self.assertEqual(done.returncode, 2)
            self.assertIn(words, done.stderr)
            self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main()
