# SPDX-License-Identifier: Apache-2.0
"""Graphs that programs build call by call, change, copy and update; and nodes that they add to captures."""
import unittest

from lookalike_graphs import GRAPHS
from lookalike_process import run, skip_if_unfit, succeed

WORKS = ("now", "late", "blocked")


class Graphs(unittest.TestCase):
    def test_each_node_does_its_work_after_those_it_follows(self):
        for work in WORKS:
            for seed in range(4):
                succeed(self, GRAPHS + """
f, p, q, size, seen = kernel(), malloc(4096), malloc(4096), 4096, []
host = HOST(lambda argument: seen.append(argument))
graph = new_graph()
first = add_fill(graph, [], p, 1, size)
second = add_fill(graph, [], q, 2, size)
kernel_node = add_kernel(graph, [first, second], f, p)
swap = add_copy(graph, [kernel_node], p, q, size)
joined = add(runtime.cudaGraphAddEmptyNode, graph, [swap, kernel_node])
third = add_fill(graph, [joined], q, 3, 2048)
last = add(runtime.cudaGraphAddHostNode, graph, [third], byref((c_void_p * 2)(ctypes.cast(host, c_void_p), 7)))
assert types(graph) == [FILL, FILL, KERNEL, COPY, EMPTY, FILL, HOSTED]
assert before(joined) == {swap.value, kernel_node.value} and before(first) == set()
instance = instance_of(graph)
must(runtime.cudaGraphDestroy(graph))
stream = new_stream()
for count in (1, 2):
    play(instance, stream)
    must(runtime.cudaStreamSynchronize(stream))
    assert seen == [7] * count
    assert download(p, size) == b"\\2" * size and download(q, size) == b"\\3" * 2048 + b"\\2" * 2048
must(runtime.cudaGraphExecDestroy(instance))
""", work=work, seed=seed)

    def test_what_nothing_orders_races(self):
        for edges, races in (("[]", True), ("[a]", False)):
            texts = [run(GRAPHS + f"""
f, p = kernel(), malloc(4096)
graph = new_graph()
a = add_fill(graph, [], p, 1, 4096)
b = add_kernel(graph, {edges}, f, p)
instance, stream = instance_of(graph), new_stream()
for _ in range(100):
    play(instance, stream)
    while runtime.cudaStreamQuery(stream) == 600:
        pass
""", work="late", seed=seed, violations="count").stderr for seed in range(3)]
            self.assertEqual(any("race" in text for text in texts), races, texts)

    def test_wrong_nodes_are_refused(self):
        succeed(self, GRAPHS + """
graph, other, node, f, p = new_graph(), new_graph(), c_void_p(), kernel(), malloc(4096)
a = add_fill(graph, [], p, 1, 64)
assert runtime.cudaGraphAddEmptyNode(byref(node), other, handles([a]), c_size_t(1)) == 1
assert runtime.cudaGraphAddEmptyNode(byref(node), graph, handles([a, a]), c_size_t(2)) == 1
assert runtime.cudaGraphAddMemsetNode(byref(node), graph, None, c_size_t(0), byref(Fill(p, 0, 1, 3, 64, 1))) == 1
assert runtime.cudaGraphAddMemsetNode(byref(node), graph, None, c_size_t(0), byref(Fill(p, 8, 1, 1, 64, 2))) == 1
assert runtime.cudaGraphAddHostNode(byref(node), graph, None, c_size_t(0), byref((c_void_p * 2)())) == 1
big = Kernel(f, (c_int * 3)(1, 1, 1), (c_int * 3)(2048, 1, 1))
assert driver.cuGraphAddKernelNode_v2(byref(node), graph, None, c_size_t(0), byref(big)) == 1
none = Kernel(f, (c_int * 3)(1, 1, 1), (c_int * 3)(32, 1, 1))
assert driver.cuGraphAddKernelNode_v2(byref(node), graph, None, c_size_t(0), byref(none)) == 1
assert runtime.cudaGraphCreate(byref(node), 1) == 1
assert types(graph) == [FILL]
""")

    def test_edges_come_and_go(self):
        succeed(self, GRAPHS + """
graph, p = new_graph(), malloc(4096)
a, b, c = (add_fill(graph, [], p + 64 * i, i, 64) for i in range(3))
must(runtime.cudaGraphAddDependencies(graph, handles([a, b]), handles([b, c]), None, c_size_t(2)))
assert runtime.cudaGraphAddDependencies(graph, handles([a]), handles([b]), None, c_size_t(1)) == 1
count, pairs, others = c_size_t(8), (c_void_p * 8)(), (c_void_p * 8)()
must(runtime.cudaGraphGetEdges(graph, pairs, others, None, byref(count)))
assert count.value == 2 and set(zip(pairs[:2], others[:2])) == {(a.value, b.value), (b.value, c.value)}
count = c_size_t(4)
must(runtime.cudaGraphNodeGetDependentNodes(a, pairs, None, byref(count)))
assert count.value == 1 and pairs[0] == b.value and pairs[1] is None
must(runtime.cudaGraphRemoveDependencies(graph, handles([a]), handles([b]), None, c_size_t(1)))
assert runtime.cudaGraphRemoveDependencies(graph, handles([a]), handles([b]), None, c_size_t(1)) == 1
assert before(b) == set()
must(runtime.cudaGraphDestroyNode(b))
assert types(graph) == [FILL, FILL] and before(c) == set()
must(runtime.cudaGraphAddDependencies(graph, handles([a, c]), handles([c, a]), None, c_size_t(2)))
assert runtime.cudaGraphInstantiate(byref(c_void_p()), graph, c_uint64(0)) == 1
""")

    def test_a_child_runs_as_it_was_when_it_was_added(self):
        for work in WORKS:
            succeed(self, GRAPHS + """
p, size = malloc(4096), 4096
child = new_graph()
a = add_fill(child, [], p, 5, size)
add_fill(child, [a], p, 6, 1024)
graph = new_graph()
first = add_fill(graph, [], p, 1, size)
inner = add(runtime.cudaGraphAddChildGraphNode, graph, [first], child)
add_fill(graph, [inner], p + 2048, 9, 64)
must(runtime.cudaGraphMemsetNodeSetParams(a, byref(Fill(p, 0, 8, 1, size, 1))))
own = c_void_p()
must(runtime.cudaGraphChildGraphNodeGetGraph(inner, byref(own)))
assert own.value != child.value and types(own) == [FILL, FILL]
assert runtime.cudaGraphDestroy(own) == 1
must(runtime.cudaGraphDestroy(child))
instance, stream = instance_of(graph), new_stream()
play(instance, stream)
must(runtime.cudaStreamSynchronize(stream))
assert download(p, size) == b"\\6" * 1024 + b"\\5" * 1024 + b"\\x09" * 64 + b"\\5" * 1984
""", work=work)

    def test_a_clone_is_a_graph_of_its_own(self):
        succeed(self, GRAPHS + """
p, graph, clone, same, fill = malloc(4096), new_graph(), c_void_p(), c_void_p(), Fill()
a = add_fill(graph, [], p, 5, 512)
b = add_fill(graph, [a], p, 6, 256)
must(runtime.cudaGraphClone(byref(clone), graph))
must(runtime.cudaGraphMemsetNodeSetParams(a, byref(Fill(p, 0, 8, 1, 512, 1))))
must(runtime.cudaGraphNodeFindInClone(byref(same), a, clone))
must(runtime.cudaGraphMemsetNodeGetParams(same, byref(fill)))
assert same.value != a.value and (fill.address, fill.value, fill.width) == (p, 5, 512)
must(runtime.cudaGraphDestroy(graph))
play(instance_of(clone))
finish()
assert download(p, 512) == b"\\6" * 256 + b"\\5" * 256
""", work="late")

    def test_an_instance_can_be_changed(self):
        succeed(self, GRAPHS + """
p, graph, on = malloc(4096), new_graph(), c_int()
a = add_fill(graph, [], p, 5, 512)
b = add_fill(graph, [a], p, 6, 256)
c = add_copy(graph, [b], p + 1024, p, 512)
instance = instance_of(graph)
must(runtime.cudaGraphExecMemsetNodeSetParams(instance, a, byref(Fill(p, 0, 7, 1, 512, 1))))
must(runtime.cudaGraphExecMemcpyNodeSetParams1D(instance, c, c_void_p(p + 2048), c_void_p(p), c_size_t(512), 3))
must(runtime.cudaGraphNodeSetEnabled(instance, b, 0))
must(runtime.cudaGraphNodeGetEnabled(instance, b, byref(on)))
assert on.value == 0
assert runtime.cudaGraphExecMemsetNodeSetParams(instance, c, byref(Fill(p, 0, 7, 1, 512, 1))) == 1
play(instance)
finish()
assert download(p, 512) == download(p + 2048, 512) == b"\\7" * 512 and download(p + 1024, 512) == bytes(512)
play(instance_of(graph))
finish()
assert download(p + 1024, 512) == b"\\6" * 256 + b"\\5" * 256
""", work="late")

    def test_an_instance_is_updated_by_a_graph_of_the_same_shape(self):
        succeed(self, GRAPHS + """
p, stream, update = malloc(4096), new_stream(), Update()
def captured(value, more=False):
    graph = c_void_p()
    must(runtime.cudaStreamBeginCapture(stream, 0))
    must(runtime.cudaMemsetAsync(c_void_p(p), value, c_size_t(512), stream))
    must(runtime.cudaMemsetAsync(c_void_p(p), value + 1, c_size_t(256), stream))
    if more:
        must(runtime.cudaMemsetAsync(c_void_p(p), value + 1, c_size_t(256), stream))
    must(runtime.cudaStreamEndCapture(stream, byref(graph)))
    return graph
graph = captured(1)
instance = instance_of(graph)
other = captured(5)
must(runtime.cudaGraphExecUpdate(instance, other, byref(update)))
must(runtime.cudaGraphDestroy(other))
assert update.result == 0
play(instance, stream)
must(runtime.cudaStreamSynchronize(stream))
assert download(p, 512) == b"\\6" * 256 + b"\\5" * 256
assert runtime.cudaGraphExecUpdate(instance, captured(5, more=True), byref(update)) == 910 and update.result == 2
built = new_graph()
a = add_fill(built, [], p, 8, 512)
add_copy(built, [a], p + 1024, p, 256)
assert runtime.cudaGraphExecUpdate(instance, built, byref(update)) == 910 and update.result == 3
play(instance, stream)
must(runtime.cudaStreamSynchronize(stream))
assert download(p, 512) == b"\\6" * 256 + b"\\5" * 256
""", work="late")

    def test_captured_nodes_can_be_added_to_and_changed(self):
        succeed(self, GRAPHS + """
p, stream, graph, count = malloc(4096), new_stream(), c_void_p(), c_size_t(8)
must(runtime.cudaStreamBeginCapture(stream, 0))
must(runtime.cudaMemsetAsync(c_void_p(p), 1, c_size_t(512), stream))
must(runtime.cudaMemsetAsync(c_void_p(p + 512), 2, c_size_t(512), stream))
must(runtime.cudaStreamEndCapture(stream, byref(graph)))
plain, nodes = instance_of(graph), (c_void_p * 8)()
must(runtime.cudaGraphGetNodes(graph, nodes, byref(count)))
assert count.value == 2
must(runtime.cudaGraphExecMemsetNodeSetParams(plain, c_void_p(nodes[1]), byref(Fill(p + 512, 0, 7, 1, 512, 1))))
last = add_copy(graph, [c_void_p(nodes[1])], p + 1024, p, 1024)
assert types(graph) == [FILL, FILL, COPY] and before(c_void_p(nodes[1])) == {nodes[0]}
more = instance_of(graph)
must(runtime.cudaGraphDestroy(graph))
play(plain, stream)
must(runtime.cudaStreamSynchronize(stream))
assert download(p, 2048) == b"\\1" * 512 + b"\\7" * 512 + bytes(1024)
play(more, stream)
must(runtime.cudaStreamSynchronize(stream))
assert download(p, 2048) == (b"\\1" * 512 + b"\\2" * 512) * 2
""", work="late")

    def test_a_launch_in_a_capture_becomes_part_of_it(self):
        for work in WORKS:
            succeed(self, GRAPHS + """
p, stream, graph = malloc(4096), new_stream(), c_void_p()
inner = new_graph()
a = add_fill(inner, [], p, 1, 512)
add_fill(inner, [a], p, 2, 256)
launched = instance_of(inner)
must(runtime.cudaStreamBeginCapture(stream, 0))
must(runtime.cudaMemsetAsync(c_void_p(p), 9, c_size_t(1024), stream))
play(launched, stream)
must(runtime.cudaMemsetAsync(c_void_p(p), 3, c_size_t(128), stream))
must(runtime.cudaStreamEndCapture(stream, byref(graph)))
must(runtime.cudaGraphExecDestroy(launched))
must(runtime.cudaGraphDestroy(inner))
assert types(graph) == [FILL] * 4
play(instance_of(graph), stream)
must(runtime.cudaStreamSynchronize(stream))
assert download(p, 1024) == b"\\3" * 128 + b"\\2" * 128 + b"\\1" * 256 + b"\\x09" * 512
""", work=work)

    def test_a_capture_goes_into_a_graph(self):
        succeed(self, GRAPHS + """
p, stream, graph, same = malloc(4096), new_stream(), new_graph(), c_void_p()
first = add_fill(graph, [], p, 1, 1024)
must(runtime.cudaStreamBeginCaptureToGraph(stream, graph, handles([first]), None, c_size_t(1), 0))
must(runtime.cudaMemsetAsync(c_void_p(p), 2, c_size_t(512), stream))
must(runtime.cudaMemsetAsync(c_void_p(p), 3, c_size_t(256), stream))
must(runtime.cudaStreamEndCapture(stream, byref(same)))
assert same.value == graph.value and types(graph) == [FILL] * 3
play(instance_of(graph), stream)
must(runtime.cudaStreamSynchronize(stream))
assert download(p, 1024) == b"\\3" * 256 + b"\\2" * 256 + b"\\1" * 512
""", work="late")

    def test_nodes_added_to_a_capture_take_their_place(self):
        succeed(self, GRAPHS + """
p, stream, graph, under, status = malloc(4096), new_stream(), c_void_p(), c_void_p(), c_int()
deps, count = ctypes.POINTER(c_void_p)(), c_size_t()
must(runtime.cudaStreamBeginCapture(stream, 0))
must(runtime.cudaMemsetAsync(c_void_p(p), 1, c_size_t(1024), stream))
must(runtime.cudaStreamGetCaptureInfo(stream, byref(status), None, byref(under), byref(deps), None, byref(count)))
assert count.value == 1
node = add_fill(under, [c_void_p(deps[0])], p, 2, 512)
must(runtime.cudaStreamUpdateCaptureDependencies(stream, handles([node]), None, c_size_t(1), 1))
must(runtime.cudaMemsetAsync(c_void_p(p), 3, c_size_t(256), stream))
must(runtime.cudaStreamEndCapture(stream, byref(graph)))
assert graph.value == under.value and types(graph) == [FILL] * 3
play(instance_of(graph), stream)
must(runtime.cudaStreamSynchronize(stream))
assert download(p, 1024) == b"\\3" * 256 + b"\\2" * 256 + b"\\1" * 512
""", work="late")

    def test_events_are_recorded_and_awaited_by_each_launch(self):
        succeed(self, GRAPHS + """
p, stream, other, event, graph = malloc(4096), new_stream(), new_stream(), c_void_p(), new_graph()
must(runtime.cudaEventCreateWithFlags(byref(event), 2))
a = add_fill(graph, [], p, 4, 1024)
add(runtime.cudaGraphAddEventRecordNode, graph, [a], event)
play(instance_of(graph), stream)
must(runtime.cudaStreamWaitEvent(other, event, 0))
must(runtime.cudaMemcpyAsync(c_void_p(p + 1024), c_void_p(p), c_size_t(1024), 3, other))
must(runtime.cudaStreamSynchronize(other))
assert download(p + 1024, 1024) == b"\\4" * 1024
awaits = new_graph()
w = add(runtime.cudaGraphAddEventWaitNode, awaits, [], event)
add_copy(awaits, [w], p + 2048, p + 1024, 1024)
must(runtime.cudaMemsetAsync(c_void_p(p + 1024), 5, c_size_t(1024), stream))
must(runtime.cudaEventRecord(event, stream))
play(instance_of(awaits), other)
must(runtime.cudaStreamSynchronize(other))
assert download(p + 2048, 1024) == b"\\5" * 1024
""", work="late")

    def test_a_conditional_node_runs_what_its_default_chooses(self):
        succeed(self, GRAPHS + """
class Condition(ctypes.Structure):
    _fields_ = [("type", c_int), ("rest", c_int * 3), ("handle", c_uint64), ("kind", c_int), ("size", c_int),
                ("graphs", ctypes.POINTER(c_void_p)), ("more", c_uint64 * 27)]
def conditional(kind, size, default):
    graph, handle, node = new_graph(), c_uint64(), c_void_p()
    must(runtime.cudaGraphConditionalHandleCreate(byref(handle), graph, default, 1))
    is_ = Condition(type=13, handle=handle.value, kind=kind, size=size)
    must(runtime.cudaGraphAddNode(byref(node), graph, None, None, c_size_t(0), byref(is_)))
    for i in range(size):
        add_fill(c_void_p(is_.graphs[i]), [], p, i + 1, 512)
    must(runtime.cudaMemset(c_void_p(p), 0, c_size_t(512)))
    play(instance_of(graph))
    finish()
    return download(p, 512)[:1]
p = malloc(4096)
assert (conditional(0, 1, 1), conditional(0, 1, 0), conditional(0, 2, 0)) == (b"\\1", b"\\0", b"\\2")
assert (conditional(1, 1, 1), conditional(1, 1, 0)) == (b"\\1", b"\\0")
assert (conditional(2, 3, 2), conditional(2, 3, 5)) == (b"\\3", b"\\0")
""")

    def test_an_update_by_the_instances_own_graph_always_fits(self):
        """Also if its nodes were not added in an order in which they can run."""
        succeed(self, GRAPHS + """
graph, first, last, instance, update = c_void_p(), c_void_p(), c_void_p(), c_void_p(), Update()
must(driver.cuGraphCreate(byref(graph), 0))
must(driver.cuGraphAddMemsetNode(byref(last), graph, None, c_size_t(0), byref(Fill(malloc(64), 0, 1, 1, 64, 1)), None))
must(driver.cuGraphAddEmptyNode(byref(first), graph, None, c_size_t(0)))
must(driver.cuGraphAddDependencies(graph, byref(first), byref(last), c_size_t(1)))
must(driver.cuGraphInstantiateWithFlags(byref(instance), graph, c_uint64(0)))
must(driver.cuGraphExecUpdate_v2(instance, graph, byref(update)))
must(driver.cuGraphLaunch(instance, None))
must(runtime.cudaDeviceSynchronize())
""")

    def test_objects_of_the_program_live_as_long_as_a_launch(self):
        """The programming guide on user objects: if an instance is destroyed while a launch of it runs, the release is
        deferred. A destructor cannot call CUDA."""
        for work in ("now", "late"):
            succeed(self, GRAPHS + """
NO_SYNC, MOVE, INVALID, NOT_PERMITTED = 1, 1, 1, 800
Function = ctypes.CFUNCTYPE(None, c_void_p)
seen = []
@Function
def destroy(argument):
    seen.append(("destroyed", runtime.cudaStreamSynchronize(None)))
@Function
def use(argument):
    seen.append("used")
made, graph, stream, instance = c_void_p(), c_void_p(), new_stream(), c_void_p()
assert driver.cuUserObjectCreate(byref(made), None, destroy, 1, 0) == INVALID
must(driver.cuUserObjectCreate(byref(made), None, destroy, 2, NO_SYNC))
must(runtime.cudaStreamBeginCapture(stream, 0))
must(runtime.cudaLaunchHostFunc(stream, use, None))
must(runtime.cudaStreamEndCapture(stream, byref(graph)))
must(driver.cuGraphRetainUserObject(graph, made, 2, MOVE))
assert driver.cuGraphReleaseUserObject(graph, made, 3) == INVALID
must(driver.cuGraphReleaseUserObject(graph, made, 1))
must(driver.cuGraphInstantiateWithFlags(byref(instance), graph, c_uint64(0)))
must(driver.cuGraphDestroy(graph))
assert not seen
must(driver.cuGraphLaunch(instance, stream))
must(driver.cuGraphExecDestroy(instance))
must(runtime.cudaDeviceSynchronize())
assert seen == ["used", ("destroyed", NOT_PERMITTED)], seen
""", work=work)

    def test_attributes_are_kept(self):
        succeed(self, GRAPHS + """
stream, other = new_stream(), new_stream()
value, back = (c_uint64 * 8)(1, 2, 3), (c_uint64 * 8)()
must(runtime.cudaStreamSetAttribute(stream, 1, value))
must(runtime.cudaStreamCopyAttributes(other, stream))
must(runtime.cudaStreamGetAttribute(other, 1, back))
assert list(back) == list(value)
must(runtime.cudaStreamDestroy(other))
f, p, graph = kernel(), malloc(4096), new_graph()
a, b = add_kernel(graph, [], f, p), add_kernel(graph, [], f, p)
must(runtime.cudaGraphKernelNodeSetAttribute(a, 8, value))
must(runtime.cudaGraphKernelNodeCopyAttributes(b, a))
must(runtime.cudaGraphKernelNodeGetAttribute(b, 8, back))
assert list(back) == list(value)
must(runtime.cudaGraphKernelNodeGetAttribute(b, 9, back))
assert list(back) == [0] * 8
""")


if __name__ == "__main__":
    skip_if_unfit()
    unittest.main()
