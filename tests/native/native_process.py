# SPDX-License-Identifier: Apache-2.0
"""Runs the test programs on the simulated device, each in a process of its own."""
import os
import subprocess
from pathlib import Path

BUILD = Path(os.environ["TRZ_BUILD_DIR"])
PROGRAMS = BUILD / "tests" / "native" / "programs"
LIBRARIES = Path(os.environ["TRZ_LOOKALIKE_DIR"])
PRELOAD = "libterrazzo_preload.so"  # LD_PRELOAD takes no blanks, which the build's folder may have

# Work on the simulated device: at once, or late and in several orders.
WORKS = ({}, {"work": "late"}, {"work": "late", "schedule": "starve", "seed": 3}, {"work": "late", "schedule": "lifo"})


def environment(variables, **simulated):
    """The test's own environment without our variables; `simulated`: work="late" is TERRAZZO_SIM_WORK."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("TERRAZZO") and name not in ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD")}
    kept["LD_LIBRARY_PATH"] = f"{LIBRARIES}:{BUILD / 'lib'}"
    kept.update(variables)
    kept.update({f"TERRAZZO_SIM_{name.upper()}": str(value) for name, value in simulated.items()})
    return kept


def run(program, *arguments, variables=None, **simulated):
    """The finished process; stdout and stderr are text."""
    return subprocess.run([PROGRAMS / program, *arguments], env=environment(variables or {}, **simulated),
                          capture_output=True, text=True, timeout=300, check=False)
