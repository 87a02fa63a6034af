# SPDX-License-Identifier: Apache-2.0
"""Pools of memory under PyTorch's own allocator: a part of a program uses terrazzo, the rest stays as it was."""
import torch

import terrazzo.torch

weights = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]

with terrazzo.torch.pool(tag="workspace") as pool:
    workspaces = [torch.empty(size << 20, dtype=torch.uint8, device="cuda") for size in (200, 50, 300)]

print(f"the pool holds {sum(s['total_size'] for s in pool.mempool.snapshot()) >> 20} MiB, terrazzo has reserved "
      f"{terrazzo.torch.stats()['reserved_bytes.all.current'] >> 20} MiB")

del workspaces, pool
terrazzo.torch.release_pool("workspace")
torch.cuda.empty_cache()  # PyTorch returns the pool's memory to terrazzo, which returns it to the device
print(f"{terrazzo.torch.trim() >> 20} MiB returned")
