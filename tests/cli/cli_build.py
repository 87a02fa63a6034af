# SPDX-License-Identifier: Apache-2.0
"""What the build under test is."""
import os
from pathlib import Path

LIBRARIES = Path(os.environ["TERRAZZO_CLI"]).resolve().parent.parent / "lib"

# Programs that are not built with it, Python and the shell among them, can neither load nor preload the libraries then.
HAS_ADDRESS_SANITIZER = b"__asan_init" in (LIBRARIES / "libterrazzo.so").read_bytes()
