# SPDX-License-Identifier: Apache-2.0
"""What both sitecustomize modules of ours share, sim/inject/ and torch/inject/.

Every Python process of a job runs this, PyTorch or not: importlib.util, which brings much along, is imported only where
it is needed, and importlib.abc never.
"""
import os
import sys
from importlib.machinery import PathFinder


def run_next(here):
    """Runs the sitecustomize module that comes behind the folder `here` on the path, if there is one."""
    path = [os.path.abspath(entry) for entry in sys.path]
    after = sys.path[path.index(here) + 1:] if here in path else []
    spec = PathFinder.find_spec("sitecustomize", after)
    if spec and spec.loader:
        from importlib.util import module_from_spec
        spec.loader.exec_module(module_from_spec(spec))


class AfterTorch:
    """A finder and loader: finds torch as the others would, and calls `then` with the module once that has run."""

    def __init__(self, then):
        self.then, self.loader = then, None

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        from importlib.util import find_spec
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec and spec.loader:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.then(module)
