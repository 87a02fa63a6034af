# SPDX-License-Identifier: Apache-2.0
"""Programs on a simulated CUDA device, without a GPU.

    from terrazzo import sim
    sim.setup("env", packages=["transformers"])
    report = sim.run(["python", "train.py"], env="env", memory="40GiB")
    print(report["peak_reserved_bytes"], report["ooms"])
"""
import json
import subprocess
import tempfile
from pathlib import Path

from terrazzo import command
from terrazzo.sim.environment import Failure, setup

__all__ = ["Failure", "run", "setup"]


def run(program, check=False, **options):
    """Runs `program`, a list of words, as `terrazzo sim` does; returns its report (docs/sim.md).

    `options` are those of the command: device="a100-40", memory="24GiB", devices=2, allocator="expandable", env=DIR,
    holders=True, fit=True, sweep="batch=1,2,4", world_size=8, ... With `check` a program that fails raises
    CalledProcessError; terrazzo's own failures raise Failure.
    """
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    terrazzo = command.find()
    if not terrazzo:
        raise Failure("the program terrazzo is missing")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        done = subprocess.run([terrazzo, "sim", *words, f"--json={file}", "--", *map(str, program)], check=False)
        if not file.exists():
            raise Failure(f"terrazzo sim ended with status {done.returncode}; its message is on standard error")
        report = json.loads(file.read_text())
    if check and report.get("exit_status"):
        raise subprocess.CalledProcessError(report["exit_status"], program)
    return report
