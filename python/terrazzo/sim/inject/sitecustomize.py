# SPDX-License-Identifier: Apache-2.0
"""Comes first in PYTHONPATH of a program that runs under `terrazzo sim`: writes down what PyTorch says of its memory.

Does nothing before PyTorch is imported, and then only registers: an observer of out-of-memory, a function at exit,
and, where TERRAZZO_SIM_HOLDERS asks for it, PyTorch's own history of allocations. Writes <pid>.torch.json into the
folder TERRAZZO_SIM_REPORT. The sitecustomize module that is next on the path is run as well, if there is one.
"""
import atexit
import importlib.util
import json
import os
import sys
import threading
import time
import traceback

FOLDER = os.environ.get("TERRAZZO_SIM_REPORT")
HERE = os.path.dirname(os.path.abspath(__file__))
HOLDERS, HISTORY, FRAMES = 10, 4_000_000, 40
NO_FRAME = "no Python frame (backward of autograd)"


def is_library(filename):
    return "site-packages" in filename or filename.startswith((sys.base_prefix + "/lib", "<")) or filename == __file__


def place(frames):
    """The program's own innermost frame, of (file, line, function) from the innermost on."""
    frames = [frame for frame in frames if not frame[0].startswith("<")]
    own = [frame for frame in frames if not is_library(frame[0])]
    return "{}:{} {}".format(*(own or frames)[0]) if frames else NO_FRAME


def frames_of(entry):
    return [(f["filename"], f["line"], f["name"]) for f in entry.get("frames", ()) if f["filename"].endswith(".py")]


def calling_backward():
    """The stack, innermost first, of the thread that waits for autograd, whose own threads have no Python frames."""
    for frame in sys._current_frames().values():
        stack = [(f.filename, f.lineno, f.name) for f in traceback.extract_stack(frame)]
        if any(os.path.join("torch", "autograd") in f[0] for f in stack):
            return stack
    return []


def autograd_threads():
    """{thread: what it does and how often it has stopped} of PyTorch's threads for backward."""
    found = {}
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/status", encoding="utf-8") as stream:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in stream)
        except OSError:
            continue  # it has ended
        if status["Name"].startswith("pt_autograd"):
            found[thread] = status["State"], status.get("voluntary_ctxt_switches")
    return found


def wait_for_autograd():
    """Lets PyTorch's threads for backward drop what the last one held, before the interpreter ends.

    They need its lock for that, in no order with the thread that called backward, which goes on as soon as the result
    or the error is there. One that asks for the lock too late is ended by Python within a destructor, and C++ then
    aborts the process: on a busy machine a program that had done all its work ended with 134 in some runs. Such a
    thread is at rest when it sleeps and has not woken between two looks; one that waits for the lock wakes every 5 ms.
    """
    before, now = {}, autograd_threads()
    for _ in range(100):
        if now == before and all(state.startswith("S") for state, _ in now.values()):
            return
        time.sleep(0.02)
        before, now = now, autograd_threads()


class Holders:
    """Who holds how much, by place in the program."""

    def __init__(self):
        self.bytes, self.count = {}, {}

    def add(self, where, size, sign=1):
        self.bytes[where] = self.bytes.get(where, 0) + sign * size
        self.count[where] = self.count.get(where, 0) + sign

    def largest(self):
        order = sorted((where for where in self.bytes if self.bytes[where] > 0), key=lambda w: -self.bytes[w])
        return [{"place": where, "bytes": self.bytes[where], "blocks": self.count[where]} for where in order[:HOLDERS]]


def live_now(snapshot, device):
    held = Holders()
    for segment in snapshot["segments"]:
        if segment["device"] == device:
            for block in segment["blocks"]:
                if block["state"].startswith("active"):
                    held.add(place(frames_of(block)), block.get("requested_size", block["size"]))
    return held.largest()


def live_at_peak(snapshot, device):
    """Replays the history twice: for the moment of the peak, then up to it."""
    events = snapshot["device_traces"][device]
    used = peak = moment = 0
    for i, event in enumerate(events):
        if event["action"] == "alloc":
            used += event["size"]
        elif event["action"] == "free_completed":
            used -= event["size"]
        if used > peak:
            peak, moment = used, i
    held, live, places = Holders(), {}, {}
    for event in events[:moment + 1]:
        if event["action"] == "alloc":
            frames = frames_of(event)
            key = tuple(frames)
            where = places.setdefault(key, None) or places.setdefault(key, place(frames)) or place(frames)
            live[event["addr"]] = where
            held.add(where, event["size"])
        elif event["action"] == "free_completed" and event["addr"] in live:
            held.add(live.pop(event["addr"]), event["size"], -1)
    return held.largest()


class Recorder:
    def __init__(self, torch):
        self.torch, self.ooms, self.failure = torch, [], {}
        self.wants_holders = bool(os.environ.get("TERRAZZO_SIM_HOLDERS"))
        self.pid = os.getpid()
        # Attention by cuDNN, which PyTorch prefers on new devices, has kernels of its own for each shape, which a
        # stand-in does not have.
        torch.backends.cuda.enable_cudnn_sdp(False)
        # Both need the allocators of all devices, which are made when PyTorch first uses CUDA.
        torch.cuda._lazy_call(self.attach)
        atexit.register(self.end)

    def attach(self):
        if self.torch.cuda.get_allocator_backend() == "pluggable":
            return  # of the user's own, which PyTorch can ask nothing
        if self.wants_holders:
            self.torch.cuda.memory._record_memory_history(
                enabled="all", context="all", stacks="python", max_entries=HISTORY)
        try:
            self.torch._C._cuda_attach_out_of_memory_observer(self.on_oom)
        except RuntimeError:
            pass  # a pluggable allocator has no observers

    def on_oom(self, device, requested, total, free):
        stack = [(f.filename, f.lineno, f.name) for f in traceback.extract_stack()[:-1]] or calling_backward()
        stats = self.torch.cuda.memory_stats(device)
        self.ooms.append({
            "device": device, "requested_bytes": requested, "device_free_bytes": free, "device_total_bytes": total,
            "allocated_bytes": stats.get("allocated_bytes.all.current", 0),
            "reserved_bytes": stats.get("reserved_bytes.all.current", 0),
            "place": place(stack[::-1]), "stack": ["{}:{} {}".format(*f) for f in stack[-FRAMES:]]})
        if self.wants_holders and device not in self.failure:
            self.failure[device] = live_now(self.torch.cuda.memory._snapshot(), device)
        self.write()

    def device(self, index, snapshot):
        stats = self.torch.cuda.memory_stats(index)
        entry = {"device": index, "retries": stats.get("num_alloc_retries", 0), "ooms": stats.get("num_ooms", 0),
                 "allocations": stats.get("allocation.all.allocated", 0)}
        for name in ("allocated", "requested", "active", "reserved"):
            entry[f"peak_{name}_bytes"] = stats.get(f"{name}_bytes.all.peak", 0)
        if index in self.failure:
            entry.update(holders_at="failure", holders=self.failure[index])
        elif snapshot:
            entry.update(holders_at="peak", holders=live_at_peak(snapshot, index))
        return entry

    def write(self):
        cuda = self.torch.cuda
        if os.getpid() != self.pid or not cuda.is_initialized():
            return
        backend = cuda.get_allocator_backend()
        report = {"pid": self.pid, "torch": self.torch.__version__, "backend": backend, "ooms": self.ooms,
                  "devices": []}
        if backend != "pluggable":
            snapshot = cuda.memory._snapshot() if self.wants_holders and not self.failure else None
            report["devices"] = [self.device(i, snapshot) for i in range(cuda.device_count())]
        path = os.path.join(FOLDER, f"{self.pid}.torch.json")
        part = f"{path}.{threading.get_ident()}.part"  # several threads may run out of memory at a time
        with open(part, "w", encoding="utf-8") as stream:
            json.dump(report, stream)
        os.replace(part, path)

    def end(self):
        wait_for_autograd()
        self.write()


def record(torch):
    try:
        Recorder(torch)
    except Exception as error:  # a version of PyTorch that differs: the program must run all the same
        print(f"terrazzo: PyTorch's own figures are not recorded: {error}", file=sys.stderr)


def load_startup():
    folder = os.path.dirname(os.path.dirname(HERE))
    spec = importlib.util.spec_from_file_location("terrazzo_startup", os.path.join(folder, "startup.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


startup = load_startup()
if FOLDER:
    sys.meta_path.insert(0, startup.AfterTorch(record))
startup.run_next(HERE)
