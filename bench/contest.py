#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fragmentation benchmark: real allocators, the same requests, one table (bench/README.md).

    contest.py [--quick] [--minutes N] [--env DIR] [--peer FILE] [--variant NAME=ALLOCATOR,OPTION,...] [--trace FILE]
               [--workloads FILE] [--only NAME]... [--allocators NAME,...] [--out DIR] [--lags N,...]
               [--costs TABLE,...] [--parts PART,...] [--add] [--no-plots] [--docs]

Writes results.json (JSON Lines), table.md and plots into <build>/bench; BENCH=quick is --quick. Exit status 1: an
allocator broke a rule of the driver or gave memory away too early; 2: what was asked for is not there.
"""
import argparse
import concurrent.futures
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from comparison import fit_guesses, hard_workloads, harness_runs, result_tables, result_verdicts
from comparison.peer_build import BUILD, SOURCE, WORK, Missing, all_allocators, find_torch, prepare, run, \
    torch_version

TRACES = SOURCE / "bench" / "traces"
COSTS = ",".join(harness_runs.TABLES)
LAGS = "0,500"
QUICK_TRACES = ("resnet50", "fsdp_like")
QUICK_HARD = ("lru_cache", "detection", "pipeline", "rmm_random_64MiB_1000")
QUICK_SCALE = 0.25
HOST_TIMES = ("ns_per_op", "told_ns_per_op", "median_ns", "p999_ns")
TIMED = 3        # runs for host times; the least counts
QUICK_DIVISOR = 10
QUICK_PLAN = 0.1
PLANNER = "planner"


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Bench:
    def __init__(self, arguments):
        self.arguments, self.rows, self.left_out = arguments, {}, []
        self.lock = threading.Lock()
        self.part, self.used = None, processor_seconds()
        self.guesses = fit_guesses.Guesses(QUICK_SCALE if arguments.quick else 1)
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

    def begin(self, part):
        """Announces a part, and says how much processor time the last one took; saves what that has found."""
        self.write()
        used = processor_seconds()
        if self.part:
            say(f"{self.part}: {used - self.used:.0f} s of processor time")
        self.part, self.used = part, used
        if part:
            say(part)

    def write(self):
        self.results.write_text("".join(json.dumps(row) + "\n" for row in self.rows.values()))

    def late(self, what):
        if time.monotonic() < self.deadline:
            return False
        with self.lock:
            self.left_out.append(what)
        return True

    def all_at_once(self, task, items):
        """Runs task(*item) for all items, on all processors; leaves out what would begin after the time is up."""
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
        other_costs = allocator.fits and kind != "rmm" and lag == 0
        found = harness_runs.replay(allocator, trace, lag, self.arguments.costs if other_costs else ())
        times = {harness_runs.COSTS: found.pop("driver_time_ns", None)} | found.pop("driver_time_by")
        row.update(found, lower_bound_bytes=lower or found.get("peak_allocated_bytes"), driver_time_ns=times,
                   takes_all=allocator.takes_all)

    def fit(self, kind, workload, trace, _lower, allocator, lag):
        row = self.row(kind, workload, allocator.name, lag)
        if "failed" not in row and row.get("peak_allocated_bytes") and "fit_bytes" not in row:
            near = self.row(kind, workload, allocator.name).get("fit_bytes") if lag else None
            guess = near or self.guesses.get(workload, allocator.name, lag)
            row.update(harness_runs.smallest_device(allocator, trace, row, lag, guess))

    def plan(self, kind, workload, trace, _lower):
        """The planner's row: it reserves exactly what its plan needs."""
        row = self.row(kind, workload, PLANNER)
        if "planner_bytes" in row:
            return
        row.update(harness_runs.plan(trace, QUICK_PLAN if self.arguments.quick else 1))
        if "failed" not in row:
            row.update(peak_allocated_bytes=row["lower_bound_bytes"], peak_reserved_bytes=row["planner_bytes"],
                       fit_bytes=-(-row["planner_bytes"] // harness_runs.STEP) * harness_runs.STEP)

    def time_replay(self, kind, workload, trace, allocator):
        """The least of several runs: other load on the machine only adds."""
        found = [harness_runs.replay(allocator, trace) for _ in range(TIMED)]
        found = [one for one in found if "failed" not in one]
        for name in HOST_TIMES:
            if found:
                self.row(kind, workload, allocator.name)[name] = min(one[name] for one in found)

    def micro(self, name, allocator):
        divisor = QUICK_DIVISOR if self.arguments.quick else 1
        found = harness_runs.harness(allocator, "--micro", name, "--divisor", divisor)
        found["driver_time_ns"] = {harness_runs.COSTS: found.get("driver_time_ns")}
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
                self.unpack(packed, plain)
            yield "recorded", name, plain, None
        for name, path in self.arguments.traces.items():
            plain = self.data / f"{name}.added.trace"
            try:
                self.unpack(path, plain)
            except Missing as why:
                say(f"left out: {why}")
                continue
            yield "recorded", name, plain, None

    def unpack(self, trace, to):
        """Converts a trace of any format once, for all allocators."""
        made = to.with_suffix(".new")
        run(BUILD / "bin" / "terrazzo", "replay", "--save", made, trace)
        made.rename(to)

    def generated(self):
        for name in hard_workloads.WORKLOADS:
            if self.wanted(name, QUICK_HARD) or name in self.arguments.own:
                try:
                    made = hard_workloads.write(name, self.data / f"{name}.csv",
                                                QUICK_SCALE if self.arguments.quick else 1)
                except Exception as why:  # the file is the user's
                    say(f"left out: {name}: {type(why).__name__}: {why}")
                    continue
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
        self.begin("workloads")
        workloads = sorted([*self.recorded(), *self.generated()], key=lambda workload: workload[2].stat().st_size)
        if "host" in self.arguments.parts:
            self.run_host(allocators, gpu, workloads)
        if "memory" in self.arguments.parts:
            self.run_memory(gpu, workloads)
        self.begin(None)

    def run_host(self, allocators, gpu, workloads):
        self.begin("host time of micros")
        for name, host in self.micros():
            for allocator in allocators.values():
                wanted = (host or not allocator.on_host) and allocator.timed
                if wanted and not self.late(f"micro {name} {allocator.name}"):
                    self.micro(name, allocator)
        self.begin("host time of replays")
        for kind, name, trace, _ in workloads:
            for allocator in gpu:
                if kind == "recorded" and allocator.timed and not self.late(f"time_replay {name} {allocator.name}"):
                    self.time_replay(kind, name, trace, allocator)

    def run_memory(self, gpu, workloads):
        timed = {key: {name: row[name] for name in HOST_TIMES if name in row}
                 for key, row in self.rows.items() if row["kind"] == "recorded"}
        self.begin(f"memory and driver time of {len(workloads)} workloads")
        lags = self.arguments.lags
        self.all_at_once(self.measure, [(*workload, allocator, lag) for workload in workloads for allocator in gpu
                                        for lag in (lags if allocator.fits and workload[0] != "rmm" else lags[:1])
                                        if allocator.fits or allocator.timed or workload[0] != "rmm"])
        for key, row in self.rows.items():  # times from runs side by side are worth nothing
            for name in HOST_TIMES if row["kind"] != "micro" else ():
                row[name] = timed.get(key, {}).get(name)
        if self.arguments.plans:
            self.begin("the offline planner")
            self.all_at_once(self.plan, workloads)
        self.begin("smallest devices")
        lags = lags[:1] if self.arguments.quick else lags
        self.all_at_once(self.fit, [(*workload, allocator, lag) for lag in lags for workload in workloads
                                    for allocator in gpu if allocator.fits
                                    if lag == 0 or workload[0] == "recorded"
                                    if workload[0] != "rmm" or workload[1].endswith("_1000")])

    def violations(self):
        return [row for row in self.rows.values() if row.get("violations")]

    def say_what_went_wrong(self):
        for what in self.left_out:
            say(f"left out, no time: {what}")
        for row in self.rows.values():
            where = f"{row['allocator']} in {row['workload']}, lag {row['lag']}"
            if row.get("failed"):
                say(f"failed: {where}: {row['failed']}")
            elif row.get("violations"):
                say(f"violation: {where}: {row.get('problem')}")
            elif row.get("bytes_after_close"):
                say(f"leak: {where}: {row['bytes_after_close']} bytes on the device after all was freed and closed")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", default=os.environ.get("BENCH") == "quick",
                        help="a part of the workloads, smaller, in three minutes")
    parser.add_argument("--minutes", type=float, help="begin nothing after so many (18, or 2.5 with --quick)")
    parser.add_argument("--env", default=os.environ.get("TERRAZZO_TORCH_ENV"), help="environment with PyTorch")
    parser.add_argument("--peer", action="append", default=[], metavar="FILE", help="one more allocator")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=ALLOCATOR,OPTION,...",
                        help="an allocator once more, with these options: loose=terrazzo,slack_per_mille:50")
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
    arguments.own, arguments.traces = [], {}
    if not all(lag.isdigit() for lag in arguments.lags.split(",")):
        parser.error(f"--lags {arguments.lags}: whole numbers, with commas")
    arguments.lags = [int(lag) for lag in arguments.lags.split(",")]
    for costs in arguments.costs.split(","):
        if not Path(costs).is_file() and not (SOURCE / "sim" / "costs" / f"{costs}.ini").exists():
            parser.error(f"--costs {costs}: there is no such table in sim/costs, and no such file")
    others = [costs for costs in arguments.costs.split(",") if costs != harness_runs.COSTS]
    if len(others) > harness_runs.MORE_TABLES:
        parser.error(f"--costs: at most {harness_runs.MORE_TABLES} tables beside {harness_runs.COSTS}")
    arguments.costs = [] if arguments.quick else others
    return arguments


def load_workloads(path):
    """Names of the workloads that the module adds."""
    before = set(hard_workloads.WORKLOADS)
    spec = importlib.util.spec_from_file_location("added_workloads", path)
    if not spec:
        raise Missing(f"--workloads {path}: its name does not end with .py")
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except Exception as why:
        raise Missing(f"--workloads {path}: {type(why).__name__}: {why}") from None
    names = [name for name in hard_workloads.WORKLOADS if name not in before]
    if not names:
        raise Missing(f"--workloads {path}: it has no function marked @workload with a name of its own")
    return names


def check(arguments):
    """Checks that what was named exists, or raises Missing. Gives added traces names that no other workload has."""
    shipped = {packed.name.partition(".")[0] for packed in TRACES.glob("*.xz")}
    for path in [*arguments.peer, *arguments.trace, *filter(None, [arguments.workloads])]:
        if not Path(path).is_file():
            raise Missing(f"{path}: there is no such file")
    if arguments.workloads:
        arguments.own = load_workloads(arguments.workloads)
    for path in map(Path, arguments.trace):
        name = path.name.partition(".")[0]
        while name in shipped or name in hard_workloads.WORKLOADS or name in arguments.traces:
            name += "_added"
        arguments.traces[name] = path.resolve()
    known = [PLANNER, *(allocator.name for allocator in all_allocators(arguments.peer, arguments.variant))]
    for name in known:
        if known.count(name) > 1:
            raise Missing(f"two allocators are called {name}: rename the file or the variant")
    named = arguments.allocators.split(",") if arguments.allocators else ()
    arguments.plans = not named or PLANNER in named
    for name in named:
        if name not in known:
            raise Missing(f"--allocators {name}: there is none such; there are {', '.join(known)}")


def draw(arguments, results):
    """Draws the plots by matplotlib, in an environment of its own."""
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
    try:
        check(arguments)
    except Missing as why:
        say(str(why))
        return 2
    arguments.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments)
    names = arguments.allocators.split(",") if arguments.allocators else None
    allocators = prepare(names, arguments.peer, arguments.variant, arguments.env, say)
    results = bench.results
    try:
        bench.run_all(allocators)
        absent = set(arguments.only) - {row["workload"] for row in bench.rows.values()}
        for name in absent:
            say(f"--only {name}: no workload or micro of that name was run")
    finally:
        bench.write()
    version = torch_version(find_torch(arguments.env)) if any(a.needs == "torch" for a in allocators.values()) else ""
    rows = list(bench.rows.values())
    table = result_verdicts.verdicts(rows) + result_tables.tables(rows, version)
    (arguments.out / "table.md").write_text(table)
    if not arguments.no_plots:
        draw(arguments, results)
    if arguments.docs:
        result_tables.put(SOURCE / "docs" / "bench.md", table)
        bench.guesses.keep(rows)
        for plot in arguments.out.glob("bench_*.svg"):
            shutil.copy(plot, SOURCE / "docs")
    bench.say_what_went_wrong()
    say(f"{results}: {len(bench.rows)} rows")
    return 1 if bench.violations() else 2 if absent or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
