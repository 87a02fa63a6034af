#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torchao's authors measured of optimizers that save memory, on a GeForce RTX 4070 Ti SUPER, and what
`terrazzo sim` finds.

    compare_torchao.py --env ENV --torchao DIR [--terrazzo CLI] [--steps 4] [--ways WAY,WAY,...] [CASE...]

DIR is a clone of torchao's repository; its benchmark runs unchanged (torchao_run.py). Published figures:
torchao/optim/README.md, "Benchmarks" and "Optimizer CPU offload". docs/sim.md has the results, and says how to set ENV
up and why figures differ.
"""
import argparse
import json
import re
import tempfile
from pathlib import Path

import ways

COMMIT = "e5246fca2"  # September 2024
SCRIPT = "benchmarks/benchmark_low_bit_adam.py"
DEVICE = ["--device=rtx4090", "--memory=15.6GiB"]  # of the same generation, with the memory of the other
COMMON = ["--n_epochs=1", "--seed=2024", "--n_workers=0"]
HUGE = ["--model=timm/vit_huge_patch14_224.orig_in21k", "--amp=bf16", "--compile", "--batch_size", "8",
        "--cosine_lr_scheduler"]
GIANT = ["--model=timm/vit_giant_patch14_dinov2.lvd142m", "--model_kwargs", json.dumps({"img_size": 224}),
         "--checkpoint_activations", "--batch_size", "32"]
FULL = [*GIANT, "--full_bf16"]
OFFLOAD = ["--optim_cpu_offload=ao"]
CASES = {  # name: (name in the table, options, GB published; None: out of memory)
    "adamw": ("ViT-H, AdamW, fused", [*HUGE, "--optim=AdamW"], 12.23),
    "bnb8": ("ViT-H, 8-bit of bitsandbytes", [*HUGE, "--optim=AdamW8bitBnb"], 8.32),
    "ao8": ("ViT-H, 8-bit", [*HUGE, "--optim=AdamW8bitAo"], 8.33),
    "fp8": ("ViT-H, FP8", [*HUGE, "--optim=AdamWFp8Ao"], 8.33),
    "ao4": ("ViT-H, 4-bit", [*HUGE, "--optim=AdamW4bitAo"], 7.72),
    "giant": ("ViT-g, bf16", FULL, 9.82),
    "offload": ("ViT-g, bf16, offload", [*FULL, *OFFLOAD], 5.24),
    "offload_gradients": ("ViT-g, bf16, offload of gradients, too", [*FULL, "--optim_cpu_offload=ao_offload_grads"],
                          4.01),
    "amp": ("ViT-g, mixed precision", [*GIANT, "--amp=bf16"], None),
    "amp_offload": ("ViT-g, mixed precision, offload", [*GIANT, "--amp=bf16", *OFFLOAD], 9.90),
}


def run(args, folder, way, options):
    """GB allocated and reserved at the peak; None: out of memory"""
    report, here = folder / "report.json", Path(__file__).resolve().parent
    command = ["python", here / "torchao_run.py", str(args.steps), folder / "benchmark.py", *COMMON, *options]
    words, done = ways.start(args, way, [*DEVICE, f"--json={report}"], command, folder, folder / "cache", here)
    if "torch.OutOfMemoryError" in done.stdout:
        return None
    said = re.search(r"Max memory used: ([0-9.]+) GB", done.stdout)
    if done.returncode or not said:
        ways.fail(words, done)
    return float(said[1]), json.loads(report.read_text())["processes"][0]["peak_reserved_bytes"] / 1e9


def compare(args, folder, name):
    title, options, measured = CASES[name]
    results = [run(args, folder, way, options) for way in args.ways]
    ways.print_comparison(title, measured, results)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways.add_options(parser, CASES, 4)
    parser.add_argument("--torchao", required=True, type=Path, metavar="DIR")
    args = ways.parse(parser)
    ways.print_comparison_head("settings", args.ways)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "benchmark.py").write_bytes(ways.git(args.torchao, "show", f"{COMMIT}:{SCRIPT}"))
        for name in args.names or CASES:
            compare(args, Path(folder), name)


if __name__ == "__main__":
    main()
