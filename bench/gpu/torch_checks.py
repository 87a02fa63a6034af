#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether PyTorch works on terrazzo on a real GPU: values, this project's tests, PyTorch's own tests.

    torch_checks.py [--out DIR] [--seconds S] [--tests DIR] [--jobs N] [PART]...

values: torch_values.py under native and terrazzo. ways: the three ways in, each by a tiny program, and torch.compile.
ours: tests/torch/test_*.py with the shim, at the same time; then, one file after the other, their tests that look at
the device's free memory. pytorch: test_cuda.py in --tests (build/torch-tests, a copy of PyTorch's file beside a copy of
the package expecttest; neither is part of this project), natively and with TERRAZZO=1. Its tests disturb each other, so
those whose outcomes differ are run again, each in a process of its own; what differs still is printed, apart from what
is different on purpose (docs/pytorch-behaviours.md). The words of what failed go to DIR/torch_checks.txt.
"""
import argparse
import concurrent.futures
import json
import os
import re
import sys
import time
from pathlib import Path

import torch_common as common
from torch_common import CLI, ROOT

HERE = Path(__file__).resolve().parent
TESTS = ROOT / "tests" / "torch"
# At the same time, those that take longest first; then the tests that are marked for it, alone. Left out: functions
# compares with a document, for ten minutes; ways is a part here; devices needs two.
BESIDE = ("sharing", "trackers", "snapshots", "accounting", "programs", "graphs", "pools", "streams")
ALONE = ("accounting", "pools", "oom", "steps", "sharing", "programs")
PROGRAMS = ("copies", "graphs", "run_out_together", "unfinished", "ends_early", "shared_tensors")
INJECT = ROOT / "python" / "terrazzo" / "torch" / "inject"
# PyTorch's tests of what an allocator has nothing to do with, or that take long.
NOT = ("not Autocast and not graph_optims and not GDS and not grad_scaling and not gather and not nvtx and not autocast"
       " and not large_trilu and not cudart_register and not prod_large and not norm_type and not randint")
HUNGRY = ("out_of_memory", "memory_fraction", "_oom", "garbage_collect", "max_split", "notifies_oom", "lazy_init",
          "mempool", "memory_stats", "reserved", "memory_allocation", "limited", "mem_get_info", "memory_used",
          "cublas_workspace")
# PyTorch's tests of what is different on purpose (docs/pytorch-behaviours.md).
ON_PURPOSE = {
    "test_record_stream": "the heap polls only if no other memory is free",
    "test_graph_memory_stats_and_use_result_after_destroy_graph": "memory is reserved in tiles, not in 20 MiB",
    "test_cachingAllocator_raw_alloc": "allocations with the cache disabled are counted",
}
TEXTS = []


def say(text, shown=True):
    TEXTS.append(text)
    if shown:
        print(text, flush=True)


def with_terrazzo(**more):
    """What `pip install` and TERRAZZO=1 do together, from a source tree."""
    env = common.environment(**more)
    return {**env, "TERRAZZO": "1", "PYTHONPATH": os.pathsep.join((str(INJECT), env["PYTHONPATH"]))}


def told(title, status, output, seconds, fine=0):
    ok = status == fine
    say(f"{title:<44} {'ok' if ok else f'FAILED ({status})':<14} {seconds:5.1f} s  "
        f"{'' if ok else common.last_lines(output, 1)[:100]}")
    if not ok:
        say(f"---- {title}\n{output[-6000:]}\n----", shown=False)
    return ok


# ---- parts ----

def values(left, args):
    """All at the same time: nothing is timed, and each start takes some seconds."""
    jobs = {"native": (common.environment(), []), "terrazzo": (with_terrazzo(), []),
            "terrazzo, small tiles": (with_terrazzo(TERRAZZO_CONF="tile_size:2MiB"), []),
            "native, must be wrong": (common.environment(), ["wrong"])}
    found = {}
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        done = {name: pool.submit(common.run, [sys.executable, HERE / "torch_values.py", args.stress, *words],
                                  min(60, left()), env) for name, (env, words) in jobs.items()}
        for name, job in done.items():
            status, output, seconds = job.result()
            wrong = "wrong" in jobs[name][1]
            told(f"values {name}", (0 if status else "no fault seen") if wrong else status, output, seconds)
            say("    " + common.last_lines(output, 1))
            found[name] = status, common.last_lines(output, 1)
    return found


WAY = """
import torch, time
x = torch.ones(1 << 20, device="cuda"); y = (x * 2).sum().item()
print(torch.cuda.get_allocator_backend(), y, torch.cuda.memory_allocated(), len(torch.cuda.memory_summary()))
"""


def ways(left, args):
    """Each way in, and single programs of tests/torch/ under `terrazzo run`."""
    jobs = {"one line": ([sys.executable, "-c", "import terrazzo.torch; terrazzo.torch.install()" + WAY], None),
            "TERRAZZO=1": ([sys.executable, "-c", WAY], with_terrazzo()),
            "terrazzo run": ([CLI, "run", "--", sys.executable, "-c", WAY], None),
            "hooks alone": ([sys.executable, "-c", "import terrazzo.torch as t; t.install(shim=False)" + WAY], None),
            "compile, reduce-overhead": ([sys.executable, TESTS / "train_compiled.py", "reduce-overhead"],
                                         with_terrazzo(TORCHINDUCTOR_CACHE_DIR="/tmp/inductor-cache"))}
    for name in PROGRAMS:
        jobs[f"{name}.py"] = [CLI, "run", "--", sys.executable, TESTS / f"{name}.py"], None
    found = {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        done = {name: pool.submit(common.run, command, min(90, left()), env) for name, (command, env) in jobs.items()}
        for name, future in done.items():
            status, output, seconds = future.result()
            found[name] = told(f"way {name}", status, output, seconds)
            if name in ("one line", "TERRAZZO=1", "terrazzo run", "hooks alone"):
                say("    " + common.last_lines(output, 1))
    return found


def ours(left, args):
    """This project's tests of the plug."""
    found = {}

    def one(name, part, limit):
        mode = re.search(r"^# modes: (\w+)", (TESTS / f"test_{name}.py").read_text(), re.M)
        env = common.environment(TRZ_TORCH_MODE=mode.group(1) if mode else "shim", TRZ_TORCH_PART=part)
        return common.run([sys.executable, TESTS / f"test_{name}.py", "-v"], max(1, limit()), env)

    def tell(name, status, output, seconds):
        done = len(re.findall(r"\bok$", output, re.M))
        if status == "timeout":
            found[name] = {"ok": None, "passed": done, "seconds": seconds, "failures": []}
            say(f"ours {name}: not done in {seconds:.0f} s; {done} passed until then")
            say(f"---- ours {name}\n{output[-6000:]}\n----", shown=False)
            return
        told(f"ours {name}", status, output, seconds)
        bad = sorted(set(re.findall(r"^(?:FAIL|ERROR): (\S+)", output, re.M)))
        found[name] = {"ok": status == 0, "passed": done, "seconds": seconds, "failures": bad}
        say(f"    {done} passed; {' '.join(bad)}")

    kept = left() * 0.4  # for those alone
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        done = {name: pool.submit(one, name, "beside", lambda: left() - kept) for name in BESIDE}
        for name, future in done.items():
            tell(name, *future.result())
    for i, name in enumerate(ALONE):
        if left() < 5:
            found[f"{name}, alone"] = {"ok": None, "passed": 0, "seconds": 0, "failures": []}
            say(f"ours {name}, alone: left out, time is over")
        else:
            tell(f"{name}, alone", *one(name, "alone", lambda: left() / (len(ALONE) - i)))
    return found


WORDS = {"PASSED": "passed", "FAILED": "failure", "ERROR": "error", "SKIPPED": "skipped", "XFAIL": "skipped",
         "XPASS": "passed"}


def outcomes(output):
    """{test: outcome} of pytest -v, with or without workers, complete or not; None: begun, and no more heard of."""
    found = {}
    for line in output.splitlines():
        name = re.search(r"test_cuda\.py::(\w+)::(\w+)", line)
        outcome = re.search(r"\b(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", line)
        if name and outcome:
            found[".".join(name.groups())] = WORDS[outcome.group(1)]
    return found


def words_of(output, test):
    """What pytest says of a test that failed."""
    name = test.rsplit(".", 1)[1]
    found = re.search(rf"^_+ [\w.]*\b{name} _+\n(.*?)(?=^_{{5,}} |^={{5,}} |\Z)", output, re.M | re.S)
    return found.group(1) if found else ""


def pytest(args, way, words, limit):
    """(status, output, seconds) of a run of PyTorch's tests."""
    env = with_terrazzo() if way == "terrazzo" else common.environment()
    path = os.pathsep.join((env["PYTHONPATH"], str(args.tests)))
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--tb=short", "--timeout=30", *words]
    return common.run(command, limit, {**env, "PYTHONPATH": path}, cwd=args.tests)


def pytests(args, title, way, limit):
    """(outcomes, output) of PyTorch's tests: those that can run beside others, or those that want the device alone."""
    hungry = " or ".join(HUNGRY)
    expression = f"{NOT} and not ({hungry})" if title == "beside" else f"{NOT} and ({hungry})"
    expression += f" and ({args.match})" if args.match else ""
    jobs = ["-n", str(args.jobs)] if title == "beside" else []
    status, output, seconds = pytest(args, way, ["-k", expression, "test_cuda.py", *jobs], limit)
    found = outcomes(output)
    say(f"pytorch {way}, {title}: status {status}, {seconds:.0f} s, {len(found)} tests; "
        f"{common.last_lines(output, 1)[-100:]}")
    if not found:
        say(output[-6000:], shown=False)
    return found, output


def differing(native, ours_):
    """{test: (native outcome, terrazzo's)} of those that are not the same."""
    return {test: (native.get(test, "missing"), ours_.get(test, "missing")) for test in sorted({*native, *ours_})
            if native.get(test) != ours_.get(test)}


def is_on_purpose(test):
    return test.rsplit(".", 1)[1] in ON_PURPOSE


def again(left, args, tests):
    """({test: (native outcome, terrazzo's)}, output with terrazzo) of tests in a process of their own, one by one."""
    found, outputs = {}, []
    for test in tests:
        node = "::".join(("test_cuda.py", *test.split(".")))
        pair = []
        for way in ("native", "terrazzo"):
            output = pytest(args, way, [node], left())[1] if left() > 5 else ""
            pair.append(outcomes(output).get(test, "missing"))
        outputs.append(output)
        if "missing" not in pair:
            found[test] = tuple(pair)
    return found, "\n".join(outputs)


def pytorch(left, args):
    """What fails with terrazzo but not natively, and the other way round."""
    if not (args.tests / "test_cuda.py").exists():
        say(f"pytorch: there is no {args.tests / 'test_cuda.py'}")
        return {}
    pairs = {"native": ({}, []), "terrazzo": ({}, [])}
    limit = left() * 0.5
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = {way: pool.submit(pytests, args, "beside", way, limit) for way in pairs}
        results = [(way, future.result()) for way, future in done.items()]
    for i, way in enumerate(pairs):
        results.append((way, pytests(args, "alone", way, left() * 0.6 / (2 - i))))
    for way, (found, output) in results:
        pairs[way][0].update(found)
        pairs[way][1].append(output)
    native, ours_ = pairs["native"][0], pairs["terrazzo"][0]
    alone, words = again(left, args, [test for test in differing(native, ours_) if not is_on_purpose(test)])
    native.update({test: pair[0] for test, pair in alone.items()})
    ours_.update({test: pair[1] for test, pair in alone.items()})
    outputs = words, "\n".join(pairs["terrazzo"][1]), "\n".join(pairs["native"][1])
    counts = {way: {kind: list(found.values()).count(kind) for kind in ("passed", "failure", "error", "skipped")}
              for way, found in (("native", native), ("terrazzo", ours_))}
    say(f"pytorch: {counts}")
    same = [test for test, pair in alone.items() if pair[0] == pair[1]]
    say(f"pytorch: differed beside others, the same alone: {' '.join(same)}", shown=bool(same))
    differ = differing(native, ours_)
    meant = {test: differ.pop(test) for test in list(differ) if is_on_purpose(test)}
    for test, (before, after) in meant.items():
        say(f"    {test}: native {before}, terrazzo {after}, on purpose: {ON_PURPOSE[test.rsplit('.', 1)[1]]}")
    for test, (before, after) in differ.items():
        text = next(filter(None, (words_of(output, test) for output in outputs)), "")
        say(f"    {test}: native {before}, terrazzo {after}: {first_error(text)}")
        say(f"---- {test}\n{text[-3000:]}\n----", shown=False)
    failing = sorted(test for test, outcome in native.items() if outcome in ("failure", "error"))
    say(f"pytorch: fails natively too: {' '.join(failing)}", shown=False)
    return {"counts": counts, "differ": differ, "on_purpose": meant, "same_alone": same, "native_failures": failing}


def first_error(text):
    lines = [line for line in text.splitlines() if line.startswith("E ")] or text.strip().splitlines()
    return (lines or [""])[0][:160]


PARTS = {"values": values, "ways": ways, "ours": ours, "pytorch": pytorch}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--out", default=".")
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--tests", type=Path, default=ROOT / "build" / "torch-tests")
    parser.add_argument("--match", help="of PyTorch's tests, only these (pytest -k)")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--stress", default="3", help="seconds of each run of torch_values.py")
    args = parser.parse_args()
    args.out, args.tests = str(Path(args.out).resolve()), args.tests.resolve()
    until, figures = time.monotonic() + args.seconds, {}
    say(common.prepare())
    for part in args.parts or PARTS:
        try:
            figures[part] = PARTS[part](lambda: until - time.monotonic(), args)
        except Exception as failure:  # the other parts are worth as much
            say(f"{part} FAILED: {failure!r}")
    Path(args.out, "torch_checks.txt").write_text("\n".join(TEXTS) + "\n")
    Path(args.out, "torch_checks.json").write_text(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
