#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of bench/workloads/ under PyTorch's allocators and under terrazzo, on a simulated device of 80 GiB.

    torch_programs.py --env DIR [--rounds N] [--work now|late] [--json FILE] [--streams] [NAME...]

`terrazzo sim --setup DIR --with transformers` makes DIR. The allocators take turns, N rounds (1), one process at a
time, another one first in each round. For each program: allocations and kernels, which must be equal for all; bytes
allocated and reserved at the peak; processor time of the process, with the least and the most of the rounds, and of the
program in it without imports and the start of CUDA: medians, and the medians of the multiples of native's in the same
round, since a machine's speed drifts by more than they differ. Exit status 1 if a run fails or reports violations or
misuses, if counts differ, or if terrazzo's reserved / allocated is more than 0.01 above that of expandable segments.

With --streams the programs are those of streams.py, which use several streams. Each is recorded, too, and a second line
tells what it needs from any allocator (docs/replay.md, "The bound"), by its own order alone and if work completes 500
events late; and, as parts of the batches of 64 frees or 64 MiB, the events that terrazzo recorded and queried, and its
questions about captures in frees (these by replay, 500 events late). Exit status 1 also if terrazzo reserves more than
expandable segments do; more than 1.05 of the peak allocated although the bound by order alone is at most that; or if
there are more events or questions than batches.
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
STREAMS = {"fsdp2": ["--world-size=8"], "fsdp1": ["--world-size=8"], "pipeline_1f1b": ["--world-size=4", "--ranks=1"],
           "offload_optimizer": [], "offload_activations": [], "loader": [], "graphs": [], "service": [], "threads": []}
NEVER, LATE = 2**32 - 1, 500  # how late work completes, in events of the trace
NEEDED = 1.05
WAYS = ("native", "expandable", "terrazzo")
MARGIN = 0.01
QUIET = {"OPENBLAS_NUM_THREADS": "1"}  # NumPy's idle threads spin for longer than anything compared here


class Failure(Exception):
    """The output of a run that failed."""


def run(env, name, way, work, options=()):
    """The figures of one run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        ours = way == "terrazzo"
        command = [CLI, "sim", f"--env={env}", "--memory=80GiB", f"--work={work}", f"--json={file}"]
        command += [*STREAMS.get(name, []), *options, *([] if ours else [f"--allocator={way}"])]
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


def replay(trace, lag):
    done = subprocess.run([CLI, "replay", "--bound", f"--lag={lag}", "--json=-", trace], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Failure(f"the replay of {trace} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def needs(env, name, work):
    """What a program of several streams needs, as multiples of its peak, and its batches of frees."""
    with tempfile.TemporaryDirectory() as folder:
        run(env, name, "native", work, [f"--record={folder}/program.trace"])
        trace, = Path(folder).glob("*.trace")
        ordered, late = replay(trace, NEVER), replay(trace, LATE)
    peak = late["peak_allocated_bytes"]
    return {"by_order": ordered["bound_bytes"] / peak, "late": late["bound_bytes"] / peak,
            "batches": late["free_batches"], "asked": late["driver_calls_in_frees"].get("stream_capture", 0)}


def for_batches(ours, need):
    """Name -> events, or questions, per batch of frees."""
    counts = {"events recorded": ours["own_calls"].get("event_record", 0),
              "queried": ours["own_calls"].get("event_query", 0), "questions about captures in frees": need["asked"]}
    return {key: count / max(1, need["batches"]) for key, count in counts.items()}


def ratio(figures):
    return figures["reserved_bytes"] / figures["allocated_bytes"]


def wrong_with(rows, need):
    """Texts: the requirements that a program misses; `need`: only for a program of several streams."""
    native, expandable, ours = (rows[way][0] for way in WAYS)
    texts = [f"{key} {ours[key]}, native {native[key]}" for key in ("allocations", "kernels")
             if ours[key] != native[key]]
    texts += [f"{run['violations']} violations under {way}" for way in WAYS for run in rows[way] if run["violations"]]
    if need:
        texts += wrong_with_streams(rows, need)
    elif ratio(ours) > ratio(expandable) + MARGIN:
        texts.append(f"reserved / allocated {ratio(ours):.4f}, expandable {ratio(expandable):.4f}")
    return texts


def wrong_with_streams(rows, need):
    expandable, ours = rows["expandable"][0], rows["terrazzo"][0]
    texts = []
    if ours["reserved_bytes"] > expandable["reserved_bytes"]:
        texts.append(f"reserved {ours['reserved_bytes']}, expandable {expandable['reserved_bytes']}")
    if need["by_order"] <= NEEDED < ratio(ours):
        texts.append(f"reserved / allocated {ratio(ours):.4f}, needed {need['by_order']:.4f}")
    return texts + [f"{part:.3f} {key} for each batch" for key, part in for_batches(ours, need).items() if part > 1]


def print_need(name, rows, need):
    parts = ", ".join(f"{key} {part:.3f}" for key, part in for_batches(rows["terrazzo"][0], need).items())
    print(f"{name:<20} needs {need['by_order']:.4f} by its order, {need['late']:.4f} if {LATE} events late; "
          f"of {need['batches']} batches: {parts}", flush=True)


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
    parser.add_argument("--streams", action="store_true")
    args = parser.parse_args()
    names = STREAMS if args.streams else NAMES
    unknown = set(args.names) - set(names)
    if unknown:
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    # As pip does for packages that it installs.
    subprocess.run([Path(args.env) / "bin" / "python", "-m", "compileall", "-q", SOURCE / "python"], check=True)
    print(f"{'program':<20} {'allocator':<10} {'allocs':>8} {'kernels':>8} {'allocated':>9} {'reserved':>8} "
          f"{'ratio':>7} {'cpu s':>8} {'least':>7} {'most':>7} {'x':>6} {'program':>8} {'x':>6}", flush=True)
    found, missed = {}, 0
    for name in args.names or names:
        try:
            rounds = [{way: run(args.env, name, way, args.work) for way in WAYS[turn:] + WAYS[:turn]}
                      for turn in (i % len(WAYS) for i in range(args.rounds))]
            need = needs(args.env, name, args.work) if args.streams else None
        except Failure as failure:
            print(failure, file=sys.stderr)
            missed += 1
            continue
        rows = {way: [turn[way] for turn in rounds] for way in WAYS}
        found[name] = {**rows, "needs": need} if need else rows
        print_rows(name, rows)
        if need:
            print_need(name, rows, need)
        for text in wrong_with(rows, need):
            print(f"{name}: {text}", file=sys.stderr)
            missed += 1
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
