#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks for memory that is used again too early, by the values that kernels leave: torch_values.py SECONDS [wrong].

Four streams, kept behind by kernels that only wait, fill tensors of random sizes with a number each, hand them to one
another (wait_stream and record_stream, or events), check them, and drop them while that work is still queued. Between
them, graphs are replayed whose memory must be theirs alone. Each wrong word is counted on the device. The last line is
`N steps, N wrong words`; exit status 1 if there are any, or if terrazzo's heap fails its own check. With `wrong` the
program does without record_stream, so that there must be some: what the test can see.
"""
import random
import sys
import time

import torch

MIB = 1 << 20


class Values:
    def __init__(self, careful, seed=0):
        self.careful = careful
        self.rng, self.streams = random.Random(seed), [torch.cuda.Stream() for _ in range(4)]
        self.wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in self.streams]
        self.live, self.number, self.steps = [], 0, 0
        self.graphs = [self.graph(count) for count in (1, 3, 7)]

    def graph(self, count):
        """(graph, what it reads, what it has made): sums of intermediate tensors that live in the graph's pool."""
        graph, given = torch.cuda.CUDAGraph(), torch.zeros(count * MIB, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            parts = [given + i for i in range(4)]
            made = parts[0] + parts[1] + parts[2] + parts[3]
            del parts
        return graph, given, made

    def delay(self):
        if self.rng.random() < 0.3:
            torch.cuda._sleep(self.rng.randint(1000, 400000))

    def make(self, i):
        """A tensor full of a number of its own, made on stream i."""
        self.number += 1
        size = self.rng.choice([self.rng.randint(1, 4096), self.rng.randint(1, MIB), self.rng.randint(MIB, 16 * MIB)])
        with torch.cuda.stream(self.streams[i]):
            self.delay()
            tensor = torch.full((size,), self.number, dtype=torch.int32, device="cuda")
        self.live.append((tensor, self.number, i))

    def check(self, i, tensor, number):
        with torch.cuda.stream(self.streams[i]):
            self.delay()
            self.wrong[i] += (tensor != number).sum()

    def use(self):
        """Checks a tensor on its own stream or another one, and mostly drops it at once."""
        at = self.rng.randrange(len(self.live))
        tensor, number, home = self.live[at]
        i = self.rng.randrange(len(self.streams))
        if i != home:
            if self.rng.random() < 0.5:
                self.streams[i].wait_stream(self.streams[home])
            else:
                self.streams[i].wait_event(self.streams[home].record_event())
            if self.rng.random() < 0.7:
                self.check(i, tensor, number)
                if self.careful:
                    tensor.record_stream(self.streams[i])
            else:  # the other way to be correct: the owner waits before the tensor is dropped
                self.check(i, tensor, number)
                self.streams[home].wait_stream(self.streams[i])
        else:
            self.check(i, tensor, number)
        if self.rng.random() < 0.8:
            del tensor
            self.live[at] = self.live[-1]
            self.live.pop()

    def replay(self):
        graph, given, made = self.rng.choice(self.graphs)
        i = self.rng.randrange(len(self.streams))
        main = torch.cuda.current_stream()
        main.wait_stream(self.streams[i])
        number = self.rng.randint(1, 1000000)
        given.fill_(number)
        graph.replay()
        self.streams[i].wait_stream(main)
        self.check(i, made, 4 * number + 6)
        main.wait_stream(self.streams[i])

    def run(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.steps += 1
            self.make(self.rng.randrange(len(self.streams)))
            while len(self.live) > 40 or self.live and self.rng.random() < 0.4:
                self.use()
            if self.rng.random() < 0.05:
                self.replay()
            if self.rng.random() < 0.002:
                torch.cuda.empty_cache()
            if self.steps % 500 == 0:
                torch.cuda.synchronize()  # so that the host is not ever further ahead
        torch.cuda.synchronize()
        return sum(int(count) for count in self.wrong)


def main():
    torch.cuda.init()
    values = Values(careful="wrong" not in sys.argv)
    wrong = values.run(float(sys.argv[1]))
    heap_check()
    print(f"{torch.cuda.get_allocator_backend()}: peak {torch.cuda.max_memory_allocated() / MIB:.0f} MiB allocated, "
          f"{torch.cuda.max_memory_reserved() / MIB:.0f} reserved; {values.steps} steps, {wrong} wrong words")
    return 1 if wrong else 0


def heap_check():
    plug = sys.modules.get("terrazzo.torch")
    if plug and plug.installed():
        library = plug._native_library()
        library.trz_check(library.heap(0, open=False))


if __name__ == "__main__":
    sys.exit(main())
