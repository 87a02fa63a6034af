# SPDX-License-Identifier: Apache-2.0
"""The targets of terrazzo, and where it misses them: one line for each target."""
from .harness_runs import COSTS
from .result_tables import table

MIB = 1 << 20
OWN, TORCH, EXPANDABLE = "terrazzo", "torch", "torch_expandable"
PYTORCH = TORCH, EXPANDABLE
SHOWN = 6        # how many misses a line names


class Target:
    """Counts the cases of a target, and by how much some miss it."""
    def __init__(self, name):
        self.name, self.cases, self.misses = name, 0, []

    def add(self, case, value, limit, text):
        if value is None or limit is None:
            return
        self.cases += 1
        if value > limit:
            self.misses.append((value / limit if limit else float("inf"), f"{case} {text}"))

    def line(self):
        worst = [text for _, text in sorted(self.misses, reverse=True)]
        more = f"; {len(worst) - SHOWN} more" if len(worst) > SHOWN else ""
        return [self.name, f"{self.cases - len(worst)} of {self.cases}", "; ".join(worst[:SHOWN]) + more]


def key(row):
    return row["kind"], row["workload"], row["lag"]


def share(value, of):
    return value / of if value and of else None


def usable(row):
    return row and not (row.get("failed") or row.get("ooms") or row.get("violations"))


class Rows:
    def __init__(self, rows):
        self.by = {(*key(row), row["allocator"]): row for row in rows}
        ran = [row for row in rows if row["allocator"] == OWN]
        self.own = [row for row in ran if usable(row)]
        measured = [row for row in self.own if "peak_reserved_bytes" in row]  # not those of --parts host
        self.lost = [row for row in ran if not usable(row)]
        self.programs = [row for row in measured if row["kind"] in ("recorded", "generated")]
        self.single = [row for row in self.programs if row.get("streams") == 1]
        self.plain = self.single + [row for row in measured if row["kind"] == "rmm" and row.get("streams") == 1]

    def peer(self, row, name):
        found = self.by.get((*key(row), name), {})
        return found if usable(found) else {}

    def best_peer(self, row, name):
        """The least that one of PyTorch's two modes needs; None: neither ran."""
        return min((found[name] for mode in PYTORCH if (found := self.peer(row, mode)).get(name)), default=None)

    def micro(self, name, allocator=OWN):
        return self.by.get(("micro", name, 0, allocator), {})


def case(row):
    return row["workload"] + (f" at lag {row['lag']}" if row["lag"] else "")


def of_runs(rows):
    """A run without a figure is missed by every target above it, so it is named; no line if all have ended well."""
    served = Target("runs: each serves every request and breaks no rule")
    for row in rows.lost:
        served.add(case(row), 1, 0, row.get("failed") or f"{row.get('ooms', 0)} requests without memory, "
                   f"{row.get('violations', 0)} violations")
    served.cases += len(rows.own) if rows.lost else 0
    return [served]


def of_devices(rows):
    better = Target("smallest device: no larger than the better of PyTorch's two modes needs")
    for row in rows.programs:
        peer = rows.best_peer(row, "fit_bytes")
        if row.get("fit_bytes") and peer:
            better.add(case(row), row["fit_bytes"], peer, f"+{(row['fit_bytes'] - peer) / MIB:.0f} MiB")
    near = Target("smallest device, one stream: at most 1.01 of allocated")
    for row in rows.single:
        value = share(row.get("fit_bytes"), row["peak_allocated_bytes"])
        near.add(case(row), value, 1.01, f"{value or 0:.3f}")
    time = Target("driver time on it: at most 10 times that with room")
    for row in rows.programs:
        value = share(row.get("fit_driver_time_ns"), row["driver_time_ns"].get(COSTS))
        time.add(case(row), value, 10, f"{value or 0:.1f}")
    return [better, near, time]


def of_memory(rows):
    near = Target("reserved, one stream: at most 1.015 of allocated + 64 MiB")
    beside = Target("reserved, one stream: at most 0.5 % above expandable segments")
    time = Target("driver time, each cost table, where reserved is equal (0.5 %): 1.1 of expandable segments' at most")
    for row in rows.plain:
        reserved, peak = row["peak_reserved_bytes"], row["peak_allocated_bytes"]
        near.add(case(row), reserved, 1.015 * peak + 64 * MIB, f"{reserved / peak:.3f}")
        other = rows.peer(row, EXPANDABLE)
        if other.get("peak_reserved_bytes"):
            value = reserved / other["peak_reserved_bytes"]
            beside.add(case(row), value, 1.005, f"+{100 * (value - 1):.1f} %")
    for row in rows.programs:
        other = rows.peer(row, EXPANDABLE)
        equal = share(row["peak_reserved_bytes"], other.get("peak_reserved_bytes"))
        if equal and abs(equal - 1) <= 0.005:
            for costs, own in row["driver_time_ns"].items():
                value = share(own, other["driver_time_ns"].get(costs))
                time.add(f"{case(row)}, {costs},", value, 1.1, f"{value or 0:.2f}")
    random = Target("reserved, micros: random_small at most 1.05 of allocated, random_large 1.03")
    for name, limit in (("random_small", 1.05), ("random_large", 1.03)):
        row = rows.micro(name)
        value = share(row.get("peak_reserved_bytes"), row.get("peak_allocated_bytes"))
        random.add(name, value, limit, f"{value or 0:.3f}")
    left = Target("given back, nine in ten freed: no more is left than with expandable segments")
    own, other = rows.micro("give_back"), rows.micro("give_back", EXPANDABLE)
    value = share(own.get("reserved_bytes_left"), other.get("reserved_bytes_left"))
    left.add("give_back", value, 1, f"{value or 0:.3f}")
    return [near, beside, random, left, time]


def of_calls(rows):
    steady = Target("driver calls for memory: none while a micro repeats, none in a recorded run's last quarter")
    for row in rows.own:
        if row["kind"] == "micro":
            steady.add(row["workload"], row.get("driver_calls_while_measured"), 0,
                       str(row.get("driver_calls_while_measured")))
    for row in rows.single:
        if row["kind"] == "recorded":
            calls = row.get("driver_calls_last_quarter")
            steady.add(case(row), calls, 0, str(calls))
    one = Target("one allocation, while the device has room: at most 3 times creating it in tiles of 20 MiB")
    for row in rows.programs:
        value = row.get("max_times_tiles")
        one.add(case(row), value, 3, f"{value or 0:.1f}")
    return [steady, one]


def of_host(rows):
    faster = Target("host time: 12 times faster than PyTorch's better mode for 512 B and random_small, "
                    "8 for random_large")
    for name, times in (("one_size_512B", 12), ("random_small", 12), ("random_large", 8)):
        row = rows.micro(name)
        value = share(row and rows.best_peer(row, "ns_per_pair"), row.get("ns_per_pair"))
        faster.add(name, share(times, value), 1, f"{value or 0:.1f}")
    replay = Target("host time of replays, one stream: 3.5 times faster than PyTorch's better mode")
    for row in rows.single:
        value = share(rows.best_peer(row, "ns_per_op"), row.get("ns_per_op"))
        replay.add(case(row), share(3.5, value), 1, f"{value or 0:.1f}")
    growth = Target("host time from 1,000 to 1,000,000 live: grows no more than jemalloc's")

    def grown(allocator):
        return share(rows.micro("live_1000000", allocator).get("ns_per_pair"),
                     rows.micro("live_1000", allocator).get("ns_per_pair"))
    growth.add("live_1000000", grown(OWN), grown("jemalloc"),
               f"{grown(OWN) or 0:.1f} times, jemalloc {grown('jemalloc') or 0:.1f}")
    metadata = Target("metadata: at most 128 B a live block, of 1,000,000")
    value = share(rows.micro("live_1000000").get("metadata_bytes"), 1000000)
    metadata.add("live_1000000", value, 128, f"{value or 0:.0f}")
    return [faster, replay, growth, metadata]


def verdicts(rows):
    """A Markdown table; "" if terrazzo did not run."""
    found = Rows(rows)
    targets = [*of_runs(found), *of_devices(found), *of_memory(found), *of_calls(found), *of_host(found)]
    lines = [target.line() for target in targets if target.cases]
    return "**What terrazzo reaches**\n\n" + table(["target", "reached", "missed by"], lines) + "\n" if lines else ""
