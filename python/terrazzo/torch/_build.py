# SPDX-License-Identifier: Apache-2.0
"""Compiles what depends on the installed PyTorch (shim.cpp) and Python (python_frames.c), once for each, and keeps it
in the user's cache.

The folder is TERRAZZO_CACHE, else $XDG_CACHE_HOME/terrazzo, else ~/.cache/terrazzo.
"""
from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from . import _native


class Missing(_native.Error):
    """It cannot be compiled here; the text says what is missing."""


def cache_folder() -> Path:
    given = os.environ.get("TERRAZZO_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(given) if given else Path(base) / "terrazzo"


def find_compiler(language: str, variable: str, *names: str) -> str:
    for name in filter(None, (os.environ.get(variable), *names)):
        if shutil.which(name):
            return name
    raise Missing(f"a {language} compiler is missing (install {names[0]}, or name one in {variable})")


def find_cuda_headers() -> Path:
    """Of the package that PyTorch requires, else of a toolkit."""
    packages = Path(sysconfig.get_path("platlib")) / "nvidia"
    places = [*sorted(packages.glob("cu1[0-9]/include"), reverse=True), packages / "cuda_runtime" / "include"]
    toolkits = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    places += [Path(toolkit) / "include" for toolkit in toolkits if toolkit]
    for place in places:
        if (place / "cuda_runtime_api.h").exists():
            return place
    raise Missing("CUDA's headers are missing (pip install nvidia-cuda-runtime, or set CUDA_HOME)")


def loaded_cudart() -> str:
    """The CUDA runtime that PyTorch has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if "libcudart" in line:
                return line.split(maxsplit=5)[5].strip()
    raise Missing("PyTorch has loaded no CUDA runtime: this build of it cannot use CUDA")


def shim_command(torch, library: Path) -> list[str]:
    sources = _native.find_sources()
    root = Path(torch.__file__).parent
    link = root / "lib"
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    includes = [root / "include", root / "include" / "torch" / "csrc" / "api" / "include", find_cuda_headers()]
    standard = "-std=c++20" if version >= (2, 6) else "-std=c++17"
    standard = "-std=c++20" if version >= (2, 6) else "-std=c++17"
    return [find_compiler("C++", "CXX", "g++", "clang++", "c++"), standard, "-O2", "-fPIC", "-shared",
            "-fvisibility=hidden", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
            *(arg for path in includes for arg in ("-isystem", str(path))),
            f"-I{sources['include']}", f"-I{sources['plug']}", str(sources["plug"] / "shim.cpp"),
            str(library), str(library.with_name("libterrazzo.so")), f"-Wl,-rpath,{library.parent}",
            f"-L{link}", "-lc10", "-lc10_cuda", "-ltorch_cuda", "-ltorch_cpu", loaded_cudart()]


def frames_command() -> list[str]:
    """For python_frames.c, which knows the frames of one minor version of Python."""
    headers = Path(sysconfig.get_path("include"))
    if sys.version_info < (3, 11):
        raise Missing("Python frames need Python 3.11 or newer")
    if not (headers / "internal" / "pycore_frame.h").exists():
        raise Missing(f"Python's headers are missing in {headers} (install python3-dev)")
    sources = _native.find_sources()
    return [find_compiler("C", "CC", "gcc", "clang", "cc"), "-std=c11", "-O2", "-fPIC", "-shared",
            "-fvisibility=hidden", "-isystem", str(headers), f"-I{sources['include']}",
            str(sources["plug"] / "python_frames.c"), "-pthread"]


def key_of(name: str, version: str, command: list[str]) -> str:
    digest = hashlib.sha256("\0".join(command).encode())
    sources = _native.find_sources()
    for path in (*sorted(sources["plug"].glob("*.[ch]*")), sources["include"] / "terrazzo.h"):
        digest.update(path.read_bytes())
    return f"{name}-{version}-{digest.hexdigest()[:16]}.so"


def shim_path(torch, library: Path) -> Path:
    """The compiled shim, made if it is not there. Raises Missing."""
    return made("shim", torch.__version__, shim_command(torch, library))


def frames_path() -> Path:
    """The same for python_frames.c."""
    return made("frames", sys.implementation.cache_tag, frames_command())


def made(name: str, version: str, command: list[str]) -> Path:
    folder = cache_folder()
    target = folder / key_of(name, version, command)
    if target.exists():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "w", encoding="utf-8") as lock:  # one of many ranks compiles
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                compile_to(target, command)
    except OSError as error:
        raise Missing(f"{name} cannot be kept in {folder}: {error} (name another folder in TERRAZZO_CACHE)") from None
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
