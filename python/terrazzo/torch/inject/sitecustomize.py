# SPDX-License-Identifier: Apache-2.0
"""Comes first in PYTHONPATH of a program that runs under `terrazzo run`: activates terrazzo, after it has run the
sitecustomize module that is next on the path, if there is one."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def activate():
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(HERE))))  # last: an installed package comes first
    from terrazzo import autoload, startup
    startup.run_next(HERE)
    autoload.activate()


activate()
