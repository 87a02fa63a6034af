# SPDX-License-Identifier: Apache-2.0
"""A value that the device computed reads as 0: control flow is the same in every run. What was sent comes back."""
import torch

x = torch.ones(1000, device="cuda")
assert x.sum().item() == 0
assert not bool(torch.isnan(x).any())
assert x.max().cpu().item() == 0
assert torch.tensor([3, 4], device="cuda").tolist() == [3, 4]
