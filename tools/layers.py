# SPDX-License-Identifier: Apache-2.0
"""The floors of alloc/: its folders, in the order of the table in alloc/README.md, and their includes.

A module is a .c and a .h file of one name. A module includes only modules of its own floor or a lower one, and modules
do not include each other in a circle. tidy.py reports breaks of these rules; gen_docs.py draws the picture."""
import re
from pathlib import Path

FLOOR = re.compile(r"^\|\s*(\d+)\s*\|\s*`?(\w+)/?`?\s*\|", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
FILE_SUFFIXES = {".c", ".h"}


class Layers:
    def __init__(self, root):
        self.alloc = Path(root, "alloc")
        readme = self.alloc / "README.md"
        rows = FLOOR.findall(readme.read_text(encoding="utf-8")) if readme.exists() else []
        self.floors = {name: int(number) for number, name in rows}
        self.files = sorted(p for p in self.alloc.rglob("*") if p.suffix in FILE_SUFFIXES)
        self.by_name = {p.name: p for p in self.files}
        self.arrows = {}                       # (module, module) -> (file, line, included name) of the first include
        for path in self.files:
            self._read(path)

    def _read(self, path):
        text = path.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            target = self.by_name.get(Path(match.group(1)).name)
            if target and module(target) != module(path):
                line = text.count("\n", 0, match.start(1)) + 1
                self.arrows.setdefault((module(path), module(target)), (path, line, match.group(1)))

    @property
    def modules(self):
        return sorted({module(p) for p in self.files})

    def circles(self):
        """The modules of each circle; of several circles of the same modules, only the first one found."""
        below = {m: sorted(b for a, b in self.arrows if a == m) for m in self.modules}
        done, found = set(), []

        def walk(m, trail):
            if m in trail:
                found.append(trail[trail.index(m):])
            elif m not in done:
                for other in below[m]:
                    walk(other, trail + [m])
                done.add(m)

        for m in self.modules:
            walk(m, [])
        return found

    def problems(self):
        """(path, line, rule, text) of each break."""
        here = {folder(p) for p in self.files}
        for name in sorted(self.floors.keys() - here):
            yield self.alloc / "README.md", 1, "floor", f"alloc/{name}/ is on the table and holds no file"
        for path in self.files:
            if folder(path) not in self.floors:
                yield path, 1, "floor", f"its folder is on no floor of alloc/README.md: {folder(path)}"
        for path, line, name in self.arrows.values():
            own, other = (self.floors.get(folder(p), 0) for p in (path, self.by_name[Path(name).name]))
            if own < other:
                yield path, line, "floor", f"floor {own} may not include {name} of floor {other}"
        for circle in self.circles():
            if len({folder(m) for m in circle}) > 1:
                continue  # one of its arrows goes up
            path, line, name = self.arrows[circle[0], circle[1 % len(circle)]]
            yield path, line, "circle", " -> ".join(m.name for m in circle + circle[:1])

    def picture(self):
        """Draws the floors from the top, each with those that it uses."""
        uses = {}
        for path, _, name in self.arrows.values():
            uses.setdefault(folder(path), set()).add(folder(self.by_name[Path(name).name]))
        lines, count = [], 0
        for name in sorted(self.floors, key=self.floors.get, reverse=True):
            below = sorted(uses.get(name, set()) - {name}, key=self.floors.get, reverse=True)
            count += len(below)
            lines.append(f"{self.floors[name]:>2}  {name + '/':<10} uses {', '.join(below) or 'none'}")
        return lines + ["", f"{len(self.floors)} folders on {len(self.floors)} floors, {count} arrows, none upward; "
                        f"{len(self.modules)} modules, {len(self.arrows)} arrows, no circle"]


def folder(path):
    return path.parent.name


def module(path):
    return path.with_suffix("")
