#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the training of OPT-350m took on an L40S, by transformers' own page, and what `terrazzo sim` finds.

    compare_sdpa.py --env ENV [--terrazzo CLI] [--ways WAY,WAY,...] [eager] [sdpa]

The program is made from what the page says (sdpa_run.py). Published figures: docs/source/en/model_doc/opt.md of
transformers since 4.46, "Using Scaled Dot Product Attention". docs/sim.md has the results, and says how to set ENV up
and why figures differ.
"""
import argparse
import re
import tempfile
from pathlib import Path

import ways

BATCHES = [(batch, length) for batch in (1, 2, 4, 8) for length in (128, 256, 512, 1024, 2048)]
PUBLISHED = {  # in the order of BATCHES, MB; None: out of memory
    "sdpa": (1474.32, 1499.49, 1551.35, 1698.35, 2715.75, 1499.49, 1551.35, 1698.35, 2715.75, 4750.55, 1551.35,
             1698.35, 2715.75, 4750.55, 8821.18, 1697.78, 2715.75, 4750.55, 8821.18),
    "eager": (1474.611, 1498.541, 1973.544, 4867.113, 15662.224, 1498.164, 1569.367, 3257.074, 9054.405, 30572.058,
              1549.448, 2451.768, 5833.180, 17427.842, None, 2049.115, 4222.567, 10985.391, 34175.763, None)}


def run(args, folder, way, attention):
    """For each batch the MB allocated and reserved at its peak; None: out of memory"""
    here = Path(__file__).resolve().parent
    cases = [f"{batch}:{length}" for batch, length in BATCHES[:len(PUBLISHED[attention])]]
    command = ["python", here / "sdpa_run.py", attention, *cases]
    words, done = ways.run(args, way, ["--device=l40s"], command, folder, folder, here)
    found = re.findall(r"^peak \S+ (?:(\S+) (\S+)|out of memory)$", done.stdout, re.MULTILINE)
    if len(found) != len(cases):
        ways.fail(words, done)
    return [(float(allocated), float(reserved)) if allocated else None for allocated, reserved in found]


def compare(args, attention):
    with tempfile.TemporaryDirectory() as folder:
        results = zip(*(run(args, folder, way, attention) for way in args.ways))
    for (batch, length), published, result in zip(BATCHES, PUBLISHED[attention], results):
        ways.print_comparison(f"{attention}, {batch} x {length}", published, result)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways.add_options(parser, PUBLISHED, 0)
    args = ways.parse(parser)
    ways.print_comparison_head("attention, batch", args.ways)
    for name in args.names or PUBLISHED:
        compare(args, name)


if __name__ == "__main__":
    main()
