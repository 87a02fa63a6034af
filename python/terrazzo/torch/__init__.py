# SPDX-License-Identifier: Apache-2.0
"""terrazzo as PyTorch's allocator of GPU memory.

    import terrazzo.torch
    terrazzo.torch.install()                       # the whole process; before the first CUDA call

    with terrazzo.torch.pool(tag="kv_cache"):      # a part of a program; any time
        cache = torch.empty(..., device="cuda")

With a C++ compiler a shim is compiled once, and all of torch.cuda.memory works as before. Without one the functions
here give these figures under their own names. docs/pytorch.md has more.
"""
from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import operator
import os
import pickle
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator

import torch

from .. import frames as _frames, parts as _parts
from . import _build, _figures, _options
from ..parts import Error
from ._track import Tracker, track

if TYPE_CHECKING:
    from . import _native

__all__ = ["Error", "Pool", "Tracker", "forecast", "growth", "history", "install", "installed", "largest_block",
           "missing", "on_warning", "pool", "release_pool", "report", "reset_peak_stats", "set_limit", "shareable",
           "snapshot", "stats", "step", "summary", "tag", "track", "trim"]

HOOKS = (("set_init_fn", "trz_torch_init"),
         ("set_reset_fn", "trz_torch_reset"),
         ("set_memory_fraction_fn", "trz_torch_memory_fraction"),
         ("set_base_alloc_fn", "trz_torch_base_alloc"),
         ("set_record_stream_fn", "trz_torch_record_stream"),
         ("set_begin_allocate_to_pool", "trz_torch_begin_allocate_to_pool"),
         ("set_end_allocate_to_pool_fn", "trz_torch_end_allocate_to_pool"),
         ("set_release_pool", "trz_torch_release_pool"))

MOST_EVENTS = 1 << 24  # in a history

_lock = threading.RLock()
_mode: str | None = None
_missing: str | None = None
_library: _native.Library | None = None
_shim: ctypes.CDLL | None = None
_keep: list[Any] = []  # objects that PyTorch uses without holding a reference
_pools: dict[str, "Pool"] = {}
_outlived: list[torch.cuda.MemPool] = []
_tags = threading.local()


def _native_library() -> _native.Library:
    global _library
    with _lock:
        if _library is None:
            from . import _native  # not needed just to install
            _library = _native.Library(_parts.find_library())
        return _library


def _device(device: int | str | torch.device | None) -> int:
    if device is None:
        return torch.cuda.current_device()
    if isinstance(device, int):
        return device
    chosen = torch.device(device)
    if chosen.type != "cuda":
        raise ValueError(f"{device} is not a CUDA device: name one such as cuda:0")
    return torch.cuda.current_device() if chosen.index is None else chosen.index


# ---- the whole process -----------------------------------------------------------------------------------------


def install(shim: bool | None = None) -> str:
    """Makes terrazzo this process's allocator of GPU memory, and returns "shim" or "hooks".

    Call it before the first CUDA call; a second call changes nothing. `shim`: True insists on the compiled shim, False
    does without; None uses it if it can be compiled, and otherwise warns once (see missing()). Raises RuntimeError if
    the call comes too late or another allocator is installed, ValueError for an option of PYTORCH_CUDA_ALLOC_CONF that
    terrazzo refuses.
    """
    global _mode, _missing
    with _lock:
        if _mode:
            return _mode
        if torch.cuda.is_initialized():
            raise RuntimeError("terrazzo.torch.install() comes too late: CUDA is in use already, and PyTorch cannot "
                               "change its allocator then. Call it right after `import torch`, set TERRAZZO=1, or "
                               "use terrazzo.torch.pool() for a part of the program")
        options = _options.given()
        _options.check(options)
        _ask_pytorch(options)
        _options.hide_backend()
        _options.honour_no_caching()
        path = _parts.find_library()
        if shim is not False:
            _missing = _install_shim(path)
        if shim and _missing:
            raise Error(f"terrazzo's shim is not available: {_missing}")
        if shim is False or _missing:
            _install_hooks(_native_library())
        _mode = "hooks" if shim is False or _missing else "shim"
        _set_fraction(options)
        _follow_settings()
        _growing().follow_optimizers(_native_library)
        _follow_sites(path)
        if _missing:  # last, since Python may make an error of it
            warnings.warn(f"terrazzo runs without its shim: {_missing}. Memory, limits, streams, graphs, statistics "
                          "and histories are served; MemPool, graph trees, observers and cudnn.benchmark are not",
                          stacklevel=2)
        return _mode


def _install_shim(library: Path) -> str | None:
    global _shim
    try:
        shim = ctypes.CDLL(str(_build.shim_path(torch, library)))
    except (_build.Missing, OSError) as error:
        return str(error)
    shim.trz_torch_shim_install.restype = ctypes.c_char_p
    shim.trz_torch_shim_trim.restype = ctypes.c_size_t
    shim.trz_torch_shim_trim.argtypes = [ctypes.c_size_t]
    shim.trz_torch_shim_on_warning.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    failure = shim.trz_torch_shim_install()
    if failure:
        raise RuntimeError(f"PyTorch refuses terrazzo: {failure.decode()}")
    _shim = shim
    return None


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _install_hooks(library: _native.Library) -> None:
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library.path), "trz_torch_alloc", "trz_torch_free")
    torch.cuda.memory.change_current_allocator(allocator)
    for setter, function in HOOKS:
        getattr(allocator.allocator(), setter)(library.address(function))
    _keep.append(allocator)
    # The newer of PyTorch's two NCCL backends asks the allocator for a snapshot, which is refused: the process aborts.
    os.environ.setdefault("TORCH_DIST_USE_NCCL2", "0")
    if _version() < (2, 14):
        library.trz_torch_watch_captures()
    library.trz_torch_follow_events()
    _figures.answer(torch, _figures.Figures(library, history, torch.cuda.device_count))


def _set_fraction(options: dict[str, str]) -> None:
    text = options.get("per_process_memory_fraction")
    if text:
        fraction = float(text)

        def apply() -> None:
            for device in range(torch.cuda.device_count()):
                _native_library().trz_torch_set_fraction(device, fraction)

        torch.cuda._lazy_call(apply)


def _ask_pytorch(options: dict[str, str]) -> None:
    """Raises PyTorch's own error for options that it refuses. Releases without this function do not know all options
    that terrazzo honours, and are not asked."""
    setter = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    if options and setter:
        setter(",".join(f"{key}:{value}" for key, value in options.items()))


def _follow_settings() -> None:
    """Follows settings that a program changes later, by torch.cuda.memory._set_allocator_settings and the like."""
    for name in ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings"):
        setter = getattr(torch._C, name, None)
        if setter:
            def follow(settings: str, setter: Any = setter) -> None:
                setter(_options.without_backend(settings))
                _set_fraction(_options.split(settings))

            setattr(torch._C, name, follow)


def installed() -> str | None:
    """ "shim", "hooks", or None if PyTorch's own allocator is in use."""
    return _mode


def missing() -> str | None:
    """Why the shim is not in use although it was wanted; None if it is in use, or was not wanted."""
    return _missing


# ---- a part of a program ---------------------------------------------------------------------------------------


@functools.cache
def _segments() -> torch.cuda.memory.CUDAPluggableAllocator:
    """What serves pools under PyTorch's own allocator. There is one, for ever: before 2.11 PyTorch holds no reference,
    and tensors outlive their pool."""
    return torch.cuda.memory.CUDAPluggableAllocator(
        str(_native_library().path), "trz_torch_segment_alloc", "trz_torch_free")


def _end_empty_pools() -> None:
    """Ends those of `_outlived` that no tensor is left in. Called where pools begin and end."""
    if not _outlived:
        return
    used = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot() if segment["active_size"]}
    for mempool in [mempool for mempool in _outlived if mempool.id not in used]:
        with contextlib.suppress(ValueError):  # another thread has removed it
            _outlived.remove(mempool)


class Pool:
    """Memory of a tag, separate from all other memory. Made by pool()."""

    def __init__(self, name: str | None, device: int):
        self.name, self.device = name, device
        self._heap_pool: ctypes.c_void_p | None = None
        self.mempool: torch.cuda.MemPool | None = None
        library = _native_library()
        if _mode == "hooks":
            self._heap_pool = ctypes.c_void_p()
            library.trz_pool_create(library.heap(device), ctypes.byref(self._heap_pool))
            return
        if not hasattr(torch.cuda, "MemPool"):
            raise Error("a pool beside PyTorch's own allocator needs PyTorch 2.5 or newer, and this is "
                        f"{torch.__version__}; terrazzo.torch.install() has pools with this one, too")
        allocator = [] if _mode else [_segments().allocator()]
        _end_empty_pools()
        with torch.cuda.device(device):  # PyTorch makes a pool of the current device
            self.mempool = torch.cuda.MemPool(*allocator)

    @contextlib.contextmanager
    def use(self) -> Iterator["Pool"]:
        """Inside the block, this thread allocates from the pool."""
        if self.mempool is not None:
            with torch.cuda.use_mem_pool(self.mempool, device=self.device), tag(self.name):
                yield self
            return
        library, heap = _native_library(), _native_library().heap(self.device)
        library.trz_pool_begin(heap, self._heap_pool, None, None)
        try:
            with tag(self.name):
                yield self
        finally:
            library.trz_pool_end(heap, self._heap_pool)

    def __del__(self):
        if self.mempool is not None and not _mode and (2, 6) <= _version() < (2, 8):
            # These two call cudaFree on what lies in a pool that ended before its tensors: it ends after them.
            with contextlib.suppress(Exception):
                _outlived.append(self.mempool)
                self.mempool = None
                _end_empty_pools()
        if self._heap_pool:
            with contextlib.suppress(Exception):
                _native_library().trz_pool_release(_native_library().heap(self.device), self._heap_pool)


@contextlib.contextmanager
def pool(tag: str | None = None, device: int | str | torch.device | None = None) -> Iterator[Pool]:
    """Inside the block, this thread allocates from a pool that nothing else uses.

    Works at any time, whether terrazzo is installed or not; raises Error if it is not and PyTorch has no pools, as
    before 2.5. All blocks with one tag and device share one pool, which
    lives until release_pool(); without a tag the block has a pool of its own. Tensors outlive their pool.
    """
    index = _device(device)
    torch.cuda.init()
    key = f"{tag}@{index}"
    with _lock:
        chosen = _pools.get(key) if tag else None
        if chosen is None:
            chosen = Pool(tag, index)
            if tag:
                _pools[key] = chosen
    with chosen.use():
        yield chosen


def release_pool(tag: str, device: int | str | torch.device | None = None) -> bool:
    """Ends the pool of a tag: its memory is returned as its tensors are freed. False if there is no such pool."""
    with _lock:
        return _pools.pop(f"{tag}@{_device(device)}", None) is not None


@contextlib.contextmanager
def shareable() -> Iterator[None]:
    """Tensors that this thread allocates inside the block can be sent to other processes without their neighbours in
    memory.

    Each of these tensors takes a multiple of 2 MiB to itself, which is never moved. Other tensors are sent with the
    tiles that they lie in or, with TERRAZZO_CONF=exportable:off, not at all. Copy a tensor that was made elsewhere:
    `with shareable(): copy = tensor.clone()`. Under PyTorch's own allocator nothing changes. Raises Error if terrazzo
    is installed without its shim, since PyTorch cannot share memory then.
    """
    if _mode == "hooks":
        raise Error("PyTorch shares memory between processes with terrazzo's shim only: "
                    f"{_missing or 'it was not wanted'}. Send copies on the CPU")
    library = _native_library() if _mode else None
    if library:
        library.trz_torch_shareable(True)
    try:
        yield
    finally:
        if library:
            library.trz_torch_shareable(False)


@contextlib.contextmanager
def tag(text: str | None) -> Iterator[None]:
    """Allocations that this thread makes inside the block carry the text, up to 63 bytes of it, in histories and
    snapshots."""
    before = getattr(_tags, "text", None)
    _set_tag(text or before)
    try:
        yield
    finally:
        _set_tag(before)


def _set_tag(text: str | None) -> None:
    _native_library().set_tag(text)
    _tags.text = text


# ---- looking -----------------------------------------------------------------------------------------------------


def stats(device: int | str | torch.device | None = None) -> dict[str, int | float]:
    """All statistics of a device's heap (docs/stats.md). Names that torch.cuda.memory_stats() also has mean the same.
    Empty before the first allocation."""
    return _native_library().stats(_device(device))


def reset_peak_stats(device: int | str | torch.device | None = None) -> None:
    """Sets every peak to the current value."""
    library = _native_library()
    library.trz_reset_peaks(library.heap(_device(device)))


def summary(device: int | str | torch.device | None = None) -> str:
    """The use of a device's memory, in a few lines of text."""
    index = _device(device)
    now = stats(index)
    if not now:
        return f"device {index}: nothing has been allocated by terrazzo"
    lines = [f"terrazzo, device {index}{'':>22}now         peak"]
    for text, name in (("held by tensors", "allocated_bytes.all"), ("freed, in use by other streams", "pending_bytes"),
                       ("free in the cache", "cached_bytes"), ("reserved of the device", "reserved_bytes.all")):
        lines.append(f"  {text:<32}{_size(now[name + '.current']):>11}  {_size(now[name + '.peak']):>11}")
    lines.append(f"  largest free block              {_size(now['largest_free_bytes']):>11}")
    lines.append(f"  allocations {now['allocation.all.current']:,} of {now['allocation.all.allocated']:,} so far, "
                 f"out of memory {now['num_ooms']}, retries {now['num_alloc_retries']}")
    return "\n".join(lines)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def largest_block(device: int | str | torch.device | None = None) -> int:
    """Bytes of the largest tensor that the current stream could allocate now."""
    library, index, size = _native_library(), _device(device), ctypes.c_size_t()
    stream = torch.cuda.current_stream(index).cuda_stream
    library.trz_largest_block(library.heap(index), stream, ctypes.byref(size))
    return size.value


def _number(what: str, value: int) -> int:
    """Checks a number for the library, which would take a negative one for a huge one."""
    number = operator.index(value)
    if not 0 <= number < 2**64:
        raise ValueError(f"{what} is {number}: it must be from 0 to 2^64 - 1")
    return number


def history(enabled: bool = True, events: int = 1 << 20, frames: bool = True) -> None:
    """Keeps the newest events of every device, from its first use on, for snapshot(), with `frames` also the Python
    stacks of allocations, frees and mappings. Costs far less than torch.cuda.memory._record_memory_history, which also
    works if the shim is in use. Disabling forgets all events. While PyTorch records a history of its own, this changes
    nothing."""
    events = _number("events", events)
    if enabled and not 1 <= events <= MOST_EVENTS:
        raise ValueError(f"events is {events}: a history has from 1 to {MOST_EVENTS}")
    if _pytorch_records():
        return
    callbacks = _frame_callbacks() if enabled and frames else None
    _native_library().trz_torch_history(events if enabled else 0, *(callbacks or (None, None)))


def _follow_sites(path: Path) -> None:
    """Counts memory by the lines of the program that allocate it (docs/oom.md), if that can be compiled."""
    callbacks = _frames.callbacks()
    if callbacks:
        set_sites = ctypes.CDLL(str(path)).trz_torch_set_sites
        set_sites.argtypes, set_sites.restype = [ctypes.c_void_p, ctypes.c_void_p], None
        set_sites(*callbacks)


def report(device: int | str | torch.device | None = None, json: bool = False, failure: bool = False) -> str:
    """Where a device's memory is, who holds it and what could be freed; with `failure`, why this thread's newest
    request that ran out of memory failed (docs/oom.md). As text, or as the JSON object of `terrazzo explain`."""
    from . import _native
    flags = (_native.REPORT_JSON if json else 0) | (_native.REPORT_FAILURE if failure else 0)
    return _native_library().report(_device(device), flags)


def _pytorch_records() -> bool:
    return _mode == "shim" and torch._C._cuda_isHistoryEnabled()


def _frame_callbacks() -> tuple[int, int] | None:
    callbacks = _frames.callbacks()
    if not callbacks:
        warnings.warn(f"the history is without Python frames: {_frames.missing}", stacklevel=3)
    return callbacks


def step() -> None:
    """Says that a step of the program has ended, such as an iteration of training: terrazzo compares what each call
    site holds with other steps. If the program never calls this, each step of an optimizer counts, provided that
    terrazzo is installed."""
    _growing().end(_native_library())


def growth(device: int | str | torch.device | None = None) -> list[dict[str, Any]]:
    """The call sites that hold more with each step, suspected leaks first (docs/leaks.md): for each `stack`, innermost
    first, `tag`, `suspect`, `bytes_per_step`, `live` and `grown` bytes, `since_step`, `confidence`."""
    library = _native_library()
    return _growing().growth(library, library.heap(_device(device)))


def forecast(device: int | str | torch.device | None = None) -> dict[str, float] | None:
    """When memory will run out if suspected leaks go on: `steps` and `seconds`, each also as `_low` and `_high`. None:
    nothing is suspected."""
    library = _native_library()
    return _growing().forecast(library, library.heap(_device(device)))


def on_warning(callback: Callable[[str, dict[str, Any]], None] | None,
               device: int | str | torch.device | None = None) -> None:
    """Calls `callback(reason, facts)` when a device becomes "full" (callers hold nine tenths of what they could),
    "fragmented" (a fifth of what is reserved serves nobody at the fullest moment of a step), "very_fragmented" (three
    tenths), or shows "growth". The callback may run in any thread that allocates. None: no more calls."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is {callback!r}, which cannot be called")
    library = _native_library()
    _growing().on_warning(library, _shim, library.heap(_device(device)), callback)


def _growing() -> Any:
    from . import _steps  # not needed just to install
    return _steps


def snapshot(path: str | os.PathLike[str], device: int | str | torch.device | None = None) -> None:
    """Writes the state and the history of a device for https://pytorch.org/memory_viz and torch.cuda._memory_viz.

    Writes JSON if the name ends in .json, else the pickle that PyTorch's own tools read. While PyTorch records a
    history, the file is the one that PyTorch itself would write, for all devices.
    """
    path = os.fspath(path)
    if _pytorch_records():
        found = torch.cuda.memory._snapshot()
        _write(path, json.dumps(found).encode() if path.endswith(".json") else pickle.dumps(found, protocol=2))
        return
    library = _native_library()
    heap = library.heap(_device(device))
    if path.endswith(".json"):
        library.trz_snapshot(heap, os.fsencode(path))
        return
    _write(path, pickle.dumps(_figures.read_snapshot(library, heap), protocol=2))


def _write(path: str, data: bytes) -> None:
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as stream:
            stream.write(data)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


# ---- limits ------------------------------------------------------------------------------------------------------


def trim(keep: int = 0) -> int:
    """Returns free memory to the devices until at most `keep` bytes of each stay reserved, and says how many bytes it
    returned. Waits for nothing."""
    keep = _number("keep", keep)
    return _shim.trz_torch_shim_trim(keep) if _shim else _native_library().trz_torch_trim(keep)


def set_limit(size: int, device: int | str | torch.device | None = None) -> None:
    """Sets an upper bound, in bytes, of a device heap's reserved memory; 0: none."""
    library = _native_library()
    library.trz_set_limit(library.heap(_device(device)), _number("size", size))
