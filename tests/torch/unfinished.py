# SPDX-License-Identifier: Apache-2.0
"""On a device of 8 GiB: what unfinished work of one stream holds serves another before memory has run out, as PyTorch's
own allocator does by waiting for the device."""
import torch

GIB = 1 << 30


def use(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda").fill_(1)


torch.cuda.init()
for _ in range(3):
    held = [use(GIB) for _ in range(6)]
    del held
    with torch.cuda.stream(torch.cuda.Stream()):
        large = use(5 * GIB)
    del large
assert torch.cuda.memory_stats()["num_ooms"] == 0, torch.cuda.memory_stats()["num_ooms"]
