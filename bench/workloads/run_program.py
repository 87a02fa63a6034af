#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs one of the programs of programs.py and streams.py: run_program.py NAME [--steps N] [--seed N]. Prints a line of
JSON."""
import argparse
import json
import os
import random
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch  # noqa: E402

import programs  # noqa: E402
import streams  # noqa: E402

PROGRAMS = {**programs.PROGRAMS, **streams.PROGRAMS}


def own_calls():
    """terrazzo's own calls of the driver, if it serves the program."""
    import terrazzo.torch
    if not terrazzo.torch.installed():
        return {}
    prefix, stats = "driver_calls.", terrazzo.torch.stats()
    return {key[len(prefix):]: value for key, value in stats.items() if key.startswith(prefix) and value}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    # Heuristics decide cuDNN's attention, and a stand-in does not have them.
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
        "frees": stats["allocation.all.freed"],
        "retries": stats["num_alloc_retries"],
        "own_calls": own_calls(),
        "process_cpu_seconds": round(end, 4),
        "program_cpu_seconds": round(end - begin, 4)}), flush=True)


if __name__ == "__main__":
    main()
