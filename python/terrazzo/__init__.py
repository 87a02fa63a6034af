# SPDX-License-Identifier: Apache-2.0
"""terrazzo: a caching GPU memory allocator. Here: programs on a simulated device (terrazzo.sim)."""


def __getattr__(name):
    """Every Python process of a job imports this package, and looking the version up takes several milliseconds."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata
    try:
        return metadata.version("terrazzo")
    except metadata.PackageNotFoundError:  # run from the source tree
        return "unknown"
