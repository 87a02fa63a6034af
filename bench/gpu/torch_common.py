# SPDX-License-Identifier: Apache-2.0
"""Shared by the programs torch_*.py of this folder: where things are, processes with a time limit, the device's use."""
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIBRARIES = Path(os.environ.get("TERRAZZO_LIBRARIES") or ROOT / "build" / "lib").resolve()
CLI = Path(os.environ.get("TERRAZZO_CLI") or ROOT / "build" / "bin" / "terrazzo").resolve()
CACHE = os.environ.get("TERRAZZO_CACHE") or "/tmp/terrazzo-cache"
GIB, MIB = 1 << 30, 1 << 20
ALLOCATORS = {"native": {}, "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
              "async": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, "terrazzo": {}}


def environment(allocator="native", **more):
    """The environment of a Python process with this allocator. Terrazzo itself is installed by what runs there."""
    env = {key: value for key, value in os.environ.items()
           if key not in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TERRAZZO", "TERRAZZO_CONF")}
    path = [str(ROOT / "python"), env.get("PYTHONPATH")]
    env.update({"PYTHONPATH": os.pathsep.join(filter(None, path)), "TERRAZZO_LIBRARIES": str(LIBRARIES),
                "TERRAZZO_CLI": str(CLI), "TERRAZZO_CACHE": CACHE, "HF_HUB_OFFLINE": "1",
                "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1",
                # Asking for the number of devices must not start CUDA in a process that forks others.
                "PYTORCH_NVML_BASED_CUDA_CHECK": "1", "PYTHONFAULTHANDLER": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
    if (ROOT / "build" / "deps").is_dir():  # libraries that the tool `terrazzo` needs, where they are not installed
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, (env.get("LD_LIBRARY_PATH"), str(ROOT / "build" / "deps"))))
    return {**env, **ALLOCATORS[allocator], **more}


def run(command, limit, env=None, cwd=ROOT):
    """(status, output, seconds). A process that takes longer than `limit` is ended with all that it started: status
    'timeout'."""
    begin = time.monotonic()
    with subprocess.Popen([str(word) for word in command], cwd=cwd, env=env or environment(), text=True,
                          errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        try:
            output, status = process.communicate(timeout=max(1, limit))[0], process.returncode
        except subprocess.TimeoutExpired:
            end_group(process.pid)
            output, status = process.communicate()[0], "timeout"
    return status, output, time.monotonic() - begin


def end_group(leader):
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Management:
    """The device's memory in use by all processes, from NVML; 0 if there is none."""

    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    def __init__(self):
        self.device, self.library = ctypes.c_void_p(), None
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)) == 0:
                self.library = library
        except OSError as error:
            print(f"no NVML: {error}", file=sys.stderr)

    def memory(self):
        found = self.Memory()
        if self.library:
            self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(found))
        return found

    def used(self):
        return self.memory().used

    def text(self, function, *arguments):
        buffer = ctypes.create_string_buffer(96)
        if self.library and getattr(self.library, function)(*arguments, buffer, 96) == 0:
            return buffer.value.decode()
        return "unknown"

    def describe(self):
        return {"device": self.text("nvmlDeviceGetName", self.device), "total_bytes": self.memory().total,
                "driver": self.text("nvmlSystemGetDriverVersion"), "used_before_bytes": self.used()}


class Sampler(threading.Thread):
    """The most memory that the device had in use while it ran, every 20 ms."""

    def __init__(self, management):
        super().__init__(daemon=True)
        self.management, self.most, self.ended = management, management.used(), threading.Event()
        self.before = self.most

    def __enter__(self):
        self.start()
        return self

    def run(self):
        while not self.ended.wait(0.02):
            self.most = max(self.most, self.management.used())

    def __exit__(self, *error):
        self.ended.set()
        self.join()


def settle(management, least, limit=5):
    """Waits until the device's use is down to `least` bytes and a little; processes end before their memory is back."""
    until = time.monotonic() + limit
    while management.used() > least + 64 * MIB and time.monotonic() < until:
        time.sleep(0.02)
    return management.used()


def last_lines(text, count=12):
    return "\n".join(text.rstrip().splitlines()[-count:])


def prepare():
    """Compiles terrazzo's shim, if it is not there. What it says, for the record: time, places, versions."""
    code = ("import time, sys, os; begin = time.monotonic(); import torch; imported = time.monotonic()\n"
            "import terrazzo.torch as t; t.install(); done = time.monotonic(); missing = t.missing()\n"
            "x = torch.ones(9, device='cuda'); assert x.is_cuda\n"
            "print('torch', torch.__version__, 'CUDA', torch.version.cuda, 'Python', sys.version.split()[0])\n"
            "print(f'import torch {imported - begin:.1f} s, install() {done - imported:.1f} s')\n"
            "print('missing:', missing, ' library:', t._parts.find_library())\n"
            "print('backend', torch.cuda.get_allocator_backend(), ' allocated', torch.cuda.memory_allocated())\n"
            "from terrazzo import compiling; from terrazzo.torch import _build\n"
            "print('runtime', _build.loaded_cudart())\n"
            "print('headers', _build.cuda_flags())\n"
            "try: print('frames', t._frames.path())\n"
            "except Exception as error: print('no Python frames:', error)\n"
            "print('kept in', compiling.cache_folder(), sorted(os.listdir(compiling.cache_folder())))\n")
    status, output, seconds = run([sys.executable, "-c", code], 120)
    text = f"status {status}, {seconds:.1f} s\n{output}"
    folder = Path(CACHE)
    if status != 0 or "missing: None" not in output:  # the compiler's words are needed to understand this
        for log in sorted(folder.glob("*.log"))[-1:]:
            text += f"---- {log}\n{log.read_text(errors='replace')[:6000]}\n"
    return text
