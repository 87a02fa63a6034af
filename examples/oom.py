# SPDX-License-Identifier: Apache-2.0
"""Ten ways to run out of memory on a device of 8 GiB, as in docs/oom.md. Writes PyTorch's snapshot of the failure:

    terrazzo sim --env env --memory=8GiB -- python examples/oom.py batch batch.pickle
    terrazzo explain batch.pickle
"""
import subprocess
import sys

import torch
from torch import nn

GIB, MIB = 1 << 30, 1 << 20


class Net(nn.Module):
    def __init__(self, width=1024, depth=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def buffer(size):
    return torch.empty(int(size), dtype=torch.uint8, device="cuda")


def train(net, batch, width=1024, steps=200):
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        net(torch.randn(batch, width, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def batch():
    train(Net().cuda(), batch=200_000)


def first_step():
    train(Net(width=8192, depth=12).cuda(), batch=64, width=8192)


def attention():
    heads, length = 32, 32768
    q, k = (torch.randn(heads, length, 64, device="cuda", dtype=torch.half) for _ in range(2))
    scores = q @ k.transpose(1, 2)
    return scores.softmax(-1)


def losses():
    net, history = Net().cuda(), []
    optimizer = torch.optim.SGD(net.parameters())
    for _ in range(400):
        loss = net(torch.randn(4096, 1024, device="cuda")).square().mean()
        history.append(loss)
        optimizer.step()


def kv_cache():
    cache = [torch.zeros(8, 32, 1, 128, device="cuda") for _ in range(16)]
    for _ in range(100_000):
        for layer, old in enumerate(cache):
            new = torch.randn(8, 32, 32, 128, device="cuda")
            cache[layer] = torch.cat([old, new], 2)


def fragmented():
    batches = []
    for _ in range(16):
        buffer(480 * MIB)
        batches.append([buffer(240 * MIB), buffer(240 * MIB)])
    for pair in batches:
        del pair[0]
    buffer(2 * GIB)


def stream():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        staged = buffer(6 * GIB)
        del staged
        kept = buffer(100 * MIB)
    buffer(5 * GIB)
    return kept


def graph():
    graph, x = torch.cuda.CUDAGraph(), torch.randn(MIB, device="cuda")
    with torch.cuda.graph(graph):
        y = x.repeat(1200)
        del y
    buffer(5 * GIB)


def fraction():
    torch.cuda.set_per_process_memory_fraction(0.25)
    held = buffer(GIB)
    buffer(1.5 * GIB)
    return held


def neighbour():
    code = "import torch; x = torch.empty(5 << 30, dtype=torch.uint8, device='cuda'); print(); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        try:
            return [buffer(2 * GIB), buffer(2 * GIB)]
        finally:
            other.communicate(b"\n")


def main():
    name, out = sys.argv[1:]
    torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    try:
        globals()[name]()
    finally:
        torch.cuda.memory._dump_snapshot(out)


if __name__ == "__main__":
    main()
