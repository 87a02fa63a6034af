# SPDX-License-Identifier: Apache-2.0
"""Generated workloads: each a short function that asks a Program for memory, the same in every run with a seed.

A Program writes the requests as an RMM log, which `terrazzo replay` reads. Its peak of live bytes is the least that any
allocator needs for it.
"""
import random

MIB = 1 << 20
UNIT = 512
WORKLOADS = {}


def workload(function):
    """Registers the function as a workload, by its name."""
    WORKLOADS[function.__name__] = function
    return function


class Program:
    def __init__(self, to, seed=1):
        self.to, self.random, self.sizes = to, random.Random(seed), {}
        self.made = self.requests = self.live = self.peak = 0
        to.write("Thread,Time,Action,Pointer,Size,Stream\n")

    def take(self, size, stream=0):
        """Makes an allocation; returns its name."""
        size = max(1, int(size))
        self.made += 1
        self.requests += 1
        self.sizes[self.made] = size, stream
        self.live += -(-size // UNIT) * UNIT
        self.peak = max(self.peak, self.live)
        self.to.write(f"0,0,allocate,{self.made * UNIT:#x},{size},{stream * 256:#x}\n")
        return self.made

    def give(self, *names):
        for name in names:
            size, stream = self.sizes.pop(name)
            self.live -= -(-size // UNIT) * UNIT
            self.requests += 1
            self.to.write(f"0,0,free,{name * UNIT:#x},{size},{stream * 256:#x}\n")

    def model(self, layers, bytes_each):
        """Weights and optimizer state of so many layers, in parts like a transformer's."""
        return [self.take(bytes_each * part * copies / 16) for _ in range(layers) for copies in (1, 2, 2)
                for part in (4, 4, 4, 2, 2)]


def train_step(p, layers, activation, gradient=0):
    """Forward keeps activations, backward frees them in reverse; each layer has short-lived memory."""
    kept = []
    for _ in range(layers):
        work = p.take(activation * 2)
        kept.append((p.take(activation), p.take(activation * 3 / 4), p.take(activation / 8)))
        p.give(work)
    gradients = []
    for parts in reversed(kept):
        work = p.take(activation * 3 / 2)
        if gradient:
            gradients.append(p.take(gradient))
        p.give(*parts, work)
    p.give(*gradients)


# ---- the hard ones ----

@workload
def growing_kv_cache(p, scale=1):
    """Sequences whose cache grows by a bigger copy; the longest idle one is evicted."""
    budget, live, block = 16 << 30, [], 2 * 1024 * 128
    for _ in range(int(12000 * scale)):
        if not live or p.random.random() < 0.08:
            live.append([p.random.randrange(16, 256), [p.take(16 * block) for _ in range(2)]])
        sequence = p.random.choice(live)
        sequence[0] += p.random.randrange(4, 40)
        bigger = [p.take(sequence[0] * block // 8) for _ in sequence[1]]
        p.give(*sequence[1])
        sequence[1] = bigger
        while p.live > budget:
            p.give(*live.pop(0)[1])


@workload
def lru_cache(p, scale=1):
    """Blocks of 1 to 32 MiB; the least recently used one is evicted."""
    entries, bytes_of, limit = {}, {}, 16 << 30
    held = 0
    for _ in range(int(30000 * scale)):
        key = int(4000 * p.random.random() ** 3)
        if key in entries:
            entries[key] = entries.pop(key)
            continue
        size = p.random.randrange(MIB, 32 * MIB)
        while held + size > limit:
            old, name = next(iter(entries.items()))
            held -= bytes_of.pop(old)
            del entries[old]
            p.give(name)
        entries[key], bytes_of[key] = p.take(size), size
        held += size


@workload
def variable_length(p, scale=1):
    """Training on sequences of 128 to 4,096 tokens, no two steps alike."""
    p.model(24, 48 * MIB)
    for _ in range(int(150 * scale)):
        train_step(p, 24, p.random.randrange(128, 4096) * 24 * 1024, 24 * MIB)


@workload
def detection(p, scale=1):
    """Images of random sizes: a pyramid of features, then a random number of regions."""
    p.model(50, 8 * MIB)
    for _ in range(int(120 * scale)):
        pixels = p.random.randrange(480, 1344) * p.random.randrange(480, 1344) * 4
        kept = []
        for level in range(5):
            for _ in range(10):
                work = p.take(pixels * 16 / 2 ** level)
                kept.append(p.take(pixels * 24 / 2 ** level))
                p.give(work)
        regions = [p.take(p.random.randrange(50, 1000) * 256 * 49 * 4) for _ in range(12)]
        p.give(*regions)
        for name in reversed(kept):
            work = p.take(pixels * p.random.choice((2, 4, 8, 16)))
            p.give(name, work)


@workload
def mixture_of_experts(p, scale=1):
    """Each layer sends its tokens to eight experts, a random number to each."""
    p.model(16, 96 * MIB)
    for _ in range(int(60 * scale)):
        kept = []
        for _ in range(16):
            shares = [p.random.expovariate(1) for _ in range(8)]
            for share in shares:
                tokens = 16384 * share / sum(shares)
                work = p.take(tokens * 28672)
                kept.append(p.take(tokens * 8192))
                p.give(work)
            kept.append(p.take(16384 * 8192))
        for name in reversed(kept):
            work = p.take(p.random.randrange(1, 64) * MIB)
            p.give(name, work)


@workload
def pipeline(p, scale=1):
    """One forward, one backward: a stage holds micro-batches in flight, of two sequence lengths."""
    p.model(8, 256 * MIB)
    for _ in range(int(40 * scale)):
        flight = []
        for micro_batch in range(16):
            size = (24 if micro_batch % 3 else 43) * MIB
            flight.append([p.take(size) for _ in range(32)])
            if len(flight) > 4:
                for name in reversed(flight.pop(0)):
                    work = p.take(size * p.random.choice((1, 2)) + 3 * UNIT)
                    p.give(name, work)
        for names in flight:
            p.give(*names)


@workload
def generation_and_training(p, scale=1):
    """A policy that generates with a growing cache, then trains on what it has generated."""
    p.model(16, 192 * MIB)
    for _ in range(int(12 * scale)):
        caches = [[p.take(MIB) for _ in range(16)] for _ in range(8)]
        for token in range(1, 40):
            for cache in caches:
                for layer, name in enumerate(cache):
                    cache[layer] = p.take(MIB + token * 160 * 1024)
                    p.give(name)
        for cache in caches:
            p.give(*cache)
        for _ in range(4):
            train_step(p, 16, p.random.randrange(40, 220) * MIB, 96 * MIB)


@workload
def curriculum(p, scale=1):
    """Sequences that get longer every ten steps."""
    p.model(24, 96 * MIB)
    for step in range(int(120 * scale)):
        train_step(p, 24, (8 + step // 10 * 11) * MIB + 256 * 1024, 48 * MIB)


@workload
def largest_batch(p, scale=1):
    """Doubles the batch until it is too large, then halves the interval, as tools that search for a batch size do."""
    p.model(24, 64 * MIB)
    sample, limit = 9 * MIB, 40 << 30
    low, high = 1, None
    for _ in range(max(3, int(14 * scale))):
        batch = (low + high) // 2 if high else low * 2
        if 24 * 2 * batch * sample > limit:
            high = batch
            train_step(p, 12, batch * sample)
        else:
            low = batch
            for _ in range(3):
                train_step(p, 24, batch * sample, 64 * MIB)


@workload
def service(p, scale=1):
    """A million requests with lives of all lengths, and no leak."""
    live = []
    while p.requests < 1000000 * scale:
        kind = p.random.random()
        size = p.random.randrange(1, 65536) if kind < 0.6 else int(p.random.lognormvariate(13, 1.6)) % (96 * MIB)
        live.append(p.take(size))
        while len(live) > 3000 or p.live > 12 << 30:
            at = p.random.randrange(len(live)) if p.random.random() < 0.7 else 0
            live[at], live[-1] = live[-1], live[at]
            p.give(live.pop())
    p.give(*live)


# ---- those of RMM's benchmarks ----

def random_allocations(most_mib, count):
    """Uniform sizes in whole MiB, three allocations for each free, at most 16,000 MiB."""
    def run(p, scale=1):
        live = []
        for _ in range(int(count * min(1, scale))):
            size = p.random.randrange(1, most_mib + 1) * MIB
            if (p.random.random() < 0.73 or not live) and p.live + size <= 16000 * MIB:
                live.append(p.take(size))
            elif live:
                p.give(live.pop(p.random.randrange(len(live))))
    return run


def multi_stream(streams):
    """Four kernels one after another on a stream, each with memory of its own."""
    def run(p, scale=1):
        for step in range(int(4000 * min(1, scale))):
            stream = step % streams + 1
            names = [p.take((1 + (step + kernel) % 3) * MIB, stream) for kernel in range(4)]
            p.give(*names)
    return run


for most in (1, 4, 64, 256, 1024, 4096):
    for number in (1000, 10000, 100000):
        WORKLOADS[f"rmm_random_{most}MiB_{number}"] = random_allocations(most, number)
for number in (1, 2, 4):
    WORKLOADS[f"rmm_multi_stream_{number}"] = multi_stream(number)


def write(name, path, scale=1):
    """Writes the workload's trace; returns its requests and lower bound."""
    with open(path, "w", encoding="ascii") as to:
        program = Program(to)
        WORKLOADS[name](program, scale)
    return {"requests": program.requests, "peak_bytes": program.peak}
