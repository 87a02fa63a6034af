# SPDX-License-Identifier: Apache-2.0
"""Programs that nvcc compiles run over the look-alike runtime, linked with it as a shared library, of either version,
or as a static one. NVIDIA's own static runtime does not run, and says what the user can do instead. Skipped without
nvcc."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from lookalike_process import LIBRARIES, SKIPPED, environment, skip_if_unfit

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"]) / "tests" / "lookalike" / "programs" / "ordinary.cu"
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

    def start(self, name, **variables):
        return subprocess.run([Path(self.folder.name) / name], env=environment(**variables), capture_output=True,
                              text=True, timeout=120, check=False)

    def test_runs_with_the_runtime_shared_and_static(self):
        for name in ("shared", "shared_12", "own_static"):
            for variables in ({}, {"work": "late"}, {"work": "late", "schedule": "starve", "seed": 3},
                              {"device": "t4", "memory": "1GiB"}):
                with self.subTest(name, **variables):
                    done = self.start(name, **variables)
                    self.assertEqual((done.stdout, done.returncode), ("all right\n", 0), done.stderr)
                    self.assertEqual(done.stderr, "")

    def test_nvidias_static_runtime_is_told_the_way_out(self):
        done = self.start("nvidia_static")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("linked with NVIDIA's static CUDA runtime", done.stderr)
        self.assertIn("-cudart shared", done.stderr)


if __name__ == "__main__":
    skip_if_unfit()
    if not shutil.which("nvcc"):
        print("skipped: nvcc is not installed")
        sys.exit(SKIPPED)
    unittest.main()
