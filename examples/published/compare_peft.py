#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much memory PEFT's authors measured on an L40S for each of its methods, with Llama 3.2 3B, and what
`terrazzo sim` finds.

    compare_peft.py --env ENV --peft DIR [--terrazzo CLI] [--ways WAY,WAY,...] [METHOD...]

DIR is a clone of PEFT's repository, whose program runs unchanged (peft_run.py). Published figures:
method_comparison/MetaMathQA/results/ of PEFT, each measured at the commit that it names, with the settings beside it.
docs/sim.md has the results, and says how to set ENV up and why figures differ.
"""
import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

import ways

TASK = "method_comparison/MetaMathQA"
COMMIT = "5d602fdbff04c33c1c4de55cda9d4ae1d7cb7e40"  # August 2026, with the results
LONGEST, OTHERS = 684, 224  # tokens: docs/sim.md says where they are from
MIB = 1 << 20


def published(clone):
    """{experiment: (commit, bytes reserved at the peak, mean of bytes allocated after a step)}"""
    found = {}
    for file in ways.git(clone, "ls-tree", "--name-only", COMMIT, f"{TASK}/results/").decode().split():
        if file.endswith(".json"):
            result = json.loads(ways.git(clone, "show", f"{COMMIT}:{file}"))
            steps = [row["mem allocated avg"] for row in result["train_info"]["metrics"] if "mem allocated avg" in row]
            found[result["run_info"]["experiment_name"]] = (
                result["meta_info"]["package_info"]["peft-commit-hash"],
                result["train_info"]["accelerator_memory_max"], sum(steps) / len(steps))
    return found


def check_out(clone, commit, folder):
    if not folder.exists():
        program = [f"{TASK}/{name}" for name in ("run.py", "utils.py", "data.py", "default_training_params.json")]
        ways.unpack(clone, commit, ["src", *program], folder)
        ways.unpack(clone, COMMIT, [f"{TASK}/experiments"], folder)


def run(args, folder, way, commit, experiment):
    """Bytes reserved at the peak, and the mean of those allocated after each of the first steps; None: it stopped"""
    check_out(args.peft, commit, folder / commit)
    here, tree = Path(__file__).resolve().parent, folder / commit
    command = ["env", "PYTHONHASHSEED=0", "python", here / "peft_run.py", str(LONGEST), str(OTHERS), folder / "model",
               experiment]  # PEFT goes through sets of names
    _, done = ways.start(args, way, ["--device=l40s"], command, tree / TASK, folder / "cache", tree / "src")
    if done.returncode or "encountered an error" in done.stdout:
        why = [line for line in done.stdout.splitlines() if re.search("[Ee]rror", line)] or ["no reason given"]
        print(f"{experiment}: status {done.returncode}, {why[-1].strip()}", file=sys.stderr)
        return None
    most = re.search(r"accelerator memory max: (\d+)MB", done.stdout)
    mean = re.search(r'"mem allocated": "(\d+)"', done.stdout)
    return int(most[1]) * MIB, int(mean[1])


def compare(args, folder, experiment, commit, reserved, allocated):
    found = [run(args, folder, way, commit, experiment) for way in args.ways]
    if not all(found):
        return
    cells = [experiment]
    for measured, simulated in (allocated, found[0][1]), (reserved, found[0][0]):
        cells += [f"{measured / MIB:.0f}", f"{simulated / MIB:.0f}", f"{simulated / measured - 1:+.2%}"]
    ways.print_row([*cells, *(f"{most / MIB:.0f}" for most, _ in found[1:])])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways.add_options(parser, [], 0)
    parser.add_argument("--peft", required=True, type=Path, metavar="DIR")
    args = ways.parse(parser)
    measured = published(args.peft)
    ways.print_head(["method", "allocated, published", "simulated", "differs by", "reserved, published", "simulated",
                     "differs by", *(f"{way}, reserved" for way in args.ways[1:])])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model").mkdir()
        for experiment, figures in measured.items():
            if not args.names or any(name in experiment for name in args.names):
                compare(args, Path(folder), experiment, *figures)


if __name__ == "__main__":
    main()
