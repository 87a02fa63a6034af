#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Qwen's authors measured of Qwen2.5 on an A100 with prompts of many tokens, and what `terrazzo sim` finds.

    compare_qwen.py --env ENV [--terrazzo CLI] [--steps 4] [--ways WAY,WAY,...] [SIZE...]

Published figures: docs/source/benchmark/speed_benchmark.rst of QwenLM/Qwen3 at commit a912d23, the rows of transformers
in BF16, the most that PyTorch had allocated. docs/sim.md has the results, and says how to set ENV up.
"""
import argparse
from pathlib import Path

import ways

LENGTHS = ("6144", "14336", "30720")
PUBLISHED = {  # size: GiB, in the order of LENGTHS
    "0.5B": (1.23, 1.60, 2.34),
    "1.5B": (3.43, 4.16, 5.62),
    "3B": (6.59, 7.47, 9.30),
    "7B": (15.38, 16.91, 19.97),
    "14B": (29.50, 31.95, 36.85),
    "32B": (63.72, 67.31, 74.47),
}


def run(args, way, size):
    """For each length GiB allocated and reserved at the peak"""
    here = Path(__file__).resolve().parent
    words, done = ways.run(args, way, ["--device=a100"],
                           ["python", here / "qwen_run.py", size, str(args.steps), *LENGTHS], here, here, here)
    found = ways.find_lines(words, done, r"^\d+: allocated (\S+) reserved (\S+)$", len(LENGTHS))
    return [(float(allocated), float(reserved)) for allocated, reserved in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways.add_options(parser, PUBLISHED, 4)
    args = ways.parse(parser)
    ways.print_comparison_head("size, tokens", args.ways)
    for size in args.names or PUBLISHED:
        for length, measured, *results in zip(LENGTHS, PUBLISHED[size], *(run(args, way, size) for way in args.ways)):
            ways.print_comparison(f"{size}, {length}", measured, results)


if __name__ == "__main__":
    main()
