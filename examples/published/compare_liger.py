#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much memory Liger Kernel's authors measured for its kernels and for others, on six kinds of GPU, and what
`terrazzo sim` finds for the same benchmarks.

    compare_liger.py --env ENV --liger DIR [--terrazzo CLI] [--rows FILE] [KERNEL...]

DIR is a clone of Liger Kernel's repository; none of it is in this tree. Published figures: its
benchmark/data/all_benchmark_data.csv, where the metric is memory. Each runs at the commit that brought it, unchanged
but that nothing is timed. docs/sim.md has the results, says how to set ENV up and which benchmarks do not run.
"""
import argparse
import collections
import csv
import json
import sys
import tempfile
from pathlib import Path

import ways

TABLE = "benchmark/data/all_benchmark_data.csv"
DEVICES = {"NVIDIA A100-SXM4-80GB": "a100", "NVIDIA H100 80GB HBM3": "h100", "NVIDIA H100 PCIe": "h100",
           "NVIDIA GeForce RTX 4090": "rtx4090", "NVIDIA GeForce RTX 3090": "rtx3090", "NVIDIA B200": "b200"}
SCRIPTS = {"fused_linear_orpo_loss": "orpo_loss", "fused_linear_cpo_loss": "cpo_loss",
           "fused_linear_simpo_loss": "simpo_loss", "fused_linear_grpo_loss_sequence": "grpo_loss",
           "fused_linear_grpo_loss_token": "grpo_loss", "tiled_geglu": "tiled_mlp", "tiled_swiglu": "tiled_mlp"}
SECONDS = 1800


def key_of(kernel, provider, mode, x, settings):
    """As published and as found, numbers and settings are written in different ways."""
    try:
        x = float(x)
    except ValueError:
        pass
    return kernel, provider, mode, x, json.dumps(json.loads(settings), sort_keys=True)


def published(clone):
    """{(commit, script, device): {key: MiB}}"""
    runs, commits = collections.defaultdict(dict), {}
    for row in csv.DictReader(ways.git(clone, "show", f"HEAD:{TABLE}").decode().splitlines()):
        if row["metric_name"] != "memory":
            continue
        kernel, when = row["kernel_name"], row["timestamp"]
        if when not in commits:
            found = ways.git(clone, "log", "--reverse", "--format=%h", f"-S,{when},", "--", TABLE).decode().split()
            commits[when] = found[0]
        key = key_of(kernel, row["kernel_provider"], row["kernel_operation_mode"], row["x_value"],
                     row["extra_benchmark_config_str"])
        script = f"benchmark/scripts/benchmark_{SCRIPTS.get(kernel, kernel)}.py"
        runs[commits[when], script, DEVICES[row["gpu_name"]]][key] = float(row["y_value_50"])
    return runs


def check_out(clone, commit, folder):
    if not folder.exists():
        ways.unpack(clone, commit, ["src", "benchmark", "test", ":(exclude)test/resources"], folder)
        installed = folder / "src" / "liger_kernel-0.dist-info"  # the scripts ask for the version
        installed.mkdir()
        (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: liger-kernel\nVersion: 0\n")


def found(args, folder, commit, script, device):
    """{key: MiB}; empty if the script does not run."""
    check_out(args.liger, commit, folder / commit)
    rows = folder / "rows"
    rows.unlink(missing_ok=True)
    tree, here = folder / commit, Path(__file__).resolve().parent
    command = ["timeout", str(SECONDS), "python", here / "liger_rows.py", rows, tree / script]
    _, done = ways.start(args, "native", [f"--device={device}"], command, tree, folder / "cache",
                         f"{tree / 'src'}:{tree}")
    if "Traceback" in done.stdout or done.returncode:
        why = [line for line in done.stdout.splitlines() if "Error" in line] or [f"status {done.returncode}"]
        print(f"{commit} {script}: {why[-1].strip()}", file=sys.stderr)
    lines = rows.read_text().splitlines() if rows.exists() else []
    return {key_of(*row[:5]): row[5] for row in map(json.loads, lines)}


def compare(args, folder, run, figures):
    """(device, kernel, provider): differences as parts of the published figure"""
    mine, differ = found(args, folder, *run), collections.defaultdict(list)
    for key, measured in figures.items():
        if key in mine:
            differ[run[2], key[0], key[1]].append(mine[key] / measured - 1)
            if args.rows:
                args.rows.write(json.dumps([run[2], *key, measured, mine[key]]) + "\n")
                args.rows.flush()
    return differ


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="KERNEL")
    parser.add_argument("--env", required=True, type=Path)
    parser.add_argument("--liger", required=True, type=Path, metavar="DIR")
    parser.add_argument("--terrazzo", default="terrazzo")
    parser.add_argument("--rows", type=argparse.FileType("a"), metavar="FILE", help="write each figure to FILE, too")
    args = ways.parse_paths(parser)
    ways.print_head(["GPU", "kernel", "by", "figures", "within 0.1 %", "differ by"])
    with tempfile.TemporaryDirectory() as folder:
        for run, figures in published(args.liger).items():
            figures = {key: size for key, size in figures.items() if not args.names or key[0] in args.names}
            if not figures:
                continue
            for (device, kernel, by), parts in sorted(compare(args, Path(folder), run, figures).items()):
                close = sum(abs(part) <= 0.001 for part in parts)
                cells = [device, kernel, by, len(parts), close, f"{min(parts):+.1%} to {max(parts):+.1%}"]
                ways.print_row(cells)


if __name__ == "__main__":
    main()
