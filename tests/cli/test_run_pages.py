#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""terrazzo run --report and terrazzo sim --report: pages of the files that processes leave, and the command's exit
status. Tests with PyTorch (tests/torch/) cover the files of real programs."""
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

import page_sample
from cli_build import HAS_ADDRESS_SANITIZER
from test_report import LIBRARY, data_of

CLI = os.environ["TERRAZZO_CLI"]
LEAVE = """
import os, pickle, sys
sys.path.insert(0, sys.argv[1])
import page_sample
for name in sys.argv[3:]:
    with open(os.path.join(os.environ["TERRAZZO_PAGES"], name), "wb") as to:
        pickle.dump(page_sample.train(steps=2), to, protocol=2)
sys.exit(int(sys.argv[2]))
"""


@unittest.skipIf(HAS_ADDRESS_SANITIZER, "Python cannot preload a library with AddressSanitizer")
@unittest.skipUnless(LIBRARY.exists(), "this build has no plotly.js (it could not be fetched)")
class RunPages(page_sample.Scratch):
    def setUp(self):
        super().setUp()
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.program = self.folder / "leave.py"
        self.program.write_text(LEAVE)

    def run_cli(self, command, *arguments):
        return subprocess.run([CLI, command, "--report", self.folder / "page.html", "--", *arguments], text=True,
                              capture_output=True, check=False, env=dict(os.environ, TMPDIR=str(self.temporary)))

    def leave(self, command, status, *names):
        done = self.run_cli(command, sys.executable, str(self.program), str(Path(__file__).parent), str(status), *names)
        self.assertEqual(list(self.temporary.iterdir()), [])
        return done

    def pages(self):
        return sorted(p.name for p in self.folder.glob("*.html"))

    def test_one_process(self):
        for command in ("run", "sim"):
            done = self.leave(command, 3, "none-77.pickle")
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("page.html: the page of ", done.stderr)
            self.assertEqual(self.pages(), ["page.html"])
            title = data_of(self.folder / "page.html")["title"]
            self.assertIn("leave.py", title)
            self.assertTrue(title.endswith("(process 77)"), title)

    def test_ranks_name_the_pages(self):
        self.leave("run", 0, "0-80.pickle", "11-79.pickle", "2-81.pickle")
        self.assertEqual(self.pages(), ["page.0.html", "page.11.html", "page.2.html"])
        self.assertIn(", rank 11 (process 79)", data_of(self.folder / "page.11.html")["title"])

    def test_processes_without_ranks_are_numbered(self):
        self.leave("run", 0, "none-80.pickle", "none-79.pickle")
        self.assertEqual(self.pages(), ["page.0.html", "page.1.html"])

    def test_no_page_is_told(self):
        done = self.leave("run", 0)
        self.assertEqual(done.returncode, 0)
        self.assertIn("there is no page", done.stderr)
        done = self.leave("sim", 0)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no page", done.stderr)
        self.assertEqual(self.run_cli("run", "/nowhere/program").returncode, 2)

    def test_a_signal_ends_the_program_and_not_its_page(self):
        wait = "import signal, sys, time, subprocess\n" \
               "def end(*_):\n    subprocess.run([sys.executable, *sys.argv[1:]]); sys.exit(5)\n" \
               "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\ntime.sleep(600)\n"
        waiting = self.folder / "wait.py"
        waiting.write_text(wait)
        with subprocess.Popen([CLI, "run", "--report", self.folder / "page.html", "--", sys.executable, waiting,
                               self.program, Path(__file__).parent, "0", "none-1.pickle"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as running:
            self.assertEqual(running.stdout.readline(), "ready\n")
            running.send_signal(signal.SIGTERM)
            running.communicate()
        self.assertEqual(running.returncode, 5)
        self.assertEqual(self.pages(), ["page.html"])

    def test_usage(self):
        for more in (("--fit",), ("--sweep", "n=1,2")):
            done = subprocess.run([CLI, "sim", "--report", "x.html", *more, "true"], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("--report takes one run", done.stderr)


if __name__ == "__main__":
    unittest.main()
