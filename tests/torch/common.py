# SPDX-License-Identifier: Apache-2.0
"""What all tests here share: PyTorch with terrazzo installed, in the way that TRZ_TORCH_MODE names (shim, hooks, none).

Each test file is a process of its own (tests/torch/run.py), since PyTorch's allocator can be changed only once. On a
simulated device kernels do nothing while copies and memory are real, so no test looks at what a kernel computes.
"""
import gc
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402

import terrazzo.torch  # noqa: E402

MODE = os.environ.get("TRZ_TORCH_MODE", "shim")
MIB = 1 << 20
GIB = 1 << 30

if MODE != "none":
    terrazzo.torch.install(shim=MODE == "shim")


def shim_only(test):
    return unittest.skipIf(MODE != "shim", "needs the shim")(test)


def bytes_on_device(size, device="cuda"):
    return torch.empty(size, dtype=torch.uint8, device=device)


def total_memory():
    return torch.cuda.mem_get_info()[1]


def stat(name):
    return terrazzo.torch.stats().get(name, 0)


class Case(unittest.TestCase):
    """Begins and ends with nothing allocated by the test itself."""

    def setUp(self):
        torch.cuda.init()
        gc.collect()
        torch.cuda.synchronize()
        self.held = stat("allocated_bytes.all.current")

    def tearDown(self):
        terrazzo.torch.set_limit(0)
        gc.collect()
        torch.cuda.synchronize()
        self.check_heap()

    def check_heap(self):
        """Every invariant of the heap, after every test."""
        library = terrazzo.torch._native_library()
        heap = library.heap(0, open=False)
        if heap:
            library.trz_check(heap)

    def assert_nothing_left(self):
        gc.collect()
        self.assertEqual(stat("allocated_bytes.all.current"), self.held)


def run_python(code, mode=None, **environment):
    """(exit status, stdout, stderr) of another process; `mode` installs terrazzo first."""
    head = "" if mode is None else f"import terrazzo.torch; terrazzo.torch.install(shim={mode == 'shim'})\n"
    done = subprocess.run([sys.executable, "-c", head + code], env={**os.environ, **environment}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


main = unittest.main
