# SPDX-License-Identifier: Apache-2.0
"""terrazzo: a caching GPU memory allocator. Here: programs on a simulated device (terrazzo.sim)."""


def __getattr__(name):
    """Looks the version up only on demand: that takes milliseconds, and every Python process of a job comes here."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import metadata
    try:
        return metadata.version("terrazzo")
    except metadata.PackageNotFoundError:  # run from the source tree
        return "unknown"
