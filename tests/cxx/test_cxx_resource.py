# SPDX-License-Identifier: Apache-2.0
"""terrazzo/memory_resource.hpp and terrazzo/rmm.hpp with the real headers: the toolkit's CCCL, and RMM's with the CCCL
that RMM brings along. RMM before 25 is all headers, so its containers run, too. Those of a newer one run if TRZ_RMM
names it: folders, separated by colons, each with include/ and, if the program is to run, src/, as an unpacked package
and RMM's own sources have them, and the headers and library of rapids_logger."""
import os
import shutil
import subprocess
import unittest
from pathlib import Path

from cxx_program import PROGRAMS, SIMULATED, SOURCE, WAYS, Programs, skip, system, toolkit

TOOLKIT = toolkit()
CUDA = system(TOOLKIT / "include")
LINK = [f"-Wl,-rpath-link,{SIMULATED}", "-O1", "-Wall", "-Wextra", "-Werror"]
WITH_RMM = ["-DWITH_RMM", "-DRMM_NO_LOGGING", "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"]
# What RMM's containers need of its sources.
NEEDED = ("aligned.cpp", "cuda_device.cpp", "cuda_stream.cpp", "cuda_stream_view.cpp", "device_buffer.cpp", "error.cpp",
          "logger.cpp", "prefetch.cpp", "runtime_shutdown.cpp", "mr/cuda_memory_resource.cpp")


def fetched():
    """Packages of RMM, by version; none where they cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "terrazzo" / "rmm"
    done = subprocess.run([SOURCE / "tools" / "fetch_rmm.sh", cache], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr)
        return {}
    return {folder.name: folder / "librmm" for folder in sorted(cache.iterdir()) if (folder / "librmm").is_dir()}


def headers(rmm):
    include = rmm / "include"
    loggers = [path.parents[1] for path in rmm.parent.glob("**/rapids_logger/logger.hpp")]
    return system(include, *(include / part for part in ("rapids/libcudacxx", "rapids", "nvtx3")
                             if (include / part).is_dir()), *loggers) + CUDA


class Resource(Programs):
    def run_all(self, program):
        for way in WAYS:
            with self.subTest(**way):
                self.run_it(program, DEVICES="2", **way)


class OfTheToolkit(Resource):
    def test_cccl_of_the_toolkit(self):
        cccl = system(TOOLKIT / "include" / "cccl") + CUDA
        self.run_all(self.build("resource.cpp", "g++", "-std=c++17", *LINK, *cccl))
        for compiler, standard in (("g++", "c++20"), ("clang++", "c++17")):
            if shutil.which(compiler):
                self.compile(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                             f"-I{SOURCE / 'include'}", *cccl, PROGRAMS / "resource.cpp")


class WithRMM(Resource):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.packages = fetched()
        if not cls.packages:
            raise unittest.SkipTest("RMM's headers cannot be fetched")

    def test_containers_run_over_a_heap(self):
        self.run_all(self.build("resource.cpp", "g++", "-std=c++17", *LINK, *WITH_RMM,
                                *headers(self.packages["24.12.1"])))

    def test_newest_compiles(self):
        self.compile("g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{SOURCE / 'include'}",
                     *WITH_RMM, *headers(self.packages["26.10.0"]), PROGRAMS / "resource.cpp")

    def test_newest_cccl(self):
        self.run_all(self.build("resource.cpp", "g++", "-std=c++17", *LINK, *headers(self.packages["26.10.0"])))


class GivenRMM(Resource):
    def test_containers_run_over_a_heap(self):
        given = [Path(folder) for folder in os.environ.get("TRZ_RMM", "").split(":") if folder]
        if not given:
            self.skipTest("TRZ_RMM names no RMM")
        for rmm in given:
            with self.subTest(rmm):
                sources = [rmm / "src" / name for name in NEEDED if (rmm / "src" / name).exists()]
                libraries = [f"-L{path.parent}" for path in rmm.parent.glob("**/librapids_logger.so")]
                run_paths = [f"-Wl,-rpath,{folder[2:]}" for folder in libraries]
                self.run_all(self.build("resource.cpp", "g++", "-std=c++20", "-O1", f"-Wl,-rpath-link,{SIMULATED}",
                                        *WITH_RMM, *headers(rmm), *sources,
                                        libraries=["-l:libcudart.so.13", *libraries, *run_paths,
                                                   *(["-lrapids_logger"] if libraries else [])]))


if __name__ == "__main__":
    if not shutil.which("g++"):
        skip("g++ is not installed")
    if not (SIMULATED / "libcudart.so.13").exists():
        skip("this build has no look-alike libraries")
    unittest.main()
