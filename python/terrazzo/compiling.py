# SPDX-License-Identifier: Apache-2.0
"""Compiles what depends on the installed PyTorch or Python, once for each, and keeps it in the user's cache.

The folder is TERRAZZO_CACHE, else $XDG_CACHE_HOME/terrazzo, else ~/.cache/terrazzo.
"""
from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Callable, Iterable

from .parts import Error


class Missing(Error):
    """Something cannot be compiled here; the text says what is missing."""


def cache_folder() -> Path:
    given = os.environ.get("TERRAZZO_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(given) if given else Path(base) / "terrazzo"


def find_compiler(language: str, variable: str, *names: str) -> list[str]:
    """The command's words: the variable may have several, such as "ccache g++"."""
    import shlex
    for words in map(shlex.split, (os.environ.get(variable, ""), *names)):
        if words and shutil.which(words[0]):
            return words
    raise Missing(f"a {language} compiler is missing (install {names[0]}, or name one in {variable})")


def key_of(name: str, version: str, flags: list[str], sources: Iterable[Path], *variables: str) -> str:
    """A key made of all that decides what is compiled: the sources themselves, the versions and places of PyTorch and
    terrazzo, the machine's kind and libc, since machines and containers may share a home, and the variables by which a
    user chooses compiler and headers. Does not search for those, since every process of a job comes here: that is done
    only when something is compiled."""
    chosen = [os.environ.get(variable, "") for variable in variables]
    machine = [os.uname().machine, os.confstr("CS_GNU_LIBC_VERSION") or ""]
    digest = hashlib.sha256("\0".join([*flags, *chosen, *machine]).encode())
    for path in sources:
        digest.update(path.read_bytes())
    return f"{name}-{version}-{digest.hexdigest()[:16]}.so"


def made(key: str, command: Callable[[], list[str]]) -> Path:
    """The library with this key; if it is not there, compiles it by `command`."""
    folder = cache_folder()
    target = folder / key
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "w", encoding="utf-8") as lock:  # only one of many ranks compiles
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                compile_to(target, command())
    except OSError as error:
        raise Missing(f"{key} cannot be kept in {folder}: {error} (name another folder in TERRAZZO_CACHE)") from None
    return target


def compile_to(target: Path, command: list[str]) -> None:
    descriptor, part = tempfile.mkstemp(dir=target.parent, suffix=".part")
    os.close(descriptor)
    try:
        done = subprocess.run([*command, "-o", part], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode:
            log = target.with_suffix(".log")
            log.write_text(" ".join(command) + "\n" + done.stdout)
            first = next((line for line in done.stdout.splitlines() if "error" in line), "see there")
            raise Missing(f"{target.stem.split('-')[0]} does not compile here ({log}: {first})")
        os.chmod(part, 0o755)
        os.replace(part, target)
    finally:
        if os.path.exists(part):
            os.unlink(part)
