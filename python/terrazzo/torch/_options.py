# SPDX-License-Identifier: Apache-2.0
"""What the keys of PYTORCH_CUDA_ALLOC_CONF mean under terrazzo. docs/pytorch.md has this table for readers."""
from __future__ import annotations

import os

NAMES = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"  # the first counts
HONOURED, NOT_NEEDED, HOST, REFUSED = "honoured", "not needed", "PyTorch's own", "refused"


# key: (its treatment, the reason)
MEANINGS = {
    "per_process_memory_fraction": (HONOURED, "a limit on what the process has, even if it is set at run time"),
    "throw_on_cudamalloc_oom": (HONOURED, "a limit is applied before the device is asked; refusals are counted apart"),
    "backend": (REFUSED, "terrazzo is the backend; remove the key, or do not install terrazzo"),
    "expandable_segments": (NOT_NEEDED, "memory is always mapped in parts that can grow and move"),
    "expandable_segments_reserve": (NOT_NEEDED, "address space is reserved per stream: window_factor"),
    "expandable_segments_reserve_by_class": (NOT_NEEDED, "as expandable_segments_reserve"),
    "max_split_size_mb": (NOT_NEEDED, "what is split joins again, and tiles move to where they are needed"),
    "max_non_split_rounding_mb": (NOT_NEEDED, "large blocks are split"),
    "roundup_power2_divisions": (NOT_NEEDED, "free memory of any shape can be put together"),
    "garbage_collection_threshold": (NOT_NEEDED, "free memory is returned before an allocation fails"),
    "large_segment_size_mb": (NOT_NEEDED, "TERRAZZO_CONF=tile_size is the unit of growth"),
    "release_lock_on_cudamalloc": (NOT_NEEDED, "no lock of allocation is held across a call of the driver"),
    "release_lock_on_hipmalloc": (NOT_NEEDED, "as release_lock_on_cudamalloc"),
    "graph_capture_record_stream_reuse": (NOT_NEEDED, "memory recorded during a capture is kept until its end"),
    "pinned_use_cuda_host_register": (HOST, "pinned host memory is not terrazzo's"),
    "pinned_use_hip_host_register": (HOST, "pinned host memory is not terrazzo's"),
    "pinned_num_register_threads": (HOST, "pinned host memory is not terrazzo's"),
    "pinned_reserve_segment_size_mb": (HOST, "pinned host memory is not terrazzo's"),
    "pinned_use_background_threads": (HOST, "pinned host memory is not terrazzo's"),
    "pinned_free_catch_all": (HOST, "pinned host memory is not terrazzo's"),
    "pinned_max_round_threshold_mb": (HOST, "pinned host memory is not terrazzo's"),
    "pinned_max_cached_size_mb": (HOST, "pinned host memory is not terrazzo's"),
}


def pairs(text: str) -> list[tuple[str, str]]:
    """`key:value,key:[a:b,c:d]` as pairs; commas inside brackets belong to the value."""
    found, depth, start = [], 0, 0
    text = "".join(text.split())
    for i, char in enumerate(text + ","):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            key, _, value = text[start:i].partition(":")
            if key:
                found.append((key, value))
            start = i + 1
    return found


def split(text: str) -> dict[str, str]:
    """The same as a dict: the last of several values for a key counts."""
    return dict(pairs(text))


def given() -> dict[str, str]:
    """The options of the environment, in PyTorch's order of precedence."""
    for name in NAMES:
        if name in os.environ:  # even if it is empty
            return split(os.environ[name])
    return {}


def without_backend(text: str) -> str:
    """The same without backend:native, by which PyTorch would look for its own allocator, and stop the program. A text
    without it stays as it is: PyTorch judges it, wrong or not."""
    found = pairs(text)
    if ("backend", "native") not in found:
        return text
    return ",".join(f"{key}:{value}" for key, value in found if (key, value) != ("backend", "native"))


def hide_backend() -> None:
    """PyTorch may read the environment later than we do."""
    for name in NAMES:
        if "backend" in split(os.environ.get(name, "")):
            os.environ[name] = without_backend(os.environ[name])


def honour_no_caching() -> None:
    """PyTorch's switch to do without a cache is our option no_cache. Heaps read their options when they are opened."""
    conf = os.environ.get("TERRAZZO_CONF", "")
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ and "no_cache" not in conf:
        os.environ["TERRAZZO_CONF"] = ",".join(filter(None, ("no_cache:on", conf)))


def check(options: dict[str, str]) -> None:
    """Raises ValueError for an option that is refused; PyTorch judges the others."""
    for key, value in options.items():
        what, why = MEANINGS.get(key, (HONOURED, ""))
        if what == REFUSED and not (key == "backend" and value == "native"):
            raise ValueError(f"PYTORCH_CUDA_ALLOC_CONF={key}:{value} and terrazzo exclude each other: {why}")
