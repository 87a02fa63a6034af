# SPDX-License-Identifier: Apache-2.0
"""terrazzo run --report makes a page of a native program, with its call stacks; terrazzo sim --holders explains it."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from native_process import LIBRARIES, PROGRAMS, environment

sys.path.append(str(Path(os.environ["TRZ_SOURCE_DIR"], "tests", "cli")))
from test_report import LIBRARY, data_of  # noqa: E402

CLI = os.environ["TERRAZZO_CLI"]
GIB = 1 << 30


@unittest.skipUnless(LIBRARY.exists(), "this build has no plotly.js (it could not be fetched)")
class NativePages(unittest.TestCase):
    def run_cli(self, folder, temporary, **variables):
        given = environment({"TMPDIR": str(temporary), **variables}, memory="8GiB")
        given["LD_LIBRARY_PATH"] = str(LIBRARIES)
        return subprocess.run([CLI, "run", "--report", folder / "page.html", "--", PROGRAMS / "refused"], env=given,
                              capture_output=True, text=True, timeout=120, check=False)

    def test_a_page_has_stacks_and_the_verdict(self):
        with tempfile.TemporaryDirectory(prefix="50% of it ") as name:
            folder = Path(name)
            done = self.run_cli(folder, "/tmp", RANK="3")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("page.html: the page of ", done.stderr)
            data = data_of(folder / "page.html")
        self.assertRegex(data["title"], r"refused, rank 3 \(process \d+\)$")
        self.assertEqual((data["held_peak"], data["failure_count"]), (3 * GIB, 3))
        self.assertIn("verdict: ", data["verdict"])
        names = [node[2].partition("+")[0] for node in data["stacks"]["peak"]["nodes"]]
        self.assertFalse([node for node in data["stacks"]["peak"]["nodes"] if "terrazzo" in node[3]], names)
        if "takes" in names:  # libunwind or the symbols of the program are there
            self.assertEqual([name in names for name in ("main", "keeps_weights", "keeps_cache")], [True] * 3, names)

    def test_a_folder_that_no_option_can_name_is_refused(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for called, said in (("50%", ""), ("a, b", "no page: "), ("x" * 150, "no page: ")):
                temporary = folder / called
                temporary.mkdir()
                done = self.run_cli(folder, temporary)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(said, done.stderr)
                self.assertEqual((folder / "page.html").exists(), not said, done.stderr)
                (folder / "page.html").unlink(missing_ok=True)
                self.assertEqual(list(temporary.iterdir()), [])


class NativeHolders(unittest.TestCase):
    def test_the_failure_is_explained(self):
        done = subprocess.run([CLI, "sim", "--holders", "--memory=8GiB", "--json=-", "--", CLI, "run", "--",
                               PROGRAMS / "refused"], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout[done.stdout.index("{"):])
        why = report["explanation"]
        self.assertEqual((report["holders_at"], why["verdict"], why["failed"]), ("failure", "too_large", True), why)
        self.assertEqual(sum(one["bytes"] for one in report["holders"]), 3 * GIB)
        self.assertIn(why["text"], done.stderr)


if __name__ == "__main__":
    unittest.main()
