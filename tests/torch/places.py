# SPDX-License-Identifier: Apache-2.0
"""Under a memory fraction, in a layer that backward computes again: the request's place is the program's own line."""
import torch
from torch.utils.checkpoint import checkpoint

sizes = [1 << 20, 50 << 30]


def layer(x):
    torch.empty(sizes.pop(0), dtype=torch.uint8, device="cuda")
    return x * x


def step():
    x = torch.ones(8, requires_grad=True, device="cuda")
    checkpoint(layer, x, use_reentrant=False).sum().backward()


torch.cuda.set_per_process_memory_fraction(0.25)
step()
