# SPDX-License-Identifier: Apache-2.0
"""Markdown tables of a run's rows."""
from .harness_runs import COSTS, TABLES

GIB = 1 << 30
BEGIN, END = "<!-- Made by bench/contest.py. -->", "<!-- End of what bench/contest.py makes. -->"


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def number(value, digits=3):
    return "" if value is None else f"{value:.{digits}f}"


def ratio(row, name):
    value, peak = row.get(name), row.get("peak_allocated_bytes")
    return value / peak if value and peak else None


def reserved(row):
    return None if row.get("takes_all") else ratio(row, "peak_reserved_bytes")


KINDS = ("recorded", "generated", "rmm", "micro")


def by_workload(rows, kinds, lag):
    found = {}
    if "micro" not in kinds:  # micros keep the order of their table
        rows = sorted(rows, key=lambda row: (KINDS.index(row["kind"]), row["workload"]))
    for row in rows:
        if row["kind"] in kinds and row["lag"] == lag:
            found.setdefault(row["workload"], {})[row["allocator"]] = row
    return found


def names_of(found):
    names = {}
    for rows in found.values():
        names.update(dict.fromkeys(rows))
    return list(names)


def cell(row, get, digits):
    if row is None:
        return ""
    if row.get("failed"):
        return "failed"
    if row.get("violations"):
        return "wrong"
    if row.get("ooms"):
        return "out of memory"
    return number(get(row), digits)


def figures(rows, kinds, lag, get, digits=3):
    found = by_workload(rows, kinds, lag)
    names = [name for name in names_of(found) if any(name in own and get(own[name]) for own in found.values())]
    lines = []
    for workload, own in found.items():
        if not any(get(row) for row in own.values()):
            continue
        peak = max((row.get("peak_allocated_bytes") or 0 for row in own.values()), default=0)
        lines.append([workload, number(peak / GIB, 2), *(cell(own.get(name), get, digits) for name in names)])
    return table(["workload", "allocated, GiB", *names], lines) if lines else ""


def driver_ms(costs):
    def get(row):
        time = (row.get("driver_time_ns") or {}).get(costs)
        return time / 1e6 if time else None
    return get


def micro_times(rows):
    found = by_workload(rows, ("micro",), 0)
    names = names_of(found)
    lines = []
    for workload, own in found.items():
        cells = []
        for name in names:
            row = own.get(name, {})
            cells.append("failed" if row.get("failed") else "" if row.get("ns_per_pair_least") is None else
                         f"{row['ns_per_pair']:.0f} ({row['ns_per_pair_least']:.0f}), {row.get('p999_ns', '-')}")
        if any(cells):
            lines.append([workload, *cells])
    return table(["load", *names], lines) if lines else ""


def give_back(rows):
    own = by_workload(rows, ("micro",), 0).get("give_back", {})
    return table(["allocator", "held, GiB", "reserved, GiB"],
                 [[name, number(row["allocated_bytes_left"] / GIB, 2), number(row["reserved_bytes_left"] / GIB, 2)]
                  for name, row in own.items() if "reserved_bytes_left" in row]) if own else ""


def tables(rows, version):
    used, rmm = ("recorded", "generated"), ("rmm",)
    parts = [f"PyTorch's allocator is that of {version}.\n" if version else ""]

    def part(title, text):
        if text:
            parts.append(f"**{title}**\n\n{text}")
    for lag in (0, 500):
        part(f"Reserved / allocated, with room, lag {lag}", figures(rows, used, lag, reserved))
    for lag in (0, 500):
        part(f"Smallest device / allocated, steps of 2 MiB, lag {lag}",
             figures(rows, used, lag, lambda row: ratio(row, "fit_bytes")))
    part("Driver time on the smallest device, ms, lag 0",
         figures(rows, used, 0, lambda row: row.get("fit_driver_time_ns", 0) / 1e6 or None, 0))
    part("RMM's benchmarks: reserved / allocated, with room", figures(rows, rmm, 0, reserved))
    part("RMM's benchmarks: smallest device / allocated",
         figures(rows, rmm, 0, lambda row: ratio(row, "fit_bytes")))
    part(f"RMM's benchmarks: driver time with room, ms, costs {COSTS}", figures(rows, rmm, 0, driver_ms(COSTS), 0))
    for costs in TABLES:
        part(f"Driver time with room, ms, costs {costs}, lag 0", figures(rows, used, 0, driver_ms(costs), 0))
    part("Driver calls for memory in the last quarter, lag 0",
         figures(rows, used, 0, lambda row: row.get("driver_calls_last_quarter"), 0))
    part("Host time of a replay, ns an operation, lag 0", figures(rows, ("recorded",), 0,
                                                                lambda row: row.get("ns_per_op"), 0))
    part("Its 99.9th percentile, ns", figures(rows, ("recorded",), 0, lambda row: row.get("p999_ns"), 0))
    part("Host time of micros, ns a pair: median (least) of five passes, 99.9th percentile", micro_times(rows))
    part("Nine in ten of 1,000 allocations freed, and the cache emptied", give_back(rows))
    return "\n".join(parts)


def put(path, text):
    """Replaces what an earlier run put into the page."""
    page = path.read_text()
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")
