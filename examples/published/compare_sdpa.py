#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What models took with eager attention and with PyTorch's, by transformers' own pages, and what `terrazzo sim` finds.

    compare_sdpa.py --env ENV [--terrazzo CLI] [--ways WAY,WAY,...] [PAGE...]

The programs are made from what the pages say (sdpa_run.py). Published figures: docs/source/en/model_doc/ of
transformers 4.46, "Using Scaled Dot Product Attention". docs/sim.md has the results, and says how to set ENV up and why
figures differ.
"""
import argparse
import collections
import tempfile
from pathlib import Path

import ways

# Options of the device; batch:tokens; MB, None where memory ran out.
Page = collections.namedtuple("Page", "device cases eager sdpa")


def cases(batches, lengths):
    return [f"{batch}:{length}" for batch in batches for length in lengths]


LAPTOP = ["--device=rtx3090", "--memory=15.7GiB"]  # a GeForce RTX 3080 Ti of 16 GB, of the same generation
SMALL = ["--device=t4", "--memory=7.6GiB"]  # a GeForce RTX 2060 of 8 GB, of the same generation
PAGES = {
    "opt": Page(
        ["--device=l40s"], cases((1, 2, 4, 8), (128, 256, 512, 1024, 2048)),
        (1474.611, 1498.541, 1973.544, 4867.113, 15662.224, 1498.164, 1569.367, 3257.074, 9054.405, 30572.058,
         1549.448, 2451.768, 5833.180, 17427.842, None, 2049.115, 4222.567, 10985.391, 34175.763, None),
        (1474.32, 1499.49, 1551.35, 1698.35, 2715.75, 1499.49, 1551.35, 1698.35, 2715.75, 4750.55, 1551.35, 1698.35,
         2715.75, 4750.55, 8821.18, 1697.78, 2715.75, 4750.55, 8821.18)),
    "pythia": Page(
        LAPTOP, cases((1, 2, 4), (128, 256, 512, 1024, 2048)),
        (1789.95, 1845.83, 2278.38, 4772.36, 13484.1, 1843.86, 1999.72, 3613.16, 8707.55, None, 1947.6, 3008.39,
         6290.58, None, None),
        (1789.95, 1844.84, 1953.76, 2408.35, 3882.01, 1844.78, 1951.67, 2406.77, 3878.86, 6825.13, 1952.06, 2405.99,
         3877.29, 6821.98, 12705.1)),
    "gpt2": Page(
        LAPTOP, cases((1, 2, 4), (128, 256, 512, 1024)),
        (3482.32, 3546.66, 4230.1, 8682.26, 3557.8, 3901.5, 7062.21, None, 3675.79, 6129.76, 12466.6, None),
        (3494.62, 3552.6, 3665.59, 4881.09, 3545.91, 3657.68, 4876.47, 8096.35, 3648.72, 4871.12, 8102.64, 14568.2)),
    "biogpt": Page(
        SMALL, cases((1, 2, 4, 8), (128, 256)),
        (1601.862, 1624.944, 1624.567, 1672.164, 1671.435, 2350.179, 2098.521, 3989.980),
        (1601.497, 1625.296, 1625.296, 1672.164, 1672.164, 1848.435, 1848.435, 2986.492)),
    "biogpt-inference": Page(
        SMALL, cases((1, 2, 4), (64, 128)),
        (716.998, 730.916, 730.900, 759.262, 759.229, 816.478),
        (716.998, 730.916, 730.900, 759.262, 759.229, 816.478)),
    "distilbert": Page(
        SMALL, cases((1, 2, 4, 8), (128, 256)),
        (397.038, 412.505, 412.213, 427.491, 427.491, 594.156, 545.922, 983.450),
        (399.629, 412.606, 412.606, 425.787, 425.787, 502.745, 502.745, 798.480)),
    "albert": Page(
        SMALL, cases((2, 4, 8), (256, 512)),
        (358.411, 753.458, 679.534, 1434.820, 1283.825, 2820.398),
        (321.088, 602.660, 602.660, 1134.140, 1134.140, 2219.695)),
}


def run(args, folder, way, page, attention, chosen):
    """For each batch the MB allocated and reserved at its peak; None: out of memory"""
    here = Path(__file__).resolve().parent
    command = ["python", here / "sdpa_run.py", page, attention, *chosen]
    words, done = ways.run(args, way, PAGES[page].device, command, folder, folder, here)
    found = ways.find_lines(words, done, r"^peak \S+ (?:(\S+) (\S+)|out of memory)$", len(chosen))
    return [(float(allocated), float(reserved)) if allocated else None for allocated, reserved in found]


def compare(args, page, attention):
    published = getattr(PAGES[page], attention)
    chosen = PAGES[page].cases[:len(published)]
    with tempfile.TemporaryDirectory() as folder:
        results = zip(*(run(args, folder, way, page, attention, chosen) for way in args.ways))
    for case, measured, result in zip(chosen, published, results):
        ways.print_comparison(f"{page}, {attention}, {case.replace(':', ' x ')}", measured, result)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways.add_options(parser, PAGES, 0)
    args = ways.parse(parser)
    ways.print_comparison_head("page, attention, batch", args.ways)
    for name in args.names or PAGES:
        for attention in ("eager", "sdpa"):
            compare(args, name, attention)


if __name__ == "__main__":
    main()
