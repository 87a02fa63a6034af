#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `terrazzo sim` does in a program that has imported PyTorch, in a package that stands for PyTorch."""
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

CLI = os.environ["TERRAZZO_CLI"]
FILE = Path(__file__).resolve().parents[2] / "python" / "terrazzo" / "sim" / "recorder.py"
TORCH = """
from types import SimpleNamespace
from unittest.mock import MagicMock

class Cuda:
    asked = []
    ATTENTION = lambda self, enabled: self.asked.append(enabled)

_C, cuda, distributed, backends = MagicMock(), MagicMock(), MagicMock(), SimpleNamespace(cuda=Cuda())
"""


def load_recorder():
    spec = importlib.util.spec_from_file_location("recorder", FILE)
    recorder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recorder)
    return recorder


class Recorder(unittest.TestCase):
    def run_program(self, attention):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "torch.py").write_text(TORCH.replace("ATTENTION", attention))
            program = "import torch; print(torch.backends.cuda.asked, torch.cuda._lazy_call.called)"
            done = subprocess.run([CLI, "sim", "--scalars", "zero", "--", sys.executable, "-c", program], cwd=folder,
                                  capture_output=True, text=True, check=True)
        return done.stdout.strip(), done.stderr

    def test_attention_by_cudnn_is_off(self):
        self.assertEqual(self.run_program("enable_cudnn_sdp")[0], "[False] True")

    def test_older_pytorch_without_it_is_recorded(self):
        stdout, stderr = self.run_program("enable_flash_sdp")
        self.assertEqual(stdout, "[] True", stderr)

    def test_older_pytorch_tells_of_expandable_segments_only_by_its_segments(self):
        recorder, torch = load_recorder(), SimpleNamespace(_C=object(), cuda=MagicMock())
        for segments, expected in ([], False), ([{"is_expandable": False}], False), ([{"is_expandable": True}], True):
            torch.cuda.memory._snapshot.return_value = {"segments": segments}
            self.assertIs(recorder.is_expandable(torch), expected)

    def test_older_pytorch_has_its_error_among_the_functions_for_cuda(self):
        torch = SimpleNamespace(cuda=SimpleNamespace(OutOfMemoryError=MemoryError))
        for kind, expected in (ValueError, None), (MemoryError, "no memory"):
            recorded = SimpleNamespace(torch=torch, observed=False, uncaught={})
            load_recorder().Recorder.on_exception(recorded, kind, kind("no memory"), None)
            self.assertEqual(recorded.uncaught.get("text"), expected)


if __name__ == "__main__":
    unittest.main()
