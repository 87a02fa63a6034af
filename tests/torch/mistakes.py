# SPDX-License-Identifier: Apache-2.0
"""An allocator that is wrong on purpose is found out, under late work, by the kernels of PyTorch that touch its memory.

    mistakes.py LIBRARY     (wrong_allocator.c, compiled)

Each combination of a mistake, a schedule and a seed is a process of its own.
"""
import ctypes
import re
import signal
import sys

import torch
from forked import attempt

RIGHT, IGNORES_RECORD_STREAM, UNMAPS_LIVE_POOL = range(3)
SEEDS = (1, 2)
# In the order of enqueuing, which fifo keeps, a tensor's other users are done before what comes next.
ANY, ANY_BUT_FIFO = ("random", "fifo", "lifo", "starve"), ("random", "lifo", "starve")
COUNT = 1 << 20  # of float32


def install(mistake):
    library = ctypes.CDLL(sys.argv[1])
    ctypes.c_int.in_dll(library, "mistake").value = mistake
    allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "wrong_alloc", "wrong_free")
    hooks = allocator.allocator()
    for setter, name in (("set_record_stream_fn", "wrong_record_stream"),
                         ("set_begin_allocate_to_pool", "wrong_begin_pool"),
                         ("set_end_allocate_to_pool_fn", "wrong_end_pool"),
                         ("set_release_pool", "wrong_release_pool")):
        getattr(hooks, setter)(ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
    torch.cuda.memory.change_current_allocator(allocator)


def use_on_two_streams(count):
    """A tensor is used on a second stream, which record_stream tells."""
    host, side = torch.zeros(count, pin_memory=True), torch.cuda.Stream()
    batch = torch.empty(count, device="cuda")
    batch.copy_(host, non_blocking=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            batch * 2
    batch.record_stream(side)


def use_again():
    """What comes next has the same size, and is copied to."""
    for _ in range(40):
        use_on_two_streams(COUNT)


def outgrow():
    """What comes next is larger, and the first stream is done with what was before."""
    for i in range(1, 20):
        use_on_two_streams(COUNT * i)
        torch.cuda.current_stream().synchronize()


def replay_graph():
    """What was freed in a capture is the graph's until it goes."""
    x = torch.zeros(COUNT, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x * 2).relu() + 1
    for _ in range(3):
        graph.replay()
        x.add_(y)
    torch.cuda.synchronize()


def make(mistake, program):
    install(mistake)
    program()
    torch.cuda.synchronize()


def check(mistake, program, schedule, seed, expected):
    ended, text = attempt(schedule, seed, make, mistake, program)
    found = re.search(r"violation: (.*kernel .*0x[0-9a-f]+.*)", text)
    print(f"{program.__name__}, {schedule}, seed {seed}: {found.group(1) if found else 'nothing is wrong'}")
    if mistake == RIGHT:
        assert ended == 0 and "violation" not in text, (ended, text)
    else:
        assert ended == -signal.SIGABRT and found and expected in text, (ended, text)


for mistake, program, schedules, expected in (
        (RIGHT, use_again, ANY, ""), (RIGHT, outgrow, ANY, ""), (RIGHT, replay_graph, ANY, ""),
        (IGNORES_RECORD_STREAM, use_again, ANY_BUT_FIFO, "nothing orders the two"),
        (IGNORES_RECORD_STREAM, outgrow, ANY_BUT_FIFO, "is no longer mapped"),
        (UNMAPS_LIVE_POOL, replay_graph, ANY, "of a graph")):
    for schedule in schedules:
        for seed in SEEDS:
            check(mistake, program, schedule, seed, expected)
