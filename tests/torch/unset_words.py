# SPDX-License-Identifier: Apache-2.0
"""Right programs, under late work, whose kernels are given structures that the host fills in part: the rest of each
holds addresses that lay on the host's stack, of memory which is another stream's by now, or has gone.

    unset_words.py      each program with several schedules and seeds, a process each
"""
import torch
import torch.distributed as dist
from forked import attempt
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

CASES = (("random", 1), ("random", 2), ("lifo", 1), ("starve", 2))
ROUNDS = 40


def upload(host, *shape):
    """A tensor of the shape, being copied to."""
    made = torch.empty(*shape, device="cuda")
    return made.copy_(host[:made.numel()].view(shape), non_blocking=True)


def on_streams(count, use):
    """Calls use(round, stream's number) on each of the streams in turn, which share nothing."""
    streams = [torch.cuda.Stream() for _ in range(count)]
    for i in range(ROUNDS):
        for k, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                use(i, k)


def optimizers(host):
    """Lists of tensors, longer and shorter (multi_tensor_apply)."""
    def step(i, k):
        parameters = [torch.nn.Parameter(upload(host, 1000 + 37 * n)) for n in range(3 + (i * 7 + k * 5) % 40)]
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
        torch.optim.AdamW(parameters, foreach=True).step()
    on_streams(2, step)


def concatenations(host):
    """Few tensors, and many (CatArrInputTensorMetadata)."""
    def join(i, k):
        torch.cat([upload(host, 1000 + (i * 13 + k * 7 + n) % 500, 8) for n in range(2 + (i + k * 3) % 14)])
    on_streams(4, join)


def reductions(host):
    """One output where there may be two, a buffer that is not always there (ReduceOp)."""
    def reduce(i, k):
        x = upload(host, 100 + (i * 13 + k * 7) % 300, 64)
        x.sum(), x.mean(0), x.max(), torch.var_mean(x, 1), x.norm(), x.argmax(1)
    on_streams(4, reduce)


def shards(host):
    """FSDP: copies to and from one buffer on a stream of its own."""
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    torch.cuda.set_device(0)
    layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)]).cuda()
    for layer in layers:
        fully_shard(layer)
    fully_shard(layers)
    optimizer = torch.optim.AdamW(layers.parameters())
    for i in range(ROUNDS // 4):
        layers(upload(host, 64 + i * 8, 256)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def run(program):
    program(torch.zeros(1 << 18, pin_memory=True))
    torch.cuda.synchronize()


for name in (optimizers, concatenations, reductions, shards):
    for case in CASES:
        ended, text = attempt(*case, run, name)
        assert ended == 0 and "violation" not in text, (name.__name__, case, ended, text)
