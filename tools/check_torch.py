#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets PyTorch up for the simulated device and runs programs on it; `make check-torch`.

    check_torch.py [--build DIR] [--compile] [NAME...]

The environment is made in TERRAZZO_TORCH_ENV, else in BUILD/torch-env, and kept: a second run takes what is there. The
first downloads PyTorch, half a gigabyte. With --compile triton too, and torch.compile is tried. Ends with one line,
`N passed, N failed`, which it also leaves in BUILD/summary-torch.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "torch"
GIB = 1 << 30
LENGTH = 2048  # tokens of a sequence
SHIPPED = ("llama7b_ckpt", "llama7b_sgd_nockpt")


class Failure(Exception):
    """What a check found wrong."""


class Suite:
    def __init__(self, cli, env):
        self.cli, self.env = cli, env

    def run(self, *words, options=(), status=0):
        """The report of `python WORDS` under terrazzo sim, its output under "output"."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "report.json"
            command = [self.cli, "sim", f"--env={self.env}", f"--json={file}", *options, "--", "python",
                       *map(str, words)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False)
            if done.returncode != status or not file.exists():
                raise Failure(f"status {done.returncode}, not {status}:\n{done.stdout}")
            return {**json.loads(file.read_text()), "output": done.stdout}

    # ---- checks: each is a method whose first line says what holds ----

    def copies(self):
        """bytes come back"""
        self.run(PROGRAMS / "copies.py")

    def scalars(self):
        """scalars read 0"""
        self.run(PROGRAMS / "scalars.py")

    def libraries(self):
        """operations of every library run or are refused by name"""
        report = self.run(PROGRAMS / "libraries.py")
        expect("is not simulated" in report["output"], "no refusal was printed")
        expect(report["library_calls"] > 0, "no library call was counted")

    def graphs(self):
        """a CUDA graph is captured and replayed"""
        expect(self.run(PROGRAMS / "graphs.py")["graph_launches"] == 10, "not 10 launches")

    def one_rank(self):
        """collectives of one rank copy"""
        self.run(PROGRAMS / "one_rank.py", options=["--scalars=real"])

    def runs_out(self):
        """out of memory is PyTorch's own error, with its place and the largest holders"""
        report = self.run(PROGRAMS / "runs_out.py", options=["--memory=24GiB", "--holders"])
        expect(len(report["ooms"]) == 1, f"{len(report['ooms'])} events")
        oom = report["ooms"][0]
        expect(oom["requested_bytes"] == 8 * GIB and "runs_out.py:14 " in oom["place"], str(oom))
        largest = report["holders"][0]
        expect(report["holders_at"] == "failure" and largest["bytes"] == 20 * GIB, str(report["holders"]))
        expect("runs_out.py:9 " in largest["place"], largest["place"])

    def run_out_together(self):
        """threads that are out of memory at a time are all told, by PyTorch's own error"""
        report = self.run(PROGRAMS / "run_out_together.py")
        expect(len(report["ooms"]) == 80, f"{len(report['ooms'])} events")

    def ends_early(self):
        """a program may end with its backward, or with an error of it; without help some of these runs abort"""
        for _ in range(3):
            self.run(PROGRAMS / "ends_early.py")
            report = self.run(PROGRAMS / "ends_early.py", "fails", status=1)
            expect("ValueError: no gradient today" in report["output"], report["output"])

    def late_work(self):
        """with late work nothing is violated"""
        for name in ("graphs.py", "copies.py"):
            report = self.run(PROGRAMS / name, options=["--work=late", "--seed=7"])
            expect(report["violations"] == 0, report.get("first_violation", ""))

    def mistakes(self):
        """with late work a wrong allocator is found out by PyTorch's kernels, a right one is not"""
        compiler = shlex.split(os.environ.get("CC", "cc"))
        with tempfile.TemporaryDirectory() as folder:
            library, driver = Path(folder) / "wrong.so", self.cli.parent.parent / "lib" / "sim" / "libcuda.so.1"
            subprocess.run([*compiler, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Werror", "-shared", "-fPIC", "-o",
                            library, PROGRAMS / "wrong_allocator.c", driver], check=True)
            report = self.run(PROGRAMS / "mistakes.py", library, options=["--work=late"])
        expect("kernel" in report["first_violation"], report["first_violation"])

    def shared_tensors(self):
        """processes share the device, its memory, and work that loads data"""
        report = self.run(PROGRAMS / "shared_tensors.py", options=["--allocator=native"])
        expect(len(report["processes"]) == 2, f"{len(report['processes'])} processes used the device")

    def tiny(self):
        """a tiny LLaMA trains, twice exactly the same"""
        for allocator in ("native", "expandable"):
            first, second = (self.run("bench/workloads/run_program.py", "tiny", options=[f"--allocator={allocator}"])
                             for _ in range(2))
            for key in ("peak_allocated_bytes", "peak_reserved_bytes", "driver_calls", "kernels"):
                expect(first[key] == second[key], f"{allocator}: {key} {first[key]}, then {second[key]}")

    def too_small(self):
        """a program that does not fit ends with PyTorch's own error and text"""
        report = self.run("examples/llama_7b.py", "--steps", 1, options=["--memory=24GiB"], status=1)
        text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"
        expect(text in report["output"] and "total capacity of 24.00 GiB" in report["output"], report["output"])
        expect("llama_7b.py:" in report["ooms"][0]["place"], str(report["ooms"]))

    def fit(self):
        """--fit prints a size that does, and less does not"""
        program = ("bench/workloads/run_program.py", "tiny", "--steps", 2)
        report = self.run(*program, options=["--fit", "--memory=1GiB"])
        printed = re.search(r"fits in .* GiB \(--memory (\d+)MiB\)", report["output"])
        expect(report["fit"]["verified"] and printed, f"{report['fit']}\n{report['output']}")
        size = int(printed.group(1))
        expect(report["fit"]["memory_bytes"] == size << 20, f"{size} MiB printed, {report['fit']}")
        expect(not self.run(*program, options=[f"--memory={size}MiB"])["ooms"], "the size found is not enough")
        less = self.run(*program, options=[f"--memory={size - 64}MiB"], status=1)
        expect(less["ooms"], "64 MiB less are enough too")

    def example(self):
        """examples/llama_7b.py trains and prints PyTorch's own summary; the formula is within a tenth of it"""
        report = self.run("examples/llama_7b.py", "--steps", 2, "--length", LENGTH)
        for text in ("PyTorch CUDA memory summary", "peak reserved", "fragmentation", "driver calls"):
            expect(text in report["output"], f"no '{text}' in:\n{report['output']}")
        done = subprocess.run([self.cli, "estimate", "--json=-", "--params=6.738e9", "--layers=32", "--hidden=4096",
                               "--vocabulary=32000", f"--seq={LENGTH}", "--checkpointing"], stdout=subprocess.PIPE,
                              text=True, check=True)
        estimated, simulated = json.loads(done.stdout)["peak_allocated_bytes"], report["peak_allocated_bytes"]
        distance = estimated / simulated - 1
        print(f"estimate: {estimated / GIB:.2f} GiB by formula, {simulated / GIB:.2f} in a run: {distance:+.1%}")
        expect(abs(distance) < 0.1, f"{distance:+.1%}")

    def compiled(self):
        """torch.compile runs, default and reduce-overhead"""
        self.run(PROGRAMS / "train_compiled.py", "default")
        report = self.run(PROGRAMS / "train_compiled.py", "reduce-overhead")
        expect(report["graph_launches"] > 0, "no graph was launched")

    def plug(self, name):
        """terrazzo takes the place of PyTorch's allocator"""
        libraries = self.cli.parent.parent / "lib"
        done = subprocess.run([self.env / "bin" / "python", PROGRAMS / "run.py", name], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False,
                              env={**os.environ, "TERRAZZO_LIBRARIES": str(libraries), "TERRAZZO_CLI": str(self.cli),
                                   "LD_LIBRARY_PATH": str(libraries / "sim")})
        expect(done.returncode == 0, done.stdout)

    def workload(self, name):
        """as recorded, and the same to the byte on a second run"""
        command = [sys.executable, ROOT / "bench" / "workloads.py", f"--env={self.env}", "--jobs=1", "--twice", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              env={**os.environ, "TERRAZZO_CLI": str(self.cli)})
        expect(done.returncode == 0, done.stdout)


def expect(holds, text):
    if not holds:
        raise Failure(text)


def checks(suite, with_compile):
    """{name: function}"""
    names = ["copies", "scalars", "libraries", "graphs", "one_rank", "runs_out", "run_out_together", "too_small",
             "ends_early", "late_work", "mistakes", "shared_tensors", "tiny", "example",
             "fit"] + ["compiled"] * with_compile
    found = {name: getattr(suite, name) for name in names}
    for name in SHIPPED:
        found[name] = lambda name=name: suite.workload(name)
    for path in sorted(PROGRAMS.glob("test_*.py")):
        name = path.stem[len("test_"):]
        found[f"plug_{name}"] = lambda name=name: suite.plug(name)
    return found


def attempt(name, check):
    """(name, what is wrong or None, seconds)"""
    start = time.monotonic()
    try:
        check()
        return name, None, time.monotonic() - start
    except (Failure, subprocess.CalledProcessError, KeyError, IndexError) as failure:
        return name, str(failure) or repr(failure), time.monotonic() - start


def set_up(cli, env, with_compile):
    command = [cli, "sim", f"--setup={env}", "--with=transformers", "--with=accelerate"] + ["--compile"] * with_compile
    return subprocess.run(command, check=False).returncode == 0


def finish(build, passed, failed):
    for name in failed:
        print(f"FAILED torch: {name}")
    line = f"{passed} passed, {len(failed)} failed"
    build.mkdir(exist_ok=True)
    (build / "summary-torch").write_text(line + "\n")
    print(line, flush=True)
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these checks")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    (args.build / "summary-torch").unlink(missing_ok=True)
    cli = args.build.resolve() / "bin" / "terrazzo"
    env = Path(os.environ.get("TERRAZZO_TORCH_ENV") or args.build / "torch-env").resolve()
    if not cli.exists():
        print(f"check_torch: {cli} is missing; build first")
        return finish(args.build, 0, ["build"])
    if not set_up(cli, env, args.compile):
        return finish(args.build, 0, ["setup"])
    suite = Suite(cli, env)
    wanted = checks(suite, args.compile)
    if set(args.names) - wanted.keys():
        parser.error(f"there are {', '.join(wanted)}")
    failed = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tried = pool.map(lambda name: attempt(name, wanted[name]), args.names or wanted)
        for name, wrong, seconds in tried:
            print(f"{name}: {'ok' if wrong is None else 'FAILED'}, {seconds:.0f} s", flush=True)
            if wrong is not None:
                print("    " + wrong.replace("\n", "\n    "))
                failed.append(f"{name}: {wrong.splitlines()[0]}")
    return finish(args.build, len(args.names or wanted) + 1 - len(failed), failed)


if __name__ == "__main__":
    sys.exit(main())
