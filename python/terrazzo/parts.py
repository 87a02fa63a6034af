# SPDX-License-Identifier: Apache-2.0
"""Finds terrazzo's parts that are not Python."""
from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Iterator

HERE = Path(__file__).resolve().parent
LIBRARY = "libterrazzo_torch.so"


class Error(RuntimeError):
    """A call of terrazzo failed; the text names the thing and the remedy."""


def _library_folders() -> Iterator[str | Path]:
    if os.environ.get("TERRAZZO_LIBRARIES"):
        yield os.environ["TERRAZZO_LIBRARIES"]
    yield HERE / "lib"
    yield HERE.parents[1] / "build" / "lib"
    prefix = HERE.parents[3]  # of <prefix>/share/terrazzo/python/terrazzo
    yield prefix / "lib"
    yield prefix / "lib64"
    yield from sorted(prefix.glob("lib/*-linux-gnu"))


@functools.lru_cache(maxsize=None)  # TERRAZZO_LIBRARIES may be relative to where a program starts
def find_library() -> Path:
    """Finds the library in TERRAZZO_LIBRARIES, else in the package, the source tree or the installation prefix."""
    for folder in _library_folders():
        if (Path(folder) / LIBRARY).exists():
            return Path(folder).resolve() / LIBRARY
    raise Error(f"{LIBRARY} is missing: install all of terrazzo, or name the folder that has it in TERRAZZO_LIBRARIES")


def find_sources() -> dict[str, Path]:
    """The folders of the sources that this package compiles, and of terrazzo.h."""
    installed, tree = HERE / "src", HERE.parents[1]
    if (installed / "terrazzo.h").exists():
        return {"shim": installed, "frames": installed, "include": installed}
    if (tree / "include" / "terrazzo.h").exists():
        return {"shim": tree / "plug" / "torch", "frames": tree / "plug" / "python", "include": tree / "include"}
    raise Error("the sources that terrazzo compiles (terrazzo.h) are missing: install all of terrazzo")
