# SPDX-License-Identifier: Apache-2.0
"""What a preloaded program's driver calls cost, in the simulated device's time; and that it keeps nothing."""
import json
import tempfile
import unittest
from pathlib import Path

from native_process import PRELOAD, WORKS, run

PRELOADED = {"LD_PRELOAD": PRELOAD}


class Costs(unittest.TestCase):
    def driver_time(self, way, variables):
        with tempfile.TemporaryDirectory() as folder:
            done = run("loop", "2000", "20", way, variables=variables, report=folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            report, = Path(folder).glob("*.json")
            return json.loads(report.read_text())["driver_time_ns"]

    def test_a_loop_of_large_buffers_pays_a_twentieth(self):
        for way in ("plain", "kernel"):
            for free, least in (("wait", 20), ("order", 10)):  # in order, each free is an event of its own
                with self.subTest(way, free=free):
                    ours = self.driver_time(way, {**PRELOADED, "TERRAZZO_NATIVE": f"free:{free}"})
                    self.assertGreaterEqual(self.driver_time(way, {}), least * ours)

    def test_graphs_captured_behind_work_hold_no_more(self):
        for work in WORKS:
            with self.subTest(**work):
                bare, ours = (run("captures", "20", "28", variables=variables, **work) for variables in ({}, PRELOADED))
                self.assertEqual((bare.returncode, ours.returncode), (0, 0), bare.stderr + ours.stderr)
                self.assertLessEqual(int(ours.stdout.split()[0]), int(bare.stdout.split()[0]))

    def test_a_soak_leaves_nothing(self):
        for seed in ("1", "2"):
            for work in ("now", "late"):
                with self.subTest(seed, work=work):
                    done = run("soak", "100000", "8", seed, variables=PRELOADED, work=work)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertTrue(done.stdout.endswith("all right\n"))


if __name__ == "__main__":
    unittest.main()
