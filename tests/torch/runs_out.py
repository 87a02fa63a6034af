# SPDX-License-Identifier: Apache-2.0
"""On a device of 24 GiB: PyTorch's own error with its own text, and work that goes on afterwards."""
import torch

GIB = 1 << 30


def hold(count):
    return [torch.empty(GIB, dtype=torch.uint8, device="cuda") for _ in range(count)]


held = hold(20)
try:
    held.append(torch.empty(8 * GIB, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as error:
    text = str(error)
    assert "Tried to allocate 8.00 GiB" in text and "total capacity of 24.00 GiB" in text, text
else:
    raise AssertionError("28 of 24 GiB were allocated")
del held
assert torch.empty(20 * GIB, dtype=torch.uint8, device="cuda").numel() == 20 * GIB
