# SPDX-License-Identifier: Apache-2.0
"""Compiles the parts that depend on the installed PyTorch (shim.cpp, with every shim_*.cpp) and Python
(python_frames.c), once for each, and keeps them in the user's cache.

The folder is TERRAZZO_CACHE, else $XDG_CACHE_HOME/terrazzo, else ~/.cache/terrazzo.
"""
from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable

from . import _places

OLDEST = 2, 6  # PyTorch: the headers of older ones lack what the shim derives from
OLDEST_OBSERVED = 2, 4  # the same for terrazzo sim's observers


class Missing(_places.Error):
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


def find_cuda_headers() -> Path:
    """CUDA's headers: of the package that PyTorch requires, else of a toolkit."""
    import sysconfig
    packages = Path(sysconfig.get_path("platlib")) / "nvidia"
    places = [*sorted(packages.glob("cu1[0-9]/include"), reverse=True), packages / "cuda_runtime" / "include"]
    toolkits = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    places += [Path(toolkit) / "include" for toolkit in toolkits if toolkit]
    for place in places:
        if (place / "cuda_runtime_api.h").exists():
            return place
    raise Missing("CUDA's headers are missing (pip install nvidia-cuda-runtime, or set CUDA_HOME)")


def cuda_flags() -> list[str]:
    """Flags for CUDA's headers; behind them what NVIDIA's packages of them leave out (plug/torch/cuda/crt)."""
    return ["-isystem", str(find_cuda_headers()), "-idirafter", f"{_places.find_sources()['plug']}/cuda"]


def loaded_cudart() -> str:
    """The CUDA runtime that PyTorch has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if "libcudart" in line:
                return line.split(maxsplit=5)[5].strip()
    raise Missing("PyTorch has loaded no CUDA runtime: this build of it cannot use CUDA")


def shim_flags(torch, library: Path) -> list[str]:
    sources, root = _places.find_sources(), Path(torch.__file__).parent
    return ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-isystem", f"{root}/include",
            "-isystem", f"{root}/include/torch/csrc/api/include", f"-I{sources['include']}", f"-I{sources['plug']}",
            f"{sources['plug']}/shim.cpp", str(library), f"{library.parent}/libterrazzo.so",
            f"-Wl,-rpath,{library.parent}", f"-L{root}/lib", "-lc10", "-lc10_cuda", "-ltorch_cuda", "-ltorch_cpu"]


def shim_command(torch, library: Path) -> list[str]:
    return [*find_compiler("C++", "CXX", "g++", "clang++", "c++"), *shim_flags(torch, library), *cuda_flags(),
            loaded_cudart()]


def frames_flags() -> list[str]:
    sources = _places.find_sources()
    return ["-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{sources['include']}",
            f"{sources['plug']}/python_frames.c", "-pthread"]


def frames_command() -> list[str]:
    """Flags for python_frames.c, which knows the frames of one minor version of Python."""
    import sysconfig
    headers = Path(sysconfig.get_path("include"))
    if sys.version_info < (3, 11):
        raise Missing("Python frames need Python 3.11 or newer")
    if not (headers / "internal" / "pycore_frame.h").exists():
        raise Missing(f"Python's headers are missing in {headers} (install python3-dev)")
    return [*find_compiler("C", "CC", "gcc", "clang", "cc"), "-isystem", str(headers), *frames_flags()]


def observer_flags(torch, source: Path, header: Path) -> list[str]:
    """Flags for a file of python/terrazzo/sim that observes PyTorch, some of whose classes depend on NDEBUG."""
    root = Path(torch.__file__).parent
    return ["-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-isystem", f"{root}/include",
            f"-I{header.parent}", str(source), f"-L{root}/lib", "-lc10", "-lc10_cuda", "-ltorch_cpu"]


def observer_path(torch, name: str) -> Path:
    """The same for `name`.cpp of python/terrazzo/sim, whose text is part of the key, as is that of its headers."""
    require(torch, OLDEST_OBSERVED, f"{name}.cpp")
    folder = Path(__file__).resolve().parent.parent / "sim"
    headers = [place / "sim_recording.h" for place in (folder, *(parent / "sim" for parent in folder.parents))]
    source, header = folder / f"{name}.cpp", next(filter(Path.exists, headers), headers[0])
    flags = observer_flags(torch, source, header)
    texts = [path.read_text(encoding="utf-8") for path in (source, header, *sorted(folder.glob(f"{name}_*.hpp")))]
    key = key_of(name, torch.__version__, [str(torch.version.cuda), *flags, *texts], "CXX", "CUDA_HOME", "CUDA_PATH")
    return made(key, lambda: [*find_compiler("C++", "CXX", "g++", "clang++", "c++"), *flags, *cuda_flags()])


def key_of(name: str, version: str, flags: list[str], *variables: str) -> str:
    """A key made of all that decides what is compiled: the sources themselves, the versions and places of PyTorch and
    terrazzo, the machine's kind and libc, since machines and containers may share a home, and the variables by which a
    user chooses compiler and headers. Does not search for those, since every process of a job comes here: that is done
    only when something is compiled."""
    chosen = [os.environ.get(variable, "") for variable in variables]
    machine = [os.uname().machine, os.confstr("CS_GNU_LIBC_VERSION") or ""]
    digest = hashlib.sha256("\0".join([*flags, *chosen, *machine]).encode())
    sources = _places.find_sources()
    folder = str(sources["plug"])
    for path in (*sorted(f"{folder}/{entry}" for entry in os.listdir(folder)), f"{sources['include']}/terrazzo.h"):
        if os.path.splitext(path)[1] in (".c", ".h", ".cpp", ".hpp"):
            with open(path, "rb") as stream:
                digest.update(stream.read())
    return f"{name}-{version}-{digest.hexdigest()[:16]}.so"


def shim_key(torch, library: Path) -> str:
    flags = [str(torch.version.cuda), *shim_flags(torch, library)]
    return key_of("shim", torch.__version__, flags, "CXX", "CUDA_HOME", "CUDA_PATH")


def require(torch, oldest: tuple[int, int], what: str) -> None:
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < oldest:
        raise Missing(f"{what} needs PyTorch {oldest[0]}.{oldest[1]} or newer, and this is {torch.__version__}")


def shim_path(torch, library: Path) -> Path:
    """The compiled shim, made if it is not there. Raises Missing."""
    require(torch, OLDEST, "the shim")
    return made(shim_key(torch, library), lambda: shim_command(torch, library))


def frames_path() -> Path:
    """The same for python_frames.c. A Python without a global lock, or of another patch release, has other frames."""
    build = f"{sys.implementation.cache_tag}{sys.abiflags}"
    key = key_of("frames", build, [sys.base_prefix, sys.version, *frames_flags()], "CC")
    return made(key, frames_command)


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
