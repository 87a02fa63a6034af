# SPDX-License-Identifier: Apache-2.0
"""What our two sitecustomize modules, sim/inject/ and torch/inject/, share.

Every Python process of a job runs this, PyTorch or not. So importlib.util, which imports many modules, is imported only
when needed, and importlib.abc never.
"""
import os
import sys
from importlib.machinery import PathFinder


def run_next(here):
    """Runs the next sitecustomize module behind the folder `here` on the path, if there is one."""
    path = [os.path.abspath(entry) for entry in sys.path]
    after = sys.path[path.index(here) + 1:] if here in path else []
    spec = PathFinder.find_spec("sitecustomize", after)
    if spec and spec.loader:
        from importlib.util import module_from_spec
        spec.loader.exec_module(module_from_spec(spec))


class AfterImport:
    """A finder and loader: finds a module as the others would, and calls `then` with it once it has run. Stays until an
    import succeeds: a program may only look whether the module is installed, and an import may fail."""

    def __init__(self, module, then):
        self.module, self.then, self.loader = module, then, None

    def find_spec(self, name, path, target=None):
        if name != self.module:
            return None
        finders = list(sys.meta_path)
        behind = finders[finders.index(self) + 1:] if self in finders else []
        specs = (finder.find_spec(name, path, target) for finder in behind if hasattr(finder, "find_spec"))
        spec = next(filter(None, specs), None)
        if spec and spec.loader:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self.then(module)
