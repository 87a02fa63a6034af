#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""generate() under `terrazzo sim`, in a package that stands for transformers: its loop has the same form, and asks a
device that computes nothing whether it is done."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CLI = os.environ["TERRAZZO_CLI"]
UTILS = """
class Tokens:
    def __init__(self, length, is_cuda=True):
        self.shape, self.is_cuda = (1, length), is_cuda

class Beams(list):
    def zero_(self):
        self[:] = [0] * len(self)

class MaxLengthCriteria:
    def __init__(self, max_length):
        self.max_length = max_length
    def __call__(self, input_ids, scores, **kwargs):
        return DEVICE_SAYS

class GenerationMixin:
    def _has_unfinished_sequences(self, this_peer_finished, synced_gpus, device=None):
        self.told.append(this_peer_finished)
        return not this_peer_finished
    def generate(self, length, limit, synced_gpus=False, is_cuda=True):
        criteria, finished, self.told, steps = MaxLengthCriteria(limit), False, [], 0
        beams = Beams([-1] * (limit - length))
        while self._has_unfinished_sequences(finished, synced_gpus, device="cuda"):
            length, steps = length + 1, steps + 1
            finished = criteria(Tokens(length, is_cuda), None)
            sequences, scores, beams, is_finished = self._update_finished_beams(beams=beams)
            self.beams = sum(beam >= 0 for beam in beams)
            if steps > 100:
                return "for ever"
        return steps
    def _update_finished_beams(self, beams):
        return "sequences", "scores", beams, "is_finished"
"""
PROGRAM = """
import threading
from transformers.generation.utils import GenerationMixin
m = GenerationMixin()
print(m.generate(5, 25), m.beams, m.generate(5, 6), m.beams, m.generate(8, 25, synced_gpus=True), m.told)
thread = threading.Thread(target=lambda: print(GenerationMixin().generate(1, 12)))
thread.start()
thread.join()
"""
OTHER = "class GenerationMixin:\n    pass\n"


class Generation(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def run_program(self, utils, program, *command):
        package = self.folder / "transformers" / "generation"
        package.mkdir(parents=True, exist_ok=True)
        for name, text in (("../__init__.py", ""), ("__init__.py", ""), ("utils.py", utils)):
            (package / name).write_text(text)
        done = subprocess.run([*command, sys.executable, "-c", program], cwd=self.folder, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n")[:-1]

    def test_it_ends_at_its_length(self):
        for says in ("False", "True"):
            lines = self.run_program(UTILS.replace("DEVICE_SAYS", says), PROGRAM, CLI, "sim", "--")
            self.assertEqual(lines, [f"20 20 1 1 17 {[False] * 17 + [True]}", "11"])

    def test_what_runs_on_the_host_ends_by_itself(self):
        program = PROGRAM.split("print")[0] + "print(m.generate(5, 25, is_cuda=False), m.beams)"
        lines = self.run_program(UTILS.replace("DEVICE_SAYS", "input_ids.shape[1] == 9"), program, CLI, "sim", "--")
        self.assertEqual(lines, ["4 0"])

    def test_elsewhere_it_stays_as_it_is(self):
        lines = self.run_program(UTILS.replace("DEVICE_SAYS", "False"), PROGRAM)
        self.assertTrue(lines[0].startswith("for ever"))

    def test_loops_of_another_form(self):
        program = "from transformers.generation import utils; print(utils.GenerationMixin.__name__)"
        self.assertEqual(self.run_program(OTHER, program, CLI, "sim", "--"), ["GenerationMixin"])


if __name__ == "__main__":
    unittest.main()
