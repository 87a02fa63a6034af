# SPDX-License-Identifier: Apache-2.0
"""Snapshots from which `terrazzo run --report` and `terrazzo sim --report` make pages, and `terrazzo sim --holders` its
explanation: one for each process that uses PyTorch's GPU memory, written when it runs out of memory and again at its
end.

TERRAZZO_PAGES names the folder. A file is RANK-PROCESS-DEVICE.json, or RANK-PROCESS.pickle if PyTorch itself keeps the
history.
"""
from __future__ import annotations

import atexit
import inspect
import os
import pickle
import sys
import threading

FOLDER = os.environ.get("TERRAZZO_PAGES", "")
# Holders need the stacks of autograd's threads, too, which run no lines of Python: these cost most of a history's time.
EVENTS, STACKS = (4_000_000, "all") if os.environ.get("TERRAZZO_SIM_HOLDERS") else (1 << 20, "python")
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def complain(error):
    print(f"terrazzo: no history of process {os.getpid()}: {error or repr(error)}", file=sys.stderr)


def rank():
    given = next((os.environ[name] for name in RANKS if os.environ.get(name)), "")
    return given if given.isdigit() else "none"


def begin_history(begin):
    """Calls PyTorch's function with the arguments of its version."""
    known = inspect.signature(begin).parameters
    if known["enabled"].default == "all":  # since 2.1
        begin(enabled="all", context="all", stacks=STACKS, max_entries=EVENTS)
    elif "trace_alloc_max_entries" in known:  # 2.0
        begin(True, trace_alloc_max_entries=EVENTS, trace_alloc_record_context=True)
    else:  # 1.13 keeps the stacks of live memory alone
        begin(True)


class Pages:
    """Writes the snapshots. Start it when PyTorch has begun to use CUDA."""

    def __init__(self, torch):
        self.torch, self.pid, self.own = torch, None, False

    def start(self):
        if FOLDER:
            try:
                self.record()
            except Exception as error:
                complain(error)

    def record(self):
        plug = sys.modules.get("terrazzo.torch")
        self.pid = os.getpid()
        self.own = bool(plug) and plug.installed() == "hooks"
        if self.own:
            plug.history(events=EVENTS)
        else:
            begin_history(self.torch.cuda.memory._record_memory_history)

    def path(self, rest):
        return os.path.join(FOLDER, f"{rank()}-{self.pid}{rest}")

    def write(self):
        """Writes what is known by now; never fails the program."""
        if os.getpid() != self.pid or not os.path.isdir(FOLDER):
            return  # nothing is recorded, or this is a child made by fork()
        try:
            if self.own:
                self.write_own(sys.modules["terrazzo.torch"])
            else:
                self.write_pickle()
        except Exception as error:
            complain(error)

    def write_own(self, plug):
        for device in range(self.torch.cuda.device_count()):
            if plug.stats(device):
                plug.snapshot(self.path(f"-{device}.json"), device)

    def write_pickle(self):
        path = self.path(".pickle")
        part = f"{path}.{threading.get_ident()}.part"
        with open(part, "wb") as stream:
            pickle.dump(self.torch.cuda.memory._snapshot(), stream, protocol=2)
        os.replace(part, path)


def follow(torch):
    """Follows a program under `terrazzo run`; under `terrazzo sim` the simulated device's recorder does."""
    if not FOLDER or os.environ.get("TERRAZZO_SIM_REPORT"):
        return
    pages = Pages(torch)
    torch.cuda._lazy_call(pages.start)
    atexit.register(pages.write)
