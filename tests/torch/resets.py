# SPDX-License-Identifier: Apache-2.0
"""Resets statistics, as programs do with each line that they log, in all ways there are; on two devices, the second
with the most. `resets.py terrazzo`: by terrazzo's own function too, which is the only one without its shim."""
import contextlib
import sys

import torch

GIB = 1 << 30
accelerator = getattr(torch.accelerator, "memory", torch.cuda)  # PyTorch before 2.9 lacks the former
own = []
if "terrazzo" in sys.argv:
    import terrazzo.torch
    own = [terrazzo.torch.reset_peak_stats]


def hold(gib, device):
    return torch.empty(gib * GIB, dtype=torch.uint8, device=device)


def attempt(reset, device):
    with contextlib.suppress(RuntimeError):  # not there without the shim
        reset(device)


for i, reset in enumerate((torch.cuda.reset_peak_memory_stats, torch.cuda.reset_max_memory_allocated,
                           accelerator.reset_peak_memory_stats, *own)):
    for device, gib in ((0, 5 - i), (1, 5 + i if reset not in own else 9)):
        held = hold(gib, device)
        del held
        torch.cuda.empty_cache()
        attempt(reset, device)
for reset in (torch.cuda.reset_accumulated_memory_stats, accelerator.reset_accumulated_memory_stats):
    with contextlib.suppress(torch.OutOfMemoryError):
        hold(1000, 1)
    attempt(reset, 1)
held = hold(2, 1)
