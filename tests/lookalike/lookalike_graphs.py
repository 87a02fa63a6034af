# SPDX-License-Identifier: Apache-2.0
"""The beginning, after the preamble, of programs that build graphs."""

GRAPHS = """
class Kernel(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("grid", c_int * 3), ("block", c_int * 3), ("shared", c_int),
                ("params", c_void_p), ("extra", c_void_p), ("kernel", c_void_p), ("context", c_void_p)]
class Fill(ctypes.Structure):
    _fields_ = [("address", c_uint64), ("pitch", c_size_t), ("value", c_int), ("unit", c_int), ("width", c_size_t),
                ("height", c_size_t)]
class Pool(ctypes.Structure):
    _fields_ = [("type", c_int), ("handles", c_int), ("location", c_int), ("device", c_int), ("win32", c_void_p),
                ("most", c_size_t), ("rest", c_uint64 * 7)]
class Alloc(ctypes.Structure):
    _fields_ = [("pool", Pool), ("access", c_void_p), ("count", c_size_t), ("size", c_size_t), ("address", c_uint64)]
class Update(ctypes.Structure):
    _fields_ = [("result", c_int), ("node", c_void_p), ("source", c_void_p)]

HOST = ctypes.CFUNCTYPE(None, c_void_p)
KERNEL, COPY, FILL, HOSTED, CHILD, EMPTY, AWAIT, RECORD, ALLOC, FREE = 0, 1, 2, 3, 4, 5, 6, 7, 10, 11

def new_graph():
    graph = c_void_p()
    must(runtime.cudaGraphCreate(byref(graph), 0))
    return graph

def handles(nodes):
    return (c_void_p * max(1, len(nodes)))(*[n.value if isinstance(n, c_void_p) else n for n in nodes])

def add(form, graph, after, *more):
    node = c_void_p()
    must(form(byref(node), graph, handles(after), c_size_t(len(after)), *more))
    return node

def add_kernel(graph, after, function, address):
    value = c_uint64(address)
    params = (c_void_p * 1)(ctypes.addressof(value))
    return add(driver.cuGraphAddKernelNode_v2, graph, after,
               byref(Kernel(function, (c_int * 3)(1, 1, 1), (c_int * 3)(32, 1, 1), 0, ctypes.addressof(params))))

def add_fill(graph, after, address, value, size):
    return add(runtime.cudaGraphAddMemsetNode, graph, after, byref(Fill(address, 0, value, 1, size, 1)))

def add_copy(graph, after, to, source, size):
    return add(runtime.cudaGraphAddMemcpyNode1D, graph, after, c_void_p(to), c_void_p(source), c_size_t(size), 4)

def add_alloc(graph, after, size, device=0):
    alloc = Alloc(Pool(1, 0, 1, device), None, 0, size)
    return add(runtime.cudaGraphAddMemAllocNode, graph, after, byref(alloc)), alloc.address

def add_free(graph, after, address):
    return add(runtime.cudaGraphAddMemFreeNode, graph, after, c_void_p(address))

def instance_of(graph, flags=0):
    instance = c_void_p()
    must(runtime.cudaGraphInstantiate(byref(instance), graph, c_uint64(flags)))
    return instance

def play(instance, stream=None):
    must(runtime.cudaGraphLaunch(instance, stream))

def finish():
    must(runtime.cudaDeviceSynchronize())

def types(graph):
    count, kind = c_size_t(), c_int()
    must(runtime.cudaGraphGetNodes(graph, None, byref(count)))
    nodes = (c_void_p * max(1, count.value))()
    must(runtime.cudaGraphGetNodes(graph, nodes, byref(count)))
    found = []
    for node in nodes[:count.value]:
        must(runtime.cudaGraphNodeGetType(c_void_p(node), byref(kind)))
        found.append(kind.value)
    return found

def before(node):
    count, edges = c_size_t(), (c_uint64 * 64)()
    must(runtime.cudaGraphNodeGetDependencies(node, None, None, byref(count)))
    nodes = (c_void_p * max(1, count.value))()
    must(runtime.cudaGraphNodeGetDependencies(node, nodes, edges, byref(count)))
    return set(nodes[:count.value])

def figures(device=0):
    value, found = c_uint64(), []
    for attribute in range(4):
        must(runtime.cudaDeviceGetGraphMemAttribute(device, attribute, byref(value)))
        found.append(value.value // MIB)
    return found

def unused():
    free, total = c_size_t(), c_size_t()
    must(runtime.cudaMemGetInfo(byref(free), byref(total)))
    return free.value
"""
