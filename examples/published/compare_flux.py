#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What diffusers' authors measured of FLUX.1-dev on an H100, with its weights in 16, 8 and 4 bits, and what
`terrazzo sim` finds.

    compare_flux.py --env ENV [--terrazzo CLI] [--steps 2] [--ways WAY,WAY,...] [KIND...]

Published figures: "Exploring Quantization Backends in Diffusers", diffusers-quantization.md of huggingface/blog, May
2025: the most that PyTorch had reserved when the pipeline was loaded, and when it had made an image. docs/sim.md has
the results, and says how to set ENV up and why figures differ.
"""
import argparse
import tempfile
from pathlib import Path

import ways

PUBLISHED = {  # kind: GiB when loaded, and in all
    "bf16": (31.447, 36.166),
    "4-bit": (12.584, 17.281),
    "8-bit": (19.273, 24.432),
}


def run(args, folder, way, kind):
    """GiB reserved when loaded and in all"""
    here = Path(__file__).resolve().parent
    command = ["python", here / "flux_run.py", folder, str(args.steps), kind]
    words, done = ways.run(args, way, ["--device=h100"], command, folder, folder, here)
    return [float(said) for said in ways.find_lines(words, done, r"^(?:loaded|in all): .* reserved (\S+)$", 2)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways.add_options(parser, PUBLISHED, 2)
    args = ways.parse(parser)
    ways.print_head(["weights", "loaded, published", "simulated", "in all, published", "simulated", "differs by",
                     *(f"in all, {way}" for way in args.ways[1:])])
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.names or PUBLISHED:
            (loaded, most), *others = [run(args, Path(folder), way, kind) for way in args.ways]
            ways.print_row([kind, PUBLISHED[kind][0], f"{loaded:.3f}", PUBLISHED[kind][1], f"{most:.3f}",
                            f"{most / PUBLISHED[kind][1] - 1:+.1%}", *(f"{other[1]:.3f}" for other in others)])


if __name__ == "__main__":
    main()
