# SPDX-License-Identifier: Apache-2.0
"""Calls of NVIDIA's runtime, linked into programs and libraries, lead to the look-alike runtime of the same major
version: in programs, in libraries that they need, and in those that they open, from their constructors on."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from lookalike_process import LIBRARIES, SKIPPED, environment, skip_if_unfit

PROGRAMS = Path(os.environ["TRZ_SOURCE_DIR"]) / "tests" / "lookalike" / "programs"
REDIRECT = LIBRARIES / "libterrazzo_redirect.so"
NOT_REDIRECTED = "-1, version 0, none"


def redirected(who, major):
    return f"{who}: 0, version {major}, memory"


def compile_c(target, *sources_and_options):
    subprocess.run(["cc", "-std=gnu11", "-O1", "-w", "-o", target, *map(str, sources_and_options)], check=True)
    return target


class Redirected(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.opener = compile_c(cls.folder / "opener", PROGRAMS / "redirected.c", "-ldl", "-lpthread")

    def program(self, major, *options):
        return compile_c(self.folder / f"program{major}", PROGRAMS / "redirected.c", PROGRAMS / "fake_runtime.c",
                         f"-DFAKE_MAJOR={major}", "-ldl", "-lpthread", *options)

    def library(self, name, major, *options):
        return compile_c(self.folder / name, PROGRAMS / "fake_runtime.c", f"-DFAKE_MAJOR={major}", "-DFAKE_IN_LIBRARY",
                         "-shared", "-fPIC", *options)

    def lines(self, *command, **variables):
        env = environment(**variables) | {"LD_PRELOAD": str(REDIRECT)}
        done = subprocess.run([*map(str, command)], env=env, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_a_program_gets_the_runtime_of_its_version(self):
        for major in (11, 12, 13):
            for options in ((), ("-no-pie",), ("-fcf-protection=none", "-Wl,-z,relro,-z,now")):
                with self.subTest(major, options=options):
                    self.assertEqual(self.lines(self.program(major, *options)), [redirected("program", major)])

    def test_the_runtimes_names_may_end_longer_names(self):
        wrapper = self.folder / "wrapper.c"
        wrapper.write_text("int trz_cudaMalloc(void) { return 0; }\n", encoding="utf-8")
        self.assertEqual(self.lines(self.program(13, wrapper)), [redirected("program", 13)])

    def test_a_library_is_redirected_before_its_constructor(self):
        for major in (11, 12, 13):
            library = self.library(f"lib{major}.so", major)
            with self.subTest(major):
                self.assertEqual(self.lines(self.opener, library, library),
                                 [redirected("constructor", major), redirected("library", major)] * 2)

    def test_what_a_program_needs_is_redirected_before_its_constructor(self):
        self.library("libneeded.so", 12)
        program = compile_c(self.folder / "needs", PROGRAMS / "redirected.c", PROGRAMS / "fake_runtime.c",
                            "-DFAKE_MAJOR=13", f"-L{self.folder}", "-Wl,--no-as-needed", "-lneeded", "-ldl",
                            "-lpthread", f"-Wl,-rpath,{self.folder}")
        self.assertEqual(self.lines(program), [redirected("constructor", 12), redirected("program", 13)])

    def test_what_an_opened_library_needs_is_redirected(self):
        self.library("libinner.so", 11)
        outer = self.library("libouter.so", 12, f"-L{self.folder}", "-Wl,--no-as-needed", "-linner",
                             f"-Wl,-rpath,{self.folder}")
        self.assertEqual(self.lines(self.opener, outer),
                         [redirected("constructor", 11), redirected("constructor", 12), redirected("library", 12)])

    def test_many_libraries_are_opened_by_threads(self):
        majors = [11 + i % 3 for i in range(12)]
        libraries = [self.library(f"libthread{i}.so", major) for i, major in enumerate(majors)]
        self.assertEqual(sorted(self.lines(self.opener, "threads", *libraries)),
                         sorted(redirected(who, major) for major in majors for who in ("constructor", "library")))

    def test_without_names_a_runtime_stays(self):
        program = self.program(13)
        subprocess.run(["strip", program], check=True)
        self.assertEqual(self.lines(program), ["program: " + NOT_REDIRECTED])

    def test_what_is_no_runtime_of_ours_stays(self):
        for major, what in ((10, "CUDA 10"), (0, "functions of a program's own")):
            with self.subTest(what):
                self.assertEqual(self.lines(self.program(major)), ["program: " + NOT_REDIRECTED])

    def test_damaged_files_do_no_harm(self):
        image = bytearray(self.library("libwhole.so", 13).read_bytes())
        damaged = self.folder / "libdamaged.so"
        start = int.from_bytes(image[40:48], "little")  # of the section table
        for place in range(start, len(image), 4):
            changed = image.copy()
            changed[place:place + 4] = b"\xff\xff\xff\x7f"
            damaged.write_bytes(changed)
            self.assertTrue(self.lines(self.opener, damaged))

    def test_the_command_redirects(self):
        command = LIBRARIES.parents[1] / "bin" / "terrazzo"
        if not command.exists():
            self.skipTest("this build has no command")
        done = subprocess.run([command, "sim", "--", self.program(12)], env=environment(), capture_output=True,
                              text=True, timeout=120, check=False)
        self.assertEqual(done.stdout, redirected("program", 12) + "\n", done.stderr)


if __name__ == "__main__":
    skip_if_unfit(may_preload=False)
    if not REDIRECT.exists() or not shutil.which("strip"):
        print("skipped: calls are not redirected on this processor, or binutils are not installed")
        sys.exit(SKIPPED)
    unittest.main()
