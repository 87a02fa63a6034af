# SPDX-License-Identifier: Apache-2.0
"""A CUDA graph is captured with a pool of its own and replayed; its memory stays while it lives."""
import torch

x = torch.zeros(1 << 20, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    (x * 2).relu()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = (x * 2).relu()
for _ in range(10):
    graph.replay()
torch.cuda.synchronize()
pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
assert len(pools) == 2, pools
