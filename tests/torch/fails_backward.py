# SPDX-License-Identifier: Apache-2.0
"""Ends with the error of a backward, while PyTorch's thread for it still holds Python's objects: on one processor the
program's own thread ends first nearly always, and the mode of a default device is what the other has to drop."""
import os

import torch

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
torch.set_default_device("cuda")


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("no gradient today")


Fails.apply(torch.ones(8, requires_grad=True)).sum().backward()
