# SPDX-License-Identifier: Apache-2.0
"""Programs that run out of memory on a device of 8 GiB, each for one reason: fails.py NAME HISTORY OUT.

HISTORY is all, none, or late (recorded from the middle on). After the failure the program writes PyTorch's snapshot to
OUT; if terrazzo is installed, terrazzo's. It ends with status 3 if memory did not run out."""
import os
import subprocess
import sys
from pathlib import Path

NAME, HISTORY, OUT = sys.argv[1:4]
if NAME == "rounding":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "roundup_power2_divisions:2"

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import torch  # noqa: E402

import terrazzo.torch  # noqa: E402

GIB, MIB = 1 << 30, 1 << 20


def bytes_of(size, **options):
    return torch.empty(int(size), dtype=torch.uint8, device="cuda", **options)


def record():
    if terrazzo.torch.installed():
        terrazzo.torch.history()
    else:
        torch.cuda.memory._record_memory_history(max_entries=1000000)


def middle():
    """Programs call it half way."""
    if HISTORY == "late":
        record()


class Net(torch.nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def made(width, layers):
    with torch.device("cuda"):
        return Net(width, layers)


def train(batch, width=1024, layers=8, steps=400, optimizer=torch.optim.AdamW, each=None):
    net = made(width, layers)
    optimizer = optimizer(net.parameters())
    for step in range(steps):
        if step == 6:
            middle()
        loss = net(torch.randn(batch, width, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if each:
            each(step, net, loss)


# ---- programs: each runs out of memory ----


def batch():
    """activations of one batch"""
    train(batch=200_000)


def sequence():
    """attention without flash: scores grow with the square of the sequence"""
    heads, hidden = 16, 1024
    project = torch.nn.Linear(hidden, 3 * hidden).cuda()
    for length in range(1024, 65536, 1024):
        x = torch.randn(1, length, hidden, device="cuda")
        q, k, v = project(x).view(1, length, 3, heads, hidden // heads).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(-1, -2))
        out = torch.matmul(torch.softmax(scores, -1), v)
        out.sum().backward()


def losses():
    """a list of losses, each with its graph"""
    net = made(1024, 8)
    optimizer = torch.optim.SGD(net.parameters())
    kept = []
    for step in range(400):
        if step == 6:
            middle()
        loss = net(torch.randn(4096, 1024, device="cuda")).square().mean()
        kept.append(loss)
        torch.randn(16384, 1024, device="cuda").mul(2)
        optimizer.step()


def validation():
    """after training: losses without no_grad, in a list"""
    net = made(1024, 8)
    optimizer = torch.optim.AdamW(net.parameters())
    for step in range(30):
        net(torch.randn(4096, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    middle()
    kept = []
    for step in range(400):
        kept.append(net(torch.randn(4096, 1024, device="cuda")).square().mean())


class Cell(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.of_input, self.of_state = torch.nn.Linear(width, width), torch.nn.Linear(width, width)

    def forward(self, x, state):
        return torch.tanh(self.of_input(x) + self.of_state(state))


def carried():
    """the state of a recurrent net goes from one batch to the next with its graph"""
    cell, state = Cell(1024).cuda(), torch.zeros(4096, 1024, device="cuda")
    for step in range(1000):
        if step == 6:
            middle()
        state = cell(torch.randn(4096, 1024, device="cuda"), state)


def outputs():
    """a list of outputs of an otherwise correct loop"""
    kept = []
    train(batch=8192, each=lambda step, net, loss: kept.append(torch.zeros(16384, 1024, device="cuda")))


def hooks():
    """hooks that are never removed keep what they saw"""
    seen = []

    def each(step, net, loss):
        net.layers[3].register_forward_hook(lambda module, inputs, output: seen.append(output.detach().clone()))

    train(batch=4096, each=each)


def optimizer():
    """the state of Adam, at the end of the first step"""
    train(batch=64, width=8192, layers=12)


def weights():
    """more layers than fit"""
    made(8192, 60)


def kv_cache():
    """keys and values of ever more tokens"""
    layers, cache = 16, [torch.zeros(8, 32, 1, 128, device="cuda") for _ in range(16)]
    for token in range(100_000):
        if token == 6:
            middle()
        for layer in range(layers):
            new = torch.randn(8, 32, 32, 128, device="cuda")
            cache[layer] = torch.cat([cache[layer], new], 2)


def other_process():
    """half of the card is another process's"""
    code = ("import torch, sys\nx = torch.empty(5 << 30, dtype=torch.uint8, device='cuda')\n"
            "print(flush=True); sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        try:
            held = bytes_of(2 * GIB)
            middle()
            held = [held, bytes_of(2 * GIB)]
        finally:
            write()
            child.stdin.close()


def pool():
    """a pool keeps segments"""
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        held = [bytes_of(GIB) for _ in range(5)]
    keep = bytes_of(GIB)
    middle()
    del held
    bytes_of(4 * GIB)
    del keep


def graph():
    """a captured graph's pool keeps what the capture needed"""
    graph, x = torch.cuda.CUDAGraph(), torch.randn(MIB, device="cuda")
    with torch.cuda.graph(graph):
        y = [x.repeat(1200) for _ in range(1)]
        del y
    middle()
    bytes_of(5 * GIB)


def other_stream():
    """free memory lies in a segment of another stream that is still partly in use"""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        bytes_of(6 * GIB)
        part = bytes_of(100 * MIB)
    middle()
    bytes_of(5 * GIB)
    del part


def fragmented():
    """every other block is freed, no two neighbours"""
    held = []
    for i in range(16):
        bytes_of(480 * MIB)
        held.append([bytes_of(240 * MIB), bytes_of(240 * MIB)])
    middle()
    for pair in held:
        del pair[0]
    bytes_of(2 * GIB)


def limit():
    """a fraction that the program has set"""
    torch.cuda.set_per_process_memory_fraction(0.25)
    held = bytes_of(GIB)
    middle()
    bytes_of(1.5 * GIB)
    del held


def too_large():
    """a request that no device of this size serves"""
    held = bytes_of(GIB)
    middle()
    bytes_of(20 * GIB)
    del held


def full():
    """tensors in a list, none of which is too large"""
    held = []
    for i in range(100):
        held.append(bytes_of(300 * MIB))
        if i == 6:
            middle()


def rounding():
    """sizes just above powers of two, which an option rounds up"""
    held = [bytes_of(513 * MIB) for _ in range(10)]
    middle()
    held.append(bytes_of(2 * GIB))


def two_pools():
    """two pools, of which one is empty and cannot serve the other"""
    pools = [torch.cuda.MemPool() for _ in range(2)]
    with torch.cuda.use_mem_pool(pools[0]):
        bytes_of(5 * GIB)
    middle()
    with torch.cuda.use_mem_pool(pools[1]):
        bytes_of(4 * GIB)


def fragmented_small():
    """segments of 20 MiB, each with something in it that lives"""
    held = []
    for i in range(380):
        held.append([bytes_of(9 * MIB), bytes_of(9 * MIB)])
    middle()
    for pair in held:
        del pair[0]
    bytes_of(2 * GIB)


def fraction_of_gradients():
    """a fraction is reached in backward"""
    torch.cuda.set_per_process_memory_fraction(0.2)
    train(batch=30_000)


def blocks():
    """a pass through blocks that a loop outside of any module calls"""
    all_blocks, x = [made(1024, 2).requires_grad_() for _ in range(120)], torch.randn(8192, 1024, device="cuda")
    middle()
    for block in all_blocks:
        x = x.relu() + block(x)


def layers():
    """a pass through layers without a module around them"""
    weights = [torch.randn(1024, 1024, device="cuda", requires_grad=True) for _ in range(150)]
    x = torch.randn(8192, 1024, device="cuda")
    middle()
    for weight in weights:
        x = torch.relu(x @ weight) + x


def grown():
    """each batch is larger than the one before; no optimizer tells steps"""
    net = made(1024, 8)
    for step in range(10_000):
        if step == 6:
            middle()
        net(torch.randn(4096 * (step + 1), 1024, device="cuda")).square().mean().backward()
        net.zero_grad()


def turns():
    """a conversation: each layer's cache is copied into one that is longer by a turn"""
    net, cache = made(1024, 4), [torch.empty(0, 1024, device="cuda") for _ in range(24)]
    with torch.no_grad():
        for turn in range(10_000):
            if turn == 6:
                middle()
            for layer in range(24):
                cache[layer] = torch.cat([cache[layer], net(torch.randn(4096, 1024, device="cuda"))])


def sessions():
    """ever more conversations, of which none is given up"""
    net, caches = made(1024, 4), []
    with torch.no_grad():
        for session in range(10_000):
            if session == 6:
                middle()
            cache = torch.empty(0, 1024, device="cuda")
            for turn in range(4):
                cache = torch.cat([cache, net(torch.randn(2048, 1024, device="cuda"))])
            caches.append(cache)


def normalised():
    """data that are normalised while they are loaded"""
    data = []
    for item in range(10_000):
        if item == 6:
            middle()
        raw = torch.randn(8192, 1024, device="cuda")
        data.append((raw - 0.5) / 0.2)


def too_large_scores():
    """attention scores of one long sequence"""
    middle()
    torch.randn(1, 32, 16384, 64, device="cuda") @ torch.randn(1, 32, 64, 16384, device="cuda")


# ----


def write():
    if terrazzo.torch.installed():
        terrazzo.torch.snapshot(OUT)
    else:
        torch.cuda.memory._dump_snapshot(OUT)


def main():
    torch.cuda.init()
    if HISTORY == "all":
        record()
    try:
        globals()[NAME]()
    except torch.OutOfMemoryError as error:
        print(str(error).replace("\n", " ")[:400])
        if not os.path.exists(OUT):
            write()
        return 0
    return 3


if __name__ == "__main__":
    sys.exit(main())
