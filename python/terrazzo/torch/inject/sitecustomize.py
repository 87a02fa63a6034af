# SPDX-License-Identifier: Apache-2.0
"""Comes first in PYTHONPATH of a program that runs under `terrazzo run`: activates terrazzo, then runs the
sitecustomize module that is next on the path, if there is one."""
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))


def load_startup():
    spec = importlib.util.spec_from_file_location("terrazzo_startup", os.path.join(PACKAGE, "startup.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def activate():
    sys.path.append(os.path.dirname(PACKAGE))  # last, so that an installed package comes first
    from terrazzo import autoload
    autoload.activate()


load_startup().run_next(HERE)
activate()
