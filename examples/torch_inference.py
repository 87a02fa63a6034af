# SPDX-License-Identifier: Apache-2.0
"""Decoding with a cache of keys and values that has a pool of its own, and a batch that shrinks until it fits."""
import torch

import terrazzo.torch

terrazzo.torch.install()
LAYERS, HEADS, LENGTH, WIDTH = 24, 16, 4096, 64


def decode(batch, steps):
    with terrazzo.torch.pool(tag="kv_cache"):
        cache = torch.empty(LAYERS, 2, batch, HEADS, LENGTH, WIDTH, dtype=torch.bfloat16, device="cuda")
    for step in range(steps):
        for layer in cache:
            query = torch.randn(batch, HEADS, 1, WIDTH, dtype=torch.bfloat16, device="cuda")
            layer[:, :, :, step] = torch.randn(2, batch, HEADS, WIDTH, device="cuda")
            keys, values = layer[:, :, :, :step + 1]
            (query @ keys.transpose(-1, -2)).softmax(-1) @ values


batch = 512
while batch:
    try:
        decode(batch, steps=8)
        print(f"a batch of {batch} fits")
        break
    except torch.OutOfMemoryError as error:
        print(f"a batch of {batch} does not: {error}")
        batch //= 2

terrazzo.torch.release_pool("kv_cache")
print(f"returned {terrazzo.torch.trim() >> 20} MiB")
