# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of programs outside the tree: running commands, and the output of the program in consumer/."""
import os
import re
import subprocess
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
BUILD = Path(os.environ["TRZ_BUILD_DIR"])
CONSUMER = SOURCE / "tests" / "install" / "consumer"
PROGRAMS = ("c_terrazzo", "c_static", "cpp_terrazzo", "cpp_static")


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
    said = run(program, env=dict(os.environ, **environment))
    test.assertRegex(said, rf"^{re.escape(version())} TRZ_\w+\n$")
