#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of bench/workloads/ under PyTorch's allocators and under terrazzo, on a simulated device of 80 GiB.

    torch_programs.py --env DIR [--rounds N] [--work now|late] [--json FILE] [NAME...]

`terrazzo sim --setup DIR --with transformers` makes DIR. The ways take turns, N rounds (1), one process at a time,
another one first in each round. For each program: allocations and kernels, which must be equal each way; bytes
allocated and reserved at the peak; processor time of the process, with the least and the most of the rounds, and of the
program in it without imports and the start of CUDA: medians, and the medians of the multiples of native's in the same
round, since a machine's speed drifts by more than the ways differ. Exit status 1 if a run fails or reports violations
or misuses, if counts differ, or if terrazzo's reserved / allocated is more than 0.01 above that of expandable segments.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(os.environ.get("TRZ_SOURCE_DIR", Path(__file__).resolve().parent.parent))
CLI = os.environ.get("TERRAZZO_CLI", str(SOURCE / "build" / "bin" / "terrazzo"))
RUNNER = SOURCE / "bench" / "workloads" / "run_program.py"
NAMES = list(json.loads((RUNNER.parent / "workloads_reference.json").read_text())["programs"])
WAYS = ("native", "expandable", "terrazzo")
MARGIN = 0.01
QUIET = {"OPENBLAS_NUM_THREADS": "1"}  # NumPy's idle threads spin, for longer than all that is compared here


class Failure(Exception):
    """The output of a run that failed."""


def run(env, name, way, work):
    """The figures of one run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        ours = way == "terrazzo"
        command = [CLI, "sim", f"--env={env}", "--memory=80GiB", f"--work={work}", f"--json={file}"]
        command += [] if ours else [f"--allocator={way}"]
        command += ["--", *([CLI, "run", "--"] if ours else []), "python", str(RUNNER), name]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              env={**os.environ, **QUIET})
        if done.returncode or not file.exists():
            raise Failure(f"{name} {way}:\n{done.stdout}")
        report = json.loads(file.read_text())
    program = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"program"')))
    backend = report["processes"][0]["pytorch"]["backend"]
    if (backend == "terrazzo") != ours:
        raise Failure(f"{name} {way}: ran under {backend}:\n{done.stdout}")
    return {**program, "kernels": report["kernels"], "violations": report["violations"] + report["misuses"]}


def ratio(figures):
    return figures["reserved_bytes"] / figures["allocated_bytes"]


def wrong_with(rows):
    """Texts: the requirements that one program misses."""
    native, expandable, ours = (rows[way][0] for way in WAYS)
    texts = [f"{key} {ours[key]}, native {native[key]}" for key in ("allocations", "kernels")
             if ours[key] != native[key]]
    texts += [f"{run['violations']} violations under {way}" for way in WAYS for run in rows[way] if run["violations"]]
    if ratio(ours) > ratio(expandable) + MARGIN:
        texts.append(f"reserved / allocated {ratio(ours):.4f}, expandable {ratio(expandable):.4f}")
    return texts


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def multiple(runs, natives, key):
    return statistics.median(run[key] / native[key] for run, native in zip(runs, natives))


def print_rows(name, rows):
    for way in WAYS:
        runs, natives = rows[way], rows["native"]
        first, times = runs[0], sorted(run["process_cpu_seconds"] for run in runs)
        print(f"{name:<20} {way:<10} {first['allocations']:>8} {first['kernels']:>8} "
              f"{first['allocated_bytes'] / 2**30:>9.2f} {first['reserved_bytes'] / 2**30:>8.2f} {ratio(first):>7.4f} "
              f"{statistics.median(times):>8.2f} {times[0]:>7.2f} {times[-1]:>7.2f} "
              f"{multiple(runs, natives, 'process_cpu_seconds'):>6.3f} {median(runs, 'program_cpu_seconds'):>8.2f} "
              f"{multiple(runs, natives, 'program_cpu_seconds'):>6.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--env", required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--work", choices=("now", "late"), default="late")
    parser.add_argument("--json")
    args = parser.parse_args()
    unknown = set(args.names) - set(NAMES)
    if unknown:
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    # As pip does for what it installs.
    subprocess.run([Path(args.env) / "bin" / "python", "-m", "compileall", "-q", SOURCE / "python"], check=True)
    print(f"{'program':<20} {'allocator':<10} {'allocs':>8} {'kernels':>8} {'allocated':>9} {'reserved':>8} "
          f"{'ratio':>7} {'cpu s':>8} {'least':>7} {'most':>7} {'x':>6} {'program':>8} {'x':>6}", flush=True)
    found, missed = {}, 0
    for name in args.names or NAMES:
        try:
            rounds = [{way: run(args.env, name, way, args.work) for way in WAYS[turn:] + WAYS[:turn]}
                      for turn in (i % len(WAYS) for i in range(args.rounds))]
        except Failure as failure:
            print(failure, file=sys.stderr)
            missed += 1
            continue
        found[name] = {way: [turn[way] for turn in rounds] for way in WAYS}
        print_rows(name, found[name])
        for text in wrong_with(found[name]):
            print(f"{name}: {text}", file=sys.stderr)
            missed += 1
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
