# SPDX-License-Identifier: Apache-2.0
"""Training with terrazzo, and where the memory goes."""
import torch

import terrazzo.torch

terrazzo.torch.install()

model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
tracker = terrazzo.torch.track(model, optimizer)

for step in range(5):
    batch = torch.randn(64 + 32 * step, 1024, device="cuda")
    loss = model(batch).square().mean()
    print(step, {name: size >> 20 for name, size in tracker.categories().items()}, "MiB")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

print(terrazzo.torch.summary())
