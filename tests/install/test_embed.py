# SPDX-License-Identifier: Apache-2.0
"""terrazzo builds from nothing with Makefiles."""
import re
import tempfile
import unittest
from pathlib import Path

from outside import BUILD, SOURCE, run, version

# The jemalloc of this build serves here too. Debug compiles fastest.
CACHE = (BUILD / "CMakeCache.txt").read_text()
KEPT = re.findall(r"^(TRZ_(?:DEPS_DIR|METADATA|JEMALLOC_SOURCE):\w+=.*)$", CACHE, re.M)
SETTINGS = [f"-D{entry}" for entry in KEPT] + [
    "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS=", "-DCMAKE_CXX_FLAGS="]

class Embed(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.build = Path(scratch.name) / "build"

    def make(self, generator, source, *settings, targets=("all",)):
        run("cmake", "-G", generator, "-S", source, "-B", self.build, *SETTINGS, *settings)
        run("cmake", "--build", self.build, "--parallel", "2", "--target", *targets)

    def test_makefiles_from_nothing(self):
        # First the one that needs another target's objects, when they are not there yet.
        self.make("Unix Makefiles", SOURCE, "-DTRZ_BUILD_TESTS=OFF", targets=("terrazzo_static",))
        self.assertTrue((self.build / "lib" / "libterrazzo.a").exists())
        run("cmake", "--build", self.build, "--parallel", "2", "--target", "terrazzo", "terrazzo_cli")
        self.assertEqual(run(self.build / "bin" / "terrazzo", "--version"), f"terrazzo {version()}\n")


if __name__ == "__main__":
    unittest.main()
