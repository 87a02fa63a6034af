#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sets PyTorch up for the simulated device and runs programs on it; `make check-torch`.

    check_torch.py [--build DIR] [--compile] [--torch VERSION] [NAME...]

It makes the environment in TERRAZZO_TORCH_ENV, else in BUILD/torch-env, and keeps it for later runs. The first run
downloads PyTorch, half a gigabyte; with --compile also triton, to try torch.compile. Without --torch and names it
repeats a few checks with the oldest supported PyTorch. With --torch the environment's name ends with the version. The
last line is `N passed, N failed`; BUILD/summary-torch has it, too.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "torch"
sys.path.insert(0, str(ROOT / "tests" / "common"))
import compact_trace
GIB = 1 << 30
LENGTH = 2048  # tokens of a sequence
WITHOUT_SHIM = {"TERRAZZO_CACHE": "/proc/none"}  # a folder where nothing can be kept
OLDEST = "2.6.0"
OF_OLDEST = ("copies", "computed", "graphs", "expandable", "package", "plug_oom", "plug_pools", "plug_accounting",
             "ranks", "torchrun", "ordered")
# Checks that compare with records of the default version.
OF_DEFAULT = ("compiled", "plug_functions", "plug_snapshots")
SHIPPED = ("llama7b_ckpt", "llama7b_sgd_nockpt")


TORCHRUN = """
import os, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
net = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(2)]).cuda()
for layer in net:
    fully_shard(layer)
fully_shard(net)
net(torch.randn(8, 1024, device="cuda")).sum().backward()
total = torch.ones(4).cuda()
dist.reduce_scatter_tensor(torch.empty(2, device="cuda"), total)
torch.optim.AdamW(net.parameters()).step()
dist.barrier()
dist.destroy_process_group()
"""


ABSENT = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
gathered = [None] * 9
dist.all_gather_object(gathered, "mine")
assert gathered == ["mine"] * 9
dist.broadcast_object_list(gathered, 0)
"""


MIB = 1 << 20
# What tests/torch/recorded.py does: (kind, stream, id, size, pool).
RECORDED = [
    ("alloc", 0, 0, 3 * MIB, 0), ("alloc", 1, 1, 5 * MIB, 0), ("record", 1, 0, 0, 0), ("wait", 2, 0, 0, 0),
    ("record_stream", 2, 1, 0, 0), ("alloc", 2, 2, 7 * MIB, 0), ("free", 1, 1, 0, 0), ("stream_sync", 2, 0, 0, 0),
    ("event_sync", 0, 0, 0, 0), ("stream_sync", 0, 0, 0, 0), ("device_sync", 0, 0, 0, 0), ("capture", 1, 0, 0, 1),
    ("alloc", 1, 3, 9 * MIB, 1), ("end_capture", 1, 0, 0, 0), ("device_sync", 0, 0, 0, 0), ("capture", 1, 1, 0, 1),
    ("alloc", 1, 4, 9 * MIB, 1), ("end_capture", 1, 1, 0, 0), ("launch", 0, 0, 0, 0), ("launch", 0, 1, 0, 0),
    ("free", 1, 4, 0, 0), ("free", 1, 3, 0, 0), ("release_pool", 0, 0, 0, 1), ("alloc", 0, 5, 11 * MIB, 2),
    ("free", 0, 5, 0, 0), ("free", 2, 2, 0, 0), ("free", 0, 0, 0, 0), ("release_pool", 0, 0, 0, 2)]


OF_ALLOCATIONS = "alloc", "free", "record_stream"


# For tests/torch/fails.py: the verdict, MiB short (None: the snapshot cannot tell), the line that holds most.
FAILS = {
    "batch": ("full", None, "forward"), "sequence": ("full", None, None), "losses": ("leak", None, "forward"),
    "validation": ("leak", None, "forward"), "carried": ("leak", None, None), "sessions": ("leak", None, "sessions"),
    "blocks": ("full", None, None), "layers": ("full", None, "layers"), "grown": ("full", None, "forward"),
    "turns": ("full", None, "turns"), "normalised": ("full", None, "normalised"),
    "outputs": ("leak", None, "<lambda>"), "hooks": ("leak", None, "<lambda>"), "optimizer": ("full", None, ""),
    "weights": ("full", None, "<genexpr>"), "kv_cache": ("full", None, "kv_cache"), "full": ("full", 208, "bytes_of"),
    "other_process": ("full", 1024, "bytes_of"), "pool": ("pool", 2048, "bytes_of"),
    "two_pools": ("pool", 1024, None), "graph": ("pool", None, None),
    "other_stream": ("other_stream", 3072, "bytes_of"),
    "fragmented": ("fragmented", 1536, "bytes_of"), "fragmented_small": ("fragmented", None, "bytes_of"),
    "limit": ("limit", None, "bytes_of"), "fraction_of_gradients": ("limit", None, "forward"),
    "too_large": ("too_large", 13312, "bytes_of"), "too_large_scores": ("too_large", None, "too_large_scores"),
    "rounding": ("rounding", 1536, "bytes_of")}

# For the same programs with terrazzo: the verdict that it prints, without a history.
FAILS_LIVE = {
    "losses": "leak", "outputs": "leak", "validation": "leak", "carried": "leak", "batch": "full", "weights": "full",
    "blocks": "full", "layers": "full", "grown": "full", "normalised": "full", "sessions": "leak",
    "kv_cache": "full"}


class Failure(Exception):
    """A check found something wrong."""


class Suite:
    def __init__(self, cli, env):
        self.cli, self.env = cli, env

    def run(self, *words, options=(), status=0, terrazzo=False, **environment):
        """The report of `python WORDS` under terrazzo sim, if `terrazzo` with that as the allocator; "output" is the
        program's output."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "report.json"
            command = [self.cli, "sim", f"--env={self.env}", f"--json={file}", *options, "--",
                       *[self.cli, "run", "--"] * terrazzo, "python", *map(str, words)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False, env={**os.environ, **environment})
            if done.returncode != status or not file.exists():
                raise Failure(f"status {done.returncode}, not {status}:\n{done.stdout}")
            return {**json.loads(file.read_text()), "output": done.stdout}

    def replay(self, trace, *options):
        """The figures of a replay of the trace."""
        done = subprocess.run([self.cli, "replay", "--json", "-", *options, trace], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        return json.loads(done.stdout)

    # ---- checks: each is a method whose first line says what holds ----

    def copies(self):
        """bytes come back"""
        self.run(PROGRAMS / "copies.py")

    def expandable(self):
        """PyTorch's expandable segments map memory"""
        report = self.run(PROGRAMS / "copies.py", options=["--allocator=expandable"])
        expect(report["driver_calls"].get("cuMemCreate"), str(report["driver_calls"]))

    def package(self):
        """a program of the environment can import terrazzo.torch"""
        report = self.run("-c", "import terrazzo.torch as t, torch; t.install(shim=False)\n"
                          "x = torch.zeros(9, device='cuda')\n"
                          "print(torch.cuda.memory_allocated() > 0, torch.cuda.get_allocator_backend())")
        expect("True pluggable" in report["output"], report["output"])

    def scalars(self):
        """--scalars zero: scalars read 0, which is reported once, with the program's line, and counted"""
        report = self.run(PROGRAMS / "scalars.py", options=["--scalars=zero"])
        expect(report["output"].count("a read of 4 bytes from the device gives 0") == 1, report["output"])
        expect("scalars.py:6 <module>: a read of" in report["output"], report["output"])
        expect("scalars.py:6 <module>" in report["first_blank_read"], report["first_blank_read"])
        expect(report["blank_reads"] == 3, f"{report['blank_reads']} reads")

    def computed(self):
        """what comes of values that the host has sent is read, and decides the sizes of results"""
        lines = (PROGRAMS / "computed.py").read_text().splitlines()
        first = next(i for i, line in enumerate(lines, 1) if "copied[:1].item()" in line)
        for work in "now", "late":
            report = self.run(PROGRAMS / "computed.py", options=[f"--work={work}"])
            expect(f"computed.py:{first} <module>" in report["first_blank_read"], report["first_blank_read"])
            self.run(PROGRAMS / "followed.py", options=["--devices=2", f"--work={work}"])

    def texts(self):
        """texts that a model writes end at their limits"""
        for work in "now", "late":
            self.run(PROGRAMS / "texts.py", options=[f"--work={work}"])

    def libraries(self):
        """operations of every library run or are refused by name"""
        report = self.run(PROGRAMS / "libraries.py")
        expect("is not simulated" in report["output"], "no refusal was printed")
        expect(report["library_calls"] > 0, "no library call was counted")

    def graphs(self):
        """a CUDA graph is captured and replayed"""
        expect(self.run(PROGRAMS / "graphs.py")["graph_launches"] == 10, "not 10 launches")

    def one_rank(self):
        """collectives of one rank copy"""
        self.run(PROGRAMS / "one_rank.py")

    def runs_out(self):
        """out of memory is PyTorch's own error, with its place, its cause and the largest holders"""
        report = self.run(PROGRAMS / "runs_out.py", options=["--memory=24GiB", "--holders"])
        expect(len(report["ooms"]) == 1, f"{len(report['ooms'])} events")
        oom = report["ooms"][0]
        expect(oom["requested_bytes"] == 8 * GIB and "runs_out.py:14 " in oom["place"], str(oom))
        largest = report["holders"][0]
        expect(report["holders_at"] == "failure" and largest["bytes"] == 20 * GIB, str(report["holders"]))
        expect("runs_out.py:9 " in largest["place"], largest["place"])
        why = report["explanation"]
        expect((why["verdict"], why["short_bytes"]) == ("full", 4 * GIB), why["text"])
        expect(why["figures"]["other_processes"] == 0 and why["text"] in report["output"], why["text"])

    def holders(self):
        """what held the memory at the peak is told, whichever allocator serves it"""
        for terrazzo, environment in ((False, {}), (True, {}), (True, WITHOUT_SHIM)):
            report = self.run(PROGRAMS / "copies.py", options=["--holders"], terrazzo=terrazzo, **environment)
            why = report["explanation"]
            expect(report["holders_at"] == "peak" and why["peak"], why["text"])
            expect(sum(one["bytes"] for one in report["holders"]) > 0.9 * report["peak_allocated_bytes"], str(report))
            expect(why["figures"]["allocated"] == report["peak_allocated_bytes"], why["text"])
            named = any("copies.py:" in one["place"] for one in report["holders"])
            expect(named or environment, str(report["holders"]))  # nothing can be compiled there

    def unfinished(self):
        """a request waits for unfinished work of other streams before it fails"""
        for ours in False, True:
            for schedule in "starve", "lifo":
                options = ["--memory=8GiB", "--work=late", f"--schedule={schedule}"]
                report = self.run(PROGRAMS / "unfinished.py", options=options, terrazzo=ours)
                expect(not report["violations"] and not report["misuses"], str(report))

    def pages(self):
        """a run's page has its memory, its failure and its call sites, whichever allocator serves it"""
        for terrazzo, environment in ((False, {}), (True, {}), (True, WITHOUT_SHIM)):
            with tempfile.TemporaryDirectory() as folder:
                page = Path(folder) / "page.html"
                self.run(PROGRAMS / "runs_out.py", options=["--memory=24GiB", f"--report={page}"], terrazzo=terrazzo,
                         **environment)
                data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S).group(1))
            expect(data["held_peak"] == 20 * GIB, f"{environment}: {data['held_peak']} held")
            expect(data["failure_count"] == 1, f"{environment}: {data['failure_count']} failures")
            expect("8.00 GiB asked for" in data["verdict"], data["verdict"])
            site = data["stacks"]["peak"]["holders"][0][0]
            expect("runs_out.py:9 " in site or environment, f"{environment}: {site}")  # frames need a compiler, too

    def allocators(self):
        """the report names the allocator in use, and why it is not the wanted one"""
        pools = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
        for served, words, terrazzo, environment, reason in (
                ("native", [], False, {}, None), ("expandable", ["switch"], False, {}, None),
                ("cudaMallocAsync", [], False, pools, None), ("terrazzo", [], True, {}, None),
                ("terrazzo", [], True, WITHOUT_SHIM, "without its shim: "),
                ("cudaMallocAsync", [], True, pools, "terrazzo could not be installed: ")):
            report = self.run(PROGRAMS / "allocators.py", *words, status=1, terrazzo=terrazzo, **environment)
            found, told = report["allocator"], report.get("allocator_reason")
            expect(found == served and (told or "").startswith(reason or ""), f"{found}, not {served}: {told}")
            expect((told is None) == (reason is None), f"{told}, not {reason}")
            expect(told is None or told in report["output"], report["output"])
            expect(report["peak_allocated_bytes"] == 4 * GIB, f"{served}: {report['peak_allocated_bytes']}")
            oom = report["ooms"][-1]
            expect("allocators.py:13 <module>" in oom["place"], f"{served}: {oom}")
            expect(1000 * GIB in (oom.get("requested_bytes"), oom.get("bytes")), f"{served}: {oom}")

    def recorded(self):
        """a recording has exactly the program's requests and order, and replays with its peak"""
        for options in [], ["--allocator=expandable"], ["--work=late"]:
            with tempfile.TemporaryDirectory() as folder:
                trace = Path(folder) / "a.trace"
                report = self.run(PROGRAMS / "recorded.py", options=[f"--record={trace}", *options])
                events = without_words(compact_trace.read(trace))
                rows = [self.replay(trace, f"--lag={lag}") for lag in (0, 10)]
            expect(events == RECORDED, f"{options}: " + "\n".join(map(str, events)))
            peak = int(re.search(r"peak (\d+)", report["output"]).group(1))
            for row in rows:
                expect(row["peak_allocated_bytes"] == peak, f"{row['peak_allocated_bytes']}, not {peak}")
                expect(not row["violations"] and not row["leaks"] and not row["skipped_events"], str(row))

    def records_only_pytorchs_own(self):
        """other allocators than PyTorch's own are not followed, and the program is told so"""
        pools = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "a.trace"
            report = self.run("-c", "import torch; torch.zeros(9, device='cuda')",
                              options=[f"--record={trace}"], status=2, **pools)
            expect("there is no trace" in report["output"], report["output"])
            expect("PyTorch's requests cannot be followed: cudaMallocAsync" in report["output"], report["output"])

    def places(self):
        """a request without memory is reported with the program's own lines and its own limit"""
        for terrazzo in False, True:
            report = self.run(PROGRAMS / "places.py", status=1, terrazzo=terrazzo)
            oom = report["ooms"][0]
            expect(oom["limit_bytes"] == oom["device_total_bytes"] // 4, str(oom))
            expect("places.py:10 layer" in oom["place"], oom["place"])
            expect([frame.rsplit(" ")[-1] for frame in oom["own"]] == ["<module>", "step", "layer"], str(oom["own"]))
            shown = r"50.00 GiB requested under the program's own limit of 19.80 GiB \(.* free on the device\).*\n.*" \
                    r"at .*places.py:10 layer\n.*:20 <module>\n.*:16 step\n.*:10 layer\n"
            expect(re.search(shown, report["output"]), report["output"])

    def fails(self):
        """what PyTorch's own allocator records of a failure is explained: why, by how much, who holds the memory"""
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            done = {name: pool.submit(self.explained, name, folder) for name in FAILS}
            live = {name: pool.submit(self.told_live, name, folder) for name in FAILS_LIVE}
            wrong = [text for text in (self.misjudged(name, *FAILS[name], future.result())
                                       for name, future in done.items()) if text]
            wrong += [f"{name}, while it runs: {future.result()}" for name, future in live.items()
                      if future.result() != FAILS_LIVE[name]]
        expect(not wrong, "\n".join(wrong))

    def explained(self, name, folder):
        """What terrazzo explain says of the snapshot that the program leaves."""
        file = Path(folder) / f"{name}.pickle"
        self.run(PROGRAMS / "fails.py", name, "all", file, options=["--memory=8GiB"])
        done = subprocess.run([self.cli, "explain", "--json", "-", file], stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout)

    def told_live(self, name, folder):
        """The verdict that terrazzo prints when the program runs out of memory."""
        report = self.run(PROGRAMS / "fails.py", name, "none", Path(folder) / f"{name}.live.pickle",
                          options=["--memory=8GiB"], terrazzo=True)
        return "".join(re.findall(r"^verdict: (\w+)", report["output"], re.M))

    @staticmethod
    def misjudged(name, verdict, short, holder, report):
        """What is wrong; None: nothing."""
        missing = report["short_bytes"] or 0
        first = (report["holders"] or [{}])[0].get("site") or ""
        right = report["verdict"] == verdict and (short is None or abs(missing - short * MIB) <= 2 * MIB) and \
            (holder is None or holder in first)
        return None if right else f"{name}: {report['verdict']}, {missing / MIB:.0f} MiB short, {first} holds most"

    def run_out_together(self):
        """threads that run out of memory at once each get PyTorch's own error"""
        report = self.run(PROGRAMS / "run_out_together.py")
        expect(len(report["ooms"]) == 80, f"{len(report['ooms'])} events")

    def ends_early(self):
        """a program may end during backward, or with an error in it; without help some of these runs abort"""
        for _ in range(3):
            self.run(PROGRAMS / "ends_early.py")
            report = self.run(PROGRAMS / "ends_early.py", "fails", status=1)
            expect("ValueError: no gradient today" in report["output"], report["output"])

    def resets(self):
        """the report knows the whole run's figures, however often a program resets PyTorch's"""
        for options, terrazzo, environment, most in ((["--allocator=native"], False, {}, 7),
                                                     (["--allocator=expandable"], False, {}, 7),
                                                     ([], True, {}, 9), ([], True, WITHOUT_SHIM, 9)):
            report = self.run(PROGRAMS / "resets.py", *["terrazzo"] * terrazzo, options=["--devices=2", *options],
                              terrazzo=terrazzo, **environment)
            devices = report["processes"][0]["pytorch"]["devices"]
            found = [device["peak_allocated_bytes"] // GIB for device in devices]
            expect(found == [5, most], f"{options} {environment}: {found} GiB")
            expect(report["peak_allocated_bytes"] == most * GIB, f"{report['peak_allocated_bytes']}")
            expect(report["fragmentation"] < 0.01, f"{report['fragmentation']} of {report['peak_reserved_bytes']}")
            expect(devices[1]["ooms"] == 2, f"{devices[1]['ooms']} requests without memory")

    def ends(self):
        """the figures of a process are known however it ends; PyTorch's own unless a signal ends it"""
        for how, status, whose in ("exit", 3, "pytorch"), ("worker", 0, "pytorch"), ("kill", 128 + 9, "driver"):
            report = self.run(PROGRAMS / "ends.py", how, status=status)
            found = report["peak_allocated_bytes"], report["peak_reserved_bytes"], report["figures_of"]
            expect(found == (7 * GIB, 7 * GIB, whose), f"{how}: {found}")
            expect(report["driver_calls"].get("cudaMalloc") == 2, f"{how}: {report['driver_calls']}")
            expect(report["allocator"] == "native", f"{how}: {report['allocator']}")
            expect(("PyTorch's own figures went" in report["output"]) == (how == "kill"), report["output"])
        outlived = self.run(PROGRAMS / "ends.py", "outlived")
        for complaint in ("Traceback", "not recorded", "no report"):
            expect(complaint not in outlived["output"], outlived["output"])

    def late_work(self):
        """with late work nothing is violated"""
        for name in ("graphs.py", "copies.py"):
            report = self.run(PROGRAMS / name, options=["--work=late", "--seed=7"])
            expect(report["violations"] == 0, report.get("first_violation", ""))
            expect(report["misuses"] == 0, report.get("first_misuse", ""))

    def ordered(self):
        """memory goes from stream to stream by the program's own events, and never by less"""
        for words, schedule, seed in (("shim", "random", 1), ("hooks", "starve", 2), ("shim", "lifo", 3),
                                      ("shim forked", "random", 4)):
            options = ["--work=late", f"--schedule={schedule}", f"--seed={seed}"]
            report = self.run(PROGRAMS / "ordered.py", *words.split(), options=options, TERRAZZO_CONF="wait:off",
                              PYTHONPATH=str(ROOT / "python"))
            expect(report["violations"] == 0, f"{options}: {report.get('first_violation', '')}")
            expect(report["misuses"] == 0, report.get("first_misuse", ""))
        report = self.run(PROGRAMS / "ordered.py", "shim", options=["--work=late"], TERRAZZO_CONF="wait:off,order:off",
                          PYTHONPATH=str(ROOT / "python"))
        expect(report["violations"] == 0, report.get("first_violation", ""))

    def driver_errors(self):
        """calls that a driver refuses return errors, and the program goes on; handles, events and captures are as a
        driver's"""
        for work in ("now", "late"):
            report = self.run(PROGRAMS / "driver_errors.py", options=["--devices=2", f"--work={work}"],
                              PYTORCH_ALLOC_CONF="graph_capture_record_stream_reuse:True")
            expect(report["violations"] == 0, report.get("first_violation", ""))
            expect(report["misuses"] == 4, f"{report['misuses']} misuses: {report.get('first_misuse')}")

    def mistakes(self):
        """with late work PyTorch's kernels expose a wrong allocator, and do not accuse a right one"""
        compiler = shlex.split(os.environ.get("CC", "cc"))
        with tempfile.TemporaryDirectory() as folder:
            library, driver = Path(folder) / "wrong.so", self.cli.parent.parent / "lib" / "sim" / "libcuda.so.1"
            subprocess.run([*compiler, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Werror", "-shared", "-fPIC", "-o",
                            library, PROGRAMS / "wrong_allocator.c", driver], check=True)
            report = self.run(PROGRAMS / "mistakes.py", library, options=["--work=late"])
        expect("kernel" in report["first_violation"], report["first_violation"])

    def unset_words(self):
        """with late work fields that a program has not set do no harm, under PyTorch's allocator and ours"""
        for terrazzo in (False, True):
            report = self.run(PROGRAMS / "unset_words.py", options=["--work=late"], terrazzo=terrazzo)
            expect(report["suspicions"] > 0, "no structure had anything else in it")

    def shared_tensors(self):
        """processes share the device, its memory, and work that loads data"""
        for allocator in ("native", "expandable"):
            report = self.run(PROGRAMS / "shared_tensors.py", options=[f"--allocator={allocator}"])
            expect(len(report["processes"]) == 5, f"{len(report['processes'])} processes used the device")

    def ranks(self):
        """among 2, 4 and 8 ranks collectives bring what gloo brings, objects arrive, DDP and FSDP2 train"""
        for ranks, options in ((2, []), (4, []), (8, []), (2, ["--work=late", "--seed=5"])):
            report = self.run(PROGRAMS / "several_ranks.py", ranks, options=[f"--devices={ranks}", *options])
            expect(report["violations"] == 0, report.get("first_violation", ""))
            found = {p["rank"] for p in report["processes"] if "rank" in p}
            expect(found == set(range(ranks)), f"ranks {found}")

    def captured_ranks(self):
        """each replay of a graph is the collectives that were captured, with late work and on terrazzo"""
        for terrazzo, options in ((True, []), (True, ["--work=late", "--seed=3"]),
                                  (False, ["--work=late", "--schedule=starve"])):
            report = self.run(PROGRAMS / "several_ranks.py", 2, "captured", options=["--devices=2", *options],
                              terrazzo=terrazzo)
            expect(report["violations"] == 0, report.get("first_violation", ""))
            expect(report["allocator"] == ("terrazzo" if terrazzo else "native"), report["allocator"])
            calls = [p["collectives"]["all_gather"]["calls"] for p in report["processes"] if "rank" in p]
            expect(calls == [3, 3], f"all_gather was called {calls} times")

    def plans(self):
        """what plans for several devices need is what closed forms say, natively and on terrazzo, with late work"""
        for terrazzo in False, True:
            for ranks in 2, 4:
                report = self.run(PROGRAMS / "plans.py", ranks, options=[f"--devices={ranks}", "--work=late"],
                                  terrazzo=terrazzo)
                expect(report["violations"] == 0, report.get("first_violation", ""))
                expect(report["allocator"] == ("terrazzo" if terrazzo else "native"), report["allocator"])

    def absent(self):
        """a rank of 8 whose others are absent has the peaks that it has among 8, by every plan"""
        command = PROGRAMS / "plans.py", 8
        together = self.run(*command, options=["--devices=8"])
        alone = self.run(*command, options=["--world-size=8", "--ranks=0,3,7"])
        peaks = [dict(re.findall(r"^(\w+, rank \d of 8): ([\d.]+) MiB", report["output"], re.M))
                 for report in (together, alone)]
        expect(len(peaks[0]) == 11 * 8 and len(peaks[1]) == 11 * 3, f"{len(peaks[0])} and {len(peaks[1])} peaks")
        other = {rank: (peaks[0][rank], peak) for rank, peak in peaks[1].items() if peaks[0][rank] != peak}
        expect(not other, f"among 8, alone: {other}")

    def torchrun(self):
        """torchrun's ranks have a row each; one whose others are absent finds the same peaks"""
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "train.py"
            program.write_text(TORCHRUN)
            report = self.run("-m", "torch.distributed.run", "--nproc-per-node=2", program, options=["--devices=2"])
            alone = self.run(program, options=["--world-size=2", "--ranks=0,1"])
            program.write_text(ABSENT)
            absent = self.run(program, options=["--world-size=9", "--ranks=1"], status=1)
        expect("broadcast_object_list brings what only rank 0 knows, which is absent" in absent["output"],
               absent["output"])
        ranks, single = (sorted((p for p in r["processes"] if "rank" in p), key=lambda p: p["rank"])
                         for r in (report, alone))
        expect([p["ranks"] for p in ranks] == [2, 2], str(ranks))
        expect(all(p["collectives"]["reduce_scatter"]["calls"] == 3 for p in ranks), str(ranks[0]["collectives"]))
        expect(ranks[0]["peak_allocated_bytes"] == ranks[1]["peak_allocated_bytes"] > 0, str(ranks))
        expect("fullest: rank" in report["output"], report["output"])
        for key in ("rank", "peak_allocated_bytes", "peak_reserved_bytes", "collectives"):
            expect([p[key] for p in ranks] == [p[key] for p in single], f"{key}: {ranks}, alone {single}")

    def launchers(self):
        """ranks find each other whoever starts them, on whichever node and device"""
        program = PROGRAMS / "launched.py"
        for words, options, device in (
                (["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", program], [], "1 of 2"),
                ([program, "spawn"], [], "1 of 2"), ([program, "OMPI_COMM_WORLD"], [], "0 of 1"),
                ([program, "SLURM"], [], "0 of 1"),
                (["-m", "torch.distributed.run", program], ["--nodes=2"], "0 of 1")):
            report = self.run(*words, options=options or ["--devices=2"])
            expect(f"rank 1 of 2, device {device}" in report["output"], report["output"])
            ranks = {p["rank"]: p.get("node") for p in report["processes"] if "rank" in p}
            expect(ranks == ({0: 0, 1: 1} if options else {0: None, 1: None}), str(ranks))

    def hf_plans(self):
        """FSDP by accelerate and the Trainer: as much of 2 ranks as of each by itself"""
        for words in (["accelerate", 1], ["trainer", 2], ["accelerate", 0]):
            program = (PROGRAMS / "hf_plans.py", *words)
            report = self.run("-m", "torch.distributed.run", "--nproc-per-node=2", *program,
                              options=["--devices=2"])
            alone = self.run(*program, options=["--world-size=2", "--ranks=0,1"])
            ranks, single = ([(p["rank"], p["peak_allocated_bytes"]) for p in r["processes"] if "rank" in p]
                             for r in (report, alone))
            expect(sorted(ranks) == sorted(single), f"{words}: {ranks}, alone {single}")

    def wrong_ranks(self):
        """a wrong program of several ranks ends with who, where and what"""
        report = self.run(PROGRAMS / "wrong_ranks.py", options=["--devices=4"])
        print(re.sub(r"^(?!.*: ok).*\n", "", report["output"], flags=re.M), end="")
        left = [p["pid"] for p in report["processes"] if os.path.exists(f"/proc/{p['pid']}")]
        expect(not left, f"processes {left} are left")

    def tiny(self):
        """a tiny LLaMA trains, twice exactly the same"""
        for allocator in ("native", "expandable"):
            first, second = (self.run("bench/workloads/run_program.py", "tiny", options=[f"--allocator={allocator}"])
                             for _ in range(2))
            for key in ("peak_allocated_bytes", "peak_reserved_bytes", "driver_calls", "kernels"):
                expect(first[key] == second[key], f"{allocator}: {key} {first[key]}, then {second[key]}")

    def too_small(self):
        """a program that does not fit ends with PyTorch's own error and text"""
        report = self.run("examples/llama_7b.py", "--steps", 1, options=["--memory=24GiB"], status=1)
        text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"
        expect(text in report["output"] and "total capacity of 24.00 GiB" in report["output"], report["output"])
        expect("llama_7b.py:" in report["ooms"][0]["place"], str(report["ooms"]))

    def fit(self):
        """--fit prints a size that does, and less does not"""
        program = ("bench/workloads/run_program.py", "tiny", "--steps", 2)
        report = self.run(*program, options=["--fit", "--memory=1GiB"])
        printed = re.search(r"fits in .* GiB \(--memory (\d+)MiB\)", report["output"])
        expect(report["fit"]["verified"] and printed, f"{report['fit']}\n{report['output']}")
        size = int(printed.group(1))
        expect(report["fit"]["memory_bytes"] == size << 20, f"{size} MiB printed, {report['fit']}")
        expect(not self.run(*program, options=[f"--memory={size}MiB"])["ooms"], "the size found is not enough")
        less = self.run(*program, options=[f"--memory={size - 64}MiB"], status=1)
        expect(less["ooms"], "64 MiB less are enough too")

    def example(self):
        """examples/llama_7b.py trains and prints PyTorch's own summary; the formula is within a tenth of it"""
        report = self.run("examples/llama_7b.py", "--steps", 2, "--length", LENGTH)
        for text in ("PyTorch CUDA memory summary", "peak reserved", "fragmentation", "driver calls"):
            expect(text in report["output"], f"no '{text}' in:\n{report['output']}")
        done = subprocess.run([self.cli, "estimate", "--json=-", "--params=6.738e9", "--layers=32", "--hidden=4096",
                               "--vocabulary=32000", f"--seq={LENGTH}", "--checkpointing"], stdout=subprocess.PIPE,
                              text=True, check=True)
        estimated, simulated = json.loads(done.stdout)["peak_allocated_bytes"], report["peak_allocated_bytes"]
        distance = estimated / simulated - 1
        print(f"estimate: {estimated / GIB:.2f} GiB by formula, {simulated / GIB:.2f} in a run: {distance:+.1%}")
        expect(abs(distance) < 0.1, f"{distance:+.1%}")

    def compiled(self):
        """torch.compile runs, default and reduce-overhead"""
        self.run(PROGRAMS / "train_compiled.py", "default")
        report = self.run(PROGRAMS / "train_compiled.py", "reduce-overhead")
        expect(report["graph_launches"] > 0, "no graph was launched")

    def plug(self, name):
        """terrazzo takes the place of PyTorch's allocator"""
        libraries = self.cli.parent.parent / "lib"
        done = subprocess.run([self.env / "bin" / "python", PROGRAMS / "run.py", name], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False,
                              env={**os.environ, "TERRAZZO_LIBRARIES": str(libraries), "TERRAZZO_CLI": str(self.cli),
                                   "LD_LIBRARY_PATH": str(libraries / "sim")})
        expect(done.returncode == 0, done.stdout)

    def workload(self, name):
        """as recorded, and identical to the byte on a second run"""
        command = [sys.executable, ROOT / "bench" / "workloads.py", f"--env={self.env}", "--jobs=1", "--twice", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              env={**os.environ, "TERRAZZO_CLI": str(self.cli)})
        expect(done.returncode == 0, done.stdout)


def without_words(events):
    """The events without the words that PyTorch before 2.14 allocates for its random numbers, and waits for, when it
    captures a graph."""
    words = {event[2] for event in events if event[0] == "alloc" and event[3] == 8}
    kept, captured = [], False
    for event in events:
        captured = captured and event[0] != "end_capture" or event[0] == "capture"
        if not (event[0] in OF_ALLOCATIONS and event[2] in words or words and captured and event[0] == "stream_sync"):
            kept.append(event)
    numbers = {event[2]: i for i, event in enumerate(event for event in kept if event[0] == "alloc")}
    return [(kind, stream, numbers[ident] if kind in OF_ALLOCATIONS else ident, *rest)
            for kind, stream, ident, *rest in kept]


def expect(holds, text):
    if not holds:
        raise Failure(text)


def checks(suite, with_compile):
    """{name: function}"""
    found = {}
    for path in sorted(PROGRAMS.glob("test_*.py")):  # first, since the longest are among them: no core idles at the end
        name = path.stem[len("test_"):]
        found[f"plug_{name}"] = lambda name=name: suite.plug(name)
    names = ["copies", "expandable", "package", "scalars", "computed", "texts", "libraries", "graphs", "one_rank",
             "runs_out", "holders", "pages", "allocators", "unfinished", "recorded", "records_only_pytorchs_own",
             "places", "run_out_together", "too_small", "resets", "ends", "ends_early", "fails", "late_work",
             "driver_errors", "ranks", "captured_ranks", "plans", "absent", "torchrun", "launchers", "hf_plans",
             "wrong_ranks", "mistakes", "unset_words", "shared_tensors", "tiny", "example", "fit", "ordered"]
    names += ["compiled"] * with_compile
    found.update({name: getattr(suite, name) for name in names})
    for name in SHIPPED:
        found[name] = lambda name=name: suite.workload(name)
    return found


def attempt(name, check):
    """(name, what is wrong or None, seconds)"""
    start, wrong = time.monotonic(), None
    try:
        check()
    except Failure as failure:
        wrong = str(failure) or repr(failure)
    except Exception as failure:  # output that a check cannot read is its failure, and no other check's
        wrong = f"{failure!r}\n{traceback.format_exc()}"
    return name, wrong, time.monotonic() - start


def set_up(cli, env, version=None, with_compile=False):
    command = [cli, "sim", f"--setup={env}", "--with=transformers", "--with=accelerate"] + ["--compile"] * with_compile
    return subprocess.run(command + [f"--torch={version}"] * bool(version), check=False).returncode == 0


def finish(build, passed, failed):
    for name in failed:
        print(f"FAILED torch: {name}")
    line = f"{passed} passed, {len(failed)} failed"
    build.mkdir(exist_ok=True)
    (build / "summary-torch").write_text(line + "\n")
    print(line, flush=True)
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these checks")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--torch", metavar="VERSION", help="another PyTorch than the default, without recorded checks")
    args = parser.parse_args()
    (args.build / "summary-torch").unlink(missing_ok=True)
    cli = args.build.resolve() / "bin" / "terrazzo"
    env = Path(os.environ.get("TERRAZZO_TORCH_ENV") or args.build / "torch-env").resolve()
    if not cli.exists():
        print(f"check_torch: {cli} is missing; build first")
        return finish(args.build, 0, ["build"])
    rounds = [(args.torch, args.names)] if args.torch or args.names else [(None, []), (OLDEST, OF_OLDEST)]
    folders = [env.with_name(f"{env.name}-{version}") if version else env for version, _ in rounds]
    passed, failed = 0, []
    with concurrent.futures.ThreadPoolExecutor(1) as ahead:  # an environment is set up while checks run in the last
        ready = [ahead.submit(set_up, cli, here, version, args.compile and not version)
                 for (version, _), here in zip(rounds, folders)]
        for (version, names), here, is_ready in zip(rounds, folders, ready):
            if not is_ready.result():
                failed.append(f"setup {version or ''}".strip())
                continue
            wanted = checks(Suite(cli, here), args.compile)
            if version:
                wanted = {name: check for name, check in wanted.items() if name not in (*OF_DEFAULT, *SHIPPED)}
            if set(names) - wanted.keys():
                parser.error(f"there are {', '.join(wanted)}")
            wrong = try_all({name: wanted[name] for name in names or wanted}, f" ({version})" if version else "")
            passed += len(names or wanted) + 1 - len(wrong)
            failed += wrong
    return finish(args.build, passed, failed)


def try_all(wanted, which):
    """Runs checks; returns those that failed."""
    failed = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, wrong, seconds in pool.map(lambda name: attempt(name, wanted[name]), wanted):
            print(f"{name}{which}: {'ok' if wrong is None else 'FAILED'}, {seconds:.0f} s", flush=True)
            if wrong is not None:
                print("    " + wrong.replace("\n", "\n    "))
                failed.append(f"{name}{which}: {wrong.splitlines()[0]}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
