#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replays the recorded runs of bench/traces/ and holds the result against the targets.

    traces.py [--json FILE] [--costs TABLE] [--fit] [--timings N] [NAME...]

Prints a table; beside our figures those of PyTorch's allocator for the same requests (reference.json).
Exit status 1 if a target is missed: peak reserved / peak allocated at most 1.03 for traces of one stream, for others at
most 1.06 at lag 0 and 1.03 times the sum of the streams' own peaks at other lags; for traces of one stream driver time
at most 1.5 times that of expandable_segments (its tiles x one create, map and set_access of 20 MiB); for all traces no
out-of-memory, no wait and no violation, and, while a quarter of the device is left, no allocation that costs the driver
more than 3 times what it costs to create its size in tiles of 20 MiB. With --fit also, at lag 0: the smallest device at
most 1.02 times the peak allocated, and driver time there at most 10 times that of the run at full capacity.
"""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(os.environ.get("TRZ_SOURCE_DIR", Path(__file__).resolve().parent.parent))
CLI = os.environ.get("TERRAZZO_CLI", str(SOURCE / "build" / "bin" / "terrazzo"))
TRACES = SOURCE / "bench" / "traces"
RUNS = (("terrazzo", 0), ("terrazzo", 500), ("terrazzo", 5000), ("naive", 0))
MAX_RATIO = 1.03
MAX_RATIO_STREAMS = 1.06
MAX_TIMES = 3
ROOM = 0.75
TIME_FACTOR = 1.5
TILE = "20MiB"
MAX_FIT = 1.02
FIT_TIME_FACTOR = 10

COLUMNS = (  # head, width, a row's value
    ("trace", -14, lambda r: r["trace"]),
    ("policy", -8, lambda r: r["policy"]),
    ("lag", 3, lambda r: r["lag"]),
    ("alloc", 6, lambda r: f"{r['allocated_gib']:.2f}"),
    ("reserved", 8, lambda r: f"{r['reserved_gib']:.2f}"),
    ("ratio", 5, lambda r: f"{r['ratio']:.3f}"),
    ("drv ms", 7, lambda r: f"{r['driver_time_ns'] / 1e6:.1f}"),
    ("budget", 6, lambda r: r["budget_ns"] and f"{r['budget_ns'] / 1e6:.1f}"),
    ("calls", 6, lambda r: r["calls"]),
    ("last1/4", 7, lambda r: r["driver_calls_last_quarter"]),
    ("times", 5, lambda r: f"{r['max_times_tiles']:.2f}"),
    ("oom", 4, lambda r: r["ooms"]),
    ("viol", 4, lambda r: r["violations"]),
    ("ns/op", 5, lambda r: r["host_ns_per_op"] and f"{r['host_ns_per_op']:.0f}"),
    ("median", 6, lambda r: r["host_ns_median"]),
    ("p99.9", 6, lambda r: r["host_ns_p999"]),
    ("fits", 6, lambda r: r.get("fit_bytes") and f"{r['fit_bytes'] / 2**30:.2f}"),
    ("fit ms", 7, lambda r: r.get("fit_driver_time_ns") and f"{r['fit_driver_time_ns'] / 1e6:.1f}"),
    ("torch", 6, lambda r: r["torch_default_gib"]),
    ("expandable", 10, lambda r: r["torch_expandable_gib"]),
    ("", -4, lambda r: "MISS" if r["missed"] else ""),
)


def run(*args):
    """Standard output of the program; None if it failed for any reason but what a replay found."""
    done = subprocess.run([CLI, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode in (1, 2):
        sys.stderr.write(done.stderr)
        return None
    return done.stdout


def tile_cost(costs):
    """Virtual ns of one create, one map and one set_access."""
    out = run("costs", "--size", TILE, costs)
    if out is None:
        sys.exit(2)
    return int(out.splitlines()[1].split()[-1])


def missed_fit(row):
    if row["fit_bytes"] is None or not row["fit_verified"] or row["fit_violations"]:
        return ["has no smallest device that can be believed"]
    missed = []
    most = MAX_FIT * row["peak_allocated_bytes"]
    if row["fit_bytes"] > most:
        missed.append(f"fits in {row['fit_bytes'] / 2**30:.3f} GiB; at most {most / 2**30:.3f}")
    if row["fit_driver_time_ns"] > FIT_TIME_FACTOR * row["driver_time_ns"]:
        missed.append(f"spends {row['fit_driver_time_ns'] / 1e6:.1f} ms in the driver of the smallest device; "
                      f"at most {FIT_TIME_FACTOR * row['driver_time_ns'] / 1e6:.1f}")
    return missed


def missed_targets(row):
    missed = missed_fit(row) if "fit_bytes" in row else []
    if row["ooms"]:
        missed.append(f"{row['ooms']} requests got no memory")
    if row["violations"] or row["leaks"]:
        missed.append(f"violation: {row['problem']}")
    if row["waits_inserted"]:
        missed.append(f"makes streams wait {row['waits_inserted']} times")
    if row["max_times_tiles"] > MAX_TIMES and row["peak_reserved_bytes"] <= ROOM * row["capacity_bytes"]:
        missed.append(f"has an allocation that costs {row['max_times_tiles']:.2f} times its tiles; at most {MAX_TIMES}")
    if row["ratio"] > row["max_ratio"]:
        missed.append(f"reserves {row['ratio']:.3f} of the peak allocated; at most {row['max_ratio']:.3f}")
    if row["budget_ns"] and row["driver_time_ns"] > row["budget_ns"]:
        missed.append(f"spends {row['driver_time_ns'] / 1e6:.1f} ms in the driver; "
                      f"at most {row['budget_ns'] / 1e6:.1f}")
    return missed


def max_ratio(reference, lag):
    if reference["single_stream"]:
        return MAX_RATIO
    return MAX_RATIO * reference["stream_peaks"] / reference["allocated"] if lag else MAX_RATIO_STREAMS


def replay(name, reference, policy, lag, arguments, cost_ns):
    fit = ["--fit"] if arguments.fit and policy == "terrazzo" and lag == 0 else []
    out = run("replay", "--json", "-", "--policy", policy, "--lag", str(lag), "--costs", arguments.costs,
              "--timings", str(arguments.timings), *fit, str(next(TRACES.glob(f"{name}.*.xz"))))
    if not out:
        return None
    row = json.loads(out)
    bounded = policy == "terrazzo" and reference["single_stream"]
    row["budget_ns"] = TIME_FACTOR * reference["expandable_tiles"] * cost_ns if bounded else None
    row["allocated_gib"] = row["peak_allocated_bytes"] / 2**30
    row["reserved_gib"] = row["peak_reserved_bytes"] / 2**30
    row["ratio"] = row["peak_reserved_bytes"] / row["peak_allocated_bytes"]
    row["calls"] = sum(row["driver_calls"].values())
    row["torch_default_gib"] = reference["default"]
    row["torch_expandable_gib"] = reference["expandable"]
    row["max_ratio"] = max_ratio(reference, lag)
    row["missed"] = missed_targets(row) if policy == "terrazzo" else []
    return row


def format_line(cells):
    padded = (f"{'-' if cell is None else cell!s:{'<' if width < 0 else '>'}{abs(width)}}"
              for cell, (_, width, _) in zip(cells, COLUMNS))
    return "  ".join(padded).rstrip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="traces (all)")
    parser.add_argument("--json", metavar="FILE", help="write the rows, one JSON object a line")
    parser.add_argument("--fit", action="store_true", help="search the smallest device too, at lag 0")
    parser.add_argument("--costs", default="h200", help="cost table (h200)")
    parser.add_argument("--timings", type=int, default=1, metavar="N",
                        help="host times: each operation's least of N replays (1)")
    arguments = parser.parse_args()
    if not os.access(CLI, os.X_OK):
        parser.error(f"there is no program {CLI}; build it (make demo), or say in TERRAZZO_CLI where it is")
    references = json.loads((TRACES / "reference.json").read_text())["traces"]
    for name in arguments.names:
        if name not in references:
            parser.error(f"there is no trace {name}; traces: {', '.join(references)}")

    cost_ns = tile_cost(arguments.costs)
    print(f"sizes in GiB; costs {arguments.costs}; budget {TIME_FACTOR} x expandable tiles x {cost_ns} ns; "
          "torch, expandable: what PyTorch reserved\n")
    print(format_line([head for head, _, _ in COLUMNS]))
    rows, failed = [], False
    for name in arguments.names or references:
        for policy, lag in RUNS:
            row = replay(name, references[name], policy, lag, arguments, cost_ns)
            if row is None:
                failed = True
                continue
            rows.append(row)
            print(format_line([get(row) for _, _, get in COLUMNS]), flush=True)
    if arguments.json:
        Path(arguments.json).write_text("".join(json.dumps(row) + "\n" for row in rows))
    for row in rows:
        for text in row["missed"]:
            failed = True
            print(f"missed: {row['trace']} at lag {row['lag']} {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
