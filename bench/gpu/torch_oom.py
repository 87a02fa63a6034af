#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Out of memory on a real GPU: how far programs get under each allocator, and how soon terrazzo says why.

    torch_oom.py [--out DIR] [--seconds S] [--room GIB] [--quick] [fits] [explain]

fits: another process holds all but --room GiB of the device (24); two programs of torch_models.py that need ever more
run until memory runs out. The requests are the same for all allocators, so the steps done tell who gets further. One of
them runs again with torch.cuda.set_per_process_memory_fraction in place of the other process.

explain: another process holds 10 GiB, and programs run out of memory under `terrazzo run`: the report, with the
milliseconds since the failing step began before each line; `terrazzo explain` of the running process and of the
snapshot. What is printed also goes to DIR/torch_oom.txt, figures to DIR/torch_oom.json.
"""
import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch_common as common
import torch_times
from torch_common import ALLOCATORS, CLI, GIB

HERE = Path(__file__).resolve().parent
TEXTS = []


def say(text):
    TEXTS.append(text)
    print(text, flush=True)


class Ballast:
    """A process that holds memory of the device."""

    def __init__(self, verb, size):
        self.process = subprocess.Popen([sys.executable, str(HERE / "torch_ballast.py"), verb, str(size >> 20)],
                                        env=common.environment(), text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.words = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


# ---- how far programs get ----

def fits(args, management, until):
    rows, total = [], management.memory().total
    servers = torch_times.ready_servers(ALLOCATORS)
    idle = management.used()
    for name, how in (("sessions", "ballast"), ("longer", "ballast"), ("sessions", "fraction")):
        with Ballast("leave" if how == "ballast" else "hold", args.room if how == "ballast" else 0) as ballast:
            say(f"{name}, {how}: {ballast.words}")
            before = management.used()
            for allocator, server in servers.items():
                if time.monotonic() > until - 5:
                    say(f"{name} {allocator}: left out, time is over")
                    continue
                common.settle(management, before)
                fraction = args.room / total if how == "fraction" and total else None
                with common.Sampler(management) as sampler:
                    row = server.run(name, args.quick, min(30, until - time.monotonic()), args.out, True, fraction)
                rows.append({"program": name, "how": how, "allocator": allocator,
                             "device_bytes": sampler.most - before, **row})
                say(fit_text(rows))
        common.settle(management, idle)
    for server in servers.values():
        server.close()
    for name in ("figures.json", "log"):
        Path(args.out, name).unlink(missing_ok=True)
    return rows


def fit_text(rows):
    row = rows[-1]
    title = f"{row['program']:<9} {row['how']:<9} {row['allocator']:<10}"
    if "error" in row:
        return f"{title} FAILED: {row['error'][-400:]}"
    natives = [other["steps"] for other in rows if other["program"] == row["program"] and other["how"] == row["how"]
               and other["allocator"] == "native" and "steps" in other]
    more = row["steps"] / natives[0] - 1 if natives and natives[0] else 0
    return (f"{title} {row['steps']:>4} steps {more:>+7.1%}  largest {row['most']:>6}  "
            f"allocated {row['allocated_bytes'] / GIB:6.2f} reserved {row['reserved_bytes'] / GIB:6.2f} "
            f"device {row['device_bytes'] / GIB:6.2f} GiB  {row['retries']} retries  {row['seconds']:.1f} s  "
            f"{'' if row['oom'] else 'no OOM'}")


# ---- why memory ran out ----

STORIES = {
    "full": """
import sys, time, torch
from torch_models import Run, language_model, programs, VOCABULARY
run = Run(); model = language_model(run); optimizer = torch.optim.AdamW(run.parameters, lr=1e-5)
def forward(x):
    return model(input_ids=x, labels=x, use_cache=False).loss
def step(length):
    loss = forward(programs.tokens(4, length, VOCABULARY))
    loss.backward(); optimizer.step(); optimizer.zero_grad()
length = 512
while True:
    torch.cuda.synchronize()
    print('STEP', length, flush=True)
    step(length)
    if length == 768:
        torch.cuda.synchronize()
        print('LIVE', flush=True); sys.stdin.readline()
    length += length // 2
""",
    "leak": """
import torch
net = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(net.parameters())
losses = []
def step():
    loss = net(torch.randn(32768, 4096, device='cuda')).square().mean()
    loss.backward(retain_graph=True); optimizer.step(); optimizer.zero_grad()
    losses.append(loss)
while True:
    torch.cuda.synchronize()
    print('STEP', len(losses), flush=True)
    step()
""",
    "other": """
import torch
def weights():
    return torch.empty(20 << 30, dtype=torch.uint8, device='cuda')
torch.ones(1, device='cuda'); print('STEP 0', flush=True)
kept = weights()
"""}


def reader(process, lines):
    for line in process.stdout:
        lines.put((time.monotonic(), line.rstrip("\n")))
    lines.put((time.monotonic(), None))


def story(name, limit, ours=True):
    """Runs a program that runs out of memory; prints its words with the milliseconds since its last step began."""
    folder = Path(tempfile.mkdtemp(prefix="torch_oom_"))
    conf = f"answer:on,oom_snapshot:{folder}"
    command = [str(CLI), "run", f"--conf={conf}", "--"] * ours + [sys.executable, "-c", STORIES[name]]
    env = common.environment(PYTHONPATH=os.pathsep.join((str(HERE), str(common.ROOT / "python"))))
    say(f"\n---- {name}{'' if ours else ', native'}: {' '.join(command[:3 * ours + 1])} ...")
    process = subprocess.Popen(command, env=env, cwd=common.ROOT, text=True, errors="replace", stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    lines = queue.Queue()
    threading.Thread(target=reader, args=(process, lines), daemon=True).start()
    until, begun, first, within = time.monotonic() + limit, time.monotonic(), None, False
    while True:
        try:
            at, line = lines.get(timeout=max(0.1, until - time.monotonic()))
        except queue.Empty:
            common.end_group(process.pid)
            say(f"(not done in {limit:.0f} s)")
            break
        if line is None:
            break
        if line.startswith("STEP"):
            begun = at
        elif line == "LIVE":
            asked(process, ours)
            continue
        elif "out of memory" in line.lower() and first is None:
            first = at - begun
        within = line.startswith("Traceback") or within and line.startswith("  ")
        if not within or "<string>" in line:  # the frames inside packages are many
            say(f"{1e3 * (at - begun):8.0f} ms  {line}")
    try:
        status = process.wait(10)
    except subprocess.TimeoutExpired:
        common.end_group(process.pid)
        status = "killed"
    say(f"exit status {status}; " + ("no report" if first is None else f"reported {first:.2f} s after the step began"))
    if ours:
        explained(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return {"story": name, "ours": ours, "status": status, "report_seconds": first}


def asked(process, ours):
    """terrazzo explain PID, while the program waits. `terrazzo run` becomes the program, so its id is the program's."""
    if ours:
        say(f"---- terrazzo explain {process.pid}, of the running process")
        status, words, seconds = common.run([CLI, "explain", process.pid], 15)
        say(f"{words}(status {status}, {seconds:.2f} s)")
    process.stdin.write("\n")
    process.stdin.flush()


def explained(folder):
    files = sorted(folder.iterdir())
    say(f"---- snapshots: {[(file.name, file.stat().st_size) for file in files]}")
    for file in files[-1:]:
        status, words, seconds = common.run([CLI, "explain", file], 20)
        say(f"---- terrazzo explain {file.name}\n{words}(status {status}, {seconds:.2f} s)")


def explain(args, management, until):
    rows = []
    for name, verb, size, ours in (("full", "hold", 10 * GIB, True), ("other", "leave", 12 * GIB, True),
                                   ("leak", "hold", 10 * GIB, True), ("full", "hold", 10 * GIB, False)):
        if time.monotonic() > until - 8:
            say(f"---- {name}: left out, time is over")
            continue
        with Ballast(verb, size) as ballast:
            say(f"\nanother process: {ballast.words}")
            rows.append(story(name, min(40, until - time.monotonic()), ours))
        common.settle(management, 1 * GIB, 3)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--out", default=".")
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--room", type=float, default=24, help="GiB that the programs of `fits` have")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    args.room = int(args.room * GIB)
    until, management = time.monotonic() + args.seconds, common.Management()
    figures = {"machine": management.describe()}
    say(str(figures["machine"]))
    for part in args.parts or ("explain", "fits"):
        try:
            figures[part] = {"fits": fits, "explain": explain}[part](args, management, until)
        except Exception as failure:  # the other part is worth as much
            say(f"{part} FAILED: {failure!r}")
    table = [fit_text(figures["fits"][:i + 1]) for i in range(len(figures.get("fits", [])))]
    table += [f"{row['story']:<9}{'' if row['ours'] else ' native'} status {row['status']}, report after "
              f"{row['report_seconds']} s" for row in figures.get("explain", [])]
    print("\n" + "\n".join(table), flush=True)
    Path(args.out, "torch_oom.txt").write_text("\n".join(TEXTS) + "\n")
    Path(args.out, "torch_oom.json").write_text(json.dumps({**figures, "table": table}) + "\n")
    return 0 if table else 1


if __name__ == "__main__":
    sys.exit(main())
