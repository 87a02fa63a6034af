# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.memory's answers when terrazzo is installed without its shim.

PyTorch's class for pluggable allocators refuses each question about its memory, and a program that asks ends there.
Python reaches that class through functions of torch._C: this module answers some of them instead, from the heaps.
"""
from __future__ import annotations

import contextlib
import json
import operator
import os
import tempfile
from typing import TYPE_CHECKING, Any, Callable, Sequence

from ..parts import Error

if TYPE_CHECKING:
    from . import _native

MOST_EVENTS = 1 << 22  # in a history: PyTorch's default has no bound
POOLS = ("all", "small_pool", "large_pool")
KINDS = ("current", "peak", "allocated", "freed")
FLOWS = ("allocation", "segment", "allocated_bytes", "reserved_bytes", "requested_bytes", "inactive_split",
         "inactive_split_bytes")
# PyTorch's name: ours for the part that callers hold; the rest has been freed, but is in use.
ACTIVE = {"active": "allocation", "active_bytes": "allocated_bytes"}
COUNTS = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")
OVERSIZE = ("oversize_allocations", "oversize_segments")
ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
           "snapshot", "oom")
UNIT = 512


def nested(flat: dict[str, int | float]) -> dict[str, Any]:
    """A heap's statistics in the form of torch.cuda.memory_stats_as_nested_dict()."""
    def flow(name: str) -> dict[str, dict[str, int]]:
        return {pool: {kind: flat.get(f"{name}.{pool}.{kind}", 0) for kind in KINDS} for pool in POOLS}

    made: dict[str, Any] = {name: flow(name) for name in FLOWS}
    for name, held in ACTIVE.items():
        made[name] = flow(name)
        for pool, figures in made[name].items():
            figures["allocated"] = made[held][pool]["allocated"]
            figures["freed"] = figures["allocated"] - figures["current"]
    made.update({name: flat.get(name, 0) for name in COUNTS})
    made.update({name: dict.fromkeys(KINDS, 0) for name in OVERSIZE})
    return {**made, "num_sync_all_streams": 0, "max_split_size": -1}


def subtract(figures: dict[str, Any], base: dict[str, Any]) -> None:
    """Subtracts the counts from the time of reset_accumulated_memory_stats()."""
    for name in (*FLOWS, *ACTIVE):
        for pool in POOLS:
            for kind in ("allocated", "freed"):
                figures[name][pool][kind] -= base[name][pool][kind]
    for name in COUNTS:
        figures[name] -= base[name]


class Figures:
    """The answers. `history` is terrazzo.torch.history."""

    def __init__(self, library: _native.Library, history: Callable[..., None], devices: Callable[[], int]):
        self.library, self.history, self.devices = library, history, devices
        self.bases: dict[int, dict[str, Any]] = {}
        self.recording = False
        self.events, self.frames, self.skipped = 0, False, frozenset[str]()

    def heap(self, device: int) -> Any:
        """A device's heap, false if it has none yet."""
        count = self.devices()
        if not 0 <= device < count:
            raise RuntimeError(f"Invalid device argument {device}: this machine has {count} device{'s'[:count != 1]}")
        return self.library.heap(device, open=False)

    def settled(self, device: int) -> dict[str, Any]:
        """The figures once the heap has asked how far the streams are, if freed memory waits for one."""
        heap, flat = self.heap(device), self.library.stats(device)
        if flat.get("pending.current"):
            with contextlib.suppress(Error):  # a heap that cannot ask still has figures
                self.library.trz_poll(heap)
            flat = self.library.stats(device)
        return nested(flat)

    def stats(self, device: int) -> dict[str, Any]:
        figures = self.settled(device)
        if device in self.bases:
            subtract(figures, self.bases[device])
        return figures

    def reset_accumulated(self, device: int) -> None:
        self.bases[device] = self.settled(device)

    def reset_peaks(self, device: int) -> None:
        heap = self.heap(device)
        if heap:
            self.library.trz_reset_peaks(heap)

    def fraction(self, device: int) -> float:
        self.heap(device)
        return self.library.trz_torch_get_fraction(device)

    def one(self, device: int) -> dict[str, Any]:
        """The snapshot of a device, as PyTorch would write it."""
        heap = self.library.heap(device, open=False)
        found = read_snapshot(self.library, heap) if heap else {"segments": [], "device_traces": []}
        events = found["device_traces"][device] if heap else []
        found["device_traces"] = [e for e in events if e["action"] not in self.skipped][-max(1, self.events):]
        for entry in (*found["segments"], *found["device_traces"]):
            self.name_pool(device, entry)
        for segment in found["segments"]:
            count_sizes(segment)
        return found

    def name_pool(self, device: int, entry: dict[str, Any]) -> None:
        """Gives a pool of PyTorch's the id by which PyTorch knows it."""
        for key in ("pool_id", "segment_pool_id"):
            if key in entry and entry[key][1]:
                entry[key] = self.library.pool_id(device, entry[key][1]) or entry[key]

    def snapshot(self, wanted: tuple[int, ...] | None = None, *_: Any) -> dict[str, Any]:
        """A snapshot of all devices. `wanted`: a pool's id, (0, 0) for all memory; behind it, whether with events."""
        pool, traces = tuple((wanted or (0, 0))[:2]), all((wanted or ())[2:])
        whole: dict[str, Any] = {"segments": [], "device_traces": [], "allocator_settings": {},
                                 "external_annotations": []}
        for device in range(self.devices()):
            one = self.one(device)
            whole["segments"] += [s for s in one["segments"] if pool in ((0, 0), s["segment_pool_id"])]
            whole["device_traces"].append(one["device_traces"] if traces else [])
            whole["allocator_settings"].update(one.get("allocator_settings", {}))
            if "terrazzo" in one:  # readers know by it whose snapshot this is
                add_own(whole.setdefault("terrazzo", {}), one["terrazzo"])
        return whole

    def record(self, enabled: str | None = "all", context: str | None = "all", stacks: str = "all",
               max_entries: int = MOST_EVENTS, clear_history: bool = False, compile_context: bool = False,
               annotations: bool = False, skip_actions: Sequence[str] = (), pinned: bool = False,
               cuda: bool = True) -> None:
        expect("state", enabled, ("state", "all", None))
        expect("context", context, ("state", "alloc", "all", None))
        expect("stacks", stacks, ("python", "all"))
        if operator.index(max_entries) < 0:
            raise TypeError(f"max_entries is {max_entries}: a history cannot have fewer than no entries")
        for action in skip_actions:
            if action not in ACTIONS:
                raise RuntimeError(f"Unknown TraceEntry action: {action}")
        if not cuda or not enabled and not self.recording:
            return
        events = max(1, min(max_entries, MOST_EVENTS)) if enabled == "all" else 1  # a state has no past
        self.skipped = frozenset(skip_actions)
        self.begin(enabled is not None, events, context is not None, clear_history)

    def begin(self, enabled: bool, events: int, frames: bool, clear: bool) -> None:
        """Starts the history, unless the one that there is will do: starting forgets all events and stacks."""
        if not (enabled and self.recording and not clear and frames == self.frames and events <= self.events):
            self.history(enabled, events=events, frames=frames)
        self.recording, self.events, self.frames = enabled, events, frames

    def record_legacy(self, enabled: bool, context: bool = True, max_entries: int = 1, events_context: bool = False,
                      cpp: bool = False, *more: Any) -> None:
        """Starts a history, as programs for PyTorch before 2.1 ask for it."""
        self.record("all" if enabled else None, "all" if context else None, "all", max_entries, *more)

    def is_recording(self) -> bool:
        return self.recording


def expect(name: str, word: str | None, words: tuple[str | None, ...]) -> None:
    """Refuses a word that an argument must not be, with PyTorch's own error."""
    if word not in words:
        *others, last = map(repr, words)
        raise RuntimeError(f"expected {name} to be {', '.join(others)}, or {last}")


def count_sizes(segment: dict[str, Any]) -> None:
    """Counts what is held as the statistics do: a slot is longer than its counted bytes."""
    held = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
    counted = sum(-(-block["requested_size"] // UNIT) * UNIT for block in held)
    segment["active_size"] += counted - segment["allocated_size"]
    segment["allocated_size"] = counted


def read_snapshot(library: _native.Library, heap: Any) -> dict[str, Any]:
    """The snapshot that trz_snapshot writes, with pool ids in PyTorch's form."""
    descriptor, path = tempfile.mkstemp(suffix=".json")
    os.close(descriptor)
    try:
        library.trz_snapshot(heap, os.fsencode(path))
        with open(path, encoding="utf-8") as stream:
            return json.load(stream, object_hook=with_pool_ids)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def add_own(whole: dict[str, Any], one: dict[str, Any]) -> None:
    """Adds another device's part of what only terrazzo's snapshots have."""
    for key, value in one.items():
        whole[key] = whole[key] + value if key in whole and key != "version" else value


def with_pool_ids(entry: dict[str, Any]) -> dict[str, Any]:
    """Pool ids as in PyTorch's own snapshots, which JSON cannot express."""
    for key in ("pool_id", "segment_pool_id"):
        if key in entry:
            entry[key] = tuple(entry[key])
    return entry


def answer(torch: Any, figures: Figures) -> None:
    """From now on `figures` answers torch.cuda.memory's functions; functions that this PyTorch lacks are not added."""
    answers = {"_cuda_memoryStats": figures.stats, "_cuda_resetAccumulatedMemoryStats": figures.reset_accumulated,
               "_cuda_resetPeakMemoryStats": figures.reset_peaks, "_cuda_memorySnapshot": figures.snapshot,
               "_cuda_getMemoryFraction": figures.fraction, "_cuda_record_memory_history": figures.record,
               "_cuda_record_memory_history_legacy": figures.record_legacy,
               "_cuda_isHistoryEnabled": figures.is_recording}
    for name, function in answers.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)
