#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fragmentation benchmark: real allocators, the same requests, one table (bench/README.md).

    contest.py [--quick] [--minutes N] [--env DIR] [--peer FILE] [--trace FILE] [--workloads FILE] [--only NAME]...
               [--allocators NAME,...] [--out DIR] [--lags N,...] [--costs TABLE,...]
               [--parts PART,...] [--add] [--no-plots] [--docs]

Writes results.json (JSON Lines), table.md and plots into <build>/bench; BENCH=quick is --quick. Exit status 1: an
allocator broke a rule of the driver or gave memory away too early.
"""
import argparse
import concurrent.futures
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from comparison import hard_workloads, harness_runs, result_tables
from comparison.peer_build import BUILD, SOURCE, WORK, Missing, find_torch, prepare, run, torch_version

TRACES = SOURCE / "bench" / "traces"
COSTS = "a100,slow-create,wsl2"
LAGS = "0,500"
QUICK_TRACES = ("resnet50", "fsdp_like")
QUICK_HARD = ("lru_cache", "detection", "pipeline", "rmm_random_64MiB_1000")
QUICK_SCALE = 0.25
HOST_TIMES = ("ns_per_op", "median_ns", "p999_ns")
TIMED = 3        # runs for host times, of which the least counts
QUICK_DIVISOR = 10


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Bench:
    def __init__(self, arguments):
        self.arguments, self.rows, self.left_out = arguments, {}, []
        self.lock = threading.Lock()
        self.deadline = time.monotonic() + 60 * arguments.minutes
        self.data = WORK / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.results = arguments.out / "results.json"
        if arguments.add and self.results.exists():
            for line in self.results.read_text().splitlines():
                row = json.loads(line)
                self.rows[row["kind"], row["workload"], row["allocator"], row["lag"]] = row

    def row(self, kind, workload, allocator, lag=0):
        with self.lock:
            return self.rows.setdefault((kind, workload, allocator, lag),
                                        {"workload": workload, "kind": kind, "allocator": allocator, "lag": lag})

    def late(self, what):
        if time.monotonic() < self.deadline:
            return False
        with self.lock:
            self.left_out.append(what)
        return True

    def all_at_once(self, task, items):
        """Runs task(*item) for all items, on all processors; what would begin after the time is up is left out."""
        def one(item):
            if not self.late(f"{task.__name__} {' '.join(str(getattr(x, 'name', x)) for x in item)}"):
                task(*item)
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            for done in [pool.submit(one, item) for item in items]:
                done.result()

    # ---- what is run ----

    def measure(self, kind, workload, trace, lower, allocator, lag):
        row = self.row(kind, workload, allocator.name, lag)
        if "peak_reserved_bytes" in row:
            return
        found = harness_runs.replay(allocator, trace, lag)
        times = {"a100": found.pop("driver_time_ns", None)}
        row.update(found, lower_bound_bytes=lower or found.get("peak_allocated_bytes"))
        other_costs = allocator.fits and kind != "rmm" and lag == 0 and "failed" not in found
        for costs in self.arguments.costs if other_costs else ():
            times[costs] = harness_runs.replay(allocator, trace, lag, costs=costs).get("driver_time_ns")
        row["driver_time_ns"] = times

    def fit(self, kind, workload, trace, _lower, allocator, lag):
        row = self.row(kind, workload, allocator.name, lag)
        if "failed" not in row and row.get("peak_allocated_bytes") and "fit_bytes" not in row:
            row.update(harness_runs.smallest_device(allocator, trace, row, lag))

    def time_replay(self, kind, workload, trace, allocator):
        """The least of several runs: a busy machine only adds."""
        found = [harness_runs.replay(allocator, trace) for _ in range(TIMED)]
        found = [one for one in found if "failed" not in one]
        for name in HOST_TIMES:
            if found:
                self.row(kind, workload, allocator.name)[name] = min(one[name] for one in found)

    def micro(self, name, allocator):
        divisor = QUICK_DIVISOR if self.arguments.quick else 1
        found = harness_runs.harness(allocator, "--micro", name, "--divisor", divisor)
        found["driver_time_ns"] = {"a100": found.get("driver_time_ns")}
        self.row("micro", name, allocator.name).update(found)

    # ---- what there is ----

    def wanted(self, name, quick):
        if self.arguments.only:
            return name in self.arguments.only
        return not self.arguments.quick or name in quick

    def recorded(self):
        for packed in sorted(TRACES.glob("*.xz")):
            name = packed.name.partition(".")[0]
            if not self.wanted(name, QUICK_TRACES):
                continue
            plain = self.data / f"{name}.trace"
            if not plain.exists():
                run(BUILD / "bin" / "terrazzo", "replay", "--save", plain, packed)
            yield "recorded", name, plain, None
        for path in map(Path, self.arguments.trace):
            yield "recorded", path.name.partition(".")[0], path, None

    def generated(self):
        for name in hard_workloads.WORKLOADS:
            if self.wanted(name, QUICK_HARD) or name in self.arguments.own:
                made = hard_workloads.write(name, self.data / f"{name}.csv", QUICK_SCALE if self.arguments.quick else 1)
                kind = "rmm" if name.startswith("rmm_") else "generated"
                yield kind, name, self.data / f"{name}.csv", made["peak_bytes"]

    def micros(self):
        listed = subprocess.run([WORK / "harness", "--list"], stdout=subprocess.PIPE, text=True, check=True,
                                env=os.environ | {"LD_LIBRARY_PATH": str(WORK / "sim")}).stdout
        for line in listed.splitlines():
            name, _, host = line.partition(" ")
            if not self.arguments.only or name in self.arguments.only:
                yield name, bool(host)

    def run_all(self, allocators):
        gpu = [allocator for allocator in allocators.values() if not allocator.on_host]
        say("workloads")
        workloads = sorted([*self.recorded(), *self.generated()], key=lambda workload: workload[2].stat().st_size)
        if "host" in self.arguments.parts:
            self.run_host(allocators, gpu, workloads)
        if "memory" in self.arguments.parts:
            self.run_memory(gpu, workloads)

    def run_host(self, allocators, gpu, workloads):
        say(f"host time of {', '.join(allocators)}")
        for name, host in self.micros():
            for allocator in allocators.values():
                if (host if allocator.on_host else allocator.fits) and not self.late(f"micro {name} {allocator.name}"):
                    self.micro(name, allocator)
        for kind, name, trace, _ in workloads:
            for allocator in gpu:
                if kind == "recorded" and allocator.fits and not self.late(f"time_replay {name} {allocator.name}"):
                    self.time_replay(kind, name, trace, allocator)

    def run_memory(self, gpu, workloads):
        timed = {key: {name: row[name] for name in HOST_TIMES if name in row}
                 for key, row in self.rows.items() if row["kind"] == "recorded"}
        say(f"memory and driver time: {len(workloads)} workloads")
        lags = self.arguments.lags
        self.all_at_once(self.measure, [(*workload, allocator, lag) for workload in workloads for allocator in gpu
                                        for lag in (lags if allocator.fits and workload[0] != "rmm" else lags[:1])
                                        if allocator.fits or workload[0] != "rmm"])
        for key, row in self.rows.items():  # those of runs side by side are worth nothing
            for name in HOST_TIMES if row["kind"] != "micro" else ():
                row[name] = timed.get(key, {}).get(name)
        say("smallest devices")
        lags = lags[:1] if self.arguments.quick else lags
        self.all_at_once(self.fit, [(*workload, allocator, lag) for lag in lags for workload in workloads
                                    for allocator in gpu if allocator.fits
                                    if lag == 0 or workload[0] == "recorded"
                                    if workload[0] != "rmm" or workload[1].endswith("_1000")])

    def violations(self):
        return [row for row in self.rows.values() if row.get("violations")]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", default=os.environ.get("BENCH") == "quick",
                        help="a part of the workloads, smaller, in three minutes")
    parser.add_argument("--minutes", type=float, help="begin nothing after so many (18, or 2.5 with --quick)")
    parser.add_argument("--env", default=os.environ.get("TERRAZZO_TORCH_ENV"), help="environment with PyTorch")
    parser.add_argument("--peer", action="append", default=[], metavar="FILE", help="one more allocator")
    parser.add_argument("--trace", action="append", default=[], metavar="FILE", help="one more trace")
    parser.add_argument("--workloads", metavar="FILE", help="a module with more workloads")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this workload or micro alone")
    parser.add_argument("--allocators", metavar="NAME,...", help="these allocators alone")
    parser.add_argument("--lags", default=LAGS, metavar="N,...", help=f"lags of replays ({LAGS})")
    parser.add_argument("--costs", default=COSTS, metavar="TABLE,...", help=f"cost tables ({COSTS})")
    parser.add_argument("--parts", default="host,memory", help="host, memory or both (host,memory)")
    parser.add_argument("--add", action="store_true", help="go on where an earlier run stopped: keep its rows")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time, for memory")
    parser.add_argument("--out", type=Path, default=WORK, metavar="DIR")
    parser.add_argument("--no-plots", action="store_true")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/bench.md and the plots into docs/")
    arguments = parser.parse_args()
    arguments.minutes = arguments.minutes or (2.5 if arguments.quick else 18)
    arguments.own = []
    arguments.lags = [int(lag) for lag in arguments.lags.split(",")]
    arguments.costs = [] if arguments.quick else [costs for costs in arguments.costs.split(",") if costs != "a100"]
    return arguments


def load_workloads(path):
    """Names of the workloads that the module adds."""
    before = set(hard_workloads.WORKLOADS)
    spec = importlib.util.spec_from_file_location("added_workloads", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    return [name for name in hard_workloads.WORKLOADS if name not in before]


def draw(arguments, results):
    """By matplotlib, in an environment of its own."""
    python = WORK / "plot-env" / "bin" / "python"
    try:
        if not python.exists():
            run(sys.executable, "-m", "venv", python.parents[1])
            run(python, "-m", "pip", "install", "-q", "matplotlib")
        run(python, SOURCE / "bench" / "comparison" / "result_plots.py", results, arguments.out)
    except Missing as why:
        say(f"left out: plots: {why}")


def main():
    arguments = parse_arguments()
    sys.path.insert(0, str(SOURCE / "bench"))
    if arguments.workloads:
        arguments.own = load_workloads(arguments.workloads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments)
    names = arguments.allocators.split(",") if arguments.allocators else None
    allocators = prepare(names, arguments.peer, arguments.env, say)
    results = bench.results
    try:
        bench.run_all(allocators)
    finally:
        results.write_text("".join(json.dumps(row) + "\n" for row in bench.rows.values()))
    version = torch_version(find_torch(arguments.env)) if any(a.needs == "torch" for a in allocators.values()) else ""
    table = result_tables.tables(list(bench.rows.values()), version)
    (arguments.out / "table.md").write_text(table)
    if not arguments.no_plots:
        draw(arguments, results)
    if arguments.docs:
        result_tables.put(SOURCE / "docs" / "bench.md", table)
        for plot in arguments.out.glob("bench_*.svg"):
            shutil.copy(plot, SOURCE / "docs")
    for what in bench.left_out:
        say(f"left out, no time: {what}")
    for row in bench.violations():
        say(f"violation: {row['allocator']} in {row['workload']}: {row.get('problem')}")
    say(f"{results}: {len(bench.rows)} rows")
    return 1 if bench.violations() else 0


if __name__ == "__main__":
    sys.exit(main())
