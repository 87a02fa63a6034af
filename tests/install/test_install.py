# SPDX-License-Identifier: Apache-2.0
"""A program outside the tree builds against the installed package, and building leaves the tree as it was."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from outside import BUILD, CONSUMER, PROGRAMS, SHARED, SIMULATED, SOURCE, check_program, run, version

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")


def knows(compiler, language, standard):
    return subprocess.run([compiler, f"-std={standard}", "-x", language, "-fsyntax-only", os.devnull],
                          capture_output=True, check=False).returncode == 0


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
        for generator in ("Ninja", "Unix Makefiles"):
            for way, programs in (("find_package", PROGRAMS), ("pkg-config", SHARED)):
                with self.subTest(generator, way=way):
                    build = Path(tempfile.mkdtemp(dir=self.folder))
                    run("cmake", "-G", generator, "-S", CONSUMER, "-B", build, f"-DWAY={way}",
                        f"-DCMAKE_PREFIX_PATH={self.prefix}")
                    run("cmake", "--build", build)
                    for program in programs:
                        check_program(self, build / program)

    def test_examples(self):
        for generator in ("Ninja", "Unix Makefiles"):
            with self.subTest(generator):
                build = Path(tempfile.mkdtemp(dir=self.folder))
                run("cmake", "-G", generator, "-S", SOURCE / "examples" / "native", "-B", build,
                    f"-DCMAKE_PREFIX_PATH={self.prefix}")
                run("cmake", "--build", build)
                environment = dict(os.environ, LD_LIBRARY_PATH=str(SIMULATED), TERRAZZO_SIM_SCALARS="real")
                self.assertIn("200 entries added", run(build / "budget", env=environment))
                for program in ("pipeline", "drop_in"):
                    if (build / program).exists():
                        self.assertIn("all right", run(build / program, env=environment))

    def pkg_config(self, *arguments, package="terrazzo"):
        folder = next(self.prefix.rglob("terrazzo.pc")).parent
        environment = dict(os.environ, PKG_CONFIG_PATH=str(folder))
        return run("pkg-config", *arguments, package, env=environment).split()

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

    def test_pkg_config_of_the_cuda_calls(self):
        """Of these the static library as well, by its own name."""
        source, libraries = CONSUMER / "consumer_cuda.c", next(self.prefix.rglob("libterrazzo_cuda.so")).parent
        self.assertEqual(self.pkg_config("--modversion", package="terrazzo_cuda"), [version()])
        program = self.folder / "pkg_cuda"
        run("cc", source, "-o", program, *self.pkg_config("--cflags", "--libs", package="terrazzo_cuda"))
        check_program(self, program, LD_LIBRARY_PATH=str(libraries))
        flags = self.pkg_config("--static", "--cflags", "--libs", package="terrazzo_cuda")
        flags = [f"-l:lib{flag[2:]}.a" if flag.startswith("-lterrazzo") else flag for flag in flags]
        run("cc", source, "-o", program, *flags)
        check_program(self, program)

    def headers_stand_alone(self, pattern, language, standards):
        """Each header alone, by each compiler that is installed and knows the standard by any of its names."""
        compilers = {"c": ("gcc", "clang"), "c++": ("g++", "clang++")}[language]
        for compiler in filter(shutil.which, compilers):
            for names in standards:
                known = [name for name in names.split("|") if knows(compiler, language, name)]
                for header in (self.prefix / "include").glob(pattern) if known else ():
                    with self.subTest(compiler, header=header.name, standard=known[0]):
                        run(compiler, *WARNINGS, f"-std={known[0]}", "-x", language, "-fsyntax-only", "-include",
                            header, os.devnull, f"-I{self.prefix / 'include'}")

    def test_headers_stand_alone(self):
        self.headers_stand_alone("*.h", "c", ("c11", "c17", "c23|c2x"))
        self.headers_stand_alone("*.h", "c++", ("c++11", "c++17", "c++20", "c++23|c++2b"))
        self.headers_stand_alone("*.hpp", "c++", ("c++17", "c++20", "c++23|c++2b"))

    @unittest.skipUnless(shutil.which("nvcc"), "nvcc is not installed")
    def test_headers_with_nvcc(self):
        """For device code, too. CUDA's own headers are not pedantic, so that word is for those without them."""
        include = self.prefix / "include"
        for standard in ("c++17", "c++20"):
            for header in [*include.glob("*.h"), *include.rglob("*.hpp")]:
                if header.name == "rmm.hpp":
                    continue
                with self.subTest(header.name, standard=standard):
                    unit = self.folder / "alone.cu"
                    unit.write_text(f"#include <{header.relative_to(include)}>\n__global__ void nothing() {{}}\n")
                    run("nvcc", f"-std={standard}", "-arch=sm_80", "-Xcompiler=-Wall,-Wextra,-Werror", "-Werror",
                        "all-warnings", f"-I{include}", "-ptx", "-o", self.folder / "alone.ptx", unit)

    def test_everything_is_installed(self):
        installed = {path.relative_to(self.prefix / "include") for path in (self.prefix / "include").rglob("*.h*")}
        self.assertEqual(installed, {path.relative_to(SOURCE / "include")
                                     for path in (SOURCE / "include").rglob("*.h*")})
        pages = {path.name for path in (self.prefix / "share" / "man" / "man3").iterdir()}
        self.assertEqual(pages, {path.name for path in (BUILD / "share" / "man" / "man3").iterdir()})

    def test_a_folder_with_a_blank_serves_too(self):
        """A blank ends an entry of LD_PRELOAD, a colon ends one of any such list."""
        for name in "a b", "a:b":
            prefix = self.folder / name
            run("cmake", "--install", BUILD, "--prefix", prefix)
            done = subprocess.run([prefix / "bin" / "terrazzo", "run", "--", "grep", "terrazzo_preload",
                                   "/proc/self/maps"], capture_output=True, text=True, check=False)
            with self.subTest(name):
                if " " in name:
                    self.assertIn(f"{prefix}/lib", done.stdout)
                else:
                    self.assertIn("install terrazzo in one without colons", done.stderr)
                    self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_sources_of_the_shim_are_whole(self):
        sources = [path for path in next(self.prefix.rglob("shim.cpp")).parent.iterdir() if path.is_file()]
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
