# SPDX-License-Identifier: Apache-2.0
"""A program outside the tree builds against the installed package, and building leaves the tree as it was."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
BUILD = Path(os.environ["TRZ_BUILD_DIR"])
CONSUMER = SOURCE / "tests" / "install" / "consumer"


def run(*command, **options):
    command = [str(part) for part in command]
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if result.returncode:
        raise AssertionError(f"{command} failed:\n{result.stdout}\n{result.stderr}")
    return result.stdout


def version():
    parts = re.findall(r"#define TRZ_VERSION_\w+ (\d+)", (SOURCE / "include" / "terrazzo.h").read_text())
    return ".".join(parts)


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

    def check_program(self, program, **environment):
        said = run(program, env=dict(os.environ, **environment))
        self.assertRegex(said, rf"^{re.escape(version())} TRZ_\w+\n$")

    def test_cmake_package(self):
        build = self.folder / "consumer"
        run("cmake", "-S", CONSUMER, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        for program in ("c_terrazzo", "c_static", "cpp_terrazzo", "cpp_static"):
            self.check_program(build / program)

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
            self.check_program(program, LD_LIBRARY_PATH=str(libraries))

    def test_pkg_config_static(self):
        flags = self.pkg_config("--static", "--cflags", "--libs")
        flags = ["-l:libterrazzo.a" if flag == "-lterrazzo" else flag for flag in flags]
        program = self.folder / "pkg_static"
        run("cc", CONSUMER / "consumer.c", "-o", program, *flags)
        self.check_program(program)

    def test_headers_stand_alone(self):
        for header in (self.prefix / "include").glob("*.h"):
            for compiler, language, standard in (("cc", "c", "c11"), ("c++", "c++", "c++11")):
                run(compiler, "-Wall", "-Wextra", "-Werror", "-pedantic", f"-std={standard}", "-x", language,
                    "-fsyntax-only", "-include", header, os.devnull)

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
