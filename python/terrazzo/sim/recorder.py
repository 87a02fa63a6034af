# SPDX-License-Identifier: Apache-2.0
"""Records PyTorch's memory in a program under `terrazzo sim`: writes <pid>.torch.json into the folder
TERRAZZO_SIM_REPORT. inject/sitecustomize.py runs this file once PyTorch has been imported.

It only registers an observer of out-of-memory and a function at exit and, for a page or holders, starts PyTorch's own
history of allocations (pages.py).
"""
import atexit
import ctypes
import functools
import importlib.util
import json
import os
import sys
import threading
import time
import traceback

FOLDER = os.environ.get("TERRAZZO_SIM_REPORT")
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FRAMES = 40
NO_FRAME = "no Python frame (backward of autograd)"


COMPILED = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or "/torchinductor_"
TEXT = "{}:{} {}".format


def is_library(filename):
    return any(part in filename for part in ("site-packages", "dist-packages", COMPILED)) or filename.startswith(
        (sys.base_prefix + "/lib", OURS, "<"))


def place(frames):
    """The program's own innermost frame among (file, line, function), innermost first. A program that is installed like
    a library has none: then the innermost that is not PyTorch's."""
    frames = [frame for frame in frames if not frame[0].startswith("<")]
    own = [frame for frame in frames if not is_library(frame[0])]
    others = [frame for frame in frames if "/torch/" not in frame[0]]
    return TEXT(*(own or others or frames)[0]) if frames else NO_FRAME


def frames_from(frame):
    """(file, line, function) from the outermost frame to `frame`."""
    return [(f.filename, f.lineno, f.name) for f in traceback.extract_stack(frame)]


def calling_backward(but):
    """The stack of the thread that waits for autograd. Autograd's own threads only have frames of code written in
    Python, such as a layer that is computed again."""
    for thread, frame in sys._current_frames().items():
        stack = frames_from(frame) if thread != but else []
        if any("/torch/autograd/" in f[0] for f in stack):
            return stack
    return []


def stack_here():
    """The stack of our caller's caller, outermost frame first, beginning in the program."""
    frame = sys._getframe(1).f_back
    stack = frames_from(frame) if frame else []
    thread = threading.get_ident()
    is_autograds = thread not in threading._active or isinstance(threading.current_thread(), threading._DummyThread)
    return calling_backward(thread) + stack if is_autograds else stack


def told(stack):
    """The place, the program's own frames, and the innermost of all."""
    return {"place": place(stack[::-1]), "own": [TEXT(*f) for f in stack if not is_library(f[0])][-FRAMES:],
            "stack": [TEXT(*f) for f in stack[-FRAMES:]]}


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
    """Lets PyTorch's threads for backward drop the last backward's objects before the interpreter ends.

    They need its lock for that, in no order with the thread that called backward, which goes on as soon as the result
    or the error is there. If one asks for the lock too late, Python ends it within a destructor, and C++ aborts the
    process: on a busy machine a program that had done all its work ended with 134 in some runs. A thread is at rest
    when it sleeps and has not woken between two looks; one that waits for the lock wakes every 5 ms.
    """
    before, now = {}, autograd_threads()
    for _ in range(100):
        if now == before and all(state.startswith("S") for state, _ in now.values()):
            return
        time.sleep(0.02)
        before, now = now, autograd_threads()


PEAKS = {f"peak_{name}_bytes": f"{name}_bytes.all.peak" for name in ("allocated", "requested", "active", "reserved")}
SUMS = {"retries": "num_alloc_retries", "ooms": "num_ooms", "allocations": "allocation.all.allocated"}


class Statistics:
    """Figures of the whole run, by device. Keeps the earlier ones when the program resets PyTorch's own, as many
    programs do with each line that they log."""

    def __init__(self, torch):
        self.torch = torch
        self.peaks, self.sums = {}, {}
        self.read = torch.cuda.memory_stats
        for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
            self.watch(torch._C, name, self.all_peaks, self.keep_peaks)
        for name in ("_cuda_resetAccumulatedMemoryStats", "_accelerator_resetAccumulatedStats"):
            self.watch(torch._C, name, self.sums_of, self.keep_sums)

    def watch(self, owner, name, look, keep):
        """Keeps the earlier results of `look` when the reset succeeds: not every allocator has statistics."""
        reset = getattr(owner, name, None)
        if not reset:
            return  # another version of PyTorch

        @functools.wraps(reset)
        def kept_reset(*arguments):
            before = look(*arguments) if self.torch.cuda.is_initialized() else {}
            result = reset(*arguments)
            keep(before)
            return result

        setattr(owner, name, kept_reset)

    def follow(self, plug):
        """For when terrazzo serves: its own functions reset peaks, too, and without the shim only they know any."""
        self.watch(plug._native_library(), "trz_reset_peaks", self.all_peaks, self.keep_peaks)
        if plug.installed() == "hooks":
            self.read = plug.stats

    def now(self, index, names):
        try:
            stats = self.read(index)
        except RuntimeError:
            return {}  # the user's own allocator, of which PyTorch knows nothing
        return {name: stats.get(key, 0) for name, key in names.items()}

    def all_peaks(self, *_):
        return {index: self.now(index, PEAKS) for index in range(self.torch.cuda.device_count())}

    def keep_peaks(self, before):
        for index, peaks in before.items():
            kept = self.peaks.setdefault(index, {})
            kept.update((name, max(value, kept.get(name, 0))) for name, value in peaks.items())

    def sums_of(self, index):
        return {index: self.now(index, SUMS)}

    def keep_sums(self, before):
        for index, sums in before.items():
            kept = self.sums.setdefault(index, {})
            kept.update((name, value + kept.get(name, 0)) for name, value in sums.items())

    def figures(self, index):
        peaks, sums = self.now(index, PEAKS), self.now(index, SUMS)
        found = {name: max(value, self.peaks.get(index, {}).get(name, 0)) for name, value in peaks.items()}
        found.update((name, value + self.sums.get(index, {}).get(name, 0)) for name, value in sums.items())
        return found


def is_expandable(torch):
    """Whether PyTorch's own allocator uses expandable segments now: a program can switch while it runs."""
    if hasattr(torch._C, "_accelerator_getAllocatorSettings"):
        settings = torch._C._accelerator_getAllocatorSettings().replace(" ", "")
        return settings.rpartition("expandable_segments:")[2].startswith("True")
    snapshot = torch.cuda.memory._snapshot()
    if "allocator_settings" in snapshot:
        return bool(snapshot["allocator_settings"]["expandable_segments"])
    segments = snapshot["segments"] if isinstance(snapshot, dict) else snapshot  # a list until 2.0
    return any(segment.get("is_expandable") for segment in segments)


def backend_of(torch):
    return torch.cuda.get_allocator_backend() if hasattr(torch.cuda, "get_allocator_backend") else "native"  # 1.13


def allocator_of(torch):
    """The allocator in use, and why it is not the one that the user wanted."""
    plug, autoload = sys.modules.get("terrazzo.torch"), sys.modules.get("terrazzo.autoload")
    if plug and plug.installed():
        return "terrazzo", plug.missing() and f"without its shim: {plug.missing()}"
    backend, failure = backend_of(torch), getattr(autoload, "failure", None)
    name = "expandable" if backend == "native" and is_expandable(torch) else backend
    return name, failure and f"terrazzo could not be installed: {failure}"


def newest_failure(plug, device):
    """The newest failure of terrazzo without its shim, which calls no observer."""
    info = plug._native_library().newest_failure(device)
    if info is None:
        return None
    oom = {"device": device, "requested_bytes": info.requested, "device_free_bytes": info.device_free,
           "device_total_bytes": info.device_total, "allocated_bytes": info.allocated, "reserved_bytes": info.reserved}
    return {**oom, "limit_bytes": info.limit} if info.limit else oom


def complain(error):
    print(f"terrazzo: PyTorch's own figures are not recorded: {error}", file=sys.stderr)


def before(owner, name, note):
    """Calls `note` before each of the program's calls of owner.name."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def noted(*arguments, **named):
        try:
            note(*arguments, **named)
        except Exception as error:
            complain(error)
        return function(*arguments, **named)

    setattr(owner, name, noted)


BlankRead = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int)


def load(name):
    """Loads a module of ours by its file, since the program's packages may not have it."""
    path = os.path.join(OURS, name)
    spec = importlib.util.spec_from_file_location("terrazzo_" + os.path.basename(name)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def observer(torch, name):
    """Loads a C++ file of ours that observes PyTorch, compiled once for each PyTorch, like terrazzo's shim."""
    path = sys.path[:]
    sys.path.append(os.path.dirname(OURS))
    from terrazzo.torch import _build
    sys.path[:] = path
    return ctypes.CDLL(str(_build.observer_path(torch, name)))


def follow_values(torch):
    """Makes PyTorch's operations known to computing.cpp, for `--scalars computed`."""
    try:
        library = observer(torch, "computing")
        library.computing_begin.restype = ctypes.c_char_p
        failure = (library.computing_begin() or b"").decode()
        library.computing_share.argtypes = [ctypes.c_void_p]
    except Exception as error:  # no compiler, or another version of PyTorch: the program must run all the same
        failure = str(error)
    if failure:
        print(f"terrazzo: what the host sends cannot be followed, and reads from the device give 0: {failure}",
              file=sys.stderr)
    else:
        follow_sharing(torch, library)


def follow_sharing(torch, library):
    """Puts what is known of a tensor into its memory before other processes get it."""
    share = torch.UntypedStorage._share_cuda_

    @functools.wraps(share)
    def _share_cuda_(self, *args, **kwargs):
        library.computing_share(self._cdata)
        return share(self, *args, **kwargs)

    torch.UntypedStorage._share_cuda_ = _share_cuda_


def requests_library(torch):
    """requests.cpp, where PyTorch's own allocator serves the requests."""
    if sys.modules.get("terrazzo.torch") and sys.modules["terrazzo.torch"].installed():
        raise RuntimeError("terrazzo serves them; record with PyTorch's own allocator")
    if backend_of(torch) != "native":
        raise RuntimeError(f"{backend_of(torch)} serves them; record with PyTorch's own allocator")
    library = observer(torch, "requests")
    library.requests_follow.restype = ctypes.c_char_p
    return library


class Recorder:
    def __init__(self, torch):
        self.torch, self.ooms = torch, []
        self.observed = False  # PyTorch tells of requests without memory
        self.driver = None
        self.blank_read = BlankRead(self.on_blank_read)
        self.first_blank_read = None
        self.uncaught = {}     # if it does not: what is known of the failure that ended the program
        self.pages = load("pages.py").Pages(torch)
        self.pid = None        # the process that uses CUDA; its children made by fork() cannot
        self.statistics = Statistics(torch)
        self.ranks = load("sim/ranks.py").Ranks(torch, is_library, calling_backward)
        # PyTorch prefers cuDNN's attention on new devices, but that has kernels for each shape, which a stand-in lacks.
        # A program that lists it among others (sdpa_kernel) gets the next one.
        if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):  # older PyTorch has no attention by cuDNN
            torch.backends.cuda.enable_cudnn_sdp(False)
            torch._C._set_sdp_use_cudnn = lambda enabled: None
        before(os, "_exit", lambda *_, **__: self.last_words())  # how worker processes of multiprocessing end
        atexit.register(self.end)
        # The rest needs the allocators of all devices, which PyTorch makes when it first uses CUDA.
        torch.cuda._lazy_call(self.try_to_attach)

    def try_to_attach(self):
        try:
            self.attach()
        except Exception as error:
            complain(error)

    def attach(self):
        self.pid = os.getpid()
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.driver.trz_lookalike_on_blank_read(self.blank_read)
        self.ranks.attach(self.driver)
        before(sys, "excepthook", self.on_exception)
        plug = sys.modules.get("terrazzo.torch")
        if plug and plug.installed():
            self.statistics.follow(plug)
        try:
            self.torch._C._cuda_attach_out_of_memory_observer(self.on_oom)
            self.observed = True
        except (AttributeError, RuntimeError):
            pass  # PyTorch 1.13, function pointers and cudaMallocAsync have no observers, and keep no history
        self.pages.start()
        if os.environ.get("TERRAZZO_SIM_RECORD"):
            self.follow_requests()
        self.write()

    def follow_requests(self):
        """Makes PyTorch's allocator report the program's requests to it (requests.cpp)."""
        try:
            failure = requests_library(self.torch).requests_follow(
                self.driver.trz_lookalike_request, self.driver.trz_lookalike_inside)
        except Exception as error:
            failure = str(error).encode()
        if failure:
            self.driver.trz_lookalike_stop_recording(b"PyTorch's requests cannot be followed: " + failure)

    def on_oom(self, device, requested, total, free):
        stats = self.torch.cuda.memory_stats(device)
        capacity = self.torch.cuda.get_device_properties(device).total_memory
        oom = {"device": device, "requested_bytes": requested, "device_free_bytes": free,
               "device_total_bytes": capacity, "allocated_bytes": stats.get("allocated_bytes.all.current", 0),
               "reserved_bytes": stats.get("reserved_bytes.all.current", 0), **told(stack_here())}
        if total < capacity:  # a memory fraction's limit comes in its place
            oom["limit_bytes"] = total
        self.ooms.append(oom)
        if len(self.ooms) == 1:
            self.pages.write()
        self.write()

    def on_blank_read(self, size, is_news):
        self.first_blank_read = place(stack_here()[::-1])
        if is_news:
            print(f"terrazzo: {self.first_blank_read}: a read of {size} bytes from the device gives 0, as reads of "
                  "up to 16 do here, of what the host has not sent: kernels compute nothing (--scalars real: what "
                  "lies there). The report counts them",
                  file=sys.stderr, flush=True)
        self.write()

    def on_exception(self, kind, error, trace):
        if issubclass(kind, self.torch.cuda.OutOfMemoryError) and not self.observed:
            stack = [(f.filename, f.lineno, f.name) for f in traceback.extract_tb(trace)]
            self.uncaught = {**told(stack), "text": str(error)}

    def failures(self):
        """The failures: if PyTorch does not report them, terrazzo knows the newest; else the driver's figures serve."""
        plug = sys.modules.get("terrazzo.torch")
        if self.observed:
            return {"ooms": self.ooms}
        if not plug or plug.installed() != "hooks":
            return {"uncaught": self.uncaught}
        found = (newest_failure(plug, device) for device in range(self.torch.cuda.device_count()))
        return {"ooms": [{**oom, **self.uncaught} for oom in found if oom]}

    def write(self, ended=False):
        """Writes the facts known so far; PyTorch's figures count once they are the last."""
        cuda = self.torch.cuda
        if os.getpid() != self.pid or not os.path.isdir(FOLDER):  # a process may outlive the run
            return
        allocator, reason = allocator_of(self.torch)
        report = {"pid": self.pid, "torch": self.torch.__version__, "backend": backend_of(self.torch),
                  "allocator": allocator, "ended": ended, **self.failures()}
        if reason:
            report["allocator_reason"] = reason
        tracker = sys.modules.get("terrazzo.torch._track")
        if tracker and tracker.most:
            report["categories"] = tracker.most
        if self.first_blank_read:
            report["first_blank_read"] = self.first_blank_read
        report["devices"] = [{"device": i, **self.statistics.figures(i)} for i in range(cuda.device_count())]
        path = os.path.join(FOLDER, f"{self.pid}.torch.json")
        part = f"{path}.{threading.get_ident()}.part"  # several threads may run out of memory at a time
        with open(part, "w", encoding="utf-8") as stream:
            json.dump(report, stream)
        os.replace(part, path)

    def last_words(self):
        self.write(ended=True)
        self.pages.write()

    def end(self):
        wait_for_autograd()
        self.last_words()
        if self.driver:
            self.driver.trz_lookalike_on_blank_read(None)  # Python ends
            self.ranks.detach(self.driver)


def record(torch):
    try:
        Recorder(torch)
    except Exception as error:  # a version of PyTorch that differs: the program must run all the same
        complain(error)
