#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times programs of torch_models.py on a real GPU under PyTorch's allocators and under terrazzo.

    torch_times.py [--out DIR] [--seconds S] [--limit S] [--rounds N] [--allocators A,...] [--quick] [NAME...]

One process for each program and allocator. To spare the imports each is forked off a process that has PyTorch in memory
but has not started CUDA; there is one for each allocator, whose variables PyTorch reads when it is imported. Those of
one program start side by side, which takes seconds, and warm up; then they run one at a time. For terrazzo the child
calls terrazzo.torch.install(), which is the one line that a user adds.

First some steps run with deterministic algorithms; the bits of losses and parameters after them must be the same for
all allocators, if two native runs agree (the second runs no further): else the program is not repeatable. Then come
the timed steps, whose number is the same for all. A row has: median and ninth decile of the milliseconds from one
step's end to the next by events on the device; wall-clock seconds of all timed steps with what it is as a multiple of
native's; the host's part, without waiting; tokens (images) a second; PyTorch's peaks of allocated and reserved memory;
the most that the device itself had in use (NVML, every 20 ms, less what it had before, so without contexts);
retries, and calls that made or returned memory. With each further round the order turns by one.
--seconds ends the whole after S; programs that are left out are named. --quick: few steps, for a simulated device.
"""
import argparse
import collections
import ctypes
import faulthandler
import hashlib
import json
import os
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

import torch_common as common
from torch_common import ALLOCATORS, GIB

# Name -> steps whose bits are compared, steps timed. The most telling programs come first.
PROGRAMS = {"llama_variable": (4, 28), "serving": (2, 6), "llama_steady": (2, 12), "offload": (4, 24),
            "graphs": (2, 24), "detection": (5, 20), "fsdp2": (3, 20), "compiled": (4, 200)}
ALWAYS_DETERMINISTIC = ("detection",)  # other choices of cuDNN's would have to be made, and warmed up, again
ONLY = {"compiled": ("native", "terrazzo")}  # each needs some seconds for torch.compile
TWICE = ("llama_variable",)  # native is timed a second time: how far its two runs differ is noise
AGAIN = "native_again"       # the server of native's second runs
QUICK_STEPS = 3
WARM = 2  # steps without deterministic algorithms before the clock starts


# ---- in the process that runs a program ----

def set_deterministic(torch, on):
    torch.use_deterministic_algorithms(on, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = on


def bits_of(torch, run):
    """A digest of all losses and parameters: sums of their bits, in pieces that need little memory."""
    sums = []
    with torch.no_grad():
        for parameter in run.parameters:
            flat = parameter.detach().reshape(-1)
            words = flat.view(torch.int16 if flat.element_size() == 2 else torch.int32)
            sums += [part.sum(dtype=torch.int64) for part in words.split(1 << 22)]
    numbers = [int(number) for number in torch.stack(sums).cpu()] if sums else []
    losses = [float(loss) for loss in run.losses]
    digest = hashlib.sha256(json.dumps(numbers).encode() + struct.pack(f"{len(losses)}d", *losses)).hexdigest()[:12]
    return digest, losses


def measured(torch, name, quick, bits_only):
    """The figures of one program."""
    import torch_models
    program, (checked, timed) = getattr(torch_models, name), PROGRAMS[name]
    if quick:
        checked, timed = 1, 3
    torch.manual_seed(0)
    torch.cuda.init()
    started = time.monotonic()
    run = torch_models.Run()
    steps = program(run)
    set_deterministic(torch, True)
    for _ in range(checked):
        next(steps)
    bits, losses = bits_of(torch, run)
    if bits_only:
        return {"bits": bits, "ready_seconds": time.monotonic() - started}
    set_deterministic(torch, name in ALWAYS_DETERMINISTIC)
    for _ in range(WARM):
        next(steps)
    torch.cuda.synchronize()
    ready = time.monotonic()
    calls_before = calls_of(torch)
    events, host, units = [torch.cuda.Event(enable_timing=True) for _ in range(timed + 1)], [], 0
    events[0].record()
    begin, processor = time.perf_counter(), time.process_time()
    for i in range(timed):
        before = time.perf_counter()
        units += next(steps)
        events[i + 1].record()
        host.append(time.perf_counter() - before)
    enqueued = time.perf_counter() - begin
    torch.cuda.synchronize()
    wall = time.perf_counter() - begin
    each = [a.elapsed_time(b) for a, b in zip(events, events[1:])]
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    calls = {key: value - calls_before.get(key, 0) for key, value in calls_of(torch).items()}
    return {"bits": bits, "first_loss": losses[0], "last_loss": losses[-1], "steps": timed, "units": units,
            "ready_seconds": ready - started, "wall_seconds": wall, "enqueued_seconds": enqueued,
            "processor_seconds": time.process_time() - processor, "step_ms": each,
            "host_ms": [1e3 * seconds for seconds in host], "backend": torch.cuda.get_allocator_backend(),
            "allocated_bytes": stats.get("allocated_bytes.all.peak", 0),
            "reserved_bytes": stats.get("reserved_bytes.all.peak", 0), "retries": stats.get("num_alloc_retries", 0),
            "device_used_at_end": total - free, "timed_calls": calls, "final_loss": float(run.losses[-1]),
            "allocations": stats.get("allocation.all.allocated", 0)}


def filled(torch, name, quick):
    """How far a program that needs ever more gets before memory runs out."""
    import torch_models
    torch.manual_seed(0)
    torch.cuda.init()
    run, done, most, error = torch_models.Run(), 0, 0, None
    begin = time.monotonic()
    try:
        for size in getattr(torch_models, name)(run):
            done, most = done + 1, max(most, size)
            run.losses.clear()
            if quick and done == QUICK_STEPS:
                break
    except torch.OutOfMemoryError as failure:
        error = str(failure)
    stats = torch.cuda.memory_stats()
    return {"steps": done, "most": most, "oom": error, "backend": torch.cuda.get_allocator_backend(),
            "seconds": time.monotonic() - begin, "allocated_bytes": stats.get("allocated_bytes.all.peak", 0),
            "reserved_bytes": stats.get("reserved_bytes.all.peak", 0), "retries": stats.get("num_alloc_retries", 0)}


def calls_of(torch):
    """Calls that made or returned memory so far."""
    stats = torch.cuda.memory_stats()
    found = {"alloc": stats.get("num_device_alloc", 0), "free": stats.get("num_device_free", 0)}
    if "terrazzo.torch" in sys.modules:
        own = sys.modules["terrazzo.torch"].stats()
        found.update({key.split(".", 1)[1]: value for key, value in own.items()
                      if key.startswith("driver_calls.") and value})
    return found


def warm_up(torch):
    """What every program's first seconds go to: the context, libraries, their handles and kernels."""
    for kind in (torch.float32, torch.bfloat16):
        square = torch.ones(64, 64, device="cuda", dtype=kind)
        (square @ square).softmax(0).sum().item()
    torch.nn.functional.conv2d(torch.ones(1, 1, 8, 8, device="cuda"), torch.ones(1, 1, 3, 3, device="cuda"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def await_turn(wish):
    """Says that the process is ready, and waits until no other is timed."""
    Path(wish["out"] + ".ready").touch()
    until = time.monotonic() + wish["patience"]
    while not Path(wish["out"] + ".go").exists():
        if time.monotonic() > until:
            raise TimeoutError("its turn did not come")
        time.sleep(0.005)


def work(wish):
    """Runs in a process of its own: writes its figures, or what went wrong, to the file `out`."""
    try:
        import torch
        if wish["allocator"] == "terrazzo":
            import terrazzo.torch
            terrazzo.torch.install()
            found = {"missing": terrazzo.torch.missing()}
        else:
            found = {}
        if wish["fraction"]:
            torch.cuda.set_per_process_memory_fraction(wish["fraction"])
        if wish["patience"]:
            warm_up(torch)
            await_turn(wish)
        if wish["fill"]:
            found.update(filled(torch, wish["program"], wish["quick"]))
        else:
            found.update(measured(torch, wish["program"], wish["quick"], wish["bits_only"]))
    except BaseException:  # also a signal's exit: whatever it is, it must be told
        found = {"error": traceback.format_exc()}
    Path(wish["out"]).write_text(json.dumps(found))


def serve():
    """Forks a child for each line of standard input, and says when it has ended."""
    import torch
    import transformers  # noqa: F401
    import transformers.models.llama.modeling_llama  # noqa: F401
    import transformers.models.resnet.modeling_resnet  # noqa: F401
    import torch.distributed.fsdp  # noqa: F401
    import torch_models  # noqa: F401
    warnings.filterwarnings("ignore", "(?s).*fork", DeprecationWarning)  # of threads that only wait for work
    print(json.dumps({"ready": not torch.cuda.is_initialized()}), flush=True)
    for line in sys.stdin:
        wish = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it must not outlive the server
            with open(wish["log"], "wb") as log:
                for descriptor in (1, 2):
                    os.dup2(log.fileno(), descriptor)
            faulthandler.dump_traceback_later(max(1, wish["patience"] + wish["limit"] - 2), exit=False, file=sys.stderr)
            work(wish)
            sys.stdout.flush()
            os._exit(0)  # not through the destructors of a forked interpreter
        print(json.dumps({"child": child}), flush=True)
        status = os.waitpid(child, 0)[1]
        print(json.dumps({"ended": status}), flush=True)


# ---- in the process that starts them ----

class Server:
    """Where processes for one allocator come from."""

    def __init__(self, allocator, name=None):
        self.allocator, self.name = allocator, name or allocator
        self.wish = self.child = None
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--serve"], env=common.environment(allocator),
            cwd=common.ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None)
        self.lines = collections.deque()
        self.came = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                with self.came:
                    self.lines.append(json.loads(line))
                    self.came.notify()
        with self.came:
            self.lines.append({"gone": True})
            self.came.notify()

    def next(self, limit):
        """The next message; None after `limit` seconds."""
        with self.came:
            self.came.wait_for(lambda: self.lines, limit)
            return self.lines.popleft() if self.lines else None

    def start(self, program, quick, limit, folder, fill=False, fraction=None, bits_only=False, patience=0):
        """Begins a run. With patience, so many seconds, it only warms up until finish() is called."""
        out, log = Path(folder).resolve() / f"{self.name}.figures.json", Path(folder).resolve() / f"{self.name}.log"
        for file in (out, Path(f"{out}.ready"), Path(f"{out}.go")):
            file.unlink(missing_ok=True)
        self.wish = {"program": program, "allocator": self.allocator, "quick": quick, "limit": limit, "fill": fill,
                     "fraction": fraction, "bits_only": bits_only, "patience": patience, "out": str(out),
                     "log": str(log)}
        self.child = None
        try:
            print(json.dumps(self.wish), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            return
        self.child = (self.next(10) or {}).get("child")

    def is_ready(self):
        """Whether the run has warmed up, or has failed at it."""
        return self.child is None or Path(self.wish["out"] + ".ready").exists() or Path(self.wish["out"]).exists()

    def finish(self, limit):
        """The figures of the run that was started."""
        wish, child = self.wish, self.child
        out, log = Path(wish["out"]), Path(wish["log"])
        if child is None:
            return {"error": "its server does not answer, or has ended"}
        Path(f"{out}.go").touch()
        ended = self.next(limit)
        if ended is None:
            common.end_group(child)
            self.next(10)
            return {"error": f"not done in {limit:.0f} s\n" + log.read_text(errors="replace")[-3000:]}
        words = log.read_text(errors="replace")
        if not out.exists():
            return {"error": f"ended with status {ended}\n{words[-3000:]}"}
        found = {**json.loads(out.read_text()), "said": words[-2000:]}
        if any(text in found.get("error", "") for text in ("forked subprocess", "initialization error")):
            return self.run_alone({**wish, "patience": 0}, limit, out)
        return found

    def run(self, program, quick, limit, folder, fill=False, fraction=None):
        self.start(program, quick, limit, folder, fill, fraction)
        return self.finish(limit)

    def run_alone(self, wish, limit, out):
        """The same in a new process, where some package's import has started CUDA in the server."""
        out.unlink(missing_ok=True)
        status, words, _ = common.run([sys.executable, Path(__file__).resolve(), "--one", json.dumps(wish)], limit,
                                      common.environment(self.allocator))
        if not out.exists():
            return {"error": f"alone, ended with status {status}\n{words[-3000:]}"}
        return {**json.loads(out.read_text()), "said": words[-2000:], "alone": True}

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()


def ready_servers(allocators, limit=90, again=False):
    """{allocator: Server}, once they have imported PyTorch; meanwhile terrazzo's shim is compiled, if need be."""
    begin = time.monotonic()
    servers = {allocator: Server(allocator) for allocator in allocators}
    if again:
        servers[AGAIN] = Server("native", AGAIN)
    if "terrazzo" in servers:
        print(common.prepare(), flush=True)
    ready = {allocator: server.next(limit) for allocator, server in servers.items()}
    print(f"ready after {time.monotonic() - begin:.1f} s: {ready}", flush=True)
    return servers


def decile(values, tenth):
    return sorted(values)[min(len(values) - 1, len(values) * tenth // 10)]


HEAD = (f"{'program':<15} {'allocator':<10} {'median':>8} {'p90 ms':>8} {'wall s':>7} {'x':>6} {'host s':>7} {'x':>6} "
        f"{'units/s':>8} {'alloc':>7} {'reserv':>7} {'device':>7} {'retry':>5} {'calls':>6}  bits")


def bits_text(row, natives):
    """What a comparison of the bits says: that takes two native runs which agree."""
    bits = {native["bits"] for native in natives}
    if len(natives) < 2:
        return ""
    if len(bits) > 1:
        return "  not repeatable"
    return "" if row["bits"] in bits else "  DIFFERENT"


def row_text(name, allocator, row, natives):
    """`natives`: native's runs of the program so far that ended well; the first one's times count as 1."""
    if "error" in row:
        lines = row["error"].strip().splitlines()  # a traceback ends with what happened
        return f"{name:<15} {allocator:<10} FAILED: {lines[-1 if lines[0].startswith('Traceback') else 0][:90]}"

    same = bits_text(row, natives)
    native = next((other for other in natives if "step_ms" in other), None)
    if "step_ms" not in row:
        return f"{name:<15} {allocator:<10} {'the bits once more':<93}  {row['bits']}{same}"

    def times(key):
        return f"{row[key] / native[key]:>6.3f}" if native and native.get(key) else f"{'':>6}"

    made = sum(value for key, value in row["timed_calls"].items()
               if key in ("alloc", "free", "mem_create", "mem_release", "mem_map", "mem_unmap", "malloc"))
    return (f"{name:<15} {allocator:<10} {statistics.median(row['step_ms']):>8.2f} {decile(row['step_ms'], 9):>8.2f} "
            f"{row['wall_seconds']:>7.3f} {times('wall_seconds')} {row['enqueued_seconds']:>7.3f} "
            f"{times('enqueued_seconds')} {row['units'] / row['wall_seconds']:>8.0f} "
            f"{row['allocated_bytes'] / GIB:>7.2f} {row['reserved_bytes'] / GIB:>7.2f} "
            f"{row['device_bytes'] / GIB:>7.2f} {row['retries']:>5} {made:>6}  {row['bits']}{same}")


def order(servers, turn):
    """Who runs when: with each turn another one comes first, and native's second run last."""
    names = [name for name in servers if name != AGAIN]
    shift = turn % len(names)
    return names[shift:] + names[:shift] + [name for name in servers if name == AGAIN]


class Training:
    """All runs, one after another, and what they gave."""

    def __init__(self, args, management):
        self.args, self.management, self.begin = args, management, time.monotonic()
        self.rows, self.left_out = [], []
        self.servers = ready_servers(args.allocators.split(","), again="native" in args.allocators.split(","))
        self.idle = management.used()

    def left(self):
        return self.args.seconds - (time.monotonic() - self.begin)

    def one(self, name, server):
        """The figures of one process."""
        before = common.settle(self.management, self.idle)
        with common.Sampler(self.management) as sampler:
            row = server.finish(max(1, min(self.args.limit, self.left())))
        return {"program": name, "allocator": server.allocator, "device_bytes": sampler.most - before, **row}

    def start(self, name, turn):
        """Starts the processes of one program, all at once, which takes some seconds, and waits until they are ready.
        Returns their servers."""
        wanted = [server for server in self.servers if server in (*ONLY.get(name, self.servers), AGAIN)]
        chosen = [self.servers[server] for server in order(wanted, turn)]
        for server in chosen:
            bits_only = server.name == AGAIN and (turn > 0 or name not in TWICE)
            server.start(name, self.args.quick, self.args.limit, self.args.out, bits_only=bits_only,
                         patience=max(1, self.left()))
        until = time.monotonic() + min(self.args.limit, self.left())
        while not all(server.is_ready() for server in chosen) and time.monotonic() < until:
            time.sleep(0.02)
        self.idle = self.management.used()
        return chosen

    def program(self, name, turn):
        if self.left() < 12:
            self.left_out.append(name)
            return
        for server in self.start(name, turn):
            if self.left() < 2:
                self.left_out.append(f"{name} {server.name}")
            row = self.one(name, server)
            self.rows.append(row)
            print(row_text(name, server.allocator, row, natives_of(self.rows, name)), flush=True)
            if "error" in row:
                print(row["error"][-1500:], file=sys.stderr)

    def close(self):
        for server in self.servers.values():
            server.close()


def natives_of(rows, name):
    return [row for row in rows if (row["program"], row["allocator"]) == (name, "native") and "error" not in row]


def table(rows):
    """All rows once more, with native's runs of the program for comparison, whenever they came."""
    texts, last = [HEAD], None
    for row in sorted(rows, key=lambda row: (list(PROGRAMS).index(row["program"]),
                                             list(ALLOCATORS).index(row["allocator"]))):
        texts.append(row_text(row["program"], row["allocator"], row, natives_of(rows, row["program"])))
        last = row
    return texts if last else ["nothing ran"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", default=".")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--limit", type=float, default=40, help="for one program under one allocator")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--allocators", default=",".join(ALLOCATORS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve or args.one:
        return serve() if args.serve else work(args.one)
    unknown = set(args.names) - set(PROGRAMS)
    if unknown:
        parser.error(f"no program {', '.join(sorted(unknown))}; there are {', '.join(PROGRAMS)}")
    management = common.Management()
    about = management.describe()
    print(f"{about}\n{HEAD}", flush=True)
    training = Training(args, management)
    for turn in range(args.rounds):
        for index, name in enumerate(args.names or PROGRAMS):
            training.program(name, turn + index)
    training.close()
    texts = table(training.rows)
    if training.left_out:
        texts.append(f"left out, since {args.seconds:.0f} s were over: {', '.join(training.left_out)}")
    texts.append(f"{time.monotonic() - training.begin:.0f} s in all")
    print("\n" + "\n".join(texts), flush=True)
    Path(args.out, "torch_times.json").write_text(json.dumps(
        {"machine": about, "rows": training.rows, "left_out": training.left_out, "table": texts}) + "\n")
    for server in training.servers:
        for end in ("figures.json", "figures.json.ready", "figures.json.go", "log"):
            Path(args.out, f"{server}.{end}").unlink(missing_ok=True)
    return 1 if any("error" in row for row in training.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
