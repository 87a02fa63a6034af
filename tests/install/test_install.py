# SPDX-License-Identifier: Apache-2.0
"""A program outside the tree builds against the installed package, and building leaves the tree as it was."""
import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path

from outside import BUILD, CONSUMER, PROGRAMS, SOURCE, check_program, run, version


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name)
        cls.prefix = cls.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_cmake_package(self):
        build = self.folder / "consumer"
        run("cmake", "-S", CONSUMER, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        for program in PROGRAMS:
            check_program(self, build / program)

    def pkg_config(self, *arguments):
        folder = next(self.prefix.rglob("terrazzo.pc")).parent
        environment = dict(os.environ, PKG_CONFIG_PATH=str(folder))
        return run("pkg-config", *arguments, "terrazzo", env=environment).split()

    def test_pkg_config_shared(self):
        self.assertEqual(self.pkg_config("--modversion"), [version()])
        for compiler, source in (("cc", "consumer.c"), ("c++", "consumer.cpp")):
            program = self.folder / f"pkg_{compiler}"
            run(compiler, CONSUMER / source, "-o", program, *self.pkg_config("--cflags", "--libs"))
            libraries = next(self.prefix.rglob("libterrazzo.so")).parent
            check_program(self, program, LD_LIBRARY_PATH=str(libraries))

    def test_pkg_config_static(self):
        flags = self.pkg_config("--static", "--cflags", "--libs")
        flags = ["-l:libterrazzo.a" if flag == "-lterrazzo" else flag for flag in flags]
        program = self.folder / "pkg_static"
        run("cc", CONSUMER / "consumer.c", "-o", program, *flags)
        check_program(self, program)

    def test_headers_stand_alone(self):
        for header in (self.prefix / "include").glob("*.h"):
            for compiler, language, standard in (("cc", "c", "c11"), ("c++", "c++", "c++11")):
                run(compiler, "-Wall", "-Wextra", "-Werror", "-pedantic", f"-std={standard}", "-x", language,
                    "-fsyntax-only", "-include", header, os.devnull)

    def test_sources_of_the_shim_are_whole(self):
        sources = list(next(self.prefix.rglob("shim.cpp")).parent.iterdir())
        included = {name for source in sources for name in re.findall(r'^#include "(.+)"', source.read_text(), re.M)}
        self.assertIn("shim_allocator.hpp", included)
        self.assertEqual(included - {source.name for source in sources}, set())

    def test_building_leaves_the_tree_clean(self):
        tree = self.folder / "tree"
        shutil.copytree(SOURCE, tree, ignore=shutil.ignore_patterns(".git", "build", "traces", "__pycache__"))
        before = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
        build = self.folder / "elsewhere"
        run("cmake", "-S", tree, "-B", build, "-DTRZ_METADATA=libc", "-DTRZ_BUILD_TESTS=OFF")
        run("cmake", "--build", build, "--target", "terrazzo", "terrazzo_static")
        self.assertEqual({path: path.stat().st_mtime_ns for path in tree.rglob("*")}, before)


if __name__ == "__main__":
    unittest.main()
