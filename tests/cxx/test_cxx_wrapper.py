# SPDX-License-Identifier: Apache-2.0
"""wrapper.cpp, the program for terrazzo.hpp, compiles without a warning by every compiler and standard, and runs."""
import shutil
import subprocess
import unittest

from cxx_program import LIBRARY, PROGRAMS, SIMULATED, SOURCE, WARNINGS, WAYS, Programs, skip

COMPILERS = [compiler for compiler in ("g++", "clang++") if shutil.which(compiler)]


class Wrapper(Programs):
    def test_runs(self):
        for compiler in COMPILERS:
            program = self.build("wrapper.cpp", compiler, "-std=c++17", *WARNINGS,
                                 f"-Wl,-rpath-link,{SIMULATED}", libraries=("-l:libcuda.so.1",))
            for way in WAYS:
                with self.subTest(compiler, **way):
                    self.run_it(program, **way)

    def test_newer_standards(self):
        for compiler in COMPILERS:
            for standard in ("c++20", "c++23", "c++2b"):
                with self.subTest(compiler, standard=standard):
                    if standard == "c++23" and compiler == "clang++":
                        continue  # older clangs have it as c++2b
                    self.compile(compiler, f"-std={standard}", *WARNINGS, f"-I{SOURCE / 'include'}", "-fsyntax-only",
                                 PROGRAMS / "wrapper.cpp")

    def test_an_older_standard_is_refused_by_name(self):
        for compiler in COMPILERS:
            with self.subTest(compiler):
                done = subprocess.run([compiler, "-std=c++14", f"-I{SOURCE / 'include'}", "-fsyntax-only",
                                       PROGRAMS / "wrapper.cpp"], capture_output=True, text=True, check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stderr.partition("error")[2], '^:.*terrazzo.hpp needs C\\+\\+17')


if __name__ == "__main__":
    if not COMPILERS:
        skip("no C++ compiler is installed")
    if not (SIMULATED / "libcuda.so.1").exists() or not (LIBRARY / "libterrazzo.so").exists():
        skip("this build has no shared libraries to run with")
    unittest.main()
