#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That the shim's compiler flags serve CUDA's headers as NVIDIA's Python packages have them, without crt/, on a machine
that has no other: -nostdinc hides a toolkit's."""
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "python"))
HEADERS = """
#include "crt/host_config.h"
#include "crt/host_defines.h"
struct __device_builtin__ __builtin_align__(16) four { float x, y, z, w; };
typedef __device_builtin_texture_type__ unsigned long long texture;
typedef __device_builtin_surface_type__ unsigned long long surface;
extern __host__ __cudart_builtin__ int CUDARTAPI cudaFree(void *memory);
static __inline__ __host__ __device__ int twice(int value) { return 2 * value; }
static __forceinline__ int same(int value) { return value; }
"""
PROGRAM = """
#include "cuda_runtime_api.h"
static_assert(sizeof(four) == 16 && alignof(four) == 16, "alignment");
int (*release)(void *) = cudaFree;
int number() { return twice(same(1)); }
"""


def load():
    """A new terrazzo.torch._build without its package's __init__, which needs PyTorch."""
    import importlib
    import types
    package = types.ModuleType("terrazzo.torch")
    package.__path__ = [str(SOURCE / "python" / "terrazzo" / "torch")]
    sys.modules[package.__name__] = package
    sys.modules.pop("terrazzo.torch._build", None)
    return importlib.import_module("terrazzo.torch._build")


class Headers(unittest.TestCase):
    def test_packages_without_crt_are_enough(self):
        build = load()
        with tempfile.TemporaryDirectory() as folder:
            include = Path(folder, "include")
            include.mkdir()
            (include / "cuda_runtime_api.h").write_text(HEADERS)
            build.find_cuda_headers = lambda: include
            command = [*build.find_compiler("C++", "CXX", "g++", "clang++", "c++"), "-std=c++20", "-nostdinc",
                       "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *build.cuda_flags(), "-x", "c++", "-"]
            done = subprocess.run(command, input=PROGRAM, text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_compiler_may_be_several_words(self):
        with unittest.mock.patch.dict(os.environ, CXX="env -u NOTHING c++ '-D A'"):
            self.assertEqual(load().find_compiler("C++", "CXX", "g++"), ["env", "-u", "NOTHING", "c++", "-D A"])
        with unittest.mock.patch.dict(os.environ, CXX="nonesuch c++"):
            self.assertEqual(load().find_compiler("C++", "CXX", "env"), ["env"])


if __name__ == "__main__":
    unittest.main()
