#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What LitGPT's authors measured of LoRA and inference on an A100 with 40 GB, and what `terrazzo sim` finds.

    compare_litgpt.py --env ENV --litgpt DIR [--terrazzo CLI] [--ways WAY,WAY,...] [CASE...]

DIR is a clone of LitGPT's repository; its scripts of that time run unchanged (litgpt_run.py). Published figures:
tutorials/resource-tables.md of LitGPT since commit 0cc02afa. docs/sim.md has the results, and says how to set ENV up
and why figures differ.
"""
import argparse
import json
import re
import tempfile
from pathlib import Path

import ways

COMMIT = "8641822b3249bb94f068c254aa5d13decbc9f0a0"  # October 2023, the one that was measured
PHI, STABLE, LLAMA7, LLAMA13 = "phi-1_5", "stablelm-base-alpha-3b", "Llama-2-7b-hf", "Llama-2-13b-hf"
LONGEST = {PHI: 1044, STABLE: 1034, LLAMA7: 1304, LLAMA13: 1304}  # tokens, as published
LORA = {  # (model, microbatch): GB published; None: out of memory
    (PHI, 1): 4.82, (PHI, 2): 6.76, (PHI, 4): 10.68, (STABLE, 1): 9.69, (STABLE, 2): 12.10, (STABLE, 4): 16.92,
    (LLAMA7, 1): 21.30, (LLAMA7, 2): 29.07, (LLAMA7, 4): None, (LLAMA13, 1): 38.12, (LLAMA13, 2): None}
INFERENCE = {PHI: 2.86, STABLE: 7.30, LLAMA7: 13.52, LLAMA13: 26.21}
CASES = {  # name: (words for litgpt_run.py, GB published)
    **{f"lora:{model}:{count}": ([model, LONGEST[model], count, "finetune.lora"], measured)
       for (model, count), measured in LORA.items()},
    **{f"inference:{model}": ([model, 1, 1, "generate.base"], measured) for model, measured in INFERENCE.items()}}


def run(args, tree, way, words):
    """GB allocated and reserved at the peak; None: out of memory"""
    with tempfile.TemporaryDirectory() as folder:
        report, here = Path(folder) / "report.json", Path(__file__).resolve().parent
        command = ["python", here / "litgpt_run.py", folder, *map(str, words)]
        said, done = ways.start(args, way, ["--device=a100-40", f"--json={report}"], command, tree, folder, tree)
        if "OutOfMemoryError" in done.stdout:
            return None
        found = re.search(r"Memory used: ([0-9.]+) GB", done.stdout)
        if done.returncode or not found:
            ways.fail(said, done)
        return float(found[1]), json.loads(report.read_text())["processes"][0]["peak_reserved_bytes"] / 1e9


def compare(args, tree, name):
    words, measured = CASES[name]
    results = [run(args, tree, way, words) for way in args.ways]
    ways.print_comparison(name, measured, results)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways.add_options(parser, CASES, 0)
    parser.add_argument("--litgpt", required=True, type=Path, metavar="DIR")
    args = ways.parse(parser)
    ways.print_comparison_head("settings", args.ways)
    with tempfile.TemporaryDirectory() as tree:
        ways.unpack(args.litgpt, COMMIT, ["finetune", "generate", "lit_gpt", "quantize", "scripts"], tree)
        for name in args.names or CASES:
            compare(args, Path(tree), name)


if __name__ == "__main__":
    main()
