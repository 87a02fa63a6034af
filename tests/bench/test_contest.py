#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of allocators: one more allocator and one more workload are a file each; a wrong allocator is found."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])

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
static void give(void *pointer, void *own, void *last)
{
	(void)own, (void)last;
	cuCtxSynchronize();
	cuMemFree_v2((uint64_t)pointer);
}
const struct peer bench_peer = {.open = begin, .close = end, .alloc = take, .free = give};
"""

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
        rows = map(json.loads, (self.folder / "results.json").read_text().splitlines())
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

    def test_what_does_not_compile_is_left_out(self):
        self.contest("broken", "--peer", self.peer("broken", "no C"), "--only", "three_blocks", "--parts", "memory")
        self.assertIn("left out: broken: ", self.text)


if __name__ == "__main__":
    unittest.main()
