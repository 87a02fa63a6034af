# SPDX-License-Identifier: Apache-2.0
"""Compiles the C++ programs of this folder against the tree's headers and library, and runs them on the simulated
device."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
LIBRARY = Path(os.environ["TERRAZZO_LIB"]).parent
SIMULATED = Path(os.environ["TRZ_LOOKALIKE_DIR"])
PROGRAMS = SOURCE / "tests" / "cxx" / "programs"
SKIPPED = 77
WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
# Work that completes at once, and late under three schedules.
WAYS = ({}, {"WORK": "late"}, {"WORK": "late", "SCHEDULE": "starve", "SEED": "3"},
        {"WORK": "late", "SCHEDULE": "lifo", "SEED": "8"})


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def toolkit():
    """The folder of the CUDA toolkit; ends the test where there is none."""
    nvcc = shutil.which("nvcc")
    folder = Path(nvcc).resolve().parent.parent if nvcc else Path("/usr/local/cuda")
    if not (folder / "include" / "cuda_runtime_api.h").exists():
        skip("no CUDA toolkit is installed")
    return folder


def system(*folders):
    """Options for headers that are not ours."""
    return [option for folder in folders for option in ("-isystem", folder)]


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)

    def compile(self, *command):
        command = [str(part) for part in command]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"[:8000])

    def build(self, name, compiler, *options, libraries=("-l:libcudart.so.13",)):
        program = self.folder / "program"
        self.compile(compiler, f"-I{SOURCE / 'include'}", *options, PROGRAMS / name, "-o", program, f"-L{LIBRARY}",
                     "-lterrazzo", f"-L{SIMULATED}", *libraries)
        return program

    def run_it(self, program, *arguments, **variables):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TERRAZZO_", "CUDA_"))}
        kept["LD_LIBRARY_PATH"] = f"{LIBRARY}:{SIMULATED}:{kept.get('LD_LIBRARY_PATH', '')}"
        kept["TERRAZZO_SIM_SCALARS"] = "real"
        kept.update({f"TERRAZZO_SIM_{name}": value for name, value in variables.items()})
        done = subprocess.run([program, *arguments], env=kept, capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-4000:])
        self.assertRegex(done.stdout, r"^[1-9]\d* checks\n$")
