# SPDX-License-Identifier: Apache-2.0
"""Allocators beside each other on the GPU: the same requests in the same order, each in a process of its own."""
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from native_common import BUILD, PRELOAD, SOURCE, bench_program, find_toolkit, run

sys.path.insert(0, str(SOURCE / "bench"))
from comparison.peer_build import RMM_ENVIRONMENT as RMM  # noqa: E402

PEERS = SOURCE / "bench" / "peers"
GPU_PEERS = SOURCE / "bench" / "gpu" / "peers"
SOURCES = {"terrazzo": PEERS / "peer_terrazzo.c", "torch": PEERS / "peer_torch.cpp", "naive": PEERS / "peer_naive.c",
           "async": GPU_PEERS / "peer_async.cpp", "rmm": PEERS / "peer_rmm.cpp"}
EVENTS = 40000           # of each trace: its start, with its peak or nearly so
PASS_SECONDS = 3         # a pass that lasts longer ends there: its figures are of what it did until then
SLOW_SECONDS = 1         # of what calls the driver each time
MICRO_SECONDS = 0.06
TORCH = "PYTORCH_CUDA_ALLOC_CONF"
CUPTI = ("extras/CUPTI/lib64/libcupti.so", "lib64/libcupti.so", "extras/CUPTI/lib64/libcupti.so.13",
         "targets/x86_64-linux/lib/libcupti.so")


@dataclass
class Allocator:
    name: str
    library: str
    options: str = ""
    environment: dict = field(default_factory=dict)
    traces: tuple = None     # which it replays: None is all
    seconds: float = PASS_SECONDS


FEW = ("vit", "fsdp_like")
ALLOCATORS = (
    Allocator("terrazzo", "terrazzo"),
    Allocator("torch", "torch"),
    Allocator("torch_expandable", "torch", environment={TORCH: "expandable_segments:True"}),
    Allocator("async_keep", "async", "keep"),
    Allocator("async_default", "async", "default"),
    Allocator("rmm_pool", "rmm", "pool", RMM),
    Allocator("naive_preloaded", "naive", environment={"LD_PRELOAD": str(PRELOAD)}, traces=FEW),
    Allocator("async_preloaded", "async", "default", {"LD_PRELOAD": str(PRELOAD)}, traces=FEW),
    Allocator("naive", "naive", traces=FEW, seconds=SLOW_SECONDS),
    Allocator("rmm_arena", "rmm", "arena:50", RMM, traces=FEW),
    Allocator("rmm_async", "rmm", "async", RMM, traces=()),
)
WORKLOADS = ("vit", "llama7b_ckpt", "fsdp_like", "rmm_random_64MiB_10000", "resnet50", "gpt1b3_offload", "lora7b")


def compiler(cxx):
    return os.environ.get("CXX", "g++") if cxx else os.environ.get("CC", "gcc")


def torch_flags():
    """Flags for PyTorch's own allocator, of the environment that this Python runs in."""
    import importlib.util
    found = importlib.util.find_spec("torch") if "TRZ_GPU_TORCH" not in os.environ else None
    folder = Path(os.environ.get("TRZ_GPU_TORCH") or (found and Path(found.origin).parent) or "")
    if not (folder / "lib" / "libc10_cuda.so").exists():
        raise FileNotFoundError("PyTorch with CUDA is not installed")
    cuda = [path for path in (*sorted(folder.parent.glob("nvidia/cu1[0-9]/include"), reverse=True),
                              folder.parent / "nvidia/cuda_runtime/include",
                              *([find_toolkit() / "include"] if find_toolkit() else []))
            if (path / "cuda_runtime_api.h").exists()]
    if not cuda:
        raise FileNotFoundError("CUDA's headers are missing")
    strings = int(b"__cxx11" in (folder / "lib" / "libc10.so").read_bytes())
    paths = [folder / "lib", *(path for path in folder.parent.glob("nvidia/*/lib"))]
    # NVIDIA's package of headers lacks crt/.
    return [f"-D_GLIBCXX_USE_CXX11_ABI={strings}", "-isystem", folder / "include", "-isystem", cuda[0],
            "-idirafter", SOURCE / "plug" / "torch" / "cuda",
            f"-L{folder / 'lib'}", "-lc10", "-lc10_cuda", *(f"-Wl,-rpath,{path}" for path in paths)]


def compile_peer(machine, name):
    """Returns why the allocator cannot be measured, or nothing."""
    made = machine.work / f"peer_{name}.so"
    source = SOURCES[name]
    cxx = source.suffix == ".cpp"
    if name == "rmm":
        carried = machine.carried / "built" / "peer_rmm.so"
        if not carried.exists():
            return f"{carried} is missing: native_prepare.sh makes it"
        made.unlink(missing_ok=True)
        made.symlink_to(carried.resolve())
        return ""
    try:
        flags = torch_flags() if name == "torch" else [f"-L{BUILD}/lib", "-lterrazzo"] if name == "terrazzo" else []
    except FileNotFoundError as why:
        return str(why)
    done = run(machine, [compiler(cxx), "-std=c++20" if cxx else "-std=gnu11", "-O2", "-fPIC", "-shared",
                         "-fvisibility=hidden", f"-I{SOURCE / 'include'}", source, "-o", made, *flags], 90)
    return "" if done.good else done.why


def make_trace(machine, name):
    """The workload's first events, in a format that is fast to read; returns why there are none, or nothing."""
    made = machine.work / f"{name}.trace"
    if made.exists():   # from an earlier run on this machine
        return ""
    recorded = SOURCE / "bench" / "traces" / f"{name}.pickle.xz"
    if not recorded.exists():
        from comparison.hard_workloads import write
        recorded = machine.work / f"{name}.csv"
        write(name, recorded)
    done = run(machine, [bench_program(machine, "gpu_replay"), "cut", EVENTS, recorded, made], 60)
    return "" if done.good else done.why


def lines_of(outcome):
    rows = []
    for line in outcome.out.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            rows.append({"problem": f"no JSON: {line[:200]}"})
    return rows


def measure(machine, allocator, *arguments, limit=20):
    library = machine.work / f"peer_{allocator.library}.so"
    command = [bench_program(machine, "gpu_replay"), library, allocator.options, *arguments]
    return run(machine, command, limit, **allocator.environment)


def fits(machine, name, memory):
    """Whether the device can hold the workload under an allocator that wastes a fifth."""
    need = {"llama7b_ckpt": 64, "lora7b": 47, "vit": 28, "resnet50": 22, "gpt1b3_offload": 18}.get(name, 16)
    return machine.simulated or not memory or need * 1.05 * 2**30 < memory


def replays(allocator, workload):
    return allocator.traces is None or workload in allocator.traces


def replay_all(machine, ready, workloads, ends, say):
    """Rows of every workload by every allocator; workload by workload, so that what time allows is comparable."""
    rows, longest = [], 0
    for workload in workloads:
        begin = time.monotonic()
        if begin + longest > ends:   # half a row compares nothing
            say(f"left out: {workload}: no time was left")
            continue
        for allocator in ready:
            if not replays(allocator, workload):
                continue
            outcome = measure(machine, allocator, "trace", machine.work / f"{workload}.trace", allocator.seconds)
            found = lines_of(outcome) if outcome.good else [{"problem": outcome.why, **outcome.tail()}]
            for row in found or [{"problem": "it printed nothing"}]:
                rows.append({"workload": workload, "allocator": allocator.name, "seconds": round(outcome.seconds, 2),
                             **row})
        longest = max(longest, time.monotonic() - begin)
    return rows


def micros_all(machine, ready, ends, say):
    rows = []
    for allocator in ready:
        if time.monotonic() > ends:
            say(f"left out: micros of {allocator.name}: no time was left")
            continue
        outcome = measure(machine, allocator, "micros", MICRO_SECONDS, limit=25)
        rows += [{"allocator": allocator.name, **row} for row in lines_of(outcome)]
        if not outcome.good:   # those that it finished stand
            rows.append({"allocator": allocator.name, "micro": "(all)", "problem": outcome.why, **outcome.tail()})
    return rows


def count_all(machine, ready, workloads, ends, say):
    """Driver calls, counted by CUPTI."""
    toolkit = find_toolkit()
    wheels = [str(path) for base in sys.path if base for path in Path(base).glob("nvidia/*/lib/libcupti.so*")]
    found = [str(toolkit / part) for part in CUPTI if toolkit and (toolkit / part).exists()] + wheels
    if not found:
        say("left out: driver calls: no CUPTI")
        return []
    rows = []
    for workload in workloads:
        for allocator in ready:
            if time.monotonic() > ends:
                say("left out: the rest of the driver calls: no time was left")
                return rows
            if allocator.traces is not None:
                continue
            outcome = measure(machine, allocator, "trace", machine.work / f"{workload}.trace", PASS_SECONDS, found[0])
            for row in lines_of(outcome) if outcome.good else [{"problem": outcome.why, **outcome.tail()}]:
                rows.append({"workload": workload, "allocator": allocator.name, **row})
            if not outcome.good and len(rows) == 1:
                say(f"driver calls cannot be counted: {outcome.why}")
                return rows
    return rows


# ---- tables ----------------------------------------------------------------------------------------------

# No peers: terrazzo itself, and what has no cache.
OWN = ("terrazzo", "naive_preloaded", "async_preloaded", "naive")


def served_all(row):
    return "problem" not in row and not (row["wrong"] or row["first_ooms"] or row["later_ooms"] or
                                         row["first_ended_early"] or row["later_ended_early"])


def best_of(rows, key, allocators):
    values = [row[key] for row in rows if row["allocator"] in allocators and served_all(row) and row[key]]
    return min(values) if values else None


def replay_table(rows):
    """Markdown; ratios are terrazzo's to the best of the peers that served every request. `*`: a pass ended early."""
    lines = ["| workload | allocator | first ns/op | later ns/op | most us | peak GiB | of live | wrong | ooms |",
             "|---|---|---|---|---|---|---|---|---|"]
    for workload in dict.fromkeys(row["workload"] for row in rows):
        of = [row for row in rows if row["workload"] == workload]
        for row in of:
            if "problem" in row:
                lines.append(f"| {workload} | {row['allocator']} | failed: {row['problem'][:120]} |" + " |" * 6)
                continue
            early = "*" if row["first_ended_early"] or row["later_ended_early"] else ""
            peak, live = row["peak_device_bytes"], row["peak_allocated_bytes"]
            # Preloaded, what the heap keeps counts as free.
            memory = "- | -" if "preloaded" in row["allocator"] else f"{peak / 2**30:.2f} | {peak / max(live, 1):.3f}"
            lines.append(f"| {workload} | {row['allocator']}{early} | {row['first_ns_per_op']:.0f} | "
                         f"{row['later_median_ns_per_op']:.0f} | {row['later_most_us']:.0f} | "
                         f"{memory} | {row['wrong']} | {row['first_ooms'] + row['later_ooms']} |")
        ratios = []
        for key in ("first_ns_per_op", "later_median_ns_per_op", "peak_device_bytes"):
            own = best_of(of, key, ("terrazzo",))
            other = best_of(of, key, {row["allocator"] for row in of} - set(OWN))
            ratios.append(f"{own / other:.2f}" if own and other else "-")
        lines.append(f"| {workload} | **terrazzo / best peer** | {ratios[0]} | {ratios[1]} | | {ratios[2]} | | | |")
    return lines


def micro_table(rows):
    names = list(dict.fromkeys(row["micro"] for row in rows if "ns_per_pair" in row))
    allocators = list(dict.fromkeys(row["allocator"] for row in rows))
    lines = ["| ns per pair | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    value = {(row["allocator"], row["micro"]): row["ns_per_pair"] for row in rows if "ns_per_pair" in row}
    for allocator in allocators:
        cells = [f"{value[allocator, name]:.0f}" if (allocator, name) in value else "-" for name in names]
        lines.append(f"| {allocator} | " + " | ".join(cells) + " |")
    cells = []
    for name in names:
        others = [value[a, name] for a in allocators if a not in OWN and (a, name) in value]
        own = value.get(("terrazzo", name))
        cells.append(f"{own / min(others):.2f}" if own and others else "-")
    lines.append("| **terrazzo / best peer** | " + " | ".join(cells) + " |")
    for row in rows:
        if "problem" in row:
            lines.append(f"\n{row['allocator']}: {row['problem'][:200]}")
    return lines


def count_table(rows):
    lines = ["| workload | allocator | first pass | later pass |", "|---|---|---|---|"]
    for row in rows:
        if "problem" in row:
            lines.append(f"| {row['workload']} | {row['allocator']} | failed: {row['problem'][:120]} | |")
            continue
        cells = []
        for key in ("first_calls", "later_calls"):
            calls = sorted(row[key].items(), key=lambda item: -item[1])
            cells.append(f"{sum(row[key].values())}: " + ", ".join(f"{name} {n}" for name, n in calls[:5]))
        lines.append(f"| {row['workload']} | {row['allocator']} | {cells[0]} | {cells[1]} |")
    return lines
