#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/stats.md and docs/options.md from the lists that the code itself uses, and the picture of alloc/ in
docs/design.md from alloc/'s includes.

    gen_docs.py [ROOT]            writes the pages
    gen_docs.py --check [ROOT]    writes nothing; exit status 1 when a page is stale
"""
import ast
import re
import sys
import textwrap
from pathlib import Path

import layers

WIDTH = 110
NOTE = "<!-- Made by tools/gen_docs.py from {}: change that file, then run the script. -->"
POOLS = ("all", "small_pool", "large_pool")
FLOW_KINDS = ("current", "peak", "allocated", "freed")
LEVEL_KINDS = ("current", "peak")

# Names that torch.cuda.memory_stats() has, too, with this meaning.
TORCH = {"allocation", "allocated_bytes", "requested_bytes", "reserved_bytes", "segment", "active",
         "active_bytes", "num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"}


# ---- reading C -------------------------------------------------------------------------------------------

def arguments(text, start):
    """The arguments, as written, of the macro call whose opening bracket ends at `start`."""
    depth, found = 1, [""]
    for token in re.findall(r'"(?:\\.|[^"\\])*"|[^"(),]+|[(),]', text[start:]):
        depth += (token == "(") - (token == ")")
        if depth == 0:
            return [argument.strip() for argument in found]
        if token == "," and depth == 1:
            found.append("")
        else:
            found[-1] += token
    raise ValueError("a bracket is not closed")


def macro_calls(path, macros):
    """(macro, arguments) of each call that begins a line."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    for match in re.finditer(rf"^({'|'.join(macros)})\(", text, re.M):
        yield match.group(1), arguments(text, match.end())


def string(argument):
    """The value of adjacent string literals."""
    return "".join(ast.literal_eval(part) for part in re.findall(r'"(?:\\.|[^"\\])*"', argument))


class Constants:
    """Named numbers of some headers, and the expressions made of them."""

    def __init__(self, *headers):
        text = "\n".join(header.read_text() for header in headers)
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        self.named = dict(re.findall(r"^#define (\w+) (.+)$", text, re.M))
        self.named.update(re.findall(r"^\s+([A-Z]\w*) = ([^,\n]+),?$", text, re.M))

    def value(self, expression):
        expression = re.sub(r"\(u?int\d+_t\)", "", expression)
        for unit, shift in (("KIB", 10), ("MIB", 20), ("GIB", 30), ("TIB", 40)):
            expression = re.sub(rf"\b{unit}\(", f"(2**{shift}*", expression)
        expression = re.sub(r"\b[A-Z]\w*", lambda m: f"({self.value(self.named[m.group()])})", expression)
        if not re.fullmatch(r"[\d\s()*/+<>-]+", expression):
            raise ValueError(f"not a number: {expression}")
        return eval(expression)  # digits and operators only


# ---- statistics ------------------------------------------------------------------------------------------

class Statistic:
    """A row of counters.def, or one that counters.c makes: an id, and the full names that it makes."""

    def __init__(self, kind, key, unit, help_text, names):
        self.kind, self.key, self.unit, self.help, self.names = kind, key, unit, help_text, names

    @property
    def torch(self):
        return self.key.split(".")[0] in TORCH


def counted(root):
    """The rows of counters.def."""
    for macro, args in macro_calls(root / "stats" / "counters.def", ("FLOW", "LEVEL", "COUNT", "SUM")):
        if macro == "FLOW":
            names = [f"{args[0]}.{pool}.{kind}" for pool in POOLS for kind in FLOW_KINDS]
            yield Statistic(macro, args[0], string(args[1]), string(args[2]), names)
        elif macro == "LEVEL":
            names = [f"{args[0]}.{kind}" for kind in LEVEL_KINDS]
            yield Statistic(macro, args[0], string(args[1]), string(args[2]), names)
        elif macro == "COUNT":
            yield Statistic(macro, args[0], "count", string(args[1]), [args[0]])
        else:
            yield Statistic(macro, string(args[0]), string(args[1]), string(args[2]), [string(args[0])])


def statistics(root):
    """All statistics that trz_stats() returns."""
    yield from counted(root)
    header = (root / "include" / "terrazzo_driver.h").read_text()
    slots = re.search(r"#define TRZ_DRIVER_SLOTS\(X\)((?:.*\\\n)*.*)", header).group(1)
    code = (root / "stats" / "counters.c").read_text()
    help_text = re.search(r'"driver_calls\." #slot, "count", "([^"]+)"', code).group(1)
    for slot in re.findall(r"X\((\w+)\)", slots):
        yield Statistic("DRIVER", slot, "count", help_text, [f"driver_calls.{slot}"])
    for name, help_text in re.findall(r'put_ratio\(\w+, "([^"]+)",\s+"([^"]+)"', code):
        yield Statistic("RATIO", name, "ratio", help_text, [name])


STATS_HEAD = """
`trz_stats()` returns all statistics at once, `trz_stat()` one by name. They take no lock that allocation takes, so
figures read while other threads allocate are of slightly different moments. `trz_reset_peaks()` sets every peak to the
current value.

A ✓ under *torch* marks a name that `torch.cuda.memory_stats()` has with this meaning. The two differ in detail:

- the small pool counts requests up to `medium_limit` (docs/options.md), 1 MiB as in PyTorch: those that the windows of
  small memory serve;
- `requested_bytes` falls at the free, as `allocated_bytes` does; PyTorch's falls when the free completes;
- `segment` counts physical handles; PyTorch's leaves expandable segments out;
- `num_device_alloc` and `num_device_free` count physical memory created and returned; PyTorch's count each mapping and
  unmapping;
- `active` and `active_bytes` have only `current` and `peak`.

These add up exactly whenever the growth lock and the heap lock are held (docs/invariants.md, I9):

    reserved_bytes = requested_bytes + rounding_bytes + pending_bytes + cached_bytes + free_slot_bytes
                   + idle_bytes + zombie_bytes
"""

STATS_SECTIONS = (
    ("FLOW", "Flows", "Each gives twelve statistics, `<name>.<pool>.<kind>`: pool `all`, "
     "`small_pool` or `large_pool`; kind `current`, `peak`, `allocated` (ever) or `freed` (ever)."),
    ("LEVEL", "Levels", "Each gives two: `<name>.current` and `<name>.peak`."),
    ("COUNT", "Counts", "Since the heap was opened."),
    ("SUM", "Derived statistics", "Full names."),
    ("RATIO", "Ratios", "From 0 to 1, in the field `ratio` instead of `value`."),
)


def table(rows):
    rows = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return ["| " + " | ".join(row) + " |" for row in rows]


def stats_page(root):
    every = list(statistics(root))
    lines = ["# Statistics", "", NOTE.format("stats/counters.def"), STATS_HEAD.rstrip()]
    for kind, title, text in STATS_SECTIONS:
        rows = [["name", "unit", "torch", "what"]]
        rows += [[f"`{s.key}`", s.unit, "✓" if s.torch else "", s.help] for s in every if s.kind == kind]
        lines += ["", f"## {title}", "", *textwrap.wrap(text, WIDTH), "", *table(rows)]
    slots = [s for s in every if s.kind == "DRIVER"]
    text = f"`driver_calls.<slot>`, unit count: {slots[0].help}, failed calls included. The slots are " + \
        ", ".join(f"`{s.key}`" for s in slots) + "; include/terrazzo_driver.h describes each."
    lines += ["", "## Calls of the driver", "", *textwrap.wrap(text, WIDTH, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


# ---- options ---------------------------------------------------------------------------------------------

OPTIONS = "alloc/ground/config_options.def"


class Option:
    def __init__(self, key, kind, choices, initial, help_text):
        self.key, self.type, self.choices, self.initial, self.help = key, kind, choices, initial, help_text


def bytes_text(value):
    """A number of bytes in the largest unit that divides it."""
    units = ["", "KiB", "MiB", "GiB", "TiB"]
    while value and len(units) > 1 and value % 1024 == 0:
        value //= 1024
        units.pop(0)
    return f"{value}{units[0]}"


def options(root):
    constants = Constants(*(root / "alloc" / "ground" / name for name in ("types.h", "sizeclass.h", "config.h")))
    path = root / OPTIONS
    for macro, args in macro_calls(path, ("BYTES", "NUMBER", "SWITCH", "TEXT")):
        if macro == "SWITCH":
            yield Option(args[0], "bool", "on, off", "on" if args[1] == "true" else "off", string(args[2]))
            continue
        if macro == "TEXT":
            most = constants.value("CONFIG_TEXT_BYTES") - 1
            choices = f"none, or up to {most} characters without comma or space"
            yield Option(args[0], "text", choices, "none", string(args[1]))
            continue
        text = bytes_text if macro == "BYTES" else str
        initial, least, most = (text(constants.value(arg)) for arg in args[1:4])
        kind = "bytes" if macro == "BYTES" else "count"
        yield Option(args[0], kind, f"{least} to {most}", initial, string(args[4]))


OPTIONS_HEAD = """
`TERRAZZO_CONF="key:value,key:value"` configures every heap of a process; a text of this form in
`trz_open_params.config` configures one heap, and overrides the environment. White space around keys and values is
ignored; inside one it is refused. Sizes are plain numbers of bytes, or have a suffix `KiB`, `MiB`, `GiB` or `TiB` and,
if you like, a decimal fraction, with a point whatever the program's locale. An unknown key or a bad value makes
`trz_open()` fail with an error that names the key and the choices; `terrazzo config --check "key:value"` and
`trz_config_check()` check without opening anything. `terrazzo config` lists the options. A `tile_size_max` below
`tile_size` is raised to it.
"""


def options_page(root):
    lines = ["# Options", "", NOTE.format(OPTIONS), OPTIONS_HEAD.rstrip()]
    for option in options(root):
        facts = f"{option.type}, {option.choices}; default {option.initial}"
        sentence = option.help[0].upper() + option.help[1:] + "."
        lines += ["", f"## {option.key}", "", f"*{facts}*", "", *textwrap.wrap(sentence, WIDTH)]
    return "\n".join(lines) + "\n"


# ---- the floors of alloc/ in docs/design.md ----------------------------------------------------------------

FLOORS = re.compile(r"(<!-- Made by tools/gen_docs.py from the includes of alloc/. -->\n```\n).*?(```\n)", re.S)


def design_page(root):
    """The page with a new picture of alloc/."""
    picture = "\n".join(layers.Layers(root).picture()) + "\n"
    page = (root / "docs/design.md").read_text(encoding="utf-8")
    return FLOORS.sub(lambda m: m.group(1) + picture + m.group(2), page)


# ---- the pages -------------------------------------------------------------------------------------------

PAGES = (("docs/stats.md", stats_page), ("docs/options.md", options_page), ("docs/design.md", design_page))


def main(args):
    check = "--check" in args
    roots = [arg for arg in args if arg != "--check"]
    root = Path(roots[0]) if roots else Path(__file__).resolve().parent.parent
    stale = False
    for name, make in PAGES:
        page, path = make(root), root / name
        if path.exists() and path.read_text(encoding="utf-8") == page:
            continue
        if check:
            print(f"{name} is stale: run tools/gen_docs.py")
            stale = True
        else:
            path.write_text(page, encoding="utf-8")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
