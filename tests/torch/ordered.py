# SPDX-License-Identifier: Apache-2.0
"""Memory goes from stream to stream by the program's own events, and by nothing less.

    ordered.py MODE [forked]    shim or hooks; TERRAZZO_CONF with wait:off, so that no wait is the heap's own

`forked`: in a child of a process that has installed terrazzo and not used the device, as servers start their workers.

What was freed comes back on another stream at once, without a question to the driver, if that stream waits for it. Who
asks the device may get it in any case, so `reused` tells which it was. The simulated device judges the rest.
"""
import ctypes
import gc
import os
import sys

os.environ["TRZ_TORCH_MODE"] = sys.argv[1]

import torch  # noqa: E402

from common import MIB, compile_with_runtime, terrazzo  # noqa: E402

if "forked" in sys.argv:
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

SIZE = 48 * MIB
a, b, c = (torch.cuda.Stream() for _ in range(3))
order = "order:off" not in os.environ["TERRAZZO_CONF"]


def get(stream):
    with torch.cuda.stream(stream):
        return torch.empty(SIZE, dtype=torch.uint8, device="cuda").fill_(1)


def queries():
    return terrazzo.torch.stats()["driver_calls.event_query"]


def reused(stream, address):
    """Whether the stream gets the memory at once; None if it was the device who said so."""
    before = queries()
    tensor = get(stream)
    if queries() != before:
        return None
    return tensor.data_ptr() == address


def freed(stream):
    """The address of memory that the stream has used and freed; nothing else is free."""
    torch.cuda.synchronize()
    gc.collect()
    terrazzo.torch.trim()
    tensor = get(stream)
    return tensor.data_ptr()


def check(found, wanted, what):
    assert found in wanted, f"{what}: {found}"


BY_ORDER = (True,) if order else (True, False, None)
NOT_BY_ORDER = (False, None)


def step(says, expected, *orders):
    """b frees memory, then the calls `orders` are made: whether a may have it."""
    address = freed(b)
    for order in orders:
        order()
    check(reused(a, address), expected, says)


def waits():
    for _ in range(8):
        step("without a wait", NOT_BY_ORDER)
        event = torch.cuda.Event()
        step("after a wait for an event", BY_ORDER, lambda: event.record(b), lambda: a.wait_event(event))
        step("after a wait for an older record", NOT_BY_ORDER, lambda: a.wait_event(event))
        step("after a wait for the event, recorded again", BY_ORDER,
             lambda: event.record(b), lambda: a.wait_event(event))
        step("after wait_stream", BY_ORDER, lambda: a.wait_stream(b))
        step("by way of a third stream", BY_ORDER, lambda: c.wait_stream(b), lambda: a.wait_stream(c))


def uses():
    """Memory that another stream has used comes back when its home has waited for that."""
    for waits_for_user in (False, True):
        freed(b)
        tensor = get(b)
        with torch.cuda.stream(c):
            tensor.mul_(2)
        tensor.record_stream(c)
        address = tensor.data_ptr()
        del tensor
        if waits_for_user:
            b.wait_stream(c)
        check(reused(b, address), BY_ORDER if waits_for_user else NOT_BY_ORDER, f"home waits: {waits_for_user}")


def host_waits():
    step("the host has waited for the event", BY_ORDER, lambda: b.record_event().synchronize())
    step("the host has waited for the stream", BY_ORDER, b.synchronize)


def graphs():
    """What is recorded and awaited in a capture tells streams outside nothing, whenever the graph is launched."""
    x = torch.ones(MIB, device="cuda")
    event, graph = torch.cuda.Event(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=b):
        y = x * 2
        event.record(b)
        c.wait_event(event)
        with torch.cuda.stream(c):
            z = y + 1
        b.wait_stream(c)
    address = freed(c)
    graph.replay()
    check(reused(b, address), NOT_BY_ORDER, "a wait in a capture")
    a.wait_stream(torch.cuda.current_stream())
    torch.cuda.synchronize()
    del y, z
    graph.reset()


def foreign():
    """Events that another process or a graph can record teach nothing; one that gets the handle of a dead one does."""
    shared = torch.cuda.Event(interprocess=True)
    step("an event for other processes", NOT_BY_ORDER, lambda: shared.record(b), lambda: a.wait_event(shared))
    del shared
    step("a new event", BY_ORDER, lambda: a.wait_event(b.record_event()))
    if "external" not in torch.cuda.Event.__new__.__code__.co_varnames:
        return
    external, graph, x = torch.cuda.Event(external=True), torch.cuda.CUDAGraph(), torch.ones(MIB, device="cuda")
    with torch.cuda.graph(graph, stream=c):
        x.mul_(2)
        external.record(c)
    address = freed(b)
    external.record(b)
    graph.replay()
    a.wait_event(external)
    check(reused(a, address), NOT_BY_ORDER, "an event that a graph has recorded since")


def recorded_behind_our_back():
    """An extension that comes later records an event unseen: until it is seen, nothing is believed."""
    event = torch.cuda.Event()
    event.record(b)
    source = "int cudaEventRecord(void *, void *); int behind(void *e, void *s) { return cudaEventRecord(e, s); }"
    for _ in range(4):
        address = freed(b)
        event.record(b)
        behind = ctypes.CDLL(compile_with_runtime(source)).behind
        behind.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        assert behind(event.cuda_event, c.cuda_stream) == 0
        a.wait_event(event)
        check(reused(a, address), NOT_BY_ORDER, "an event that was recorded elsewhere")
        address = freed(b)
        for _ in range(2):  # the second look finds nothing new
            event.record(b)
            a.wait_event(event)
        check(reused(a, address), BY_ORDER, "seen again")
        address = freed(b)
        event.record(b)
        assert behind(event.cuda_event, c.cuda_stream) == 0
        a.wait_event(event)
        check(reused(a, address), NOT_BY_ORDER, "an event that the extension recorded elsewhere")
        address = freed(b)
        assert behind(event.cuda_event, b.cuda_stream) == 0
        a.wait_event(event)
        check(reused(a, address), BY_ORDER, "an event that the extension recorded")


torch.cuda.init()
assert terrazzo.torch._native_library().trz_torch_follow_events() > 20
for part in (waits, uses, host_waits, recorded_behind_our_back, foreign, graphs):
    part()
    print(part.__name__, "ok", flush=True)
torch.cuda.synchronize()
