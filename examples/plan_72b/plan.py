#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which plan fine-tunes a 72B model on 8 devices of 80 GiB? Runs plan_train.py under `terrazzo sim`, plan by plan.

    plan.py --env ENV [--terrazzo CLI] [--memory 80GiB] [--devices 8] [--layers 80] [PLAN...]

Each plan first runs with unlimited memory, for its peak. If PyTorch then allocates no more than the device has, but
reserves more, the plan runs again with the device's memory. docs/ranks.md explains the table and the formulas.
"""
import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GIB = 1 << 30
ENDLESS = 4096 * GIB
LOSS_TOKENS = 4096
MICROBATCHES = 8  # plan_train.py's default


@dataclasses.dataclass
class Sizes:
    layers: int = 80
    hidden: int = 8192
    heads: int = 64
    kv_heads: int = 8
    intermediate: int = 29568
    vocabulary: int = 152064

    def __post_init__(self):
        narrow = self.hidden // self.heads * self.kv_heads
        self.matrix = self.hidden * self.intermediate  # the largest of a layer
        self.layer = 3 * self.matrix + 2 * self.hidden**2 + 2 * self.hidden * narrow + 3 * self.hidden + 2 * narrow
        self.embedding = self.hidden * self.vocabulary
        self.attended = 6 * self.hidden + 2 * narrow  # elements a token: input, both norms', q, k, v, attention's, sum


class Plan:
    """A way to train, its command line, and its closed form: {what: bytes} at the peak of the fullest rank."""

    def __init__(self, name, *words, checkpointing=True, offload=False, stages=None):
        self.name, self.words, self.stages, self.offload = name, list(words), stages, offload
        self.checkpointing = checkpointing

    def command(self, length, sizes):
        words = [self.words[0], f"--length={length}"]
        words += ["--checkpointing"] * self.checkpointing
        words += ["--offload", "--one-buffer", "--steps=1"] * self.offload
        if self.stages:
            words.append("--stages=" + ",".join(map(str, self.stages)))
        return words + [f"--{f.name.replace('_', '-')}={getattr(sizes, f.name)}" for f in dataclasses.fields(sizes)]

    def formula(self, length, ranks, sizes):
        if self.words[0] == "fsdp2":
            moments = sharded(length, ranks, sizes, self.checkpointing, self.offload)
        else:
            moments = piped(length, ranks, sizes, self.checkpointing, self.stages or [sizes.layers // ranks] * ranks)
        return max(moments, key=lambda moment: sum(moment.values()))


def kept(length, sizes, checkpointing):
    """Bytes that one layer's forward keeps for backward: its input, or everything that its operations save."""
    return 2 * length * (sizes.hidden if checkpointing else sizes.attended + 4 * sizes.intermediate)


def working(length, sizes, whole):
    """[(activations, gradients)] in the backward of one layer: as the product of gate and up gets its gradient, and as
    both have theirs. `whole`: the activations are not in what forward kept."""
    saved = sizes.attended * whole + sizes.hidden * 2
    first = saved + sizes.intermediate * (6 if whole else 2)
    last = saved + sizes.intermediate * (2 if whole else -2)
    return [(2 * length * first, 2 * sizes.matrix), (2 * length * last, 6 * sizes.matrix)]


def logits(length, sizes):
    """log_softmax's output, its gradient and that of its input, in fp32, of one piece of the loss."""
    return 12 * min(length, LOSS_TOKENS) * sizes.vocabulary


def sharded(length, ranks, sizes, checkpointing, offload):
    """FSDP2, each moment of backward that may be the peak."""
    parameters = sizes.layers * sizes.layer + 2 * sizes.embedding + sizes.hidden
    always = {"weights": 2 * parameters // ranks, "optimizer": 0 if offload else 4 * parameters // ranks}
    forward, layer, embedding = kept(length, sizes, checkpointing), 2 * sizes.layer, 2 * sizes.embedding
    token = 2 * length * sizes.hidden
    # the head: its weight is gathered, and the next layer's is on its way
    yield {**always, "gradients": 0, "activations": sizes.layers * forward + 3 * token + logits(length, sizes),
           "buffers": embedding + layer + (embedding if length > LOSS_TOKENS else 0)}
    for left in sizes.layers, 1:
        done = (embedding + (sizes.layers - left) * layer) // ranks
        for activations, gradients in working(length, sizes, checkpointing):
            # gathered, the next on its way, the gradients so far, and those of the last that are being scattered
            yield {**always, "gradients": done, "activations": left * forward + activations,
                   "buffers": layer + gradients + layer + embedding}
    yield {**always, "gradients": (embedding + sizes.layers * layer) // ranks, "activations": token,
           "buffers": 2 * embedding + layer}


def piped(length, ranks, sizes, checkpointing, stages):
    """1F1B: each rank's moments in the backward of a later microbatch than the first, when all gradients are there."""
    token, forward = 2 * length * sizes.hidden, kept(length, sizes, checkpointing)
    for rank, layers in enumerate(stages):
        ends = (rank == 0) + (rank == ranks - 1)
        parameters = 2 * (layers * sizes.layer + ends * sizes.embedding)
        always = {"weights": parameters, "optimizer": 2 * parameters, "gradients": parameters}
        held = min(ranks - rank, MICROBATCHES - 1) * layers * forward
        if rank == ranks - 1:
            held += (MICROBATCHES + 1) * token  # the outputs of all
            yield {**always, "activations": held + 3 * token + logits(length, sizes),
                   "buffers": token + (2 * sizes.embedding if length > LOSS_TOKENS else 0)}
        for activations, _ in working(length, sizes, checkpointing):
            yield {**always, "activations": held + activations, "buffers": 2 * sizes.matrix + token}
        if rank == 0:
            yield {**always, "activations": held - layers * forward, "buffers": 2 * sizes.embedding + token}


PLANS = {
    "fsdp2": Plan("FSDP2", "fsdp2", checkpointing=False),
    "checkpointing": Plan("FSDP2, checkpointing", "fsdp2"),
    "offload": Plan("FSDP2, checkpointing, optimizer on the host", "fsdp2", offload=True),
    "pipeline": Plan("1F1B, 8 equal stages, checkpointing", "pipeline"),
    "uneven": Plan("1F1B, uneven stages, checkpointing", "pipeline", stages=[9, 10, 10, 10, 10, 11, 11, 9]),
}


class Run:
    """What one run of a plan showed."""

    def __init__(self, args, plan, length, sizes, memory):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "report.json"
            command = [args.terrazzo, "sim", f"--env={args.env}", f"--devices={args.devices}",
                       f"--memory={memory >> 20}MiB", f"--nccl-memory={args.nccl_memory}", f"--json={file}", "--",
                       "torchrun", f"--nproc-per-node={args.devices}", HERE / "plan_train.py",
                       *plan.command(length, sizes)]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                                  env={"OMP_NUM_THREADS": "1", **os.environ})
            report = json.loads(file.read_text()) if file.exists() else {}
        self.ranks = sorted((p for p in report.get("processes", []) if "rank" in p), key=lambda p: p["rank"])
        self.ooms = report.get("ooms", [])
        if not self.ranks or (done.returncode and not self.ooms):
            sys.exit(f"{plan.name}: status {done.returncode}\n{done.stdout}")
        lines = (json.JSONDecoder().raw_decode(text)[0] for text in done.stdout.split("PLAN ")[1:])
        self.held = {held["rank"]: held for held in lines}
        self.fullest = max(self.ranks, key=lambda p: p["peak_allocated_bytes"])
        self.retries = max(p["retries"] for p in self.ranks)
        self.allocated = self.fullest["peak_allocated_bytes"]
        self.reserved = max(p["peak_reserved_bytes"] for p in self.ranks)


def verdict(args, plan, length, sizes):
    """(text, the run that shows the peak)"""
    run = Run(args, plan, length, sizes, ENDLESS)
    if run.allocated > args.memory:
        return f"no, by {(run.allocated - args.memory) / GIB:.1f}", run
    if run.reserved <= args.memory:
        return "yes", run
    tight = Run(args, plan, length, sizes, args.memory)
    if tight.ooms:
        return "no: fragmented", run
    return f"yes, {tight.retries} retries" if tight.retries else "yes", tight


def examine(args, plan, length, sizes):
    """What is printed about a plan, as a dict; bytes."""
    text, run = verdict(args, plan, length, sizes)
    rank = run.fullest["rank"]
    held = run.held[rank]
    return {"plan": plan.name, "tokens": length, "fits": text, "rank": rank, "allocated": run.allocated,
            "reserved": run.reserved, "phase": max(held["peaks"], key=held["peaks"].get),
            "formula": plan.formula(length, args.devices, sizes),
            **{what: held[what] for what in ("weights", "gradients", "optimizer")}}


def gib(*numbers):
    return [f"{number / GIB:.1f}" for number in numbers]


def row(found):
    formula = found["formula"]
    total = sum(formula.values())
    parts = (formula[what] for what in ("weights", "gradients", "optimizer", "activations", "buffers"))
    cells = [found["plan"], found["tokens"], found["fits"], found["rank"],
             " / ".join(gib(found["allocated"], found["reserved"])), found["phase"],
             *gib(found["weights"], found["gradients"], found["optimizer"]),
             f"{total / GIB:.1f} ({total / found['allocated'] - 1:+.1%})", " + ".join(gib(*parts))]
    return "| " + " | ".join(map(str, cells)) + " |"


def size(text):
    found = re.fullmatch(r"(\d+)GiB", text)
    if not found:
        raise argparse.ArgumentTypeError("a size is written like 80GiB")
    return int(found.group(1)) * GIB


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PLAN", help=", ".join(PLANS))
    parser.add_argument("--env", required=True)
    parser.add_argument("--terrazzo", default="terrazzo")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--memory", type=size, default=80 * GIB)
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")], default=[4096, 32768])
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--nccl-memory", choices=("yes", "no"), default="no", help="count what NCCL takes for itself")
    parser.add_argument("--json", type=Path, help="append what was found of each plan, a line each")
    args = parser.parse_args()
    sizes = Sizes(layers=args.layers)
    print("| plan | tokens | fits | fullest rank | allocated / reserved, GiB | peak in | weights | gradients | "
          "optimizer | closed form | its weights + gradients + optimizer + activations + buffers |")
    print("|---" * 11 + "|", flush=True)
    for length in args.lengths:
        for name in args.names or PLANS:
            found = examine(args, PLANS[name], length, sizes)
            print(row(found), flush=True)
            if args.json:
                with args.json.open("a") as file:
                    print(json.dumps(found), file=file)


if __name__ == "__main__":
    main()
