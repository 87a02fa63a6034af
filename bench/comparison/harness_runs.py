# SPDX-License-Identifier: Apache-2.0
"""Runs of the harness: one workload, one allocator, one device, in a process of its own; and the smallest device."""
import json
import os
import signal
import subprocess

from .peer_build import BUILD, WORK

STEP = 2 << 20
ROOM = 80 << 30
COSTS = "h200"  # the table that every replay runs by; others only sum the driver's time with room
TABLES = COSTS, "slow-create", "wsl2"
MORE_TABLES = 3  # SIM_MORE_COSTS
SECONDS = 300
PLAN_STEPS = 600000000      # of the offline planner: they take some seconds


def environment_of(allocator, capacity):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("TERRAZZO_", "PYTORCH_"))}
    return environment | allocator.environment | {
        "LD_LIBRARY_PATH": f"{WORK / 'sim'}:{BUILD / 'lib/sim'}",
        "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=65536",  # for libraries that are loaded late
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "TERRAZZO_SIM_MEMORY": str(capacity),
        "TERRAZZO_SIM_WORK": "blocked",
        "TERRAZZO_SIM_VIOLATIONS": "count",
        "TERRAZZO_SIM_COSTS": COSTS,
    }


def end_of(done):
    """Why a process failed."""
    lines = done.stderr.strip().splitlines()
    if done.returncode < 0:
        return f"ended by {signal.Signals(-done.returncode).name}" + (f": {lines[-1]}" if lines else "")
    return "; ".join(lines[-2:]) or f"exit status {done.returncode}"  # an allocator's words stand above the harness's


def run_harness(environment, *words):
    """What the run found; {"failed": why} if it did not end well."""
    try:
        done = subprocess.run([str(WORK / "harness"), *map(str, words)], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {SECONDS} s"}
    if done.returncode or not done.stdout.strip():
        return {"failed": end_of(done)[:200]}
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except ValueError:
        return {"failed": "it printed to the harness's output"}


def harness(allocator, *words, capacity=ROOM):
    return run_harness(environment_of(allocator, capacity), "--peer", allocator.library, "--options",
                       allocator.options, *words)


def plan(trace, share=1):
    """The memory that an offline planner's plan needs."""
    return run_harness(os.environ | {"LD_LIBRARY_PATH": str(WORK / "sim")}, "--trace", trace, "--plan",
                       int(PLAN_STEPS * share))


def replay(allocator, trace, lag=0, costs=(), **device):
    """One replay; `driver_time_by`: the driver's time by each of the further cost tables."""
    tables = [word for table in costs for word in ("--costs", table)]
    found = harness(allocator, "--trace", trace, "--lag", lag, *tables, **device)
    return found | {"driver_time_by": dict(zip(costs, found.get("driver_time_by", ())))}


def serves(found):
    return not (found.get("failed") or found["ooms"] or found["violations"])


def smallest(enough, least, most, guess=None):
    """The smallest number from `least` to `most` that is enough, if all above it are too; None: none is. Searches from
    the guess in growing strides, then halves: a good guess needs few tries."""
    low, high, stride = least - 1, most + 1, 1 if guess else 8
    at = min(max(guess or least, least), most)
    while high - low > 1:
        if enough(at):
            high = at
        else:
            low = at
        if high > most:
            at = min(most, low + stride)
        elif low < least and guess:
            at = max(least, high - stride)
        else:
            at = (low + high) // 2
        stride *= 2
    return high if high <= most else None


def smallest_device(allocator, trace, room, lag=0, guess=None):
    """Bytes of the smallest device that serves all requests, in steps of 2 MiB, and the driver's time there; `room`: a
    run on a large device, `guess`: where to begin, in bytes."""
    if not serves(room):
        return {}
    found = {}

    def enough(steps):
        tried = replay(allocator, trace, lag, capacity=steps * STEP)
        if not serves(tried):
            return False
        found[steps] = tried["driver_time_ns"]
        return True
    steps = smallest(enough, -(-room["peak_allocated_bytes"] // STEP), ROOM // STEP, guess and guess // STEP)
    return {"fit_bytes": steps * STEP, "fit_driver_time_ns": found[steps]} if steps else {}
