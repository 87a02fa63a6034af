# SPDX-License-Identifier: Apache-2.0
"""Makes terrazzo PyTorch's allocator as soon as a program imports torch, without a change to the program.

With TERRAZZO=1, terrazzo.pth of the installed package, or inject/sitecustomize.py under `terrazzo run`, calls
`activate()` when the interpreter starts. Nothing happens in a program that does not import torch.
"""
from __future__ import annotations

import os
import sys

from . import pages
from .startup import AfterImport

failure: str | None = None  # why terrazzo could not be installed


def install(torch):
    """Installs terrazzo; if something fails, says what and which allocator is used, and lets the program run."""
    global failure
    try:
        if not torch.version.cuda:
            return
        from terrazzo import torch as plug
        plug.install()
        pages.follow(torch)
    except Exception as error:
        reason = str(error) or repr(error)
        plug = sys.modules.get("terrazzo.torch")
        if plug and plug.installed():  # PyTorch cannot go back
            print(f"terrazzo: installed, but: {reason}", file=sys.stderr)
            return
        failure = reason
        print(f"terrazzo: not installed, PyTorch's own allocator is used: {failure}", file=sys.stderr)


def activate():
    if os.environ.get("TERRAZZO") != "1":
        return
    if "torch" in sys.modules:
        install(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, AfterImport("torch", install))
