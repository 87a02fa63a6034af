# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of this folder with the Python that runs this, whose PyTorch is put on terrazzo.

    python tests/torch/run.py [-v] [NAME]...     NAME: programs, oom, ... (test_NAME.py); all without

Each file runs once in each mode that it names in a line `# modes: shim hooks`. TERRAZZO_LIBRARIES names the folder
of libterrazzo_torch.so.
"""
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = HERE.parents[1] / "python"


def modes_of(path):
    found = re.search(r"^# modes: (.+)$", path.read_text(), re.M)
    return found.group(1).split() if found else ["shim"]


def run(path, mode, verbose):
    start = time.monotonic()
    # What a process says after its tests is over is not theirs: the last line of the results decides.
    env = {**os.environ, "TRZ_TORCH_MODE": mode,
           "PYTHONPATH": os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")]))}
    done = subprocess.run([sys.executable, str(path), "-v"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=env, check=False)
    counted = re.search(r"^Ran (\d+) tests? in", done.stdout, re.M)
    passed = bool(re.search(r"^OK\b", done.stdout, re.M)) and counted is not None and int(counted.group(1)) > 0
    skipped = re.search(r"skipped=(\d+)", done.stdout)
    print(f"{'ok' if passed else 'FAILED':<7}{path.stem[5:]:<12}{mode:<7}{counted.group(1) if counted else 0:>3} tests"
          f"{', ' + skipped.group(1) + ' skipped' if skipped else '':<12}{time.monotonic() - start:7.1f} s", flush=True)
    if verbose or not passed:
        print(done.stdout)
    return passed


def main():
    names = [name for name in sys.argv[1:] if name != "-v"]
    paths = [HERE / f"test_{name}.py" for name in names] or sorted(HERE.glob("test_*.py"))
    results = [run(path, mode, "-v" in sys.argv) for path in paths for mode in modes_of(path)]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
