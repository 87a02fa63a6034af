# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of several batch sizes that share one pool of memory."""
import torch

import terrazzo.torch

terrazzo.torch.install()
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
graphs, pool = {}, None

with torch.no_grad():
    for batch in (32, 16, 8, 4):  # the largest first: the others fit into what it leaves
        entry = torch.zeros(batch, 512, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            result = model(entry)
        pool = graph.pool()
        graphs[batch] = graph, entry, result
        print(f"batch {batch:>2}: {torch.cuda.memory_reserved() >> 20} MiB reserved")

graph, entry, result = graphs[8]
entry.copy_(torch.randn(8, 512))
graph.replay()
print(result.shape)
