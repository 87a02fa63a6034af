# SPDX-License-Identifier: Apache-2.0
"""Two streams, events, a capture into a pool that two graphs share, a pool of the program's own; prints the peak."""
import torch

MIB = 1 << 20
a, b = torch.cuda.Stream(), torch.cuda.Stream()
filled, unused = torch.cuda.Event(), torch.cuda.Event()


def empty(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


x = empty(3)
with torch.cuda.stream(a):
    y = empty(5)
    unused.record()
    filled.record()
b.wait_event(filled)
y.record_stream(b)
with torch.cuda.stream(b):
    z = empty(7)
del y
b.synchronize()
filled.synchronize()
x.fill_(1)
assert x[0].item() == 1

graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
pool = torch.cuda.graph_pool_handle()
inside = []
for graph in graphs:
    with torch.cuda.graph(graph, pool=pool, stream=a):
        inside.append(empty(9))
for graph in graphs:
    graph.replay()
inside.clear()
graphs[0].reset()
graphs[1].reset()

own = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(own):
    w = empty(11)
del w, z, x
torch.cuda.empty_cache()
print("peak", torch.cuda.max_memory_allocated())
