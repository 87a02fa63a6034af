# SPDX-License-Identifier: Apache-2.0
"""Shared by all tests here: PyTorch with terrazzo installed, in the way that TRZ_TORCH_MODE names (shim, hooks, none).

Each test file is a process of its own (tests/torch/run.py), since PyTorch's allocator can be changed only once. On a
simulated device kernels do nothing while copies and memory are real, so no test looks at what a kernel computes.
"""
import atexit
import functools
import gc
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
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


def since(minor):
    """For features of PyTorch from 2.`minor` on."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return unittest.skipIf(version < (2, minor), f"PyTorch has it from 2.{minor} on")


def alone(test):
    """For a test, or a class of tests, that looks at the free memory of the device or fills it: other processes may use
    the device at the same time only with TRZ_TORCH_PART=beside, which leaves such tests out; =alone runs no others."""
    test.alone = True
    return test


class Loader(unittest.TestLoader):
    def getTestCaseNames(self, case):
        part = os.environ.get("TRZ_TORCH_PART")
        wants = {"alone": True, "beside": False}.get(part)
        return [name for name in super().getTestCaseNames(case) if wants is None or wants == (
            getattr(case, "alone", False) or getattr(getattr(case, name), "alone", False))]


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


def compile_with_runtime(text):
    """The path of a library of this C source, linked with the runtime library that PyTorch uses."""
    runtime = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcudart" in line)
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source, library = Path(folder) / "source.c", Path(folder) / "library.so"
    source.write_text(text)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", library, source, runtime], check=True)
    return str(library)


def driver_allocator():
    """A library with `take` and `give`, which allocate by the runtime library that PyTorch uses."""
    return compile_with_runtime("""
        #include <stddef.h>
        int cudaMalloc(void **ptr, size_t size);
        int cudaFree(void *ptr);
        int cudaGetLastError(void);
        void *take(size_t size, int device, void *stream)
        {
            void *ptr = NULL;
            (void)device; (void)stream;
            if (cudaMalloc(&ptr, size) == 0)
                return ptr;
            cudaGetLastError();
            return NULL;
        }
        void give(void *ptr, size_t size, int device, void *stream)
        {
            (void)size; (void)device; (void)stream;
            cudaFree(ptr);
        }
        """)


def run_python(code, mode=None, **environment):
    """(exit status, stdout, stderr) of another process; `mode` installs terrazzo first."""
    head = "" if mode is None else f"import terrazzo.torch; terrazzo.torch.install(shim={mode == 'shim'})\n"
    done = subprocess.run([sys.executable, "-c", head + code], env={**os.environ, **environment}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


main = functools.partial(unittest.main, testLoader=Loader())
