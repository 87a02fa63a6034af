# SPDX-License-Identifier: Apache-2.0
"""build/bench/device_figures from start to end, over the look-alike: what a GPU gives can be read and used."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["TRZ_BUILD_DIR"])


class DeviceFigures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.json, cls.table = Path(cls.folder.name, "figures.json"), Path(cls.folder.name, "table.ini")
        cls.done = subprocess.run(
            [BUILD / "bench" / "device_figures", "--quick", "--out", cls.json, "--table", cls.table],
            env={**os.environ, "LD_LIBRARY_PATH": os.environ["TRZ_LOOKALIKE_DIR"]}, capture_output=True, text=True,
            timeout=300)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_part_ends_well_and_leaves_rows(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        figures = json.loads(self.json.read_text())
        self.assertFalse(figures["computes"])
        for name, end in figures["parts"].items():
            self.assertTrue(end.startswith("ok"), f"{name}: {end}")
        self.assertNotIn("fault", figures["parts"])
        found = {row["part"] for row in figures["rows"]}
        self.assertEqual(found, {"cost", "full", "bandwidth", "aliasing", "end"})
        filled = [row for row in figures["rows"] if row["part"] == "full" and "had" in row]
        self.assertEqual([row["size"] >> 20 for row in filled], [64, 20, 1024, 2])
        for row in filled:
            self.assertEqual(row["had"] + row["left"], row["free"])  # here nothing goes to tables

    def test_the_table_is_one_of_the_simulator(self):
        text = self.table.read_text()
        self.assertNotIn("not measured", text)
        shown = subprocess.run([os.environ["TERRAZZO_CLI"], "costs", self.table], capture_output=True, text=True)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        sections = {line for line in text.splitlines() if line.startswith("[")}
        shipped = Path(os.environ["TRZ_SOURCE_DIR"], "sim", "costs", "a100.ini").read_text()
        self.assertEqual(sections, {line for line in shipped.splitlines() if line.startswith("[")})

    def test_an_unknown_part(self):
        done = subprocess.run([BUILD / "bench" / "device_figures", "--parts", "nothing"], capture_output=True,
                              text=True)
        self.assertEqual((done.returncode, done.stderr), (2, "device_figures: no part nothing\n"))


if __name__ == "__main__":
    unittest.main()
