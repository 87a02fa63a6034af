#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of bench/workloads/ on a simulated device of 80 GiB and holds their figures against the reference.

    workloads.py --env DIR [--jobs N] [--twice] [--json FILE] [NAME...]

`terrazzo sim --setup DIR --with transformers` makes DIR. Prints a table: PyTorch's own peaks, in GiB, and the driver
calls that made memory, native and expandable. Exit status 1 if a figure is more than 0.5 % from the reference or, with
--twice, if a second run differs at all.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(os.environ.get("TRZ_SOURCE_DIR", Path(__file__).resolve().parent.parent))
CLI = os.environ.get("TERRAZZO_CLI", str(SOURCE / "build" / "bin" / "terrazzo"))
FOLDER = SOURCE / "bench" / "workloads"
REFERENCE = json.loads((FOLDER / "workloads_reference.json").read_text())["programs"]
MADE = {"native": "cudaMalloc", "expandable": "cuMemCreate"}
TOLERANCE = 0.005


def run(env, name, allocator):
    """The report of one run; if there is none, a text that says why."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [CLI, "sim", f"--env={env}", "--memory=80GiB", f"--allocator={allocator}", f"--json={file}",
                   "--scalars=zero", "--",  # as on the reference's device
                   "python", str(FOLDER / "run_program.py"), name]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode or not file.exists():
            return done.stdout
        return json.loads(file.read_text())


def figures(report):
    pytorch = report["processes"][0]["pytorch"]["devices"][0]
    return {"allocated_bytes": report["peak_allocated_bytes"], "reserved_bytes": report["peak_reserved_bytes"],
            "allocations": pytorch["allocations"], "calls": report["driver_calls"]}


def differences(found, wanted):
    """Texts: one for each figure that is not near the reference."""
    pairs = [(key, found[key], wanted[key]) for key in ("allocated_bytes", "reserved_bytes", "allocations")]
    pairs += [(key, found["calls"].get(key, 0), count) for key, count in wanted["calls"].items()]
    return [f"{key} {value}, reference {reference}" for key, value, reference in pairs
            if abs(value - reference) > TOLERANCE * reference]


def measure(env, name, allocator, twice):
    """(figures or None, [what is wrong])"""
    reports = [run(env, name, allocator) for _ in range(2 if twice else 1)]
    for report in reports:
        if isinstance(report, str):
            return None, [f"the run failed:\n{report}"]
    first, last = figures(reports[0]), figures(reports[-1])
    wrong = differences(first, REFERENCE[name][allocator])
    if first != last:
        wrong.append("the second run differs from the first")
    return first, wrong


def print_row(name, allocator, found, wrong):
    if found:
        print(f"{name:<20} {allocator:<10} {found['allocations']:>8} {found['allocated_bytes'] / 2**30:>9.2f} "
              f"{found['reserved_bytes'] / 2**30:>9.2f} {found['calls'].get(MADE[allocator], 0):>6}  "
              f"{'MISS' if wrong else ''}")
    for text in wrong:
        print(f"{name} {allocator}: {text}", file=sys.stderr)
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--env", required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()
    unknown = set(args.names) - REFERENCE.keys()
    if unknown:
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(REFERENCE)}")
    print(f"{'program':<20} {'allocator':<10} {'allocs':>8} {'allocated':>9} {'reserved':>9} {'made':>6}")
    rows, missed = [], 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        wanted = [(name, allocator) for name in args.names or REFERENCE for allocator in MADE]
        results = pool.map(lambda pair: measure(args.env, *pair, args.twice), wanted)
        for (name, allocator), (found, wrong) in zip(wanted, results):
            print_row(name, allocator, found, wrong)
            missed += bool(wrong)
            rows.append({"program": name, "allocator": allocator, "figures": found, "wrong": wrong})
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
