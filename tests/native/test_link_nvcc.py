# SPDX-License-Identifier: Apache-2.0
"""CUDA programs whose calls are replaced when they are compiled. Skipped without nvcc."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from native_process import BUILD, environment

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
SKIPPED = 77


REFUSED = ("terrazzo: other processes cannot open memory that terrazzo serves (cudaIpcGetMemHandle): set "
           "TERRAZZO_NATIVE=ipc:classic to pass cudaMalloc on to the driver\n")


class Replaced(unittest.TestCase):
    def check(self, program, *arguments, said="", **settings):
        done = subprocess.run([program, *arguments], env=environment({}, **settings), capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual((done.stdout, done.stderr, done.returncode), ("all right\n", said, 0))

    def test_compiles_and_runs_with_either_default_stream(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "replaced"
            for stream in ("legacy", "per-thread"):
                subprocess.run(["nvcc", "-cudart", "shared", "--default-stream", stream, "-I", SOURCE / "include", "-o",
                                program, SOURCE / "tests" / "native" / "programs" / "replaced.cu", "-L", BUILD / "lib",
                                "-lterrazzo_cuda", "-lterrazzo", "-Xlinker", f"-rpath={BUILD / 'lib'}"], check=True)
                for work in ("now", "late"):
                    with self.subTest(stream=stream, work=work):
                        self.check(program, work=work)
                with self.subTest("memory for other processes", stream=stream):
                    self.check(program, "export", said=REFUSED)


if __name__ == "__main__":
    if not shutil.which("nvcc"):
        print("skipped: nvcc is not installed")
        sys.exit(SKIPPED)
    unittest.main()
