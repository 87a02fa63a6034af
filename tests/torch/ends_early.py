# SPDX-License-Identifier: Apache-2.0
"""ends_early.py [fails]: ends with a backward, or with its error, while PyTorch's thread for it still holds Python's
objects: on one processor the program's own thread often ends first, and the mode of a default device is what the other
has to drop."""
import os
import sys

import torch

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
torch.set_default_device("cuda")


class Last(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if "fails" in sys.argv:
            raise ValueError("no gradient today")
        return grad


Last.apply(torch.ones(8, requires_grad=True)).sum().backward()
