# SPDX-License-Identifier: Apache-2.0
"""A decoder like Qwen2, in plain PyTorch: grouped attention with rotary positions, SwiGLU, a separate head."""
import functools

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

LOSS_TOKENS = 4096  # the logits of this many tokens exist at a time


@functools.lru_cache(maxsize=1)
def rotary(length, size, device):
    frequencies = 1e6 ** (-torch.arange(0, size, 2, device=device) / size)
    angles = torch.outer(torch.arange(length, device=device), frequencies).repeat(1, 2)[:, None]
    return angles.cos().bfloat16(), angles.sin().bfloat16()


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Attention(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.size = sizes.hidden // sizes.heads
        narrow = sizes.kv_heads * self.size
        self.q, self.o = nn.Linear(sizes.hidden, sizes.hidden), nn.Linear(sizes.hidden, sizes.hidden, bias=False)
        self.k, self.v = nn.Linear(sizes.hidden, narrow), nn.Linear(sizes.hidden, narrow)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, self.size)) for f in (self.q, self.k, self.v))
        cos, sin = rotary(x.shape[1], self.size, x.device)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        found = functional.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True,
                                                        enable_gqa=True)
        return self.o(found.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, sizes, checkpointing):
        super().__init__()
        self.checkpointing = checkpointing
        self.before, self.between = nn.RMSNorm(sizes.hidden, 1e-6), nn.RMSNorm(sizes.hidden, 1e-6)
        self.attention = Attention(sizes)
        self.gate, self.up = (nn.Linear(sizes.hidden, sizes.intermediate, bias=False) for _ in range(2))
        self.down = nn.Linear(sizes.intermediate, sizes.hidden, bias=False)

    def compute(self, x):
        x = x + self.attention(self.before(x))
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def forward(self, x):
        return checkpoint(self.compute, x, use_reentrant=False) if self.checkpointing else self.compute(x)


class Head(nn.Module):
    """The loss, for LOSS_TOKENS at a time; backward computes their logits again."""

    def __init__(self, sizes):
        super().__init__()
        self.norm, self.out = nn.RMSNorm(sizes.hidden, 1e-6), nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)

    def piece(self, x, targets):
        return functional.cross_entropy(self.out(x).float(), targets, reduction="sum")

    def forward(self, x, targets):
        pieces = zip(self.norm(x).flatten(0, 1).split(LOSS_TOKENS), targets.flatten().split(LOSS_TOKENS))
        return sum(checkpoint(self.piece, *piece, use_reentrant=False) for piece in pieces) / targets.numel()


class Model(nn.Module):
    """The layers from `first` on, up to `last`; the outermost ones include the embedding and the head."""

    def __init__(self, sizes, checkpointing, first=0, last=None):
        super().__init__()
        last = sizes.layers if last is None else last
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden) if first == 0 else None
        self.layers = nn.ModuleList(Layer(sizes, checkpointing) for _ in range(first, last))
        self.head = Head(sizes) if last == sizes.layers else None

    def forward(self, x, targets=None):
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return x if targets is None else self.head(x, targets)
