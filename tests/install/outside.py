# SPDX-License-Identifier: Apache-2.0
"""What tests of programs outside the tree share: running commands, and the output of the program in consumer/."""
import os
import re
import subprocess
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
BUILD = Path(os.environ["TRZ_BUILD_DIR"])
CONSUMER = SOURCE / "tests" / "install" / "consumer"
SIMULATED = Path(os.environ["TRZ_LOOKALIKE_DIR"])
SHARED = ("c_terrazzo", "cpp_terrazzo", "hpp_terrazzo", "c_cuda", "cpp_cuda")
PROGRAMS = SHARED + ("c_static", "cpp_static", "hpp_static", "c_cuda_static", "cpp_cuda_static")


def run(*command, **options):
    command = [str(part) for part in command]
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if result.returncode:
        raise AssertionError(f"{command} failed:\n{result.stdout}\n{result.stderr}")
    return result.stdout


def version():
    parts = re.findall(r"#define TRZ_VERSION_\w+ (\d+)", (SOURCE / "include" / "terrazzo.h").read_text())
    return ".".join(parts)


def check_program(test, program, **environment):
    """It runs without a driver or with the machine's, and on the simulated device, where nothing may fail."""
    said = run(program, env=dict(os.environ, **environment))
    test.assertRegex(said, rf"^{re.escape(version())} TRZ_\w+\n$")
    if (SIMULATED / "libcuda.so.1").exists():
        folders = f"{SIMULATED}:{environment.get('LD_LIBRARY_PATH', '')}"
        said = run(program, env=dict(os.environ, **{**environment, "LD_LIBRARY_PATH": folders}))
        test.assertEqual(said, f"{version()} TRZ_OK\n")
