#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs torch_times.py, torch_oom.py and torch_checks.py in turn, within a time, on a machine with a GPU and PyTorch.

    python3 bench/gpu/torch_all.py [--out DIR] [--seconds S] [--quick] [PART]...

From a source tree whose build/lib (and, for `terrazzo run` and `explain`, build/bin) is there; nothing has to be
installed. Parts, in this order without names: times values explain fits checks pytorch. Each has a share of the time,
and what one does not use the others get. DIR gets torch_all.txt, all that was printed, and torch_all.json, all figures.
"""
import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch_common as common

HERE = Path(__file__).resolve().parent
# Part -> (program, its words, share of the time)
PARTS = {"times": ("torch_times.py", [], 0.42), "values": ("torch_checks.py", ["values"], 0.12),
         "explain": ("torch_oom.py", ["explain"], 0.12), "fits": ("torch_oom.py", ["fits"], 0.12),
         "checks": ("torch_checks.py", ["ways", "ours"], 0.12), "pytorch": ("torch_checks.py", ["pytorch"], 0.10)}
COMPUTE = "name,driver_version,memory.total,memory.used,pstate,clocks.sm,clocks.mem,temperature.gpu"


def machine():
    """What this machine is, in words."""
    texts = []
    for command in (["nvidia-smi", f"--query-gpu={COMPUTE}", "--format=csv"], ["uname", "-a"], ["g++", "--version"],
                    ["sh", "-c", "nproc; grep MemTotal /proc/meminfo; ulimit -l; df -h /tmp | tail -n 1"],
                    [sys.executable, "-c", "import sys, os; print(sys.version, sys.prefix, os.path.expanduser('~'))"],
                    [str(common.CLI), "--version"]):
        try:
            texts.append(common.run(command, 20)[1].strip().split("\n\n")[0])
        except OSError as error:
            texts.append(f"{command[0]}: {error}")
    return "\n".join(texts)


def stream(command, limit, log):
    """Runs the command for `limit` seconds at most; prints and keeps in `log` what it says."""
    with subprocess.Popen([str(word) for word in command], cwd=common.ROOT, env=common.environment(), text=True,
                          errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as process:
        timer = threading.Timer(max(1, limit), common.end_group, [process.pid])
        timer.start()
        for line in process.stdout:
            log.write(line)
            log.flush()
            sys.stdout.write(line)
            sys.stdout.flush()
        timer.cancel()
        return process.wait()


def run_part(name, seconds, args, log):
    """The figures that the part wrote."""
    program, words, _ = PARTS[name]
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        command = [sys.executable, HERE / program, f"--out={folder}", f"--seconds={seconds:.0f}", *words]
        if args.quick and program != "torch_checks.py":
            command.append("--quick")
        status = stream(command, seconds + 15, log)  # a part watches its own time; this is for one that hangs
        log.write(f"==== {name}: status {status}, {time.monotonic() - begin:.0f} s\n\n")
        for file in sorted(Path(folder).glob("*.txt")):  # the longer texts, which were not printed
            if program == "torch_checks.py":
                log.write(f"---- all of {name}\n{file.read_text(errors='replace')}\n")
        log.flush()
        figures = {file.stem: json.loads(file.read_text()) for file in Path(folder).glob("*.json")}
    return {"status": status, "seconds": time.monotonic() - begin, **figures}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--out", default=".")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if set(args.parts) - set(PARTS):
        parser.error(f"the parts are {' '.join(PARTS)}")
    begin, parts, figures = time.monotonic(), args.parts or list(PARTS), {}
    out = Path(args.out)
    with open(out / "torch_all.txt", "w", encoding="utf-8") as log:
        log.write(machine() + "\n\n")
        for i, name in enumerate(parts):
            left = args.seconds - (time.monotonic() - begin)
            share = PARTS[name][2] / sum(PARTS[other][2] for other in parts[i:])
            if left < 12:
                print(f"{name}: left out, time is over", file=log)
                continue
            figures[name] = run_part(name, left * share, args, log)
            (out / "torch_all.json").write_text(json.dumps(figures) + "\n")  # whatever comes next
    print("\n".join(summary(figures)))
    return 0


def summary(figures):
    """The tables once more: what the end of the output has to show."""
    texts = []
    for name, found in figures.items():
        texts.append(f"==== {name}: status {found['status']}, {found['seconds']:.0f} s")
        for key in ("torch_times", "torch_oom"):
            texts += found.get(key, {}).get("table", [])
        checks = found.get("torch_checks", {})
        texts += [f"values {way}: {row[1]}" for way, row in checks.get("values", {}).items()]
        failed = [way for way, ok in checks.get("ways", {}).items() if not ok]
        ours = checks.get("ours", {})
        failed += [f"{test} {row['failures']}" for test, row in ours.items() if row["ok"] is False]
        undone = [test for test, row in ours.items() if row["ok"] is None]
        if "ways" in checks or "ours" in checks:
            texts.append(f"failed: {', '.join(failed) or 'nothing'}; not done: {', '.join(undone) or 'nothing'}")
        theirs = checks.get("pytorch") or {}
        if theirs:
            texts.append(f"PyTorch's tests: {theirs['counts']}")
            texts += [f"    {test}: native {a}, terrazzo {b}" for test, (a, b) in list(theirs["differ"].items())[:20]]
    return texts


if __name__ == "__main__":
    sys.exit(main())
