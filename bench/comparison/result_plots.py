# SPDX-License-Identifier: Apache-2.0
"""Plots of a run: result_plots.py RESULTS FOLDER. Needs matplotlib."""
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

SHOWN = {"terrazzo": ("terrazzo", "#0b6e4f"), "torch": ("PyTorch", "#d1495b"),
         "torch_expandable": ("PyTorch, expandable segments", "#edae49"),
         "rmm_pool": ("RMM, a pool that grows", "#7a4988"),
         "rmm_pool_all": ("RMM, a pool of the whole device", "#7a4988"),
         "planner": ("all addresses planned beforehand", "#3d5a80"),
         "jemalloc": ("jemalloc, host memory", "#8d96a3"),
         "mimalloc": ("mimalloc, host memory", "#c5cad3")}


def bars(rows, get, title, label, path, base=0.0, log=False):
    found = {}
    for row in rows:
        if row["allocator"] in SHOWN and get(row):
            found.setdefault(row["workload"], {})[row["allocator"]] = get(row)
    names = [name for name in SHOWN if any(name in own for own in found.values())]
    if not found:
        return
    height = 0.8 / len(names)
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.36 * len(found)), layout="constrained")
    for place, name in enumerate(names):
        at = [i + place * height for i, own in enumerate(found.values()) if name in own]
        values = [own[name] - base for own in found.values() if name in own]
        axes.barh(at, values, height, left=base, label=SHOWN[name][0], color=SHOWN[name][1])
    axes.set_yticks([i + 0.4 - height / 2 for i in range(len(found))], list(found), fontsize=8)
    axes.invert_yaxis()
    if log:
        axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.set_title(title, fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="best")
    figure.savefig(path, facecolor="white", metadata={"Date": None})
    plt.close(figure)


def main(results, folder):
    plt.rcParams["svg.hashsalt"] = "terrazzo"
    rows = [json.loads(line) for line in Path(results).read_text().splitlines()]
    memory = [row for row in rows if row["kind"] in ("recorded", "generated") and row["lag"] == 0]
    memory = [row for row in memory if not row.get("ooms")]
    folder = Path(folder)
    bars([row for row in memory if not row.get("takes_all")],
         lambda row: row.get("peak_reserved_bytes", 0) / (row.get("peak_allocated_bytes") or 1),
         "Memory reserved, of what the program holds at its peak", "reserved / allocated; 1 is the limit",
         folder / "bench_reserved.svg", base=1.0)
    bars(memory, lambda row: row.get("fit_bytes", 0) / (row.get("peak_allocated_bytes") or 1),
         "The smallest device that is enough", "device / allocated; 1 is the limit", folder / "bench_fit.svg", base=1.0)
    bars([row for row in rows if row["kind"] == "micro"], lambda row: row.get("ns_per_pair"),
         "A free and an allocation", "ns on the host, without the driver's", folder / "bench_host.svg", base=1.0,
         log=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
