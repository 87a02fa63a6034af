# SPDX-License-Identifier: Apache-2.0
"""Declares the C functions of terrazzo."""
from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p
from pathlib import Path

from ..parts import Error


class StatValue(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("unit", c_char_p), ("help", c_char_p), ("value", c_uint64), ("ratio", c_double)]


class PoolInfo(ctypes.Structure):
    _fields_ = [("id", c_uint), ("references", c_uint), ("pinned", c_bool), ("reserved", c_size_t),
                ("allocated", c_size_t), ("allocations", c_size_t)]


class TorchPoolId(ctypes.Structure):
    """PyTorch's id of a pool."""
    _fields_ = [("first", c_ulonglong), ("second", c_ulonglong)]


class BlockInfo(ctypes.Structure):
    _fields_ = [("address", c_uint64), ("size", c_uint64), ("requested", c_uint64), ("state", c_int),
                ("stream", c_void_p), ("tag", c_char_p), ("frames", c_uint64)]


class OomInfo(ctypes.Structure):
    _fields_ = [("requested", c_size_t), ("stream", c_void_p), ("device_free", c_size_t), ("device_total", c_size_t),
                ("limit", c_size_t), ("reserved", c_size_t), ("allocated", c_size_t), ("pending", c_size_t),
                ("cached", c_size_t), ("pinned", c_size_t), ("largest", c_size_t), ("missing", c_size_t),
                ("waits", c_uint), ("awaited_count", c_uint), ("awaited", c_void_p * 4)]


BLOCK_HELD = 1
REPORT_FAILURE, REPORT_JSON = 1, 2
TAKE_TEXT = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p, c_size_t)
VISIT_BLOCK = ctypes.CFUNCTYPE(None, c_void_p, POINTER(BlockInfo))


class Visitor(ctypes.Structure):
    _fields_ = [("segment", c_void_p), ("block", VISIT_BLOCK), ("event", c_void_p), ("user", c_void_p)]


class Frame(ctypes.Structure):
    _fields_ = [("filename", c_char_p), ("name", c_char_p), ("line", c_uint)]


class GrowthInfo(ctypes.Structure):
    _fields_ = [("site", c_uint), ("stack", c_uint64), ("tag", c_char_p), ("category", c_int), ("suspect", c_bool),
                ("live", c_uint64), ("grown", c_uint64), ("since_step", c_uint64), ("bytes_per_step", c_double),
                ("bytes_per_step_low", c_double), ("bytes_per_step_high", c_double), ("confidence", c_double)]


class ForecastInfo(ctypes.Structure):
    _fields_ = [("steps", c_double), ("steps_low", c_double), ("steps_high", c_double),
                ("seconds", c_double), ("seconds_low", c_double), ("seconds_high", c_double)]


class WarningInfo(ctypes.Structure):
    _fields_ = [("warning", c_int), ("share", c_double), ("allocated", c_size_t), ("reserved", c_size_t),
                ("room", c_size_t), ("growth", GrowthInfo), ("forecast", ForecastInfo)]


WARNINGS = {1: "full", 2: "fragmented", 3: "very_fragmented", 4: "growth"}
WARN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(WarningInfo))


# name: (result, arguments). A result of None here means a trz_status, which is checked.
SIGNATURES = {
    "trz_torch_heap": (None, [c_int, c_bool, POINTER(c_void_p)]),
    "trz_torch_trim": (c_size_t, [c_size_t]),
    "trz_torch_follow_events": (c_size_t, []),
    "trz_torch_set_fraction": (None, [c_int, c_double]),
    "trz_torch_get_fraction": (c_double, [c_int]),
    "trz_torch_pool_by_number": (TorchPoolId, [c_int, c_uint]),
    "trz_torch_history": (None, [c_size_t, c_void_p, c_void_p]),
    "trz_set_frame_callback": (None, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "trz_stats": (None, [c_void_p, POINTER(StatValue), c_size_t, POINTER(c_size_t)]),
    "trz_reset_peaks": (None, [c_void_p]),
    "trz_poll": (None, [c_void_p]),
    "trz_trim": (None, [c_void_p, c_size_t, POINTER(c_size_t)]),
    "trz_largest_block": (None, [c_void_p, c_void_p, POINTER(c_size_t)]),
    "trz_set_limit": (None, [c_void_p, c_size_t]),
    "trz_get_limit": (None, [c_void_p, POINTER(c_size_t)]),
    "trz_history_start": (None, [c_void_p, c_size_t]),
    "trz_history_stop": (None, [c_void_p]),
    "trz_snapshot": (None, [c_void_p, c_char_p]),
    "trz_walk": (None, [c_void_p, POINTER(Visitor)]),
    "trz_check": (None, [c_void_p]),
    "trz_step": (None, [c_void_p]),
    "trz_growth": (None, [c_void_p, POINTER(GrowthInfo), c_size_t, POINTER(c_size_t)]),
    "trz_forecast": (None, [c_void_p, POINTER(ForecastInfo)]),
    "trz_set_warning_callback": (None, [c_void_p, WARN, c_void_p]),
    "trz_site_frames": (None, [c_void_p, c_uint64, POINTER(Frame), c_size_t, POINTER(c_size_t)]),
    "trz_report": (None, [c_void_p, c_uint, TAKE_TEXT, c_void_p]),
    "trz_set_category": (None, [c_int]),
    "trz_categorize": (None, [c_void_p, c_void_p, c_int]),
    "trz_pool_create": (None, [c_void_p, POINTER(c_void_p)]),
    "trz_pool_release": (None, [c_void_p, c_void_p]),
    "trz_pool_begin": (None, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "trz_pool_end": (None, [c_void_p, c_void_p]),
    "trz_pool_query": (None, [c_void_p, c_void_p, POINTER(PoolInfo)]),
}


def checker(last_error):
    """Raises statuses other than TRZ_OK as Error. The plug's calls have a last error of their own."""
    last_error.restype = c_char_p

    def check(status, function, arguments):
        if status:
            raise Error(last_error().decode(errors="replace"))
        return status

    return check


class Library:
    """libterrazzo_torch.so with libterrazzo.so behind it. Statuses other than TRZ_OK are raised as Error."""

    def __init__(self, path: Path):
        self.path = path
        self._dll = ctypes.CDLL(str(path))
        of_plug, of_heap = checker(self._dll.trz_torch_last_error), checker(self._dll.trz_last_error)
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(self._dll, name)
            function.argtypes = arguments
            if result is None:
                function.restype = c_int
                function.errcheck = of_plug if name.startswith("trz_torch_") else of_heap
            else:
                function.restype = result
            setattr(self, name, function)
        self.trz_set_tag = self._dll.trz_set_tag
        self.trz_set_tag.argtypes, self.trz_set_tag.restype = [c_char_p], None
        self.trz_torch_shareable = self._dll.trz_torch_shareable
        self.trz_torch_shareable.argtypes, self.trz_torch_shareable.restype = [c_bool], None
        self.trz_torch_watch_captures = self._dll.trz_torch_watch_captures
        self.trz_torch_watch_captures.argtypes, self.trz_torch_watch_captures.restype = [], None
        self._tags: dict[int, bytes | None] = {}
        self._owner = self._dll.trz_torch_owner
        self._owner.argtypes, self._owner.restype = [c_void_p], c_void_p

    def address(self, name: str) -> int:
        return ctypes.cast(getattr(self._dll, name), c_void_p).value

    def heap(self, device: int, open: bool = True) -> c_void_p:
        out = c_void_p()
        self.trz_torch_heap(device, open, byref(out))
        return out

    def pool_id(self, device: int, number: int) -> tuple[int, int] | None:
        """PyTorch's id of the pool that snapshots give this number; None if PyTorch does not know it."""
        found = self.trz_torch_pool_by_number(device, number)
        return (found.first, found.second) if found.first or found.second else None

    def set_tag(self, text: str | None) -> None:
        """Keeps the bytes until the thread has another tag, since the heap keeps the pointer, not a copy; by the
        thread's number, since a thread that is not Python's may go on without its Python part."""
        tag = text.encode(errors="replace") if text else None
        self.trz_set_tag(tag)
        self._tags[threading.get_ident()] = tag

    def categorize(self, address: int, category: int) -> None:
        """Ignores memory that no heap has, such as that of PyTorch's own allocator in a part of the program."""
        heap = self._owner(address)
        if heap:
            self._dll.trz_categorize(heap, address, category)

    def report(self, device: int, flags: int) -> str:
        parts: list[bytes] = []

        def take(_: object, text: int, size: int) -> bool:
            parts.append(ctypes.string_at(text, size))
            return True

        self.trz_report(self.heap(device), flags, TAKE_TEXT(take), None)
        return b"".join(parts).decode(errors="replace")

    def stats(self, device: int) -> dict[str, int | float]:
        heap = self.heap(device, open=False)
        if not heap:
            return {}
        count = c_size_t()
        self.trz_stats(heap, None, 0, byref(count))
        values = (StatValue * count.value)()
        self.trz_stats(heap, values, count.value, byref(count))
        return {v.name.decode(): v.ratio if v.unit == b"ratio" else v.value for v in values}

    def newest_failure(self, device: int) -> OomInfo | None:
        """None if no allocation has failed."""
        heap, info = self.heap(device, open=False), OomInfo()
        return None if not heap or self._dll.trz_last_oom(heap, byref(info)) else info
