# SPDX-License-Identifier: Apache-2.0
"""docs/where.md names files that exist, and functions that they define; so does docs/design.md where it follows one
allocation."""
import os
import re
import unittest
from pathlib import Path

SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])


def defined(text, name):
    """Whether a source defines a function: its name begins a line's call, behind a type or a Python `def`."""
    return re.search(rf"^(?:def |[A-Za-z_][\w :*<>&]*?[ *&])\*?{name}\([^;]*?\)?[^;{{]*?(?:\{{|:$|->)", text, re.M)


def broken(page, root):
    """Names in the page's rows that do not exist."""
    for row in re.findall(r"^\|(?: [^|]*)?\| `([^`]+)` \|(.*)\|$", page, re.M):
        path = root / row[0]
        files = [f for f in path.iterdir() if f.is_file()] if path.is_dir() else [path]
        text = "\n".join(f.read_text() for f in files if f.exists())
        names = [] if text else [row[0]]
        yield from names
        yield from (f"{row[0]}: {name}" for name in owned(row[1]) if text and not defined(text, name))


def owned(answer):
    """Functions that an answer says are in its row's file: all but those named as callers."""
    return re.findall(r"`(\w+)\(\)`", answer.split("Callers:")[0])


class Where(unittest.TestCase):
    def test_page(self):
        page = (SOURCE / "docs" / "where.md").read_text()
        self.assertEqual(len(re.findall(r"^\| \w[^|]*\?", page, re.M)), 16)
        self.assertEqual(list(broken(page, SOURCE)), [])

    def test_followed_allocation(self):
        page = (SOURCE / "docs" / "design.md").read_text()
        section = page.split("## One allocation, followed\n")[1].split("\n## ")[0]
        words = set(re.findall(r"`([a-z_]+)`", section))
        slots = set(re.findall(r"\bX\((\w+)\)", (SOURCE / "include" / "terrazzo_driver.h").read_text()))
        text = "\n".join(f.read_text() for f in sorted((SOURCE / "alloc").rglob("*.[ch]")))
        self.assertGreater(len(words & slots), 5)
        self.assertEqual([word for word in sorted(words - slots) if not defined(text, word)], [])

    def test_what_is_missing_is_found(self):
        page = ("| a? | `alloc/memory/fit.c` | `fit_lost()`, `fit_find()` |\n"
                "| | `alloc/memory/lost.c` | `fit_find()` |\n"
                "| | `alloc/api/api.c` | `heap_poll()` |\n")  # called there, defined elsewhere
        self.assertEqual(list(broken(page, SOURCE)), ["alloc/memory/fit.c: fit_lost", "alloc/memory/lost.c",
                                                      "alloc/api/api.c: heap_poll"])


if __name__ == "__main__":
    unittest.main()
