# SPDX-License-Identifier: Apache-2.0
"""Comes first in PYTHONPATH of a program that runs under `terrazzo run`: activates terrazzo, then runs the
sitecustomize module that is next on the path, if there is one."""
import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


def run_next():
    path = [os.path.abspath(entry) for entry in sys.path]
    after = sys.path[path.index(HERE) + 1:] if HERE in path else []
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", after)
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def activate():
    sys.path.append(PACKAGES)  # last, so that an installed package comes first
    from terrazzo import autoload
    autoload.activate()


run_next()
activate()
