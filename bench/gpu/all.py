#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All that a machine with a GPU can tell, in one command and a bounded time (bench/README.md).

    python3 bench/gpu/all.py [--out DIR] [--seconds S] [--sim] [PART...]

Parts, the most telling first; each has a share of the time, and what one leaves the later ones have:

    contract     tests/gpu/test_contract_gpu: whether the driver keeps the contract
    conformance  tests/native/programs/conformance: CUDA's own answers, plain and preloaded
    torch        torch_all.py
    native       native_all.py
    figures      build/bench/device_figures

DIR gets a folder of each part with all that it gave, and summary.md after each part: how it ended and its last lines.
--sim: native_all.py on the simulated device; the figures mean nothing then.
"""
import argparse
import os
import sys
import time
from pathlib import Path

import torch_common as common
from native_common import BUILD, PRELOAD, SOURCE, find_driver, joined, toolkit_libraries

HERE = Path(__file__).resolve().parent
# Part -> share of the time
SHARES = {"contract": 0.05, "conformance": 0.07, "torch": 0.42, "native": 0.31, "figures": 0.15}
LINES = 60  # of each part's output that the summary has
GROUP_SECONDS = 20


def environment(**more):
    """For programs of the build: the GPU's driver and runtime before the look-alikes that they were linked with."""
    driver = find_driver()
    given = os.environ.get("LD_LIBRARY_PATH", "")
    folders = [BUILD / "lib", *([driver, *toolkit_libraries()] if driver else []), given]
    return {**common.environment(), "LD_LIBRARY_PATH": joined(filter(None, folders)), **more}


def conformance(until):
    """(status, the answers that are not as documented, plain and preloaded)."""
    program, texts, status = BUILD / "tests" / "native" / "programs" / "conformance", [], 0
    preloaded = {"LD_PRELOAD": str(PRELOAD), "TERRAZZO_CONF": "oom_report:off", "TERRAZZO_NATIVE": "ipc:refuse"}
    groups = common.run([program], 10, environment())[1].split()
    for way, variables in (("plain", {}), ("preloaded", preloaded)):
        lines = []
        for group in groups:
            limit = min(GROUP_SECONDS, until - time.monotonic())
            if limit < 1:
                texts.append(f"{way} {group}: left out, time is over")
                continue
            ended, output, _ = common.run([program, group], limit, environment(**variables))
            lines += output.splitlines()
            if ended not in (0, 1):
                texts.append(f"{way} {group}: ended with {ended}")
                status = 1
        texts.append(f"{way}: {sum(line.startswith('ok ') for line in lines)} answers as documented")
        texts += [f"{way} {line}" for line in lines if not line.startswith("ok ")]
    return status, "\n".join(texts)


def command(part, folder, seconds, sim):
    python = [sys.executable]
    return {"contract": [BUILD / "tests" / "gpu" / "test_contract_gpu"],
            "torch": [*python, HERE / "torch_all.py", f"--out={folder}", f"--seconds={seconds:.0f}"],
            "native": [*python, HERE / "native_all.py", f"--seconds={seconds:.0f}", *["--sim"][:sim], folder],
            "figures": [BUILD / "bench" / "device_figures", *["--quick"][:sim], "--out", folder / "figures.json",
                        "--table", folder / "costs.ini"]}[part]


def run_part(part, folder, seconds, sim):
    """(status, output); a part watches its own time, so it has some seconds more before it is ended."""
    folder.mkdir(parents=True, exist_ok=True)
    if part == "conformance":
        return conformance(time.monotonic() + seconds)
    env = environment() if part in ("contract", "figures") else None
    status, output, _ = common.run(command(part, folder, seconds, sim), seconds + 10, env, SOURCE)
    return status, output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--sim", action="store_true")
    args = parser.parse_args()
    if set(args.parts) - set(SHARES):
        parser.error(f"the parts are {' '.join(SHARES)}")
    parts, until, summary = args.parts or list(SHARES), time.monotonic() + args.seconds, []
    out = args.out.resolve()
    for i, part in enumerate(parts):
        left, begin = until - time.monotonic(), time.monotonic()
        share = left * SHARES[part] / sum(SHARES[other] for other in parts[i:])
        if share < 3:
            head, output = f"{part}: left out, time is over", ""
        else:
            status, output = run_part(part, out / part, share, args.sim)
            (out / part / "output.txt").write_text(output)
            head = f"{part}: status {status}, {time.monotonic() - begin:.0f} of {share:.0f} s"
        summary.append(f"## {head}\n\n```\n{common.last_lines(output, LINES)}\n```\n")
        print(f"==== {head}\n{common.last_lines(output, 12)}", flush=True)
        out.mkdir(parents=True, exist_ok=True)
        (out / "summary.md").write_text("\n".join(summary))  # whatever comes next
    return 0


if __name__ == "__main__":
    sys.exit(main())
