#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torchao's authors measured of Llama 3.1 8B with long caches, quantized or not, on an A100, and what
`terrazzo sim` finds.

    compare_torchao_llama.py --env ENV [--terrazzo CLI] [--steps 20] [--ways WAY,WAY,...] [TOKENS...]

The program is torchao's (torchao_llama_run.py). Published figures: torchao/_models/llama/README.md since commit
62c239cf3, the most that PyTorch had reserved. docs/sim.md has the results, and says how to set ENV up and why figures
differ.
"""
import argparse
import re
import tempfile
from pathlib import Path

import ways

KINDS = {"normal": (), "kv_quant": ("kv",), "kv_quant and linear mask": ("kv", "mask")}
PUBLISHED = {  # tokens: GB, in the order of KINDS
    "8192": (17.86, 17.52, 17.47),
    "16384": (19.81, 18.75, 18.48),
    "32768": (23.83, 21.72, 20.64),
    "65536": (33.5, 29.54, 25.24),
    "131072": (59.27, 52.62, 34.18),
}


def run(args, folder, way, tokens, how):
    """GB reserved at the peak, which is what was published, twice; None: out of memory"""
    here = Path(__file__).resolve().parent
    command = ["python", here / "torchao_llama_run.py", "Llama-3.1-8B", str(args.steps), tokens, *how]
    words, done = ways.start(args, way, ["--device=a100"], command, folder, folder, here)
    if "OutOfMemoryError" in done.stdout:
        return None
    said = re.search(r"^allocated \S+ reserved (\S+)$", done.stdout, re.MULTILINE)
    if done.returncode or not said:
        ways.fail(words, done)
    return float(said[1]), float(said[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways.add_options(parser, PUBLISHED, 20)
    args = ways.parse(parser)
    ways.print_comparison_head("tokens, cache", args.ways)
    with tempfile.TemporaryDirectory() as folder:
        for tokens in args.names or PUBLISHED:
            for (kind, how), measured in zip(KINDS.items(), PUBLISHED[tokens]):
                results = [run(args, folder, way, tokens, how) for way in args.ways]
                ways.print_comparison(f"{tokens}, {kind}", measured, results)


if __name__ == "__main__":
    main()
