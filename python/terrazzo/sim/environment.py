# SPDX-License-Identifier: Apache-2.0
"""Sets up a virtual environment in which PyTorch runs on the simulated device.

It installs PyTorch without the packages of NVIDIA's libraries, but with CUDA's headers, and puts look-alikes and
stand-ins where PyTorch's libraries look for them. Every step first looks at what exists, so that an interrupted set-up
continues where it stopped, and a complete one takes a second. MARK in the environment says what was set up.
"""
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

TORCH = "2.15.0"
MARK = "terrazzo-sim.json"
LEFT_OUT = re.compile(r"Requires-Dist: ((?:nvidia|cuda|triton)\b.*)")
# A runtime that a wheel brings along under a name of its own.
BUNDLED = re.compile(r"libcudart[-.][0-9a-f]{8}\.so\.(\d+)")
# The package that has the runtime's headers, in PyTorch's requirements of different years.
RUNTIME = re.compile(r"^X-Terrazzo-Left-Out: (cuda-toolkit|nvidia-cuda-runtime(?:-cu\d+)?)\b[^=;\n]*==\s*([\w.]+)",
                     re.M)


class Failure(Exception):
    """A message for the user."""


class Environment:
    def __init__(self, folder, say):
        self.folder, self.say = Path(folder).resolve(), say
        self.python = self.folder / "bin" / "python"

    def run(self, *args):
        """Standard output of the environment's Python; None if it failed."""
        try:
            done = subprocess.run([self.python, "-I", *map(str, args)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    def version(self, package):
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        return self.run("-c", code)

    def site_packages(self):
        return Path(self.run("-c", "import sysconfig; print(sysconfig.get_path('platlib'))"))

    def install(self, *args):
        command = [self.python, "-I", "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *args]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise Failure(f"pip could not install {' '.join(a for a in args if a[0] != '-')} "
                          f"(no network, or no wheel for {self.run('-V')}?):\n{done.stdout.strip()}\n"
                          "What is set up so far is kept: run the same command again.")

    def create(self):
        if self.run("-m", "pip", "--version"):
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise Failure(f"{self.folder}: is not a folder; name another one")
        if self.folder.exists() and any(self.folder.iterdir()) and not (self.folder / "pyvenv.cfg").exists():
            raise Failure(f"{self.folder}: is neither empty nor a virtual environment; name another folder")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(f"{self.folder}: cannot be created: {error.strerror}") from None
        self.say(f"virtual environment in {self.folder}")
        done = subprocess.run([sys.executable, "-m", "venv", self.folder], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise Failure(f"python3 -m venv failed; on Debian: apt install python3-venv\n{done.stdout.strip()}")

    def metadata(self):
        return next(self.site_packages().glob("torch-*.dist-info")) / "METADATA"

    def install_torch(self, version):
        """Installs PyTorch without its requirements. Returns (its pure Python requirements, that of triton or None)."""
        present = self.version("torch")
        if present and present.split("+")[0] != version:
            raise Failure(f"{self.folder}: PyTorch {present} is installed here, {version} was requested; "
                          "name another folder, or --torch")
        if not present:
            self.say(f"PyTorch {version}: half a gigabyte")
            self.install("--no-deps", f"torch=={version}")
        self._leave_out()
        text = self.metadata().read_text()
        pure = [line for line in re.findall(r"^Requires-Dist: (.*)", text, re.M)
                if "extra ==" not in line]
        triton = re.search(r"^X-Terrazzo-Left-Out: (triton[^;\n]*)", text, re.M)
        return pure, triton and triton.group(1).strip()

    def _leave_out(self):
        """Removes GPU packages from PyTorch's requirements, lest pip fetch them for another package."""
        path = self.metadata()
        lines = path.read_text().splitlines()
        changed = [LEFT_OUT.sub(r"X-Terrazzo-Left-Out: \1", line) for line in lines]
        if changed != lines:
            path.write_text("\n".join(changed) + "\n")

    def install_headers(self):
        """Installs CUDA's headers, which the shim and recordings are compiled against, as PyTorch requires them."""
        required = RUNTIME.search(self.metadata().read_text())
        if required and not any(self.site_packages().glob("nvidia/*/include/cuda_runtime_api.h")):
            name, version = required.groups()
            self.say("CUDA's headers")
            self.install(f"{name}[cudart]=={version}" if name == "cuda-toolkit" else f"{name}=={version}")

    def take_out_runtime(self):
        """Removes the genuine runtime, which the package of CUDA's headers puts where the look-alike belongs."""
        site = self.site_packages()
        for record in site.glob("nvidia_cuda_runtime*.dist-info/RECORD"):
            for name in re.findall(r"^(nvidia/.*/libcudart\.so\.[0-9.]+),", record.read_text(), re.M):
                if not (site / name).is_symlink():
                    (site / name).unlink(missing_ok=True)

    def replace_runtimes(self, libraries):
        """Puts the look-alike where wheels bring a genuine runtime along, which would refuse the simulated device."""
        for path in self.site_packages().rglob("libcudart[-.]*.so.*"):
            bundled = BUNDLED.match(path.name)
            lookalike = bundled and next(libraries.glob(f"libcudart.so.{bundled.group(1)}*"), None)
            if lookalike and not path.is_symlink():
                path.unlink()
                path.symlink_to(lookalike)

    def link_terrazzo(self):
        """Links this package, for programs that import terrazzo.torch, unless the environment has it installed."""
        link, package = self.site_packages() / "terrazzo", Path(__file__).resolve().parents[1]
        if link.is_symlink():
            link.unlink()
        if not link.exists():
            link.symlink_to(package)

    def make_standins(self, libraries, cc):
        """Makes the stand-ins with the environment's own Python, which has pyelftools."""
        script = Path(__file__).with_name("standins.py")
        command = [self.python, "-I", script, self.site_packages() / "torch", "--libraries", libraries, "--sources",
                   find_sources(), "--cc", cc]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise Failure(done.stderr.strip().removeprefix("terrazzo: "))
        return done.stdout.strip()

    def compile_observer(self):
        """Compiles what the first program would have to wait for. Returns what is missing, or None."""
        code = ("import torch; from terrazzo.torch import _build\n"
                "try: _build.observer_path(torch, 'computing')\n"
                "except _build.Missing as error: print(error)")
        return self.run("-c", code)


def find_libraries(given=None):
    """The folder of the look-alikes."""
    here = Path(__file__).resolve().parent
    candidates = [given, os.environ.get("TERRAZZO_SIM_LIBRARIES"), here.parent / "lib" / "sim"]
    for folder in filter(None, candidates):
        if (Path(folder) / "libcuda.so.1").exists():
            return Path(folder).resolve()
    raise Failure("the look-alike libraries are missing; build terrazzo first, or name their folder by --libraries")


def find_sources():
    """The folder of the stand-ins' sources."""
    here = Path(__file__).resolve().parent
    for folder in (here / "standin", here.parents[2] / "lookalike" / "standin"):
        if folder.is_dir():
            return folder
    raise Failure("the sources of the stand-ins are missing from this installation of terrazzo")


def digest_sources():
    """A text that tells what this terrazzo makes stand-ins from; others make it from other files."""
    digest = hashlib.sha256()
    for path in (Path(__file__).with_name("standins.py"), *sorted(find_sources().iterdir())):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def warn_of_old_standins(folder):
    """Says so, in the first process of a run, if the environment's stand-ins are of another terrazzo."""
    mark = Path(folder) / MARK
    if os.environ.get("TERRAZZO_SIM_STANDINS") == str(folder) or not mark.exists():
        return
    os.environ["TERRAZZO_SIM_STANDINS"] = str(folder)
    made = json.loads(mark.read_text())
    if made.get("standins") != digest_sources():
        version = f" --torch {made['torch']}" if made.get("torch") else ""
        print(f"terrazzo: {folder} was set up by another terrazzo, so what its stand-ins for CUDA's libraries do "
              f"may be wrong by now: run `terrazzo sim --setup {folder}{version}` again", file=sys.stderr)


def find_compiler():
    cc = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if not cc or not shutil.which(shlex.split(cc)[0]):
        raise Failure("a C compiler is missing; install gcc, or name one in CC")
    return cc


def check(env, libraries, compile_too):
    """Asks PyTorch itself for the device's name, with what `terrazzo sim` preloads."""
    code = "import torch; print(torch.cuda.get_device_name(0)); (torch.zeros(8, device='cuda') + 1).sum().item()"
    if compile_too:
        code += "; import triton"
    redirect = libraries / "libterrazzo_redirect.so"
    preloaded = {"LD_PRELOAD": str(redirect)} if redirect.exists() else {}
    done = subprocess.run([env.python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **preloaded, "TERRAZZO_SIM_REPORT": ""}, check=False)
    if done.returncode:
        raise Failure(f"PyTorch is set up and does not run on the simulated device:\n{done.stderr.strip()}")
    return done.stdout.strip()


def setup(folder, torch=TORCH, compile=False, packages=(), libraries=None, say=print):
    """Sets up `folder`; see the head of this file. `packages` are installed beside PyTorch. Raises Failure."""
    if sys.version_info < (3, 10):
        raise Failure(f"PyTorch needs Python 3.10 or newer, this is {sys.version.split()[0]}")
    libraries, cc = find_libraries(libraries), find_compiler()
    env = Environment(folder, say)
    env.create()
    pure, triton = env.install_torch(torch)
    env.install(*pure, "numpy", "pyelftools")
    if compile:
        if not triton:
            raise Failure(f"PyTorch {torch} names no version of triton that --compile could install")
        if not env.version("triton"):
            say("triton: one gigabyte")
            env.install("--no-deps", triton)
    if packages:
        say(" ".join(packages))
        env.install(*packages)
    env.install_headers()
    env.take_out_runtime()
    env.replace_runtimes(libraries)
    env.link_terrazzo()
    say(env.make_standins(libraries, cc))
    name = check(env, libraries, compile)
    if missing := env.compile_observer():
        say(f"programs will read 0 from the device: {missing}")
    mark = {"torch": env.version("torch"), "triton": env.version("triton"), "libraries": str(libraries),
            "standins": digest_sources()}
    (env.folder / MARK).write_text(json.dumps(mark) + "\n")
    say(f"{env.folder}: PyTorch {mark['torch']} on {name}")
    return mark
