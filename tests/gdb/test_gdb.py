#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/gdb/terrazzo_gdb.py in gdb, on a program with a heap that gdb stops. Skipped if there is no gdb, or it may not
trace programs."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
PROGRAM = Path(os.environ["TRZ_BUILD_DIR"]) / "tests" / "gdb" / "gdb_target"
COMMANDS = ["set pagination off", "set debuginfod enabled off", "break target_is_ready", "run", "up",
            f"source {SOURCE}/tools/gdb/terrazzo_gdb.py", "trz heap", "trz blocks", "trz blocks live",
            "trz blocks nonsense", "trz find slot", "trz find (unsigned long)large + 4096", "trz find 16",
            "print *heap->windows[1]", "print *heap->windows[1]->blocks.first",
            "print *heap->windows[1]->places[0]->tile", "print *heap->windows[0]->blocks.first->slab", "kill"]

EXPECTED = [
    r"^heap 0x[0-9a-f]+ of device 0$",
    r"^  reserved +[\d.]+ MiB$",
    r"^  allocated +13 MiB$",
    r"^  pending +3 MiB$",
    r"^  4 allocations, \d+ tiles, \d+ stale aliases, 2 streams$",
    r"^  locks held: none$",
    r"^  window 0x[0-9a-f]+ large: [\d.]+ MiB laid of [\d.]+ MiB, [\d.]+ MiB mapped$",
    r"^  0x[0-9a-f]+ \+5 MiB live, 5242880 B requested, used by 1 more streams, stream 0x0$",
    r"^  0x[0-9a-f]+ \+3 MiB pending, 3145728 B requested, stream 0x0$",
    r"^  0x[0-9a-f]+ \+[\d.]+ \w+ slab of 1024 B: 1 held, 0 pending, \d+ free, stream 0x0$",
    r"^  0x[0-9a-f]+ \+[\d.]+ \w+ free, ticket \d+, stream 0x0$",
    r"no state is called nonsense; there are free, live,",
    r"^slot 0: held$",
    r"^block 0x[0-9a-f]+ \+5 MiB live.*; 4096 B into it$",
    r"^tile of [\d.]+ MiB, owned at 0x[0-9a-f]+",
    r"^0x10 lies in no window of a heap$",
    r"^\$1 = window 0x[0-9a-f]+ large: ",
    r"^\$2 = block 0x[0-9a-f]+ \+",
    r"^\$3 = tile of ",
    r"^\$4 = slab 0x[0-9a-f]+ of 1024 B: 1 held, 0 pending,",
]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def main():
    gdb = shutil.which("gdb")
    if not gdb:
        skip("gdb is not installed")
    arguments = [gdb, "--batch", "--nx"]
    for command in COMMANDS:
        arguments += ["-ex", command]
    run = subprocess.run(arguments + [str(PROGRAM)], capture_output=True, text=True, timeout=120,
                         env={**os.environ, "LC_ALL": "C"})
    text = run.stdout + run.stderr
    if re.search(r"ptrace: Operation not permitted|Could not trace the inferior|not built with Python|"
                 r"Scripting in the \"Python\" language is not supported", text):
        skip("gdb cannot trace here, or has no Python")
    if "has no debug information" in text:
        skip("this build has no debug information")
    missing = [pattern for pattern in EXPECTED if not re.search(pattern, text, re.M)]
    if "Traceback" in text or "Python Exception" in text:
        missing.append("no exception")
    for pattern in missing:
        print(f"not found: {pattern}")
    if missing:
        print(text)
    sys.exit(1 if missing else 0)


main()
