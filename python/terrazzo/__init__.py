# SPDX-License-Identifier: Apache-2.0
"""terrazzo: a caching GPU memory allocator. Here: programs on a simulated device (terrazzo.sim)."""
from importlib import metadata

try:
    __version__ = metadata.version("terrazzo")
except metadata.PackageNotFoundError:  # run from the source tree
    __version__ = "unknown"
