# SPDX-License-Identifier: Apache-2.0
"""Finds and runs the command `terrazzo`, which the package contains."""
import os
import shutil
import sys
from pathlib import Path


def find():
    """Path of the program: the package's own, else the one that TERRAZZO_CLI or PATH names; None: there is none."""
    own = Path(__file__).resolve().parent / "bin" / "terrazzo"
    return str(own) if own.exists() else os.environ.get("TERRAZZO_CLI") or shutil.which("terrazzo")


def main():
    program = find()
    if not program:
        sys.exit("terrazzo: the program is missing from this installation")
    os.execv(program, ["terrazzo", *sys.argv[1:]])
