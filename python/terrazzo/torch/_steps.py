# SPDX-License-Identifier: Apache-2.0
"""Steps of a program: what grows with them, when memory will run out, and warnings. An optimizer's step is one, until
the program itself says where its steps end."""
from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t
from typing import Any, Callable, Iterator

import torch

from . import _native
from ..parts import Error

FRAMES = 24
FINDINGS = 8

_told = False   # the program itself says where steps end
_keep: list[Any] = []  # callbacks; for a while a thread may still be inside an old one


def _heaps(library: _native.Library) -> Iterator[ctypes.c_void_p]:
    for device in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        heap = library.heap(device, open=False)
        if heap:
            yield heap


def end(library: _native.Library) -> None:
    """Ends a step, since the program says so."""
    global _told
    _told = True
    for heap in _heaps(library):
        library.trz_step(heap)


def follow_optimizers(library: Callable[[], _native.Library]) -> None:
    """Counts each step of an optimizer as a step, until `end` is called."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def ended(*_: Any) -> None:
        if not _told:
            for heap in _heaps(library()):
                library().trz_step(heap)

    register_optimizer_step_post_hook(ended)


def _stack(library: _native.Library, heap: ctypes.c_void_p, stack: int) -> list[str]:
    frames, count = (_native.Frame * FRAMES)(), c_size_t()
    library.trz_site_frames(heap, stack, frames, FRAMES, byref(count))
    return [f"{(f.filename or b'').decode(errors='replace')}:{f.line} {(f.name or b'').decode(errors='replace')}"
            for f in frames[:count.value]]


def _described(library: _native.Library, heap: ctypes.c_void_p, info: _native.GrowthInfo) -> dict[str, Any]:
    return {"stack": _stack(library, heap, info.stack) if info.stack else [],
            "tag": info.tag.decode(errors="replace"), "suspect": info.suspect,
            "bytes_per_step": info.bytes_per_step, "live": info.live, "grown": info.grown,
            "since_step": info.since_step, "confidence": info.confidence}


def growth(library: _native.Library, heap: ctypes.c_void_p) -> list[dict[str, Any]]:
    found, count = (_native.GrowthInfo * FINDINGS)(), c_size_t()
    library.trz_growth(heap, found, FINDINGS, byref(count))
    return [_described(library, heap, info) for info in found[:count.value]]


def _forecast(info: _native.ForecastInfo) -> dict[str, float]:
    return {name: getattr(info, name) for name, _ in info._fields_}


def forecast(library: _native.Library, heap: ctypes.c_void_p) -> dict[str, float] | None:
    info = _native.ForecastInfo()
    try:
        library.trz_forecast(heap, byref(info))
    except Error:
        return None
    return _forecast(info)


def on_warning(library: _native.Library, shim: ctypes.CDLL | None, heap: ctypes.c_void_p,
               callback: Callable[[str, dict[str, Any]], None] | None) -> None:
    def warn(_: object, pointer: Any) -> None:
        info = pointer.contents
        facts = {name: getattr(info, name) for name in ("share", "allocated", "reserved", "room")}
        if info.growth.bytes_per_step:
            facts |= {"growth": _described(library, heap, info.growth),
                      "forecast": _forecast(info.forecast) if info.forecast.steps else None}
        callback(_native.WARNINGS[info.warning], facts)

    called = _native.WARN(warn) if callback else _native.WARN()
    _keep.append(called)
    if shim:
        shim.trz_torch_shim_on_warning(heap, called)  # has no errors
    else:
        library.trz_set_warning_callback(heap, called, None)
