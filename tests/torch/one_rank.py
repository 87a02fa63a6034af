# SPDX-License-Identifier: Apache-2.0
"""NCCL with one rank works: collectives are copies."""
import tempfile

import torch
import torch.distributed as dist

with tempfile.NamedTemporaryFile() as store:
    dist.init_process_group("nccl", init_method=f"file://{store.name}", rank=0, world_size=1)
    x = torch.arange(1000, dtype=torch.float32).cuda()
    dist.all_reduce(x)
    gathered = torch.empty_like(x)
    dist.all_gather_into_tensor(gathered, x)
    torch.cuda.synchronize()
    assert torch.equal(gathered.cpu(), torch.arange(1000, dtype=torch.float32))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    dist.destroy_process_group()
