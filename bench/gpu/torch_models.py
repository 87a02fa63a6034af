# SPDX-License-Identifier: Apache-2.0
"""Programs with real values for torch_times.py and torch_oom.py: each a generator that yields, after every step, how
many tokens (or images) the step took. The same seed gives the same steps whatever the allocator is.

`run.losses` takes what a step computed, `run.parameters` what it trains: their bits are compared between allocators.
"""
import os
import random
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "workloads"))
import programs  # noqa: E402
import streams  # noqa: E402

# Heuristics choose cuDNN's attention: by version, and a simulated device has none.
torch.backends.cuda.enable_cudnn_sdp(False)
BF16 = torch.bfloat16
VOCABULARY = 32000


class Run:
    """What one run of a program keeps."""

    def __init__(self, seed=0):
        self.rng, self.losses, self.parameters = random.Random(seed), [], []

    def add(self, loss):
        self.losses.append(loss.detach())


def language_model(run, hidden=2048, layers=16, intermediate=8192, heads=32):
    model = programs.llama(hidden, layers, intermediate, heads, VOCABULARY)
    model.train()
    run.parameters = list(model.parameters())
    return model


def train(run, model, optimizer, batch, length, clip=True):
    x = programs.tokens(batch, length, VOCABULARY)
    loss = model(input_ids=x, labels=x, use_cache=False).loss
    loss.backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(run.parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    run.add(loss)
    return batch * length


def llama_steady(run):
    """LLaMA of 1.2e9 parameters, AdamW, 4 sequences of 2048 tokens in each step."""
    model = language_model(run)
    optimizer = torch.optim.AdamW(run.parameters, lr=1e-5)
    while True:
        yield train(run, model, optimizer, 4, 2048)


def llama_variable(run):
    """The same; 1 to 8 sequences of 128 to 2048 tokens, as unpadded fine-tuning has them."""
    model = language_model(run)
    optimizer = torch.optim.AdamW(run.parameters, lr=1e-5)
    while True:
        yield train(run, model, optimizer, run.rng.choice([1, 2, 4, 8]), run.rng.randint(128, 2048))


SHAPES = (16, 480, 640), (8, 800, 800), (24, 384, 512), (8, 736, 992), (16, 544, 544)  # images, height, width


def detection(run):
    """ResNet-50, mixed precision, SGD with momentum; images of five sizes in random order."""
    from transformers import ResNetConfig, ResNetForImageClassification
    model = programs.make(ResNetForImageClassification, ResNetConfig(num_labels=91), torch.float32)
    model = model.to(memory_format=torch.channels_last)
    model.train()
    run.parameters = list(model.parameters())
    optimizer = torch.optim.SGD(run.parameters, lr=0.01, momentum=0.9)
    shapes = list(SHAPES)
    while True:
        run.rng.shuffle(shapes)
        for count, height, width in shapes:
            x = torch.rand(count, 3, height, width, device="cuda").to(memory_format=torch.channels_last)
            y = torch.randint(0, 91, (count,)).cuda()
            with torch.autocast("cuda", dtype=BF16):
                loss = F.cross_entropy(model(pixel_values=x).logits, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            run.add(loss)
            yield count


def serving(run):
    """Text generation with a growing cache by the same LLaMA: 1 to 16 prompts of 64 to 1024 tokens, 16 to 48 new ones
    for each."""
    from transformers import DynamicCache
    model = language_model(run).eval()
    while True:
        batch, length, new = run.rng.choice([1, 4, 8, 16]), run.rng.randint(64, 1024), run.rng.choice([16, 32, 48])
        x, cache = programs.tokens(batch, length, VOCABULARY), DynamicCache()
        with torch.no_grad():
            for _ in range(new):
                out = model(input_ids=x, past_key_values=cache, use_cache=True, logits_to_keep=1)
                x = out.logits[:, -1].argmax(-1, keepdim=True)
        run.add(out.logits.float().sum())
        yield batch * new


def graphs(run):
    """Decoding by CUDA graphs for five sizes of batch, captured into one pool; prompts run without graphs."""
    model = streams.Decoder(2048, 16, 32, slots=16, room=1024)
    for cache in model.cache:
        cache.zero_()
    run.parameters = list(model.parameters())
    sizes = [16, 8, 4, 2, 1]
    with torch.no_grad():
        captured = streams.capture_decoding(model, sizes, 512)
        while True:
            batch, length, new = run.rng.randint(1, 16), run.rng.randint(64, 512), run.rng.randint(16, 64)
            logits = model(programs.tokens(batch, length, VOCABULARY), 0)
            graph, x, out = captured[min(size for size in sizes if size >= batch)]
            for _ in range(new):
                x[:batch].copy_(logits.argmax(-1, keepdim=True))
                graph.replay()
                logits = out[:batch]
            run.add(logits.float().sum())
            yield batch * new


def coming(batches):
    """Pairs on the device, copied on a stream of their own while the last one is in use."""
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()

    def bring():
        with torch.cuda.stream(side):
            return next(batches).cuda(non_blocking=True)

    following = bring()
    while True:
        main.wait_stream(side)
        tensor = following
        tensor.record_stream(main)
        following = bring()
        yield tensor


def offload(run):
    """A LLaMA of 0.2e9 parameters; a side stream brings the batches, another one takes activations to the host and
    back."""
    model = language_model(run, 1024, 8, 4096, 16)
    optimizer, offloaded = torch.optim.AdamW(run.parameters, lr=1e-5), streams.OffloadedActivations()
    shapes = (2, 512), (4, 512), (2, 1024)

    def batches():
        while True:
            yield torch.randint(0, VOCABULARY, run.rng.choice(shapes)).pin_memory()

    for x in coming(batches()):
        with offloaded.saved():
            loss = model(input_ids=x, labels=x, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.add(loss)
        yield x.numel()


def fsdp2(run):
    """The LLaMA of `offload` with 16 layers under fully_shard, one rank of one; lengths vary."""
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    model = language_model(run, 1024, 16, 4096, 16).float()
    policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=BF16, reduce_dtype=torch.float32)}
    for layer in model.model.layers:
        fully_shard(layer, **policy)
    fully_shard(model, **policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    run.parameters = [p.to_local() for p in model.parameters()]
    while True:
        x = programs.tokens(4, run.rng.randint(256, 2048), VOCABULARY)
        loss = model(input_ids=x, labels=x, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.add(loss)
        yield x.numel()


class Block(nn.Module):
    """Something small enough that torch.compile is quick."""

    def __init__(self, width=1024):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(F.rms_norm(x, x.shape[-1:]))))


def compiled(run):
    """torch.compile(mode="reduce-overhead") of four layers, forward and backward as graphs."""
    with torch.device("cuda"):
        model = nn.Sequential(*[Block() for _ in range(4)])
    run.parameters = list(model.parameters())
    optimizer, fast = torch.optim.SGD(run.parameters, lr=1e-3), torch.compile(model, mode="reduce-overhead")
    while True:
        x = torch.randn(512, 1024, device="cuda")
        loss = fast(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.add(loss.clone())
        yield len(x)


# ---- programs that need ever more, until memory runs out ----

def longer(run):
    """The LLaMA of 1.2e9 parameters with AdamW; two sequences each step, of lengths that vary and grow by 2.5 %."""
    model = language_model(run)
    optimizer, longest = torch.optim.AdamW(run.parameters, lr=1e-5), 1024.0
    while True:
        yield train(run, model, optimizer, 2, run.rng.randint(int(longest) // 2, int(longest)), clip=False)
        longest *= 1.025


def sessions(run, layers=16, width=2048):
    """Caches of ever more conversations: each turn, all grow, an eighth ends and three more than that come."""
    live = []

    def session(length):
        return [torch.zeros(2, length, width, dtype=BF16, device="cuda") for _ in range(layers)]

    while True:
        for i in sorted(run.rng.sample(range(len(live)), len(live) // 8), reverse=True):
            live.pop(i)
        for _ in range(len(live) // 7 + 3):
            live.append(session(run.rng.randint(64, 1024)))
        for caches in live:
            new = torch.ones(2, run.rng.randint(16, 128), width, dtype=BF16, device="cuda")
            for i, cache in enumerate(caches):
                caches[i] = torch.cat((cache, new), 1)
        yield sum(cache.nbytes for caches in live for cache in caches) >> 20
