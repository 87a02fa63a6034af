# SPDX-License-Identifier: Apache-2.0
"""The allocators: which there are, where their packages come from, and how to compile their files."""
import ctypes.util
import os
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

SOURCE = Path(os.environ.get("TRZ_SOURCE_DIR", Path(__file__).resolve().parents[2]))
BUILD = Path(os.environ.get("TRZ_BUILD_DIR", SOURCE / "build"))
PEERS = SOURCE / "bench" / "peers"
WORK = BUILD / "bench"
TORCH_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
RMM_ENVIRONMENT = {"RMM_DEBUG_LOG_FILE": "/dev/null"}
RMM = "24.12.1"                     # the last version that is all headers; tools/fetch_rmm.sh has its checksum


class Missing(Exception):
    """An allocator is not available here; the text says why."""


@dataclass
class Allocator:
    name: str
    source: Path
    options: str = ""
    needs: str = ""                 # "torch", "rmm", or a package's library
    package: str = ""
    environment: dict = field(default_factory=dict)
    fits: bool = True               # search its smallest device; run it late and by all cost tables
    timed: bool = True              # measure its host time
    on_host: bool = False
    takes_all: bool = False         # of the device's memory when it opens: what it reserves says nothing
    library: Path = None            # once compiled


def torch(name, options, fits):
    return Allocator(name, PEERS / "peer_torch.cpp", needs="torch", fits=fits, timed=fits,
                     environment={TORCH_VARIABLE: options} if options else {})


def rmm(name, options, **kind):
    return Allocator(name, PEERS / "peer_rmm.cpp", options, "rmm", environment=RMM_ENVIRONMENT, **kind)


def model(name, least):
    """The model of GMLake; `least`: the smallest blocks that it stitches, in MiB."""
    return Allocator(name, PEERS / "peer_model_gmlake.cpp", options=least, fits=False, timed=False)


def on_host(name, package, library):
    return Allocator(name, PEERS / "peer_host.c", needs=library, package=package, fits=False, on_host=True)


# Any other file of bench/peers/ is an allocator too, without options.
SHIPPED = (
    Allocator("terrazzo", PEERS / "peer_terrazzo.c"),
    torch("torch", "", True),
    torch("torch_expandable", "expandable_segments:True", True),
    torch("torch_max_split", "max_split_size_mb:128", False),
    torch("torch_roundup", "roundup_power2_divisions:8", False),
    rmm("rmm_pool", "pool", fits=False, timed=True),
    rmm("rmm_binning", "binning", fits=False, timed=True),
    rmm("rmm_pool_all", "pool:100", fits=True, timed=False, takes_all=True),
    rmm("rmm_arena_all", "arena:100", fits=True, timed=False, takes_all=True),
    Allocator("naive", PEERS / "peer_naive.c", fits=False, timed=False),
    model("model_gmlake", "128"),
    model("model_gmlake_all", "2"),
    on_host("jemalloc", "libjemalloc2", "libjemalloc.so.2"),
    on_host("mimalloc", "libmimalloc2.0", "libmimalloc.so.2.0"),
)


def all_allocators(extra=(), variants=()):
    known = {allocator.source for allocator in SHIPPED}
    more = [path for path in sorted(PEERS.glob("peer_*.c*")) if path not in known]
    found = [*SHIPPED, *(Allocator(path.stem.removeprefix("peer_"), Path(path).resolve())
                         for path in (*more, *map(Path, extra)))]
    return [*found, *(variant(text, found) for text in variants)]


def variant(text, known):
    """NAME=ALLOCATOR,OPTION,...: the same allocator under another name, with these options in place of its own."""
    name, _, rest = text.partition("=")
    base, _, options = rest.partition(",")
    bases = {allocator.name: allocator for allocator in known if not allocator.on_host}
    if not name or not options or base not in bases:
        raise Missing(f"--variant {text}: it must be NAME=ALLOCATOR,OPTION,... with one of {', '.join(bases)}")
    of = bases[base]
    if of.needs == "torch":
        return replace(of, name=name, environment={TORCH_VARIABLE: options})
    return replace(of, name=name, options=options)


def run(*command):
    try:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
    except FileNotFoundError:
        raise Missing(f"there is no {command[0]}") from None
    if done.returncode:
        lines = done.stdout.strip().splitlines() or ["it failed"]
        raise Missing(f"{Path(command[0]).name}: {next((line for line in lines if ' error: ' in line), lines[-1])}")
    return done.stdout


def find_package(package, library):
    """The library's file: the installed one, or one from the distribution's package, unpacked under the build tree."""
    if ctypes.util.find_library(library.removeprefix("lib").partition(".so")[0]):
        return library
    folder = WORK / "packages"
    found = sorted(folder.rglob(library + "*"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        run("sh", "-c", f"cd '{folder}' && apt-get download {package}")
        archives = sorted(folder.glob(f"{package}_*.deb"))
        run("dpkg-deb", "-x", archives[-1], folder)
        found = sorted(folder.rglob(library + "*"))
    if not found:
        raise Missing(f"{package} has no {library}")
    return found[0]


def find_torch(environment):
    """The environment's packages; sets an environment up by `terrazzo sim --setup` if there is none."""
    folder = Path(environment) if environment else BUILD / "torch-env"
    if not (folder / "terrazzo-sim.json").exists():
        run(BUILD / "bin" / "terrazzo", "sim", "--setup", folder)
    packages = sorted(folder.glob("lib/python3*/site-packages/torch/lib/libc10_cuda.so"))
    if not packages:
        raise Missing(f"{folder} has no PyTorch with CUDA")
    return packages[0].parents[2]


def torch_version(packages):
    return next((path.name.removeprefix("torch-").removesuffix(".dist-info")
                 for path in packages.glob("torch-*.dist-info")), "")


def headers_in(*places):
    return next((path for path in places if (path / "cuda_runtime_api.h").exists()), None)


def toolkit_headers():
    return headers_in(Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include")


def cuda_headers(packages):
    found = headers_in(*sorted(packages.glob("nvidia/cu1[0-9]/include"), reverse=True),
                       packages / "nvidia/cuda_runtime/include",
                       packages / "triton/backends/nvidia/include") or toolkit_headers()
    if not found:
        raise Missing("CUDA's headers are missing: set CUDA_HOME, or install nvidia-cuda-runtime in the environment")
    return found


def header_flags(folder):
    return ["-isystem", folder, "-idirafter", SOURCE / "plug/torch/cuda"]  # NVIDIA's package lacks crt/


def torch_flags(packages):
    libraries = packages / "torch/lib"
    new_strings = int(b"__cxx11" in (libraries / "libc10.so").read_bytes())
    return [f"-D_GLIBCXX_USE_CXX11_ABI={new_strings}", "-isystem", packages / "torch/include",
            *header_flags(cuda_headers(packages)),
            f"-L{libraries}", "-lc10", "-lc10_cuda", f"-Wl,-rpath,{libraries}"]


def rmm_flags(environment):
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "terrazzo" / "rmm"
    run(SOURCE / "tools" / "fetch_rmm.sh", cache)
    headers = cache / RMM / "librmm" / "include"
    folders = (headers, headers / "rapids/libcudacxx", headers / "rapids", headers / "nvtx3")
    return ["-DRMM_NO_LOGGING", "-DFMT_HEADER_ONLY", "-DSPDLOG_FMT_EXTERNAL",
            "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE",
            *(word for folder in folders for word in ("-isystem", folder)),
            *header_flags(toolkit_headers() or cuda_headers(find_torch(environment))),
            f"-L{WORK / 'sim'}", "-l:libcudart.so.13"]


def flags_of(allocator, environment):
    """The compiler's flags, and a suffix that tells apart libraries of different versions."""
    if allocator.needs == "torch":
        packages = find_torch(environment)
        return torch_flags(packages), "-" + torch_version(packages)
    if allocator.needs == "rmm":
        return rmm_flags(environment), f"-{RMM}"
    if allocator.needs:
        allocator.options = str(find_package(allocator.package, allocator.needs))
    if allocator.source.name == "peer_terrazzo.c":
        return [f"-L{BUILD}/lib", "-lterrazzo", f"-Wl,-rpath,{BUILD}/lib"], ""
    return [], ""


def compile_peer(allocator, environment):
    """Compiles allocator.library. Raises Missing."""
    cxx = allocator.source.suffix != ".c"
    compiler = os.environ.get("CXX", "c++") if cxx else os.environ.get("CC", "cc")
    flags, version = flags_of(allocator, environment)
    made = WORK / "peers" / f"{allocator.source.stem}{version}.so"
    made.parent.mkdir(parents=True, exist_ok=True)
    newest = max(path.stat().st_mtime for path in (allocator.source, *PEERS.glob("*.h")))
    if not made.exists() or made.stat().st_mtime < newest:
        run(compiler, "-std=c++20" if cxx else "-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
            f"-I{PEERS}", f"-I{SOURCE}/include", allocator.source, "-o", made, *flags)
    allocator.library = made


def prepare(names, extra, variants, environment, say):
    """The allocators that are ready, by name; says which are left out."""
    ready = {}
    for allocator in all_allocators(extra, variants):
        if names and allocator.name not in names:
            continue
        try:
            compile_peer(allocator, environment)
            ready[allocator.name] = allocator
        except Missing as why:
            say(f"left out: {allocator.name}: {why}")
    return ready
