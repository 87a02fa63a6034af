# SPDX-License-Identifier: Apache-2.0
"""Memory that graphs allocate: addresses from the beginning, memory from the first launch on, shared by graphs that
free what they allocate; and allocations in captures."""
import unittest

from lookalike_graphs import GRAPHS
from lookalike_process import skip_if_unfit, succeed

WORKS = ("now", "late", "blocked")

# A graph that writes to memory of its own, and copies from there to where it stays.
OWN = """
def writer(size, value, to):
    graph = new_graph()
    a, address = add_alloc(graph, [], size)
    b = add_fill(graph, [a], address, value, 4096)
    c = add_copy(graph, [b], to, address, 4096)
    add_free(graph, [c], address)
    return graph, address
"""


class GraphMemory(unittest.TestCase):
    def test_memory_comes_with_the_first_launch_and_goes_by_a_trim(self):
        for work in WORKS:
            succeed(self, GRAPHS + OWN + """
p, before_all = malloc(4096), unused()
graph, address = writer(10 * MIB, 7, p)
assert types(graph) == [ALLOC, FILL, COPY, FREE] and address % 512 == 0
instance = instance_of(graph)
assert unused() == before_all and figures() == [0, 0, 0, 0]
for _ in range(3):
    must(runtime.cudaMemset(c_void_p(p), 0, c_size_t(4096)))
    play(instance)
    finish()
    assert download(p, 4096) == b"\\7" * 4096
    assert before_all - unused() == 10 * MIB and figures() == [10] * 4
must(runtime.cudaDeviceGraphMemTrim(0))
assert unused() == before_all and figures() == [0, 10, 0, 10]
play(instance)
finish()
assert figures() == [10] * 4
must(runtime.cudaGraphExecDestroy(instance))
must(runtime.cudaGraphDestroy(graph))
assert figures() == [0, 10, 10, 10] and before_all - unused() == 10 * MIB
must(runtime.cudaDeviceGraphMemTrim(0))
assert unused() == before_all
must(runtime.cudaDeviceSetGraphMemAttribute(0, 1, byref(c_uint64(0))))
must(runtime.cudaDeviceSetGraphMemAttribute(0, 3, byref(c_uint64(0))))
assert figures() == [0] * 4
assert runtime.cudaDeviceSetGraphMemAttribute(0, 0, byref(c_uint64(0))) == 1
""", work=work, memory="1GiB")

    def test_an_upload_takes_the_memory(self):
        succeed(self, GRAPHS + OWN + """
graph, address = writer(10 * MIB, 7, malloc(4096))
instance = instance_of(graph)
must(runtime.cudaGraphUpload(instance, None))
assert figures()[2] == 10
""", memory="1GiB")

    def test_graphs_of_one_stream_share_memory(self):
        for work in WORKS:
            succeed(self, GRAPHS + OWN + """
stream, other, made = new_stream(), new_stream(), []
for i in range(4):
    p = malloc(4096)
    graph, address = writer(64 * MIB, i + 1, p)
    made.append((p, instance_of(graph), address))
assert len({address for _, _, address in made}) == 4
for _ in range(2):
    for _, instance, _ in made:
        play(instance, stream)
assert figures()[2] == 64
play(made[0][1], other)
play(made[1][1], stream)
finish()
for i, (p, _, _) in enumerate(made):
    assert download(p, 4096) == bytes([i + 1]) * 4096
""", work=work, memory="1GiB")

    def test_graphs_that_may_run_at_once_do_not_share(self):
        succeed(self, GRAPHS + OWN + """
made = [instance_of(writer(64 * MIB, i, malloc(4096))[0]) for i in range(4)]
for instance in made:
    play(instance, new_stream())
assert figures()[2] == 256
finish()
""", work="blocked", memory="1GiB")

    def test_without_memory_graphs_wait_for_each_others(self):
        succeed(self, GRAPHS + OWN + """
places = [malloc(4096) for _ in range(4)]
made = [instance_of(writer(300 * MIB, i + 1, p)[0]) for i, p in enumerate(places)]
for instance in made:
    play(instance, new_stream())
assert figures()[2] == 900
finish()
for i, p in enumerate(places):
    assert download(p, 4096) == bytes([i + 1]) * 4096
""", work="blocked", memory="1GiB")

    def test_an_address_is_used_again_behind_a_free(self):
        succeed(self, GRAPHS + """
graph = new_graph()
a, p = add_alloc(graph, [], 4 * MIB)
b = add_free(graph, [a], p)
c, q = add_alloc(graph, [b], 4 * MIB)
d, r = add_alloc(graph, [a], 4 * MIB)
assert p == q and r != p
add_free(graph, [c], q)
add_free(graph, [d], r)
play(instance_of(graph))
finish()
assert figures()[2] == 8
""")

    def test_an_allocation_outlives_the_graph(self):
        for work in WORKS:
            succeed(self, GRAPHS + """
before_all, stream, graph = unused(), new_stream(), new_graph()
a, p = add_alloc(graph, [], 32 * MIB)
add_fill(graph, [a], p, 3, 1024)
instance = instance_of(graph)
play(instance, stream)
assert runtime.cudaGraphLaunch(instance, stream) == 1
must(runtime.cudaStreamSynchronize(stream))
assert download(p, 1024) == b"\\3" * 1024
must(runtime.cudaDeviceGraphMemTrim(0))
assert figures()[2] == 32
must(runtime.cudaFreeAsync(c_void_p(p), stream))
assert runtime.cudaFreeAsync(c_void_p(p), stream) == 1
play(instance, stream)
must(runtime.cudaFree(c_void_p(p)))
play(instance, stream)
must(runtime.cudaGraphExecDestroy(instance))
must(runtime.cudaGraphDestroy(graph))
must(runtime.cudaStreamSynchronize(stream))
assert download(p, 1024) == b"\\3" * 1024
must(runtime.cudaFreeAsync(c_void_p(p), stream))
must(runtime.cudaStreamSynchronize(stream))
must(runtime.cudaDeviceGraphMemTrim(0))
assert unused() == before_all
""", work=work, memory="1GiB")

    def test_launches_can_free_what_the_last_one_left(self):
        succeed(self, GRAPHS + """
graph = new_graph()
a, p = add_alloc(graph, [], 32 * MIB)
instance = instance_of(graph, 1)
play(instance)
play(instance)
finish()
assert figures()[2] == 32
""")

    def test_another_graph_frees(self):
        succeed(self, GRAPHS + """
graph, frees, node = new_graph(), new_graph(), c_void_p()
a, p = add_alloc(graph, [], 4 * MIB)
add_free(frees, [], p)
assert runtime.cudaGraphAddMemFreeNode(byref(node), graph, handles([a]), c_size_t(1), c_void_p(p)) == 1
one, two = instance_of(graph), instance_of(frees)
for _ in range(3):
    play(one)
    play(two)
finish()
""", work="late")

    def test_what_graphs_with_memory_may_not(self):
        succeed(self, GRAPHS + OWN + """
p, out, node = malloc(4096), c_void_p(), c_void_p()
graph, address = writer(4 * MIB, 7, p)
instance = instance_of(graph)
assert runtime.cudaGraphInstantiate(byref(out), graph, c_uint64(0)) == 801
must(runtime.cudaGraphExecDestroy(instance))
instance = instance_of(graph)
assert runtime.cudaGraphClone(byref(out), graph) == 801
parent = new_graph()
assert runtime.cudaGraphAddChildGraphNode(byref(node), parent, None, c_size_t(0), graph) == 801
free = lambda where, at: runtime.cudaGraphAddMemFreeNode(byref(node), where, None, c_size_t(0), c_void_p(at))
assert (free(graph, address), free(parent, address), free(parent, p), free(parent, 0)) == (1, 1, 1, 1)
a, outlives = add_alloc(parent, [], MIB)
assert runtime.cudaGraphDestroyNode(a) == 801
alloc = Alloc(Pool(1, 0, 1, 0), None, 0, 0)
assert runtime.cudaGraphAddMemAllocNode(byref(node), parent, None, c_size_t(0), byref(alloc)) == 1
alloc = Alloc(Pool(1, 0, 1, 5), None, 0, MIB)
assert runtime.cudaGraphAddMemAllocNode(byref(node), parent, None, c_size_t(0), byref(alloc)) == 1
assert runtime.cudaFreeAsync(c_void_p(address), None) == 1
""")

    def test_too_much_is_refused_at_the_launch(self):
        succeed(self, GRAPHS + """
graph = new_graph()
a, p = add_alloc(graph, [], 2 << 30)
add_free(graph, [a], p)
instance = instance_of(graph)
assert runtime.cudaGraphLaunch(instance, None) == 2
assert figures() == [0] * 4
malloc(MIB)
""", memory="1GiB")

    def test_other_devices_reach_what_is_opened_to_them(self):
        succeed(self, GRAPHS + """
opened = (Access * 1)(Access(1, 0, 3))
for access, count in ((ctypes.addressof(opened), 1), (None, 0)):
    graph, node, alloc = new_graph(), c_void_p(), Alloc(Pool(1, 0, 1, 1), access, count, 4 * MIB)
    must(runtime.cudaGraphAddMemAllocNode(byref(node), graph, None, c_size_t(0), byref(alloc)))
    must(runtime.cudaSetDevice(1))
    play(instance_of(graph))
    finish()
    must(runtime.cudaSetDevice(0))
    assert runtime.cudaMemset(c_void_p(alloc.address), 1, c_size_t(64)) == (0 if count else 700)
assert figures(1)[2] == 8 and figures(0)[2] == 0
""", devices=2, violations="count")

    def test_allocations_in_captures_are_nodes(self):
        for work in WORKS:
            succeed(self, GRAPHS + """
stream, graph, p = new_stream(), c_void_p(), c_void_p()
to, alloc = malloc(4096), Alloc()
must(runtime.cudaStreamBeginCapture(stream, 0))
must(runtime.cudaMallocAsync(byref(p), c_size_t(4 * MIB), stream))
must(runtime.cudaMemsetAsync(p, 6, c_size_t(4096), stream))
must(runtime.cudaMemcpyAsync(c_void_p(to), p, c_size_t(4096), 3, stream))
must(runtime.cudaFreeAsync(p, stream))
must(runtime.cudaStreamEndCapture(stream, byref(graph)))
assert types(graph) == [ALLOC, FILL, COPY, FREE]
nodes, count = (c_void_p * 4)(), c_size_t(4)
must(runtime.cudaGraphGetNodes(graph, nodes, byref(count)))
must(runtime.cudaGraphMemAllocNodeGetParams(c_void_p(nodes[0]), byref(alloc)))
assert (alloc.address, alloc.size) == (p.value, 4 * MIB)
assert before(c_void_p(nodes[1])) == {nodes[0]}
instance = instance_of(graph)
for _ in range(2):
    play(instance, stream)
must(runtime.cudaStreamSynchronize(stream))
assert download(to, 4096) == b"\\6" * 4096
""", work=work)


if __name__ == "__main__":
    skip_if_unfit()
    unittest.main()
