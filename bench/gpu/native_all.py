#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Allocators beside each other and native programs, on a machine with a GPU (bench/README.md).

    native_all.py [--parts NAME,...] [--seconds N] [--carried FOLDER] [--work FOLDER] [--sim] OUT

Writes native_all.json and native_all.md into the folder OUT, and prints the tables in short. Parts, in the order in
which they run; each has its share of the time:

    packages    Python packages with allocators of their own, plain and preloaded; all else is compiled meanwhile
    peers       traces through each allocator
    micros      pairs of a free and an allocation
    samples     NVIDIA's samples, compiled here, plain and preloaded
    linked      examples/native, and the programs of the C++ headers' tests
    command     `terrazzo explain`, `terrazzo run` and limits, on living processes
    rows        bench/native: what one pair costs a native program
    sanitizer   compute-sanitizer over an example and a preloaded sample
    counts      driver calls of each allocator, by CUPTI
"""
import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import native_peers as peers
import native_programs as programs
from native_common import BUILD, PRELOAD, SOURCE, bench_program, end, find_toolkit, open_machine, run

CLI = BUILD / "bin" / "terrazzo"
# Seconds of each part at most, of 150; what one leaves, the later ones have.
SHARES = {"packages": 35, "peers": 50, "micros": 28, "samples": 30, "linked": 10, "command": 15, "rows": 5,
          "sanitizer": 12, "counts": 12}
COUNTED = ("vit", "fsdp_like")
PROBE = """
import ctypes, re
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
version, name, free, total, context = ctypes.c_int(), ctypes.create_string_buffer(200), *(ctypes.c_size_t(),) * 2, 0
cuda.cuDriverGetVersion(ctypes.byref(version))
print("device error", cuda.cuDeviceGetName(name, 200, 0))
total = ctypes.c_size_t()
cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
print("name", name.value.decode())
print("driver", version.value)
print("memory", total.value)
print("library", next(line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so" in line))
"""


class Report:
    def __init__(self, out):
        self.out, self.results, self.notes, self.text = Path(out), {}, [], []
        self.out.mkdir(parents=True, exist_ok=True)

    def say(self, note):
        self.notes.append(note)
        print(note, flush=True)

    def add(self, title, lines):
        self.text += [f"\n## {title}\n", *lines]

    def write(self):
        """After each part: what has been found stays, whatever happens to the rest."""
        self.results["notes"] = self.notes
        (self.out / "native_all.json").write_text(json.dumps(self.results, indent=1, default=str))
        (self.out / "native_all.md").write_text("\n".join([*self.text, "\n## Notes\n", *self.notes]) + "\n")


def describe(machine, report):
    found = run(machine, [sys.executable, "-c", PROBE], 30)
    about = dict(line.split(" ", 1) for line in found.out.splitlines() if " " in line)
    smi = run(machine, ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm", "--format=csv"], 10)
    nvcc = run(machine, [*programs.nvcc(machine)[:1], "--version"], 10)
    about |= {"nvidia-smi": smi.out.strip() or smi.why, "nvcc": nvcc.out.strip().splitlines()[-1:] or nvcc.why,
              "processors": os.cpu_count(), "python": platform.python_version(), "system": platform.platform(),
              "library_path": machine.environment["LD_LIBRARY_PATH"], "probe": found.why}
    for package in ("torch", "cupy-cuda13x", "jax", "numba-cuda"):
        try:
            from importlib.metadata import version
            about[package] = version(package)
        except Exception:  # pylint: disable=broad-except
            about[package] = "missing"
    report.results["machine"] = about
    report.add("Machine", [f"- {key}: {value}" for key, value in about.items()])
    print(f"{about.get('name')}, driver {about.get('driver')}, {about.get('library')}", flush=True)
    return int(about.get("memory") or 0)


def build_all(machine, parts, report):
    """Compiles everything that the parts need, side by side. Returns why things are missing, by kind and name."""
    jobs = {}
    if {"samples", "sanitizer"} & parts:
        jobs |= {("sample", s.name): (programs.build_sample, machine, s) for s in programs.SAMPLES}
    if {"linked", "command", "sanitizer"} & parts:
        jobs |= {("linked", name): (programs.build_linked, machine, command)
                 for name, command in programs.linked_programs(machine).items()}
    if {"peers", "micros", "counts"} & parts:
        jobs |= {("peer", name): (peers.compile_peer, machine, name)
                 for name in dict.fromkeys(a.library for a in peers.ALLOCATORS)}
    if {"peers", "counts"} & parts:
        jobs |= {("trace", name): (peers.make_trace, machine, name) for name in peers.WORKLOADS}
    begin = time.monotonic()
    with ThreadPoolExecutor(2 if machine.simulated else os.cpu_count() or 4) as pool:
        futures = {key: pool.submit(programs.guarded, *job) for key, job in jobs.items()}
    why = {key: future.result() or "" for key, future in futures.items()}
    report.say(f"compiled in {time.monotonic() - begin:.0f} s: "
               f"{sum(not text for text in why.values())} of {len(why)}")
    for key, text in why.items():
        if text:
            report.say(f"not built: {' '.join(key)}: {text[:300]}")
    report.results["build"] = {" ".join(key): text for key, text in why.items() if text}
    return why


# ---- the command line, on living processes ---------------------------------------------------------------

def with_process(machine, command, look, **variables):
    """Starts a program that says "ready" and waits for its input's end; calls look(its number)."""
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env={**machine.environment, **variables})
    timer = time.monotonic()
    try:
        line = process.stdout.readline()   # a program that dies closes its output
        if "ready" not in line:
            return [{"what": "the process", "verdict": "fails", "why": process.communicate(timeout=10)[1][-500:]}]
        rows = look(process.pid)
        process.stdin.close()
        process.stdin = None
        _, err = process.communicate(timeout=max(1, 20 - (time.monotonic() - timer)))
        rows.append({"what": "the process ends", "verdict": "ends well" if process.returncode == 0 else "fails",
                     "why": err[-600:]})
        return rows
    finally:
        if process.poll() is None:
            end(process)


def shown(what, done, expect=()):
    missing = [text for text in expect if text not in done.out + done.err]
    verdict = "ends well" if done.good and not missing else "fails" if not done.good else "lacks " + ", ".join(missing)
    return {"what": what, "verdict": verdict, "why": done.why or (done.out.strip().splitlines() or [""])[0][:200],
            **done.tail()}


def look_at(machine, pid):
    rows = [shown("terrazzo explain PID", run(machine, [CLI, "explain", pid], 20), ("MiB", "stream")),
            shown("terrazzo explain --json - PID", run(machine, [CLI, "explain", "--json", "-", pid], 20), ("{",))]
    smi = run(machine, ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"], 10)
    rows.append({"what": "nvidia-smi of the same process", "verdict": "ends well" if smi.good else "fails",
                 "why": smi.why or smi.out.strip(), "pid": pid})
    return rows


def run_command(machine, built):
    if built.get(("linked", "hold")):
        return [{"what": "hold", "verdict": "not built", "why": built["linked", "hold"]}]
    hold = machine.work / "linked" / "hold"
    rows = with_process(machine, [hold], lambda pid: look_at(machine, pid), LD_PRELOAD=str(PRELOAD),
                        TERRAZZO_NATIVE="report:on", TERRAZZO_CONF="answer:on,native_frames:on")
    rows.append(shown("terrazzo run -- hold", run(machine, [CLI, "run", "--", hold], 20), ("ready",)))
    limited = run(machine, [CLI, "run", "--limit", "800MiB", "--", hold], 20)
    refused = limited.code == 1 and "verdict: limit" in limited.err
    ended = "is not refused" if limited.code is not None else "did not end"
    rows.append({"what": "terrazzo run --limit 800MiB -- hold (needs 1.5 GiB)",
                 "verdict": "refused, and says why" if refused else ended, **limited.tail()})
    free_of_limit = run(machine, [CLI, "run", "--limit", "4GiB", "--", hold], 20)
    rows.append(shown("terrazzo run --limit 4GiB -- hold", free_of_limit, ("ready",)))
    rows.append(shown("terrazzo config", run(machine, [CLI, "config"], 10)))
    return rows


def run_sanitizer(machine, built):
    toolkit = find_toolkit()
    tool = shutil.which("compute-sanitizer") or (toolkit and toolkit / "bin" / "compute-sanitizer")
    if not tool or not Path(tool).exists():
        return [{"what": "compute-sanitizer", "verdict": "missing", "why": "neither on the path nor in the toolkit"}]
    rows = []
    samples = machine.work / "samples"
    ordered = samples / "streamOrderedAllocation"
    preloaded = {"LD_PRELOAD": PRELOAD, "TERRAZZO_NATIVE": "report:on"}
    for name, program, cwd, variables in (
            ("pipeline", machine.work / "linked" / "pipeline", None, {}),
            ("thrust_and_cub", machine.work / "linked" / "thrust_and_cub", None, {}),
            ("vectorAdd, preloaded", samples / "vectorAdd" / "vectorAdd", samples / "vectorAdd", preloaded),
            ("streamOrderedAllocation, preloaded", ordered / ordered.name, ordered, preloaded)):
        if not program.exists():
            rows.append({"what": name, "verdict": "not built"})
            continue
        done = run(machine, [tool, "--tool", "memcheck", "--error-exitcode", "9", program], 25, cwd, **variables)
        summary = [line for line in done.out.splitlines() if "ERROR SUMMARY" in line or "Error" in line]
        rows.append({"what": name, "verdict": "no errors" if done.good else "errors or failure",
                     "why": done.why or (summary or ["no summary"])[-1], **done.tail()})
    return rows


def run_rows(machine):
    rows = []
    for name, variables in (("driver and linked", {}), ("preloaded", {"LD_PRELOAD": PRELOAD})):
        done = run(machine, [bench_program(machine, "native"), "300"], 30, **variables)
        rows.append({"what": name, "verdict": "ends well" if done.good else "fails", **done.tail()})
    return rows


def plain_table(rows):
    return ["| what | verdict | |", "|---|---|---|",
            *(f"| {row['what']} | {row['verdict']} | {str(row.get('why', ''))[:200]} |".replace("\n", " ")
              for row in rows)]


# ---- all --------------------------------------------------------------------------------------------------

def run_part(name, machine, built, memory, report):
    ends = machine.ends
    of = {kind: {key[1]: why for key, why in built.items() if key[0] == kind}
          for kind in ("sample", "linked", "peer", "trace")}
    ready = [a for a in peers.ALLOCATORS if not of["peer"].get(a.library, "")]
    workloads = [w for w in peers.WORKLOADS if not of["trace"].get(w) and peers.fits(machine, w, memory)]
    if name == "samples":
        return programs.run_samples(machine, of["sample"]), programs.table
    if name == "packages":
        return programs.run_packages(machine), programs.table
    if name == "linked":
        return programs.run_linked(machine, of["linked"]), programs.table
    if name == "command":
        return run_command(machine, built), plain_table
    if name == "sanitizer":
        return run_sanitizer(machine, built), plain_table
    if name == "peers":
        return peers.replay_all(machine, ready, workloads, ends, report.say), peers.replay_table
    if name == "micros":
        return peers.micros_all(machine, ready, ends, report.say), peers.micro_table
    if name == "rows":
        return run_rows(machine), lambda rows: [line for row in rows for line in
                                                ("```", f"{row['what']}: {row['verdict']} {row['why']}",
                                                 *row["stdout"].splitlines(), "```")]
    return peers.count_all(machine, ready, [w for w in COUNTED if w in workloads], ends, report.say), peers.count_table


def short(name, rows):
    """A few lines for the screen: what is not as it should be, and the ratios."""
    if name == "peers":
        return [line for line in peers.replay_table(rows) if "terrazzo" in line or "failed" in line]
    if name == "micros":
        return peers.micro_table(rows)
    if name == "counts":
        return [f"{len(rows)} rows"]
    if name == "rows":
        return [row["stdout"] + row["why"] for row in rows]
    good = ("same", "ends well", "no errors", "refused, and says why")
    bad = [row for row in rows if row["verdict"] not in good]
    alike = [row for row in bad if row["verdict"] in ("fails in both", "did not end")]   # tells nothing of terrazzo
    return [f"{len(rows) - len(bad)} of {len(rows)} as expected",
            *(f"  {row.get('name') or row.get('what')}: {row['verdict']} {str(row.get('why', ''))[:140]}"
              for row in bad if row not in alike),
            *(f"  {verdict}: " + ", ".join(row.get("name") or row["what"] for row in alike if row["verdict"] == verdict)
              for verdict in dict.fromkeys(row["verdict"] for row in alike))]


def do_part(name, machine, built, memory, report):
    """Runs a part and prints it in short; one that breaks says so."""
    begin = time.monotonic()
    try:
        rows, table = run_part(name, machine, built, memory, report)
        report.results[name] = rows
        report.add(name, table(rows))
        lines = short(name, rows)
    except Exception as error:  # pylint: disable=broad-except
        report.results[name + "_broke"] = traceback.format_exc()
        lines = [f"broke: {type(error).__name__}: {error}"]
        report.say(f"{name} {lines[0]}")
    print(f"-- {name}, {time.monotonic() - begin:.0f} s", *lines, sep="\n", flush=True)
    report.write()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--parts", default=",".join(SHARES))
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--carried", default=BUILD / "gpu-native")
    parser.add_argument("--work", default="/tmp/terrazzo-gpu-native")
    parser.add_argument("--sim", action="store_true", help="on the simulated device: figures mean nothing")
    options = parser.parse_args()
    parts = [name for name in SHARES if name in options.parts.split(",")]
    unknown = set(options.parts.split(",")) - set(SHARES)
    if unknown:
        parser.error(f"there are no parts {', '.join(sorted(unknown))}")
    report = Report(options.out)
    machine = open_machine(options.sim, options.work, options.carried, options.seconds)
    if not options.sim and not machine.driver:
        report.say("no libcuda.so.1 was found: give --sim, or put its folder on LD_LIBRARY_PATH")
    memory = describe(machine, report)
    last, scale = machine.ends, options.seconds / 150
    # What is not timed may run while the rest is compiled.
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build_all, machine, set(parts), report)
        if "packages" in parts:
            do_part("packages", machine, {}, memory, report)
        built = building.result()
    report.write()
    for name in parts:
        if name == "packages":
            continue
        machine.ends = min(last, time.monotonic() + SHARES[name] * scale)
        if machine.left() < 2:
            report.say(f"left out: {name}: no time was left")
            continue
        do_part(name, machine, built, memory, report)


if __name__ == "__main__":
    main()
