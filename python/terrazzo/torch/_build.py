# SPDX-License-Identifier: Apache-2.0
"""Compiles the parts that depend on the installed PyTorch: the shim (shim.cpp, with every shim_*.cpp), and observers
for terrazzo sim."""
from __future__ import annotations

import os
from pathlib import Path

from .. import parts
from ..compiling import Missing, find_compiler, key_of, made

OLDEST = 2, 6  # PyTorch: the headers of older ones lack what the shim derives from
OLDEST_OBSERVED = 2, 4  # the same for terrazzo sim's observers
SUFFIXES = ".c", ".h", ".cpp", ".hpp"  # of the shim's sources


def find_cuda_headers() -> Path:
    """CUDA's headers: of the package that PyTorch requires, else of a toolkit."""
    import sysconfig
    packages = Path(sysconfig.get_path("platlib")) / "nvidia"
    folders = [*sorted(packages.glob("cu1[0-9]/include"), reverse=True), packages / "cuda_runtime" / "include"]
    toolkits = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    folders += [Path(toolkit) / "include" for toolkit in toolkits if toolkit]
    for folder in folders:
        if (folder / "cuda_runtime_api.h").exists():
            return folder
    raise Missing("CUDA's headers are missing (pip install nvidia-cuda-runtime, or set CUDA_HOME)")


def cuda_flags() -> list[str]:
    """Flags for CUDA's headers; behind them what NVIDIA's packages of them leave out (plug/torch/cuda/crt)."""
    return ["-isystem", str(find_cuda_headers()), "-idirafter", f"{parts.find_sources()['shim']}/cuda"]


def loaded_cudart() -> str:
    """The CUDA runtime that PyTorch has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            if "libcudart" in line:
                return line.split(maxsplit=5)[5].strip()
    raise Missing("PyTorch has loaded no CUDA runtime: this build of it cannot use CUDA")


def shim_flags(torch, library: Path) -> list[str]:
    sources, root = parts.find_sources(), Path(torch.__file__).parent
    return ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-isystem", f"{root}/include",
            "-isystem", f"{root}/include/torch/csrc/api/include", f"-I{sources['include']}", f"-I{sources['shim']}",
            f"{sources['shim']}/shim.cpp", str(library), f"{library.parent}/libterrazzo.so",
            f"-Wl,-rpath,{library.parent}", f"-L{root}/lib", "-lc10", "-lc10_cuda", "-ltorch_cuda", "-ltorch_cpu"]


def shim_command(torch, library: Path) -> list[str]:
    return [*find_compiler("C++", "CXX", "g++", "clang++", "c++"), *shim_flags(torch, library), *cuda_flags(),
            loaded_cudart()]


def observer_flags(torch, source: Path, header: Path) -> list[str]:
    """Flags for a file of python/terrazzo/sim that observes PyTorch, some of whose classes depend on NDEBUG."""
    root = Path(torch.__file__).parent
    return ["-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-fvisibility=hidden",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-isystem", f"{root}/include",
            f"-I{header.parent}", str(source), f"-L{root}/lib", "-lc10", "-lc10_cuda", "-ltorch_cpu"]


def observer_path(torch, name: str) -> Path:
    """The compiled `name`.cpp of python/terrazzo/sim, made if it is not there. Raises Missing."""
    require(torch, OLDEST_OBSERVED, f"{name}.cpp")
    folder = Path(__file__).resolve().parent.parent / "sim"
    headers = [place / "sim_recording.h" for place in (folder, *(parent / "sim" for parent in folder.parents))]
    source, header = folder / f"{name}.cpp", next(filter(Path.exists, headers), headers[0])
    flags = observer_flags(torch, source, header)
    sources = source, header, *sorted(folder.glob(f"{name}_*.hpp"))
    key = key_of(name, torch.__version__, [str(torch.version.cuda), *flags], sources, "CXX", "CUDA_HOME", "CUDA_PATH")
    return made(key, lambda: [*find_compiler("C++", "CXX", "g++", "clang++", "c++"), *flags, *cuda_flags()])


def shim_key(torch, library: Path) -> str:
    flags = [str(torch.version.cuda), *shim_flags(torch, library)]
    folders = parts.find_sources()
    sources = (folders["shim"] / name for name in sorted(os.listdir(folders["shim"])) if name.endswith(SUFFIXES))
    return key_of("shim", torch.__version__, flags, (*sources, folders["include"] / "terrazzo.h"), "CXX", "CUDA_HOME",
                  "CUDA_PATH")


def require(torch, oldest: tuple[int, int], what: str) -> None:
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < oldest:
        raise Missing(f"{what} needs PyTorch {oldest[0]}.{oldest[1]} or newer, and this is {torch.__version__}")


def shim_path(torch, library: Path) -> Path:
    """The compiled shim, made if it is not there. Raises Missing."""
    require(torch, OLDEST, "the shim")
    return made(shim_key(torch, library), lambda: shim_command(torch, library))
