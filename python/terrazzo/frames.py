# SPDX-License-Identifier: Apache-2.0
"""Python's stacks for the allocator: plug/python/python_frames.c, compiled for the Python that runs."""
from __future__ import annotations

import atexit
import ctypes
import sys
import threading
from pathlib import Path

from . import compiling, parts

missing = ""  # why there are none

_lock = threading.Lock()
_library: ctypes.CDLL | None = None


def flags() -> list[str]:
    sources = parts.find_sources()
    return ["-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{sources['include']}",
            f"{sources['frames']}/python_frames.c", "-pthread"]


def command() -> list[str]:
    """Flags for python_frames.c, which knows the frames of one minor version of Python."""
    import sysconfig
    headers = Path(sysconfig.get_path("include"))
    if sys.version_info < (3, 11):
        raise compiling.Missing("Python frames need Python 3.11 or newer")
    if not (headers / "internal" / "pycore_frame.h").exists():
        raise compiling.Missing(f"Python's headers are missing in {headers} (install python3-dev)")
    return [*compiling.find_compiler("C", "CC", "gcc", "clang", "cc"), "-isystem", str(headers), *flags()]


def path() -> Path:
    """The compiled library, made if it is not there. A Python without a global lock, or of another
    patch release, has other frames."""
    folders = parts.find_sources()
    sources = folders["frames"] / "python_frames.c", folders["include"] / "terrazzo.h"
    build = f"{sys.implementation.cache_tag}{sys.abiflags}"
    key = compiling.key_of("frames", build, [sys.base_prefix, sys.version, *flags()], sources, "CC")
    return compiling.made(key, command)


def library() -> ctypes.CDLL | None:
    """The library, ready to read stacks; None if it cannot be compiled here, and `missing` says why."""
    global _library, missing
    with _lock:
        if _library is None:
            try:
                _library = ctypes.CDLL(str(path()))
            except (compiling.Missing, OSError) as error:
                missing = str(error)
                return None
            _library.trz_python_prepare.restype = ctypes.c_bool
            atexit.register(_library.trz_python_end)
    if not _library.trz_python_prepare():
        raise MemoryError("no host memory for Python frames")
    return _library


def callbacks() -> tuple[int, int] | None:
    """The addresses of a trz_frame_callback and a trz_frame_text_callback; None as above."""
    found = library()
    return found and tuple(ctypes.cast(getattr(found, name), ctypes.c_void_p).value
                           for name in ("trz_python_stack", "trz_python_text"))
