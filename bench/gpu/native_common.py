# SPDX-License-Identifier: Apache-2.0
"""Running programs on the machine's GPU, or on the simulated device: environments, time limits, what went wrong."""
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(os.environ.get("TRZ_SOURCE_DIR", Path(__file__).resolve().parents[2]))
BUILD = Path(os.environ.get("TRZ_BUILD_DIR", SOURCE / "build"))
PRELOAD = BUILD / "lib" / "libterrazzo_preload.so"
TAIL = 1500  # characters of a program's output that the results keep
DRIVER_FOLDERS = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64",
                  "/usr/lib/aarch64-linux-gnu")
SYSTEM_FOLDERS = [folder for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
                  if Path(folder).is_dir()]


@dataclass
class Outcome:
    command: str
    code: int = None          # None: it did not end in time, or could not be started
    seconds: float = 0
    out: str = ""
    err: str = ""
    why: str = ""             # why it did not end well

    @property
    def good(self):
        return self.code == 0

    def tail(self):
        return {"command": self.command[-400:], "code": self.code, "seconds": round(self.seconds, 2), "why": self.why,
                "stdout": self.out[-TAIL:], "stderr": self.err[-TAIL:]}


@dataclass
class Machine:
    """Where programs run, and for how long in all."""
    simulated: bool
    work: Path                # a folder for what is built
    carried: Path             # what native_prepare.sh gathered
    ends: float = 0           # by time.monotonic()
    environment: dict = field(default_factory=dict)
    driver: str = ""

    def left(self):
        return self.ends - time.monotonic()


def bench_program(machine, name):
    """A program of build/bench, or the copy of it that was carried."""
    built = BUILD / "bench" / name
    return built if built.exists() else machine.carried / "built" / name


def find_driver():
    """The folder of the GPU's libcuda.so.1: first of all where the loader finds it."""
    cache = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout \
        if shutil.which("ldconfig") else ""
    found = re.findall(r"libcuda\.so\.1 .*=> (\S+)", cache)
    folders = [*map(os.path.dirname, found), *os.environ.get("LD_LIBRARY_PATH", "").split(":"), *DRIVER_FOLDERS]
    for folder in folders:
        if folder and "/lib/sim" not in folder and (Path(folder) / "libcuda.so.1").exists():
            return folder
    return ""


def find_toolkit():
    """The CUDA toolkit's folder, or None."""
    nvcc = shutil.which("nvcc")
    for folder in (os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).resolve().parents[1], "/usr/local/cuda"):
        if folder and (Path(folder) / "include" / "cuda_runtime_api.h").exists():
            return Path(folder)
    return None


def toolkit_libraries():
    """Its folders of libraries: a toolkit's, or that of a toolkit which came as a package."""
    toolkit = find_toolkit()
    folders = [toolkit / part for part in ("lib64", "targets/x86_64-linux/lib", "lib")] if toolkit else []
    return [folder for folder in folders if folder.is_dir()]


def given_path(machine):
    """build/lib, and what the environment has; no library of the system in front of those that packages bring along."""
    given = [part for part in os.environ.get("LD_LIBRARY_PATH", "").split(":")
             if part and Path(part).resolve() not in (BUILD / "lib" / "sim", BUILD / "deps", BUILD / "lib")]
    return [BUILD / "lib", *([BUILD / "lib" / "sim"] if machine.simulated else []), *given]


def library_path(machine):
    """The driver by its folder, too, since a program linked here may have lib/sim in its run path; and what the machine
    lacks (build/deps) last, after what the system has of the same names."""
    driver = [machine.driver] if machine.driver else []
    return [*given_path(machine), *driver, *toolkit_libraries(), *SYSTEM_FOLDERS, BUILD / "deps"]


def joined(folders):
    return ":".join(map(str, folders))


def open_machine(simulated, work, carried, seconds):
    machine = Machine(simulated, Path(work), Path(carried), time.monotonic() + seconds)
    machine.driver = "" if simulated else find_driver()
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("TERRAZZO_") and name not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    home = machine.work / "home"   # the real one may be read-only; JIT caches go there
    home.mkdir(parents=True, exist_ok=True)
    machine.environment = {**kept, "LD_LIBRARY_PATH": joined(library_path(machine)), "HOME": str(home),
                           "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    if simulated:
        machine.environment["TERRAZZO_SIM_SCALARS"] = "real"
    return machine


def end(process):
    """Ends the program and what it started: each program leads a process group of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(machine, command, limit, cwd=None, stdin=subprocess.DEVNULL, **variables):
    """Runs a program for at most so many seconds. It never raises."""
    words = [str(word) for word in command]
    outcome = Outcome(" ".join(words))
    limit = min(limit, machine.left())
    if limit <= 0.5:
        outcome.why = "no time was left"
        return outcome
    begin = time.monotonic()
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=stdin, text=True,
                                   errors="replace", cwd=cwd, start_new_session=True,
                                   env={**machine.environment, **{k: str(v) for k, v in variables.items()}})
    except OSError as error:
        outcome.why = str(error)
        return outcome
    try:
        outcome.out, outcome.err = process.communicate(timeout=limit)
        outcome.code = process.returncode
    except subprocess.TimeoutExpired:
        end(process)
        outcome.out, outcome.err = process.communicate()
        outcome.why = f"it ran for more than {limit:.0f} s"
    outcome.seconds = time.monotonic() - begin
    if outcome.code:
        lines = [line for line in (*outcome.out.splitlines(), *outcome.err.splitlines())
                 if line.strip() and not re.match(r"terrazzo: \w+: \d+ served", line)]
        telling = [line for line in lines if re.search(r"error|fail|cannot|undefined", line, re.IGNORECASE)]
        ending = f"signal {-outcome.code}" if outcome.code < 0 else f"exit status {outcome.code}"
        outcome.why = f"{ending}: {(telling or lines or ['it said nothing'])[-1][:300]}"
    return outcome
