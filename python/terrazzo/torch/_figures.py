# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.memory's answers when terrazzo is installed without its shim.

PyTorch's class for pluggable allocators refuses each question about its memory, and a program that asks ends there.
Python reaches that class through functions of torch._C: this module answers some of them instead, from the heaps.
"""
from __future__ import annotations

import contextlib
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Callable

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

    def stats(self, device: int) -> dict[str, Any]:
        figures = nested(self.library.stats(device))
        if device in self.bases:
            subtract(figures, self.bases[device])
        return figures

    def reset_accumulated(self, device: int) -> None:
        self.bases[device] = nested(self.library.stats(device))

    def reset_peaks(self, device: int) -> None:
        heap = self.library.heap(device, open=False)
        if heap:
            self.library.trz_reset_peaks(heap)

    def fraction(self, device: int) -> float:
        return self.library.trz_torch_get_fraction(device)

    def snapshot(self, *_: Any) -> dict[str, Any]:
        """A snapshot of all devices."""
        whole: dict[str, Any] = {"segments": [], "device_traces": [], "allocator_settings": {},
                                 "external_annotations": []}
        for device in range(self.devices()):
            heap = self.library.heap(device, open=False)
            one = read_snapshot(self.library, heap) if heap else {"segments": [], "device_traces": []}
            whole["segments"] += one["segments"]
            whole["device_traces"].append(one["device_traces"][device] if one["device_traces"] else [])
            whole["allocator_settings"].update(one.get("allocator_settings", {}))
            if "terrazzo" in one:  # readers know by it whose snapshot this is
                add_own(whole.setdefault("terrazzo", {}), one["terrazzo"])
        return whole

    def record(self, enabled: str | None = "all", context: str | None = "all", stacks: str = "all",
               max_entries: int = MOST_EVENTS, *_: Any, **__: Any) -> None:
        expect("state", enabled, ("state", "all", None))
        expect("context", context, ("state", "alloc", "all", None))
        expect("stacks", stacks, ("python", "all"))
        if not enabled and not self.recording:
            return
        self.recording = enabled is not None
        events = max(1, min(max_entries, MOST_EVENTS)) if enabled == "all" else 1  # a state has no past
        self.history(self.recording, events=events, frames=context is not None)

    def record_legacy(self, enabled: bool, context: bool = True, max_entries: int = 1, *_: Any, **__: Any) -> None:
        """Starts a history, as programs for PyTorch before 2.1 ask for it."""
        self.record("all" if enabled else None, "all" if context else None, max_entries=max_entries)

    def is_recording(self) -> bool:
        return self.recording


def expect(name: str, word: str | None, words: tuple[str | None, ...]) -> None:
    """Refuses a word that an argument must not be, with PyTorch's own kind of error."""
    if word not in words:
        raise RuntimeError(f"expected {name} to be {' or '.join(map(repr, words))}, not {word!r}")


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
