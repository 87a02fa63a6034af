# SPDX-License-Identifier: Apache-2.0
"""Makes terrazzo PyTorch's allocator as soon as a program imports torch, without a change of the program.

`activate()` is called at the start of the interpreter where TERRAZZO=1: by terrazzo.pth of the installed package, or
by inject/sitecustomize.py under `terrazzo run`. Nothing happens in a program that does not import torch.
"""
import importlib.abc
import importlib.util
import os
import sys


class AfterTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch as the others would, and installs terrazzo once its module has run."""

    loader = None

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        install()


def install():
    """Says why, and lets the program run, where terrazzo cannot be installed."""
    try:
        import torch
        if not torch.version.cuda:
            return
        from terrazzo import torch as plug
        plug.install()
    except Exception as error:
        print(f"terrazzo: not installed, PyTorch's own allocator is used: {error}", file=sys.stderr)


def activate():
    if os.environ.get("TERRAZZO") != "1":
        return
    if "torch" in sys.modules:
        install()
    else:
        sys.meta_path.insert(0, AfterTorch())
