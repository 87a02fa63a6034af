# SPDX-License-Identifier: Apache-2.0
"""One rank of one plan to fine-tune a model like Qwen2 on several devices; torchrun starts the ranks.

    terrazzo sim --env ENV --devices 8 -- torchrun --nproc-per-node 8 plan_train.py fsdp2 --checkpointing

Each rank prints a line with what it holds, and its peak in each phase of the last step.
"""
import argparse
import itertools
import json
import os

import torch
import torch.distributed as dist
from plan_model import Model

HOST_ELEMENTS = 1 << 24  # optimizer states travel in pieces of this many


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", choices=["fsdp2", "pipeline"])
    parser.add_argument("--checkpointing", action="store_true", help="keep only what goes into each layer")
    parser.add_argument("--offload", action="store_true", help="keep the optimizer's states on the host")
    parser.add_argument("--one-buffer", action="store_true",
                        help="with --offload: all states in one small host buffer, to see the device's memory only")
    parser.add_argument("--foreach", action="store_true", help="AdamW in many kernels rather than a fused one")
    parser.add_argument("--stages", type=lambda text: [int(n) for n in text.split(",")], help="layers of each stage")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--length", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--steps", type=int, default=2)
    for name, size in (("layers", 80), ("hidden", 8192), ("heads", 64), ("kv-heads", 8), ("intermediate", 29568),
                       ("vocabulary", 152064)):
        parser.add_argument(f"--{name}", type=int, default=size)
    return parser.parse_args()


class HostAdamW:
    """AdamW whose moments live on the host and visit the device in pieces."""

    def __init__(self, parameters, one_buffer):
        self.parameters, self.step_number = list(parameters), torch.zeros((), device="cuda")
        pieces = sum(-(-local(p).numel() // HOST_ELEMENTS) for p in self.parameters)
        self.moments = torch.empty(1 if one_buffer else pieces, 2, HOST_ELEMENTS, dtype=torch.bfloat16,
                                   pin_memory=True)
        self.state = {}

    def step(self):
        self.step_number += 1
        homes = itertools.cycle(self.moments)
        for parameter in self.parameters:
            for p, g in zip(*(local(t).flatten().split(HOST_ELEMENTS) for t in (parameter.data, parameter.grad))):
                home = next(homes)[:, :p.numel()]
                first, second = (moment.cuda(non_blocking=True) for moment in home)
                torch._fused_adamw_([p], [g], [first], [second], [], [self.step_number], lr=1e-5, beta1=0.9,
                                    beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False)
                for there, here in zip(home, (first, second)):
                    there.copy_(here, non_blocking=True)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def held(tensors):
    return sum(local(t).nbytes for t in tensors if t is not None and t.is_cuda)


class Phases:
    """The peak of allocated memory in each phase of a step."""

    def __init__(self):
        self.peaks = {}
        torch.cuda.reset_peak_memory_stats()

    def end(self, name):
        torch.cuda.synchronize()
        self.peaks[name] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()


def shard(args):
    """(what is trained, a function that does forward and backward)"""
    from torch.distributed.fsdp import fully_shard
    with torch.device("meta"):
        model = Model(args, args.checkpointing).bfloat16()
    for part in (model.embedding, *model.layers, model.head, model):
        fully_shard(part)
    model.to_empty(device="cuda")
    tokens = torch.zeros(1, args.length, dtype=torch.long, device="cuda")

    def compute(phases):
        loss = model(tokens, tokens)
        phases.end("forward")
        loss.backward()
        phases.end("backward")
    return model, compute


def pipe(args):
    """The same for a rank's stage: whole layers, 1F1B."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    rank, ranks = dist.get_rank(), dist.get_world_size()
    stages = args.stages or [args.layers // ranks] * ranks
    first = sum(stages[:rank])
    with torch.device("meta"):
        model = Model(args, args.checkpointing, first, first + stages[rank]).bfloat16()
    model.to_empty(device="cuda")
    tokens = torch.zeros(args.microbatches, args.length, dtype=torch.long, device="cuda")
    stage = PipelineStage(model, rank, ranks, torch.device("cuda", torch.cuda.current_device()))
    # A stage without a loss function would expect no backward.
    schedule = Schedule1F1B(stage, args.microbatches, loss_fn=model.head or (lambda *_: None))

    def compute(phases):
        if rank == 0:
            schedule.step(tokens)
        elif rank == ranks - 1:
            schedule.step(target=tokens)
        else:
            schedule.step()
        phases.end("forward and backward")
    return model, compute


def main():
    args = arguments()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model, compute = (shard if args.plan == "fsdp2" else pipe)(args)
    if args.offload:
        optimizer = HostAdamW(model.parameters(), args.one_buffer)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=not args.foreach, foreach=args.foreach)
    for _ in range(args.steps):
        phases = Phases()
        compute(phases)
        gradients = held(p.grad for p in model.parameters())
        optimizer.step()
        phases.end("optimizer")
        optimizer.zero_grad()
    states = (t for state in optimizer.state.values() for t in state.values())
    found = {"rank": dist.get_rank(), "weights": held(model.parameters()), "gradients": gradients,
             "optimizer": held(states), "peaks": phases.peaks}
    print(f"PLAN {json.dumps(found)}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
