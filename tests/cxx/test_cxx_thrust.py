# SPDX-License-Identifier: Apache-2.0
"""sorting.cu: Thrust's containers and algorithms, and CUB's, over a heap, compiled by nvcc. Skipped without
nvcc."""
import shutil
import unittest

from cxx_program import SIMULATED, WAYS, Programs, skip


class Thrust(Programs):
    def test_runs(self):
        program = self.build("sorting.cu", "nvcc", "-std=c++17", "-arch=sm_80", "-cudart", "none",
                             "-Xcompiler=-Wall,-Wextra", "-Xlinker", f"-rpath-link={SIMULATED}")
        for way in WAYS:
            with self.subTest(**way):
                self.run_it(program, **way)
        self.run_it(program, "dead", VIOLATIONS="count")


if __name__ == "__main__":
    if not shutil.which("nvcc"):
        skip("nvcc is not installed")
    if not (SIMULATED / "libcudart.so.13").exists():
        skip("this build has no look-alike libraries")
    unittest.main()
