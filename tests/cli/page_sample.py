# SPDX-License-Identifier: Apache-2.0
"""A made-up training run as a PyTorch snapshot: layers, optimizer state, a leak; in the end memory runs out."""
import json
import pickle
import random
import tempfile
import unittest
from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30
BASE = 0x7F40_0000_0000
SEGMENT = 512 * MIB


class Scratch(unittest.TestCase):
    """A test with a folder of its own, for snapshots and what is made of them."""
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def write(self, snapshot, name="snapshot.pickle"):
        path = self.folder / name
        if name.endswith(".json"):
            path.write_text(json.dumps(snapshot))
        else:
            path.write_bytes(pickle.dumps(snapshot, protocol=2))
        return path


def frames(*levels):
    """Innermost first, as PyTorch has them."""
    return [{"filename": file, "line": line, "name": name} for file, line, name in reversed(levels)]


MAIN = (("/app/train.py", 12, "<module>"), ("/app/train.py", 88, "main"))
STEP = MAIN + (("/app/train.py", 61, "train_step"),)
TORCH = "/usr/lib/python3/torch/"
FORWARD = STEP + ((TORCH + "nn/modules/module.py", 1773, "_wrapped_call_impl"), ("/app/model.py", 140, "forward"))
STACKS = {
    "weights": frames(*MAIN, ("/app/model.py", 24, "__init__"), (TORCH + "nn/modules/linear.py", 106, "__init__")),
    "attention": frames(*FORWARD, ("/app/model.py", 77, "attention"),
                        (TORCH + "nn/functional.py", 6210, "scaled_dot_product_attention")),
    "mlp": frames(*FORWARD, ("/app/model.py", 92, "mlp"), (TORCH + "nn/functional.py", 2010, "gelu")),
    "loss": frames(*STEP, ("/app/train.py", 55, "cross_entropy")),
    "backward": frames(*STEP, (TORCH + "_tensor.py", 625, "backward"),
                       (TORCH + "autograd/__init__.py", 354, "backward")),
    "optimizer": frames(*STEP, (TORCH + "optim/adamw.py", 243, "step"), (TORCH + "optim/adamw.py", 176, "_init_group")),
    "losses": frames(*STEP, ("/app/train.py", 63, "losses_append")),
}


class Run:
    """First fit in segments, with a history."""

    def __init__(self, capacity):
        self.capacity, self.time = capacity, 1_790_000_000_000_000
        self.trace, self.live, self.segments = [], {}, []
        self.free = []  # (address, size), by address

    def note(self, action, address, size, stack=None, **more):
        self.time += 40 + random.randrange(60)
        where = {"device_free": address} if action == "oom" else {"addr": address}
        entry = {"action": action, **where, "size": size, "stream": 0, "time_us": self.time, "compile_context": "N/A",
                 "user_metadata": "", "pool_id": (0, 0), **more}
        if stack:
            entry["frames"] = STACKS[stack]
        self.trace.append(entry)

    def alloc(self, size, stack):
        rounded = -(-size // 512) * 512
        for i, (address, room) in enumerate(self.free):
            if room >= rounded:
                self.free[i:i + 1] = [(address + rounded, room - rounded)] if room > rounded else []
                self.live[address] = (rounded, size, stack)
                self.note("alloc", address, size, stack)
                return address
        want = max(SEGMENT, -(-rounded // (2 * MIB)) * 2 * MIB)
        if sum(s for _, s in self.segments) + want > self.capacity:
            self.note("oom", self.capacity - sum(s for _, s in self.segments), size, stack)
            return None
        base = BASE + sum(s + 64 * MIB for _, s in self.segments)
        self.segments.append((base, want))
        self.note("segment_alloc", base, want, stack)
        self.free.append((base, want))
        return self.alloc(size, stack)

    def release(self, address):
        rounded, size, _ = self.live.pop(address)
        self.note("free_requested", address, size)
        self.note("free_completed", address, size)
        self.free.append((address, rounded))
        self.free.sort()
        joined = []
        for a, s in self.free:
            inside = joined and joined[-1][0] + joined[-1][1] == a and not any(a == base for base, _ in self.segments)
            if inside:
                joined[-1] = (joined[-1][0], joined[-1][1] + s)
            else:
                joined.append((a, s))
        self.free = joined

    def blocks_of(self, base, total):
        blocks, at = [], base

        def add_free(end):
            if end > at:
                blocks.append({"address": at, "size": end - at, "requested_size": 0, "state": "inactive", "frames": []})

        for address in sorted(a for a in self.live if base <= a < base + total):
            rounded, size, stack = self.live[address]
            add_free(address)
            blocks.append({"address": address, "size": rounded, "requested_size": size, "state": "active_allocated",
                           "frames": STACKS[stack]})
            at = address + rounded
        add_free(base + total)
        return blocks

    def snapshot(self):
        segments = []
        for base, total in self.segments:
            blocks = self.blocks_of(base, total)
            active = sum(b["size"] for b in blocks if b["state"] != "inactive")
            segments.append({"device": 0, "address": base, "total_size": total, "allocated_size": active,
                             "active_size": active, "requested_size": sum(b["requested_size"] for b in blocks),
                             "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
                             "frames": [], "blocks": blocks})
        return {"segments": segments, "device_traces": [self.trace], "allocator_settings": {},
                "external_annotations": []}


def train(steps=40, layers=12, capacity=8 * GIB):
    """Returns the snapshot of a run that keeps what it should not, until its memory is full."""
    random.seed(1)
    run = Run(capacity)
    weights = [run.alloc(48 * MIB + 4096 * i, "weights") for i in range(layers)]
    state = []
    for step in range(steps):
        kept = []
        for layer in range(layers):
            kept.append(run.alloc((96 + 7 * (step % 5)) * MIB, "attention"))
            kept.append(run.alloc(160 * MIB + 2048 * layer, "mlp"))
        kept.append(run.alloc(64 * MIB, "loss"))
        leak = run.alloc(72 * MIB, "losses")
        if None in kept or leak is None:
            break
        gradients = []
        for address in reversed(kept):
            gradients.append(run.alloc(24 * MIB, "backward"))
            run.release(address)
            if gradients[-1] is None:
                break
        if not state:
            state = [run.alloc(96 * MIB, "optimizer") for _ in weights]
        for address in gradients:
            if address is not None:
                run.release(address)
    return run.snapshot()


def levels_of(trace):
    """What is held and reserved at most, and held at the end, by the trace alone."""
    held = reserved = held_peak = reserved_peak = 0
    for e in trace:
        held += e["size"] * ((e["action"] == "alloc") - (e["action"] == "free_requested"))
        reserved += e["size"] * (e["action"] in ("segment_alloc", "segment_map"))
        reserved -= e["size"] * (e["action"] in ("segment_free", "segment_unmap"))
        held_peak, reserved_peak = max(held_peak, held), max(reserved_peak, reserved)
    return held_peak, reserved_peak, held


if __name__ == "__main__":
    import sys
    with open(sys.argv[1], "wb") as to:
        pickle.dump(train(), to, protocol=2)
