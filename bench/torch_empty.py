# SPDX-License-Identifier: Apache-2.0
"""The cost of torch.empty(512 bytes) and its free: PyTorch's own allocator beside terrazzo, in one run.

    torch_empty.py [--python PYTHON] [--rounds N]

PYTHON (default: $TERRAZZO_TORCH_PYTHON, else this one) has PyTorch, on a GPU or a simulated device. The allocators take
turns, each round in a process of its own. A round's figure is the median of 9 loops of 50,000 pairs; the script prints
the median of the rounds, with the least and the most.
"""
import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

WAYS = ("native", "expandable", "shim", "hooks")
LOOP = """
import statistics, sys, time
import torch
way = sys.argv[1]
if way in ("shim", "hooks"):
    import terrazzo.torch
    terrazzo.torch.install(shim=way == "shim")
new, device, times = torch.empty, torch.device("cuda"), []
for i in range(10):
    start = time.perf_counter_ns()
    for _ in range(50_000):
        new(512, dtype=torch.uint8, device=device)
    times.append((time.perf_counter_ns() - start) / 50_000)
print(statistics.median(times[1:]))
"""


def measure(python, way):
    conf = "expandable_segments:True" if way == "expandable" else "expandable_segments:False"
    path = str(Path(__file__).resolve().parents[1] / "python")
    env = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf,
           "PYTHONPATH": os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))}
    done = subprocess.run([python, "-c", LOOP, way], env=env, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=os.environ.get("TERRAZZO_TORCH_PYTHON", sys.executable))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    figures = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way in WAYS:
            figures[way].append(measure(args.python, way))
    print("ns for torch.empty(512 bytes) and its free, median (least .. most)")
    for way, values in figures.items():
        print(f"  {way:<12}{statistics.median(values):8.0f}  ({min(values):.0f} .. {max(values):.0f})")


if __name__ == "__main__":
    main()
