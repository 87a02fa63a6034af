#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks memory snapshots (JSON, or pickles of plain data) against the requirements of PyTorch's tools and viewer.

    check_snapshot.py FILE...       exit status 1 when a rule is broken, 2 when a file cannot be read

One line a break: `FILE: RULE: where: what`. The rules:

    form       the keys that tools read exist, with the right types; states and actions are known ones
    number     every integer is one that a double can hold; no NaN, no infinity
    order      segments are sorted by address and do not overlap; times do not run backwards
    tiling     blocks cover their segment without gap or overlap
    sum        a segment's sizes are the sums of its blocks
    device     every device with segments has a trace
    category   traces with categories have the category "unknown" as well, else the viewer stops
    segment    replayed backwards as the viewer does, each segment event meets the memory that it speaks of
    block      in that replay each allocation and free meets its block, inside a segment, overlapping no other
    pair       free_requested and free_completed belong together
    tile       of terrazzo's: tiles lie in their windows; those whose memory is used where they lie are the segments
"""
import bisect
import json
import pickle
import sys

INTEGER_LIMIT = 1 << 53
STATES = {"active_allocated", "active_pending_free", "inactive"}
ACTIONS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
           "segment_unmap", "snapshot", "oom", "annotate"}
NUMBER, TEXT, FLAG, LIST, DICT, PAIR = "an integer", "a text", "a boolean", "a list", "an object", "two integers"
TOP = {"segments": LIST, "device_traces": LIST, "allocator_settings": DICT, "external_annotations": LIST,
       "host_segments": LIST, "host_traces": LIST}
SEGMENT = {"device": NUMBER, "address": NUMBER, "total_size": NUMBER, "allocated_size": NUMBER,
           "active_size": NUMBER, "requested_size": NUMBER, "stream": NUMBER, "segment_type": TEXT,
           "segment_pool_id": PAIR, "is_expandable": FLAG, "frames": LIST, "blocks": LIST}
BLOCK = {"address": NUMBER, "size": NUMBER, "requested_size": NUMBER, "state": TEXT, "frames": LIST}
ENTRY = {"action": TEXT, "size": NUMBER, "stream": NUMBER, "time_us": NUMBER, "compile_context": TEXT,
         "user_metadata": TEXT, "pool_id": PAIR}
FRAME = {"filename": TEXT, "line": NUMBER, "name": TEXT}


class Broken(Exception):
    """A rule is broken in a way that makes the rest of its check meaningless."""

    def __init__(self, rule, where, what):
        super().__init__(f"{rule}: {where}: {what}")


def is_number(value):
    return isinstance(value, int) and not isinstance(value, bool)


HAS_TYPE = {
    NUMBER: is_number,
    TEXT: lambda value: isinstance(value, str),
    FLAG: lambda value: isinstance(value, bool),
    LIST: lambda value: isinstance(value, (list, tuple)),
    DICT: lambda value: isinstance(value, dict),
    PAIR: lambda value: isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_number, value)),
}


def need_keys(value, keys, where):
    if not isinstance(value, dict):
        raise Broken("form", where, "is not an object")
    for key, kind in keys.items():
        if key not in value:
            raise Broken("form", where, f"has no {key}")
        if not HAS_TYPE[kind](value[key]):
            raise Broken("form", where, f"{key} is not {kind}")


def check_numbers(value, where):
    if isinstance(value, dict):
        for key, item in value.items():
            check_numbers(item, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            check_numbers(item, f"{where}[{index}]")
    elif isinstance(value, int) and abs(value) >= INTEGER_LIMIT:
        raise Broken("number", where, f"{value} is not below 2^53")
    elif isinstance(value, float) and value - value != 0:
        raise Broken("number", where, f"{value} is not a number")


def check_frames(owner, where):
    for index, frame in enumerate(owner.get("frames", [])):
        need_keys(frame, FRAME, f"{where}.frames[{index}]")


# ---- segments and blocks --------------------------------------------------------------------------------

def check_block(block, where):
    need_keys(block, BLOCK, where)
    check_frames(block, where)
    if block["state"] not in STATES:
        raise Broken("form", where, f"no state is called {block['state']}")
    too_small = block["state"] != "inactive" and block["requested_size"] > block["size"]
    if block["size"] <= 0 or block["requested_size"] < 0 or too_small:
        raise Broken("form", where, f"size {block['size']}, requested_size {block['requested_size']}")


def check_segment(segment, where):
    need_keys(segment, SEGMENT, where)
    check_frames(segment, where)
    if segment["segment_type"] not in ("small", "large"):
        raise Broken("form", where, f"no segment_type is called {segment['segment_type']}")
    address, end = segment["address"], segment["address"] + segment["total_size"]
    for index, block in enumerate(segment["blocks"]):
        inner = f"{where}.blocks[{index}]"
        check_block(block, inner)
        if block["address"] != address:
            raise Broken("tiling", inner, f"is at {block['address']:#x}, the one before ends at {address:#x}")
        address += block["size"]
    if address != end or not segment["blocks"]:
        raise Broken("tiling", where, f"its blocks end at {address:#x}, it ends at {end:#x}")
    active = [block for block in segment["blocks"] if block["state"] != "inactive"]
    sums = {"allocated_size": sum(b["size"] for b in active if b["state"] == "active_allocated"),
            "active_size": sum(b["size"] for b in active),
            "requested_size": sum(b["requested_size"] for b in active)}
    for key, value in sums.items():
        if segment[key] != value:
            raise Broken("sum", where, f"{key} is {segment[key]}, that of its blocks {value}")


def check_segments(snapshot):
    before = None
    for index, segment in enumerate(snapshot["segments"]):
        where = f"segments[{index}]"
        check_segment(segment, where)
        if segment["device"] not in range(len(snapshot["device_traces"])):
            raise Broken("device", where, f"there is no trace of device {segment['device']}")
        if before and segment["address"] < before["address"]:
            raise Broken("order", where, "has a lower address than the one before")
        if before and segment["address"] < before["address"] + before["total_size"]:
            raise Broken("order", where, "overlaps the one before")
        before = segment


# ---- terrazzo's windows and tiles -----------------------------------------------------------------------

WINDOW = {"address": NUMBER, "reserved": NUMBER, "laid": NUMBER, "pool_id": PAIR, "kind": TEXT, "segment_type": TEXT,
          "tiles": LIST}
KINDS = {"packed", "view", "dedicated", "classic", "import"}
TILE_STATES = {"used": 3, "idle": 3, "alias": 4, "zombie": 3}   # and the length of a row


def check_tile(row, window, end, where):
    if len(row) < 3 or not is_number(row[0]) or not is_number(row[1]) or len(row) != TILE_STATES.get(row[2]):
        raise Broken("form", where, f"{row} is no tile")
    if row[0] < end or row[0] + row[1] > window["address"] + window["laid"] or row[1] <= 0:
        raise Broken("tile", where, f"{row[0]:#x} overlaps the one before or lies outside what is laid")
    return row[0] + row[1]


def check_windows(snapshot):
    windows, before = snapshot.get("terrazzo", {}).get("windows", []), 0
    for index, window in enumerate(windows):
        where = f"terrazzo.windows[{index}]"
        need_keys(window, WINDOW, where)
        if window["kind"] not in KINDS or window["address"] < before or window["laid"] > window["reserved"]:
            raise Broken("tile", where, "overlaps the one before, is more laid than reserved, or of no known kind")
        before, end = window["address"] + window["reserved"], window["address"]
        for number, row in enumerate(window["tiles"]):
            end = check_tile(row, window, end, f"{where}.tiles[{number}]")
    if windows:
        check_owned(snapshot, [row for window in windows for row in window["tiles"]])


def joined(ranges):
    out = []
    for start, end in sorted(ranges):
        if out and out[-1][1] == start:
            out[-1][1] = end
        else:
            out.append([start, end])
    return out


def check_owned(snapshot, tiles):
    """Checks that used and idle tiles together are the memory of all segments except imports."""
    owned = {row[0]: row for row in tiles if row[2] in ("used", "idle")}
    segments = joined((s["address"], s["address"] + s["total_size"]) for s in snapshot["segments"])
    if joined((a, a + row[1]) for a, row in owned.items()) != segments:
        raise Broken("tile", "terrazzo.windows", "the tiles whose memory is used there are not the segments")
    active = Ranges()
    for b in (b for s in snapshot["segments"] for b in s["blocks"] if b["state"] != "inactive"):
        active.add(b["address"], b["address"] + b["size"], None)
    for address, row in owned.items():
        if (active.overlapping(address, address + row[1]) is not None) != (row[2] == "used"):
            raise Broken("tile", f"{address:#x}", f"is {row[2]}, and its blocks say otherwise")
    for row in tiles:
        if row[2] == "alias" and row[3] not in owned:
            raise Broken("tile", f"{row[0]:#x}", f"its memory should be used at {row[3]:#x}, where no tile is")


# ---- traces ---------------------------------------------------------------------------------------------

def check_trace(trace, where):
    if not HAS_TYPE[LIST](trace):
        raise Broken("form", where, "is not a list")
    time = 0
    for index, entry in enumerate(trace):
        inner = f"{where}[{index}]"
        need_keys(entry, ENTRY, inner)
        check_frames(entry, inner)
        if entry["action"] not in ACTIONS:
            raise Broken("form", inner, f"no action is called {entry['action']}")
        need_keys(entry, {"device_free" if entry["action"] == "oom" else "addr": NUMBER}, inner)
        if entry["size"] < 0:
            raise Broken("form", inner, f"size {entry['size']}")
        if entry["time_us"] < time:
            raise Broken("order", inner, f"its time_us is {time - entry['time_us']} before that of the last")
        time = entry["time_us"]


def check_categories(snapshot):
    categories = {e["category"] for trace in snapshot["device_traces"] for e in trace if "category" in e}
    if categories and "unknown" not in categories:
        raise Broken("category", "device_traces", f"have {sorted(categories)} and not unknown")


class Ranges:
    """Disjoint ranges by address, each with a value."""

    def __init__(self):
        self.starts, self.rows = [], {}

    def at(self, address):
        """(start, end, value) of the range that holds the address, or None."""
        index = bisect.bisect_right(self.starts, address) - 1
        if index >= 0 and address < self.rows[self.starts[index]][0]:
            return (self.starts[index], *self.rows[self.starts[index]])
        return None

    def overlapping(self, start, end):
        """The start of some range that has a byte of [start, end), or None."""
        held = self.at(start)
        index = bisect.bisect_left(self.starts, start)
        if held:
            return held[0]
        return self.starts[index] if index < len(self.starts) and self.starts[index] < end else None

    def add(self, start, end, value):
        bisect.insort(self.starts, start)
        self.rows[start] = end, value

    def remove(self, start):
        del self.starts[bisect.bisect_left(self.starts, start)]
        return self.rows.pop(start)


class Replay:
    """The memory of one device; takes events back, one by one, from the snapshot's state."""

    def __init__(self, snapshot, device):
        self.segments = Ranges()          # value: stream
        self.blocks = Ranges()            # value: whether its free has been requested
        for segment in (s for s in snapshot["segments"] if s["device"] == device):
            end = segment["address"] + segment["total_size"]
            self.segments.add(segment["address"], end, segment["stream"])
            for b in (b for b in segment["blocks"] if b["state"] != "inactive"):
                size = max(b["requested_size"], 1)
                self.blocks.add(b["address"], b["address"] + size, b["state"] == "active_pending_free")

    def undo(self, event, where):
        """Takes one event back."""
        handler = getattr(self, "undo_" + event["action"], None)
        if handler:
            handler(event["addr"], event["size"], event["stream"], where)

    def block(self, address, size, where):
        held = self.blocks.at(address)
        if not held or held[0] != address:
            raise Broken("block", where, f"{address:#x} is neither active in the snapshot nor freed later")
        if held[1] - address != max(size, 1):
            raise Broken("block", where, f"size {size}; later it is {held[1] - address}")
        return held

    def undo_alloc(self, address, size, _stream, where):
        if self.block(address, size, where)[2]:
            raise Broken("pair", where, f"{address:#x} was freed later without a free_requested")
        self.blocks.remove(address)

    def undo_free_requested(self, address, size, _stream, where):
        held = self.blocks.at(address)
        if not held or held[0] != address or not held[2]:
            raise Broken("pair", where, f"{address:#x} is not pending, and no free_completed follows")
        self.block(address, size, where)
        self.blocks.rows[address] = held[1], False

    def undo_free_completed(self, address, size, _stream, where):
        end = address + max(size, 1)
        other = self.blocks.overlapping(address, end)
        if other is not None:
            raise Broken("block", where, f"{address:#x}: it overlaps active memory at {other:#x}")
        segment = self.segments.at(address)
        if not segment or end > segment[1]:
            raise Broken("block", where, f"{address:#x} lies in no segment")
        self.blocks.add(address, end, True)

    def take_out(self, start, end, where):
        """Removes a range from the segment that holds it."""
        segment = self.segments.at(start)
        if not segment or end > segment[1]:
            raise Broken("segment", where, f"{start:#x}: not in a segment, nor unmapped later")
        if self.blocks.overlapping(start, end) is not None:
            raise Broken("segment", where, f"{start:#x}: active memory lay there before")
        self.segments.remove(segment[0])
        for left, right in ((segment[0], start), (end, segment[1])):
            if left < right:
                self.segments.add(left, right, segment[2])

    def put_back(self, start, end, stream, where):
        if self.segments.overlapping(start, end) is not None:
            raise Broken("segment", where, f"{start:#x}: is mapped later without a segment_map")
        self.segments.add(start, end, stream)

    def undo_segment_alloc(self, address, size, _stream, where):
        segment = self.segments.at(address)
        if not segment or segment[:2] != (address, address + size):
            raise Broken("segment", where, f"{address:#x}: is not a segment of this size, nor freed later")
        self.take_out(address, address + size, where)

    def undo_segment_free(self, address, size, stream, where):
        self.put_back(address, address + size, stream, where)

    def undo_segment_map(self, address, size, _stream, where):
        self.take_out(address, address + size, where)

    def undo_segment_unmap(self, address, size, stream, where):
        start, end = address, address + size
        self.put_back(start, end, stream, where)
        for neighbour in (self.segments.at(start - 1), self.segments.at(end)):
            if neighbour and neighbour[2] == stream:
                self.segments.remove(neighbour[0])
                self.segments.remove(start)
                start, end = min(start, neighbour[0]), max(end, neighbour[1])
                self.segments.add(start, end, stream)


def check_replay(snapshot, device):
    replay = Replay(snapshot, device)
    trace = snapshot["device_traces"][device]
    for index in range(len(trace) - 1, -1, -1):
        replay.undo(trace[index], f"device_traces[{device}][{index}] {trace[index]['action']}")


# ---- the whole ------------------------------------------------------------------------------------------

def check(snapshot):
    """The breaks of a snapshot, as texts; at most one for each check."""
    problems = []

    def holds(function, *arguments):
        try:
            function(*arguments)
        except Broken as broken:
            problems.append(str(broken))

    holds(need_keys, snapshot, TOP, "snapshot")
    if problems:
        return problems
    holds(check_numbers, {key: snapshot[key] for key in TOP if key != "allocator_settings"}, "snapshot")
    for device, trace in enumerate(snapshot["device_traces"]):
        holds(check_trace, trace, f"device_traces[{device}]")
    holds(check_segments, snapshot)
    holds(check_windows, snapshot)
    if problems:
        return problems
    holds(check_numbers, snapshot["allocator_settings"], "allocator_settings")
    holds(check_categories, snapshot)
    for device in range(len(snapshot["device_traces"])):
        holds(check_replay, snapshot, device)
    return problems


class PlainUnpickler(pickle.Unpickler):
    """Refuses pickles that would run code."""

    def find_class(self, module, name):
        raise ValueError(f"is not plain data: it wants {module}.{name}")


def unique_keys(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError(f"a key stands twice in {sorted(key for key, _ in pairs)}")
    return result


def read(path):
    with open(path, "rb") as file:
        pickled = file.read(1) == b"\x80"
        file.seek(0)
        if pickled:
            return PlainUnpickler(file).load()
        return json.loads(file.read().decode("utf-8"), object_pairs_hook=unique_keys)


def main(paths):
    if not paths:
        print("usage: check_snapshot.py FILE...", file=sys.stderr)
        return 2
    status = 0
    for path in paths:
        try:
            problems = check(read(path))
        except (OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
            print(f"{path}: cannot be read: {error}")
            status = 2
            continue
        for problem in problems:
            print(f"{path}: {problem}")
        status = max(status, 1 if problems else 0)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
