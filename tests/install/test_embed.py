# SPDX-License-Identifier: Apache-2.0
"""terrazzo builds from nothing with Makefiles, and as a part of other CMake projects, with Makefiles and with Ninja."""
import json
import re
import shlex
import tempfile
import unittest
from pathlib import Path

from outside import BUILD, CONSUMER, PROGRAMS, SOURCE, check_program, run, version

# The jemalloc of this build serves here too. Debug compiles fastest.
CACHE = (BUILD / "CMakeCache.txt").read_text()
KEPT = re.findall(r"^(TRZ_(?:DEPS_DIR|METADATA|JEMALLOC_SOURCE):\w+=.*)$", CACHE, re.M)
SETTINGS = [f"-D{entry}" for entry in KEPT] + [
    "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS=", "-DCMAKE_CXX_FLAGS=", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
# What a project sets for itself, and parts of it find set.
OF_THE_PARENT = ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON", "-DBUILD_SHARED_LIBS=ON",
                 "-DCMAKE_C_STANDARD=90", "-DCMAKE_CXX_STANDARD=11"]
PROGRAMS_IN_C = ("c_terrazzo", "c_static", "c_cuda", "c_cuda_static")


class Embed(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.build = Path(scratch.name) / "build"

    def make(self, generator, source, *settings, targets=("all",)):
        run("cmake", "-G", generator, "-S", source, "-B", self.build, *SETTINGS, *settings)
        run("cmake", "--build", self.build, "--parallel", "2", "--target", *targets)

    def check_parent(self, generator, way, *settings):
        self.make(generator, CONSUMER, f"-DWAY={way}", f"-DTERRAZZO_SOURCE={SOURCE}", *settings)
        for program in PROGRAMS:
            check_program(self, self.build / program)
        self.check_flags()
        self.assertEqual(list(self.build.rglob("libcuda*")), [])

    def check_flags(self):
        """Of all that terrazzo is compiled with, its user gets one thing: where the public headers are."""
        commands = json.loads((self.build / "compile_commands.json").read_text())
        own = [entry["command"] for entry in commands
               if entry["directory"] == str(self.build) and " -o CMakeFiles/" in entry["command"]]
        self.assertEqual(len(own), len(PROGRAMS))
        for command in own:
            flags = [word for word in shlex.split(command) if re.match(r"-([DIW]|isystem|fPIC|fvis|fno-lto)", word)]
            self.assertEqual(flags, [f"-I{SOURCE}/include"])

    def test_makefiles_from_nothing(self):
        # First the one that needs another target's objects, when they are not there yet.
        self.make("Unix Makefiles", SOURCE, "-DTRZ_BUILD_TESTS=OFF", targets=("terrazzo_static",))
        self.assertTrue((self.build / "lib" / "libterrazzo.a").exists())
        run("cmake", "--build", self.build, "--parallel", "2", "--target", "terrazzo", "terrazzo_cli")
        self.assertEqual(run(self.build / "bin" / "terrazzo", "--version"), f"terrazzo {version()}\n")

    def test_add_subdirectory_makefiles(self):
        self.check_parent("Unix Makefiles", "add_subdirectory")

    def test_add_subdirectory_ninja(self):
        self.check_parent("Ninja", "add_subdirectory", *OF_THE_PARENT)

    def test_fetch_content_makefiles(self):
        self.check_parent("Unix Makefiles", "FetchContent", *OF_THE_PARENT)

    def test_fetch_content_ninja(self):
        self.check_parent("Ninja", "FetchContent")

    def test_parents_warnings_are_no_errors(self):
        self.make("Ninja", CONSUMER, "-DWAY=add_subdirectory", f"-DTERRAZZO_SOURCE={SOURCE}",
                  "-DCMAKE_C_FLAGS=-Werror -Wpedantic -Wconversion", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
                  targets=PROGRAMS_IN_C)
        for program in PROGRAMS_IN_C:
            check_program(self, self.build / program)

    def test_parent_installs_it(self):
        # Without a build type, too: terrazzo has to be installed as what it was built as.
        self.make("Ninja", CONSUMER, "-DWAY=add_subdirectory", f"-DTERRAZZO_SOURCE={SOURCE}", "-DTRZ_INSTALL=ON",
                  "-DCMAKE_BUILD_TYPE=",
                  targets=("terrazzo", "terrazzo_static", "terrazzo_cuda", "terrazzo_cuda_static"))
        prefix = self.build / "prefix"
        run("cmake", "--install", self.build, "--prefix", prefix)
        self.build /= "of_the_package"
        self.make("Ninja", CONSUMER, f"-DCMAKE_PREFIX_PATH={prefix}", targets=PROGRAMS_IN_C)
        for program in PROGRAMS_IN_C:
            check_program(self, self.build / program)


if __name__ == "__main__":
    unittest.main()
