# SPDX-License-Identifier: Apache-2.0
"""Programs that nvcc compiles run over the look-alike runtime, linked with it as a shared library, of either version,
or as a static one; and those linked with NVIDIA's static runtime, nvcc's default, whose calls are redirected. Where
that cannot be done, a line says what the user can do instead. Skipped without nvcc."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from lookalike_process import LIBRARIES, SKIPPED, environment, skip_if_unfit

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"]) / "tests" / "lookalike" / "programs" / "ordinary.cu"
REDIRECT = LIBRARIES / "libterrazzo_redirect.so"
LINKS = {
    "shared": ["-cudart", "shared"],
    "shared_12": ["-cudart", "none", f"-L{LIBRARIES}", "-l:libcudart.so.12"],
    "own_static": ["-cudart", "none", f"-L{LIBRARIES}", "-lcudart_static", "-lpthread", "-ldl"],
    "nvidia_static": ["-cudart", "static"],
}


class Compiled(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        code = Path(cls.folder.name) / "ordinary.o"
        subprocess.run(["nvcc", "-c", "-o", code, SOURCE], check=True)
        for name, options in LINKS.items():
            subprocess.run(["nvcc", "-o", code.with_name(name), code, *options], check=True)

    def start(self, name, redirect=False, **variables):
        env = environment(**variables) | ({"LD_PRELOAD": str(REDIRECT)} if redirect else {})
        return subprocess.run([Path(self.folder.name) / name], env=env, capture_output=True, text=True, timeout=120,
                              check=False)

    def test_runs_with_the_runtime_shared_and_static(self):
        for name in ("shared", "shared_12", "own_static"):
            for variables in ({}, {"work": "late"}, {"work": "late", "schedule": "starve", "seed": 3},
                              {"device": "t4", "memory": "1GiB"}):
                with self.subTest(name, **variables):
                    done = self.start(name, **variables)
                    self.assertEqual((done.stdout, done.returncode), ("all right\n", 0), done.stderr)
                    self.assertEqual(done.stderr, "")

    @unittest.skipUnless(REDIRECT.exists(), "calls are not redirected on this processor")
    def test_calls_of_nvidias_static_runtime_are_redirected(self):
        for variables in ({}, {"work": "late", "schedule": "starve", "seed": 3}):
            done = self.start("nvidia_static", redirect=True, **variables)
            self.assertEqual((done.stdout, done.stderr, done.returncode), ("all right\n", "", 0))

    def test_nvidias_static_runtime_is_told_the_way_out(self):
        program = Path(self.folder.name) / "stripped"
        subprocess.run(["strip", "-o", program, program.with_name("nvidia_static")], check=True)
        for name, redirect, way in (("nvidia_static", False, "terrazzo sim"), ("stripped", True, "-cudart shared")):
            if redirect and not REDIRECT.exists():
                continue
            done = self.start(name, redirect=redirect)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("has NVIDIA's own CUDA runtime", done.stderr)
            self.assertIn(way, done.stderr)


if __name__ == "__main__":
    skip_if_unfit(may_preload=False)
    if not shutil.which("nvcc"):
        print("skipped: nvcc is not installed")
        sys.exit(SKIPPED)
    unittest.main()
