# SPDX-License-Identifier: Apache-2.0
"""Runs of the harness: one workload, one allocator, one device, in a process of its own; and the smallest device."""
import json
import os
import subprocess

from .peer_build import BUILD, WORK

STEP = 2 << 20
ROOM = 80 << 30
SECONDS = 300


def environment_of(allocator, capacity, costs):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("TERRAZZO_", "PYTORCH_"))}
    return environment | allocator.environment | {
        "LD_LIBRARY_PATH": f"{WORK / 'sim'}:{BUILD / 'lib/sim'}",
        "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=65536",  # for libraries that are loaded late
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "TERRAZZO_SIM_MEMORY": str(capacity),
        "TERRAZZO_SIM_WORK": "blocked",
        "TERRAZZO_SIM_VIOLATIONS": "count",
        "TERRAZZO_SIM_COSTS": costs,
    }


def harness(allocator, *words, capacity=ROOM, costs="a100"):
    """What the run found; {"failed": why} where it did not end."""
    command = [str(WORK / "harness"), "--peer", str(allocator.library), "--options", allocator.options,
               *map(str, words)]
    try:
        done = subprocess.run(command, env=environment_of(allocator, capacity, costs), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"failed": f"took more than {SECONDS} s"}
    if done.returncode or not done.stdout.strip():
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"failed": lines[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def replay(allocator, trace, lag=0, **device):
    return harness(allocator, "--trace", trace, "--lag", lag, **device)


def serves(found):
    return not (found.get("failed") or found["ooms"] or found["violations"])


def smallest_device(allocator, trace, room, lag=0):
    """Bytes of the smallest device that serves all, in steps of 2 MiB, and the driver's time there; `room` is a run
    with room. Goes up from the peak in growing strides, then halves."""
    if not serves(room):
        return {}
    low = room["peak_allocated_bytes"] // STEP - 1      # not enough, or not worth trying
    high, found, stride = low + 1, None, 8
    while True:
        found = replay(allocator, trace, lag, capacity=high * STEP)
        if serves(found):
            break
        if high * STEP >= ROOM:
            return {}
        low, high = high, min(ROOM // STEP, high + stride)
        stride *= 2
    while high - low > 1:
        middle = (low + high) // 2
        tried = replay(allocator, trace, lag, capacity=middle * STEP)
        if serves(tried):
            high, found = middle, tried
        else:
            low = middle
    return {"fit_bytes": high * STEP, "fit_driver_time_ns": found["driver_time_ns"]}
