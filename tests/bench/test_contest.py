#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of allocators: a further allocator or workload is one file; the benchmark finds a wrong allocator."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "bench"))
from comparison import harness_runs, peer_build, result_verdicts  # noqa: E402

# Twice the size, from the driver, each time.
WASTEFUL = """
#include "bench_peer.h"
extern int cuMemAlloc_v2(uint64_t *address, size_t size);
extern int cuMemFree_v2(uint64_t address);
extern int cuCtxSynchronize(void);
static int begin(const char *options) { return *options; }
static void end(void) { }
static void *take(size_t size, void *stream)
{
	uint64_t address;
	return (void)stream, cuMemAlloc_v2(&address, 2 * size) == 0 ? (void *)address : 0;
}
static void give(void *pointer, size_t size, void *own, void *last)
{
	(void)size, (void)own, (void)last;
	cuCtxSynchronize();
	cuMemFree_v2((uint64_t)pointer);
}
const struct peer bench_peer = {.open = begin, .close = end, .alloc = take, .free = give};
"""

# What is freed next, to whoever asks first.
EARLY = WASTEFUL.replace("static void *take", "static void *last_freed;\nstatic void *take").replace(
    "uint64_t address;\n",
    "uint64_t address;\n\tvoid *was = last_freed;\n\tlast_freed = 0;\n\tif (was)\n\t\treturn was;\n").replace(
    "cuMemFree_v2((uint64_t)pointer);", "last_freed = pointer;").replace("\tcuCtxSynchronize();\n", "")

# Falls.
CRASHING = WASTEFUL.replace("uint64_t address;", "uint64_t address;\n\t*(volatile int *)size = 1;")

# The same memory for all.
WRONG = WASTEFUL.replace("uint64_t address;", "static uint64_t address;").replace(
    "cuMemAlloc_v2(&address, 2 * size) == 0", "address || cuMemAlloc_v2(&address, 1 << 28) == 0").replace(
    "cuMemFree_v2((uint64_t)pointer);", "(void)pointer;")

WORKLOAD = """
from comparison.hard_workloads import MIB, workload

@workload
def three_blocks(p, scale=1):
    names = [p.take(10 * MIB) for _ in range(3)]
    p.give(*names)

@workload
def foreseen(p, scale=1):
    first, second = p.take(10 * MIB), p.take(10 * MIB)
    p.give(first)
    p.take(20 * MIB)

@workload
def two_streams(p, scale=1):
    for step in range(20):
        p.give(p.take(MIB, 1 + step % 2))

@workload
def careless(p, scale=1):
    name = p.take(MIB)
    p.give(name)
    p.give(name)
"""


class Contest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory())) if sys.version_info >= (3, 11) else \
            Path(tempfile.mkdtemp())
        (self.folder / "workload.py").write_text(WORKLOAD)

    def contest(self, allocators, *words, status=0):
        """The rows by workload and allocator."""
        done = subprocess.run([sys.executable, SOURCE / "bench" / "contest.py", "--quick", "--no-plots", "--allocators",
                               allocators, "--workloads", self.folder / "workload.py", "--out", self.folder, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, status, done.stdout)
        self.text = done.stdout
        results = self.folder / "results.json"  # none where the words were wrong
        rows = map(json.loads, results.read_text().splitlines() if results.exists() else ())
        return {(row["workload"], row["allocator"]): row for row in rows if row["lag"] == 0}

    def peer(self, name, text):
        path = self.folder / f"peer_{name}.c"
        path.write_text(text)
        return path

    def test_one_file_adds_an_allocator_and_one_a_workload(self):
        rows = self.contest("terrazzo,naive,wasteful", "--peer", self.peer("wasteful", WASTEFUL), "--only",
                            "three_blocks", "--parts", "memory")
        peak = 30 << 20
        for name in ("terrazzo", "naive", "wasteful"):
            row = rows["three_blocks", name]
            self.assertEqual((row["peak_allocated_bytes"], row["lower_bound_bytes"]), (peak, peak))
            self.assertEqual((row["ooms"], row["violations"]), (0, 0))
        self.assertEqual(rows["three_blocks", "naive"]["peak_reserved_bytes"], peak)
        self.assertEqual(rows["three_blocks", "wasteful"]["peak_reserved_bytes"], 2 * peak)
        self.assertEqual(rows["three_blocks", "wasteful"]["fit_bytes"], 2 * peak)
        self.assertEqual(rows["three_blocks", "terrazzo"]["fit_bytes"] % (2 << 20), 0)
        self.assertLess(rows["three_blocks", "terrazzo"]["fit_bytes"], 2 * peak)
        self.assertEqual(rows["three_blocks", "naive"]["driver_calls"]["mem_alloc"], 3)
        self.assertIn("| three_blocks | 0.03 |", (self.folder / "table.md").read_text())

    def test_rmm_takes_part(self):
        if not peer_build.toolkit_headers():
            self.skipTest("there are no CUDA headers but PyTorch's, which would be fetched")
        rows = self.contest("terrazzo,rmm_pool,rmm_arena_all", "--only", "three_blocks", "--parts", "memory")
        if "left out: rmm_pool" in self.text:
            self.skipTest(self.text)
        for name in ("rmm_pool", "rmm_arena_all"):
            row = rows["three_blocks", name]
            self.assertEqual((row["ooms"], row["violations"], row["bytes_after_close"]), (0, 0, 0))
        self.assertEqual(rows["three_blocks", "rmm_pool"]["peak_reserved_bytes"], 1 << 30)
        self.assertEqual(rows["three_blocks", "rmm_arena_all"]["peak_reserved_bytes"], harness_runs.ROOM)
        self.assertEqual(rows["three_blocks", "rmm_arena_all"]["fit_bytes"], 30 << 20)
        head, line = [line.split("|") for line in (self.folder / "table.md").read_text().splitlines()
                      if line.startswith(("| workload", "| three_blocks"))][:2]
        self.assertNotIn(" rmm_arena_all ", head, "what it reserves is the device")
        self.assertEqual(len(line), len(head))

    def test_a_variant_has_other_options(self):
        rows = self.contest("terrazzo,plain,unknown", "--variant", "plain=terrazzo,vmm:off", "--variant",
                            "unknown=terrazzo,nonsense:1", "--only", "three_blocks", "--parts", "memory", "--lags", "0")
        self.assertNotIn("mem_alloc", rows["three_blocks", "terrazzo"]["driver_calls"])
        self.assertIn("mem_alloc", rows["three_blocks", "plain"]["driver_calls"])
        self.assertIn("failed: unknown in three_blocks, lag 0: ", self.text)
        self.assertIn("nonsense", self.text)

    def test_micros_tell_nanoseconds_and_what_stays(self):
        rows = self.contest("terrazzo", "--only", "one_size_512B", "--only", "handed_over", "--only", "give_back",
                            "--parts", "host")
        for name in ("one_size_512B", "handed_over"):
            row = rows[name, "terrazzo"]
            self.assertTrue(0 < row["ns_per_pair_least"] <= row["ns_per_pair"] <= row["ns_per_pair_most"] < 1e9, row)
        self.assertEqual(rows["one_size_512B", "terrazzo"]["driver_calls_while_measured"], 0)
        left = rows["give_back", "terrazzo"]
        self.assertLessEqual(left["allocated_bytes_left"], left["reserved_bytes_left"])
        self.assertLess(left["reserved_bytes_left"], left["peak_reserved_bytes"])

    def test_an_allocator_that_gives_memory_away_is_found(self):
        rows = self.contest("wrong", "--peer", self.peer("wrong", WRONG), "--only", "three_blocks", "--parts", "memory",
                            status=1)
        self.assertGreater(rows["three_blocks", "wrong"]["violations"], 0)
        self.assertIn("violation: wrong in three_blocks", self.text)

    def test_a_planner_leaves_room_for_what_comes(self):
        """The second block beyond the third's end, which takes the first one's place: 30 MiB, all that ever lives. Who
        does not know the third puts the second behind the first, and needs 40."""
        rows = self.contest("naive,planner", "--only", "foreseen", "--parts", "memory")
        row = rows["foreseen", "planner"]
        self.assertEqual((row["planner_bytes"], row["lower_bound_bytes"]), (30 << 20, 30 << 20))
        self.assertEqual(row["fit_bytes"], 30 << 20)
        self.assertIn("| foreseen | 0.03 |", (self.folder / "table.md").read_text())
        self.assertEqual({allocator for _, allocator in rows}, {"naive", "planner"})

    def test_a_planner_takes_requests_of_no_bytes(self):
        """They lie where others do, whose place stays theirs."""
        log = self.folder / "of_no_bytes.log"
        log.write_text("1 0x1000 0 0\n1 0x2000 10485760 0\n0 0x1000 0 0\n1 0x3000 10485760 0\n")
        rows = self.contest("planner", "--trace", log, "--only", "of_no_bytes", "--parts", "memory")
        row = rows["of_no_bytes", "planner"]
        self.assertEqual((row["planner_bytes"], row["lower_bound_bytes"]), (20 << 20, 20 << 20))

    def test_a_planner_runs_only_where_it_is_named(self):
        for allocator in ("naive", "planner"):
            rows = self.contest(allocator, "--only", "foreseen", "--parts", "memory")
            self.assertEqual({found for _, found in rows}, {allocator})
            (self.folder / "results.json").unlink()

    def test_a_model_stitches(self):
        rows = self.contest("model_gmlake,model_gmlake_all", "--only", "foreseen", "--parts", "memory")
        self.assertEqual(rows["foreseen", "model_gmlake"]["peak_reserved_bytes"], 40 << 20)
        stitched = rows["foreseen", "model_gmlake_all"]
        self.assertEqual((stitched["peak_reserved_bytes"], stitched["violations"]), (30 << 20, 0))
        self.assertEqual(stitched["driver_calls"]["reserve"], 4)

    def test_wrong_allocators_spoil_no_others_rows(self):
        words = [word for name, text in (("early", EARLY), ("crashing", CRASHING), ("no_peer", "int x;"))
                 for word in ("--peer", self.peer(name, text))]
        rows = self.contest("terrazzo,early,crashing,no_peer", *words, "--only", "two_streams", "--parts", "memory",
                            status=1)
        row = rows["two_streams", "terrazzo"]
        self.assertEqual((row["violations"], row["ooms"], row["bytes_after_close"]), (0, 0, 0))
        self.assertIn("violation: early in two_streams, lag 500: ", self.text)
        self.assertIn("leak: early in two_streams, lag 0: ", self.text)
        self.assertIn("failed: crashing in two_streams, lag 0: ended by SIGSEGV", self.text)
        self.assertIn("does not define the structure `bench_peer`", self.text)
        self.assertIn("What terrazzo reaches", (self.folder / "table.md").read_text())

    def test_wrong_words_are_named(self):
        for words, text in ((("--peer", "nowhere.c"), "nowhere.c: there is no such file"),
                            (("--trace", "nowhere"), "nowhere: there is no such file"),
                            (("--only", "nothing"), "--only nothing: no workload or micro of that name was run"),
                            (("--peer", self.peer("naive", WASTEFUL)), "two allocators are called naive"),
                            (("--variant", "x=nowhere,a:1"), "--variant x=nowhere,a:1: it must be NAME=ALLOCATOR"),
                            (("--variant", "x=terrazzo"), "--variant x=terrazzo: it must be NAME=ALLOCATOR,OPTION"),
                            (("--variant", "naive=terrazzo,refill:off"), "two allocators are called naive"),
                            (("--only", "careless"), "left out: careless: KeyError")):
            self.contest("naive", *words, "--parts", "memory", status=2)
            self.assertIn(text, self.text)
        self.contest("nonsense", status=2)
        self.assertIn("--allocators nonsense: there is none such", self.text)

    def test_time_includes_what_an_allocator_is_told(self):
        """Memory that another stream frees is handed over by an event, of which terrazzo is told."""
        for freed_on, told in (("0x200", True), ("0x100", False)):
            log = self.folder / f"freed_on_{freed_on}.csv"
            log.write_text("Thread,Time,Action,Pointer,Size,Stream\n" + 200 * (
                f"0,0,allocate,0x1000,4194304,0x100\n0,0,free,0x1000,4194304,{freed_on}\n"))
            row = self.contest("terrazzo", "--trace", log, "--only", log.stem, "--parts", "host")[log.stem, "terrazzo"]
            self.assertEqual(row["told_ns_per_op"] > 0, told, row)
            self.assertGreater(row["ns_per_op"], row["told_ns_per_op"])

    def test_verdicts_take_the_better_of_two_modes_and_name_what_did_not_run(self):
        def row(allocator, workload, **figures):
            return {"kind": "recorded", "workload": workload, "allocator": allocator, "lag": 0, "streams": 1,
                    "peak_allocated_bytes": 100, "peak_reserved_bytes": 100, "driver_time_ns": {}, **figures}
        rows = [row("terrazzo", "near", ns_per_op=100, fit_bytes=100), row("torch", "near", ns_per_op=600),
                row("torch_expandable", "near", ns_per_op=300, fit_bytes=90),
                row("terrazzo", "far", ns_per_op=100, fit_bytes=100), row("torch", "far", ns_per_op=400, fit_bytes=110),
                row("terrazzo", "broken", ns_per_op=1, violations=2), row("torch", "broken", ns_per_op=400)]
        text = result_verdicts.verdicts(rows)
        self.assertRegex(text, r"replays, one stream: 3.5 times faster .* \| 1 of 2 \| near 3.0 \|")
        self.assertRegex(text, r"smallest device: no larger .* \| 1 of 2 \| near \+0 MiB \|")
        self.assertIn("| 2 of 3 | broken 0 requests without memory, 2 violations |", text)
        self.assertNotIn("runs: each", result_verdicts.verdicts(rows[:5]))

    def test_a_trace_of_ones_own(self):
        log = self.folder / "fsdp_like.csv"
        log.write_text("Thread,Time,Action,Pointer,Size,Stream\n"
                       "0,0,allocate,0x200,4194304,0\n0,0,free,0x200,4194304,0\n")
        (self.folder / "bad.pickle").write_text("no trace")
        rows = self.contest("naive", "--trace", log, "--trace", self.folder / "bad.pickle", "--only", "three_blocks",
                            "--parts", "memory")
        self.assertEqual(rows["fsdp_like_added", "naive"]["peak_reserved_bytes"], 4 << 20)
        self.assertIn("bad.pickle: not a trace", self.text)

    def test_what_does_not_compile_is_left_out(self):
        rows = self.contest("naive,broken", "--peer", self.peer("broken", "no C"), "--only", "foreseen", "--parts",
                            "memory")
        self.assertIn("left out: broken: ", self.text)
        self.assertIn(("foreseen", "naive"), rows)


class Search(unittest.TestCase):
    def test_the_smallest_that_is_enough_whatever_the_guess(self):
        for least in range(1, 9):
            for most in range(least, 24):
                for answer in range(least, most + 2):
                    for guess in (None, *range(1, 26)):
                        tried = []

                        def enough(size):
                            self.assertTrue(least <= size <= most and size not in tried)
                            tried.append(size)
                            return size >= answer
                        found = harness_runs.smallest(enough, least, most, guess)
                        self.assertEqual(found, answer if answer <= most else None)
                        if guess == answer <= most:
                            self.assertLessEqual(len(tried), 2)


if __name__ == "__main__":
    unittest.main()
