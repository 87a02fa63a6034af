# SPDX-License-Identifier: Apache-2.0
"""Reads a compact trace (trace/trace_compact.c), for tests."""
from pathlib import Path

KINDS = ("end", "alloc", "free", "free_completed", "record_stream", "record", "wait", "capture", "end_capture",
         "begin_pool", "end_pool", "release_pool", "marker", "launch", "stream_sync", "event_sync", "device_sync",
         "blocking", "default_work")


def read_numbers(data):
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def read(path):
    """[(kind, stream, id, size, pool)]; the ids of allocations count up from 0."""
    data, events, allocations = Path(path).read_bytes(), [], 0
    assert data[:9] == b"\x89TRZ\r\n\x1a\n\x01"
    at = 12 + int.from_bytes(data[10:12], "little")
    while data[at + 1]:
        length, kind = data[at], KINDS[data[at + 1]]
        stream, number, size, pool = (*read_numbers(data[at + 2:at + 1 + length]), 0, 0, 0, 0)[:4]
        at += 1 + length
        if kind == "alloc":
            number, size, pool = allocations, number, size
            allocations += 1
        elif kind in ("free", "record_stream"):
            number = allocations - 1 - number
        events.append((kind, stream, number, size, pool))
    return events
