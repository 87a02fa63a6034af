#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the command line program: its output, its exit codes, its reading of Python's pickles."""
import bz2
import gzip
import json
import lzma
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from cli_build import HAS_ADDRESS_SANITIZER, LIBRARIES

CLI = os.environ["TERRAZZO_CLI"]
SOURCE = Path(os.environ["TRZ_SOURCE_DIR"])
TRACES = SOURCE / "bench" / "traces"
FIXTURES = SOURCE / "tests" / "trace"

REQUIRED_KEYS = """trace policy events streams peak_allocated_bytes peak_requested_bytes peak_reserved_bytes
    end_reserved_bytes fragmentation external_fragmentation driver_calls driver_calls_last_quarter
    driver_time_ns max_driver_time_per_alloc_ns max_times_tiles waits_inserted host_ns_per_op
    host_ns_median host_ns_p999 ooms retries
    metadata_bytes""".split()
NOT_NAIVE = """external_fragmentation waits_inserted host_ns_per_op host_ns_median host_ns_p999 retries
    metadata_bytes""".split()

# "#" stands for a number that depends on the cost table, or on how the simulated device is set up.
GOLDEN_TABLE = """\
policy naive, device of 1.00 GiB, lag 0

                  allocated  reserved           driver   driver  calls in                     host  99.9 %
trace     events  peak, GiB       GiB  ratio  time, ms    calls  last 1/4  ooms  violations  ns/op      ns
golden         6       0.25      0.25  1.000         #        #         1     0           0      -       -

driver calls             golden
mem_alloc                     3
mem_free                      3
golden: left out 1 frees of memory allocated before the trace began
"""


def entry(action, addr, size, stream=0, **more):
    return {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": 1795242175052360,
            "compile_context": "N/A", "user_metadata": "", "pool_id": (0, 0), **more}


def snapshot(*traces):
    """A dict as torch.cuda.memory._snapshot() returns it."""
    return {"segments": [{"device": 0, "address": 1 << 45, "total_size": 2 << 20, "is_expandable": True,
                          "segment_pool_id": (0, 0), "blocks": [{"address": 1 << 45, "state": "inactive"}]}],
            "device_traces": [list(trace) for trace in traces],
            "allocator_settings": {"max_split_size": -1, "garbage_collection_threshold": 0.0,
                                   "roundup_power2_divisions": {"1": 0}, "huge": 1 << 80},
            "external_annotations": [], "host_segments": [], "host_traces": []}


def random_history(seed, count):
    """Trace entries, and the peak of requested sizes rounded up to 512."""
    rng = random.Random(seed)
    live, entries, used, peak = {}, [], 0, 0
    for i in range(count):
        if live and rng.random() < 0.5:
            addr = rng.choice(list(live))
            size, stream = live.pop(addr)
            used -= -(-size // 512) * 512
            entries += [entry(action, addr, size, stream) for action in ("free_requested", "free_completed")]
        else:
            addr, size = (1 << 45) + (i << 21), int(2 ** rng.uniform(0, 24))
            live[addr] = size, stream = size, rng.choice((0, 0x5560_1234_5678, 0x5560_1234_9abc))
            used += -(-size // 512) * 512
            entries.append(entry("alloc", addr, size, stream, frames=[
                {"filename": "model.py", "line": i, "name": "\N{GREEK SMALL LETTER LAMDA}"}] * (i % 3)))
        peak = max(peak, used)
    return entries, peak


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def pickled(self, name, *traces, protocol=4):
        return self.file(name, pickle.dumps(snapshot(*traces), protocol))

    def run_cli(self, *args, code=0, stdin=None, env=None):
        done = subprocess.run([CLI, *map(str, args)], input=stdin, capture_output=True, timeout=300,
                              env={**os.environ, **(env or {})})
        self.out, self.err = done.stdout.decode(), done.stderr.decode()
        self.assertEqual(done.returncode, code, self.out + self.err)
        return self.out

    def replay_json(self, *args, **more):
        lines = self.run_cli("replay", "--json", "-", *args, **more).splitlines()
        return [json.loads(line) for line in lines]

    def assert_fails(self, text, *args, code=2, **more):
        self.run_cli(*args, code=code, **more)
        # argp breaks long lines.
        self.assertIn(text, " ".join(self.err.split()))
        self.assertNotIn("ERROR: ", self.err)


class Program(Case):
    def test_version_and_help(self):
        self.assertRegex(self.run_cli("--version"), r"^terrazzo \d+\.\d+\.\d+\n$")
        self.assertIn("replay TRACE...", self.run_cli("--help"))
        self.assertIn("--capacity=SIZE", self.run_cli("replay", "--help"))

    def test_each_command_has_one_line_in_the_help(self):
        listed = self.run_cli("--help").split("Commands:\n")[1].split("\n\n")[0]
        self.assertEqual([line[:2] for line in listed.splitlines()], ["  "] * 11, listed)

    def test_usage_errors_name_the_thing(self):
        commands = "sim, estimate, run, explain, diff, report, trace, replay, synth, config, costs"
        self.assert_fails("a command is missing: " + commands)
        self.assert_fails("unknown command 'repaly'; commands: " + commands, "repaly")
        self.assert_fails("a trace is missing", "replay")
        self.assert_fails("'12zb' is not a size", "replay", "--capacity", "12zb", "x")
        self.assert_fails("'0.5' is not a size", "replay", "--capacity", "0.5", "x")
        self.assert_fails("'inf' is not a size", "replay", "--capacity", "inf", "x")
        self.assert_fails("'0x10' is not a size", "replay", "--capacity", "0x10", "x")
        self.assert_fails("'9000000TiB' is not a size", "replay", "--capacity", "9000000TiB", "x")
        self.assert_fails("'1KiB' is too small", "replay", "--capacity", "1KiB", "x")
        self.assert_fails("unknown choice 'best'; choices: terrazzo, naive", "replay", "--policy", "best", "x")
        self.assert_fails("--lag: '-1' is not a whole number", "replay", "--lag=-1", "x")
        self.assert_fails("--seed: '1.5' is not a whole number", "replay", "--seed=1.5", "x")
        self.assert_fails("--repeat: '0' is not a whole number from 1", "replay", "--repeat", "0", "x")
        self.assert_fails("--save takes one trace, not 2", "replay", "--save", "z", "x", "y")
        self.assert_fails("--snapshot takes one trace, not 2", "replay", "--snapshot", "z", "x", "y")
        self.assert_fails("naive has no heap", "replay", "--snapshot", "z", "--policy", "naive", "x")
        self.assert_fails("--conf: the policy naive has no heap", "replay", "--conf=limit:1GiB", "--policy=naive", "x")
        self.assert_fails("--check: the policy naive has no heap", "replay", "--check", "--policy", "naive", "x")
        self.assert_fails("--snapshot FILE, which is missing", "replay", "--history", "9", "x")
        self.assert_fails("--history: '0' is not a whole number from 1 to 16777216", "replay", "--history", "0", "x")
        self.assert_fails("unrecognized option", "replay", "--frobnicate", "x")
        refused = "terrazzo %s: --device: 'x' is not a whole number from 0 to 1023"
        for command in ("explain", "diff", "report", "trace"):
            self.assert_fails(refused % command, command, "--device=x", "y")

    def test_full_standard_output(self):
        for arguments in (["config"], ["--help"], ["--version"], ["replay", "--help"], ["sim", "--usage"]):
            with self.subTest(arguments), open("/dev/full", "w") as full:
                done = subprocess.run([CLI, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual((done.returncode, done.stderr), (2, "terrazzo: standard output cannot be written\n"))

    def test_config(self):
        self.assertIn("TERRAZZO_CONF", self.run_cli("config"))
        options = json.loads(self.run_cli("config", "--json"))
        self.assertIn("limit", [option["key"] for option in options])
        for option in options:
            self.assertEqual(set(option), {"key", "type", "choices", "default", "help"})
            self.assertIn(f"\n{option['key']} ({option['type']}: ", self.run_cli("config"))
            self.run_cli("config", "--check", f"{option['key']}:{option['default']}")
        self.assert_fails("no_such_key", "config", "--check", "no_such_key:1")
        self.assert_fails("limit", "config", "--check", "limit:much")
        self.assert_fails("unexpected argument", "config", "limit")

    @unittest.skipIf(HAS_ADDRESS_SANITIZER, "the shell cannot preload a library with AddressSanitizer")
    def test_run_changes_the_environment_alone(self):
        said = self.run_cli("run", "-c", "tile_size:32MiB", "--", "sh", "-c",
                            "printf '%s\\n' $TERRAZZO $TERRAZZO_CONF \"${PYTHONPATH%%:*}\"").splitlines()
        self.assertEqual(said[:2], ["1", "tile_size:32MiB"])
        self.assertTrue(os.path.exists(os.path.join(said[2], "sitecustomize.py")))
        said = self.run_cli("run", "--", "sh", "-c", "echo $TERRAZZO_LIBRARIES").strip()
        # Those of this build, whatever the package would find.
        self.assertEqual(said, str(LIBRARIES) if (LIBRARIES / "libterrazzo_torch.so").exists() else "")
        said = self.run_cli("run", "--", "sh", "-c", "echo $TERRAZZO_LIBRARIES", env={"TERRAZZO_LIBRARIES": "/mine"})
        self.assertEqual(said.strip(), "/mine")
        self.assert_fails("there is no option", "run", "-c", "nonesuch:1", "ls")
        self.assert_fails("TERRAZZO_CONF: there is no option", "run", "echo", "started",
                          env={"TERRAZZO_CONF": "nonesuch:1"})
        self.assertEqual(self.out, "")
        said = self.run_cli("run", "-c", "vmm:on", "--", "sh", "-c", "echo $TERRAZZO_CONF",
                            env={"TERRAZZO_CONF": "nonesuch:1"})
        self.assertEqual(said, "vmm:on\n")
        self.assert_fails("a command is missing", "run")
        self.assert_fails("nonesuch: cannot be run", "run", "nonesuch")
        self.assert_fails("terrazzo: '': cannot be run", "run", "")
        script = self.folder / "train.py"
        script.write_text("print(1)\n")
        self.assert_fails(f"give its interpreter, too: python3 {script}", "run", script)

    @unittest.skipIf(HAS_ADDRESS_SANITIZER, "the shell cannot preload a library with AddressSanitizer")
    def test_exit_status_where_ends_of_children_are_ignored(self):
        def ignored(*command):
            return subprocess.run([CLI, *command], capture_output=True, text=True, timeout=300, check=False,
                                  preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))

        for command in (["run"], ["run", "--limit=1GiB"], ["sim"], ["sim", "--nodes=2"]):
            done = ignored(*command, "--", "sh", "-c", "exit 3")
            self.assertEqual(done.returncode, 3, done.stderr)
            masks = ignored(*command, "--", "grep", "^Sig[BI]", "/proc/self/status").stdout.split()
            self.assertEqual(masks[::2], ["SigBlk:", "SigIgn:"] * (2 if "--nodes=2" in command else 1))
            for name, mask in zip(masks[::2], masks[1::2]):  # the program has them as they were
                self.assertEqual(bool(int(mask, 16) >> signal.SIGCHLD - 1 & 1), name == "SigIgn:", command)
                self.assertFalse(int(mask, 16) >> signal.SIGTERM - 1 & 1, command)

    def test_costs(self):
        rows = [row.split() for row in self.run_cli("costs").splitlines()]
        self.assertEqual(rows[0], ["table", "create", "map", "set_access", "all"])
        self.assertEqual({row[0] for row in rows[1:]}, {file.stem for file in (SOURCE / "sim" / "costs").iterdir()})
        for row in rows[1:]:
            self.assertEqual(sum(map(int, row[1:4])), int(row[4]))
        self.assertIn(self.run_cli("costs", "a100").splitlines()[1].split(), rows[1:])
        self.assert_fails("no_such_table", "costs", "no_such_table")
        self.assert_fails(f"cost table {self.folder} is neither shipped", "costs", self.folder)
        self.assert_fails("no cost table: it has no entry", "costs", self.file("empty.ini", b""))
        self.assert_fails("/dev/zero is neither shipped", "costs", "/dev/zero")
        self.assertIn("File too large", self.err)
        table = (SOURCE / "sim" / "costs" / "a100.ini").read_bytes()
        longest = table + b"\n" * (10000 - table.count(b"\n"))
        self.run_cli("costs", self.file("longest.ini", longest))
        self.assert_fails("File too large", "costs", self.file("too_long.ini", longest + b"\n"))
        self.assert_fails("'3MiB' is not a multiple of 2MiB", "costs", "--size", "3MiB")


class Input(Case):
    def test_protocols_give_the_same_trace(self):
        entries, peak = random_history(1, 3000)
        saved = set()
        for protocol in (2, 3, 4, 5):
            plain = self.pickled("a.pickle", entries, protocol=protocol)
            packed = self.file("a.pickle.xz", lzma.compress(Path(plain).read_bytes()))
            zipped = self.file("a.pickle.gz", gzip.compress(Path(plain).read_bytes()))
            for path in (plain, packed, zipped):
                row, = self.replay_json("--save", self.folder / "a.trace", path)
                self.assertEqual(row["peak_allocated_bytes"], peak)
                saved.add((self.folder / "a.trace").read_bytes())
        self.assertEqual(len(saved), 1)

    def test_more_devices_than_there_are(self):
        """A trace of such a device could be saved, and not be read."""
        entries, _ = random_history(1, 100)
        self.run_cli("replay", self.pickled("a.pickle", *[[]] * 1023, entries))
        self.assert_fails("its device_traces are of 1025 devices; 1024 are read", "replay",
                          self.pickled("b.pickle", *[[]] * 1024, entries))

    def test_saved_trace_replays_the_same(self):
        path = self.pickled("a.pickle", random_history(2, 2000)[0])
        first, = self.replay_json("--lag", 20, "--save", self.folder / "b.trace", path)
        data = (self.folder / "b.trace").read_bytes()
        second, = self.replay_json("--lag", 20, self.folder / "b.trace")
        third, = self.replay_json("--lag", 20, "-", stdin=lzma.compress(data))
        self.assertEqual((first["trace"], second["trace"], third["trace"]), ("a", "b", "stdin"))
        for row in (first, second, third):
            for key in ("trace", "file", "host_ns_per_op", "host_ns_median", "host_ns_p999"):
                del row[key]
        self.assertEqual(first, second)
        self.assertEqual(first, third)

    def test_a_lag_that_varies(self):
        path = self.pickled("a.pickle", random_history(2, 2000)[0])
        rows = [self.replay_json("--lag", lag, "--seed", seed, path)[0]
                for lag, seed in ((5, 1), ("5-90", 1), ("5-90", 1), ("5-90", 2))]
        queries = [row["driver_calls"]["event_query"] for row in rows]
        self.assertEqual([(row["lag"], row["lag_most"]) for row in rows], [(5, 5)] + [(5, 90)] * 3)
        self.assertEqual([row["violations"] for row in rows], [0] * 4)
        self.assertEqual(queries[1], queries[2])
        self.assertEqual(len(set(queries)), 3, queries)
        self.assertIn("lag 5 to 90\n", self.run_cli("replay", "--lag", "5-90", path))
        self.assert_fails("--lag: 90-5: the second must be the larger", "replay", "--lag=90-5", "x")
        self.assert_fails("--lag: 'x' is not a whole number", "replay", "--lag=5-x", "x")
        self.assert_fails("--lag: '5-': the second number is missing", "replay", "--lag=5-", "x")

    def test_logs_of_other_allocators(self):
        row, = self.replay_json("--lag", 2, FIXTURES / "rmm.csv")
        self.assertEqual([row[key] for key in ("trace", "events", "streams", "unknown_frees", "implied_frees",
                                               "failed_allocs", "violations")], ["rmm", 8, 3, 1, 1, 1, 0])
        self.assertIn("left out 1 requests that had failed when they were recorded", self.err)
        packed = gzip.compress((FIXTURES / "stalloc.txt").read_bytes())
        row, = self.replay_json("--policy", "naive", "-", stdin=packed)
        self.assertEqual((row["events"], row["operations"], row["peak_requested_bytes"]), (16, 6, 10489856))
        path = self.file("bad.csv", (FIXTURES / "rmm.csv").read_bytes().replace(b"137438953472", b"lots"))
        self.assert_fails("bad.csv: line 7: its size is not a number", "replay", path)

    def test_devices(self):
        alloc = entry("alloc", 1 << 45, 4096)
        path = self.pickled("a.pickle", [], [alloc], [alloc, entry("free_requested", 1 << 45, 4096)])
        self.assertEqual(self.replay_json(path)[0]["device"], 2)
        row, = self.replay_json("--device", 1, path)
        self.assertEqual((row["device"], row["events"]), (1, 1))
        self.assert_fails("device_traces are empty", "replay", "--device", "0", path)
        self.assert_fails("has no device 3; it has traces of 3 devices", "replay", "--device", "3", path)

    def test_code_is_refused(self):
        class Evil:
            def __reduce__(self):
                return os.system, ("touch evil",)
        for protocol in (2, 3, 4, 5):
            path = self.file("evil.pickle", pickle.dumps(Evil(), protocol))
            self.assert_fails("the pickle calls code: refused", "replay", path)
            self.assertRegex(self.err, r"evil\.pickle: byte \d+: opcode (STACK_)?GLOBAL")
        for thing in (pickle.PickleBuffer(b"x"), re.compile("x"), Path("x"), 1j, range(3)):
            path = self.file("b.pickle", pickle.dumps({"device_traces": [thing]}, 5))
            if not isinstance(thing, pickle.PickleBuffer):
                self.assert_fails("the pickle calls code: refused", "replay", path)
            else:
                self.assert_fails("device_traces[0] is not a list", "replay", path)

    def test_bad_files(self):
        good = pickle.dumps(snapshot([entry("alloc", 1 << 45, 4096)]), 4)
        for path, text in (
                (self.folder / "none", "none: cannot be opened: No such file"),
                ("", "'': cannot be opened: No such file"),
                (self.folder, "cannot be read: Is a directory"),
                (self.file("empty", b""), "is empty"),
                (self.file("cut.pickle", good[:-9]), "truncated"),
                (self.file("cut.xz", lzma.compress(good)[:-9]), "the xz stream is truncated"),
                (self.file("cut.gz", gzip.compress(good)[:-9]), "the gzip stream is truncated"),
                (self.file("packed.bz2", bz2.compress(good)), "unpack it first (bzip2 -d)"),
                (self.file("text.json", b'{"a": 1}'), "not a trace"),
                (self.file("zero.pickle", pickle.dumps(snapshot(), 2)), "device_traces are empty"),
                (self.file("list.pickle", pickle.dumps([1], 2)), "not a memory snapshot"),
                (self.pickled("a.pickle", [entry("alloc", 1, 2 ** 64 - 1)]), "entry 0 of device 0: its size"),
                (self.pickled("none.pickle", [entry("free_requested", 1, 1)]), "holds no allocation")):
            self.assert_fails(text, "replay", path)

    def test_a_bad_trace_does_not_stop_the_others(self):
        good = self.pickled("good.pickle", random_history(3, 200)[0])
        rows = self.replay_json(good, self.folder / "none", good, code=2)
        self.assertEqual([row["trace"] for row in rows], ["good", "good"])
        self.assertIn("none: cannot be opened", self.err)


class Synth(Case):
    def test_makes_traces_that_replay(self):
        for shape in ("ring", "fsdp", "random"):
            for more in ((), ("--record-stream",)):
                path = self.folder / f"{shape}.trace"
                text = self.run_cli("synth", "--shape", shape, "--streams", 3, "--events", 2500, "--seed", 7,
                                    "--save", path, *more)
                self.assertRegex(text, rf"{shape}\.trace: 2500 events, \d+ allocations, 3 streams\n$")
                row, = self.replay_json("--lag", 60, "--check", path)
                figures = [row[key] for key in ("events", "streams", "ooms", "violations", "leaks")]
                self.assertEqual(figures, [2500, 3, 0, 0, 0])

    def test_the_same_options_give_the_same_trace(self):
        for name, option in (("a", "--seed=1"), ("b", "--seed=1"), ("c", "--seed=2"), ("d", "--record-stream")):
            self.run_cli("synth", "--save", self.folder / name, option)
        a, b, c, d = ((self.folder / name).read_bytes() for name in "abcd")
        self.assertEqual(a, b)
        self.assertEqual(len({a, c, d}), 3)

    def test_bad_options(self):
        self.assert_fails("--save FILE is missing", "synth")
        self.assert_fails("'0' is not a whole number from 1 to 4096", "synth", "--streams=0", "--save=x")
        self.assert_fails("'4097' is not a whole number from 1 to 4096", "synth", "--streams=4097", "--save=x")
        self.assert_fails("--events: '0' is not a whole", "synth", "--events=0", "--save=x")
        self.assert_fails("unknown choice 'star'; choices: ring, fsdp", "synth", "--shape=star", "--save=x")
        self.assert_fails("unexpected argument", "synth", "x")
        self.assert_fails("cannot be created", "synth", "--save", self.folder / "no" / "a.trace")


class Fit(Case):
    def test_both_policies(self):
        mib = 1 << 20
        path = self.pickled("a.pickle", [entry("alloc", (i + 1) << 40, 100 * mib) for i in range(5)])
        for policy in ("terrazzo", "naive"):
            row, = self.replay_json("--fit", "--policy", policy, "--capacity", "4GiB", path)
            figures = row["fit_bytes"], row["fit_verified"], row["fit_violations"]
            self.assertEqual(figures, (512 * mib, True, 0))
            self.assertEqual(row["capacity_bytes"], 4096 * mib)
            self.assertGreaterEqual(row["fit_runs"], 3)
            at, = self.replay_json("--policy", policy, "--capacity", row["fit_bytes"], path)
            self.assertEqual((at["ooms"], at["driver_time_ns"]), (0, row["fit_driver_time_ns"]))
            too_small = row["fit_bytes"] - 64 * mib
            less, = self.replay_json("--policy", policy, "--capacity", too_small, path, code=3)
            self.assertGreater(less["ooms"], 0)
            self.assertNotIn("fit_bytes", at)

    def test_table_has_the_column(self):
        path = self.pickled("a.pickle", [entry("alloc", 1 << 40, 100 << 20)])
        lines = self.run_cli("replay", "--fit", path).splitlines()
        self.assertTrue(lines[2].endswith("fits in") and lines[3].endswith("GiB"), lines)
        self.assertEqual(lines[4].split()[-1], "0.1250")
        self.assertNotIn("fits in", self.run_cli("replay", path))

    def test_nothing_fits(self):
        path = self.pickled("a.pickle", [entry("alloc", 1 << 40, 200 << 20)])
        row, = self.replay_json("--fit", "--capacity", "128MiB", path, code=3)
        self.assertEqual((row["fit_bytes"], row["fit_driver_time_ns"], row["fit_runs"]), (None, None, 0))
        row, = self.replay_json("--fit", "--capacity", "204MiB", "--policy", "naive", path)
        self.assertEqual((row["ooms"], row["fit_bytes"]), (0, None))
        self.assertIn("does not fit in the capacity, rounded down to 64 MiB", self.err)


class Bound(Case):
    def test_streams_without_order(self):
        mib = 1 << 20
        path = self.pickled("a.pickle", [
            entry("alloc", 1 << 40, 100 * mib, stream=1), entry("free_requested", 1 << 40, 100 * mib, stream=1),
            entry("alloc", 2 << 40, 100 * mib, stream=2), entry("free_requested", 2 << 40, 100 * mib, stream=2)])
        for lag, need in ((0, 100), (9, 200)):
            row, = self.replay_json("--bound", "--lag", lag, path)
            self.assertEqual((row["bound_bytes"], row["frees"], row["free_batches"]), (need * mib, 2, 2))
        self.assertIn("a: needs 0.20 GiB, whoever serves it, 2.000 of the peak allocated; 2 frees, 2 batches",
                      self.run_cli("replay", "--bound", "--lag", "9", path))
        self.assertNotIn("whoever", self.run_cli("replay", path))

    def test_calls_in_frees(self):
        path = self.folder / "a.trace"
        self.run_cli("synth", "--shape=fsdp", "--events=2000", "--save", path)
        row, = self.replay_json(path)
        for name, count in row["driver_calls_in_frees"].items():
            self.assertTrue(0 < count <= row["driver_calls"][name], name)
        self.assertIn("event_record", row["driver_calls_in_frees"])


class Replay(Case):
    def test_golden_table(self):
        mib = 1 << 20
        path = self.pickled("golden.pickle", [
            entry("free_requested", 7 << 21, 1),
            entry("alloc", 1 << 45, 128 * mib),
            entry("alloc", 2 << 45, 128 * mib),
            entry("free_requested", 1 << 45, 128 * mib),
            entry("alloc", 3 << 45, 4 * mib, stream=99),
            entry("free_requested", 2 << 45, 128 * mib),
            entry("free_requested", 3 << 45, 4 * mib, stream=99)])
        table = self.run_cli("replay", "--policy", "naive", "--capacity", "1GiB", path)
        shown = [line for line in table.splitlines() if not re.match("context_|stream_|device_", line)]
        golden = GOLDEN_TABLE.splitlines()
        self.assertEqual(shown[:4], golden[:4])
        self.assertEqual(len(shown[4]), len(golden[4]))
        self.assertEqual(len(shown), len(golden))
        for line, expected in zip(shown, golden):
            pattern = re.escape(" ".join(expected.split())).replace(r"\#", r"[\d.]+")
            self.assertRegex(" ".join(line.split()), f"^{pattern}$")
        self.assertEqual(self.err, "")

    def test_json_has_every_key(self):
        path = self.pickled("a.pickle", random_history(4, 500)[0])
        row, = self.replay_json(path)
        self.assertEqual([key for key in REQUIRED_KEYS if row.get(key) is None], [])
        self.assertIn("policy terrazzo", self.err)
        naive, = self.replay_json("--policy", "naive", path)
        self.assertEqual([key for key in REQUIRED_KEYS if key not in naive], [])
        self.assertEqual([key for key in REQUIRED_KEYS if naive[key] is None], NOT_NAIVE)
        self.assertEqual(naive["peak_allocated_bytes"], row["peak_allocated_bytes"])
        expected = 1 - row["peak_allocated_bytes"] / row["peak_reserved_bytes"]
        self.assertAlmostEqual(row["fragmentation"], expected, 5)

    def test_names_need_not_be_text(self):
        data = Path(self.pickled("a.pickle", random_history(6, 100)[0])).read_bytes()
        costs = self.folder / os.fsdecode(b"costs\xff.ini")
        costs.write_bytes((SOURCE / "sim" / "costs" / "a100.ini").read_bytes())
        for name, trace in ((b"caf\xe9.pickle", "caf?"), ("\u00e9" * 40 + ".pickle", "\u00e9" * 31 + "?")):
            path = self.folder / os.fsdecode(name)
            path.write_bytes(data)
            done = subprocess.run([CLI, "replay", "--json", "-", "--costs", costs, path], capture_output=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            row = json.loads(done.stdout)
            self.assertEqual(row["trace"], trace)
            self.assertEqual(Path(row["costs"]).name, "costs?.ini")
            self.assertEqual(len(os.fsencode(row["file"])), len(os.fsencode(path)))

    def test_json_to_a_file(self):
        path = self.pickled("a.pickle", random_history(5, 200)[0])
        self.assertIn("driver calls", self.run_cli("replay", "--json", self.folder / "out.json", path, path))
        rows = (self.folder / "out.json").read_text().splitlines()
        self.assertEqual([json.loads(row)["trace"] for row in rows], ["a", "a"])
        self.assert_fails("cannot be created", "replay", "--json", self.folder / "no" / "out.json", path)
        self.assert_fails("/dev/full: cannot be written: No space left", "replay", "--json", "/dev/full", path)
        self.assertNotIn("cannot be replayed", self.err)
        self.assert_fails("cannot be created", "replay", "--save", self.folder / "no" / "a.trace", path)

    def test_out_of_memory_is_counted(self):
        path = self.pickled("a.pickle", [entry("alloc", 1 << 45, 8 << 20), entry("alloc", 2 << 45, 64 << 20),
                                         entry("free_requested", 2 << 45, 64 << 20)])
        for policy in ("terrazzo", "naive"):
            row, = self.replay_json("--policy", policy, "--capacity", "32MiB", path, code=3)
            self.assertEqual((row["ooms"], row["events"], row["violations"]), (1, 3, 0))
            first = "a: 1 requests got no memory, the first after 1 events: "
            self.assertEqual(self.err.count(first), 1)
        row, = self.replay_json("--conf", "limit:32MiB", path, code=3)
        self.assertEqual(row["ooms"], 1)
        self.assertIn(first + "64.00 MiB requested on device 0: ", self.err)

    def check_snapshot(self, path):
        """The snapshot's actions, after the checker has found nothing wrong with it."""
        checker = [sys.executable, SOURCE / "tools" / "check_snapshot.py", path]
        done = subprocess.run(checker, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        trace, = json.loads(path.read_text())["device_traces"]
        return [item["action"] for item in trace]

    def test_snapshot_after_the_last_event(self):
        path, to = self.pickled("a.pickle", random_history(7, 800)[0]), self.folder / "out.json"
        self.run_cli("replay", "--snapshot", to, path)
        actions = self.check_snapshot(to)
        entries = [item["action"] for item in random_history(7, 800)[0]]
        for action in ("alloc", "free_requested"):
            self.assertEqual(actions.count(action), entries.count(action), action)
        self.run_cli("replay", "--snapshot", to, "--history", 30, path)
        self.assertLess(self.check_snapshot(to).count("alloc"), 31)

    def test_snapshot_where_memory_ran_out(self):
        path, to = self.pickled("a.pickle", [
            entry("alloc", 1 << 45, 8 << 20), entry("alloc", 2 << 45, 64 << 20), entry("alloc", 3 << 45, 1 << 20),
            entry("alloc", 4 << 45, 64 << 20)]), self.folder / "out.json"
        self.run_cli("replay", "--capacity", "32MiB", "--snapshot", to, path, code=3)
        actions = self.check_snapshot(to)
        self.assertEqual((actions.count("alloc"), actions.count("oom")), (1, 1))
        self.assert_fails("a.pickle: cannot be replayed: ", "replay", "--snapshot", self.folder / "no" / "x", path)

    def test_lag_check_repeat_and_seed(self):
        path = self.pickled("a.pickle", random_history(6, 1500)[0])
        once, = self.replay_json(path)
        for schedule in ("random", "fifo", "lifo", "starve"):
            row, = self.replay_json("--lag", 100, "--check", "--repeat", 2, "--seed", 9, path,
                                    "--schedule", schedule)
            self.assertEqual((row["events"], row["schedule"]), (2 * once["events"], schedule))
            self.assertEqual((row["ooms"], row["violations"], row["leaks"]), (0, 0, 0))

    def test_timings_change_times_only(self):
        path = self.pickled("a.pickle", random_history(6, 1500)[0])
        once, = self.replay_json(path)
        least, = self.replay_json("--timings", 3, path)
        self.assertEqual((once.pop("timings"), least.pop("timings")), (1, 3))
        for row in once, least:
            for name in "host_ns_per_op", "host_ns_median", "host_ns_p999":
                self.assertGreater(row.pop(name), 0)
        self.assertEqual(once, least)
        self.assert_fails("--timings: '0' is not a whole number from 1", "replay", "--timings", "0", path)

    def test_bad_settings(self):
        path = self.pickled("a.pickle", [entry("alloc", 1 << 45, 4096)])
        self.assert_fails("no_such_key", "replay", "--conf", "no_such_key:1", path)
        self.assert_fails("no_such_table", "replay", "--costs", "no_such_table", path)
        self.assert_fails("Is a directory", "replay", "--costs", self.folder, path)

    def test_recorded_run(self):
        row, = self.replay_json("--lag", 100, TRACES / "resnet50.pickle.xz")
        self.assertEqual((row["events"], row["streams"], row["ooms"], row["violations"]), (61122, 1, 0, 0))
        self.assertEqual(round(row["peak_allocated_bytes"] / 2**30, 2), 21.56)


HOLDER = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
heap, memory = ctypes.c_void_p(), ctypes.c_void_p()
assert library.trz_open(None, ctypes.byref(heap)) == 0
assert library.trz_alloc(heap, ctypes.c_size_t(300 << 20), ctypes.c_size_t(0), None, ctypes.byref(memory)) == 0
print("ready", flush=True)
sys.stdin.read()
"""


class LiveProcess(unittest.TestCase):
    def explain(self, *args):
        done = subprocess.run([CLI, "explain", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              check=False)
        return done.returncode, done.stdout, done.stderr

    def test_a_running_process_reports(self):
        if not (LIBRARIES / "sim" / "libcuda.so.1").exists():
            self.skipTest("the look-alike of CUDA is not built")
        if HAS_ADDRESS_SANITIZER:
            self.skipTest("Python cannot load a library with AddressSanitizer")
        env = {**os.environ, "LD_LIBRARY_PATH": str(LIBRARIES / "sim"), "TERRAZZO_CONF": "answer:on"}
        with subprocess.Popen([sys.executable, "-c", HOLDER, str(LIBRARIES / "libterrazzo.so")], env=env, text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            self.assertEqual(holder.stdout.readline(), "ready\n")
            code, out, _ = self.explain(str(holder.pid))
            self.assertEqual(code, 0)
            self.assertIn(f"memory of device 0, process {holder.pid}: 300.00 MiB allocated", out)
            code, out, _ = self.explain("--json", "-", str(holder.pid))
            self.assertEqual((code, json.loads(out)["figures"]["allocated"]), (0, 300 << 20))
            for device in (255, 256):  # 256 was asked for as 0, 255 as any
                code, out, err = self.explain("--json", "-", "--device", str(device), str(holder.pid))
                self.assertEqual((code, out), (2, ""))
                self.assertIn(f"process {holder.pid} has no heap on device {device}", err)
            holder.stdin.close()

    def test_a_process_that_does_not_answer(self):
        code, _, err = self.explain(str(os.getpid()))
        self.assertEqual(code, 1)
        self.assertIn("TERRAZZO_CONF=answer:on", err)

    def test_no_such_process(self):
        code, _, err = self.explain(str(1 << 29))
        self.assertNotEqual(code, 0)
        self.assertIn("neither a file nor a process", err)


if __name__ == "__main__":
    unittest.main()
