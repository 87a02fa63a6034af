#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where commands write: an output never destroys a device, a link or the command's own input."""
import os
import signal
import subprocess
import unittest
from pathlib import Path

import page_sample

CLI = os.environ["TERRAZZO_CLI"]
WRITERS = (("trace", "-o"), ("report", "-o"), ("replay", "--snapshot"), ("replay", "--save"), ("replay", "--json"))
READERS = (("explain", "--json"), ("diff", "--json"))
ALL = WRITERS + READERS


class Output(page_sample.Scratch):
    def setUp(self):
        super().setUp()
        self.input = self.write(page_sample.train(steps=1))

    def run_cli(self, command, option, out, inputs=1):
        return subprocess.run([CLI, command, *[self.input] * inputs, option, out], capture_output=True, text=True,
                              check=False)

    def test_a_link_stays_a_link(self):
        for command, option in WRITERS:
            with self.subTest(command=command, option=option):
                link, target = self.folder / "link", self.folder / "target"
                target.write_text("old")
                link.symlink_to(target)
                done = self.run_cli(command, option, link)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(link.is_symlink())
                self.assertGreater(target.stat().st_size, 100)
                link.unlink()

    def run_here(self, *arguments, **options):
        return subprocess.run([CLI, *arguments], capture_output=True, cwd=self.folder, check=False, **options)

    def test_a_dash_is_standard_output(self):
        for command, starts in (("trace", b"{"), ("report", b"<!")):
            with self.subTest(command=command):
                done = self.run_here(command, self.input, "-o", "-")
                self.assertEqual((done.returncode, done.stdout[:len(starts)]), (0, starts), done.stderr)
        done = self.run_here("synth", "--events", "200", "--save", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.run_here("replay", "-", "--json", "-", input=done.stdout)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b'"events"', done.stdout)
        for command in (["synth", "--save"], ["trace", self.input, "-o"], ["report", self.input, "-o"]):
            with self.subTest(command=command), open("/dev/full", "wb") as full:
                done = subprocess.run([CLI, *command, "-"], stdout=full, stderr=subprocess.PIPE, check=False)
                self.assertEqual((done.returncode, done.stderr.count(b"\n")), (2, 1), done.stderr)
                self.assertIn(b"cannot be written: No space", done.stderr)
        self.assertEqual([p.name for p in self.folder.iterdir()], [self.input.name])

    def test_a_signal_leaves_nothing_unfinished(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) * 5:
            with self.subTest(number):
                replay = subprocess.Popen([CLI, "replay", self.input, "--repeat=1000000", "--json", "out.json"],
                                          cwd=self.folder, stdout=subprocess.DEVNULL)
                while len(os.listdir(self.folder)) == 1:
                    pass  # no sleep: the signal comes as soon as the file exists
                replay.send_signal(number)
                self.assertEqual(replay.wait(), -number)
                self.assertEqual([p.name for p in self.folder.iterdir()], [self.input.name])

    def test_a_dash_is_refused_where_standard_output_has_other_text(self):
        for arguments in (["replay", self.input, "--save"], ["replay", self.input, "--snapshot"], ["sim", "--record"],
                          ["sim", "--report"], ["run", "--report"]):
            with self.subTest(arguments):
                done = self.run_here(*arguments, "-", *([] if self.input in arguments else ["--", "true"]))
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(b"cannot go to standard output", done.stderr)
        self.assertEqual([p.name for p in self.folder.iterdir()], [self.input.name])

    @unittest.skipUnless(Path("/dev/full").is_char_device(), "no /dev/full")
    def test_what_cannot_be_written_stays_too(self):
        for command, option in ALL:
            with self.subTest(command=command, option=option):
                link = self.folder / "full"
                link.symlink_to("/dev/full")
                done = self.run_cli(command, option, link, 2 if command == "diff" else 1)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"{link}: cannot be written: No space left", done.stderr)
                self.assertTrue(link.is_symlink())
                link.unlink()

    def test_an_earlier_file_stays_if_there_is_nothing_to_write(self):
        snapshot = page_sample.train(steps=1)
        snapshot["device_traces"], out = [], self.folder / "out"
        self.input = self.write(snapshot)
        out.write_text("old")
        self.assertEqual(self.run_cli("trace", "-o", out).returncode, 2)
        self.assertEqual(out.read_text(), "old")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["out", "snapshot.pickle"])

    def test_a_snapshot_of_nothing_is_named(self):
        snapshot = page_sample.train(steps=1)
        snapshot["device_traces"], snapshot["segments"] = [], []
        self.input = self.write(snapshot)
        for command, option in (("trace", "-o"), ("report", "-o"), ("explain", "--json")):
            with self.subTest(command=command):
                done = self.run_cli(command, option, self.folder / "out")
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"{self.input}: holds n", done.stderr)

    def test_the_input_is_no_output(self):
        before = self.input.read_bytes()
        other_name = self.folder / "link"
        other_name.symlink_to(self.input)
        for command, option in ALL:
            for out in (self.input, other_name):
                with self.subTest(command=command, option=option, out=out.name):
                    done = self.run_cli(command, option, out, 2 if command == "diff" else 1)
                    self.assertEqual(done.returncode, 2)
                    self.assertIn(f"{option}: '{out}' is the input", done.stderr)
                    self.assertEqual(self.input.read_bytes(), before)

    def test_an_output_needs_a_name(self):
        for command, option in ALL:
            with self.subTest(command=command, option=option):
                done = self.run_cli(command, option, "", 2 if command == "diff" else 1)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, "a file needs a name|the path is empty: name a file")

    def test_a_file_is_whole_or_the_earlier_one(self):
        """On a full device, as a limit of the size of files makes one, and where no trace can be replayed."""
        out, bad = self.folder / "out", self.folder / "bad"
        bad.write_text("no trace")
        for command, option in (*READERS, *WRITERS[:2]):   # a replay's device is a file, too
            with self.subTest(command=command, option=option):
                out.write_text("old")
                inputs = [self.input] * (2 if command == "diff" else 1)
                done = subprocess.run(["sh", "-c", 'ulimit -f 0; trap "" XFSZ; exec "$@"', "sh", CLI, command, *inputs,
                                       option, out], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(f"{out}: cannot be written: File too large", done.stderr)
                self.assertEqual(out.read_text(), "old")
        done = subprocess.run([CLI, "replay", bad, "--json", out], capture_output=True, check=False)
        self.assertEqual((done.returncode, out.read_text()), (2, "old"))
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["bad", "out", self.input.name])

    @unittest.skipIf(os.geteuid() == 0, "root may write all files")
    def test_a_file_that_may_not_be_written_stays(self):
        out = self.folder / "out"
        out.write_text("kept")
        out.chmod(0o444)
        for command, option in ALL:
            with self.subTest(command=command, option=option):
                done = self.run_cli(command, option, out, 2 if command == "diff" else 1)
                self.assertEqual((done.returncode, out.read_text()), (2, "kept"))
                self.assertIn(f"{out}: cannot be created: Permission denied", done.stderr)

    def assert_not_run(self, command, text, made):
        """It is refused with the text, before the file that it would make is there."""
        done = subprocess.run([CLI, *command], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(text, done.stderr)
        self.assertFalse(made.exists())

    def test_no_two_outputs_are_one_file(self):
        out = self.folder / "out"
        commands = [("replay", self.input, a, out, b, out)
                    for a, b in (("--save", "--json"), ("--save", "--snapshot"), ("--snapshot", "--json"))]
        commands += [("sim", a, out, b, out, "--", "touch", out)
                     for a, b in (("--json", "--report"), ("--json", "--record"), ("--report", "--record"))]
        for command in commands:
            with self.subTest(command=command):
                self.assert_not_run(command, f"'{out}' cannot be both", out)

    def test_a_file_of_the_command_is_no_output(self):
        script, link = self.folder / "train.py", self.folder / "link"
        script.write_text("kept")
        link.symlink_to(script)
        for command, option in (("sim", "--json"), ("sim", "--report"), ("sim", "--record"), ("run", "--report")):
            for out, words in ((script, ("cat", script)), (link, ("cat", script)), (script, (script,))):
                with self.subTest(command, option=option, out=out.name, words=words):
                    done = subprocess.run([CLI, command, option, out, "--", *words], capture_output=True, text=True,
                                          check=False)
                    self.assertEqual((done.returncode, script.read_text()), (2, "kept"))
                    self.assertIn(f"{option}: '{out}' is a file that the command names", done.stderr)

    def test_what_cannot_be_created_is_told_before_the_run(self):
        ran, outs = self.folder / "ran", (self.folder / "none" / "out", self.folder, "")
        commands = [(command, option, out, "--", "touch", ran) for out in outs
                    for command, option in (("sim", "--json"), ("sim", "--report"), ("sim", "--record"),
                                            ("run", "--report"))]
        for command in commands:
            with self.subTest(command=command):
                self.assert_not_run(command, f"""{command[2] or "''"}: cannot be created""", ran)

    @unittest.skipIf(os.geteuid() == 0, "root may write all files")
    def test_a_file_that_may_not_be_written_is_told_before_the_run(self):
        ran, out = self.folder / "ran", self.folder / "out"
        out.write_text("kept")
        out.chmod(0o444)
        for option in ("--json", "--report", "--record"):
            with self.subTest(option):
                self.assert_not_run(("sim", option, out, "--", "touch", ran), f"{out}: cannot be created", ran)
                self.assertEqual(out.read_text(), "kept")


if __name__ == "__main__":
    unittest.main()
