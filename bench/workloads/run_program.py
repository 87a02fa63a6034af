#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one of the programs of programs.py: run_program.py NAME [--steps N] [--seed N]. Prints one line of JSON."""
import argparse
import json
import os
import random
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch  # noqa: E402

from programs import PROGRAMS  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    # cuDNN's attention is decided by its heuristics, which a stand-in does not have.
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.manual_seed(0)
    program, steps = PROGRAMS[args.name]
    torch.cuda.init()
    begin = time.process_time()
    done = sum(1 for _ in program(random.Random(args.seed), args.steps or steps))
    end = time.process_time()
    stats = torch.cuda.memory_stats()
    print(json.dumps({
        "program": args.name,
        "steps": done,
        "allocations": stats["allocation.all.allocated"],
        "allocated_bytes": stats["allocated_bytes.all.peak"],
        "reserved_bytes": stats["reserved_bytes.all.peak"],
        "retries": stats["num_alloc_retries"],
        "process_cpu_seconds": round(end, 4),
        "program_cpu_seconds": round(end - begin, 4)}), flush=True)


if __name__ == "__main__":
    main()
