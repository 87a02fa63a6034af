#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""terrazzo report: compares the page's figures with figures computed here, and opens the page in a headless browser,
if one is installed."""
import base64
import copy
import io
import json
import os
import re
import shutil
import struct
import subprocess
import unittest
import zlib
from pathlib import Path

import page_sample

CLI = Path(os.environ["TERRAZZO_CLI"])
SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
LIBRARY = CLI.parent.parent / "share" / "terrazzo" / "plotly.min.js"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
MIB = 1 << 20


def report(*arguments):
    return subprocess.run([CLI, "report", *map(str, arguments)], capture_output=True, text=True, check=False)


def reals(text):
    raw = base64.b64decode(text)
    return struct.unpack(f"<{len(raw) // 8}d", raw)


def data_of(page):
    text = page.read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))
    return {**data, **data["views"][data["axis"]]}


def columns(words, count, many):
    """The next `many` columns of `count` numbers of 32 bits."""
    return [struct.unpack(f"<{count}I", words.read(4 * count)) for _ in range(many)]


def wide(low, high, summed):
    out, total = [], 0
    for a, b in zip(low, high):
        total = (total if summed else 0) + a + (b << 32)
        out.append(total)
    return out


def lived_of(data):
    """What the page knows of allocations and of ranges of addresses: lists of tuples, as the page unpacks them."""
    lived = data["lived"]
    words = io.BytesIO(zlib.decompress(base64.b64decode(lived["packed"])))
    life, ranges = columns(words, lived["lives"], 10), columns(words, lived["ranges"], 7)
    lives = [(a, s, b, b + r, b + r + e, data["sites"][site], data["tags"][tag], data["streams"][stream])
             for a, s, b, r, e, site, tag, stream in zip(wide(*life[:2], True), wide(*life[2:4], False), *life[4:])]
    ranges = list(zip(wide(*ranges[:2], True), wide(*ranges[2:4], False), *ranges[4:]))
    times = columns(words, lived["times"], 2)
    return lives, ranges, wide(*times, True)


MADE, GATHERED, FLIPPED, ALIAS, HOLE = range(5)


class Report(page_sample.Scratch):
    def setUp(self):
        super().setUp()
        self.page = self.folder / "page.html"

    def made(self, *arguments):
        if not LIBRARY.exists():
            self.skipTest("this build has no plotly.js (it could not be fetched)")
        done = report(*arguments, "-o", self.page)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return data_of(self.page)


class Figures(Report):
    def test_levels_are_those_of_the_history(self):
        snapshot = page_sample.train()
        data = self.made(self.write(snapshot))
        held_peak, reserved_peak, held = page_sample.levels_of(snapshot["device_traces"][0])
        self.assertEqual((data["held_peak"], data["reserved_peak"], data["held_end"]), (held_peak, reserved_peak, held))
        self.assertEqual(max(reals(data["levels"]["held"]["y"])), held_peak)
        self.assertEqual(max(reals(data["levels"]["reserved"]["y"])), reserved_peak)
        self.assertEqual(reals(data["levels"]["held"]["y"])[-1], held)
        self.assertEqual(data["failure_count"], 1)
        self.assertEqual(data["stacks"]["peak"]["nodes"][0][4], held_peak)
        self.assertEqual(sum(row[1] for row in data["stacks"]["peak"]["holders"]), held_peak)
        self.assertIn("losses_append", data["stacks"]["peak"]["holders"][0][0])
        self.assertIn("160.02 MiB asked for", data["verdict"].splitlines()[0])

    def test_a_history_that_has_lost_its_beginning_ends_as_the_whole_one(self):
        whole = page_sample.train()
        late = copy.deepcopy(whole)
        late["device_traces"][0] = late["device_traces"][0][len(late["device_traces"][0]) // 2:]
        a, b = self.made(self.write(whole)), self.made(self.write(late))
        for key in ("held_peak", "held_end", "reserved_peak", "reserved_end"):
            self.assertEqual(a[key], b[key])
        for key in ("free", "largest", "reserved"):
            self.assertEqual(reals(a["fragmentation"][key])[-1], reals(b["fragmentation"][key])[-1])

    def test_free_space_at_the_end_is_the_snapshots(self):
        snapshot = page_sample.train()
        data = self.made(self.write(snapshot))
        free = largest = 0
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                size = block["size"] if block["state"] == "inactive" else block["size"] - block["requested_size"]
                free += size
                largest = max(largest, size)
        self.assertEqual(reals(data["fragmentation"]["free"])[-1], free)
        self.assertEqual(reals(data["fragmentation"]["largest"])[-1], largest)

    def test_lives_are_those_of_the_history(self):
        snapshot = page_sample.train()
        trace, open_, expected = snapshot["device_traces"][0], {}, []
        for state, e in enumerate(trace, 1):
            if e["action"] == "alloc":
                open_[e["addr"]] = (e["addr"], e["size"], state, e["frames"])
            elif e["action"] == "free_requested":
                address, size, begin, _ = open_.pop(e["addr"])
                expected.append((address, size, begin, state))
        end = len(trace) + 1
        expected += [(address, size, begin, end) for address, size, begin, _ in open_.values()]
        data = self.made(self.write(snapshot))
        lives, ranges, times = lived_of(data)
        self.assertEqual(sorted(life[:4] for life in lives), sorted(expected))
        self.assertEqual({life[5] for life in lives if life[1] == 72 * MIB}, {"app/train.py:63 losses_append"})
        self.assertEqual([(r[0], r[1], r[3], r[4]) for r in ranges],
                         [(s["address"], s["total_size"], end, MADE) for s in snapshot["segments"]])
        self.assertEqual(times[:-2], [0] + [e["time_us"] - trace[0]["time_us"] for e in trace][:-1])
        self.assertEqual([w[:3] for w in data["windows"]],
                         [[s["address"], s["total_size"], s["total_size"]] for s in snapshot["segments"]])

    def test_tiles_move(self):
        """A tile is gathered from B to C, and flips back; another becomes a stale alias for good."""
        base, entry = page_sample.BASE, {"stream": 0, "compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0)}
        a, b, c = base, base + 2 * MIB, base + 4 * MIB
        trace = [("segment_map", a), ("segment_map", b), ("segment_unmap", b), ("segment_map", c), ("segment_unmap", c),
                 ("segment_map", b), ("segment_unmap", a), ("segment_map", c)]
        trace = [{**entry, "action": action, "addr": address, "size": 2 * MIB, "time_us": 10 ** 15 + i}
                 for i, (action, address) in enumerate(trace)]
        move = {"size": 2 * MIB, "time_us": 10 ** 15}
        own = {"version": 1, "events_noted": 5, "events_kept": 5, "events": [
            {**move, "action": "gather", "addr": c, "from": b}, {**move, "action": "flip", "addr": b, "from": c},
            {**move, "action": "flip", "addr": c, "from": a}],
            "windows": [{"address": base, "reserved": 64 * MIB, "laid": 6 * MIB, "pool_id": [0, 0], "kind": "packed",
                         "segment_type": "large",
                         "tiles": [[a, 2 * MIB, "alias", c], [b, 2 * MIB, "used"], [c, 2 * MIB, "used"]]}]}
        block = {"size": 4 * MIB, "requested_size": 4 * MIB, "state": "active_allocated", "frames": [], "address": b}
        segment = {"device": 0, "address": b, "total_size": 4 * MIB, "stream": 0, "segment_type": "large",
                   "segment_pool_id": (0, 0), "is_expandable": True, "frames": [], "blocks": [block]}
        data = self.made(self.write({"segments": [segment], "device_traces": [trace], "terrazzo": own}, "a.json"))
        self.assertTrue(data["tiled"])
        self.assertEqual(data["windows"], [[base, 64 * MIB, 6 * MIB, 0, "packed", "large"]])
        self.assertEqual(lived_of(data)[1], [
            (a, 2 * MIB, 1, 7, MADE), (a, 2 * MIB, 7, 9, ALIAS),
            (b, 2 * MIB, 2, 3, MADE), (b, 2 * MIB, 3, 6, ALIAS), (b, 2 * MIB, 6, 9, FLIPPED),
            (c, 2 * MIB, 4, 5, GATHERED), (c, 2 * MIB, 5, 8, ALIAS), (c, 2 * MIB, 8, 9, FLIPPED)])

    def test_a_snapshot_without_history_shows_its_state(self):
        snapshot = page_sample.train()
        snapshot["device_traces"] = []
        data = self.made(self.write(snapshot, "a.json"))
        self.assertEqual(data["events"], 0)
        self.assertEqual(data["held_end"], sum(s["requested_size"] for s in snapshot["segments"]))
        self.assertEqual(data["reserved_end"], sum(s["total_size"] for s in snapshot["segments"]))

    def test_ranges_that_come_and_go_in_parts(self):
        base = page_sample.BASE
        entry = {"stream": 0, "compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0)}
        trace = [{**entry, "action": action, "addr": base + offset * MIB, "size": size * MIB, "time_us": 10 ** 15 + i}
                 for i, (action, offset, size) in enumerate((
                     ("segment_unmap", 8, 2), ("segment_map", 0, 6), ("segment_unmap", 2, 2), ("segment_map", 3, 1),
                     ("segment_unmap", 0, 1), ("segment_map", 20, 4)))]
        block = {"size": MIB, "requested_size": 0, "state": "inactive", "frames": []}
        segments = []
        for offset, size in ((1, 1), (3, 3), (20, 4)):
            segments.append({"device": 0, "address": base + offset * MIB, "total_size": size * MIB, "stream": 0,
                             "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": True, "frames": [],
                             "blocks": [{**block, "address": base + offset * MIB, "size": size * MIB}]})
        data = self.made(self.write({"segments": segments, "device_traces": [trace]}))
        self.assertEqual([y / MIB for y in reals(data["levels"]["reserved"]["y"])][-1], 8)
        self.assertEqual(max(reals(data["levels"]["reserved"]["y"])), 8 * MIB)
        self.assertEqual([(r[0] // MIB - base // MIB, r[1] // MIB, *r[2:]) for r in lived_of(data)[1]],
                         [(0, 1, 2, 5, MADE), (0, 1, 5, 7, HOLE), (1, 1, 2, 7, MADE), (2, 1, 2, 3, MADE),
                          (2, 1, 3, 7, HOLE), (3, 1, 2, 3, MADE), (3, 1, 3, 4, HOLE), (3, 1, 4, 7, MADE),
                          (4, 2, 2, 7, MADE), (8, 2, 0, 1, MADE), (8, 2, 1, 7, HOLE), (20, 4, 6, 7, MADE)])
        self.assertEqual(reals(data["fragmentation"]["reserved"])[-1], 8 * MIB)
        self.assertEqual(reals(data["fragmentation"]["largest"])[-1], 4 * MIB)

    def test_traces_have_no_addresses(self):
        data = self.made(SOURCE / "bench" / "traces" / "titan8b_rank0.trace.xz")
        self.assertFalse(data["addressed"] or data["timed"] or data["lived"]["ranges"])
        self.assertEqual(data["source"], "a trace of requests")
        self.assertGreater(data["held_peak"], 1 << 30)

    def test_by_events(self):
        data = self.made(self.write(page_sample.train()), "--by", "events")
        self.assertEqual(data["span"][1], data["events"] + 1)

    def test_no_text_of_a_snapshot_becomes_a_part_of_the_page(self):
        snapshot = page_sample.train(steps=2)
        bad = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>"
        for e in snapshot["device_traces"][0]:
            e["user_metadata"] = bad
            e["frames"] = [{"filename": "/app/" + bad, "line": 1, "name": bad}]
        data = self.made(self.write(snapshot))
        self.assertNotIn("taken'</script", self.page.read_text())
        self.assertIn(bad, [group["name"] for group in data["groups"]["tag"]])

    def test_nothing_comes_from_elsewhere(self):
        self.made(self.write(page_sample.train(steps=1)))
        without = self.page.read_text().replace(LIBRARY.read_text(), "")
        self.assertFalse(re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)|@import|url\(|https?://", without))


class Errors(Report):
    def fails(self, words, *arguments):
        done = report(*arguments)
        self.assertEqual(done.returncode, 2)
        self.assertIn(words, done.stderr)
        self.assertFalse(self.page.exists())
        self.assertEqual([p for p in self.folder.iterdir() if "part" in p.name], [])

    def test_usage(self):
        self.fails("is missing", "-o", self.page)
        self.fails("-o FILE is missing", "x")
        self.fails("cannot be opened", "nowhere", "-o", self.page)
        text = self.folder / "text"
        text.write_text("hello")
        self.fails(f"{text}: not a trace", text, "-o", self.page)

    def test_a_damaged_file_is_called_what_it_begins_as(self):
        trace, snapshot = self.folder / "a.trace", self.folder / "a.json"
        subprocess.run([CLI, "synth", "--save", trace, "--events", "100"], check=True, stdout=subprocess.DEVNULL)
        trace.write_bytes(trace.read_bytes()[:100])
        snapshot.write_text('{"segments": [')
        self.fails("a.trace: byte 100: truncated", trace, "-o", self.page)
        self.fails("a.json: byte 14: ", snapshot, "-o", self.page)
        done = subprocess.run([CLI, "explain", trace], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("not a memory snapshot but a trace, which terrazzo replay", done.stderr)

    def test_devices_and_places(self):
        path = self.write(page_sample.train(steps=1))
        self.fails("this device", path, "--device", 3, "-o", self.page)
        if LIBRARY.exists():
            self.fails("cannot be created", path, "-o", self.folder / "none" / "page.html")

    def test_a_build_without_the_plotting_library_says_so(self):
        alone = self.folder / "bin" / "terrazzo"
        alone.parent.mkdir()
        shutil.copy2(CLI, alone)
        path = self.write(page_sample.train(steps=1))
        done = subprocess.run([alone, "report", path, "-o", self.page], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"plotly\.min\.js is missing.*-DTRZ_PLOTLY=")
        self.assertFalse(self.page.exists())


@unittest.skipUnless(BROWSER, "no browser to open the page with; Debian's package chromium-headless-shell has one")
class Browser(Report):
    def opened(self, theme, asked=""):
        """The page's elements after its script has run, and what the console said."""
        done = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND",
             f"--user-data-dir={self.folder / 'profile'}", "--enable-logging=stderr", "--window-size=1280,2400",
             "--virtual-time-budget=60000", "--dump-dom", f"file://{self.page}#theme={theme}{asked}"],
            capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return done.stdout, said

    def check(self, charts, theme="light"):
        page, said = self.opened(theme)
        self.assertEqual(said, [])
        self.assertRegex(page, r'data-drawn="\d+"')
        self.assertIn(f'data-theme="{theme}"', page)
        for chart in charts:
            part = re.search(rf'<div class="chart[^>]*id="{chart}"[^>]*>(.*?)</section>', page, re.S)
            self.assertIsNotNone(part, chart)
            self.assertIn("main-svg", part.group(1), chart)
        return page

    def test_every_chart_is_drawn_light_and_dark(self):
        self.made(self.write(page_sample.train()))
        for theme in ("light", "dark"):
            page = self.check(("levels", "groups", "map", "fragmentation", "stacks"), theme)
            self.assertIn("160.02 MiB asked for", page)
            self.assertIn("train.py:63 losses_append", page)
            self.assertIn("icicle", page)
            self.assertRegex(page, r'id="map".*?<image ')

    def test_what_is_held_at_a_moment(self):
        snapshot = page_sample.train()
        data = self.made(self.write(snapshot))
        lives, _, _ = lived_of(data)
        held = sorted((life for life in lives if life[2] <= 300 < life[3]), key=lambda life: -life[1])
        page, said = self.opened("dark", "&at=300&map=segments&addresses=0,268435456")
        self.assertEqual(said, [])
        listed = re.search(r'<table id="blocks">(.*?)</table>', page, re.S).group(1)
        rows = re.findall(r"<tr[^>]*>(.*?)</tr>", listed, re.S)[1:]
        cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
        self.assertEqual(len(cells), 15)
        self.assertEqual([float(row[0].split()[0]) for row in cells],
                         [float(f"{life[1] / MIB:.3g}") for life in held[:15]])
        addresses = {life[0]: life for life in held}
        for row in cells:
            life = addresses[int(row[-1], 16)]
            self.assertEqual((row[1], row[2]), (life[5], "default stream"))
        self.assertIn(f"{len(held)} allocations hold", page)
        self.assertIn("a row is one of the segments", page)

    def test_pages_of_less(self):
        snapshot = page_sample.train(steps=3)
        for entries in (snapshot["device_traces"][0], *(s["blocks"] for s in snapshot["segments"])):
            for e in entries:
                e["frames"] = []
        snapshot["device_traces"][0] = [e for e in snapshot["device_traces"][0] if e["action"] != "oom"]
        self.made(self.write(snapshot))
        self.check(("levels", "groups", "map", "fragmentation"))
        snapshot["device_traces"] = []
        self.made(self.write(snapshot))
        self.check(("map",))
        self.made(SOURCE / "bench" / "traces" / "titan8b_rank0.trace.xz")
        self.check(("levels", "groups"))

    def test_hostile_texts_stay_texts(self):
        snapshot = page_sample.train(steps=2)
        for e in snapshot["device_traces"][0]:
            e["user_metadata"] = "<img src=x onerror=\"document.title='taken'\"></script>"
            e["frames"] = [{"filename": "<b>x</b>", "line": 1, "name": "<img src=y>"}]
        self.made(self.write(snapshot))
        page = self.check(("levels", "groups", "map"))
        self.assertNotIn("<title>taken", page)
        self.assertNotIn("<img", re.sub(r'<script.*?</script>', "", page, flags=re.S))


if __name__ == "__main__":
    unittest.main()
