# SPDX-License-Identifier: Apache-2.0
"""terrazzo's heaps in gdb:

    (gdb) source tools/gdb/terrazzo_gdb.py
    (gdb) trz heap                  every open heap of the process, in figures
    (gdb) trz blocks [STATE]        the blocks of every window by address; only live, free, slab, pending, hole, busy
    (gdb) trz find ADDRESS          what lies at a device address

and prints blocks, slabs, windows and tiles in a line. It only reads memory, so it works on core dumps and on a process
that stopped with the heap's locks held; what it shows may then be half-way through a change. It needs terrazzo's debug
information, which a stripped package lacks.
"""
import gdb
import gdb.printing

STATES = ["free", "live", "slab", "pending", "hole", "busy"]  # enum block_state
KINDS = ["small", "large"]                                    # enum kind
GRANULE = 1 << 21


def size_text(size):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            number = size / (1 << shift)
            return f"{number:.2f}".rstrip("0").rstrip(".") + " " + unit
    return f"{size} B"


def number(value):
    """The value of an integer (atomic or not) or a pointer."""
    value_type = value.type.strip_typedefs().unqualified()
    if value_type.code == gdb.TYPE_CODE_STRUCT:
        return number(value[value_type.fields()[0]])
    return int(value)


def linked(first, field="next"):
    node = first
    while node:
        yield node.dereference()
        node = node[field]


def heaps():
    symbol = gdb.lookup_static_symbol("open_heaps")
    if symbol is None:
        raise gdb.GdbError("terrazzo is not loaded here, or has no debug information")
    return linked(symbol.value(), "next_open")


def windows(heap):
    for kind in range(2):
        yield from linked(heap["windows"][kind])


def state_of(block):
    state = number(block["state"])
    return STATES[state] if state < len(STATES) else f"state {state}?"


def stream_of(lane):
    return f"stream {number(lane['stream']['handle']):#x}" if lane else "no stream"


def pool_of(lane):
    return f", pool {number(lane['pool']['id'])}" if lane and lane["pool"] else ""


def slab_slots(slab):
    """(slot size, held, pending, free) of a slab."""
    classes = gdb.parse_and_eval("size_classes")
    size_class = classes[number(slab["size_class"])]
    slots = number(size_class["slots"])
    free, pending = (bin(number(slab[mask])).count("1") for mask in ("free", "pending"))
    return number(size_class["slot_size"]), slots - free - pending, pending, free


def block_text(block):
    state = state_of(block)
    text = f"{number(block['address']):#x} +{size_text(number(block['size']))} {state}"
    if state in ("live", "pending"):
        text += f", {number(block['requested'])} B requested"
        uses = sum(1 for _ in linked(block["uses"])) if state == "live" else 0
        text += f", used by {uses} more streams" if uses else ""
    elif state == "slab":
        size, held, pending, free = slab_slots(block["slab"])
        text += f" of {size} B: {held} held, {pending} pending, {free} free"
    elif state == "free":
        text += f", ticket {number(block['sequence'])}"
    return text if state == "hole" else f"{text}, {stream_of(block['home'])}{pool_of(block['home'])}"


class BlockPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        return "block " + block_text(self.value)


class SlabPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        size, held, pending, free = slab_slots(self.value)
        return f"slab {number(self.value['base']):#x} of {size} B: {held} held, {pending} pending, {free} free"


class TilePrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        places = [number(place["address"]) for place in linked(self.value["places"])]
        at = f"owned at {places[0]:#x}" if places else "mapped nowhere"
        also = f", {len(places) - 1} stale aliases" if len(places) > 1 else ""
        zombie = ", zombie" if number(self.value["zombie"]) else ""
        return f"tile of {size_text(number(self.value['size']))}, {at}{also}{zombie}"


def window_text(window):
    base, top = number(window["base"]), number(window["top"])
    kind = "classic" if window["classic"] else KINDS[number(window["kind"])]
    return (f"{base:#x} {kind}: {size_text(top - base)} laid of {size_text(number(window['size']))}, "
            f"{size_text(number(window['mapped']))} mapped")


class WindowPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        return "window " + window_text(self.value)


def register_printers():
    printers = gdb.printing.RegexpCollectionPrettyPrinter("terrazzo")
    for name, printer in (("block", BlockPrinter), ("slab", SlabPrinter), ("tile", TilePrinter),
                          ("window", WindowPrinter)):
        printers.add_printer(name, f"^{name}$", printer)
    gdb.printing.register_pretty_printer(gdb.current_objfile(), printers, replace=True)


def flow(counters, name):
    """The current value of a FLOW of counters.def, small and large together."""
    both = counters[name]
    return sum(number(both["allocated"][kind]) - number(both["freed"][kind]) for kind in range(2))


def held_by_callers(heap, name, measure):
    """The current value of a FLOW that counts blocks; each stream counts its slots."""
    streams = heap["streams"]
    slots = [streams["list"][i].dereference()["slots"] for i in range(number(streams["count"]))]
    return flow(heap["counters"], name) + sum(number(s["taken"][measure]) - number(s["given"][measure]) for s in slots)


def level(counters, name):
    return number(counters[name]["current"])


def show_heap(heap):
    counters = heap["counters"]
    print(f"heap {int(heap.address):#x} of device {number(heap['driver']['device'])}"
          f"{', its context has died' if number(heap['driver']['dead']) else ''}")
    rows = [("reserved", flow(counters, "reserved_bytes")), ("allocated", held_by_callers(heap, "allocated_bytes", 1))]
    rows += [(name, level(counters, name + "_bytes")) for name in ("cached", "pending", "idle", "zombie")]
    for name, size in rows:
        print(f"  {name:<10} {size_text(size)}")
    print(f"  {held_by_callers(heap, 'allocation', 0)} allocations, {flow(counters, 'segment')} tiles, "
          f"{level(counters, 'alias')} stale aliases, {number(heap['streams']['count'])} streams")
    held = [name for name, taken in (("heap lock", number(heap["lock"]["state"])),
                                     ("growth lock", number(heap["growth_lock"]["__data"]["__lock"]))) if taken]
    print(f"  locks held: {', '.join(held) if held else 'none'}")
    for window in windows(heap):
        print("  window " + window_text(window))


class Trz(gdb.Command):
    """Looks at terrazzo's heaps: trz heap, trz blocks [STATE], trz find ADDRESS."""

    def __init__(self):
        super().__init__("trz", gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)


class TrzHeap(gdb.Command):
    """Shows every open heap: what it holds, which locks are taken, its windows."""

    def __init__(self):
        super().__init__("trz heap", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        count = 0
        for heap in heaps():
            show_heap(heap)
            count += 1
        if not count:
            print("no heap is open")


class TrzBlocks(gdb.Command):
    """Lists the blocks of all windows, or with a state (live, free, slab, pending, hole, busy) those in it."""

    def __init__(self):
        super().__init__("trz blocks", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        wanted = argument.strip()
        if wanted and wanted not in STATES:
            raise gdb.GdbError(f"no state is called {wanted}; there are {', '.join(STATES)}")
        for heap in heaps():
            for window in windows(heap):
                print("window " + window_text(window))
                for block in linked(window["blocks"]["first"]):
                    if not wanted or state_of(block) == wanted:
                        print("  " + block_text(block))


def tile_at(window, address):
    if window["classic"]:
        return window["classic"].dereference()
    place = window["places"][(address - number(window["base"])) // GRANULE]
    return place["tile"].dereference() if place else None


class TrzFind(gdb.Command):
    """Tells what lies at a device address: window, block, slot, tile."""

    def __init__(self):
        super().__init__("trz find", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        address = int(gdb.parse_and_eval(argument))
        for heap in heaps():
            for window in windows(heap):
                if number(window["base"]) <= address < number(window["top"]):
                    self.show(window, address)
                    return
        print(f"{address:#x} lies in no window of a heap")

    def show(self, window, address):
        print("window " + window_text(window))
        for block in linked(window["blocks"]["first"]):
            start = number(block["address"])
            if not start <= address < start + number(block["size"]):
                continue
            print(f"block {block_text(block)}; {address - start} B into it")
            if state_of(block) == "slab":
                self.show_slot(block["slab"], address)
        tile = tile_at(window, address)
        print(TilePrinter(tile).to_string() if tile is not None else "nothing is mapped there")

    def show_slot(self, slab, address):
        size = slab_slots(slab)[0]
        slot = (address - number(slab["base"])) // size
        masks = [name for name in ("free", "pending") if slot < 64 and number(slab[name]) >> slot & 1]
        print(f"slot {slot}: {masks[0] if masks else 'held'}")


register_printers()
for command in (Trz, TrzHeap, TrzBlocks, TrzFind):
    command()
