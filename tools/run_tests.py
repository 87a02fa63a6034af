#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Configures, builds and tests presets one after another, and prints a last line about all of them.

    run_tests.py [PRESET...]        default: what `make check` promises

What each preset runs is in its test preset (CMakePresets.json). A preset that does not configure or build
counts as one failure; a test whose program is missing counts as failed, not as skipped.
"""
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKED = ["release", "debug", "clang", "asan", "tsan"]
BUILT_ONLY = {"clang"}


def run(*command):
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def unrandomised():
    """A prefix that switches address space randomisation off, if that is permitted: older compilers' ThreadSanitizer
    does not start under the strong randomisation of newer kernels."""
    prefix = ["setarch", "-R"]
    try:
        works = subprocess.run(prefix + ["true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        works = False
    return prefix if works else []


def read_results(path):
    """(passed, [failed names], skipped) of a JUnit file that ctest wrote."""
    passed, failed, skipped = 0, [], 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        skip = case.find("skipped")
        if case.get("status") == "run" and case.find("failure") is None and skip is None:
            passed += 1
        elif skip is not None and "SKIP_" in skip.get("message", ""):
            skipped += 1
        else:
            failed.append(case.get("name"))
    return passed, failed, skipped


def check(preset):
    print(f"==== {preset} ====", flush=True)
    if run("cmake", "--preset", preset, "--log-level=NOTICE"):
        return 0, [f"{preset}: configure"], 0
    broken = [f"{preset}: build"] if run("cmake", "--build", "--preset", preset, "--", "-k", "0") else []
    if preset in BUILT_ONLY:
        return 0 if broken else 1, broken, 0
    results = ROOT / "build" / f"results-{preset}.xml"
    results.unlink(missing_ok=True)
    prefix = unrandomised() if preset == "tsan" else []
    run(*prefix, "ctest", "--preset", preset, "-j", str(os.cpu_count()), "--output-junit", str(results))
    if not results.exists():
        return 0, broken + [f"{preset}: no test was found"], 0
    passed, failed, skipped = read_results(results)
    if passed + len(failed) + skipped == 0:
        failed.append("no test was found")
    return passed, broken + [f"{preset}: {name}" for name in failed], skipped


def main():
    summary = ROOT / "build" / "summary"
    summary.unlink(missing_ok=True)
    passed, failed, skipped = 0, [], 0
    for preset in sys.argv[1:] or CHECKED:
        result = check(preset)
        passed, failed, skipped = passed + result[0], failed + result[1], skipped + result[2]
    for name in failed:
        print(f"FAILED {name}")
    line = f"{passed} passed, {len(failed)} failed" + (f", {skipped} skipped" if skipped else "")
    summary.parent.mkdir(exist_ok=True)
    summary.write_text(line + "\n")
    print(line, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
